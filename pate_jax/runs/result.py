"""What a finished run is in Python: its student, its privacy statement and where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.runs.report.summary import summary
from pate_jax.student import Student


@dataclass(frozen=True)
class Result:
    """A finished run. Only `directory / "release"`, the student and the statement may be published."""

    directory: Path
    facts: Mapping[str, Any] = field(repr=False)  # as the last line of `pate run --json` shows them, and more

    @cached_property
    def student(self) -> Student:
        """The student, which takes inputs in any form that the run took."""
        return Student.load(self.directory)

    @cached_property
    def statement(self) -> accounting.Statement:
        """What the run costs, and whom its guarantee covers."""
        return accounting.Statement.from_dict(self.facts["statement"])

    def predict(self, inputs: Any) -> np.ndarray:
        """The most probable class of each input: its name, or its number where classes are numbered."""
        return self.student.predict(inputs)

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """The probability of each class for each input, in the order of `student.class_names`.

        Inputs are given in any form that the run took; labels, ids and other columns are not read.
        """
        return self.student.predict_proba(inputs)

    def __str__(self) -> str:
        return summary(self.facts, self.statement)
