# ruff: noqa: E402 - one thread must be asked for before NumPy is loaded
"""How long the accountant takes on one core, beside a loop over queries and plain vectorised NumPy.

`python benchmarks/accounting.py [NAME ..] [--votes published_mnist_250.npz]` appends one JSON line for
each measurement to benchmarks/results/accounting.jsonl. Slow ways are timed on a few queries and scaled up.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import math
import resource
import time
from functools import partial
from pathlib import Path

import numpy as np
from measurement import add, machine
from scipy.special import log_ndtr

from pate_jax import accounting
from pate_jax.accounting import exact
from pate_jax.accounting.exact import pld
from pate_jax.mechanisms import ConfidentDiscreteGaussian, ConfidentGNMax, GNMax, LNMax

SIXTY = np.concatenate([np.linspace(1.05, 2, 10), np.arange(2.5, 17.5, 0.5), np.geomspace(18, 300, 20)])
THREE_HUNDRED = 1 + np.geomspace(0.05, 500, 300)


def record(name, way, work, queries, *, measured=None):
    """Time `work` on `measured` queries (all of them unless told) and append a line."""
    measured = measured or queries
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    line = {
        "name": name,
        "way": way,
        "queries": queries,
        "measured_on": measured,
        "seconds": round(wall * queries / measured, 3),
        "cpu_seconds": round(cpu * queries / measured, 3),
        "peak_gib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 3),
        **machine(),
    }
    add("accounting", line)


def digits(queries):
    """Votes of 250 teachers on 10 classes, as consensual as the published ones."""
    rng = np.random.default_rng(0)
    votes = np.empty((queries, 10), int)
    for row, share in enumerate(rng.beta(8, 0.6, queries)):
        spread = (1 - share) * rng.dirichlet(np.full(10, 0.5))
        spread[rng.integers(10)] += share
        votes[row] = rng.multinomial(250, spread / spread.sum())
    return votes


def glyphs(queries):
    """Votes of 5,000 teachers on 150 classes with a long tail."""
    rng = np.random.default_rng(0)
    votes = np.empty((queries, 150), int)
    for row, share in enumerate(rng.beta(5, 1.2, queries)):
        spread = rng.gamma(0.15, 1, 150) + 1e-9
        spread *= (1 - share) / spread.sum()
        spread[rng.integers(150)] += share
        votes[row] = rng.multinomial(5000, spread / spread.sum())
    return votes


def loop_published(votes, sigma, orders):
    """One query and one order at a time, as the published code goes about it."""
    total = np.zeros(len(orders))
    for counts in votes:
        top = counts.argmax()
        gaps = np.delete(counts[top] - counts, top)
        log_q = min(
            float(np.logaddexp.reduce(log_ndtr(-gaps / (math.sqrt(2) * sigma)))), math.log1p(-1 / len(counts))
        )
        for at, order in enumerate(orders):
            total[at] += theorem_6(order, sigma, log_q)
    return total


def theorem_6(order, sigma, log_q):
    """The data-dependent bound of Papernot et al. 2018 for one query and one order."""
    worst = order / sigma**2
    mu2 = sigma * math.sqrt(-log_q)
    mu1 = mu2 + 1
    if mu2 <= 1 or order > mu1 or math.isinf(log_q):
        return worst
    e1, e2 = mu1 / sigma**2, mu2 / sigma**2
    if log_q > (mu2 - 1) * e2 - mu2 * math.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
        return worst
    log_a = math.log1p(-math.exp(log_q)) - math.log1p(-math.exp((log_q + e2) * (1 - 1 / mu2)))
    log_b = e1 - log_q / (mu1 - 1)
    terms = math.log1p(-math.exp(log_q)) + (order - 1) * log_a, log_q + (order - 1) * log_b
    return min(worst, float(np.logaddexp(*terms)) / (order - 1))


def law(counts, sigma):
    """Log-law of one histogram by the trapezoid rule."""
    x = np.arange((counts.max() + counts.min()) / 2 - 9 * sigma, counts.max() + 12 * sigma, sigma / 4)
    z = (x - counts[:, None]) / sigma
    below = log_ndtr(z)
    terms = -0.5 * z * z + below.sum(axis=0) - below
    peak = terms.max(axis=1)
    logs = np.log(np.exp(terms - peak[:, None]).sum(axis=1)) + peak
    return logs - np.logaddexp.reduce(logs)


def renyi(p, q, orders):
    """Both directions for laws [.., C] at all orders."""
    d = (p - q)[..., None, :]
    o = orders[:, None]
    forward = (np.exp(q)[..., None, :] * (np.expm1(o * d) - o * np.expm1(d))).sum(axis=-1)
    backward = (np.exp(p)[..., None, :] * (np.expm1(-o * d) - o * np.expm1(-d))).sum(axis=-1)
    return np.log1p(np.maximum(forward, backward)) / (orders - 1)


def loop_exact(votes, sigma, orders):
    """One query and one move at a time."""
    total = np.zeros(len(orders))
    for counts in votes:
        own, best = law(counts, sigma), np.zeros(len(orders))
        for a in np.flatnonzero(counts):
            for b in range(len(counts)):
                if a != b:
                    moved = counts.copy()
                    moved[a] -= 1
                    moved[b] += 1
                    best = np.maximum(best, renyi(own, law(moved, sigma), orders))
        total += best
    return total


def plain_exact(votes, sigma, orders):
    """The batched matrix form for all moves of each query, without grouping, merging or screening."""
    total = np.zeros(len(orders))
    for counts in votes:
        x = np.arange((counts.max() + counts.min()) / 2 - 9 * sigma - 1, counts.max() + 12 * sigma, sigma / 4)
        z = (x - counts[:, None]) / sigma
        fewer, level, more = log_ndtr(z + 1 / sigma), log_ndtr(z), log_ndtr(z - 1 / sigma)
        rest = level.sum(axis=0) - level
        own = np.exp(-0.5 * z * z + rest)
        leave, join = np.exp(fewer - level), np.exp(more - level)
        after = np.einsum("jx,ax,bx->abj", own, leave, join, optimize=True)
        loser = np.exp(-0.5 * (z + 1 / sigma) ** 2 + rest) @ join.T
        winner = leave @ np.exp(-0.5 * (z - 1 / sigma) ** 2 + rest).T
        every = np.arange(len(counts))
        after[every, :, every] = loser
        after[:, every, every] = winner
        norm = own.sum()
        logs = np.log(after / norm)
        costs = renyi(np.log(own.sum(axis=1) / norm), logs, orders)
        costs[every, every] = 0
        costs[counts == 0] = 0
        total += costs.max(axis=(0, 1))
    return total


def published_bounds(votes):
    mechanism = GNMax(40.0)
    work = lambda: accounting.rdp(mechanism, votes, THREE_HUNDRED, method="published")  # noqa: E731
    record("published bounds, 9,000 x 10 x 300 orders", "pate_jax", work, len(votes))
    few = votes[:30]
    record(
        "published bounds, 9,000 x 10 x 300 orders",
        "loop over queries",
        lambda: loop_published(few, 40.0, THREE_HUNDRED),
        len(votes),
        measured=30,
    )


def exact_digits(votes):
    name = "exact, 9,000 x 10 x 60 orders"
    for mechanism in (
        GNMax(40.0),
        ConfidentGNMax(200, 150, 40),
        ConfidentDiscreteGaussian(200, 150, 40),
        LNMax(20.0),
    ):
        work = partial(exact.rdp, mechanism, votes, SIXTY)
        record(f"{name}, {type(mechanism).__name__}", "pate_jax", work, len(votes))
    record(
        f"{name}, GNMax",
        "plain NumPy, a query at a time",
        lambda: plain_exact(votes[:60], 40.0, SIXTY),
        len(votes),
        measured=60,
    )
    record(
        f"{name}, GNMax",
        "loop over queries and moves",
        lambda: loop_exact(votes[:12], 40.0, SIXTY),
        len(votes),
        measured=12,
    )


def exact_glyphs(_):
    votes = glyphs(12_000)
    name = "exact, 12,000 x 150 x 60 orders, 5,000 teachers"
    for mechanism in (
        ConfidentGNMax(3500, 1500, 100),
        ConfidentGNMax(1000, 500, 100),
        ConfidentDiscreteGaussian(1000, 500, 100),
    ):
        work = partial(exact.rdp, mechanism, votes, SIXTY)
        record(f"{name}, {mechanism}", "pate_jax", work, len(votes))
    own = law(votes[0], 100.0)

    def some_moves():
        for _ in range(200):
            renyi(own, law(votes[0], 100.0), SIXTY)

    # 22,350 moves a query if every class has votes; 200 of them are timed
    way = "loop over queries and moves"
    record(f"{name}, GNMax(sigma=100)", way, some_moves, len(votes), measured=200 / 22_350)


def composed(votes):
    mechanism = ConfidentGNMax(200, 150, 40)
    record("PLD, 640 x 10", "pate_jax", lambda: pld.epsilon(mechanism, votes[:640], 1e-5), 640)
    record("PLD, 9,000 x 10", "pate_jax", lambda: pld.epsilon(mechanism, votes, 1e-5), len(votes))


def smooth(_):
    votes = glyphs(12_000)
    mechanism = GNMax(100.0)
    work = lambda: accounting.sanitise(mechanism, votes, 1e-5, accounting.Plan(14.0, 0.025, 8.0))  # noqa: E731
    record("sanitised figure, 12,000 x 150, 5,000 teachers", "pate_jax", work, len(votes))


ALL = {
    "published": published_bounds,
    "digits": exact_digits,
    "pld": composed,
    "glyphs": exact_glyphs,
    "smooth": smooth,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(ALL), help=f"some of {', '.join(ALL)}")
    parser.add_argument(
        "--votes", type=Path, help="an .npz with votes of 250 teachers; synthetic ones otherwise"
    )
    options = parser.parse_args()
    votes = np.load(options.votes)["votes"][:9000] if options.votes else digits(9000)
    for name in options.names:
        ALL[name](votes)


if __name__ == "__main__":
    main()
