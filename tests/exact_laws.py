"""Output laws of the mechanisms, computed without any code of the package that draws or accounts."""

import itertools

import numpy as np
from scipy import stats

CONTINUOUS = {
    "gaussian": stats.norm,
    "laplace": stats.laplace,
    "gumbel": stats.gumbel_r,
    "exponential": stats.expon,
}


def discrete_chances(family: str, scale: float, reach: int) -> np.ndarray:
    """The chances of -reach..reach."""
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-(x**2) / (2 * scale**2) if family == "discrete_gaussian" else -np.abs(x) / scale)
    return weights / weights.sum()


def plurality(noise, counts) -> np.ndarray:
    """P[label = j] for `argmax_j n_j + noise`: quadrature, or enumeration with ties at random."""
    counts = np.asarray(counts, float)
    if noise.family in CONTINUOUS:
        law = CONTINUOUS[noise.family](scale=noise.scale)
        edges = np.linspace(counts.min() - 45 * noise.scale, counts.max() + 45 * noise.scale, 100_001)
        edges = np.unique(np.concatenate([edges, counts]))  # densities have kinks at the counts
        x, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        below = np.array([law.cdf(x - n) for n in counts])
        return np.array(
            [(law.pdf(x - n) * np.delete(below, j, 0).prod(0) * width).sum() for j, n in enumerate(counts)]
        )
    reach = int(45 * noise.scale) + 5
    chances = discrete_chances(noise.family, noise.scale, reach)
    whole = counts.astype(int)
    x = np.arange(whole.min() - reach, whole.max() + reach + 1)

    def at(values):
        inside = np.abs(values) <= reach
        return np.where(inside, chances[np.clip(values + reach, 0, 2 * reach)], 0.0)

    nodes, weights = np.polynomial.legendre.leggauss(12)
    u, weights = (nodes + 1) / 2, weights / 2
    mass = np.array([at(x - n) for n in whole])
    below = np.array([np.cumsum(row) - row for row in mass])
    mixed = below[:, None, :] + u[None, :, None] * mass[:, None, :]  # ties: the larger of two uniforms
    return np.array(
        [
            (mass[j] * (weights[:, None] * np.delete(mixed, j, 0).prod(0)).sum(0)).sum()
            for j in range(len(whole))
        ]
    )


def permute_and_flip(scale: float, counts) -> np.ndarray:
    """McKenna and Sheldon's procedure over all orders: accept with chance exp((n_j - max n) / scale)."""
    accept = np.exp((np.asarray(counts, float) - max(counts)) / scale)
    total = np.zeros(len(counts))
    orders = list(itertools.permutations(range(len(counts))))
    for order in orders:
        refused = 1.0
        for j in order:
            total[j] += refused * accept[j] / len(orders)
            refused *= 1 - accept[j]
    return total


def answered(test, lead: float) -> float:
    """P[lead + noise >= threshold]."""
    if test.noise.family in CONTINUOUS:
        return float(CONTINUOUS[test.noise.family](scale=test.noise.scale).sf(test.threshold - lead))
    reach = int(45 * test.noise.scale) + 5
    x = np.arange(-reach, reach + 1)
    return float(
        discrete_chances(test.noise.family, test.noise.scale, reach)[lead + x >= test.threshold].sum()
    )


def outcomes(mechanism, counts, lead: float | None = None) -> np.ndarray:
    """The law over refused, 0, 1, ..; mechanisms without a test never refuse."""
    labels = plurality(mechanism.noise, counts)
    if mechanism.test is None:
        return np.concatenate([[0.0], labels])
    chance = answered(mechanism.test, max(counts) if lead is None else lead)
    return np.concatenate([[1 - chance], chance * labels])
