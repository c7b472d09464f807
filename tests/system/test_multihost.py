"""Two and four processes vote as one does, at every width, and hold a run together, shut to others."""

import signal
import socket
import time
from pathlib import Path

import forked
import jax
import numpy as np
import pytest
import quick_compiler
import tiny_teachers as tiny

from pate_jax import cli, ensemble
from pate_jax.ensemble import checkpoint
from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import devices, storage


def votes(width, count, directory=None):
    (inputs, labels), (asked, _) = tiny.table(), tiny.table(records=70, seed=5)
    net = tiny.table_net()
    teachers = ensemble.fit(
        net, tiny.Same(), inputs, labels, tiny.shards(),
        key=jax.random.key(3), config=tiny.config(width=width, devices=count), directory=directory,
    )  # fmt: skip
    return ensemble.vote(net, tiny.Same(), teachers, asked), teachers


def one_of_several(address, processes, index, folder, *plans):
    """What each process does: an ensemble for each plan, a width and a number of devices."""
    devices.join(address, processes, index)
    devices._BLOCK = 400  # so that what is exchanged comes in several blocks
    for plan in plans:
        width, count = map(int, plan.split("x"))
        found, teachers = votes(width, count, Path(folder) / plan)
        np.savez(Path(folder) / f"{plan}-{index}.npz", votes=found, ids=teachers.ids)


def free_address():
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


@pytest.mark.long
@pytest.mark.parametrize(("processes", "plans"), [(2, ("1x4", "2x4", "5x1")), (4, ("2x2", "3x1"))])
def test_several_processes_vote_as_one(tmp_path, processes, plans):
    """Eleven teachers: five and six, or two and three times three, alone or several in a program."""
    environment = {"XLA_FLAGS": quick_compiler.environment(devices=4)["XLA_FLAGS"]}
    name, address = "test_multihost:one_of_several", free_address()
    running = [
        forked.function(name, address, processes, index, str(tmp_path), *plans, environment=environment)
        for index in range(processes)
    ]
    assert forked.ended(running) == [0] * processes
    for plan in plans:
        width, count = map(int, plan.split("x"))
        expected, whole = votes(width, processes * count if count > 1 else 1)
        assert expected.sum(axis=1).tolist() == [len(tiny.COUNTS)] * 70
        parts = [np.load(tmp_path / f"{plan}-{index}.npz") for index in range(processes)]
        assert all(np.array_equal(part["votes"], expected) for part in parts)
        assert np.concatenate([part["ids"] for part in parts]).tolist() == whole.ids.tolist()
        assert {len(part["ids"]) for part in parts} == {11 // processes, 11 // processes + 1}
        folders = sorted((tmp_path / plan).iterdir())
        assert [folder.name for folder in folders] == [f"process-00{index}" for index in range(processes)]
        assert [checkpoint.plan(folder).width for folder in folders] == [width] * processes
        again = tiny.leaves(checkpoint.finished_teachers(tmp_path / plan).params)
        np.testing.assert_allclose(again, tiny.leaves(whole.params), rtol=1e-4, atol=1e-5)


def readable(folder):
    """What other users of the machine may look into, of a run's private part."""
    if not folder.stat().st_mode & 0o077:
        return []
    inside = [readable(path) if path.is_dir() else [path] for path in folder.iterdir()]
    return [folder, *(path for found in inside for path in found if path.stat().st_mode & 0o077)]


def run_until_killed(words):
    """`pate`, in a process that waits to be killed once its first wave is kept and a writer was refused."""
    finish = checkpoint.Store.finish

    def wait_to_be_killed(store, index, wave):
        finish(store, index, wave)
        run = RunDirectory(store.folder.parents[2])
        try:
            with run.writing():
                pass
        except PateError as error:
            storage.write_bytes(run.root.parent / f"refused-{store.folder.name}", str(error).encode())
        while True:
            signal.pause()

    checkpoint.Store.finish = wait_to_be_killed
    cli.main(words)


def killed_together(processes, markers):
    """The exit codes of processes that are killed once each has written its file.

    The first process coordinates: JAX aborts the others when it is lost, so it is killed last.
    """
    while not all(marker.exists() for marker in markers):
        assert all(process.is_alive() for process in processes), "one ended too early"
        time.sleep(0.1)
    for process in reversed(processes):
        process.kill()
    return forked.ended(processes)


@pytest.mark.long
def test_two_processes_that_are_killed_leave_nothing_open_and_go_on(tmp_path):
    """Two waves of three teachers in each process, three in a program; both are killed after one wave."""
    wanted = (
        "run strokes --records 180 --teachers 12 --epochs 1 --min-steps 4 --net mlp --width 3 --devices 1"
    )
    student = "--student.method supervised --student.net mlp --student.steps 6 --seed 3 --queries 21"
    noise = "confident-discrete-gaussian --threshold 1 --sigma-threshold 3 --sigma 2"

    def pate(out, *more):
        return [*wanted.split(), *student.split(), "--out", str(tmp_path / out), *more, *noise.split()]

    def both(how):
        together = ["--coordinator", free_address(), "--processes", "2", "--process"]
        return [forked.function(how, pate("two", *together, index)) for index in "01"]

    refusals = [tmp_path / f"refused-process-00{index}" for index in (0, 1)]
    killed = killed_together(both("test_multihost:run_until_killed"), refusals)
    assert killed == [-signal.SIGKILL] * 2
    assert all("two is being written by process" in path.read_text() for path in refusals)
    private = tmp_path / "two" / "private"
    assert readable(private) == []
    first = sorted(private.glob("teachers/process-*/wave-00000-*/arrays.npz"))
    assert len(first) == 2 and all(path.stat().st_mode & 0o077 == 0 for path in first)
    began = [path.stat().st_mtime_ns for path in first]
    assert forked.ended(both("pate_jax.cli:main")) == [0, 0]
    assert [path.stat().st_mtime_ns for path in first] == began
    assert readable(private) == []
    assert forked.ended([forked.pate(pate("one"))]) == [0]
    one, two = (tmp_path / name / "private/answers.npz" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    with np.load(private / "votes.npz") as these, np.load(tmp_path / "one/private/votes.npz") as those:
        assert np.array_equal(these["votes"], those["votes"])
