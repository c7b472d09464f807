"""Killed at every write: what left is never more than the ledger shows, and a re-run ends as if unharmed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from pate_jax import artefact, ledger, stages
from pate_jax.accounting import filter
from pate_jax.cli import main
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.rundir import RunDirectory
from pate_jax.student import StudentConfig
from pate_jax.voting import Votes

ROOT = Path(__file__).parents[1]
MECHANISM = ConfidentDiscreteGaussian(threshold=12.0, sigma_threshold=12.0, sigma=6.0)
CALLS = ("open", "write", "fsync", "replace", "ftruncate", "unlink", "makedirs")
INPUTS = np.random.default_rng(0).normal(size=(21, 3)).astype(np.float32)
pytestmark = pytest.mark.filterwarnings("ignore:no answer names class")


def votes(rows, names):
    random = np.random.default_rng(5)
    labels = random.integers(0, 2, (20, 30)) * (random.random((20, 30)) < 0.4)
    histograms = np.stack([np.bincount(column, minlength=2) for column in labels.T])
    return Votes(histograms[rows].astype(np.int32), ids=np.array(names))


FIRST = votes(np.arange(12), [f"input {row}" for row in range(12)])
SECOND = votes(np.arange(12, 21), [f"input {row}" for row in (*range(12, 19), 3, 4)])


class Crash(BaseException):
    """The end of a process: nothing of ours may survive it."""


class Mortal:
    """The system calls of the one seam that all writes pass; dies at one of them, or in the middle of it."""

    def __init__(self, at=None, half=False):
        self.at, self.half, self.calls, self.dead = at, half, [], False

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def called(*arguments, **options):
            if self.dead:
                raise Crash
            if len(self.calls) == self.at:
                self.dead = True
                if self.half and name == "write":
                    real(arguments[0], arguments[1][: max(1, len(arguments[1]) // 2)])
                raise Crash
            self.calls.append(name)
            if name == "fsync":  # dear, and nothing that a process can see
                return None
            return real(*arguments, **options)

        return called


def ask(run):
    """Two lists of queries under one budget."""
    with run.writing():
        stages.adopt(run, FIRST, seed=3)
        stages.answer(run, MECHANISM, 8.0, 1e-5)
        stages.adopt(run, SECOND, seed=3, more=True)
        stages.answer(run, MECHANISM)


def tell(run):
    with run.writing():
        stages.account(run)
        stages.teach(run, StudentConfig(method="supervised", steps=5), run.root.parent / "pool.npz")
        return stages.tell(run)


def answers(run):
    return [run.answers_of(batch).read_bytes() for batch in range(1, run.batches + 1)]


def check_what_left(run):
    """Every answer that can be read in the run is one that the ledger shows."""
    shown = {entry["batch"]: entry["answers"] for entry in ledger.entries(run.ledger)}
    for batch in (1, 2):
        if run.answers_of(batch).exists():
            left = artefact.read_arrays(run.answers_of(batch), "answers")
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
        patch.setattr(artefact, "os", mortal)
        ask(run)
    return run, mortal.calls


@pytest.mark.parametrize("half", [False, True])
def test_killed_at_every_system_call_a_run_ends_with_the_same_answers(unharmed, tmp_path, monkeypatch, half):
    expected, calls = unharmed
    said = 0
    for at, name in enumerate(calls):
        if half and name != "write":
            continue
        run = RunDirectory(tmp_path / f"run-{at}")
        with monkeypatch.context() as patch:
            patch.setattr(artefact, "os", Mortal(at, half))
            with pytest.raises(Crash):
                ask(run)
        check_what_left(run)
        said += run.ledger.exists() and ledger.check(run.ledger).torn is not None
        ask(run)
        check_what_left(run)
        assert answers(run) == answers(expected), (at, name)
        assert [entry["batch"] for entry in ledger.entries(run.ledger)] == [1, 2]
        assert not list(run.root.rglob("*.tmp"))
    assert len(calls) > 60
    assert said == (2 if half else 0)  # each of the two lines was torn once


def test_killed_between_any_two_files_a_run_tells_the_same(unharmed, tmp_path, monkeypatch):
    """Account, student and report; pictures are left out, since they say nothing of crashes."""
    for module, names in (
        (stages.plots, ("cumulative", "by_consensus", "split")),
        (stages.report, ("consensus", "accuracies")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, lambda *_: b"<svg/>")
    expected, _ = unharmed
    mortal = Mortal()
    with monkeypatch.context() as patch:
        patch.setattr(artefact, "os", mortal)
        wanted = tell(expected)
    np.savez(tmp_path / "pool.npz", inputs=INPUTS)
    places = [at for at, name in enumerate(mortal.calls) if name == "replace"]
    for place in places:
        run = RunDirectory(tmp_path / "run")
        run.root.exists() or ask(run)
        for at, ends in ((place, pytest.raises(Crash)), (place + 1, suppress(Crash))):
            with monkeypatch.context() as patch:
                patch.setattr(artefact, "os", Mortal(at))
                with ends:  # the second time less is left to do, maybe nothing
                    tell(run)
            check_what_left(run)
        found = tell(run)
        assert {**found, "run_dir": ""} == {**wanted, "run_dir": ""}
        assert answers(run) == answers(expected)
        for file in expected.release.rglob("*.npz"):
            assert (run.release / file.relative_to(expected.release)).read_bytes() == file.read_bytes()
        for file in (*run.release.rglob("*.*"), run.statement, run.public_statement, run.results, run.report):
            file.unlink(missing_ok=True)
    assert len(places) >= 8


COMMANDS = """
import sys
from pate_jax.cli import main
folder = sys.argv[1]
common = ["--out", folder + "/run", "--seed", "3"]
main(["aggregate", folder + "/first.npz", *common, "--budget-epsilon", "8",
      "confident-discrete-gaussian", "--threshold", "12", "--sigma-threshold", "12", "--sigma", "6"])
main(["aggregate", folder + "/second.npz", *common, "--more"])
main(["account", folder + "/run"])
"""
TINY = [
    *("run", "strokes", "--records", "90", "--teachers", "5", "--net", "mlp", "--epochs", "1", "--min-steps"),
    *("4", "--student.net", "mlp", "--student.method", "supervised", "--student.steps", "12", "--seed", "3"),
    *("--queries", "21", "--json", "confident-discrete-gaussian", "--threshold", "1", "--sigma-threshold"),
    *("3", "--sigma", "2"),
]


def kill_at_random(command, folder, files, random):
    """Start a process, wait until so many files are there, kill it a moment later."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(folder.rglob("run/private/*"))) < files:
        time.sleep(0.002)
    try:
        process.wait(float(random.uniform(0, 0.05)))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    assert process.wait() in (0, -signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("moment", range(16))
def test_a_real_kill_loses_nothing(unharmed, tmp_path, moment):
    expected, _ = unharmed
    np.savez(tmp_path / "first.npz", votes=FIRST.votes, ids=FIRST.ids)
    np.savez(tmp_path / "second.npz", votes=SECOND.votes, ids=SECOND.ids)
    command = [sys.executable, "-c", COMMANDS, str(tmp_path)]
    kill_at_random(command, tmp_path, 1 + moment * 3 // 4, np.random.default_rng(moment))
    run = RunDirectory(tmp_path / "run")
    check_what_left(run)
    ask(run)
    check_what_left(run)
    assert answers(run) == answers(expected)


@pytest.mark.long
@pytest.mark.parametrize("moment", range(4))
def test_a_real_kill_of_a_whole_run_loses_nothing(tmp_path, moment, capsys):
    main([*TINY[:2], "--out", str(tmp_path / "expected"), *TINY[2:]])
    arguments = [*TINY[:2], "--out", str(tmp_path / "run"), *TINY[2:]]
    command = [sys.executable, "-m", "pate_jax.cli", *arguments]
    kill_at_random(command, tmp_path, (3, 7, 10, 13)[moment], np.random.default_rng(moment))
    run, expected = RunDirectory(tmp_path / "run"), RunDirectory(tmp_path / "expected")
    check_what_left(run)
    capsys.readouterr()
    main(arguments)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["queries"] == 21
    assert answers(run) == answers(expected)
    name = "parameters.npz"
    assert (run.student / name).read_bytes() == (expected.student / name).read_bytes()
