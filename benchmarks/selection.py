"""Which public rows to ask about, on drawn tables: `python -m benchmarks.selection --seconds 60`.

Tables are those of `benchmarks.ranges`, with their plan. Every list has as many queries and the same noise.
`clusters` asks what is nearest to the centres of as many clusters, as runs do; `medoids` moves each centre to
the member that is nearest to all others of its cluster, in directions of even weight; `two lists` asks half
by clusters, and the others where ridge regression on those answers is least sure, spread over clusters;
`random` asks any. All teachers vote, and ridge learns the answers. A line has the mean points over clusters
and their standard error, pair by pair.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from benchmarks.ranges import DELTA, EPSILONS, TEST, Table, planned, table
from pate_jax.accounting.exact import counts
from pate_jax.models import clusters
from pate_jax.runs import teacher_rehearsal, teacher_votes
from pate_jax.runs.teacher_rehearsal import Tried
from pate_jax.student.selection import least_sure, select

WAYS = ("random", "medoids", "two lists")


class Asked:
    """A table's teachers, whom rows of the public part are asked."""

    def __init__(self, drawn: Table, best: Tried, mu: float, random: np.random.Generator) -> None:
        self.drawn, self.best, self.random = drawn, best, random
        self.public = drawn.rows[drawn.private : drawn.private + drawn.public]
        self.scale = teacher_votes.scale(best.queries, mu, whole=best.whole)
        self.votes = np.zeros((drawn.public, drawn.classes))
        for _ in range(best.teachers):
            own = random.choice(drawn.private, best.shard, replace=False)
            targets = np.eye(drawn.classes)[drawn.labels[own]] - 1 / drawn.classes
            said = self.public @ teacher_votes.ridge(drawn.rows[own], targets, 0.1)
            self.votes[np.arange(drawn.public), said.argmax(1)] += 1

    def told(self, rows: np.ndarray) -> np.ndarray:
        """Noisy answers, as a student learns them."""
        noisy = self.votes[rows] + self.scale * self.random.normal(size=(len(rows), self.drawn.classes))
        return teacher_votes.told(noisy[None, None], self.best.teachers, whole=self.best.whole)[0, 0]

    def right(self, rows: np.ndarray, told: np.ndarray) -> float:
        """The share of test rows on which ridge is right that learned these answers."""
        tests = slice(-TEST, None)
        said = teacher_rehearsal.ridge(self.public[rows], told[:, None], self.drawn.rows[tests])[:, 0]
        return float((said.argmax(1) == self.drawn.labels[tests]).mean())

    def two_lists(self) -> float:
        """The second half where a student of the first is least sure."""
        half = self.best.queries // 2
        rows = select("kmeans", self.public, half, key=b"selection")
        told = self.told(rows)
        said = teacher_rehearsal.ridge(self.public[rows], told[:, None], self.public)[:, 0]
        more = least_sure(said, self.public, self.best.queries - half, taken=rows, key=b"second")
        return self.right(np.concatenate([rows, more]), np.concatenate([told, self.told(more)]))


def medoids(public: np.ndarray, wanted: int) -> np.ndarray:
    """Of each cluster the row with the least sum of distances to the others."""
    wide = public / np.sqrt(np.maximum(public.std(0), 1e-6))
    centres = wide[select("kmeans", wide, wanted, key=b"selection")]
    kinds = clusters.nearest(wide, centres)
    return np.array([_middle(wide, np.flatnonzero(kinds == each)) for each in np.unique(kinds)])


def _middle(wide: np.ndarray, members: np.ndarray) -> int:
    gaps = np.linalg.norm(wide[members][:, None] - wide[members], axis=2)
    return int(members[gaps.sum(1).argmin()])


def tried(random: np.random.Generator) -> list[float] | None:
    """Points over clusters of each way; None where no plan is of use or all rows are asked."""
    drawn, mu = table(random), counts.mu_for(float(random.choice(EPSILONS)), DELTA)
    made = planned(drawn, [drawn.labels[drawn.private : drawn.private + drawn.public]], mu)
    if made is None:
        return None
    best, asked = made[0], Asked(drawn, made[0], mu, random)
    lists = (
        select("kmeans", asked.public, best.queries, key=b"selection"),
        random.permutation(drawn.public)[: best.queries],
        medoids(asked.public, best.queries),
    )
    usual, *others = (
        float(np.mean([asked.right(rows, asked.told(rows)) for _ in range(4)])) for rows in lists
    )
    two = float(np.mean([asked.two_lists() for _ in range(4)]))
    return [100 * (one - usual) for one in (*others, two)]


def main() -> None:
    """Print one line: points over clusters of each way, and their standard error."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    random, began, found = np.random.default_rng(chosen.seed), time.perf_counter(), []
    while time.perf_counter() - began < chosen.seconds:
        if (one := tried(random)) is not None:
            found.append(one)
    mean, error = np.mean(found, 0), np.std(found, 0, ddof=1) / np.sqrt(len(found))
    each = {
        way: [round(float(m), 2), round(float(e), 2)] for way, m, e in zip(WAYS, mean, error, strict=True)
    }
    print(json.dumps({"tables": len(found), **each}))


if __name__ == "__main__":
    main()
