"""Answers that parties open have the law that the accountant reckons with, in real votes."""

from functools import reduce

import numpy as np
import pytest
import scipy.stats
from small_votes import agree, write

from pate_jax.parties.agreement import Noise

SCALE, REACH = 2.0, 24  # of each party's share
CLASSES, THRESHOLD = 3, 9
PARTS = [(4, 4, 4), (5, 4, 3), (9, 2, 1), (6, 6, 0)]  # what all parties together count


def law():
    """The law of one share of noise, on the whole numbers up to the reach."""
    weights = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / (2 * SCALE**2))
    return weights / weights.sum()


def exact(counts):
    """The chances of a refusal and of each class: ties are shared equally."""
    noise = reduce(np.convolve, [law()] * 3)
    values = np.arange(-3 * REACH, 3 * REACH + 1)
    passes = noise[max(counts) + values >= THRESHOLD].sum()
    kept = np.flatnonzero(np.abs(values) <= 20)  # beyond lie less than 1e-8
    places = np.stack(np.meshgrid(*[kept] * CLASSES, indexing="ij"), -1).reshape(-1, CLASSES)
    totals = np.array(counts) + values[places]
    best = totals == totals.max(1, keepdims=True)
    table = (noise[places].prod(1)[:, None] * best / best.sum(1, keepdims=True)).sum(0)
    return np.array([1 - passes, *(passes * table)])


def draws(forks, folder, queries, seed):
    """How often each outcome was opened, for each kind of counts."""
    agreement = agree(
        queries=queries, classes=CLASSES, votes=(4, 4, 4), opened="answers",
        noise=Noise(SCALE * 2**0.5, THRESHOLD, SCALE * 2**0.5), seconds=60.0,
    )  # fmt: skip
    random = np.random.default_rng(seed)
    kinds = np.arange(queries) % len(PARTS)
    voters = np.array([np.repeat(np.arange(CLASSES), part) for part in PARTS])
    own = {}
    for i, name in enumerate(agreement.names):
        counts = np.stack([np.bincount(one[i::3], minlength=CLASSES) for one in voters])[kinds]
        noise = random.choice(np.arange(-REACH, REACH + 1), (queries, CLASSES + 1), p=law())
        own[name] = [counts, noise[:, 1:], noise[:, 0]]
    write(folder, agreement, own)
    ended, opened, said = forks.run(folder, {name: {"limit": 300} for name in agreement.names})
    assert {*ended.values()} == {0}, said
    return np.stack(
        [np.bincount(opened["south"][kinds == kind] + 1, minlength=4) for kind in range(len(PARTS))]
    )


def surprise(found):
    """The chance of counts at least as far from the exact law as these, by a chi-square test."""
    expected = np.stack([exact(part) for part in PARTS]) * found.sum(1, keepdims=True)
    assert expected.min() > 5
    return scipy.stats.chi2.sf(((found - expected) ** 2 / expected).sum(), found.size - len(PARTS))


@pytest.mark.long
def test_opened_answers_have_the_exact_law(forks, tmp_path):
    assert surprise(draws(forks, tmp_path, 5000, 1)) > 1e-4


def test_the_check_of_the_law_can_fail():
    """With another law of ties, or other noise, the same test says so."""
    kinds = np.stack([exact(part) for part in PARTS])
    assert surprise(np.round(kinds * 3000)) > 0.99
    first = kinds.copy()
    first[:, 1] += 0.25 * first[:, 2]
    first[:, 2] *= 0.75
    assert surprise(np.round(first * 3000)) < 1e-9
