"""What a finished run is in Python: its student, its privacy statement and where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.data import frames
from pate_jax.data.dataset import class_names_of
from pate_jax.runs.report.summary import summary
from pate_jax.student import Student, serving


@dataclass(frozen=True)
class Result:
    """A finished run. Only `directory / "release"`, the student and the statement may be published."""

    directory: Path
    facts: Mapping[str, Any] = field(repr=False)  # as the last line of `pate run --json` shows them, and more

    @cached_property
    def student(self) -> Student:
        """The student, which takes arrays of inputs."""
        return Student.load(self.directory)

    @cached_property
    def statement(self) -> accounting.Statement:
        """What the run costs, and whom its guarantee covers."""
        return accounting.Statement.from_dict(self.facts["statement"])

    def predict(self, inputs: Any) -> np.ndarray:
        """The most probable class of each input: its name, or its number where classes are numbered."""
        names = self.student.class_names
        best: np.ndarray = self.predict_proba(inputs).argmax(1)
        return best if names == class_names_of(len(names)) else np.array(names)[best]

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """The probability of each class for each input, in the order of `student.class_names`.

        Inputs are given in any form that the run took; labels, ids and other columns are not read.
        """
        if isinstance(inputs, str | Path):
            return self.student(serving.read_inputs(self.student, inputs)[0])
        content = frames.read(inputs, "inputs")
        if isinstance(content.get("inputs"), np.ndarray):
            return self.student(np.asarray(content["inputs"]))
        return self.student(serving.encoded(self.student, content, "inputs"))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return summary(self.facts, self.statement)
