"""What public labels alone teach is said before anything is spent, and beside the student in the end."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics

import pate_jax
from pate_jax.audit import verify
from pate_jax.data import Part
from pate_jax.data.columns import Column
from pate_jax.data.dataset import Dataset, Preprocessing
from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import pipeline, public_labels
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.report import measures_page, sheet
from pate_jax.runs.report.sheet import Seen
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Linear, Ridge, Student, labelled
from pate_jax.sweep.compare import Draw, Ground
from pate_jax.sweep.compare.references import PUBLIC_LABELS

NAMES = [measures_page.FREQUENT, measures_page.ALONE, measures_page.THIS]


def part(rows, seed, labelled=True):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows, 3)).astype(np.float32)
    labels = (inputs[:, 0] + 0.5 * random.normal(size=rows) > 0.8).astype(np.int64)
    ids = np.array([f"{seed}-{row}" for row in range(rows)])
    return Part(inputs, labels if labelled else None, ids)


def dataset(labelled=True, test=True):
    return Dataset(
        name="own", kind="table", private=part(50, 1), public=part(400, 2, labelled),
        test=part(500, 3) if test else None, classes=2, class_names=("no", "yes"),
        preprocessing=Preprocessing((0.0,) * 3, (1.0,) * 3), synthetic=False, description="",
        show_public=False,
    )  # fmt: skip


def least_squares(known, asked):
    """The labels of a line that NumPy fits."""
    features = np.c_[known.inputs, np.ones(len(known.inputs))]
    line = np.linalg.lstsq(features, known.labels - 0.5, rcond=None)[0]
    return (np.c_[asked.inputs, np.ones(len(asked.inputs))] @ line > 0).astype(int)


def test_public_labels_alone_are_a_line_that_no_private_record_moves():
    data = dataset()
    halves = data.public.take(slice(0, None, 2)), data.public.take(slice(1, None, 2))
    right = sum(np.sum(least_squares(one, other) == other.labels) for one, other in (halves, halves[::-1]))
    assert public_labels.expected(data) == pytest.approx(right / 400, abs=0.01)
    said = public_labels.sentence(data)
    assert "Public labels alone" in said and f"{np.mean(data.public.labels == 0):.0%}" in said
    swapped = replace(data, private=part(50, 9), test=part(500, 8))
    assert public_labels.sentence(swapped) == said


@pytest.mark.parametrize("change", ["no labels", "one class", "images"])
def test_where_public_labels_teach_nothing_nothing_is_said(change):
    data = dataset(labelled=change != "no labels")
    if change == "one class":
        data = replace(data, public=data.public._replace(labels=np.zeros(400, np.int64)))
    if change == "images":
        data = replace(data, kind="image")
    assert public_labels.sentence(data) is None
    sure = np.tile([0.9, 0.1], (500, 1))
    rows = public_labels.bought(Seen("test", data.test, sure), data)
    assert [row["name"] for row in rows] == [measures_page.FREQUENT, measures_page.THIS]
    assert rows[0]["lead"] == [0, 0, 0] and "not surely better" in measures_page.verdict(rows)
    assert public_labels.bought(Seen("public", data.public, sure), data) == []


def test_a_column_that_tells_the_outcome_is_asked_about_by_public_rows_alone():
    random, data = np.random.default_rng(5), dataset()
    labels = data.public.labels
    months = (40 - 30 * labels + random.normal(size=400) * 8).astype(np.float32)  # the ill are followed less
    words = np.eye(3, dtype=np.float32)[np.where(random.random(400) < 0.95, labels, 2)]
    rows = np.concatenate([months[:, None], data.public.inputs[:, 1:2], words], 1)
    columns = (Column("followup"), Column("age"), Column("left", ("home", "ward", "dead")))
    told = replace(data, public=data.public._replace(inputs=rows), columns=columns)
    area = metrics.roc_auc_score(labels, -months)
    first, second = public_labels.telltale(told)
    assert (
        f"'followup' alone tells the labels of public rows (AUROC {area:.2f})" in first and "'left'" in second
    )
    assert public_labels.telltale(replace(told, private=part(50, 9), test=part(500, 8))) == [first, second]
    assert public_labels.telltale(replace(told, public=told.public._replace(labels=None))) == []


def test_the_student_stands_beside_what_costs_nothing():
    data = dataset()
    truth = data.test.labels
    perfect = np.eye(2)[truth]
    rows = public_labels.bought(Seen("test", data.test, perfect), data)
    alone = least_squares(data.public, data.test) == truth
    assert [row["name"] for row in rows] == NAMES and rows[2]["right"] == 500
    assert rows[0]["right"] == np.sum(truth == 0) and abs(rows[1]["right"] - alone.sum()) <= 5
    assert measures_page.verdict(rows) == (
        f"Public labels alone are right on {rows[1]['right'] / 500:.1%}: the private records bought "
        f"{100 * (500 - rows[1]['right']) / 500:.1f} points."
    )
    worse = public_labels.bought(Seen("test", data.test, perfect[:, ::-1]), data)
    assert "the private records bought nothing" in measures_page.verdict(worse)


def test_a_lead_has_the_interval_of_pairs():
    random = np.random.default_rng(4)
    covered, truth = 0, 0.7 - 0.6
    for _ in range(400):
        shared = random.random(300)  # inputs that are hard for one are hard for the other
        _, low, high = sheet.lead(shared < 0.7, shared < 0.6)
        covered += low <= truth <= high
    assert 0.91 < covered / 400 < 0.98


def test_compare_has_public_labels_among_the_methods():
    found = PUBLIC_LABELS.learn(Ground(dataset()), Draw(1.0))
    assert found.epsilon == 0
    assert np.mean(found.said.argmax(1) == least_squares(dataset().public, dataset().test)) > 0.98
    with pytest.raises(pate_jax.PateError, match="no table with labels"):
        PUBLIC_LABELS.learn(Ground(dataset(labelled=False)), Draw(1.0))


def files(folder):
    """A table whose public part has labels, as files of the user's own."""
    found = {}
    for seed, name in enumerate(("private", "public", "test")):
        rows = part(300 if name == "private" else 120, 20 + seed)
        ids = np.random.default_rng(seed).permutation(rows.ids)  # which do not count up
        found[name] = folder / f"{name}.npz"
        np.savez(found[name], inputs=rows.inputs, labels=rows.labels, ids=ids)
    return found


VOTERS = {
    "sums": {"partition": PartitionChoice(seed=1), "voters": "sums", "epsilon": 1.0, "student": Linear()},
    "teachers": {
        "partition": PartitionChoice(10, seed=1),
        "teacher": TeacherConfig(net="linear"),
        "queries": 20,
        "student": Ridge(),
        "mechanism": DiscreteGaussianMax(2.0),
    },
}


@pytest.mark.parametrize("voters", ["sums", pytest.param("teachers", marks=pytest.mark.long)])
def test_a_student_learns_from_public_labels_where_its_owner_says_so(tmp_path, voters):
    data = DataChoice(**files(tmp_path))
    config = RunConfig(data, out=tmp_path / "a", register=Path("none"), **VOTERS[voters])
    plain = pipeline.run(config)
    assert "learned_from_public_labels" not in plain
    with pytest.raises(pate_jax.PateError, match="has a student that did not: choose another --out"):
        pipeline.run(replace(config, learn_from_public_labels=True))
    told = replace(config, learn_from_public_labels=True, out=tmp_path / "b")
    found = pipeline.run(told)
    assert found["learned_from_public_labels"] and pipeline.run(told) == found
    before, after = (Student.load(tmp_path / name) for name in "ab")
    public = np.load(data.public)
    again = labelled.learned(before, public["inputs"], public["labels"]).student
    assert np.allclose(after(public["inputs"]), again(public["inputs"]), atol=1e-4)
    assert "public inputs, their labels and" in (tmp_path / "b/release/student/MODEL_CARD.md").read_text()
    checked = verify.of_run(RunDirectory(tmp_path / "b"), deep=True)
    assert not checked.of("failed") and any("the student follows" in one for one in checked.of("passed"))
    with pytest.raises(pate_jax.PateError, match="labelled"):
        pipeline.run(replace(told, learn_from_public_labels=False))
