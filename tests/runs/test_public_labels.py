"""What public labels alone teach is said before anything is spent, and beside the student in the end."""

from dataclasses import replace

import numpy as np
import pytest

import pate_jax
from pate_jax.data import Part
from pate_jax.data.dataset import Dataset, Preprocessing
from pate_jax.runs import public_labels
from pate_jax.runs.report import bought, seen
from pate_jax.runs.report.seen import Seen
from pate_jax.sweep.compare import Draw, Ground
from pate_jax.sweep.compare.references import PUBLIC_LABELS

NAMES = [bought.FREQUENT, bought.ALONE, bought.THIS]


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
    assert [row["name"] for row in rows] == [bought.FREQUENT, bought.THIS]
    assert rows[0]["lead"] == [0, 0, 0] and "not surely better" in bought.verdict(rows)
    assert public_labels.bought(Seen("public", data.public, sure), data) == []


def test_the_student_stands_beside_what_costs_nothing():
    data = dataset()
    truth = data.test.labels
    perfect = np.eye(2)[truth]
    rows = public_labels.bought(Seen("test", data.test, perfect), data)
    alone = least_squares(data.public, data.test) == truth
    assert [row["name"] for row in rows] == NAMES and rows[2]["right"] == 500
    assert rows[0]["right"] == np.sum(truth == 0) and abs(rows[1]["right"] - alone.sum()) <= 5
    assert bought.verdict(rows) == (
        f"Public labels alone are right on {rows[1]['right'] / 500:.1%}: the private records bought "
        f"{100 * (500 - rows[1]['right']) / 500:.1f} points."
    )
    worse = public_labels.bought(Seen("test", data.test, perfect[:, ::-1]), data)
    assert "the private records bought nothing" in bought.verdict(worse)


def test_a_lead_has_the_interval_of_pairs():
    random = np.random.default_rng(4)
    covered, truth = 0, 0.7 - 0.6
    for _ in range(400):
        shared = random.random(300)  # inputs that are hard for one are hard for the other
        _, low, high = seen.lead(shared < 0.7, shared < 0.6)
        covered += low <= truth <= high
    assert 0.91 < covered / 400 < 0.98


def test_compare_has_public_labels_among_the_methods():
    found = PUBLIC_LABELS.learn(Ground(dataset()), Draw(1.0))
    assert found.epsilon == 0
    assert np.mean(found.labels == least_squares(dataset().public, dataset().test)) > 0.98
    with pytest.raises(pate_jax.PateError, match="no table with labels"):
        PUBLIC_LABELS.learn(Ground(dataset(labelled=False)), Draw(1.0))
