"""`--min-distance`: near-duplicates are not asked about, in any batch, and a check sees if they were."""

import dataclasses
import json

import numpy as np
import pytest

from pate_jax import voting
from pate_jax.audit import shards
from pate_jax.data import duplicates
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, config_file, inputs, queries, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.report import words
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.system import storage

MECHANISM, BASE = DiscreteGaussianMax(3.0), 10


def points(count, seed):
    return np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)


def votes_on(_, asked):
    """Votes of three teachers that need no training."""
    labels = np.zeros((3, len(asked.ids)), np.int64)
    votes, digests = np.tile([[3, 0]], (len(asked.ids), 1)), np.array(duplicates.digests(asked.inputs))
    return voting.Votes(votes, labels, asked.ids, asked.labels, digests)


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """A run whose public part holds each input twice, the second time changed in the last digit."""
    monkeypatch.setattr(stages, "votes_on", votes_on)
    pool = points(BASE, 2)
    parts = {"private": points(30, 1), "public": np.concatenate([pool, pool + np.float32(1e-4)])}
    for name, part in parts.items():
        labels, ids = np.arange(len(part)) % 2, [f"{name}-{7 * row % 31:02d}" for row in range(len(part))]
        np.savez(tmp_path / f"{name}.npz", inputs=part, labels=labels, ids=np.array(ids))
    run = RunDirectory(tmp_path / "run")
    choice = DataChoice(private=tmp_path / "private.npz", public=tmp_path / "public.npz")
    with run.writing():
        opened = stages.begin(run, choice, PartitionChoice(teachers=3, seed=4), TeacherConfig(net="mlp"))
        storage.write_json(run.teacher_report, "teacher-report", {})
        stages.settle(opened, MECHANISM, 50.0, 1e-5)
        yield opened


def test_near_duplicates_are_left_out_of_every_batch(begun, tmp_path):
    run, pool = begun.run, points(BASE, 2)
    with pytest.raises(PateError, match=r"11 is more than the 10 public inputs that are at least 0\.5"):
        stages.vote(begun, 11, min_distance=0.5)
    assert "vote" not in run.record.read()
    stages.vote(begun, 8, min_distance=0.5)
    batches.answer(run, MECHANISM)
    assert np.array_equal(queries.asked_inputs(begun).inputs, pool[:8])
    with pytest.raises(PateError, match=r"--min-distance 0\.7 is not the 0\.5"):
        stages.vote(inputs.open(run), 1, more=True, min_distance=0.7)
    fresh = points(3, 9)
    file = tmp_path / "further.npz"
    np.savez(file, inputs=np.concatenate([pool[:8] - np.float32(1e-4), fresh, fresh + np.float32(1e-4)]))
    stages.vote(inputs.open(run), 3, more=True, public=file)  # by the distance that the run began with
    batches.answer(run, MECHANISM)
    opened = inputs.open(run)
    asked = queries.asked_inputs(opened)
    assert np.array_equal(asked.inputs, np.concatenate([pool[:8], fresh]))
    assert queries.near(opened.dataset, asked) == 0
    assert [one.outcome for one in shards.spaced(opened)] == ["passed", "passed"]


def test_without_a_distance_all_are_asked_and_told_and_a_false_claim_is_found(begun, capsys):
    run = begun.run
    stages.vote(begun, 20)
    assert "10 of the 20 queries are near-duplicates" in capsys.readouterr().err  # before they are charged
    batches.answer(run, MECHANISM)
    assert run.record.stages()["vote"] == {"queries": 20, "selection": "first"}
    asked = queries.asked_inputs(begun)
    assert queries.near(begun.dataset, asked) == BASE
    assert "10 of the 20 inputs asked about are near-duplicates" in words.near(20, BASE)[0]
    assert list(shards.spaced(begun)) == []
    run.record.revise({"vote": {**run.record.stages()["vote"], "min_distance": 0.5}})
    assert [one.text for one in shards.spaced(begun)] == [
        "10 queries of batch 1 are nearer than 0.5 to earlier ones"
    ]


def test_near_duplicates_of_an_earlier_batch_are_told_before_they_are_charged(begun, capsys):
    stages.vote(begun, BASE)
    assert "near-duplicates" not in capsys.readouterr().err
    batches.answer(begun.run, MECHANISM)
    stages.vote(inputs.open(begun.run), BASE, more=True)
    assert "10 of the 10 queries are near-duplicates" in capsys.readouterr().err


def test_a_public_part_of_moved_copies_alone_has_no_unit(begun):
    images = np.zeros((40, 8, 8, 1), np.uint8)
    images[0, :3, :3] = np.arange(9)[:, None].reshape(3, 3, 1) * 20
    images = np.stack([np.roll(images[0], (row // 8, row % 8), axis=(0, 1)) for row in range(40)])
    dataset = begun.dataset
    copies = dataset.public._replace(inputs=images)
    scaling = dataclasses.replace(dataset.preprocessing, offset=(0.0,), scale=(1.0,))
    moved = dataclasses.replace(dataset, public=copies, preprocessing=scaling)
    with pytest.raises(PateError, match="has no unit"):
        queries.spacing(dataclasses.replace(begun, opened=moved, tolerant=True), 0.5)


def test_the_flag_belongs_to_teachers_and_goes_through_a_file(tmp_path):
    config = RunConfig(min_distance=0.25)
    assert config.who == "teachers"
    (tmp_path / "config.toml").write_text(config_file.text(config))
    flags = config_file.expanded(["--config", str(tmp_path / "config.toml")])
    assert flags[flags.index("--min-distance") + 1] == json.dumps(0.25)
    with pytest.raises(PateError, match="--min-distance belongs to teachers"):
        RunConfig(voters="sums", min_distance=0.25)
    with pytest.raises(PateError, match="min_distance=0 must be"):
        RunConfig(min_distance=0)
