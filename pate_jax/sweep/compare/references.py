"""What private methods are measured against: public labels alone, and no privacy at all."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.data import Part
from pate_jax.data.targets import GRID
from pate_jax.errors import PateError
from pate_jax.runs import public_labels
from pate_jax.runs.report import numbers
from pate_jax.runs.report.measures_page import ALONE
from pate_jax.student import PublicInputs, StudentConfig, Supervised
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_STEPS = 4000  # of a net on images
Shares = Float[np.ndarray, "test ends"]


def learn_from_public_labels(ground: Ground, draw: Draw) -> Outcome:
    """What public labels teach, which costs nothing and depends on no draw."""
    del draw
    learned = public_labels.taught(ground.dataset)
    if learned is None:
        raise PateError("the public part is no table with labels of two classes")
    return Outcome(np.asarray(learned(ground.test.inputs)), 0.0, {"student": "ridge"})


PUBLIC_LABELS = Contender(
    ALONE,
    Needs(pool="labels of it", trust="nobody: no private record is read", gives="the model"),
    learn_from_public_labels,
)


def learn_from_private_labels(ground: Ground, draw: Draw) -> Outcome:
    """What a student of the same kind reaches that learns from the private labels themselves.

    It is a net on images, and on tables the better of ridge and nets, by what they say of held-out records.
    """
    dataset, key = ground.dataset, jax.random.key(draw.seed)
    given = PublicInputs(  # for once of private records: this student has no guarantee
        dataset.private.inputs, dataset.preprocessing, dataset.classes, dataset.class_names
    )
    answers = Answers(jnp.asarray(ground.labels), jnp.ones(len(ground.labels), bool))
    config: StudentConfig = Supervised(steps=_STEPS)
    if dataset.kind != "image":
        config = student.choose(key, given, answers).config
    learned = student.fit(key, given, answers, config)
    return Outcome(np.asarray(learned(ground.test.inputs)), None, {"student": config.method})


NO_PRIVACY = Contender(
    "no privacy",
    Needs(pool="none", trust="everybody who sees the model", gives="nothing: it is for comparison"),
    learn_from_private_labels,
    private=False,
)


def learn_from_public_numbers(ground: Ground, draw: Draw) -> Outcome:
    """What public numbers teach, which costs nothing and depends on no draw."""
    del draw
    if ground.dataset.public.labels is None:
        raise PateError("the public part has no numbers")
    return Outcome(_line(ground, ground.dataset.public), 0.0, {"student": "ridge"})


PUBLIC_NUMBERS = Contender(
    numbers.ALONE,
    Needs(pool="numbers of it", trust="nobody: no private record is read", gives="the model"),
    learn_from_public_numbers,
)


def learn_from_private_numbers(ground: Ground, draw: Draw) -> Outcome:
    """What the same regression reaches that learns from the private numbers themselves."""
    del draw
    return Outcome(_line(ground, ground.dataset.private), None, {"student": "ridge"})


NUMBERS_UNPROTECTED = NO_PRIVACY._replace(learn=learn_from_private_numbers)


def _line(ground: Ground, part: Part) -> Shares:
    """What ridge regression on a part says of the test rows: shares of the range, from both ends."""
    known = np.clip(np.asarray(part.labels, np.float64), 0, GRID)
    shares = numbers.alone(replace(ground.dataset, public=part), ground.test.inputs, known) / GRID
    return np.stack([1 - shares, shares], 1)
