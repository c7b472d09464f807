"""How right answers with local noise are, by how many questions each voter answers, at one budget.

Voters are simulated: right with the given accuracy, and otherwise wrong evenly. Noise is drawn from a seed.

    python -m experiments.local_noise
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import tyro

from pate_jax.accounting import local as figures
from pate_jax.aggregate import local as drawing
from pate_jax.aggregate import seeded_key
from pate_jax.mechanisms import local


@dataclass(frozen=True)
class Trial:
    """Who votes on what."""

    classes: int = 10
    questions: int = 100
    voters: int = 250
    accuracy: float = 0.84
    budget: float = 8.0
    answers: tuple[int, ...] = (1, 2, 3, 4, 8, 100)
    repeats: int = 50


def right(trial: Trial, mechanism: local.Local, answers: int, seed: int) -> float:
    """The share of questions that are answered right in one draw of voters and noise."""
    random = np.random.default_rng(seed)
    shape = (trial.voters, trial.questions)
    true = random.integers(0, trial.classes, trial.questions)
    wrong = (true + random.integers(1, trial.classes, shape)) % trial.classes
    labels = np.where(random.random(shape) < trial.accuracy, true, wrong)
    places = (np.arange(trial.voters)[:, None] * answers + np.arange(answers)) % trial.questions
    sent = drawing.send(mechanism, np.take_along_axis(labels, places, axis=1), key=seeded_key(seed))
    whole = np.full((*shape, *sent.shape[2:]), drawing.MISSING, np.int32)
    whole[np.arange(trial.voters)[:, None], places] = sent
    found = drawing.answers(mechanism, drawing.counts(mechanism, whole))
    return float((found == true).mean())


def rows(trial: Trial) -> Iterator[dict[str, str | int | float]]:
    """One row for each mechanism and number of answers: measured and forecast."""
    for name in local.BY_NAME:
        for answers in trial.answers:
            mechanism = figures.loudest(name, trial.classes, answers, trial.budget)
            measured = [right(trial, mechanism, answers, seed) for seed in range(trial.repeats)]
            votes = trial.voters * answers // trial.questions
            yield {
                "mechanism": name,
                "answers": answers,
                "epsilon": mechanism.epsilon,
                "right": round(float(np.mean(measured)), 4),
                "forecast": round(figures.expected(mechanism, votes, trial.accuracy), 4),
            }


def main(trial: Trial) -> None:
    """Print the rows as JSON lines."""
    print(json.dumps(asdict(trial)))
    for row in rows(trial):
        print(json.dumps(row))


if __name__ == "__main__":
    main(tyro.cli(Trial))
