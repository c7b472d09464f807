"""What a noisy table is expected to tell, which decides its directions, and whether it shows anything.

**Directions.** A vector has one length, and all its directions share it. One more direction takes from all
others, and what it says may be less than the noise in it. What labels will say is not known, but a prior is:
the score of a class is a linear function of the coordinates that prefers no direction (the prior of ridge
regression), which tells half of the label, and any shares of classes are as likely as any other. With q =
1/classes, a label's variance is q (1 - q), and of it direction d of variance v_d is expected to tell

    c_d^2 = q (1 - q) / 2 * v_d / sum of all v.

But no direction tells more than labels have in one of theirs. Of a direction x of variance 1 and the marks y
of all classes, c^2 is |cov(y, x)|^2 / classes. That is at most the largest eigenvalue, q, of cov(y), which is
q (I - 11' / classes), over the number of classes: q^2. Where many classes make the first directions exceed
that, they tell q^2 each, and the others more, so that all together tell half, if they can.

A vector's square is split between directions as their weighed variances are, a_d. Summed over n voters, the
direction says n sqrt(a_d) c_d, among noise of variance N_d = s^2 + n a_d q (1 - q) / 2 (the noise that is
added, and that of records being drawn). Its best estimate then misses c_d^2 N_d / (n^2 a_d c_d^2 + N_d) of
the label, and a direction that is left out misses c_d^2. The number of directions is the one that misses
least.

The constant, a last entry that all vectors have, tells the shares of the classes. Its share of the length is
the same whatever the data are.

A direction in which the pool happens to vary much was chosen for it, so other inputs vary less along it, and
more along the last ones. The fewer public inputs there are for each direction, the more it matters: of 800
vectors of 256 numbers the last variances are three times as large as they look. So variances are `held_out`:
each part of the pool in turn is measured along the directions of the rest.

**Evidence** that a noisy table shows more than how frequent the classes are is read from that table alone, so
it is free. The dull explanation is that labels are drawn from the class shares, whatever the input. Under it
all that a table shows beside the shares is the noise, which is known, and the chance of that draw, whose
variance follows from the shares. Other explanations add a signal of some variance. Each has a likelihood
ratio against the dull one, and their mean is the evidence. If the dull one is true, the mean ratio is 1 in
expectation, so by Markov's inequality it reaches 20 in one table of 20 at most, whatever the signals that are
tried.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.system.eigen import eigensystem

LINEAR = 0.5  # of a label's variance: what the prior expects a linear function to tell
SLOPE = 1.0  # of what a direction tells over how much it varies, both in logarithms
CONSTANT = 0.2  # share of the length that the constant has
_TRIED = 60  # numbers of directions
_PARTS = 5  # of the pool, each held out once


def best(
    variances: Float[np.ndarray, " directions"],
    energies: Float[np.ndarray, " directions"],
    *,
    voters: int,
    classes: int,
    noise: float,
) -> int:
    """How many of the first directions are expected to miss least, all directions being public.

    `variances` are those of coordinates and `energies` those of weighed ones, as public held-out inputs have
    them; `noise` is the scale of the noise over the length of a vector.

    >>> falling = np.arange(1, 101) ** -1.5
    >>> [best(falling, falling**0.5, voters=9000, classes=10, noise=s) for s in (5, 50, 500)]
    [100, 17, 3]
    """
    tried = np.unique(np.geomspace(1, len(variances), _TRIED).astype(int)).tolist()
    told = expected_part(variances, classes)
    missed = [_missed(told, energies[:wanted], voters, classes, noise) for wanted in tried]
    return int(tried[int(np.argmin(missed))])


def _missed(told: np.ndarray, energies: np.ndarray, voters: int, classes: int, noise: float) -> float:
    """What the first directions are expected to miss of the label's variance."""
    inside = told[: len(energies)]
    energy, around = split(energies, voters, classes, noise)
    kept = voters**2 * energy * inside / (voters**2 * energy * inside + around)
    return float(told.sum() - (inside * kept).sum())


def split(
    energies: Float[np.ndarray, " directions"], voters: int, classes: int, noise: float
) -> tuple[Float[np.ndarray, " directions"], Float[np.ndarray, " directions"]]:
    """The shares of a vector's square that directions have, and the variance of the noise among their sums.

    >>> split(np.array([3.0, 1.0]), 100, 2, 8.0)[0].tolist()
    [0.72, 0.24]
    """
    energy = (1 - CONSTANT**2) * energies / energies.sum()
    drawn = voters * energy * label_variance(classes) * (1 - LINEAR)
    return energy, label_noise(classes, noise) ** 2 + drawn


def expected_part(
    variances: Float[np.ndarray, " directions"], classes: int
) -> Float[np.ndarray, " directions"]:
    """What each direction is expected to tell of a label's variance.

    >>> expected_part(np.array([3.0, 1.0]), 2).tolist()
    [0.09375, 0.03125]
    >>> (expected_part(np.array([60.0, 20.0, 10.0, 10.0]), 8) * 64).round(2).tolist()
    [1.0, 1.0, 0.75, 0.75]
    """
    falling = variances**SLOPE
    left, most = LINEAR * label_variance(classes), classes**-2
    told = left * falling / falling.sum()
    full = told > most
    while full.any() and not full.all() and (told > most).any():
        told[full] = most
        rest = max(left - most * full.sum(), 0.0)
        told[~full] = rest * falling[~full] / falling[~full].sum()
        full |= told > most
    return np.minimum(told, most)


def label_variance(classes: int) -> float:
    """Of one class's indicator, where all classes are equally frequent.

    >>> label_variance(2), round(label_variance(10), 2)
    (0.25, 0.09)
    """
    return (1 / classes) * (1 - 1 / classes)


def label_noise(classes: int, noise: float) -> float:
    """The noise in one class's sum, less what all classes share; of two, in half their difference.

    >>> label_noise(2, 8.0), round(label_noise(10, 8.0), 2)
    (4.0, 7.59)
    """
    return noise / 2 if classes == 2 else float(noise * np.sqrt(1 - 1 / classes))


def held_out(points: Float[np.ndarray, "pool directions"]) -> Float[np.ndarray, " directions"]:
    """The mean squares of held-out points along the principal directions of the others, the smallest first.

    Points are measured from zero. A pool of fewer points than parts is measured as it is.

    >>> pool = np.random.default_rng(0).normal(size=(60, 30))
    >>> inside = np.linalg.eigvalsh(pool.T @ pool / 60)
    >>> bool(inside[0] < 0.2 < 0.7 < held_out(pool)[0])
    True
    """
    points = points.astype(np.float64)
    if len(points) < _PARTS:
        return np.maximum(eigensystem(points.T @ points / len(points)).values, 0)
    part = np.random.default_rng(0).permutation(len(points)) % _PARTS
    grams = [held.T @ held for held in (points[part == one] for one in range(_PARTS))]
    whole, squares = sum(grams), np.zeros(points.shape[1])
    for gram in grams:
        axes = eigensystem(whole - gram).directions
        squares += (axes * (gram @ axes)).sum(0)
    return np.maximum.accumulate(np.maximum(squares, 0) / len(points))


ENOUGH = 20.0  # mean likelihood ratio from which on a table shows something
TOLD = np.geomspace(1e-3, 1, 13)  # of a label's variance: what signals that are tried tell
_LARGEST = 700.0  # of a logarithm that is still a float


def mean_ratio(
    seen: Float[np.ndarray, " directions"],
    dull: Float[np.ndarray, " directions"],
    signals: Float[np.ndarray, "signals directions"],
    freedom: int,
) -> float:
    """The mean likelihood ratio of signals of these variances over none.

    `seen` is the mean square of `freedom` normal numbers of variance `dull`, if there is no signal.

    >>> dull, signals = np.ones(50), np.ones((1, 50))
    >>> mean_ratio(2 * dull, dull, signals, 2) > 20 > mean_ratio(dull, dull, signals, 2)
    True
    """
    whole = dull + signals
    logarithms = freedom / 2 * (np.log(dull / whole) + seen * (1 / dull - 1 / whole)).sum(1)
    top = float(logarithms.max())
    return float(np.exp(min(top, _LARGEST)) * np.exp(logarithms - top).mean())


def expected(
    dull: Float[np.ndarray, " directions"], signal: Float[np.ndarray, " directions"], freedom: int
) -> float:
    """The likelihood ratio of a signal that is there, typically: `exp` of its mean logarithm.

    >>> expected(np.ones(9), np.ones(9), 2) > 10 > expected(np.ones(9), np.full(9, 0.1), 2) > 1
    True
    """
    over = signal / dull
    return float(np.exp(min(freedom / 2 * float((over - np.log1p(over)).sum()), _LARGEST)))


def of_counts(noisy: Int[np.ndarray, "query class"], release: NeighbourCounts) -> float:
    """The evidence of noisy counts.

    A query's counts are its votes times its shares. Whatever the number of its votes, nothing of them is
    left at right angles to the class shares, if it has these; so noise and chance alone are left there.

    >>> release = NeighbourCounts(40, 2, votes=1, sigma=5.0)
    >>> random, even = np.random.default_rng(0), np.full((40, 2), 50)
    >>> drawn = even + np.rint(random.normal(size=(40, 2)) * 5).astype(int)
    >>> apart = np.where(np.arange(40)[:, None] % 2 == [0, 1], 40, -40)
    >>> of_counts(drawn, release) < 20 < of_counts(drawn + apart, release)
    True
    """
    totals = np.maximum(noisy.sum(0), 0).astype(np.float64)
    if release.queries < 2 or totals.sum() == 0:
        return 1.0
    shares = totals / totals.sum()
    left = noisy - np.outer(noisy @ shares, shares) / (shares @ shares)
    votes = totals.sum() / release.queries
    across = np.eye(release.classes) - np.outer(shares, shares) / (shares @ shares)
    chance = float(np.linalg.eigvalsh(across * shares @ across)[-1])
    freedom = (release.queries - 1) * (release.classes - 1)
    dull = np.array([release.sigma**2 + votes * chance])
    seen = np.array([float((left**2).sum()) / freedom])
    return mean_ratio(seen, dull, votes**2 * TOLD[:, None] / release.classes, freedom)


def chance_of(shares: Float[np.ndarray, " classes"]) -> float:
    """The largest variance that the draw of one label from class shares has, in any direction.

    >>> round(chance_of(np.array([0.5, 0.5])), 3), round(chance_of(np.array([0.8, 0.1, 0.1])), 3)
    (0.5, 0.24)
    """
    return float(np.linalg.eigvalsh(np.diag(shares) - np.outer(shares, shares))[-1])
