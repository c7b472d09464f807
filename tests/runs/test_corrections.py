"""A command that was mistyped records nothing, so that it can be given again, corrected."""

import socket

import forked
import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import PartitionChoice

TEACHER = ("--net", "table", "--epochs", 1, "--min-steps", 3, "--batch-size", 8)


def files(**changed):
    paths = {name: getattr(honest_runs.table(), name) for name in ("private", "public", "test")} | changed
    return [part for name, path in paths.items() for part in (f"--{name}", path)]


def recorded(run):
    return {path.name for path in run.private.rglob("*.json")}


@pytest.mark.long
def test_a_mistyped_training_can_be_given_again(tmp_path, capsys):
    run, out = RunDirectory(tmp_path / "own"), ("--out", tmp_path / "own")
    wrong = {
        "nowhere.npz does not exist": [*files(public="nowhere.npz"), "--teachers", 6],
        "nobody.npz does not exist": [*files(private="nobody.npz"), "--teachers", 6],
        "nothing.npz does not exist": [*files(test="nothing.npz"), "--teachers", 6],
        "more than the 80 records": [*files(), "--teachers", 81, "--seed", 3],
        "more than the 40 records or users": [*files(), "--teachers", 41, "--by", "user"],
        "cnn": [*files(), "--teachers", 6, "--net", "cnn"],
    }
    for said, arguments in wrong.items():
        assert call("train", *arguments, *out) == 2
        assert said in capsys.readouterr().err
        assert recorded(run) == set(), said
    assert call("run", *files(), "--teachers", 6, "--queries", 31, *out) == 2  # of 30 public inputs
    assert recorded(run) == set()
    assert call("train", *files(), "--teachers", 6, *TEACHER, *out) == 0
    assert recorded(run) >= {"settings.json", "keys.json", "teachers.json"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run under a budget that has answered, and further inputs for it."""
    folder = tmp_path_factory.mktemp("trained")
    run = RunDirectory(folder / "run")
    teacher = TeacherConfig(net="table", epochs=1, min_steps=3, batch_size=8, devices=1)
    with run.writing():
        inputs = stages.begin(run, honest_runs.table(), PartitionChoice(teachers=6), teacher)
        stages.train(inputs)
        stages.settle(inputs, DiscreteGaussianMax(4.0), 30.0, 1e-5)
    further = np.random.default_rng(8).normal(size=(9, 4)).astype(np.float32)
    np.savez(folder / "further.npz", inputs=further)
    np.savez(folder / "wide.npz", inputs=np.zeros((9, 5)))
    return run


@pytest.mark.long
def test_a_mistyped_vote_can_be_given_again(trained, capsys):
    folder = trained.root.parent
    assert call("vote", trained.root, "--queries", 999) == 2
    assert "vote" not in trained.record.stages()
    assert call("vote", trained.root, "--queries", 12) == 0
    assert call("account", trained.root, "--delta", 1e-3) == 2  # nothing is answered yet
    assert "account" not in trained.record.stages()
    assert call("aggregate", trained.root) == 0
    for file, queries in (("nowhere.npz", 5), ("wide.npz", 5), ("further.npz", 10)):
        assert call("vote", trained.root, "--more", "--public", folder / file, "--queries", queries) == 2
        assert "vote 2" not in trained.record.stages(), file
    assert call("vote", trained.root, "--more", "--public", folder / "further.npz", "--queries", 5) == 0
    assert call("aggregate", trained.root) == 0
    assert call("account", trained.root) == 0
    assert call("student", trained.root, "--method", "gan") == 2
    assert "needs images" in capsys.readouterr().err
    assert "student" not in trained.record.stages()


@pytest.mark.long
def test_a_mistyped_student_can_be_given_again(tmp_path):
    run, votes = RunDirectory(tmp_path / "run"), np.where(np.eye(3, dtype=bool)[np.arange(30) % 3], 30, 5)
    with run.writing():
        batches.adopt(run, voting.Votes(votes), None, relation="record")
        batches.answer(run, DiscreteGaussianMax(6.0))
        stages.account(run, 1e-5)
    steps = ("--net", "table", "--steps", 8, "--batch-size", 8)
    assert call("student", run.root, "--public", tmp_path / "nowhere.npz", "--method", "vat", *steps) == 2
    assert call("student", run.root, "--method", "vat", *steps) == 2  # no --public
    right = ("--public", honest_runs.table().public, "--method", "supervised", *steps)
    assert call("student", run.root, *right) == 0


def test_votes_that_the_mechanism_cannot_answer_are_not_adopted(tmp_path, capsys):
    """The wrong votes file was named: the right one may still begin the run."""
    for name, teachers in (("few", 10), ("many", 200)):
        voting.save_votes(tmp_path / f"{name}.npz", voting.Votes(np.full((4, 2), teachers // 2)))
    noise = ("confident-discrete-gaussian", "--threshold", 120, "--sigma-threshold", 1, "--sigma", 8)
    out = ("--relation", "record", "--out", tmp_path / "run")
    assert call("aggregate", tmp_path / "few.npz", *out, *noise) == 2
    assert "threshold=120" in capsys.readouterr().err
    assert recorded(RunDirectory(tmp_path / "run")) == set()
    assert call("aggregate", tmp_path / "many.npz", *out, *noise, "--seed", 5) == 0


@pytest.mark.long
def test_of_several_processes_none_records_what_another_cannot_open(tmp_path):
    """The second one runs where the files are not."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    (tmp_path / "elsewhere").mkdir()
    data = honest_runs.table()
    named = ["--private", data.private.name, "--public", data.public.name]
    common = [*named, "--teachers", "6", "--queries", "9", "--out", str(tmp_path / "run")]
    joined = ["--coordinator", address, "--processes", "2", "--process"]
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    running = [
        forked.pate(["run", *common, *joined, index], folder=place, log=logs[index])
        for index, place in enumerate((data.private.parent, tmp_path / "elsewhere"))
    ]
    running[1].join(300)
    running[0].kill()
    forked.ended(running)
    assert "private.npz does not exist" in logs[1].read_text()
    assert recorded(RunDirectory(tmp_path / "run")) == set()
