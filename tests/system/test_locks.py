"""Lock files, held by real processes."""

import subprocess
import sys

import pytest

from pate_jax.errors import PateError
from pate_jax.system import locks

COUNT = """
import sys, time
from pathlib import Path
from pate_jax.system import locks
counter = Path(sys.argv[1])
for _ in range(20):
    with locks.held(counter.with_name(".lock"), counter, wait=True):
        before = int(counter.read_text())
        time.sleep(0.001)
        counter.write_text(str(before + 1))
"""


def test_processes_that_wait_come_one_after_the_other(tmp_path):
    counter = tmp_path / "counter"
    counter.write_text("0")
    command = [sys.executable, "-c", COUNT, str(counter)]
    with locks.held(tmp_path / ".lock", counter):  # released when all of them have been started
        waiting = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in waiting] == [0, 0, 0]
    assert counter.read_text() == "60"


def test_a_process_that_does_not_wait_is_refused(tmp_path):
    with (
        locks.held(tmp_path / ".lock", tmp_path, wait=True),
        pytest.raises(PateError, match="being written"),
        locks.held(tmp_path / ".lock", tmp_path),
    ):
        pass


def test_readers_share_a_lock_that_a_writer_cannot_take(tmp_path):
    with (
        locks.held(tmp_path / ".lock", tmp_path, shared=True),
        locks.held(tmp_path / ".lock", tmp_path, shared=True),
        pytest.raises(PateError, match="being written"),
        locks.held(tmp_path / ".lock", tmp_path),
    ):
        pass
