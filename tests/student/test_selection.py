"""Which inputs are asked about: the same for a key, never twice, and where the student is unsure."""

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.aggregate import interactive
from pate_jax.errors import PateError
from pate_jax.mechanisms import InteractiveGNMax
from pate_jax.student import selection

CENTRES = np.array([[0.0, 0.0], [20.0, 0.0], [0.0, 20.0], [20.0, 20.0], [50.0, 50.0]])


def heaps(counts=(60, 30, 20, 9, 1), seed=0):
    """Points around five centres, shuffled, and the number of each one's heap."""
    rng = np.random.default_rng(seed)
    which = rng.permutation(np.repeat(np.arange(5), counts))
    return (CENTRES[which] + rng.normal(size=(len(which), 2))).astype(np.float32), which


@pytest.mark.parametrize("name", ["first", "random", "kmeans"])
def test_a_key_chooses_once_and_for_all(name):
    points, _ = heaps()
    chosen = selection.select(name, points, 37, key=b"one")
    assert np.array_equal(chosen, selection.select(name, points, 37, key=b"one"))
    assert len(set(chosen.tolist())) == 37 and chosen.min() >= 0 and chosen.max() < len(points)
    other = selection.select(name, points, 37, key=b"two")
    assert np.array_equal(chosen, other) == (name == "first")
    assert sorted(selection.select(name, points, 120, key=b"one")) == list(range(120))


def test_kmeans_covers_every_heap_and_random_does_not():
    points, which = heaps()
    for key in (b"a", b"b", b"c"):
        assert sorted(which[selection.select("kmeans", points, 5, key=key)]) == [0, 1, 2, 3, 4]
    drawn = [len(set(which[selection.select("random", points, 5, key=bytes([k]))])) for k in range(20)]
    assert np.mean(drawn) < 4


def test_kmeans_takes_the_member_nearest_to_the_middle():
    points, which = heaps()
    for row in selection.select("kmeans", points, 5, key=b"a"):
        mates = points[which == which[row]]
        gaps = ((mates - mates.mean(0)) ** 2).sum(1)
        assert ((points[row] - mates.mean(0)) ** 2).sum() == pytest.approx(gaps.min(), rel=1e-4)


def test_kmeans_comes_closer_to_all_inputs_than_random_does():
    images = np.random.default_rng(3).normal(size=(300, 6, 6, 1)).astype(np.float32)
    images[:150] += np.linspace(0, 9, 36).reshape(6, 6, 1)
    flat = images.reshape(300, -1)

    def gap(rows):
        return ((flat[:, None] - flat[rows]) ** 2).sum(-1).min(1).mean()

    chosen = [selection.select(name, images, 20, key=b"k") for name in ("kmeans", "random")]
    assert gap(chosen[0]) < 0.97 * gap(chosen[1])


def test_equal_points_are_still_chosen_once_each():
    points = np.repeat(np.eye(3, dtype=np.float32), [5, 2, 1], axis=0)
    for wanted in (3, 4, 8):
        chosen = selection.select("kmeans", points, wanted, key=b"e")
        assert len(set(chosen.tolist())) == wanted
    assert len({tuple(point) for point in points[selection.select("kmeans", points, 3, key=b"e")]}) == 3


@pytest.mark.parametrize(
    ("name", "wanted", "said"), [("best", 3, "best"), ("kmeans", 121, "121"), ("first", 0, "0")]
)
def test_what_cannot_be_chosen_is_refused(name, wanted, said):
    with pytest.raises(PateError, match=said):
        selection.select(name, heaps()[0], wanted, key=b"x")


def test_the_least_sure_come_first_and_none_is_asked_twice():
    points, _ = heaps()
    margin = np.linspace(0, 1, len(points))
    probabilities = np.stack([(1 + margin) / 2, (1 - margin) / 2, 0 * margin], 1)
    taken = np.array([0, 2, 4])
    rows = selection.least_sure(probabilities, points, 4, taken=taken, key=b"u")
    assert not set(rows) & set(taken)
    assert rows.max() < 4 * 6 + 3, "only among the least sure six times as many"
    with pytest.raises(PateError, match="118 more queries are wanted and 117"):
        selection.least_sure(probabilities, points, 118, taken=taken, key=b"u")


def test_only_the_data_independent_figure_of_rounds_may_be_published():
    _, which = heaps()
    rows = np.arange(12)
    votes = np.eye(5, dtype=np.int64)[which[rows]] * 40
    mechanism = InteractiveGNMax(threshold=20, sigma_threshold=40.0, sigma=40.0, student_confidence=0.9)
    stated = accounting.statement(mechanism, votes, np.ones(12, bool), 1e-5, adaptive=True, private=True)
    stated = interactive.with_history(stated, votes, np.full((12, 5), 0.2))
    assert set(stated.publishable()["figures"]) == {"data_independent"}
    assert stated.smallest == "data_independent"
