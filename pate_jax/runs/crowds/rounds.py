"""What the ledger of a crowd shows: the number of voters, then each round's table, with a score between two.

The score of a candidate of a choice of settings comes last, and is that of its student (`runs.tune`).
Every line but the scores' is there in a run of one round too. A score tells how many held-out voters agree
with the student of the rounds so far, and decides whether another round follows. In a run of one round the
table may be followed by a comparison of students. So each decision reads released numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.accounting.exact import counts
from pate_jax.accounting.exact.counts import Unmade
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import (
    ClassSums,
    Comparison,
    CrowdRelease,
    CrowdTable,
    HeadCount,
    NeighbourCounts,
    Score,
)
from pate_jax.runs import ledger
from pate_jax.runs.crowds.inputs import HELD_OUT, compares, is_candidate, told
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.settings import CrowdChoice
from pate_jax.system import storage

Table = Int[np.ndarray, "rows columns"]
_NOISY = "noisy-table"
COMPARISON = 3  # the number of the line that holds a comparison: after the one table


class Shown(NamedTuple):
    """The lines of a crowd's ledger, by what they release."""

    numbers: list[CrowdLine]
    tables: list[CrowdLine]  # one of each round
    scores: list[CrowdLine]  # one before each round but the first
    comparisons: list[CrowdLine]  # one at most, of students of one round

    def outcomes(self) -> list[int]:
        """The noisy scores."""
        return [int(ledger.unpack_table(line.values, (1, 1))[0, 0]) for line in self.scores]

    def leads(self) -> list[float]:
        """How many more held-out voters agree with each compared student than in the mean, with noise."""
        (line,) = self.comparisons
        cells = ledger.unpack_table(line.values, line.release.shape)[0]
        return [float(cell) / len(cells) for cell in cells]


def shown(run: RunDirectory) -> Shown:
    """The lines of a run, refused where they do not follow each other as a run writes them."""
    found = Shown([], [], [], [])
    for place, line in enumerate(ledger.releases(run.ledger)):
        if not isinstance(line.release, _may_come(place)) or line.batch != place + 1 or found.comparisons:
            raise PateError(
                f"line {place + 1} of {run.ledger} shows release {line.batch}, {line.release.name}, which "
                "does not come there: restore the file from a backup"
            )
        _into(found, line.release).append(line)
    return found


def _may_come(place: int) -> tuple[type[CrowdRelease], ...]:
    """What the line in this place, counted from 0, may release."""
    if place % 2:
        return ClassSums, NeighbourCounts
    judgements = (Score, Comparison) if place == COMPARISON - 1 else (Score,)
    return judgements if place else (HeadCount,)


def _into(found: Shown, release: CrowdRelease) -> list[CrowdLine]:
    if isinstance(release, HeadCount):
        return found.numbers
    if isinstance(release, Score):
        return found.scores
    return found.comparisons if isinstance(release, Comparison) else found.tables


def table_batch(round: int) -> int:
    """The number of the ledger's line that holds a round's table.

    >>> table_batch(1), table_batch(2)
    (2, 4)
    """
    return 2 * round


def score_batch(round: int) -> int:
    """The number of the line that holds the score before a round."""
    return 2 * round - 1


def round_of(line: CrowdLine) -> int:
    """The round of a table, or that which a score comes before; all else is of the first."""
    return 1 if isinstance(line.release, Comparison) else (line.batch + 1) // 2


def goes_on(scores: Sequence[int], noise: float, chance: float) -> bool:
    """Whether the last of the noisy scores says that another round may be worth its cost.

    It must exceed the score before it, or `chance`, what a guess would get, by more than one standard
    deviation of the noise in the difference.

    >>> goes_on([120], 10.0, chance=100.0), goes_on([105], 10.0, chance=100.0)
    (True, False)
    >>> goes_on([120, 130], 10.0, chance=100.0), goes_on([120, 140], 10.0, chance=100.0)
    (False, True)
    """
    if len(scores) == 1:
        return scores[0] - chance > noise
    return scores[-1] - scores[-2] > noise * math.sqrt(2)


def held_out(run: RunDirectory) -> int:
    """About how many voters are held out, from what the run has told; public."""
    return max(1, told(run) // HELD_OUT)


def continues(run: RunDirectory, scores: int) -> bool:
    """Whether a round follows the first so many scores, from what the run has released."""
    found = shown(run)
    table, noise = found.tables[0].release, found.scores[0].release.sigma
    if not isinstance(table, ClassSums | NeighbourCounts):
        raise PateError(f"{run.ledger} shows no table: restore it from a backup")
    return goes_on(found.outcomes()[:scores], noise, held_out(run) / table.classes)


def issue(run: RunDirectory, round: int, line: CrowdLine) -> None:
    """Write the noisy table that the ledger shows, once more if need be; never drawn again."""
    if not run.answers_of(round).exists():
        values = ledger.unpack_table(line.values, line.release.shape)
        storage.write_arrays(run.answers_of(round), _NOISY, {"values": values})
    load_noisy(run, round)


def load_noisy(run: RunDirectory, round: int = 1) -> tuple[CrowdTable, Table]:
    """The table that a run has released in a round: what the ledger shows, if its file holds the same."""
    tables, path = shown(run).tables, run.answers_of(round)
    file = storage.read_arrays(run.existing(path, "run"), _NOISY).get("values")
    release = tables[round - 1].release if len(tables) >= round else None
    if not isinstance(release, ClassSums | NeighbourCounts):
        raise PateError(
            f"{run.ledger} shows {len(list(ledger.releases(run.ledger)))} releases, and the table of round "
            f"{round} is not among them: restore it from a backup"
        )
    values = ledger.unpack_table(tables[round - 1].values, release.shape)
    if file is None or not np.array_equal(values, file):
        raise PateError(
            f"{path} differs from the ledger, which recorded another noisy table: remove it, and "
            "the command that made the run writes it again"
        )
    return release, values


def finished(run: RunDirectory, choice: CrowdChoice) -> bool:
    """Whether a run has released all that it will: its last round, a score that ended them, a comparison."""
    found = shown(run)
    if is_candidate(run):
        return bool(found.scores)
    if choice.rounds == 1:
        return bool(found.tables) and (bool(found.comparisons) or not compares(run, choice))
    if len(found.tables) == choice.rounds and len(found.scores) == choice.rounds - 1:
        return True
    ended = 0 < len(found.scores) == len(found.tables) < choice.rounds
    return ended and not continues(run, len(found.scores))


def unmade(run: RunDirectory, choice: CrowdChoice) -> Unmade | None:
    """The rounds that a run had planned and did not make; None where it made all."""
    left = choice.rounds - len(shown(run).tables)
    share = counts.mu_for(choice.epsilon, choice.delta) / math.sqrt(choice.rounds)
    return Unmade(left, share) if left else None
