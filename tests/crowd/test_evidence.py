"""Noisy tables without a signal are hardly ever said to show one, and those with one are."""

import numpy as np
import pytest
from scipy.stats import norm

from pate_jax import crowd
from pate_jax.accounting.exact import counts as cost
from pate_jax.crowd import evidence, shares
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.models import spaces

RANDOM = np.random.default_rng(7)
POOL = RANDOM.normal(size=(300, 8)) * np.arange(1, 9) ** -0.5
RECORDS = RANDOM.normal(size=(3000, 8)) * np.arange(1, 9) ** -0.5
SPACE = spaces.learn("identity", POOL)
PUBLIC, SEEN = SPACE.coordinates(POOL), SPACE.coordinates(RECORDS)


def drawn(random, usual, signal=0.0):
    """Labels whose shares move by `signal` along the first number."""
    chance = np.asarray(usual) + signal * np.outer(np.sign(RECORDS[:, 0]), [1, -1, *[0] * (len(usual) - 2)])
    return (random.random((len(RECORDS), 1)) > chance.cumsum(1)[:, :-1]).sum(1)


def found(kind, labels, classes, random, epsilon):
    made = crowd.plan(kind, SPACE, PUBLIC, voters=3000, classes=classes, mu=cost.mu_for(epsilon, 1e-5))
    seen = crowd.vectors(made.scaling, SEEN[:, : len(made.space.variances)])
    if kind == "sums":
        table = np.eye(classes)[labels].T @ seen
        table = table[1:] - table[:1] if classes == 2 else table
    else:
        gaps = made.queries.offsets - 2 * seen.astype(float) @ made.queries.vectors
        nearest = np.argsort(gaps, axis=1)[:, : made.release.votes]
        table = np.zeros(made.release.shape)
        np.add.at(table, (nearest, labels[:, None]), 1)
    noisy = np.rint(table + random.normal(size=table.shape) * made.release.sigma).astype(np.int64)
    if kind == "sums":
        return shares.of_sums(noisy, made, PUBLIC, 3000)
    return shares.of_counts(noisy, made.release)


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
@pytest.mark.parametrize("usual", [(0.7, 0.3), (0.6, 0.2, 0.1, 0.1)])
def test_labels_without_a_signal_are_said_to_show_nothing(kind, usual):
    said = []
    for seed in range(12):
        random = np.random.default_rng(seed)
        one = found(kind, drawn(random, usual), len(usual), random, (0.2, 3.0)[seed % 2])
        said.append(one.evidence >= evidence.ENOUGH)
        assert shares.doubt(one) is not None
    assert sum(said) <= 2  # one in twenty at most


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
def test_a_signal_is_seen(kind):
    random = np.random.default_rng(3)
    one = found(kind, drawn(random, (0.6, 0.4), 0.35), 2, random, 3.0)
    assert one.evidence > evidence.ENOUGH and shares.doubt(one) is None


def test_the_mean_ratio_of_noise_is_one_and_seldom_large():
    random = np.random.default_rng(0)
    dull = np.geomspace(1, 9, 30)
    signals = np.geomspace(0.01, 3, 9)[:, None] * dull[::-1]
    squares = (random.normal(size=(4000, 30, 3)) ** 2).mean(2) * dull
    ratios = np.array([evidence.mean_ratio(one, dull, signals, 3) for one in squares])
    assert (ratios >= evidence.ENOUGH).mean() < 0.05
    assert ratios[ratios < 100].mean() < 1.5


def test_the_mean_ratio_is_the_one_of_normal_densities():
    random = np.random.default_rng(1)
    values, dull, signal = random.normal(size=(4, 2)) * 2, np.array([1.0, 2.0, 3.0, 4.0]), np.full(4, 2.5)
    whole = norm.logpdf(values, scale=np.sqrt(dull + signal)[:, None]).sum()
    nothing = norm.logpdf(values, scale=np.sqrt(dull)[:, None]).sum()
    mean = evidence.mean_ratio((values**2).mean(1), dull, signal[None], 2)
    assert np.isclose(mean, np.exp(whole - nothing))


def test_counts_of_uneven_queries_show_nothing_if_all_have_the_shares_of_the_classes():
    votes = np.array([20, 50, 100, 300, 30, 80, 120, 200])
    usual, release = np.array([0.7, 0.2, 0.1]), NeighbourCounts(8, 3, votes=1, sigma=4.0)
    said = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        noisy = random.multinomial(votes, usual) + np.rint(random.normal(size=(8, 3)) * 4).astype(int)
        said += evidence.of_counts(noisy, release) >= evidence.ENOUGH
    assert said <= 10


def test_where_nothing_but_noise_is_left_neighbours_name_the_most_frequent_class():
    random, release = np.random.default_rng(5), NeighbourCounts(60, 3, votes=1, sigma=60.0)
    noisy = np.array([30, 10, 10]) + np.rint(random.normal(size=(60, 3)) * 60).astype(int)
    assert (shares.of_counts(noisy, release).probabilities.argmax(1) == 0).mean() > 0.9
    assert (noisy.argmax(1) == 0).mean() < 0.6
