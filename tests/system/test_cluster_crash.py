"""Commands and schedulers that are killed: a repeated command goes on, and nothing is charged twice."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import forked
import numpy as np
import pytest
from commands import call

from pate_jax.sweep import results

pytestmark = pytest.mark.long
pytest.importorskip("distributed")
KILLS, LONGEST = 20, 3.0  # kills of the command, and seconds until one
GRID = """
private = "private.npz"
public = "public.npz"
ids-are-stable = true
[[grid]]
voters = "sums"
epsilon = 2
seed = [0, 1]
[[grid]]
seed = [0, 1]
net = "linear"
teachers = 5
queries = 20
"student.method" = "ridge"
mechanism = {name = "discrete-gaussian", sigma = 2.0}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with records and a grid of four runs, in which the test works."""
    random = np.random.default_rng(0)
    for name, rows in (("private", 300), ("public", 80)):
        inputs = random.normal(size=(rows, 3)).astype(np.float32)
        ids = np.array([f"{name}-{row}" for row in range(rows)])
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=(inputs[:, 0] > 0).astype(int), ids=ids)
    (tmp_path / "grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def charged(folder):
    """How many lines the ledger of each run has."""
    ledgers = Path(folder).glob("runs/*/private/ledger.jsonl")
    return {path.parts[-3]: len(path.read_text().splitlines()) for path in ledgers}


def students(folder):
    """What each run publishes of its student."""
    files = (path for path in Path(folder).glob("runs/*/release/student/*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_a_command_that_is_killed_at_random_moments_ends_as_if_it_had_not_been(place):
    """Twenty real signals, which its workers do not outlive; whoever is done begins again elsewhere."""
    random, killed, folders = np.random.default_rng(0), 0, ["out-0"]

    def begun():
        words = ["sweep", "--runs", "grid.toml", "--out", folders[-1], "--workers", "2"]
        return forked.pate(words, folder=place, log=place / "sweep.log")

    while killed < KILLS:
        command = begun()
        command.join(random.uniform(0.2, LONGEST))
        if command.exitcode is None:
            os.kill(command.pid, signal.SIGKILL)
            killed += 1
        else:
            folders.append(f"out-{len(folders)}")
        assert forked.ended([command])[0] in (0, -signal.SIGKILL), Path("sweep.log").read_text()
    assert forked.ended([begun()]) == [0], Path("sweep.log").read_text()
    assert call("sweep", "--runs", "grid.toml", "--out", "here") == 0
    for folder in folders:
        assert results.read(Path(folder)) == results.read(Path("here"))
        assert len((Path(folder) / "results.jsonl").read_text().splitlines()) == 4
        assert charged(folder) == charged("here") and students(folder) == students("here")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def scheduler():
    """A scheduler with one worker, in processes of their own: its address, and the scheduler's process."""
    port = free_port()
    address, usual = f"tcp://127.0.0.1:{port}", {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    words = {
        "scheduler": ["--host", "127.0.0.1", "--port", str(port), "--no-dashboard"],
        "worker": [address, "--nthreads", "1", "--no-dashboard"],
    }
    parts = [
        subprocess.Popen([sys.executable, "-m", f"distributed.cli.dask_{name}", *told], **usual)
        for name, told in words.items()
    ]
    try:
        wait_until(lambda: answers(port))
        yield address, parts[0]
    finally:
        for one in reversed(parts):
            one.terminate()
        for one in parts:
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait(20)


def wait_until(true):
    until = time.monotonic() + 120
    while not true():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_command_whose_scheduler_is_killed_ends_and_a_repeated_one_goes_on(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    np.savez(tmp_path / "votes.npz", votes=random.multinomial(50, [0.2, 0.3, 0.5], 300))
    monkeypatch.chdir(tmp_path)
    flags = [
        "votes.npz",
        "--mechanisms",
        "gnmax",
        "--noises",
        "5:40:24",
        "--queries",
        "300",
        "--exact",
        "all",
    ]
    rows = Path("out/results.jsonl")

    def begun(address):
        command = ["sweep", *flags, "--out", "out", "--cluster", address]
        return forked.pate(command, folder=tmp_path, log=tmp_path / "sweep.log")

    def written():
        return rows.read_text().count("\n") if rows.exists() else 0

    with scheduler() as (address, process):
        command, enough = begun(address), random.integers(1, 40)
        wait_until(lambda: written() >= enough or command.exitcode is not None)
        process.kill()
        assert forked.ended([command]) == [2]
    assert f"the scheduler at {address} is gone: what has ended is kept" in Path("sweep.log").read_text()
    before = rows.read_text()
    assert enough <= written() < 48
    with scheduler() as (address, _):
        assert forked.ended([begun(address)]) == [0], Path("sweep.log").read_text()
    assert call("sweep", *flags, "--out", "here") == 0
    assert rows.read_text().startswith(before) and written() == 48
    assert results.read(Path("out")) == results.read(Path("here"))
