"""`python -m experiments.tutorial_svhn`: the OpenMined tutorial, with the right epsilon beside its own.

The tutorial passes the noisy labels (0 to 9) where its accountant expects row numbers. So only the first ten
images are ever looked at, nine hundred times each, and what happened to the other 8,990 is not counted.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.launch import main
from experiments.presets import TUTORIAL_SVHN
from pate_jax import stages, voting
from pate_jax.accounting import laplace
from pate_jax.rundir import RunDirectory

MOMENTS = np.arange(1.0, 9.0)  # the tutorial's accountant looks at eight


def tutorial_epsilon(votes: NDArray, rows: NDArray, scale: float, delta: float) -> float:
    """The 2017 moments accountant over these rows, with the guard of the tutorial's library, q below 1/2.

    Of all rows, each once, it is the 2017 figure; of the labels taken for rows it is the tutorial's.
    """
    epsilon = 2 / scale
    q = np.minimum(np.exp(laplace.log_q(votes[rows], scale)), 1 - 1 / votes.shape[1])[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (1 - q) / (1 - math.exp(epsilon) * q)
        tail = np.log((1 - q) * ratio**MOMENTS + q * np.exp(epsilon * MOMENTS))
    tail = np.where((q < 0.5) & np.isfinite(tail), tail, epsilon * MOMENTS)
    spent = np.minimum(np.minimum(epsilon**2 * MOMENTS * (MOMENTS + 1) / 2, tail), epsilon * MOMENTS)
    return float(((spent.sum(axis=0) - math.log(delta)) / MOMENTS).min())


def compare(run: RunDirectory) -> dict[str, Any]:
    """The tutorial's epsilon, the same accountant fed the right rows, and what holds."""
    votes, labels = voting.load_votes(run.votes).votes, np.asarray(stages.load_answers(run).labels)
    settings = run.recorded()
    scale, delta = settings["mechanism"]["scale"], settings["account"]["delta"]
    wrong = tutorial_epsilon(votes, labels, scale, delta)
    right = tutorial_epsilon(votes, np.arange(len(votes)), scale, delta)
    print(f"\nThe tutorial's accountant, fed labels for row numbers: epsilon {wrong:.4f}. Wrong.")
    print(f"The same accountant, every query once:                 epsilon {right:.4f}.")
    return {"epsilon_as_in_the_tutorial": wrong, "epsilon_tutorial_every_query": right}


if __name__ == "__main__":
    main(TUTORIAL_SVHN, compare)
