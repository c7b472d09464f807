"""What stands for the student in a rehearsal: two classifiers in closed form, each of many lists at once.

All lists of answers are to the same questions, so that one system of equations teaches all students. Ridge
regression learns with the penalty that leaves out one answer best. The other carries answers along a graph of
near inputs (`models.graph`), as students do that learn from inputs without answers.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pate_jax.models.graph import Entries, Told
from pate_jax.system.eigen import eigensystem

_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # of ridge regression
_MOST_OWN = 0.99  # of an answer in what is said of it, at most

Said = Float[np.ndarray, "row students classes"]


def ridge(inputs: Float[np.ndarray, "query entries"], told: Told, others: Entries) -> Said:
    """What ridge regressions say of other inputs, each student with the penalty of the least error left out.

    >>> random = np.random.default_rng(0)
    >>> inputs, truth = random.normal(size=(200, 3)), np.array([1.0, -1.0, 0.0])
    >>> told = np.eye(2)[(inputs @ truth > 0).astype(int)][:, None, :]
    >>> bool((ridge(inputs, told, inputs).argmax(2) == told.argmax(2)).mean() > 0.95)
    True
    """
    queries, students, classes = told.shape
    wide = told.reshape(queries, -1)
    middle = wide.mean(0)
    values, axes = eigensystem(inputs.T.astype(np.float64) @ inputs)
    along, wanted = (inputs @ axes).astype(np.float32), (wide - middle).astype(np.float32)
    inside, there = along.T @ wanted, (others @ axes).astype(np.float32)
    errors, said = np.full(students, np.inf), np.zeros((len(others), students, classes), np.float32)
    for penalty in _PENALTIES:
        shrunk = (1 / (np.maximum(values, 0) + penalty)).astype(np.float32)
        weights = shrunk[:, None] * inside
        own = np.minimum((along**2) @ shrunk, _MOST_OWN)
        left_out = ((wanted - along @ weights) / (1 - own)[:, None]) ** 2
        error = left_out.reshape(told.shape).sum((0, 2))
        better = error < errors
        errors[better] = error[better]
        said[:, better] = (there @ weights + middle).reshape(said.shape)[:, better]
    return said
