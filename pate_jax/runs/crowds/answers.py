"""The answers that follow from the noisy tables of a crowd's rounds, at no further cost."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from pate_jax.aggregate import Answers, soft_answers
from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.shares import Shares, classifier_of, of_counts, of_sums
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.runs.crowds import rounds
from pate_jax.runs.crowds.inputs import Crowd

Rows = Int[np.ndarray, " _"]


def given(crowd: Crowd) -> tuple[Answers, Part]:
    """The answers of all rounds up to this one together, and the public inputs that they are of."""
    found, rows = shares(crowd)
    return soft(found), crowd.dataset.public.take(rows)


def soft(found: Shares) -> Answers:
    """The answers that follow from shares, as students take them."""
    return soft_answers(found.probabilities, found.deviation, found.linear)


def shares(crowd: Crowd) -> tuple[Shares, Rows]:
    """Probabilities that follow from all rounds up to this one, and the rows of the public part."""
    each = [_of_round(crowd.at(round)) for round in range(1, crowd.round + 1)]
    return each[0] if len(each) == 1 else together(each)


def classifier(crowd: Crowd) -> Linear:
    """The classifier that the noisy sums of one round give."""
    kept, values = rounds.load_noisy(crowd.run, crowd.round)
    return classifier_of(values, crowd.plan._replace(release=kept), crowd.pool, crowd.weight(values))


def _of_round(crowd: Crowd) -> tuple[Shares, Rows]:
    """Probabilities that follow from the noisy table of one round, and the rows of the public part."""
    kept, values = rounds.load_noisy(crowd.run, crowd.round)
    plan = crowd.plan._replace(release=kept)
    if isinstance(kept, ClassSums):
        found = of_sums(values, plan, crowd.pool, crowd.weight(values))
        return found, np.arange(len(crowd.dataset.public.inputs))
    if plan.queries is None:
        raise PateError(f"the public side of round {crowd.round} names no queries: restore it from a backup")
    return of_counts(values, kept), plan.queries.rows


def together(each: list[tuple[Shares, Rows]]) -> tuple[Shares, Rows]:
    """The mean of what the rounds say of each row, among those that say something of it.

    The noise of one round is independent of that of another, so its variances add up.

    >>> told = np.array([[0.9, 0.1]], np.float32)
    >>> one = Shares(told, told, np.array([0.3], np.float32), 9.0)
    >>> told = np.array([[0.5, 0.5], [0.2, 0.8]], np.float32)
    >>> other = Shares(told, told, np.array([0.4, 0.4], np.float32), 7.0)
    >>> found, rows = together([(one, np.array([7])), (other, np.array([7, 3]))])
    >>> rows.tolist(), np.allclose(found.probabilities, [[0.2, 0.8], [0.7, 0.3]])
    ([3, 7], True)
    >>> np.allclose(found.deviation, [0.4, 0.25]), found.evidence
    (True, 8.0)
    """
    rows = np.unique(np.concatenate([asked for _, asked in each]))
    places = [np.searchsorted(rows, asked) for _, asked in each]
    times = np.bincount(np.concatenate(places))
    mean = _mean([found.probabilities for found, _ in each], places, times).astype(np.float32)
    linear = _mean([found.linear for found, _ in each], places, times).astype(np.float32)
    variance = _mean([found.deviation[:, None].astype(np.float64) ** 2 for found, _ in each], places, times)
    deviation = np.sqrt(variance[:, 0] / times).astype(np.float32)
    evidence = float(np.mean([found.evidence for found, _ in each]))  # a mean of such ratios is one too
    return Shares(mean, linear, deviation, evidence), rows


def _mean(tables: list[np.ndarray], places: list[Rows], times: Rows) -> np.ndarray:
    """The mean of several tables, each of which has some of the rows."""
    sums = np.zeros((len(times), tables[0].shape[1]))
    for table, there in zip(tables, places, strict=True):
        sums[there] += table
    mean: np.ndarray = sums / times[:, None]
    return mean
