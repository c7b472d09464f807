"""Students of soft answers on drawn digits: `python -m experiments.studies.soft_students supervised ridge`.

Every record votes by sums for the whole pool, or by neighbours for some of it. No real label is read, so
defaults may be chosen by what is printed: how often answers and students are right, how sure a student is of
itself on the test part, and the CPU seconds that it took.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import crowd, data  # noqa: E402
from pate_jax.aggregate import Answers, seeded_key, soft_answers  # noqa: E402
from pate_jax.aggregate.noise import noisy_table  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.data import Part  # noqa: E402
from pate_jax.student import PublicInputs, fit, named  # noqa: E402


class Trial(NamedTuple):
    """A pool with answers for its first inputs, and what students are judged by."""

    public: PublicInputs
    answers: Answers
    labels: np.ndarray
    test: Part


def trial(records: int, pool: int, difficulty: float, voters: crowd.Kind, epsilon: float, seed: int) -> Trial:
    """Drawn digits, and what a crowd of them says about the pool."""
    drawn = data.load("strokes", size=records, public_size=pool, test_size=4000, difficulty=difficulty)
    here = crowds.prepared(drawn)
    plan = crowds.planned(voters, here, epsilon)
    table = crowds.sums_of(plan, here) if voters == "sums" else crowds.counts_of(plan, here)
    noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
    if voters == "sums":
        found, rows = shares.of_sums(noisy, plan, here.places["pool"], here.voters), np.arange(pool)
    else:
        found, rows = shares.of_counts(noisy, plan.release), plan.queries.rows
    order = np.concatenate([rows, np.setdiff1d(np.arange(pool), rows)])
    public = PublicInputs(drawn.public.inputs[order], drawn.preprocessing, drawn.classes, drawn.class_names)
    answers = soft_answers(found.probabilities, found.deviation, found.linear)
    return Trial(public, answers, drawn.public.labels[order], drawn.test)


def lines(given: Trial, methods: list[str], steps: int | None, seed: int) -> Iterator[dict[str, Any]]:
    """One for each student."""
    told = np.asarray(given.answers.labels)
    right = percent(told == given.labels[: len(told)])
    for method in methods:
        config = named(method, **({} if steps is None or method == "ridge" else {"steps": steps}))
        began = time.process_time()
        student = fit(jax.random.key(seed), given.public, given.answers, config)
        seconds = time.process_time() - began
        found, pool = student(given.test.inputs), student(given.public.inputs).argmax(1)
        yield {
            "method": method, "steps": steps, "seed": seed, "answers": len(told), "answers_right": right,
            "pool": percent(pool == given.labels), "test": percent(found.argmax(1) == given.test.labels),
            "sure": percent(found.max(1)), "cpu_seconds": round(seconds, 1),
        }  # fmt: skip


def percent(values: np.ndarray) -> float:
    """The mean in percent."""
    return round(100 * float(values.mean()), 2)


def main() -> None:
    """Draw, vote, and train every named student."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--pool", type=int, default=9_000)
    parser.add_argument("--difficulty", type=float, default=1.3)
    parser.add_argument("--voters", choices=("sums", "neighbours"), default="sums")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    settings = (chosen.records, chosen.pool, chosen.difficulty, chosen.voters, chosen.epsilon, chosen.seed)
    given = trial(*settings)
    for line in lines(given, chosen.methods, chosen.steps, chosen.seed):
        about = {"difficulty": chosen.difficulty, "voters": chosen.voters, "epsilon": chosen.epsilon}
        print(json.dumps({**about, **line}), flush=True)


if __name__ == "__main__":
    main()
