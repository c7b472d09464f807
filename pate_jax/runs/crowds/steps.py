"""What the ledger of a crowd shows: the number of voters, then each step's table, and a judgement at the end.

A step's table is asked for on what the tables before it say. The score of a candidate of a choice of settings
comes last, and is that of its student (`runs.tune`); or the tables are followed by a comparison of students.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd.steps import Steps
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
from pate_jax.runs.crowds import public_side
from pate_jax.runs.crowds.inputs import HELD_OUT, Crowd, compares, is_candidate, told
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.record import CROWD, STEPS
from pate_jax.runs.settings import CrowdChoice
from pate_jax.system import storage

Table = Int[np.ndarray, "rows columns"]
_NOISY = "noisy-table"


class Shown(NamedTuple):
    """The lines of a crowd's ledger, by what they release."""

    numbers: list[CrowdLine]
    tables: list[CrowdLine]  # one of each step
    scores: list[CrowdLine]  # one at most, of the student of all steps
    comparisons: list[CrowdLine]  # one at most, of students of all steps

    def outcomes(self) -> list[int]:
        """The noisy scores."""
        return [int(ledger.unpack_table(line.values, (1, 1))[0, 0]) for line in self.scores]

    def leads(self) -> list[float]:
        """How many more held-out voters agree with each compared student than in the mean, with noise."""
        (line,) = self.comparisons
        cells = ledger.unpack_table(line.values, line.event.shape)[0]
        return [float(cell) / len(cells) for cell in cells]


def shown(run: RunDirectory) -> Shown:
    """The lines of a run, refused where they do not follow each other as a run writes them."""
    found = Shown([], [], [], [])
    for place, line in enumerate(ledger.releases(run.ledger)):
        ended = found.comparisons or found.scores
        if not isinstance(line.event, _may_come(place)) or line.batch != place + 1 or ended:
            raise PateError(
                f"line {place + 1} of {run.ledger} shows release {line.batch}, {line.event.name}, which "
                "does not come there: restore the file from a backup"
            )
        _into(found, line.event).append(line)
    return found


def _may_come(place: int) -> tuple[type[CrowdRelease], ...]:
    """What the line in this place, counted from 0, may release."""
    if place < 2:
        return (ClassSums, NeighbourCounts) if place else (HeadCount,)
    return ClassSums, Score, Comparison


def _into(found: Shown, release: CrowdRelease) -> list[CrowdLine]:
    if isinstance(release, HeadCount):
        return found.numbers
    if isinstance(release, Score):
        return found.scores
    return found.comparisons if isinstance(release, Comparison) else found.tables


def table_batch(step: int) -> int:
    """The number of the ledger's line that holds a step's table.

    >>> table_batch(1), table_batch(2)
    (2, 3)
    """
    return step + 1


def step_of(line: CrowdLine) -> int:
    """The step of a table."""
    return line.batch - 1


def planned(run: RunDirectory) -> int:
    """How many tables a run releases, as its public side says."""
    if not run.public_side.exists():
        return 1
    return public_side.steps_in(public_side.read(run.public_side))


def agreed(crowd: Crowd) -> int:
    """How many tables a run releases, recorded with its settings, where a repeated command finds them."""
    made = crowd.at(1).plan.steps
    if crowd.choice.voters == "sums":
        crowd.run.record.agree(STEPS, recorded(made))
    return 1 if made is None else made.number


def recorded(made: Steps | None) -> dict[str, float]:
    """What the settings of a run say of its steps.

    >>> recorded(None)
    {'number': 1}
    """
    return {"number": 1} if made is None else {"number": made.number, "strength": made.strength}


def as_begun(run: RunDirectory, wanted: CrowdChoice) -> CrowdChoice:
    """A choice without the number of steps that the run has chosen by itself, as its config.toml names it."""
    stages = run.record.stages()
    by_rule = stages.get(CROWD, {}).get("steps") is None
    if by_rule and wanted.steps is not None and wanted.steps == stages.get(STEPS, {}).get("number"):
        return replace(wanted, steps=None)
    return wanted


def held_out(run: RunDirectory) -> int:
    """About how many voters are held out, from what the run has told; public."""
    return max(1, told(run) // HELD_OUT)


def issue(run: RunDirectory, step: int, line: CrowdLine) -> None:
    """Write the noisy table that the ledger shows, once more if need be; never drawn again."""
    if not run.answers_of(step).exists():
        values = ledger.unpack_table(line.values, line.event.shape)
        storage.write_arrays(run.answers_of(step), _NOISY, {"values": values})
    load_noisy(run, step)


def load_noisy(run: RunDirectory, step: int = 1) -> tuple[CrowdTable, Table]:
    """The table that a run has released in a step: what the ledger shows, if its file holds the same."""
    tables, path = shown(run).tables, run.answers_of(step)
    file = storage.read_arrays(run.existing(path, "run"), _NOISY).get("values")
    release = tables[step - 1].event if len(tables) >= step else None
    if not isinstance(release, ClassSums | NeighbourCounts):
        raise PateError(
            f"{run.ledger} shows {len(list(ledger.releases(run.ledger)))} releases, and the table of step "
            f"{step} is not among them: restore it from a backup"
        )
    values = ledger.unpack_table(tables[step - 1].values, release.shape)
    if file is None or not np.array_equal(values, file):
        raise PateError(
            f"{path} differs from the ledger, which recorded another noisy table: remove it, and "
            "the command that made the run writes it again"
        )
    return release, values


def finished(run: RunDirectory, choice: CrowdChoice) -> bool:
    """Whether a run has released all that it will: all its tables, and a score or a comparison."""
    found = shown(run)
    if not found.tables or len(found.tables) < planned(run):
        return False
    if is_candidate(run):
        return bool(found.scores)
    return bool(found.comparisons) or not compares(run, choice)
