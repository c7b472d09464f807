"""Shares of noise as parties draw them: their sum has the law that the accountant assumes, and no other."""

import numpy as np
import pytest
from scipy import stats

from pate_jax.aggregate import noise, seeded_key
from pate_jax.mechanisms.shared_votes import NoiseShares

DRAWS = 30_000


def convolved(scale: float, count: int) -> np.ndarray:
    """The law of a sum of discrete Gaussians around its middle."""
    x = np.arange(-int(12 * scale) - 2, int(12 * scale) + 3)
    one = np.exp(-(x**2) / (2 * scale**2))
    whole = one = one / one.sum()
    for _ in range(count - 1):
        whole = np.convolve(whole, one)
    return whole


def chance(drawn: np.ndarray, law: np.ndarray) -> float:
    """The p-value of a chi-square test over cells that are not too rare; the tails are one cell each."""
    middle = len(law) // 2
    reach = int(2.5 * np.sqrt((law * (np.arange(len(law)) - middle) ** 2).sum()))
    inside = law[middle - reach : middle + reach + 1]
    cells = [law[: middle - reach].sum(), *inside, law[middle + reach + 1 :].sum()]
    seen = np.bincount(np.clip(drawn, -reach - 1, reach + 1) + reach + 1, minlength=len(cells))
    return float(stats.chisquare(seen, np.array(cells) / np.sum(cells) * len(drawn)).pvalue)


@pytest.mark.parametrize(("colluding", "absent"), [(0, 0), (1, 0), (1, 1)])
def test_what_nobody_can_subtract_has_the_agreed_noise(colluding, absent):
    agreed = NoiseShares(6.0, parties=4, colluding=colluding, absent=absent)
    drawn = np.stack([noise.share(agreed.share, (DRAWS,), key=seeded_key(one)) for one in range(4)])
    left = drawn[colluding : 4 - absent].sum(axis=0)  # without what colluders know, and what did not come
    assert chance(left, convolved(agreed.share.scale, agreed.honest)) > 1e-4
    assert chance(left, convolved(6.0, 1)) > 1e-4  # hardly another law: the gap is below 1e-16
    for wrong in (2 / 3, 3 / 2):
        assert chance(left, convolved(agreed.share.scale * wrong, agreed.honest)) < 1e-6
    assert abs(np.corrcoef(drawn)[np.triu_indices(4, 1)]).max() < 0.03  # shares are independent
