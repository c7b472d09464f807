"""The students that held-out voters compare, and what these say, before noise is added.

All students have seen public inputs and released answers alone. What they say of a record depends on that
record alone, bit for bit, so one voter moves the table no further than `mechanisms.crowds.Comparison` says.
"""

from __future__ import annotations

import json

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.crowd.voters import Rule
from pate_jax.runs import students as training
from pate_jax.runs.crowds import answers, public_side, students
from pate_jax.runs.crowds.comparison import FIRST, methods
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Student, spaces
from pate_jax.system import storage

_COMPARISON = "crowd-comparison"
Cells = Int[np.ndarray, "1 students"]


def every(crowd: Crowd) -> list[Student]:
    """All of them, made once and kept: the classifier of the sums, and those that learned from it."""
    return [kept(crowd, method) for method in methods(crowd.run)]


def kept(crowd: Crowd, method: str) -> Student:
    """One of the students, which is made when it is first asked for."""
    folder = crowd.run.compared(method)
    if not (folder / "student.json").exists():  # the last of its files
        learned(crowd, method).save(folder)
    return Student.load(folder)


def learned(crowd: Crowd, method: str) -> Student:
    """One of the students anew, from public inputs and the noisy tables."""
    if method == FIRST:
        return students.of_sums(crowd)
    found, asked = answers.given(crowd)
    return training.learn(crowd.run, crowd.run.record.read().rivals[method], crowd.dataset, asked, found)


def digest(run: RunDirectory) -> str:
    """What names the students that are kept, and the noise of their comparison."""
    names = [students.digest(Student.load(run.compared(method))) for method in methods(run)]
    return public_side.digest({"compared": np.array(json.dumps(names))})


def counted(crowd: Crowd, students: list[Student]) -> Cells:
    """How many held-out voters agree with each student, times their number, less the sum; private."""
    agree = np.array([[voting.agreeing(crowd.judges, _rule(student)) for student in students]])
    cells: Cells = len(students) * agree - agree.sum()
    return cells


def _rule(student: Student) -> Rule:
    return lambda seen: spaces.labels(student, seen)


def exact(crowd: Crowd) -> Cells:
    """The exact table, which is counted once."""
    path = crowd.run.comparison
    if not path.exists():
        storage.write_arrays(path, _COMPARISON, {"table": counted(crowd, every(crowd))})
    return load(crowd.run)


def load(run: RunDirectory) -> Cells:
    """The exact table that a run keeps."""
    return storage.read_arrays(run.existing(run.comparison, "run"), _COMPARISON)["table"]
