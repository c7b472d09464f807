"""`python -m experiments.tutorial_svhn run RUN`: the OpenMined tutorial's epsilon beside the right one.

The run is that of `pate run --config experiments/grids/tutorial_svhn.toml --out RUN`.

The tutorial passes the noisy labels (0 to 9) where its accountant expects row numbers. So only the first ten
images are ever looked at, nine hundred times each, and what happened to the other 8,990 is not counted.

`python -m experiments.tutorial_svhn epsilon` shows that without SVHN and without training, on made-up votes
of 100 teachers, or with `--votes FILE` on any votes.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from pate_jax import accounting, aggregate, voting
from pate_jax.accounting import smooth
from pate_jax.accounting.bounds import noisy_max
from pate_jax.aggregate import noise
from pate_jax.mechanisms import LNMax
from pate_jax.runs.answers import load_answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import exits

MOMENTS = np.arange(1.0, 9.0)  # the tutorial's accountant looks at eight


def tutorial_epsilon(votes: NDArray, rows: NDArray, scale: float, delta: float) -> float:
    """The 2017 moments accountant over these rows, with the guard of the tutorial's library, q below 1/2.

    Of all rows, each once, it is the 2017 figure; of the labels taken for rows it is the tutorial's.
    """
    epsilon = 2 / scale
    q = np.minimum(np.exp(noisy_max.laplace_log_q(votes[rows], scale)), 1 - 1 / votes.shape[1])[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = (1 - q) / (1 - math.exp(epsilon) * q)
        tail = np.log((1 - q) * ratio**MOMENTS + q * np.exp(epsilon * MOMENTS))
    tail = np.where((q < 0.5) & np.isfinite(tail), tail, epsilon * MOMENTS)
    spent = np.minimum(np.minimum(epsilon**2 * MOMENTS * (MOMENTS + 1) / 2, tail), epsilon * MOMENTS)
    return float(((spent.sum(axis=0) - math.log(delta)) / MOMENTS).min())


def compare(run: tyro.conf.Positional[Path]) -> dict[str, Any]:
    """The tutorial's epsilon of a finished run, and the same accountant fed the right rows.

    Args:
        run: the run directory.
    """
    made = RunDirectory(run)
    votes, labels = voting.load_votes(made.votes).votes, np.asarray(load_answers(made).labels)
    settings = made.record.stages()
    return _both(votes, labels, settings["mechanism"]["scale"], settings["account"]["delta"])


def _both(votes: NDArray, labels: NDArray, scale: float, delta: float) -> dict[str, Any]:
    wrong = tutorial_epsilon(votes, labels, scale, delta)
    right = tutorial_epsilon(votes, np.arange(len(votes)), scale, delta)
    print(f"\nThe tutorial's accountant, fed labels for row numbers: epsilon {wrong:.4f}. Wrong.")
    print(f"The same accountant, every query once:                 epsilon {right:.4f}.")
    return {"epsilon_as_in_the_tutorial": wrong, "epsilon_tutorial_every_query": right}


def epsilon(
    votes: Path | None = None, queries: int = 9000, teachers: int = 100, delta: float = 1e-5
) -> dict[str, Any]:
    """The tutorial's epsilon and the right ones, of votes that exist already; nothing is trained.

    Args:
        votes: a votes file; where it holds the teachers' labels, the first so many teachers count. Unset:
            made-up votes, from unanimous to split.
        queries: how many queries count, the first ones.
        teachers: how many teachers.
        delta: the delta of every figure.
    """
    histograms = _histograms(votes, queries, teachers)
    mechanism = LNMax(5.0)
    answers = aggregate.answer(mechanism, histograms, key=noise.fresh_key())
    found = _both(histograms, np.asarray(answers.labels), mechanism.scale, delta)
    orders = accounting.default_orders()
    curve = accounting.rdp(mechanism, histograms, orders, method="exact").sum(axis=0)
    exact = accounting.epsilon(orders, curve, delta).epsilon
    worst, _ = accounting.worst_case(mechanism, histograms.sum(axis=1), delta, classes=histograms.shape[1])
    print(f"Exact, both directions (sensitive):                    epsilon {exact:.4f}.")
    print(f"For any votes, the figure to publish:                  epsilon {worst.epsilon:.4f}.")
    size = {"queries": len(histograms), "teachers": int(histograms[0].sum()), "delta": delta}
    return {**size, **found, "epsilon_exact": exact, "epsilon_data_independent": worst.epsilon}


def _histograms(votes: Path | None, queries: int, teachers: int) -> NDArray:
    if votes is None:
        return smooth.example_votes(queries, teachers, 10)
    found = voting.load_votes(votes)
    if found.teacher_labels is None:
        return found.votes[:queries]
    kept = found.teacher_labels[:teachers, :queries]
    return np.asarray(voting.histogram(kept, found.votes.shape[1]))


if __name__ == "__main__":
    with exits.told("tutorial_svhn"):
        shown = tyro.extras.subcommand_cli_from_dict(
            {"run": compare, "epsilon": epsilon}, prog="experiments.tutorial_svhn", description=__doc__
        )
        print(json.dumps({"experiment": "tutorial_svhn", **shown}))
