"""Exact accounting with many classes: few nodes are enough, and what is left out is bounded."""

import numpy as np
import pytest
from scipy.special import log_ndtr, logsumexp

from pate_jax.accounting.exact import argmax_law, nodes, renyi
from pate_jax.accounting.exact.groups import merge
from pate_jax.mechanisms import Noise

# three equal classes, a lone leader, two leaders, none, and a leader so far ahead that no other class matters
HISTOGRAMS = [
    [6] * 3,
    [60] + [5, 3, 1, 0] * 10,
    [40, 37] + [2, 0] * 20,
    [4, 3, 2] * 14,
    [300, 20] + [7, 0] * 20,
]
NOISES = [Noise("gaussian", 0.8), Noise("gaussian", 12.0), Noise("discrete_gaussian", 3.0)]
NOISES.append(Noise("discrete_gaussian", 15.0))


def neighbours(counts):
    """A histogram, and one after each move between groups, with the classes that the move may touch."""
    yield counts
    for a in {value: at for at, value in enumerate(counts)}.values():
        for b in {value: at for at, value in reversed(list(enumerate(counts)))}.values():
            if a != b and counts[a] >= 1:
                yield counts - np.eye(len(counts), dtype=int)[a] + np.eye(len(counts), dtype=int)[b]


def below(noise, x, fraction):
    """Log of the distribution function at a place in a cell; all x are equally far from whole numbers."""
    if noise.family == "gaussian":
        return log_ndtr(x / noise.scale)
    offset, reach = x.flat[0] % 1, int(np.abs(x).max() + 12 * noise.scale)
    lattice = np.arange(-reach, reach + 1) + offset
    logs = np.logaddexp.accumulate(-(lattice**2) / (2 * noise.scale**2))
    logs -= logs[-1]
    at = np.rint(x - offset).astype(int) + reach
    return np.logaddexp(np.log1p(-fraction) + logs[at - 1], np.log(fraction) + logs[at])


def integrands(noise, counts, x, fraction):
    """Logs of the integrands [J, N] of one class of each count."""
    values, sizes = np.unique(counts, return_counts=True)
    level = below(noise, x - values[:, None], fraction)
    return -((x - values[:, None]) ** 2) / (2 * noise.scale**2) + sizes @ level - level


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_the_ratios_of_the_left_tail_hold_for_every_class_and_move(noise):
    places = [(0.0, 0.999), (0.0, 0.3), (0.5, 0.7), (0.999, 0.01)][: 4 if noise.is_discrete else 1]
    for counts in np.array(HISTOGRAMS[:4], dtype=object):
        counts = np.sort(np.array(counts))[::-1]
        groups = merge([counts]).buckets[0]
        points = nodes.left_tail(noise, groups).points[:, :36:5]
        bound = nodes._log_ratio(noise, groups, points, points[:, 0])[0]
        for moved in neighbours(counts):
            for offset, fraction in places:
                logs = integrands(noise, moved, points[0] + offset, fraction)
                assert (logs - logs[:, :1] <= bound + 1e-9 * (1 + np.abs(logs))).all()


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_no_more_mass_lies_in_the_left_tail_than_is_said(noise):
    for counts in HISTOGRAMS:
        counts = np.sort(np.array(counts))[::-1]
        tail = nodes.left_tail(noise, merge([counts]).buckets[0])
        step = 1.0 if noise.is_discrete else noise.scale / 20
        x = np.arange(np.floor(tail.points[0, 40]), counts[0] + 14 * noise.scale, step)
        logs = integrands(noise, counts, x, 0.5)
        mass = np.exp(logs - logs.max(axis=1, keepdims=True))
        reached = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
        at = np.searchsorted(x, tail.points[0, :36], side="right") - 1 - (noise.family == "gaussian")
        assert (reached[:, at] <= np.exp(tail.log_share[0, :36]) + 1e-13).all()


@pytest.mark.parametrize("scale", [3.0, 25.0])
def test_laws_of_many_classes_are_those_of_exact_sums(scale):
    """Half as many Gauss-Legendre nodes as there are classes, in every cell, leave no error at all."""
    noise = Noise("discrete_gaussian", scale)
    for counts in HISTOGRAMS:
        counts = np.sort(np.array(counts))[::-1]
        groups = merge([counts]).buckets[0]
        made = argmax_law.factors(noise, groups)
        row, a, b = (index[:: 1 + len(groups.counts[0])] for index in np.nonzero(groups.moves()))
        after = argmax_law.neighbours(made, row, a, b)
        moved = counts.copy()
        moved[counts.tolist().index(int(groups.counts[0, a[0]]))] -= 1
        moved[len(counts) - 1 - counts[::-1].tolist().index(int(groups.counts[0, b[0]]))] += 1
        exact, exact_after = exact_law(noise, counts), exact_law(noise, moved)
        found = argmax_law.base(made)[0]
        for value, count, error in zip(found, groups.counts[0], made.error[0], strict=True):
            assert abs(value - exact[count]) <= error + 2e-15 * abs(value)
        assert abs(after.loser[0] - exact_after[groups.counts[0, a[0]] - 1]) <= made.error.max()
        assert abs(after.winner[0] - exact_after[groups.counts[0, b[0]] + 1]) <= made.error.max()


def test_the_rule_within_cells_is_for_the_law_on_the_numbers_that_are_nodes():
    noise, counts = Noise("discrete_gaussian", 60.0), HISTOGRAMS[1]
    groups = merge([counts]).buckets[0]
    tail, step = nodes.left_tail(noise, groups), np.array([8.0])
    assert (nodes._step(noise, groups, tail) == step).all()
    thinned = tail.of_every(step)
    for offset in range(0, 8, 3):
        x = np.arange(int(thinned.points[0, 40]) - 8 + offset, 60 + 14 * 60, 8)
        logs = integrands(noise, np.sort(counts)[::-1], x, 0.5)
        mass = np.exp(logs - logs.max(axis=1, keepdims=True))
        reached = np.cumsum(mass, axis=1) / mass.sum(axis=1, keepdims=True)
        at = np.searchsorted(x, thinned.points[0, :36], side="right") - 1
        assert (reached[:, at] <= np.exp(thinned.log_share[0, :36])).all()
    # for the law on all whole numbers, 5 are proven to be enough
    assert len(nodes.nodes(noise, groups).fraction) == 6


def exact_law(noise, counts):
    """Log-probability of one class of each count."""
    places, weights = np.polynomial.legendre.leggauss((len(counts) + 1) // 2)
    x = np.arange(counts[-1] - int(10 * noise.scale), counts[0] + int(14 * noise.scale))
    logs = np.array([integrands(noise, counts, x, (place + 1) / 2) for place in places])
    total = logsumexp(logs + np.log(weights / 2)[:, None, None], axis=(0, 2))
    scaling = logsumexp(-(np.arange(-1000, 1001) ** 2) / (2 * noise.scale**2))
    return dict(zip(np.unique(counts), total - scaling, strict=True))


def test_a_thousand_classes_need_few_nodes_and_pieces_of_bounded_size():
    random = np.random.default_rng(0)
    noise = Noise("discrete_gaussian", 40.0)
    merged = merge(random.multinomial(250, random.dirichlet(np.full(1000, 2e-3)), 3))
    for piece in renyi.pieces(noise, merged):
        assert nodes.number(noise, piece) * piece.counts.size <= renyi.BLOCK
        assert nodes.number(noise, piece) <= 8000  # half-normal tails alone asked for 60,000 at 300 classes
