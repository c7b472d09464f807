"""Interactive-GNMax (Papernot et al. 2018): teachers answer only where they contradict a student.

No command uses it, and all code outside this file either refuses it or uses its worst case. With T teachers
and the student's probabilities p, the test reads `max_j (n_j - T p_j)`, so each query has its own threshold
for the largest count. The student depends on earlier answers. So the cost along one history depends on them
too, and is no guarantee: publish the data-independent figure of the statement.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax import accounting, voting
from pate_jax.accounting import AnswersStatement, curves, figures
from pate_jax.accounting.curves import with_slack
from pate_jax.accounting.exact import groups, renyi
from pate_jax.accounting.inputs import check_orders, check_votes
from pate_jax.aggregate.answers import REFUSED, Answers, Sampler, prepare
from pate_jax.aggregate.answers import answer as answer_of_votes
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, InteractiveGNMax, Mechanism, from_dict, name_of


def answer(
    mechanism: InteractiveGNMax, votes: ArrayLike, student_probabilities: ArrayLike, *, key: jax.Array
) -> Answers:
    """The noisy plurality of each query for which the teachers contradict the student's probabilities.

    Any other query gets the student's own label if its probability exceeds `student_confidence`, and -1 if
    not. The student's label costs nothing and does not count as answered. Votes and probabilities are
    [query, class].

    >>> from pate_jax.aggregate import seeded_key
    >>> mechanism = InteractiveGNMax(threshold=100, sigma_threshold=4, sigma=2, student_confidence=0.9)
    >>> votes, student = [[200, 40, 10], [200, 40, 10]], [[0.02, 0.95, 0.03], [0.95, 0.03, 0.02]]
    >>> answers = answer(mechanism, votes, student, key=seeded_key(0))
    >>> answers.labels.tolist(), answers.answered.tolist()
    ([0, 0], [True, False])
    """
    heard = answer_of_votes(sampler(mechanism, votes, student_probabilities), votes, key=key)
    predicted = jnp.asarray(student_probabilities, jnp.float32)
    sure = predicted.max(1) > mechanism.student_confidence
    free = jnp.where(sure, predicted.argmax(1).astype(jnp.int32), REFUSED)
    return Answers(jnp.where(heard.answered, heard.labels, free), heard.answered)


def sampler(mechanism: InteractiveGNMax, votes: ArrayLike, student_probabilities: ArrayLike) -> Sampler:
    """The mechanism, prepared for `pate_jax.answer` on these votes only."""
    _interactive(mechanism)
    counts = voting.check_votes(votes)
    predicted = jnp.asarray(_checked(student_probabilities, counts.shape), jnp.float32)
    counts = jnp.asarray(counts, jnp.int32)
    reading = (counts - counts.sum(1, keepdims=True) * predicted).max(1)
    ready = prepare(ConfidentGNMax(mechanism.threshold, mechanism.sigma_threshold, mechanism.sigma))
    return dataclasses.replace(ready, threshold=ready.threshold + (counts.max(1) - reading))


def rdp(
    mechanism: InteractiveGNMax, votes: ArrayLike, student_probabilities: ArrayLike, orders: ArrayLike
) -> NDArray[np.float64]:
    """The exact Renyi cost [query, order] along this history: sensitive, and not a guarantee.

    >>> mechanism = InteractiveGNMax(threshold=100, sigma_threshold=70, sigma=20, student_confidence=0.9)
    >>> rdp(mechanism, [[240, 10]], [[0.5, 0.5]], [2.0]).shape
    (1, 1)
    """
    counts, margins = _margins(mechanism, votes, student_probabilities)
    grid = check_orders(orders)
    joint = renyi.rdp_of(mechanism, groups.merge(counts, margins), grid)
    totals, classes = counts.sum(axis=1), counts.shape[1]
    cap = curves.data_independent(mechanism, totals, classes, grid, rule="counts")
    cost: NDArray[np.float64] = np.minimum(joint, cap)
    return cost


def with_history(
    statement: AnswersStatement, votes: ArrayLike, student_probabilities: ArrayLike
) -> AnswersStatement:
    """The statement of an interactive mechanism with the exact cost along this history; sensitive.

    >>> mechanism = InteractiveGNMax(threshold=100, sigma_threshold=70, sigma=20, student_confidence=0.9)
    >>> stated = accounting.statement(mechanism, [[240, 10]], None, 1e-5, private=True)
    >>> with_history(stated, [[240, 10]], [[0.5, 0.5]]).figures["exact"].note == figures.HISTORY
    True
    """
    orders = accounting.default_orders()
    curve = rdp(_interactive(from_dict(statement.mechanism)), votes, student_probabilities, orders).sum(
        axis=0
    )
    epsilon = with_slack(lambda delta: curves.epsilon(orders, curve, delta), statement.delta, statement.slack)
    exact = figures.figure(epsilon, "sensitive", "renyi, joint over all queries asked", figures.HISTORY)
    return dataclasses.replace(statement, figures={**statement.figures, "exact": exact})


def _margins(
    mechanism: Mechanism, votes: ArrayLike, student_probabilities: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The votes, and their margins over the student's shares: the test reads the largest margin."""
    _interactive(mechanism)
    counts = check_votes(votes)
    shares = np.asarray(_checked(student_probabilities, counts.shape), np.float64)
    return counts, counts - counts.sum(axis=1, keepdims=True) * shares


def _interactive(mechanism: Mechanism) -> InteractiveGNMax:
    if not isinstance(mechanism, InteractiveGNMax):
        raise PateError(
            f"student_probabilities is given, but {name_of(mechanism)} does not read it: use pate_jax.answer "
            "and pate_jax.statement"
        )
    return mechanism


def _checked(student_probabilities: ArrayLike, shape: tuple[int, ...]) -> jax.Array | np.ndarray:
    """Probabilities[query, class] for votes of this shape, checked; tracers are checked by shape only."""
    probabilities = student_probabilities
    values = probabilities if isinstance(probabilities, jax.Array) else np.asarray(probabilities)
    if values.shape != shape:
        raise PateError(f"student_probabilities of shape {values.shape} must match the votes' shape {shape}")
    if not jnp.issubdtype(values.dtype, jnp.floating):
        raise PateError(f"student_probabilities has type {values.dtype}; floating-point numbers are wanted")
    if isinstance(values, jax.core.Tracer) or values.size == 0:
        return values
    host = np.asarray(values, np.float32)
    bad = ~np.isfinite(host).all(1) | (host < 0).any(1) | (np.abs(host.sum(1) - 1) > 1e-2)
    if bad.any():
        row = int(bad.argmax())
        raise PateError(
            f"student_probabilities row {row} is not a distribution: {host[row].tolist()}; "
            "replace NaN, and apply a softmax to logits"
        )
    return values
