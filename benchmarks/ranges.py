"""How often a rehearsal's range holds what the plan brings: `python -m benchmarks.ranges --seconds 60`.

Tables are drawn at random: 3,000 to 20,000 private records, a public part of 800 to 3,000, two to eight
classes of equal or unequal size, epsilon 0.3, 1 or 3. Each is rehearsed as a run does; then all teachers of
the chosen plan vote, noise is drawn anew, and ridge regression, which stands for the student of tables,
learns the answers and is judged on 3,000 other rows.

Where public inputs have labels, a line says in how many cases of a hundred that share lies in the range (80
are promised), and how wide ranges are. `--unlabelled` takes those labels away: the same public inputs then
have labels of seven families, linear ones with more and less noise, of few and of many clusters, and of
products of columns. A line says how often the share lies between the least and the most kind of made-up
labels, how far apart shares of the same public inputs are from each other, and what becomes of the obvious
forecast: ranges that hold 80% of the outcomes of all families but one, tried on that one.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.crowd import rehearsal
from pate_jax.crowd.rehearsal import Expected
from pate_jax.models import clusters, spaces
from pate_jax.runs import teacher_rehearsal, teacher_votes
from pate_jax.runs.teacher_rehearsal import Tried
from pate_jax.student.selection import select

DELTA, ENTRIES, TEST = 1e-5, 64, 3000
SIZES, POOLS, EPSILONS = (3000, 6000, 20_000), (800, 1500, 3000), (0.3, 1.0, 3.0)
FAMILIES = ("linear 0.1", "linear 0.7", "linear 2", "clusters 1", "clusters 3", "clusters 10", "products")


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


def families(drawn: Table, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Other labels of the same rows, by what they depend on."""
    columns, size = drawn.rows[:, :-1], (len(drawn.rows), drawn.classes)
    scores = columns @ random.normal(size=(columns.shape[1], drawn.classes))
    products = (columns[:, :8] @ random.normal(size=(8, drawn.classes))) * (
        columns[:, :8] @ random.normal(size=(8, drawn.classes))
    )
    found = {
        f"linear {noise:g}": (scores + noise * random.gumbel(size=size)).argmax(1) for noise in (0.1, 0.7, 2)
    }
    for each in (1, 3, 10):
        centres = columns[random.choice(len(columns), drawn.classes * each, replace=False)]
        found[f"clusters {each}"] = clusters.nearest(columns, centres) % drawn.classes
    return found | {"products": products.argmax(1)}


def planned(drawn: Table, labels: list[np.ndarray], mu: float) -> tuple[Tried, Expected] | None:
    """The plan that a run would choose by labels of the public rows, and what it would say of it."""
    entries = drawn.rows[drawn.private : drawn.private + drawn.public]
    roles = teacher_votes.parts(len(entries), labels, drawn.classes)
    size = {"records": drawn.private, "most_queries": drawn.public}
    plans = teacher_rehearsal.every_plan(entries, labels, drawn.classes, roles, mu=mu, **size)
    best = teacher_rehearsal.chosen(plans, drawn.classes)
    if best is None:
        return None
    return best, teacher_rehearsal._expected(best, [each[roles.judges] for each in labels])


def reached(drawn: Table, best: Tried, mu: float, random: np.random.Generator) -> float:
    """The share of test rows on which the student of all teachers' noisy answers is right."""
    rows, classes = drawn.rows, drawn.classes
    entries, test = rows[drawn.private : drawn.private + drawn.public], slice(-TEST, None)
    asked = select("kmeans", entries, best.queries, key=b"ranges")
    votes = np.zeros((best.queries, classes))
    for _ in range(best.teachers):
        own = random.choice(drawn.private, best.shard, replace=False)
        targets = np.eye(classes)[drawn.labels[own]] - 1 / classes
        said = entries[asked] @ teacher_votes.ridge(rows[own], targets, 0.1)
        votes[np.arange(best.queries), said.argmax(1)] += 1
    votes += teacher_votes.scale(best.queries, mu, whole=best.whole) * random.normal(size=votes.shape)
    told = teacher_votes.told(votes[None, None], best.teachers, whole=best.whole)[0, 0][:, None]
    guessed = teacher_rehearsal.ridge(entries[asked], told, rows[test])[:, 0].argmax(1)
    return float((guessed == drawn.labels[test]).mean())


def labelled(random: np.random.Generator) -> list[tuple[float, ...]]:
    """Expected of a table, from where to where, and what came out; nothing where no plan is of use."""
    drawn, mu = table(random), counts.mu_for(float(random.choice(EPSILONS)), DELTA)
    made = planned(drawn, [drawn.labels[drawn.private : drawn.private + drawn.public]], mu)
    if made is None:
        return []
    return [(*made[1][:3], reached(drawn, made[0], mu, random))]


def unlabelled(random: np.random.Generator) -> list[tuple[float, ...]]:
    """The same with made-up labels, and what came out with the true labels of each family."""
    drawn, mu = table(random), counts.mu_for(float(random.choice(EPSILONS)), DELTA)
    public = drawn.rows[drawn.private : drawn.private + drawn.public, :-1]
    space = spaces.learn("identity", public)
    made = planned(drawn, rehearsal.labellings(space, space.coordinates(public), drawn.classes), mu)
    if made is None:
        return []
    each = families(drawn, random)
    return [
        (*made[1][:3], reached(drawn._replace(labels=each[name]), made[0], mu, random)) for name in FAMILIES
    ]


def summary(found: np.ndarray) -> dict[str, Any]:
    """Coverage, width and error of rows of expected, low, high and reached."""
    expected, low, high, out = 100 * found.T
    return {
        "cases": len(found),
        "within": round(float(100 * np.mean((low <= out) & (out <= high))), 1),
        "width": round(float((high - low).mean()), 1),
        "error": round(float((out - expected).mean()), 1),
    }


def forecasts(found: np.ndarray) -> dict[str, Any]:
    """What ranges that hold 80% of the other families' outcomes hold of one family, each in its turn.

    An outcome is told by its distance from what is expected with made-up labels.
    """
    away = 100 * (found[:, 3] - found[:, 0]).reshape(-1, len(FAMILIES))
    apart = 100 * np.ptp(found[:, 3].reshape(away.shape), axis=1)
    held, widths = {}, []
    for place, name in enumerate(FAMILIES):
        low, high = np.quantile(np.delete(away, place, axis=1), (0.1, 0.9))
        held[name] = round(float(100 * np.mean((low <= away[:, place]) & (away[:, place] <= high))))
        widths.append(high - low)
    return {
        "same public inputs apart": round(float(apart.mean()), 1),
        "forecast width": round(float(np.mean(widths)), 1),
        "forecast holds": round(float(np.mean(list(held.values()))), 1),
        "of each family": held,
    }


def main() -> None:
    """Print one line: how many cases, how many ranges of a hundred hold, their width, and the mean error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unlabelled", action="store_true", help="public inputs have no labels")
    chosen = parser.parse_args()
    random, began = np.random.default_rng(chosen.seed), time.perf_counter()
    found: list[tuple[float, ...]] = []
    while time.perf_counter() - began < chosen.seconds:
        found += unlabelled(random) if chosen.unlabelled else labelled(random)
    rows = np.array(found)
    print(json.dumps(summary(rows) | (forecasts(rows) if chosen.unlabelled else {})))


if __name__ == "__main__":
    main()
