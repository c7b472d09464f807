"""No place inside a cell holds more than the cell's bound: random cells, orders and scales."""

import numpy as np
import pytest

from pate_jax.accounting.bounds import argmax_cells, moved_vote
from pate_jax.accounting.bounds.moved_vote import GaussianVote, LatticeVote, Laws, excess
from pate_jax.mechanisms import Noise


def a_search(noise, orders, a_wins=False):
    if noise.family == "gaussian":
        return argmax_cells.Search(GaussianVote(noise.scale), noise.scale, orders, 1.0)
    below, above = argmax_cells.box(noise.scale, orders.max())
    vote = LatticeVote(noise, int(3 * (below + above)) + 60, a_wins)
    return argmax_cells.Search(vote, noise.scale, orders, 1.0 - a_wins)


def some_cells(search, rng, count):
    """Cells of all sizes, most of them near the largest excess."""
    scale = search.scale
    row = rng.integers(0, 2 * len(search.best), count)
    long, high = (10 ** rng.uniform(-2.5, 0.8, count) * scale for _ in range(2))
    lead = search.first_lead + rng.choice([0.0, 1.0], count) * rng.exponential(1.5, count) * scale
    x = np.where(rng.random(count) < 0.7, rng.uniform(-2, 5, count), rng.uniform(-14, 16, count)) * scale
    ends = np.stack([lead, lead + long]), np.stack([x, x + high])
    if search.whole:
        ends = tuple(np.stack([np.round(low), np.round(low) + np.ceil(top - low)]) for low, top in ends)
    return argmax_cells._Cells(row, *ends)


def bound_and_most_inside(search, cells, rng, points=60):
    """What the search says of each cell, and the largest excess at random points inside it."""
    where = cells.lead[:, None] + 0 * cells.x[None], cells.x[None, :] + 0 * cells.lead[:, None]
    law = search.vote.laws(*(part.ravel() for part in where))
    near = Laws(*(part.reshape(3, 2, 2, -1) for part in law))
    order, forward = search.orders[cells.row], search.forward[cells.row]
    terms = excess(*near, order, forward)
    bound = search._bound(cells, near, terms, search._others(cells.lead, cells.x))
    shares = rng.random((2, points, len(cells.row)))
    lead, x = (low + share * (high - low) for share, (low, high) in zip(shares, cells[1:], strict=True))
    if search.whole:
        lead, x = np.round(lead), np.round(x)
    law = Laws(*(part.reshape(3, points, -1) for part in search.vote.laws(lead.ravel(), x.ravel())))
    inside = excess(*law, order, forward).sum(axis=0).max(axis=0)
    return bound.most, np.maximum(inside, terms.sum(axis=0).max(axis=(0, 1)))


NOISES = [
    *(Noise("gaussian", s) for s in (0.5, 1.7, 40.0, 1000.0)),
    *(Noise("discrete_gaussian", s) for s in (1, 4, 30)),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_no_place_inside_a_cell_exceeds_its_bound(noise, count=400):
    rng = np.random.default_rng(11)
    orders = 1 + np.geomspace(1e-3, 3 * noise.scale - 1, 9)
    for a_wins in (False, True)[: 1 + noise.is_discrete]:
        search = a_search(noise, orders, a_wins)
        cells = some_cells(search, rng, count)
        bound, inside = bound_and_most_inside(search, cells, rng)
        wrong = inside > bound * (1 + 1e-9) + 1e-18 * search.orders[cells.row]
        assert not wrong.any(), [part[..., wrong] for part in cells]
        assert (bound < 1.5 * inside).mean() > 0.5


def test_the_worst_loss_of_the_third_outcome_is_the_highest():
    loss = np.concatenate([-np.geomspace(9, 1e-3, 200), np.geomspace(1e-3, 9, 200)])
    for order in (1.01, 1.5, 2.0, 7.0, 40.0):
        ratio = moved_vote.weighed(-2 * np.log(np.abs(loss)), loss, np.array([order]), np.True_)
        assert np.all(np.diff(ratio) > -1e-9 * ratio[1:])
