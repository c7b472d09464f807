"""How often a rehearsal's range holds what the plan brings: `python -m benchmarks.ranges --seconds 60`.

Tables are drawn at random: 3,000 to 20,000 private records, a public part of 800 to 3,000 that has labels,
two to eight classes of equal or unequal size, more and less noise in the labels, epsilon 0.3, 1 or 3. Each is
rehearsed as a run does; then all teachers of the chosen plan vote, noise is drawn anew, and ridge regression,
which stands for the student of tables, learns the answers and is judged on 3,000 other rows. A line says in
how many cases of a hundred that share lies in the range (80 are promised), and how wide ranges are. Where
public inputs have no labels, the least and the most kind of made-up ones are told, which is no forecast.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.runs import stand_ins, teacher_rehearsal, teacher_votes
from pate_jax.student.selection import select

DELTA, ENTRIES, TEST = 1e-5, 64, 3000
SIZES, POOLS, EPSILONS = (3000, 6000, 20_000), (800, 1500, 3000), (0.3, 1.0, 3.0)


class Table(NamedTuple):
    """Rows as linear teachers see them, the private ones first, then public ones and those of the test."""

    rows: np.ndarray
    labels: np.ndarray
    private: int
    public: int
    classes: int


def table(random: np.random.Generator) -> Table:
    """Labels that are linear in columns of falling variance, with noise, one class more frequent or none."""
    private, public, classes = (
        int(random.choice(SIZES)),
        int(random.choice(POOLS)),
        int(random.choice([2, 2, 4, 8])),
    )
    noise, most = random.choice([0.1, 0.3, 0.6]), random.choice([1 / classes, 0.6, 0.75])
    number, scale = private + public + TEST, np.arange(1, ENTRIES + 1) ** -0.7
    rows = random.normal(size=(number, ENTRIES)) * scale / np.sqrt((scale**2).sum())
    scores = rows @ random.normal(size=(ENTRIES, classes)) + noise * random.gumbel(size=(number, classes))
    ahead = np.sort(scores[:, 1:].max(1) - scores[:, 0])
    if most > 1 / classes:
        scores[:, 0] += ahead[int(most * (number - 1))]
    entries = np.c_[rows, np.full(number, 0.2)].astype(np.float32)
    return Table(entries, scores.argmax(1), private, public, classes)


def tried(random: np.random.Generator) -> tuple[float, float, float, float] | None:
    """What was expected of a table, from where to where, and what came out; None where no plan is of use."""
    drawn, epsilon = table(random), float(random.choice(EPSILONS))
    private, public, test = np.split(
        np.arange(len(drawn.rows)), [drawn.private, drawn.private + drawn.public]
    )
    entries, labels, mu = drawn.rows[public], [drawn.labels[public]], counts.mu_for(epsilon, DELTA)
    roles = teacher_votes.parts(len(public), labels, drawn.classes)
    numbers = teacher_rehearsal._numbers(drawn.private, None, 10)
    lists = teacher_rehearsal._lists(len(roles.public), None, drawn.public)
    plans = list(teacher_rehearsal._tried(entries, labels, drawn.classes, roles, numbers, mu, lists))
    best = teacher_rehearsal.chosen(plans, drawn.classes)
    if best is None:
        return None
    expected = teacher_rehearsal._expected(best, [labels[0][roles.judges]])
    asked = select("kmeans", entries, best.queries, key=b"ranges")
    votes = np.zeros((best.queries, drawn.classes))
    for _ in range(best.teachers):
        own = random.choice(private, best.shard, replace=False)
        targets = np.eye(drawn.classes)[drawn.labels[own]] - 1 / drawn.classes
        said = entries[asked] @ teacher_votes.ridge(drawn.rows[own], targets, 0.1)
        votes[np.arange(best.queries), said.argmax(1)] += 1
    votes += teacher_votes.scale(best.queries, mu, whole=best.whole) * random.normal(size=votes.shape)
    told = teacher_votes.told(votes[None, None], best.teachers, whole=best.whole)[0, 0][:, None]
    guessed = stand_ins.ridge(entries[asked], told, drawn.rows[test])[:, 0].argmax(1)
    return expected.accuracy, expected.low, expected.high, float((guessed == drawn.labels[test]).mean())


def main() -> None:
    """Print one line: how many tables, how many ranges of a hundred hold, their width, and the mean error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    random, began, found = np.random.default_rng(chosen.seed), time.perf_counter(), []
    while time.perf_counter() - began < chosen.seconds:
        if (one := tried(random)) is not None:
            found.append(one)
    print(json.dumps(summary(np.array(found))))


def summary(found: np.ndarray) -> dict[str, Any]:
    """Coverage, width and error of rows of expected, low, high and reached."""
    expected, low, high, reached = 100 * found.T
    return {
        "tables": len(found),
        "within": round(float(100 * np.mean((low <= reached) & (reached <= high))), 1),
        "width": round(float((high - low).mean()), 1),
        "error": round(float((reached - expected).mean()), 1),
    }


if __name__ == "__main__":
    main()
