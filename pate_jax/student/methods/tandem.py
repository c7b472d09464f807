"""The tandem student: `ridge`, and a small net that learns what it says of every public input.

The net sees each image moved, and flipped if so wished, and what it makes of nine thousand guesses differs
from what made them: the product of both probabilities is right more often than either. Of an answered input
the net is told what ridge would say without that answer, so the answers can tell how sure both may be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pate_jax.aggregate import Answers
from pate_jax.student.calibration import temperature
from pate_jax.student.methods import ridge
from pate_jax.student.public_inputs import PublicInputs
from pate_jax.student.serving import Student
from pate_jax.student.settings import StudentConfig

NET = "tandem"
_ROUNDS = 2000  # of pulling towards equally frequent classes, at most; each gets closer
_CLOSE = 1e-3  # how much more or less frequent than all others a class may stay
_SMALLEST = 1e-6  # share of the pool that a class has at least, when it is compared


def fit(
    key: jax.Array,
    seed: int,
    public: PublicInputs,
    rows: np.ndarray,
    labels: np.ndarray,
    config: StudentConfig,
    teach: Callable[..., Student],
) -> tuple[dict[str, Any], float]:
    """Parameters of the net `tandem`, and its temperature; `teach` fits the small net."""
    first, unseen = ridge.learn(seed, public, rows, labels)
    warmth = temperature(unseen, labels)
    unseen = unseen / warmth
    head = {name: (leaf / warmth).astype(np.float32) for name, leaf in first["dense0"].items()}
    images = np.asarray(public.preprocessing.apply(public.inputs))
    pool = ridge.logits({**first, "dense0": head}, images)
    pulled = pull(pool, config.alignment)
    guesses = (pool + pulled).argmax(1)
    guesses[rows] = (unseen + pulled).argmax(1)
    told = Answers(jnp.asarray(guesses, jnp.int32), jnp.ones(len(guesses), bool))
    second = teach(key, public, told, replace(config, method="supervised", net="cnn"))
    found = np.log(np.maximum(second(public.inputs), np.finfo(np.float32).tiny))
    pulled = pull(pool + found, config.alignment)
    head["bias"] = (head["bias"] + pulled).astype(np.float32)
    parameters = {"patches": {**first, "dense0": head}, "cnn": second.parameters}
    return parameters, temperature(unseen + found[rows] + pulled, labels)


def pull(logits: Float[np.ndarray, "inputs classes"], strength: float) -> Float[np.ndarray, " classes"]:
    """What to add to logits so that classes are as frequent in the mean probability, or part of the way.

    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> moved = np.exp(logits + pull(logits, 1.0))
    >>> (moved / moved.sum(1, keepdims=True)).mean(0).round(3).tolist()
    [0.5, 0.5]
    >>> pull(logits, 0.0).tolist()
    [0.0, 0.0]
    """
    found = np.zeros(logits.shape[1])
    for _ in range(_ROUNDS if strength else 0):
        moved = logits + found
        raised = np.exp(moved - moved.max(1, keepdims=True))
        shares = (raised / raised.sum(1, keepdims=True)).mean(0) * len(found)
        if abs(shares - 1).max() < _CLOSE:
            break
        found -= np.log(np.maximum(shares, _SMALLEST))
    return strength * found
