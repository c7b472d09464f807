"""Private records among public inputs: refused on every way in, counted, and never dropped in silence."""

from pathlib import Path

import numpy as np
import pytest
from commands import call

import pate_jax
from pate_jax import data
from pate_jax.audit import shards
from pate_jax.audit.subject import Subject
from pate_jax.data import overlap
from pate_jax.data.duplicates import digests
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import SharedInputs
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, stages
from pate_jax.runs import queries as pools
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice, PartitionChoice

SHARED = Path(__file__).parents[3] / "shared" / "data"


def part(count, seed, dtype=np.float32):
    inputs = np.random.default_rng(seed).integers(0, 256, (count, 6)).astype(dtype)
    return {"inputs": inputs, "labels": np.arange(count) % 2}


def files(folder, copied=(), into="public", dtype=np.float32):
    """Three .npz files; `copied` rows of the private one stand among those of another."""
    parts = {"private": part(20, 1), "public": part(9, 2, dtype), "test": part(8, 3, dtype)}
    parts["private"]["ids"] = np.array([f"person-{row:02d}" for row in range(20)])
    rows = parts["private"]["inputs"][list(copied)].astype(dtype)
    parts[into]["inputs"][1 : 1 + len(rows)] = rows
    for name, arrays in parts.items():
        np.savez(folder / f"{name}.npz", **arrays)
    return {name: folder / f"{name}.npz" for name in parts}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8])
@pytest.mark.parametrize("into", ["public", "test"])
def test_private_rows_are_refused_and_counted(tmp_path, into, dtype):
    paths = files(tmp_path, (3, 5, 8), into, dtype)
    said = rf"{into}\.npz: 3 of \d inputs are private ones too \(rows 1, 2, 3, counted from 0\).*remove these"
    with pytest.raises(SharedInputs, match=said):
        data.from_files(**paths)
    found = data.from_files(**paths, equal_rows_are_coincidences=True)
    assert overlap.rows(found.private_digests, overlap.parts(found)[into].inputs).tolist() == [1, 2, 3]
    assert len(found.public.inputs) == 9  # nothing was dropped


def test_the_library_and_every_command_refuse(tmp_path, capsys):
    paths = files(tmp_path, (4,))
    flags = [word for name, path in paths.items() for word in (f"--{name}", path)]
    run = RunDirectory(tmp_path / "run")
    with pytest.raises(SharedInputs):
        pate_jax.run(**paths, voters="teachers", teachers=2, out=run.root)
    for command in (
        ("run", *flags, "--teachers", 2, "--out", run.root),
        ("train", *flags, "--teachers", 2, "--out", run.root),
        ("sweep", *flags, "--teachers", 2, "--out", tmp_path / "sweep"),
    ):
        assert call(*command) == 2
        assert "public.npz: 1 of 9 inputs are private ones too" in capsys.readouterr().err
    assert not run.settings.exists()


def test_rows_of_a_table_are_compared_as_they_are_encoded(tmp_path):
    (tmp_path / "mine.csv").write_text("id,age,town,sick\na,30,Oslo,yes\nb,41,Rome,no\n")
    (tmp_path / "pool.csv").write_text("town,sick,age\nRome,yes,41.0\nOslo,no,29\n")
    names = {"label_column": "sick", "id_column": "id"}
    with pytest.raises(SharedInputs, match=r"pool\.csv: 1 of 2 inputs are private ones too \(rows 0,"):
        data.from_files(tmp_path / "mine.csv", tmp_path / "pool.csv", **names)


def test_declared_coincidences_are_recorded_and_left_open(tmp_path):
    paths, run = files(tmp_path, (3, 5)), RunDirectory(tmp_path / "run")
    choice = DataChoice(**paths, equal_rows_are_coincidences=True)
    teacher = TeacherConfig(net="table", epochs=1, min_steps=1, devices=1)
    with run.writing():
        inputs = stages.begin(run, choice, PartitionChoice(2), teacher)
        stages.train(inputs)
        stages.settle(inputs, DiscreteGaussianMax(3.0), 30.0, 1e-5)
        stages.vote(inputs, 4)
        batches.answer(run, DiscreteGaussianMax(3.0))
    assert run.record.stages()["data"]["equal_rows_are_coincidences"] is True
    found = [one for one in shards.queries(Subject(run)) if "private ones too" in one.text]
    assert [(one.outcome, one.text[:17]) for one in found] == [("unchecked", "2 of 9 inputs of ")]
    np.savez(tmp_path / "further.npz", inputs=part(20, 1)["inputs"][:2])
    with run.writing():  # declared for all parts of the run
        stages.vote(inputs, 1, more=True, public=tmp_path / "further.npz")


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_a_further_pool_of_private_rows_is_refused(tmp_path, dtype):
    """For synthetic sets, archives and own files alike; in any type."""
    dataset = data.load("strokes", size=30, public_size=10, test_size=5)
    inputs = np.concatenate([data.load("strokes", size=40).private.inputs[28:36], dataset.test.inputs])
    np.savez(tmp_path / "further.npz", inputs=inputs.astype(dtype))
    with pytest.raises(SharedInputs, match=r"further\.npz: 2 of 13 inputs are private ones too \(rows 0, 1,"):
        pools.pool_of(dataset, tmp_path / "further.npz")
    np.savez(tmp_path / "further.npz", inputs=inputs[2:].astype(dtype))
    assert len(pools.pool_of(dataset, tmp_path / "further.npz").inputs) == 11


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real data are not at hand")
def test_adult_is_published_with_its_coincidences(tmp_path):
    """A fifth of its public rows are like a private one; the owner's own test file must be declared."""
    found = data.load("adult", data_dir=tmp_path, manual_dir=SHARED / "adult")
    assert found.equal_rows == "published"
    shared = {
        name: len(overlap.rows(found.private_digests, one.inputs))
        for name, one in overlap.parts(found).items()
    }
    assert shared == {"public": 2331, "test": 783}
    (tmp_path / "own").mkdir()
    lines = (SHARED / "adult" / "adult.data").read_bytes().splitlines(keepends=True)
    (tmp_path / "own" / "adult.data").write_bytes(b"".join(lines[:300]))
    (tmp_path / "own" / "adult.test").write_bytes(b"".join(lines[250:500]))
    with pytest.raises(SharedInputs, match=r"public: \d+ of \d+ inputs are private ones too"):
        data.load("adult", data_dir=tmp_path, manual_dir=tmp_path / "own")


def test_rows_that_are_nearly_private_are_not_meant(tmp_path):
    private = part(20, 1)["inputs"]
    assert overlap.rows(digests(private), private + np.float32(0.5)).tolist() == []
    zeros = digests(np.zeros((1, 2), np.float32))
    assert overlap.rows(zeros, np.array([[0.0, -0.0]], np.float32)).tolist() == [0]
