"""Which student learns best from soft answers about tables: `python -m experiments.studies.soft_tables`.

Tables of `experiments.studies.crowd_families` are voted on by sums, which answer the whole public pool, or by
neighbours, which answer few public inputs. One line of JSON for each table, voter and student: the accuracy
on test rows, beside that of the answers themselves and of the most frequent class.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from experiments.studies import crowd_rules  # noqa: E402
from experiments.studies.crowd_families import Family, families  # noqa: E402
from pate_jax import aggregate, crowd, student  # noqa: E402
from pate_jax.accounting.exact import counts as cost  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.models import spaces  # noqa: E402
from pate_jax.student import lesson, settings, smoothing  # noqa: E402

TABLES = ["linear table", "bent table", "rare words", "five classes", "few columns, few rows"]
PRIVATE, POOL, TEST = 10_000, 1_500, 2_000


def lines(name: str, epsilon: float, methods: list[str]) -> Iterator[dict[str, Any]]:
    """All students of one table."""
    _, _, drawn, seed, _ = families()[name].args
    inputs, labels = drawn(np.random.default_rng(seed), PRIVATE + POOL + TEST)
    parts = np.split(np.arange(len(inputs)), [PRIVATE, PRIVATE + POOL])
    private, pool, test = (inputs[part].astype(np.float32) for part in parts)
    space, classes = spaces.learn("columns", pool), int(labels.max()) + 1
    seen = [space.coordinates(part) for part in (private, pool, test)]
    here = Family(name, classes, space, seen[0], labels[parts[0]], *seen[1:], labels[parts[2]])
    usual = np.bincount(here.truth).max() / len(here.truth)
    for voter in ("sums", "neighbours"):
        found, rows = answered(here, voter, epsilon)
        order = np.concatenate([rows, np.setdiff1d(np.arange(POOL), rows)])
        public = student.PublicInputs(
            pool[order], Preprocessing((0.0,), (1.0,)), classes, tuple(map(str, range(classes)))
        )
        answers = aggregate.soft_answers(found.probabilities, found.deviation, found.linear)
        told = float((np.asarray(answers.labels) == labels[parts[1]][rows]).mean())
        for method in methods:
            name_of, _, kind = method.partition(",")
            with patch.object(lesson, "smoothed", _as_labels if kind == "label" else smoothing.smoothed):
                made = student.fit(jax.random.key(0), public, answers, settings.named(name_of))
            right = float((made(test).argmax(1) == here.truth).mean())
            yield {
                "table": name,
                "voter": voter,
                "epsilon": epsilon,
                "student": method,
                "right": round(100 * right, 2),
                "answers": round(100 * told, 2),
                "most frequent": round(100 * float(usual), 2),
            }


def answered(here: Family, voter: crowd.Kind, epsilon: float) -> tuple[crowd.Shares, np.ndarray]:
    """The shares that the voters give, and the rows of the pool that they are of."""
    number, mu = len(here.labels), cost.mu_for(epsilon, crowd_rules.DELTA)
    made = crowd.plan(voter, here.space, here.pool, voters=number, classes=here.classes, mu=mu)
    table = crowd_rules.sums_of(made, here) if voter == "sums" else crowd_rules.counts_of(made, here)
    noise = np.random.default_rng(0).normal(size=table.shape) * made.release.sigma
    noisy = np.rint(table + noise).astype(np.int64)
    if made.queries is None:
        return shares.of_sums(noisy, made, here.pool, number), np.arange(len(here.pool))
    return shares.of_counts(noisy, made.release), made.queries.rows


def _as_labels(shares: np.ndarray, deviation: np.ndarray, *, image: bool) -> smoothing.Soft:
    """The targets of images, for tables: chances of each class to be the label of the truth."""
    return smoothing.smoothed(shares, deviation, image=True)


def main() -> None:
    """Judge students of the chosen tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3])
    parser.add_argument("--students", nargs="+", default=["ridge", "ridge,label", "vat", "supervised"])
    chosen = parser.parse_args()
    for name in chosen.tables:
        for epsilon in chosen.epsilons:
            for line in lines(name, epsilon, chosen.students):
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
