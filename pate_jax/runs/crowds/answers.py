"""The answers that follow from the noisy tables of a crowd, at no further cost."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from pate_jax.aggregate import Answers, soft_answers
from pate_jax.crowd import steps, vectors
from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.shares import Shares, classifier_of, of_counts, of_steps, of_sums
from pate_jax.crowd.steps import Weights
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.runs.crowds import steps as lines
from pate_jax.runs.crowds.inputs import Crowd

Rows = Int[np.ndarray, " _"]


def given(crowd: Crowd) -> tuple[Answers, Part]:
    """The answers of all steps up to this one, and the public inputs that they are of."""
    found, rows = shares(crowd)
    return soft(found), crowd.dataset.public.take(rows)


def soft(found: Shares) -> Answers:
    """The answers that follow from shares, as students take them."""
    return soft_answers(found.probabilities, found.deviation, found.linear)


def shares(crowd: Crowd) -> tuple[Shares, Rows]:
    """Probabilities that follow from all steps up to this one, and the rows of the public part."""
    first = crowd.at(1)
    kept, values = lines.load_noisy(crowd.run)
    plan, every = first.plan._replace(release=kept), np.arange(len(crowd.dataset.public.inputs))
    if crowd.step > 1:
        seen = vectors(crowd.plan.scaling, crowd.pool)
        return of_steps(after(crowd), seen, _steps(crowd), crowd.step, classifier(first).evidence), every
    if isinstance(kept, ClassSums):
        return of_sums(values, plan, first.pool, first.weight(values)), every
    if plan.queries is None:
        raise PateError(f"{crowd.run.public_side} names no queries: restore it from a backup")
    return of_counts(values, kept), plan.queries.rows


def classifier(crowd: Crowd) -> Linear:
    """The classifier that the noisy sums of the first step give."""
    kept, values = lines.load_noisy(crowd.run)
    first = crowd.at(1)
    return classifier_of(values, first.plan._replace(release=kept), first.pool, first.weight(values))


def after(crowd: Crowd) -> Weights:
    """The weights that follow from all tables up to this step's, where another step takes its gradients."""
    made = _steps(crowd)
    if crowd.step > 1:
        return steps.moved(_weights(crowd), lines.load_noisy(crowd.run, crowd.step)[1], made.rate)
    wide = made.space.coordinates(crowd.seen.public.inputs)
    first = vectors(crowd.plan.scaling, crowd.pool)
    return steps.started(classifier(crowd), first, vectors(made.scaling, wide))


def _weights(crowd: Crowd) -> Weights:
    if crowd.plan.weights is None:
        raise PateError(f"{crowd.run.public_side_of(crowd.step)} holds no weights: restore it from a backup")
    return crowd.plan.weights


def _steps(crowd: Crowd) -> steps.Steps:
    found = crowd.at(1).plan.steps
    if found is None:
        raise PateError(f"{crowd.run.public_side} plans no steps: restore it from a backup")
    return found
