"""Noise in shares: the law of a sum by brute force in arbitrary precision, and what is refused."""

import math

import mpmath
import numpy as np
import pytest

from pate_jax.errors import PateError
from pate_jax.mechanisms.shared_votes import NoiseShares, SharedVote, distance, gap

VOTE = {"voters": "teachers", "opened": "answers", "parties": 3, "sigma": 40.0, "classes": 10}


def gaussian(scale, reach):
    """The discrete Gaussian on -reach..reach."""
    weights = [mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale**2)) for x in range(-reach, reach + 1)]
    total = mpmath.fsum(weights)
    return [weight / total for weight in weights]


def convolved(first, second):
    out = [mpmath.mpf(0)] * (len(first) + len(second) - 1)
    for i, p in enumerate(first):
        for j, q in enumerate(second):
            out[i + j] += p * q
    return out


def measured_gap(scale, shares):
    """The largest difference of log-chances of the sum and of one discrete Gaussian near the middle."""
    with mpmath.workprec(300):
        scale = mpmath.mpf(scale)
        reach = int(18 * scale) + 4
        whole = one = gaussian(scale, reach)
        for _ in range(shares - 1):
            whole = convolved(whole, one)
        middle, near = len(whole) // 2, int(4 * scale) + 2
        single = gaussian(scale * mpmath.sqrt(shares), middle)
        logs = [mpmath.log(whole[middle + x] / single[middle + x]) for x in range(-near, near + 1)]
        return float(max(abs(one) for one in logs))


@pytest.mark.parametrize(("scale", "shares"), [(0.7, 2), (0.7, 3), (1.0, 2), (2.0, 2)])
def test_the_gap_bounds_the_exact_law_of_a_sum_and_is_not_idle(scale, shares):
    bound = gap(scale, shares)
    assert 0.1 * bound < measured_gap(scale, shares) <= bound


@pytest.mark.parametrize(("parties", "colluding", "absent"), [(3, 1, 0), (5, 2, 1), (4, 1, 2), (2, 1, 0)])
def test_the_shares_of_the_honest_parties_alone_have_the_agreed_variance(parties, colluding, absent):
    shares = NoiseShares(40.0, parties, colluding, absent)
    scale = shares.share.scale
    reach = np.arange(-600, 601)
    chances = np.exp(-(reach**2) / (2 * scale**2))
    variance = (chances * reach**2).sum() / chances.sum()  # of one share; variances of shares add up
    honest = parties - colluding - absent
    assert math.isclose(variance * honest, 40.0**2, rel_tol=1e-12)
    assert math.isclose(shares.together(honest).scale, 40.0, rel_tol=2e-12)
    assert shares.together(honest).scale <= 40.0  # accounts for no more noise than there is


def test_a_share_below_the_least_scale_is_refused_and_the_remedy_works():
    NoiseShares(4.0, parties=5, colluding=1)
    with pytest.raises(PateError, match=r"at least 2: raise sigma to 4\b"):
        NoiseShares(3.999, parties=5, colluding=1)


def test_the_distance_counts_every_share():
    shares = NoiseShares(40.0, parties=5)
    assert distance(shares, 5) == 5 * distance(shares, 1) > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"parties": 1}, "parties=1"),
        ({"parties": 3, "colluding": 2, "absent": 1}, "leave nobody"),
        ({"parties": 2, "absent": 1}, "leave nobody"),
        ({"absent": -1}, "absent=-1"),
        ({"colluding": 1.0}, "colluding=1.0"),
        ({"sigma": math.nan}, "sigma=nan"),
        ({"sigma": 1e9}, "sigma"),
        ({"voters": "dogs"}, "voters='dogs'"),
        ({"opened": "all"}, "opened='all'"),
        ({"voters": "sums"}, "opened='counts'"),
        ({"threshold": 200.0}, "go together"),
        ({"threshold": -1.0, "sigma_threshold": 50.0}, "threshold=-1"),
        ({"threshold": 200.0, "sigma_threshold": 50.0, "opened": "counts"}, "free of cost"),
        ({"threshold": 200.0, "sigma_threshold": 2.0}, "sigma=2 leaves"),
        ({"voters": "neighbours", "queries": 3, "votes": 4}, "votes=4"),
        ({"classes": 1}, "classes=1"),
        ({"length": 2.5}, "length=2.5"),
        ({"voters_of_parties": (1, 2)}, "one number for each of 3"),
        ({"voters_of_parties": (1, 2, -3)}, "at least 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(settings, message):
    with pytest.raises(PateError, match=message):
        SharedVote(**(VOTE | settings))
