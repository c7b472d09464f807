"""No privacy: what a student of the same kind reaches that learns from the private labels themselves."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.student import PublicInputs, StudentConfig, Supervised
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_STEPS = 4000  # of a net on images


def learn(ground: Ground, draw: Draw) -> Outcome:
    """A net on images, and on tables the better of ridge and nets, by what they say of held-out records."""
    dataset, key = ground.dataset, jax.random.key(draw.seed)
    given = PublicInputs(  # for once of private records: this student has no guarantee
        dataset.private.inputs, dataset.preprocessing, dataset.classes, dataset.class_names
    )
    answers = Answers(jnp.asarray(ground.labels), jnp.ones(len(ground.labels), bool))
    config: StudentConfig = Supervised(steps=_STEPS)
    if dataset.kind != "image":
        config = student.choose(key, given, answers).config
    learned = student.fit(key, given, answers, config)
    labels = np.asarray(learned(ground.test.inputs)).argmax(1)
    return Outcome(labels, None, {"student": config.method})


CEILING = Contender(
    "no privacy",
    Needs(pool="none", trust="everybody who sees the model", gives="nothing: it is for comparison"),
    learn,
    private=False,
)
