"""Further public inputs: known in whatever type they come, and told apart where they share ids."""

import dataclasses

import numpy as np
import pytest

from pate_jax import student, voting
from pate_jax.audit import verify
from pate_jax.data.dataset import stored_as
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, inputs, stages, students
from pate_jax.runs import queries as pools
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice, PartitionChoice

MECHANISM = DiscreteGaussianMax(3.0)


def images(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 4, 4, 1)).astype(np.uint8)


def run_of_images(folder, dtype=np.uint8):
    """Three tiny teachers of images without ids, asked about 8 of 12 public ones, under a budget."""
    for name, count, seed in (("private", 30, 1), ("public", 12, 2)):
        labels = np.arange(count) % 2
        np.savez(folder / f"{name}.npz", inputs=images(count, seed).astype(dtype), labels=labels)
    run = RunDirectory(folder / "run")
    choice = DataChoice(private=folder / "private.npz", public=folder / "public.npz")
    with run.writing():
        opened = stages.begin(
            run,
            choice,
            PartitionChoice(teachers=3),
            TeacherConfig(net="mlp", epochs=1, min_steps=1, devices=1),
        )
        stages.train(opened)
        stages.settle(opened, MECHANISM, 50.0, 1e-5)
        stages.vote(opened, 8)
        batches.answer(run, MECHANISM)
    return run


def test_data_that_were_opened_before_are_checked_as_those_that_a_run_opens(tmp_path, capsys):
    """Sweeps and candidates hand over what they have opened; another public part is refused all the same."""
    begun = inputs.open(run_of_images(tmp_path))
    dataset = begun.dataset
    named = dataset.private._replace(users=np.repeat(["a", "b"], 15))
    of_users = dataclasses.replace(begun, opened=dataclasses.replace(dataset, private=named))
    assert of_users.dataset.private is named and "name their users" in capsys.readouterr().err
    other = dataclasses.replace(dataset, public=dataset.public._replace(inputs=dataset.public.inputs[::-1]))
    with pytest.raises(PateError, match="the public inputs, or their labels, users or ids, were changed"):
        dataclasses.replace(begun, opened=other).dataset  # noqa: B018
    assert dataclasses.replace(begun, opened=other, tolerant=True).dataset is other


def further(folder, pool):
    np.savez(folder / "further.npz", inputs=pool)
    return folder / "further.npz"


@pytest.mark.parametrize(("stored", "given"), [(np.uint8, np.float32), (np.float32, np.uint8)])
def test_an_image_in_another_type_is_not_asked_again(tmp_path, stored, given):
    run, pool = run_of_images(tmp_path, stored), images(12, 2)
    fresh = images(5, 3)
    file = further(tmp_path, np.concatenate([pool, fresh]).astype(given))
    with run.writing():
        with pytest.raises(PateError, match="more than the 9 different public inputs that were not asked"):
            stages.vote(inputs.open(run), 10, more=True, public=file)
        stages.vote(inputs.open(run), 9, more=True, public=file)
        batches.answer(run, MECHANISM)
    asked = pools.asked_inputs(inputs.open(run))
    assert asked.inputs.dtype == stored
    assert np.array_equal(asked.inputs, np.concatenate([pool[:8], pool[8:], fresh]).astype(stored))
    assert verify.verify(run)["queries"] == []


def test_ids_of_a_further_pool_may_be_those_of_other_inputs(tmp_path, monkeypatch):
    run, pool, fresh = run_of_images(tmp_path), images(12, 2), images(10, 3)
    with run.writing():
        stages.vote(inputs.open(run), 10, more=True, public=further(tmp_path, fresh))
        batches.answer(run, MECHANISM)
    ids = [voting.load_votes(run.votes_of(batch)).ids.tolist() for batch in (1, 2)]
    assert set(ids[0]) <= set(ids[1])  # row-0 and so on, in both
    assert verify.verify(run)["queries"] == []
    opened, given = inputs.open(run), []
    monkeypatch.setattr(student, "fit", lambda key, public, *rest: given.append(public) or _student())
    students.learn(run, student.Auto(), opened.dataset, pools.asked_inputs(opened))
    expected = np.concatenate([pool[:8], fresh, pool[8:]])
    assert np.array_equal(given[0].inputs, expected)


def _student():
    return student.Student({}, {}, None, ())


def test_what_does_not_fit_the_type_of_a_run_is_refused(tmp_path):
    run = run_of_images(tmp_path)
    for wrong, said in ((0.5, "0.5"), (-1.0, "-1"), (256.0, "256")):
        pool = images(4, 3).astype(np.float32)
        pool[2, 1, 1] = wrong
        with pytest.raises(PateError, match=f"inputs of {said}.*whole numbers from 0 to 255"), run.writing():
            stages.vote(inputs.open(run), 2, more=True, public=further(tmp_path, pool))
    scaled = images(4, 3) / np.float32(255)
    with pytest.raises(PateError, match="without any scaling"), run.writing():
        stages.vote(inputs.open(run), 2, more=True, public=further(tmp_path, scaled))
    assert "vote 2" not in run.record.stages()


def test_bytes_are_kept_as_they_are():
    pool = images(3, 1)
    for dtype in (np.uint8, np.int16, np.float32, np.float64):
        found = stored_as(pool.astype(dtype), np.dtype(np.uint8), "pool")
        assert found.dtype == np.uint8
        assert np.array_equal(found, pool)
