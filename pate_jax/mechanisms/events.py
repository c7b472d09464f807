"""What a run releases. An event says enough for any accountant, and nothing of what it costs.

Noisy answers of teachers are one event, whatever their number; each noisy table or number of a crowd is one
(`crowds`). A line of a ledger holds one, and so does the name of its noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import CrowdRelease
from pate_jax.mechanisms.stable import AnyMechanism


@dataclass(frozen=True)
class Answers:
    """Noisy answers of so many teachers to the first queries of a list, as many as were asked.

    >>> from pate_jax.mechanisms import GNMax
    >>> Answers(GNMax(40.0), teachers=250, classes=10, asked=500).name
    'answers'
    """

    name: ClassVar[str] = "answers"
    mechanism: AnyMechanism
    teachers: int
    classes: int
    asked: int

    def __post_init__(self) -> None:
        for field in ("teachers", "classes", "asked"):
            if getattr(self, field) < 0:
                raise PateError(f"{field}={getattr(self, field)} of answers must be at least 0")


Event = Answers | CrowdRelease
