"""Cells: one setting, of one source of votes, for one number of queries and one student, with its digest.

The digest covers what decides a cell's outcome and nothing else, so a cell is the same on every worker and
in every order.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pate_jax.mechanisms import Mechanism, to_dict

_FORM = 2  # of the digest; a change of what a cell means gets a new number


@dataclass(frozen=True)
class Cell:
    """One setting to be judged."""

    source: str  # digest of the votes, or of the data and the teachers that make them
    teachers: int
    mechanism: Mechanism
    queries: int
    delta: float
    seed: int
    student: str | None = None  # how the student learns; None: labels only
    lesson: str = ""  # digest of the student's other settings

    @property
    def digest(self) -> str:
        """The digest of everything that decides the outcome.

        >>> from pate_jax.mechanisms import GNMax
        >>> cell = Cell("votes", 250, GNMax(40.0), 100, 1e-5, 0)
        >>> len(cell.digest), cell.digest == Cell("votes", 250, GNMax(40.0), 100, 1e-5, 1).digest
        (32, False)
        """
        return digest(
            {
                "form": _FORM,
                "source": self.source,
                "mechanism": _floats(to_dict(self.mechanism)),
                "queries": self.queries,
                "delta": self.delta,
                "seed": self.seed,
                "student": self.student,
                "lesson": self.lesson,
            }
        )

    def taught(self, student: str, lesson: str) -> Cell:
        """The same setting with a student that learns from its answers."""
        return dataclasses.replace(self, student=student, lesson=lesson)

    def words(self, purpose: str) -> np.ndarray:
        """Eight words for a key: the same for all cells that differ in queries, delta or student only."""
        parts = (
            purpose,
            self.source,
            json.dumps(_floats(to_dict(self.mechanism)), sort_keys=True),
            self.seed,
        )
        text = "\n".join(str(part) for part in parts)
        return np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint32)


def digest(body: Mapping[str, Any]) -> str:
    """The first 32 digits of the SHA-256 of a JSON object."""
    text = json.dumps(body, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def cells_of(
    source: str, teachers: int, asked: Iterable[tuple[Mechanism, int]], *, delta: float, seed: int
) -> list[Cell]:
    """The cells of one source of votes, each once, in an order that never varies."""
    cells = (Cell(source, teachers, mechanism, queries, delta, seed) for mechanism, queries in asked)
    return list({cell.digest: cell for cell in cells}.values())


def _floats(description: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name == "name" else float(value) for name, value in description.items()}
