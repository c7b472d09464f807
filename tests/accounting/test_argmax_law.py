"""The law of the noisy argmax and of its neighbours, against closed forms, exact sums and draws."""

import functools

import mpmath as mp
import numpy as np
import pytest

from pate_jax.accounting.exact import argmax_law, moves, renyi
from pate_jax.accounting.exact.groups import merge
from pate_jax.mechanisms import (
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    Noise,
    PermuteAndFlip,
)


def two_class_law(noise: Noise, gap: int):
    """Log-probability that the class with `gap` votes more wins, and that it loses, in closed form."""
    scale, gap = mp.mpf(noise.scale), mp.mpf(gap)
    if noise.family == "gaussian":
        return mp.log(mp.ncdf(gap / (scale * mp.sqrt(2)))), mp.log(mp.ncdf(-gap / (scale * mp.sqrt(2))))
    far = abs(gap) / scale
    if noise.family == "laplace":
        small = (2 + far) / 4 * mp.exp(-far)
    elif noise.family == "exponential":
        small = mp.exp(-far) / 2
    else:
        small = 1 / (1 + mp.exp(far))
    pair = mp.log(1 - small), mp.log(small)
    return pair if gap >= 0 else pair[::-1]


@functools.cache
def masses(noise: Noise, reach: int) -> tuple[dict, dict]:
    """The probability of each whole number, and that of all up to it."""
    scale, gaussian = mp.mpf(noise.scale), noise.family == "discrete_gaussian"
    weight = {
        x: mp.exp(-mp.mpf(x * x) / (2 * scale**2) if gaussian else -abs(x) / scale)
        for x in range(-reach, reach + 1)
    }
    total = mp.fsum(weight.values())
    mass = {x: value / total for x, value in weight.items()}
    below, running = {-reach - 1: mp.mpf(0)}, mp.mpf(0)
    for x in range(-reach, reach + 1):
        running += mass[x]
        below[x] = running
    return mass, below


def whole_number_law(noise: Noise, counts) -> list:
    """Log-probabilities of all classes by the sum over whole numbers, ties integrated as polynomials."""
    logs = sorted_law(noise, tuple(sorted(counts)))  # equal counts have equal laws
    return [logs[count] for count in counts]


PLACES = 400  # binary places of the sums, which are of whole numbers: those are much faster than mpmath's


def in_places(table: dict) -> dict[int, int]:
    return {x: int(mp.ldexp(value, PLACES)) for x, value in table.items()}


@functools.cache
def sorted_law(noise: Noise, counts: tuple[int, ...]) -> dict:
    gaussian = noise.family == "discrete_gaussian"
    reach = int((16 if gaussian else 125) * noise.scale) + max(counts) - min(counts) + 3
    mass, below = map(in_places, masses(noise, reach))
    logs = {}
    for own in set(counts):
        others = list(counts)
        others.remove(own)
        chance = 0
        for x in range(own - reach, own + reach + 1):
            terms = [mass[x - own]]
            for count in others:
                start, slope = below.get(x - 1 - count, (x > count) << PLACES), mass.get(x - count, 0)
                pairs = zip([*terms, 0], [0, *terms], strict=True)
                terms = [(same * start + lower * slope) >> PLACES for same, lower in pairs]
            chance += sum(value // (i + 1) for i, value in enumerate(terms))
        logs[own] = mp.log(mp.ldexp(mp.mpf(chance), -PLACES))
    return logs


def all_laws(noise: Noise, counts):
    """What the accountant computes: logs before and after every move, with their error bound."""
    groups = merge([counts]).buckets[0]
    made = argmax_law.factors(noise, groups)
    base = argmax_law.base(made)
    row, a, b = np.nonzero(groups.moves())
    sizes, _, after, error = moves.outcomes(groups, made, base, row, a, b)
    return (
        groups,
        base[0],
        [(groups.counts[0][i], groups.counts[0][j]) for i, j in zip(a, b, strict=True)],
        sizes,
        after,
        error,
    )


@pytest.mark.parametrize("scale", [1e-2, 0.3, 1.0, 7.0, 40.0, 1e3, 1e6])
@pytest.mark.parametrize("family", ["gaussian", "laplace", "exponential", "gumbel"])
def test_two_classes_have_a_closed_form(family, scale):
    noise = Noise(family, scale)
    for votes in ([250, 0], [130, 120], [125, 125], [1, 0], [4000, 1000]):
        groups = merge([votes]).buckets[0]
        gap = votes[0] - votes[1]
        if family == "gumbel":
            found, error = argmax_law.softmax_base(scale, groups)[0], 1e-13 * (1 + gap / scale)
        else:
            made = argmax_law.factors(noise, groups)
            found, error = argmax_law.base(made)[0], made.error[0].max()
        for value, truth in zip(found, two_class_law(noise, gap), strict=False):
            assert abs(mp.mpf(float(value)) - truth) <= error


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("family", ["gaussian", "laplace", "exponential"])
def test_neighbours_of_two_classes(family, scale):
    noise = Noise(family, scale)
    for votes in ([30, 0], [17, 13], [15, 15], [16, 15], [1, 0]):
        _, _, moves, _, after, error = all_laws(noise, votes)
        for (a, b), logs, bound in zip(moves, after, error, strict=True):
            loser, winner = two_class_law(noise, int(a - b - 2))
            assert abs(mp.mpf(float(logs[-2])) - loser) <= bound.max()
            assert abs(mp.mpf(float(logs[-1])) - winner) <= bound.max()


@pytest.mark.parametrize("scale", [0.4, 1.0, 4.0, 9.0])
@pytest.mark.parametrize("family", ["discrete_gaussian", "discrete_laplace"])
def test_whole_numbers_against_exact_sums(family, scale):
    noise = Noise(family, scale)
    for counts in ([9, 6], [7, 4, 4], [5, 5, 3, 1]):
        groups, base, moves, sizes, after, error = all_laws(noise, counts)
        truth = whole_number_law(noise, counts)
        for value, count in zip(base, groups.counts[0], strict=True):
            assert abs(mp.mpf(float(value)) - truth[counts.index(int(count))]) <= error.max()
        for (a, b), size, logs in list(zip(moves, sizes, after, strict=True))[::3]:
            moved = list(counts)
            first = counts.index(int(a))
            second = next(k for k, count in enumerate(counts) if count == b and k != first)
            moved[first] -= 1
            moved[second] += 1
            truth = whole_number_law(noise, moved)
            assert abs(mp.mpf(float(logs[-2])) - truth[first]) <= error.max()
            assert abs(mp.mpf(float(logs[-1])) - truth[second]) <= error.max()
            for group, value in enumerate(logs[:-2]):
                if size[group] > 0:
                    same = [k for k, count in enumerate(counts) if count == groups.counts[0][group]]
                    k = next(k for k in same if k not in (first, second))
                    assert abs(mp.mpf(float(value)) - truth[k]) <= error.max()


@pytest.mark.parametrize(
    "family", ["gaussian", "laplace", "exponential", "discrete_gaussian", "discrete_laplace"]
)
@pytest.mark.parametrize("scale", [0.7, 6.0, 50.0])
def test_neighbours_are_the_laws_of_the_neighbouring_histograms(family, scale):
    """The products over one set of nodes agree with each neighbour's own quadrature, and sum to 1."""
    noise = Noise(family, scale)
    rng = np.random.default_rng(5)
    for classes in (3, 8, 40):
        counts = np.sort(rng.multinomial(90, rng.dirichlet(np.full(classes, 0.5))))[::-1].tolist()
        groups, _, moves, sizes, after, error = all_laws(noise, counts)
        for at in rng.choice(len(moves), min(6, len(moves)), replace=False):
            (a, b), logs, bound = moves[at], after[at], error[at].max()
            assert abs((sizes[at] * np.exp(logs)).sum() - 1) <= 4 * bound
            moved = list(counts)
            first = counts.index(int(a))
            second = max(k for k, count in enumerate(counts) if count == b and k != first)
            moved[first] -= 1
            moved[second] += 1
            own = merge([moved]).buckets[0]
            law = dict(zip(own.counts[0], argmax_law.base(argmax_law.factors(noise, own))[0], strict=True))
            assert abs(logs[-2] - law[a - 1]) <= 2 * bound
            assert abs(logs[-1] - law[b + 1]) <= 2 * bound
            for group, count in enumerate(groups.counts[0]):
                if sizes[at, group] > 0:
                    assert abs(logs[group] - law[count]) <= 2 * bound


def test_many_equal_classes_share_the_probability():
    for family in ("gaussian", "laplace", "exponential", "discrete_gaussian", "discrete_laplace"):
        for scale in (2.0, 30.0):
            groups = merge([[33] * 150]).buckets[0]
            made = argmax_law.factors(Noise(family, scale), groups)
            assert abs(argmax_law.base(made)[0, 0] + np.log(150)) <= made.error.max()


@pytest.mark.parametrize(
    ("mechanism", "draw"),
    [
        (GNMax(6.0), lambda rng, shape: rng.normal(0, 6, shape)),
        (LNMax(4.0), lambda rng, shape: rng.laplace(0, 4, shape)),
        (GumbelMax(5.0), lambda rng, shape: rng.gumbel(0, 5, shape)),
        (PermuteAndFlip(5.0), lambda rng, shape: rng.exponential(5, shape)),
        (DiscreteLaplaceMax(4.0), lambda rng, shape: rng.geometric(p, shape) - rng.geometric(p, shape)),
        (DiscreteGaussianMax(3.0), None),
    ],
)
def test_labels_follow_the_law(mechanism, draw):
    """Chi-square over 200,000 draws; the law at two thirds of the scale is rejected."""
    rng = np.random.default_rng(11)
    votes = np.array([14, 11, 11, 6, 0])
    shape = (200_000, len(votes))
    if draw is None:
        support = np.arange(-40, 41)
        weights = np.exp(-(support**2) / 18.0)
        noise = rng.choice(support, p=weights / weights.sum(), size=shape)
    else:
        noise = draw(rng, shape)
    noisy = votes + noise + rng.random(shape) * (0.5 if mechanism.noise.family.startswith("discrete") else 0)
    seen = np.bincount(noisy.argmax(axis=1), minlength=len(votes))

    def statistic(described):
        expected = np.exp(renyi.probabilities(described, votes[None])[0]) * len(noisy)
        return ((seen - expected) ** 2 / expected).sum()

    name = "sigma" if hasattr(mechanism, "sigma") else "scale"
    wrong = type(mechanism)(**{name: mechanism.noise.scale * 2 / 3})
    assert statistic(mechanism) < 23.5  # the 0.9999 quantile at 4 degrees of freedom
    assert statistic(wrong) > 100


p = 1 - np.exp(-1 / 4.0)
