"""No private record: a student of the labels of the public part alone, where it has any."""

from __future__ import annotations

import numpy as np

from pate_jax.errors import PateError
from pate_jax.runs import public_labels
from pate_jax.runs.report.bought import ALONE
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground


def learn(ground: Ground, draw: Draw) -> Outcome:
    """What public labels teach, which costs nothing and depends on no draw."""
    del draw
    learned = public_labels.taught(ground.dataset)
    if learned is None:
        raise PateError("the public part is no table with labels of two classes")
    labels = np.asarray(learned(ground.test.inputs)).argmax(1)
    return Outcome(labels, 0.0, {"student": "ridge"})


PUBLIC_LABELS = Contender(
    ALONE,
    Needs(pool="labels of it", trust="nobody: no private record is read", gives="the model"),
    learn,
)
