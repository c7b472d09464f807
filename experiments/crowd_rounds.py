"""What a second round brings: `python -m experiments.crowd_rounds strokes glyphs --epsilons 0.2 1`.

Rounds share the cost equally. A later round's space is the last layer of a student that learned from the
answers so far. Labels of the public and the test part are read to judge with only. What is drawn has a seed
and is not private; the epsilon is the publishable one for changed contents at delta 1e-5.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.crowds import (
    DELTA,
    DIRECTIONS,
    Prepared,
    accuracy,
    add_files,
    of_files,
    prepared,
    sums_of,
)
from pate_jax import crowd, data, student
from pate_jax.accounting.exact import counts as cost
from pate_jax.aggregate import seeded_key, soft_answers
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.crowd import shares
from pate_jax.data import Dataset
from pate_jax.student import spaces

MORE = {"glyphs": {"classes": 20}}


class Round(NamedTuple):
    """The answers of a round about the pool and the test part."""

    pool: shares.Shares
    test: shares.Shares


def asked(here: Prepared, mu: float, seed: int) -> Round:
    """One noisy table in a space, and what follows from it."""
    voters = here.voters
    kind = {"voters": voters, "classes": here.classes, "mu": mu}
    plan = crowd.plan("sums", here.space, here.places["pool"], **kind)
    noisy = noisy_table(plan.release, sums_of(plan, here), key=seeded_key(seed)).values
    parts = (here.places["pool"], here.places["test"])
    return Round(*(shares.of_sums(noisy, plan, here.places["pool"], voters, part) for part in parts))


def seen_in(dataset: Dataset, space: spaces.Space) -> Prepared:
    """All inputs in a space that is known."""
    parts = {"private": dataset.private, "pool": dataset.public, "test": dataset.test}
    places = {name: space.coordinates(part.inputs) for name, part in parts.items()}
    labels = {name: part.labels for name, part in parts.items()}
    return Prepared(dataset.name, dataset.classes, space, places, labels, len(dataset.private.inputs))


def together(rounds: list[shares.Shares], weighed: bool) -> shares.Shares:
    """The mean of several rounds' answers, all alike or by their known noise."""
    inverse = [1 / float(np.mean(one.deviation**2)) if weighed else 1.0 for one in rounds]
    parts = [weight / sum(inverse) for weight in inverse]
    mean, linear = (
        sum(part * getattr(one, kind) for part, one in zip(parts, rounds, strict=True))
        for kind in ("probabilities", "linear")
    )
    squares = sum((part * one.deviation) ** 2 for part, one in zip(parts, rounds, strict=True))
    return shares.Shares(mean, linear, np.sqrt(squares), rounds[-1].evidence)


def taught(dataset: Dataset, answers: shares.Shares, seed: int, steps: int | None) -> student.Student:
    """The student of soft answers about the pool."""
    shape = dataset.preprocessing, dataset.classes, dataset.class_names
    public = student.PublicInputs(dataset.public.inputs, *shape)
    soft = soft_answers(answers.probabilities, answers.deviation, answers.linear)
    return student.fit(jax.random.key(seed), public, soft, student.Supervised(steps=steps))


def measured(
    dataset: Dataset, first: Prepared, epsilon: float, seed: int, rounds: int, steps: int | None
) -> Iterator[dict[str, Any]]:
    """One line for each number of rounds so far."""
    pool, test = dataset.public, dataset.test
    made: list[Round] = []
    here = first
    mu = cost.mu_for(epsilon, DELTA) / math.sqrt(rounds)
    for number in range(rounds):
        began = time.process_time()
        made.append(asked(here, mu, 100 * seed + number))
        answers = {
            "last": made[-1],
            "mean": Round(*(together([one[part] for one in made], False) for part in (0, 1))),
            "weighed": Round(*(together([one[part] for one in made], True) for part in (0, 1))),
        }
        line = {"data": dataset.name, "epsilon": epsilon, "seed": seed, "of": rounds, "round": number + 1}
        for name, found in answers.items():
            right = [
                100 * accuracy(one.probabilities, part.labels)
                for one, part in zip(found, (pool, test), strict=True)
            ]
            line[name] = [round(value, 2) for value in right]
        for name in ["last", "mean"] if number > 0 and number + 1 == rounds else ["mean"]:
            learned = taught(dataset, answers[name].pool, seed, steps)
            right = [100 * learned.accuracy(part.inputs, part.labels) for part in (pool, test)]
            line[f"student of {name}"] = [round(value, 2) for value in right]
        if number + 1 < rounds:
            here = seen_in(dataset, spaces.space(learned, pool.inputs, directions=DIRECTIONS))
        yield {**line, "cpu": round(time.process_time() - began, 1)}


def named(name: str, chosen: argparse.Namespace) -> Dataset:
    """A data set by name, from its archives or drawn."""
    if chosen.archives:
        return data.load(name, manual_dir=chosen.archives / name)
    return data.load(name, size=chosen.records or 20_000, public_size=chosen.pool, **MORE.get(name, {}))


def main() -> None:
    """Measure the named data sets, or the user's own files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--archives", type=Path)
    add_files(parser)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.2, 1.0])
    parser.add_argument("--rounds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--records", type=int)
    parser.add_argument("--pool", type=int, default=4000)
    parser.add_argument("--steps", type=int)
    chosen = parser.parse_args()
    for dataset in (*of_files(chosen), *(named(name, chosen) for name in chosen.names)):
        first = prepared(dataset)
        for epsilon in chosen.epsilons:
            for rounds in chosen.rounds:
                for seed in range(chosen.seeds):
                    for line in measured(dataset, first, epsilon, seed, rounds, chosen.steps):
                        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
