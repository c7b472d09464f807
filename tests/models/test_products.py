"""Products of columns: what they are by a plain loop, when there are any, and that rows do not meet."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax.models import table_features
from pate_jax.models.flax_nets import AsStored
from pate_jax.models.spaces import fronts

RANDOM = np.random.default_rng(0)
ROWS = 10  # of a pool for each product, fewer than by default
TABLE = np.column_stack([RANDOM.normal(size=(300, 4)) * [1, 3, 0.2, 5] + 2, RANDOM.random((300, 2)) < 0.2])


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(table_features, "_ROWS", ROWS)


def test_products_are_what_a_plain_loop_gives():
    known, middle = table_features.products_of(TABLE, 0.02), TABLE.mean(0)
    pairs = list(itertools.combinations(range(6), 2))
    assert list(zip(known.left.tolist(), known.right.tolist(), strict=True)) == pairs
    for place, (one, other) in enumerate(pairs):
        plain = (TABLE[:, one] - middle[one]) * (TABLE[:, other] - middle[other])
        plain *= table_features._WEIGHT * np.sqrt(TABLE[:, one].std() * TABLE[:, other].std()) / plain.std()
        low, high = np.sort(plain)[[5, 293]]
        np.testing.assert_allclose(known.of(TABLE)[:, place], np.clip(plain, low, high), atol=2e-5)


def test_a_rows_products_are_its_own():
    known, rows = table_features.products_of(TABLE, 0.02), TABLE[:40].astype(np.float32)
    alone = np.concatenate([known.of(row[None]) for row in rows])
    assert np.array_equal(known.of(rows), alone)
    np.testing.assert_allclose(known.of(jnp.asarray(rows)), alone, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "columns", "pairs"),
    [
        (15 * ROWS, range(6), 15),  # all columns
        (15 * ROWS - 1, range(6), 6),  # those of numbers
        (6 * ROWS - 1, range(6), 0),
        (300, [0], 0),
        (300, [], 0),
    ],
)
def test_a_pool_has_as_many_products_as_it_can_show(rows, columns, pairs):
    assert len(table_features.products_of(TABLE[:rows, list(columns)], 0.02).left) == pairs


def test_columns_that_never_vary_and_marks_that_exclude_one_another_have_no_products():
    marks = np.eye(2)[np.arange(300) % 2]
    table = np.column_stack([TABLE[:, :1], marks, np.ones(300)])
    known = table_features.products_of(table, 0.02)
    assert set(zip(known.left.tolist(), known.right.tolist(), strict=True)) <= {(0, 1), (0, 2), (1, 2)}
    assert np.isfinite(known.of(table)).all()


def test_a_space_sees_products_of_columns_that_were_drawn_in():
    front = fronts.columns_of(TABLE.astype(np.float32), AsStored())
    far = np.array([[1e30, *TABLE[0, 1:]], [-1e30, *TABLE[0, 1:]]], np.float32)
    assert front(far).shape[1] == 6 + len(front.ramps.column) + 15
    assert np.abs(front(far)).max() < 100
