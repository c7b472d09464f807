"""How good a student of two classes is, as a clinic asks: ranks, thresholds, calibration and net benefit.

Every figure is a function of labels `y` (1: the outcome), probabilities `p` of the outcome, and weights of
rows; a 95% interval comes from drawing users (or rows, where users are not counted) again with replacement.
The figures follow scikit-learn's definitions, ties included; net benefit is that of Vickers and Elkin (2006),
`tp/n - fp/n * t/(1-t)` at the threshold t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from pate_jax.crowd.metric import Weights, auprc, auroc, divided

THRESHOLDS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7)
BINS = 10  # of the picture of calibration, of about equally many rows each
_DRAWS = 200  # for an interval, and
_LEAST_DRAWS = 50  # of very many rows, whose
_DRAWN = 8_000_000  # weights are held at a time
_CLIP = 1e-6  # probabilities are at least this far from 0 and 1 where their logits are taken
_STEPS = 25  # of Newton's method
_WIDE = (2.5, 97.5)
Figure = Callable[[np.ndarray, np.ndarray, Weights], np.ndarray]  # of labels, probabilities and weights


class Judged(NamedTuple):
    """Rows whose outcome is known: outcome, probability by the student, and how often each is drawn."""

    y: Float[np.ndarray, " row"]
    p: Float[np.ndarray, " row"]
    drawn: Weights  # as often as its user, or itself
    users: int  # or rows


def judged(labels: np.ndarray, p: np.ndarray, positive: int, users: np.ndarray | None = None) -> Judged:
    """The rows by one class, `positive`; every user is drawn as a whole.

    >>> rows = judged(np.array([0, 1, 1]), np.array([0.2, 0.7, 0.9]), 1, np.array(["a", "b", "b"]))
    >>> rows.y.tolist(), rows.users, bool((rows.drawn[:, 1] == rows.drawn[:, 2]).all())
    ([0.0, 1.0, 1.0], 2, True)
    """
    units = np.arange(len(labels)) if users is None else np.unique(users, return_inverse=True)[1]
    count = int(units.max()) + 1
    draws = max(_LEAST_DRAWS, min(_DRAWS, _DRAWN // len(labels)))
    random = np.random.default_rng(0)  # the same each time
    often = random.multinomial(count, np.full(count, 1 / count), draws).astype(np.float32)
    return Judged((labels == positive).astype(float), np.asarray(p, np.float64), often[:, units], count)


def measures(rows: Judged) -> dict[str, Any]:
    """All figures of two classes, each with its interval as [value, low, high]."""
    y, p = rows.y, rows.p
    return {
        "rows": len(y),
        "outcomes": int(y.sum()),
        "users": rows.users,
        "auroc": interval(auroc, rows),
        "auprc": interval(auprc, rows),
        "brier": interval(lambda y, p, w: (w * (p - y) ** 2).sum(1) / w.sum(1), rows),
        "intercept": interval(calibration_intercept, rows),
        "slope": interval(calibration_slope, rows),
        "calibration_error": calibration_error(y, p),
        "calibration_luck": calibration_luck(p),
        "bins": bins(y, p),
        "thresholds": [_at(threshold, rows) for threshold in THRESHOLDS],
        "by_outcome": [_spread(p[y == outcome]) for outcome in (0, 1)],
    }


def interval(figure: Figure, rows: Judged) -> list[float | None]:
    """A figure of (y, p, weights [draw, row]) and its 95% interval; None where it is not defined."""
    whole = figure(rows.y, rows.p, np.ones((1, len(rows.y))))[0]
    every = figure(rows.y, rows.p, rows.drawn)
    known = every[np.isfinite(every)]
    if not np.isfinite(whole) or not len(known):
        return [None, None, None]
    low, high = np.percentile(known, _WIDE)
    return [float(whole), float(low), float(high)]


def calibration_intercept(y: np.ndarray, p: np.ndarray, weights: Weights) -> np.ndarray:
    """Calibration in the large: what to add to all logits for as many outcomes as there are."""
    logit = _logit(p)
    found = np.zeros(len(weights))
    for _ in range(_STEPS):
        said = special.expit(logit + found[:, None])
        slope = (weights * said * (1 - said)).sum(1)
        found = np.clip(found + divided((weights * (y - said)).sum(1), slope, empty=0.0), -20, 20)
    return found


def calibration_slope(y: np.ndarray, p: np.ndarray, weights: Weights) -> np.ndarray:
    """The slope of outcomes on logits in logistic regression: 1 is best; below 1 the student is too sure."""
    logit = _logit(p)
    centre = logit.mean()
    features = np.stack([np.ones_like(logit), logit - centre])
    found = np.zeros((len(weights), 2))
    for _ in range(_STEPS):
        said = special.expit(found @ features)
        gradient = (weights * (y - said)) @ features.T - 1e-9 * found
        curve = np.einsum("dr,ir,jr->dij", weights * said * (1 - said), features, features)
        step = np.linalg.solve(curve + 1e-9 * np.eye(2), gradient[..., None])[..., 0]
        found = found + np.clip(step, -2, 2)
    slope: np.ndarray = found[:, 1]
    return np.where(np.abs(slope) < 20, slope, np.nan)  # beyond, the classes are apart and there is none


def calibration_error(y: np.ndarray, p: np.ndarray) -> float:
    """The expected calibration error: how far outcomes lie from what is said, on average over the bins.

    >>> calibration_error(np.array([0.0, 1.0]), np.array([0.25, 1.0]))
    0.125
    """
    rows = bins(y, p)
    return float(sum(one["rows"] * abs(one["outcomes"] - one["said"]) for one in rows) / len(y))


def calibration_luck(p: np.ndarray) -> float:
    """The calibration error that so few rows show on average where every probability is true.

    Outcomes of a bin of n rows lie around their mean probability with the variance `sum p (1 - p) / n^2`, and
    a normal error of the variance v is `sqrt(2 v / pi)` away on average.

    >>> round(calibration_luck(np.full(1000, 0.5)), 3), calibration_luck(np.ones(1000))
    (0.04, 0.0)
    """
    parts = np.array_split(np.sort(p), min(BINS, len(p)))
    return float(sum(np.sqrt(2 / np.pi * (part * (1 - part)).sum()) for part in parts) / len(p))


def bins(y: np.ndarray, p: np.ndarray) -> list[dict[str, float]]:
    """Rows by their probability, in bins of about equally many: what is said, and what happens."""
    order = np.argsort(p, kind="stable")
    parts = np.array_split(order, min(BINS, len(order)))
    return [
        {"rows": len(part), "said": float(p[part].mean()), "outcomes": float(y[part].mean())}
        for part in parts
    ]


def share_of(of: np.ndarray, among: np.ndarray) -> Figure:
    """The figure that is the mean of `of` over the rows `among`.

    >>> share_of(np.array([1.0, 0.0]), np.ones(2))(np.zeros(2), np.zeros(2), np.ones((1, 2))).item()
    0.5
    """
    return lambda y, p, weights: divided(weights @ (of * among), weights @ among)


def _at(threshold: float, rows: Judged) -> dict[str, Any]:
    """What follows if every row at or above a threshold is called positive."""
    called = (rows.p >= threshold).astype(float)

    def share(of: np.ndarray, among: np.ndarray) -> list[float | None]:
        return interval(share_of(of, among), rows)

    odds = threshold / (1 - threshold)
    gain = called * (rows.y - odds * (1 - rows.y))
    everybody = rows.y - odds * (1 - rows.y)
    return {
        "threshold": threshold,
        "called": int(called.sum()),
        "sensitivity": share(called, rows.y),
        "specificity": share(1 - called, 1 - rows.y),
        "positive_value": share(rows.y, called),
        "negative_value": share(1 - rows.y, 1 - called),
        "net_benefit": share(gain, np.ones_like(gain)),
        "of_calling_all": float(everybody.mean()),
    }


def _spread(p: np.ndarray) -> list[float] | None:
    """The tenth, quarter, half, three quarters and nine tenths of probabilities."""
    return np.quantile(p, (0.1, 0.25, 0.5, 0.75, 0.9)).tolist() if len(p) else None


def averages(labels: np.ndarray, best: np.ndarray, classes: int) -> dict[str, float]:
    """Means over the classes that occur, of any number of classes: recall, precision and F1.

    >>> averages(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 2]), 4)["recall"]
    0.8333333333333334
    """
    right = np.bincount(labels[labels == best], minlength=classes).astype(float)
    there, called = (np.bincount(one, minlength=classes).astype(float) for one in (labels, best))
    occur = there > 0
    recall, precision = divided(right, there, empty=0.0), divided(right, called, empty=0.0)
    both = divided(2 * right, there + called, empty=0.0)
    named = {"recall": recall, "precision": precision, "f1": both}
    return {name: float(values[occur].mean()) for name, values in named.items()}


def _logit(p: np.ndarray) -> np.ndarray:
    found: np.ndarray = special.logit(np.clip(p, _CLIP, 1 - _CLIP))
    return found
