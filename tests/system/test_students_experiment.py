"""The students' experiment on inputs and votes of one's own: one line a student, and none is done twice."""

import json

import numpy as np
import pytest

from experiments import student_cases, students
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax
from pate_jax.student import Supervised


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 200)
    inputs = (np.eye(3, 5)[labels] * 4 + random.normal(size=(200, 5))).astype(np.float32)
    told = np.where(random.random((70, 200)) < 0.9, labels, random.integers(0, 3, (70, 200)))
    np.savez(tmp_path / "inputs.npz", inputs=inputs, labels=labels)
    np.savez(tmp_path / "votes.npz", teacher_labels=told)
    return tmp_path


@pytest.mark.long
def test_each_student_is_one_line_and_is_done_once(files, monkeypatch, capsys):
    config = Supervised(steps=40, batch_size=8)
    case = student_cases.Case("tiny", "none", 30, GNMax(20.0), config, "random")
    monkeypatch.setitem(students.CASES, "tiny", case)
    settings = {
        "inputs": files / "inputs.npz",
        "votes": files / "votes.npz",
        "out": files / "out.jsonl",
        "seeds": 2,
    }
    students.main("tiny", splits=2, **settings)
    lines = [json.loads(line) for line in (files / "out.jsonl").read_text().splitlines()]
    assert sorted((line["fold"], line["seed"]) for line in lines) == [(7, 0), (9, 0), (9, 1)]
    assert {line["test"] for line in lines} == {"140 to 159", "180 to 199"}
    assert all(line["accuracy"] > 0.8 and line["answered"] == 30 for line in lines)
    assert all(0 < line["epsilon_exact"] < line["epsilon_publishable"] for line in lines)
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["seeds"] == 2 and told["splits"] == 2
    both = [line["accuracy"] for line in lines if line["fold"] == 9]
    assert told["accuracy"] == pytest.approx(np.mean(both), abs=1e-4)
    students.main("tiny", splits=2, **settings)
    assert len((files / "out.jsonl").read_text().splitlines()) == 3
    students.main("tiny", splits=1, told="truth", **{**settings, "seeds": 1})
    last = json.loads((files / "out.jsonl").read_text().splitlines()[-1])
    assert last["told"] == "truth" and last["label_accuracy"] == 1.0


def test_votes_that_do_not_belong_to_the_inputs_are_refused(files):
    np.savez(files / "short.npz", inputs=np.zeros((7, 5), np.float32), labels=np.zeros(7, int))
    with pytest.raises(PateError, match="7 inputs and 200 votes"):
        students.main("adult", inputs=files / "short.npz", votes=files / "votes.npz", out=files / "out")


def test_a_folder_without_the_data_is_named(files):
    with pytest.raises(PateError, match="mnist is not there"):
        students.main("mnist_exact", folder=files, out=files / "out", keep=files / "keep")
