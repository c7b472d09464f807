"""How commands end in a real pipe whose reader leaves early: quietly, with the status that shells expect."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BEGIN = "from pate_jax import errors\nfrom pate_jax.system import exits\nwith exits.told('pate'):\n    "


def in_pipe(command, *, unbuffered=False, errors_too=False):
    """Run a command whose reader is gone before it prints; its exit status and standard error."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1" if unbuffered else ""}
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, *command],
            stdout=writer,
            stderr=writer if errors_too else subprocess.PIPE,
            env=environment,
            text=True,
            timeout=120,
        )
    finally:
        os.close(writer)
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("unbuffered", [False, True])
@pytest.mark.parametrize("said", ["print('one line')", "print('many lines\\n' * 100_000)"])
def test_a_reader_that_leaves_ends_a_command_quietly(said, unbuffered):
    assert in_pipe(["-c", BEGIN + said], unbuffered=unbuffered) == (141, "")


def test_an_error_is_still_told_where_only_the_results_are_not_read():
    status, said = in_pipe(["-c", BEGIN + "print('begun'); raise errors.PateError('teachers=0')"])
    assert status == 141 and said == "pate: teachers=0\n"


def test_a_reader_of_both_streams_may_leave():
    assert in_pipe(["-c", BEGIN + "raise errors.PateError('teachers=0')"], errors_too=True)[0] == 141


def test_another_broken_pipe_is_no_quiet_end():
    program = "import os; a, b = os.pipe(); os.close(a); os.write(b, b'x')"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", BEGIN + program], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 1 and "BrokenPipeError" in ended.stderr


def test_an_interrupt_within_an_executed_text_ends_with_the_usual_status(tmp_path):
    """Libraries execute texts where they make dataclasses."""
    interrupted = 'exec("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(9)")'
    (tmp_path / "stopped.py").write_text(BEGIN + interrupted)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    ended = subprocess.run([sys.executable, "-m", "stopped"], env=environment, capture_output=True, text=True)
    assert ended.returncode == 130 and ended.stderr.startswith("pate: stopped; repeat the same command")


@pytest.mark.long
def test_account_in_a_shell_pipe(tmp_path):
    """As it is typed: `pate account ... | head -1`."""
    votes = tmp_path / "votes.npy"
    np.save(votes, np.array([[9, 1], [8, 2]]))
    line = f"{sys.executable} -m pate_jax.cli account {votes} gnmax --sigma 4 | true; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stdout.strip() == "141" and ended.stderr == ""


def test_a_warning_of_ours_is_one_line_and_others_say_where_they_come_from():
    """In a process of its own, since pytest collects the warnings of this one."""
    program = """
import warnings
from pate_jax import errors
from pate_jax.system import exits
with exits.told("pate"):
    for filters in range(2):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("no answer names class 3", errors.PateWarning)
    warnings.warn("something else")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    ours, other = ended.stderr.splitlines()[:2]
    assert ours == "warning: no answer names class 3" and other.endswith("UserWarning: something else")
