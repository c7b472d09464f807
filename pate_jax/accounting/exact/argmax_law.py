"""The laws of the noisy argmax of a histogram and of all its one-vote neighbours, in logarithms.

Derived in docs/proofs/exact.md, section 2. With Gumbel noise they are softmaxes of the counts.

With many classes, most have hardly any votes, and hundreds of moves between them differ by less than a
float64 can represent. Remote classes are those so unlikely, before and after any move, that moves among them
need not be tried: every term such a class can add to a sum `sum_j P_j^a P'_j^(1-a)` is below exp(-50). Of the
remote groups only the one with the most votes is tried. How much the others could change the laws of the
remaining classes is bounded and added to their error (docs/proofs/exact.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.nodes import nodes
from pate_jax.accounting.exact.noise_law import log_cdf, log_density
from pate_jax.mechanisms import Noise

EPSILON = float(np.finfo(np.float64).eps)
STEEP = 200.0  # log of the largest ratio of factors that may be multiplied outside the logarithm
BLOCK = 2_000_000  # numbers in one intermediate array
ALONE = 250_000  # multiplications of one product
WIDE = 10_000  # numbers of a result from which on threads are worth their cost
LARGE = 9_000  # numbers of one histogram beyond which its moves are computed by themselves


class Factors(NamedTuple):
    """Logs of the integrands [R, U, N] of one class of each group, before and after a move of one vote.

    `level` is the integrand before the move. `fewer` and `more` are the class's own integrand after it lost
    or gained the vote; `leave` and `join` are the ratios by which all other integrands then change.
    """

    level: np.ndarray
    fewer: np.ndarray
    more: np.ndarray
    leave: np.ndarray
    join: np.ndarray
    ghost: np.ndarray | None  # bool [R, N]: nodes where only neighbours have mass
    error: np.ndarray  # [R, U]: bound on the error of the log of every law, before and after moves

    @property
    def steep(self) -> bool:
        """Whether ratios could overflow outside the logarithm."""
        top = float(self.leave.max(initial=0))
        if not np.isfinite(top):
            top = float(self.leave[np.isfinite(self.leave)].max(initial=0))
        return top > STEEP


class Neighbours(NamedTuple):
    """Log-probabilities after each of M moves."""

    others: np.ndarray  # [M, U]: one class of each group that the move does not touch
    loser: np.ndarray  # [M]: the class that loses the vote
    winner: np.ndarray  # [M]: the class that gains it


def factors(noise: Noise, groups: Groups) -> Factors:
    """All factors of the integrands of a few histograms, at nodes that also serve their neighbours."""
    groups = groups._replace(counts=groups.counts - groups.counts[:, :1])  # exact, as are nodes near 0
    grid = nodes(noise, groups)
    cells = grid.position[:, None, :, None] - groups.counts[:, :, None, None]  # K nodes are in each
    shape = (*groups.counts.shape, -1)
    fewer, level, more = (log_cdf(noise, cells - vote, grid.fraction).reshape(shape) for vote in (-1, 0, 1))
    weights = grid.log_weight[:, None, :]
    densities = (log_density(noise, cells - vote) for vote in (-1, 0, 1))
    number = len(grid.fraction)
    f_fewer, f_level, f_more = (np.repeat(density, number, axis=3).reshape(shape) for density in densities)
    ghost = None
    if noise.family == "exponential":
        ghost = grid.position < groups.counts[:, :1]
        top = (groups.sizes == 1)[:, :, None] & (np.arange(level.shape[1]) == 0)[:, None]
        dead = ghost[:, None, :] & ~top
        level = np.where(cells[..., 0] < 0, 0.0, level)  # any finite value: only neighbours have mass here
        fewer, f_fewer = np.where(dead, -np.inf, fewer), np.where(dead, -np.inf, f_fewer)
    rest = np.einsum("ru,run->rn", groups.sizes, level)[:, None, :] - level
    integrand = f_level + rest + weights
    at = np.argmax(integrand, axis=2)[:, :, None]
    largest = sum(np.abs(np.take_along_axis(part, at, axis=2))[:, :, 0] for part in (rest, f_level))
    # the rounding of a log is proportional to its size, which a move changes by less than the last term
    spread = 8 * (np.sqrt(level.shape[2]) - groups.counts[:, -1:] / noise.scale + noise.scale**-2.0)
    error = grid.error[:, None] + EPSILON * (spread + 32 * (2 + largest))
    rest = rest + weights
    return Factors(integrand, f_fewer + rest, f_more + rest, fewer - level, more - level, ghost, error)


def base(made: Factors) -> np.ndarray:
    """Log-probability of one class of each group before any move [R, U]."""
    level = made.level
    if made.ghost is not None:
        level = np.where(made.ghost[:, None, :], -np.inf, level)
    return log_sum(level)


def neighbours(made: Factors, row: np.ndarray, a: np.ndarray, b: np.ndarray) -> Neighbours:
    """The laws after the moves `a[m] -> b[m]` of the histograms `row[m]`."""
    rows, groups, points = made.level.shape
    others, loser, winner = np.empty((len(row), groups)), np.empty(len(row)), np.empty(len(row))
    outside = not made.steep and len(row) > rows  # one exponential then serves several moves
    if outside:
        peak = made.level.max(axis=2)
        with np.errstate(under="ignore"):
            scaled = np.exp(made.level - peak[:, :, None])
    if outside and groups * points >= LARGE:
        return _by_row(made, scaled, peak, row, a, b)
    piece = max(1, BLOCK // (groups * points))
    for start in range(0, len(row), piece):
        at = slice(start, start + piece)
        leave, join = made.leave[row[at], a[at]], made.join[row[at], b[at]]
        if outside:
            with np.errstate(under="ignore", divide="ignore"):
                ratio = np.exp(leave + join)[:, :, None]
                others[at] = np.log((scaled[row[at]] @ ratio)[:, :, 0]) + peak[row[at]]
        else:
            others[at] = log_sum(made.level[row[at]] + (leave + join)[:, None, :])
        loser[at] = log_sum(made.fewer[row[at], a[at]] + join)
        winner[at] = log_sum(made.more[row[at], b[at]] + leave)
    return Neighbours(others, loser, winner)


def _by_row(
    made: Factors, scaled: np.ndarray, peak: np.ndarray, row: np.ndarray, a: np.ndarray, b: np.ndarray
) -> Neighbours:
    """The laws after some moves, one matrix product for all moves of a histogram; `row` is sorted."""
    others, loser, winner = np.empty((len(row), peak.shape[1])), np.empty(len(row)), np.empty(len(row))
    for at in np.split(np.arange(len(row)), np.flatnonzero(np.diff(row)) + 1):
        one = row[at[0]]
        leave, join = made.leave[one, a[at]], made.join[one, b[at]]
        with np.errstate(under="ignore", divide="ignore"):
            others[at] = np.log(product(np.exp(leave + join), scaled[one].T)) + peak[one]
        loser[at] = log_sum(made.fewer[one, a[at]] + join)
        winner[at] = log_sum(made.more[one, b[at]] + leave)
    return Neighbours(others, loser, winner)


def log_sum(terms: np.ndarray) -> np.ndarray:
    """Log of the sum over the last axis; `-inf` if all terms are `-inf`.

    >>> log_sum(np.log([0.25, 0.5])).round(4)
    np.float64(-0.2877)
    """
    peak = terms.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore", under="ignore"):
        result: np.ndarray = np.log(np.exp(terms - peak).sum(axis=-1)) + peak[..., 0]
        return result


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`left @ right` for stacks of matrices [.., J, N] and [.., N, K], without threads of BLAS.

    OpenBLAS starts its threads for a product of more than 262,144 multiplications, and they wait for each
    other in loops that take a processor's whole time: several times what they bring at these sizes. So
    products of many nodes are sums of smaller ones.

    >>> left, right = np.arange(6.0).reshape(1, 2, 3), np.ones((1, 3, 2))
    >>> product(left, right).tolist()
    [[[3.0, 3.0], [12.0, 12.0]]]
    """
    (height, inner), width = left.shape[-2:], right.shape[-1]
    step = ALONE // max(1, height * width)
    if inner <= step or height * width > WIDE:
        plain: np.ndarray = left @ right
        return plain
    whole = inner // step * step
    lefts = left[..., :whole].reshape(*left.shape[:-1], -1, step).swapaxes(-3, -2)
    rights = right[..., :whole, :].reshape(*right.shape[:-2], -1, step, width)
    result: np.ndarray = (lefts @ rights).sum(axis=-3)
    result += left[..., whole:] @ right[..., whole:, :]
    return result


def softmax_base(scale: float, groups: Groups) -> np.ndarray:
    """The log-probability `n_j/b - log sum_k exp(n_k/b)` of one class of each group [R, U].

    >>> groups = Groups(np.array([0]), np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))
    >>> np.exp(softmax_base(2.0, groups)).round(4).tolist()
    [[0.7311, 0.2689]]
    """
    score = (groups.counts - groups.counts[:, :1]) / scale
    result: np.ndarray = score - np.log((groups.sizes * np.exp(score)).sum(axis=1))[:, None]
    return result


def softmax_outcomes(scale: float, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log P and log P' [R, U(a), U(b), 3] of "another class", a and b for every move, and the error [R].

    All classes that a move does not touch change by the same factor, so together they are one outcome.
    """
    with np.errstate(under="ignore", over="ignore", divide="ignore"):
        log_p = softmax_base(scale, groups)
        rest = _rest(np.exp(log_p), groups.sizes)
        p_a, p_b = log_p[:, :, None], log_p[:, None, :]
        down, up = p_a - 1 / scale, p_b + 1 / scale  # not yet normalised
        change = np.exp(p_a) * np.expm1(-1 / scale) + np.exp(p_b) * np.expm1(min(1 / scale, 1.0))
        log_rest = np.log(rest)
        whole = np.logaddexp(np.logaddexp(log_rest, down), up)
        log_mass = np.where((np.abs(change) < 0.5) & (scale >= 1), np.log1p(np.maximum(change, -0.5)), whole)
        before = np.stack(np.broadcast_arrays(log_rest, p_a, p_b), axis=-1)
        after = np.stack(np.broadcast_arrays(log_rest, down, up), axis=-1) - log_mass[..., None]
    error = EPSILON * (32 + 8 * (groups.counts[:, 0] - groups.counts[:, -1] + 2) / scale)
    return before, after, error


def _rest(share: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The probability of all classes but one of group a and one of group b [R, U, U], without cancelling."""
    number = share.shape[1]
    mass = share * sizes
    remaining = mass[:, None, None, :] - share[:, None, None, :] * (
        np.eye(number)[:, None, :] + np.eye(number)[None, :, :]
    )
    touched = np.eye(number, dtype=bool)[:, None, :] | np.eye(number, dtype=bool)[None, :, :]
    spare = sizes[:, None, None, :] - (np.eye(number)[:, None, :] + np.eye(number)[None, :, :])
    result: np.ndarray = np.where(
        touched, np.maximum(spare, 0) * share[:, None, None, :], np.maximum(remaining, 0)
    ).sum(axis=3)
    return result


NATS = 50.0
NEGLIGIBLE = 1e-11  # the largest error that is accepted in exchange for fewer moves
LEFT_OUT = 4e-18  # all terms of remote classes together: 1e4 classes times exp(-50), twice


class Near(NamedTuple):
    """A piece of histograms without its remote classes, except the first of them."""

    made: Factors
    groups: Groups
    log_p: np.ndarray
    possible: np.ndarray  # bool [R, U, U], the moves to try
    error: np.ndarray  # [R], already part of `made.error`


def leave_out(made: Factors, groups: Groups, log_p: np.ndarray, order: float, root: float) -> Near:
    """The piece without remote classes, wherever they can be left out.

    `order` is the largest order, `root` the square root of the argmax's zero-concentrated cost.
    """
    surprise = np.sqrt(np.maximum(-log_p, 0))
    remote = surprise > order * root + np.sqrt((order * root) ** 2 + order * root**2 + NATS)
    number = remote.sum(axis=1)
    first = np.minimum((~remote).sum(axis=1), remote.shape[1] - 1)  # groups are sorted, remote ones come last
    at = np.arange(len(log_p))
    useful = (number >= 2) & (groups.counts[:, 0] - groups.counts[at, first] >= 3)
    possible = groups.moves()
    if not useful.any() or not np.array_equal(groups.margins, groups.counts):
        return Near(made, groups, log_p, possible, np.zeros(len(log_p)))
    with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
        error = _error(made, log_p, first, ~remote)
    useful &= error < NEGLIGIBLE
    error = np.where(useful, error, 0.0)
    skipped = remote & useful[:, None]
    possible &= ~(skipped[:, :, None] & remote[:, None, :])
    skipped[at, first] = False
    possible &= ~skipped[:, :, None] & ~skipped[:, None, :]
    keep = int(np.where(useful, first + 1, remote.shape[1]).max())
    made = Factors(
        made.level[:, :keep],
        made.fewer[:, :keep],
        made.more[:, :keep],
        made.leave[:, :keep],
        made.join[:, :keep],
        made.ghost,
        made.error[:, :keep] + error[:, None],
    )
    groups = Groups(groups.rows, *(value[:, :keep] for value in groups[1:]))
    return Near(made, groups, log_p[:, :keep], possible[:, :keep, :keep], error)


def _error(made: Factors, log_p: np.ndarray, first: np.ndarray, live: np.ndarray) -> np.ndarray:
    """A bound [R] on how the log of a live class's law depends on which remote class a move touches.

    The ratios of remote classes lie between 1 and that of the first one. So it is enough to bound the mean
    distance of the latter from 1, under the law of each live class before or after the move's other half.
    """
    at = np.arange(len(log_p))
    rise = np.expm1(made.leave[at, first])[:, :, None]
    fall = -np.expm1(made.join[at, first])[:, :, None]
    steepest = np.exp(made.leave[:, 0])[:, :, None]
    weight = np.exp(made.level - log_p[:, :, None])
    least = (weight @ np.exp(made.join[:, :1]).transpose(0, 2, 1))[:, :, 0]  # E[S] of the largest class
    shares = [(weight @ (steepest * fall))[:, :, 0], (weight @ rise)[:, :, 0] / least]
    for integrand, change in ((made.fewer, fall), (made.more, rise)):
        scaled = np.exp(integrand - integrand.max(axis=2, keepdims=True))
        shares.append((scaled @ change)[:, :, 0] / scaled.sum(axis=2))
    worst = np.where(live, np.maximum.reduce(shares), 0.0).max(axis=1)
    return np.where(np.isfinite(worst), 2 * worst, np.inf)
