"""The search for the worst move: its bounds hold, and it finds what trying every move finds."""

import numpy as np
import pytest

from pate_jax.accounting import exact
from pate_jax.accounting.exact import argmax_law, move_bounds, moves
from pate_jax.accounting.exact.argmax_law import product
from pate_jax.accounting.exact.groups import merge
from pate_jax.accounting.exact.move_bounds import Every, Some
from pate_jax.accounting.exact.noise_law import caps, passing
from pate_jax.mechanisms import ConfidentDiscreteGaussian, ConfidentGNMax, GNMax, LNMax

ORDERS = np.array([1.05, 2.0, 9.5, 40.0, 130.0, 290.0, 900.0, 4096.0])
GLYPHS = ConfidentDiscreteGaussian(60.0, 30.0, 8.0)
TESTED = ConfidentGNMax(60.0, 30.0, 8.0)


def histograms(classes: int) -> np.ndarray:
    """A clear vote, a close one, one without a leader, and one whose classes have nearly no votes."""
    rng = np.random.default_rng(classes)
    tail = rng.dirichlet(np.full(classes - 2, 0.6))
    leaders = ([0.8, 0.02], [0.4, 0.38], [0.05, 0.05], [0.93, 0.06])
    return np.array([rng.multinomial(300, [*two, *(tail * (1 - sum(two)))]) for two in leaders])


def law_of(mechanism, votes):
    groups = merge([votes]).buckets[0]
    made = argmax_law.factors(mechanism.noise, groups)
    return moves.Law.of(groups, made, argmax_law.base(made), mechanism.test)


@pytest.mark.parametrize("mechanism", [GLYPHS, TESTED, GNMax(8.0), LNMax(9.0)], ids=str)
def test_every_bound_is_above_its_move(mechanism):
    for votes in histograms(30):
        law = law_of(mechanism, votes)
        found = move_bounds.screen(law.made, law.groups, law.log_p, not mechanism.noise.is_discrete)
        answered = None
        if law.test is not None:
            before, after = law.test
            first = before.answered[:, None, None], before.refused[:, None, None]
            answered = (*first, after.answered, after.refused)
        row, a, b = np.nonzero(law.groups.moves())
        every = Every.of(found, answered).upper(ORDERS)[row, a, b]
        full = moves.moments(law, row, a, b, ORDERS)
        rounding = (2 * ORDERS + 1) * (law.made.error.max() + 1e-14)
        assert (every + rounding >= full * (1 - 1e-12)).all()
        some = Some.of(found, answered, row[::7], a[::7], b[::7]).upper(ORDERS)
        assert (some + rounding >= full[::7] * (1 - 1e-12)).all()
        finite = np.isfinite(every[::7])
        np.testing.assert_allclose(some[finite], every[::7][finite], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mechanism", [GLYPHS, TESTED, GNMax(8.0), LNMax(9.0)], ids=str)
def test_the_search_finds_what_every_move_gives(mechanism):
    votes = histograms(30)
    found = exact.rdp(mechanism, votes, ORDERS)
    for row, counts in enumerate(votes):
        law = law_of(mechanism, counts)
        full = moves.in_full(law, law.groups.moves(), ORDERS, np.inf)[0] / (ORDERS - 1)
        full = np.minimum(full, caps(mechanism.noise, mechanism.test, ORDERS))
        full = np.minimum.accumulate(full[::-1])[::-1]  # a bound at a higher order holds at lower ones
        assert (found[row] >= full * (1 - 1e-12)).all()
        assert (found[row] <= full * (1 + 1e-8) + 4e-11 * (2 * ORDERS + 1) / (ORDERS - 1)).all()


@pytest.mark.parametrize("mechanism", [GLYPHS, TESTED, GNMax(8.0)], ids=str)
def test_joint_costs_and_parts_from_the_same_laws(mechanism):
    votes = histograms(12)
    joint, parts = exact.joint_and_parts(mechanism, votes, ORDERS)
    np.testing.assert_array_equal(joint, exact.rdp(mechanism, votes, ORDERS))
    for mine, other in zip(parts, exact.parts(mechanism, votes, ORDERS), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_the_cost_of_the_test_is_that_of_its_worst_move():
    """Two outcomes, whose law depends on the largest count: 200 - 1, 200 or 200 + 1 votes."""
    votes, order = [[200, 60, 40], [150, 150, 0]], np.array([3.0])
    found = exact.parts(TESTED, votes, order).test[:, 0]
    for cost, counts in zip(found, votes, strict=True):
        top = float(max(counts))
        reached = [top + 1, top - 1] if counts.count(max(counts)) == 1 else [top + 1, top]
        laws = [passing(TESTED.test, np.array(x)) for x in (top, *reached)]
        p, *others = ([float(np.exp(law.answered)), float(np.exp(law.refused))] for law in laws)
        worst = max(
            np.log(sum(x**3 / y**2 for x, y in zip(one, two, strict=True))) / 2
            for q in others
            for one, two in ((p, q), (q, p))
        )
        assert cost == pytest.approx(worst, rel=1e-8)


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 400, 7), (30, 1000, 20), (101, 60, 100), (1, 9, 1)])
def test_products_in_pieces_are_products(shape):
    height, inner, width = shape
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(3, height, inner)), rng.normal(size=(3, width, inner)).swapaxes(1, 2)
    np.testing.assert_allclose(product(left, right), left @ right, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(product(left[1], right[1]), left[1] @ right[1], rtol=1e-12, atol=1e-12)
