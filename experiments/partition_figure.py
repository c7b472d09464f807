"""Where the privacy goes, query by query: the partition figure of the 2018 paper's repository.

Bands from below, at the best order for each number of queries: what delta costs, the test, the answers, and
the release of the sanitised figure, all as the 2018 script counts them. Its published cost of the release is
below the worst case (docs/proofs/accounting.md), so the bands are no guarantee; the two lines are.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from experiments import sensitivity_2018
from pate_jax import accounting
from pate_jax.accounting import plots
from pate_jax.mechanisms import Mechanism
from pate_jax.system import progress

Curve = NDArray[np.float64]
ORDERS = np.concatenate([np.arange(3.0, 20.0), np.arange(20.0, 50.0, 3), np.arange(50.0, 101.0, 10)])
POINTS = 90
_LABELS = ("price of delta", "test", "answers", "sanitising")
_COLOURS = ("#9aa0a6", "#e3b23c", "#1b6ca8", "#c8553d")


class Partition(NamedTuple):
    """Per number of queries asked: the four parts, the order, and the two lines."""

    asked: NDArray[np.int64]
    answered: Curve  # expected
    delta: Curve
    test: Curve
    answers: Curve
    sanitising: Curve
    order: Curve
    exact: Curve
    data_independent: Curve


def partition(mechanism: Mechanism, votes: NDArray, delta: float) -> Partition:
    """The parts of the cost after the first 1, 2, ... of these queries, at `POINTS` places."""
    asked = np.unique(np.linspace(1, len(votes), min(POINTS, len(votes))).round().astype(np.int64))
    parts = accounting.published_parts(mechanism, votes, ORDERS)
    weight = np.exp(parts.log_answered)
    test, answers = _upto(parts.test, asked), _upto(weight[:, None] * parts.argmax, asked)
    release = _release(mechanism, votes, weight, asked)
    price = np.broadcast_to(math.log(1 / delta) / (ORDERS - 1), test.shape)
    best = (test + answers + release + price).argmin(axis=1)
    chosen = [part[np.arange(len(asked)), best] for part in (price, test, answers, release)]
    return Partition(
        asked, np.cumsum(weight)[asked - 1], *chosen, ORDERS[best], *_lines(mechanism, votes, asked, delta)
    )


def draw(parts: Partition, delta: float) -> bytes:
    """The figure as SVG. Sensitive, like everything it is made of."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    bands = (parts.delta, parts.test, parts.answers, parts.sanitising)
    axes.stackplot(parts.asked, *bands, labels=_LABELS, colors=_COLOURS, alpha=0.75)
    axes.plot(parts.asked, parts.exact, color="black", label="exact: bounds what these votes reveal")
    axes.plot(parts.asked, parts.data_independent, color="black", ls="--", label="data-independent")
    axes.set_xlabel("queries asked")
    axes.set_ylabel(f"epsilon at delta = {delta:g}")
    axes.set_ylim(0, 1.6 * float(sum(bands).max()))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, ncols=2, loc="upper left")
    return plots.rendered(figure)


def _upto(costs: Curve, asked: NDArray[np.int64]) -> Curve:
    return np.cumsum(costs, axis=0)[asked - 1]


def _release(mechanism: Mechanism, votes: NDArray, weight: Curve, asked: NDArray[np.int64]) -> Curve:
    """Cost [asked, order] of releasing the sum with noise, by the 2018 script's choice of beta and noise."""
    teachers = int(votes.sum(axis=1).max())
    alike, which = np.unique(-np.sort(-votes, axis=1), axis=0, return_inverse=True)
    costs = np.empty((len(asked), len(ORDERS)))
    distance = np.arange(teachers)
    starts = np.concatenate([[0], asked[:-1]])
    for place, order in enumerate(progress.track(ORDERS, "sanitising", len(ORDERS))):
        local = sensitivity_2018.local_sensitivity(alike, mechanism.noise.scale, order, teachers)
        total = np.cumsum(np.add.reduceat(weight[:, None] * local[which.ravel()], starts, axis=0), axis=0)
        beta = 0.49 / order
        spread = (total * np.exp(-beta * distance)).max(axis=1)
        noise = (order * math.exp(2 * beta) / np.maximum(spread, 1e-300)) ** (1 / 3)
        costs[:, place] = [sensitivity_2018.release_cost(order, beta, float(scale)) for scale in noise]
    return costs


def _lines(mechanism: Mechanism, votes: NDArray, asked: NDArray, delta: float) -> tuple[Curve, Curve]:
    orders = accounting.default_orders()
    exact = _upto(accounting.rdp(mechanism, votes, orders, method="exact"), asked)
    worst = _upto(accounting.rdp(mechanism, votes, orders, method="data_independent"), asked)
    return (
        np.asarray(accounting.epsilon(orders, exact, delta).epsilon),
        np.asarray(accounting.epsilon(orders, worst, delta).epsilon),
    )
