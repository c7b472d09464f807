"""Killed at every write: what left is never more than the ledger shows, and a re-run ends as if unharmed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from pate_jax import voting
from pate_jax.accounting import filter
from pate_jax.cli import main
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.runs import batches, chain, ledger, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Supervised
from pate_jax.system import storage
from pate_jax.voting import Votes

ROOT = Path(__file__).parents[2]
NAME = "confident-discrete-gaussian"
MECHANISM = ConfidentDiscreteGaussian(threshold=12.0, sigma_threshold=12.0, sigma=6.0)
CALLS = ("open", "write", "fsync", "replace", "ftruncate", "unlink", "makedirs")
INPUTS = np.random.default_rng(0).normal(size=(21, 3)).astype(np.float32)
pytestmark = [
    pytest.mark.filterwarnings("ignore:no answer names class"),
    pytest.mark.usefixtures("without_pictures"),
]


def votes(rows, names):
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, (20, 30)) * (random.random((20, 30)) < 0.4)
    histograms = np.stack([np.bincount(column, minlength=2) for column in labels.T])
    return Votes(histograms[rows].astype(np.int32), ids=np.array(names))


FIRST = votes(np.arange(12), [f"input {row}" for row in range(12)])
SECOND = votes(np.arange(12, 21), [f"input {row}" for row in (*range(12, 19), 3, 4)])


class Crash(BaseException):
    """The end of a process: nothing of ours may survive it."""


def crash():
    raise Crash


class Mortal:
    """The system calls of the one seam that all writes pass; dies at one of them, or in the middle of it."""

    def __init__(self, at=None, half=False, die=None):
        self.at, self.half, self.die, self.calls, self.dead = at, half, die or crash, [], False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def called(*arguments, **options):
            if self.dead:
                self.die()
            if len(self.calls) == self.at:
                self.dead = True
                if self.half and name == "write":
                    real(arguments[0], arguments[1][: max(1, len(arguments[1]) // 2)])
                self.die()
            self.calls.append(name)
            if name == "fsync":  # dear, and nothing that a process can see
                return None
            return real(*arguments, **options)

        return called


def ask(run):
    """Two lists of queries under one budget."""
    with run.writing():
        batches.adopt(run, FIRST, seed=3, relation="record")
        batches.answer(run, MECHANISM, 8.0, 1e-5)
        batches.adopt(run, SECOND, seed=3, more=True)
        batches.answer(run, MECHANISM)


def tell(run):
    with run.writing():
        stages.account(run)
        stages.teach(run, Supervised(steps=5), run.root.parent / "pool.npz")
        return stages.tell(run)


def answers(run):
    return [run.answers_of(batch).read_bytes() for batch in range(1, run.batches + 1)]


def check_what_left(run):
    """Every answer that can be read in the run is one that the ledger shows."""
    shown = {line.batch: line.values for line in ledger.lines(run.ledger)}
    for batch in (1, 2):
        if run.answers_of(batch).exists():
            left = storage.read_arrays(run.answers_of(batch), "answers")
            assert shown[batch] == ledger.pack(left["labels"], left["answered"])


@pytest.fixture(autouse=True, scope="module")
def planned_once():
    """Every run here has one budget and one mechanism: what depends on these alone is worked out once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plan", "cost"):
            patch.setattr(filter, name, lru_cache(getattr(filter, name)))
        yield


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory):
    """A run that nothing happened to, and the system calls that it made."""
    folder, mortal = tmp_path_factory.mktemp("crash"), Mortal()
    np.savez(folder / "pool.npz", inputs=INPUTS)
    run = RunDirectory(folder / "run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        ask(run)
    return run, mortal.calls


@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
def test_killed_at_every_system_call_a_run_ends_with_the_same_answers(unharmed, tmp_path, monkeypatch, half):
    expected, calls = unharmed
    said = 0
    for at, name in enumerate(calls):
        if half and name != "write":
            continue
        run = RunDirectory(tmp_path / f"run-{at}")
        with monkeypatch.context() as patch:
            patch.setattr(storage, "os", Mortal(at, half))
            with pytest.raises(Crash):
                ask(run)
        check_what_left(run)
        said += run.ledger.exists() and chain.check(run.ledger).torn is not None
        ask(run)
        check_what_left(run)
        assert answers(run) == answers(expected), (at, name)
        assert [line.batch for line in ledger.lines(run.ledger)] == [1, 2]
        assert not list(run.root.rglob("*.tmp"))
    assert len(calls) > 60
    assert said == (2 if half else 0)  # each of the two lines was torn once


@pytest.mark.long
def test_killed_between_any_two_files_a_run_tells_the_same(unharmed, tmp_path, monkeypatch):
    """Account, student and report; pictures are left out, since they say nothing of crashes."""
    monkeypatch.setattr(stages.run_pages.plots, "every", lambda *_, **__: [b"<svg/>"] * 3)
    for name in ("consensus", "accuracies"):
        monkeypatch.setattr(stages.run_pages, name, lambda *_, **__: b"<svg/>")
    expected, _ = unharmed
    asked = shutil.copytree(expected.root, tmp_path / "asked")
    mortal = Mortal()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        wanted = tell(expected)
    np.savez(tmp_path / "pool.npz", inputs=INPUTS)
    places = [at for at, name in enumerate(mortal.calls) if name == "replace"]
    for place in places:
        run = RunDirectory(shutil.copytree(asked, tmp_path / f"run-{place}"))
        for at, ends in ((place, pytest.raises(Crash)), (place + 1, suppress(Crash))):
            with monkeypatch.context() as patch:
                patch.setattr(storage, "os", Mortal(at))
                with ends:  # the second time less is left to do, maybe nothing
                    tell(run)
            check_what_left(run)
        found = tell(run)
        assert {**found, "run_dir": ""} == {**wanted, "run_dir": ""}
        assert answers(run) == answers(expected)
        for file in expected.release.rglob("*.npz"):
            assert (run.release / file.relative_to(expected.release)).read_bytes() == file.read_bytes()
    assert len(places) >= 8


# Real processes, really killed.

CHILDREN = """
import json, os, sys
sys.path[:0] = sys.argv[1:]
import test_crash
from matplotlib.figure import Figure
from pate_jax import cli
from pate_jax.runs import pipeline
from pate_jax.system import storage
Figure.savefig = lambda self, out, **_: out.write(b"<svg/>")  # drawing takes long
for line in sys.stdin:
    at, half, commands = json.loads(line)
    child = os.fork()
    if child == 0:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if at is not None:
            storage.os = test_crash.Mortal(at, half, die=test_crash.kill_me)
        for command in commands:
            cli.main(command)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
TINY = [
    *("run", "strokes", "--records", "90", "--teachers", "5", "--net", "mlp", "--epochs", "1", "--min-steps"),
    *("4", "--student.net", "mlp", "--student.method", "supervised", "--student.steps", "12", "--seed", "3"),
    *("--queries", "21", "--json", "confident-discrete-gaussian", "--threshold", "1", "--sigma-threshold"),
    *("3", "--sigma", "2"),
]


def kill_me():
    os.kill(os.getpid(), signal.SIGKILL)


def commands(folder):
    """Two lists of queries, the statement and the student, as a shell would run them."""
    for name, part in (("first", FIRST), ("second", SECOND)):
        voting.save_votes(folder / f"{name}.npz", part)
    np.savez(folder / "pool.npz", inputs=INPUTS)
    run, common = str(folder / "run"), ["--out", str(folder / "run"), "--seed", "3"]
    noise = ["--threshold", "12", "--sigma-threshold", "12", "--sigma", "6"]
    return [
        [
            "aggregate",
            str(folder / "first.npz"),
            *common,
            "--relation",
            "record",
            "--budget-epsilon",
            "8",
            NAME,
            *noise,
        ],
        ["aggregate", str(folder / "second.npz"), *common, "--more"],
        ["account", run],
        ["student", run, "--method", "supervised", "--steps", "5", "--public", str(folder / "pool.npz")],
    ]


def carried_out(commands):
    for command in commands:
        main(command)


def whole(folder, commands):
    """The run that uninterrupted commands make, and the system calls that it takes."""
    mortal = Mortal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        carried_out(commands)
    return RunDirectory(folder / "run"), mortal.calls


class Children:
    """A process that starts others, one at a time: what it has loaded they need not load again."""

    def __init__(self, kept_programs):
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "JAX_COMPILATION_CACHE_DIR": str(kept_programs),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        }
        command = [sys.executable, "-c", CHILDREN, str(ROOT / "tests"), str(ROOT / "tests/system")]
        pipe = subprocess.PIPE
        self.parent = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True)

    def start(self, commands, at=None, half=False):
        """Begin the commands in a process of their own, to be killed at its `at`-th system call."""
        self.parent.stdin.write(json.dumps([at, half, commands]) + "\n")
        self.parent.stdin.flush()
        return int(self.parent.stdout.readline())

    def end(self):
        """How it ended."""
        return int(self.parent.stdout.readline())


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    made = Children(tmp_path_factory.mktemp("programs"))
    with made.parent:
        yield made
        made.parent.stdin.close()
    assert made.parent.returncode == 0


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("expected")
    return whole(folder, commands(folder))


@pytest.fixture(scope="module")
def expected_tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return whole(folder, [[*TINY[:2], "--out", str(folder / "run"), *TINY[2:]]])[0]


def same(run, expected):
    """Answers, statement and student, byte for byte."""
    assert answers(run) == answers(expected)
    for one in ("public_statement", "statement"):
        assert getattr(run, one).read_bytes() == getattr(expected, one).read_bytes()
    assert (run.student / "parameters.npz").read_bytes() == (expected.student / "parameters.npz").read_bytes()


def died_here(todo, at, half):
    """As a killed process: from that system call on nothing is written."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Crash):
        patch.setattr(storage, "os", Mortal(at, half))
        carried_out(todo)


@pytest.mark.long
@pytest.mark.parametrize("moment", range(16))
def test_killed_at_a_system_call_commands_lose_nothing(children, expected, tmp_path, moment):
    """Moments spread over all commands; every other in the middle of what it writes, every fifth for real."""
    todo, (unharmed_run, calls), half = commands(tmp_path), expected, moment % 2 == 1
    at = (2 * moment + 1) * len(calls) // 32
    at += calls[at:].index("write") if half else 0
    if moment % 5 == 0:
        children.start(todo, at, half)
        assert children.end() == -signal.SIGKILL
    else:
        died_here(todo, at, half)
    run = RunDirectory(tmp_path / "run")
    check_what_left(run)
    carried_out(todo)
    check_what_left(run)
    same(run, unharmed_run)


@pytest.mark.long
@pytest.mark.parametrize("files", [3, 8, 12])
def test_a_whole_run_killed_at_any_time_loses_nothing(children, expected_tiny, tmp_path, files):
    """Killed from outside, a moment after so many files are there."""
    todo = [[*TINY[:2], "--out", str(tmp_path / "run"), *TINY[2:]]]
    child = children.start(todo)
    until = time.monotonic() + 120
    while len(list(tmp_path.rglob("run/private/*"))) < files and time.monotonic() < until:
        time.sleep(0.002)
    time.sleep(float(np.random.default_rng(files).uniform(0, 0.05)))
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    assert children.end() == -signal.SIGKILL
    run = RunDirectory(tmp_path / "run")
    check_what_left(run)
    carried_out(todo)
    check_what_left(run)
    same(run, expected_tiny)
