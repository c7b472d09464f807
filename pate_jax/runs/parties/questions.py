"""What all parties ask their voters, in a file beside the agreement: rows of the pool, or a crowd's plan.

It follows from public inputs and settings alone. The file goes to every party, since a space that is learned
on two machines may differ in a last bit, and votes in two spaces cannot be added up. The agreement holds the
digests of the pool and of this file.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd.plan import Plan, plan
from pate_jax.data import Dataset
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts, Voting
from pate_jax.runs import queries
from pate_jax.runs.crowds import public_side
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.student.settings import Selection
from pate_jax.system import storage

KIND = "party-questions"


class Questions(NamedTuple):
    """The rows of the pool that teachers answer, or the plan of a crowd."""

    rows: Int[np.ndarray, " query"] | None
    plan: Plan | None

    @property
    def shape(self) -> tuple[int, int] | None:
        """The shape of a crowd's table as it is voted on: rows of queries, or of directions."""
        if self.plan is None:
            return None
        rows, columns = self.plan.release.shape
        return (columns, rows) if isinstance(self.plan.release, ClassSums) else (rows, columns)


def of_teachers(dataset: Dataset, wanted: int, selection: Selection) -> Questions:
    """The public inputs that teachers are asked about; equal inputs are asked about once."""
    rows = queries.different(dataset.public, wanted, [])
    pool = dataset.public.take(rows)
    chosen = queries.select(pool, dataset.preprocessing, wanted, selection, b"parties")
    return Questions(rows[queries.rows_of(pool.ids, chosen.ids)], None)


def of_crowd(crowd: Crowd, voters: int, mu: float) -> Questions:
    """The plan of a crowd of at most so many voters whose table may cost `mu`."""
    crowd.check_public()
    kind: Voting = crowd.choice.voters
    wide, classes = crowd.wide, crowd.dataset.classes
    return Questions(
        None, plan(kind, *wide, voters=voters, classes=classes, mu=mu, queries=crowd.choice.queries)
    )


def with_noise(questions: Questions, sigma: float) -> Questions:
    """The same plan, whose table will hold noise of this scale."""
    if questions.plan is None:
        return questions
    release = replace(questions.plan.release, sigma=max(sigma, 1.0), family="discrete_gaussian")
    return questions._replace(plan=questions.plan._replace(release=release))


def _arrays(questions: Questions, dataset: Dataset) -> dict[str, np.ndarray]:
    if questions.plan is not None:
        return public_side.arrays(questions.plan, dataset.preprocessing)
    return {"rows": np.asarray(questions.rows, np.int64)}


def save(path: Path, questions: Questions, dataset: Dataset) -> str:
    """Write the file, and return its digest."""
    made = _arrays(questions, dataset)
    storage.write_arrays(path, KIND, made, compressed=False)
    return public_side.digest(made)


def load(path: Path, digest: str) -> Questions:
    """Read the file of this digest; refused where it holds anything else."""
    made = storage.read_arrays(path, KIND)
    if public_side.digest(made) != digest:
        raise PateError(
            f"{path} holds other questions than the agreement names: copy it again with the agreement"
        )
    if set(made) == {"rows"}:
        return Questions(made["rows"], None)
    return Questions(None, public_side.plan_of(made, path))


def table(questions: Questions, crowd: Crowd) -> Int[np.ndarray, "query class"]:
    """The exact table of a crowd's own voters as it is voted on: sums have a row for each direction."""
    from pate_jax import crowd as voting

    if questions.plan is None:
        raise PateError("teachers have no table of a crowd: open the agreement's own questions")
    found = voting.table(questions.plan, crowd.everybody)
    return found.T if isinstance(questions.plan.release, ClassSums) else found


def opened_table(
    questions: Questions, values: Int[np.ndarray, "query class"]
) -> Int[np.ndarray, "rows columns"]:
    """The table of a release that was opened as `table` votes on it."""
    if questions.plan is None:
        raise PateError("teachers have no table of a crowd: open the agreement's own questions")
    return values.T if isinstance(questions.plan.release, ClassSums) else values


def largest_cell(questions: Questions, voters: int) -> int:
    """The most that so many voters can add to one cell, which the protocol checks."""
    if questions.plan is None or isinstance(questions.plan.release, NeighbourCounts):
        return voters
    return voters * questions.plan.release.length
