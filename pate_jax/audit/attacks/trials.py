"""What bad records did in trials, beside what the certificate says that they cannot do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from pate_jax.audit.attacks.attack import OF_RECORDS, OF_VOTES
from pate_jax.audit.attacks.poisoning import Certified
from pate_jax.audit.attacks.poisons import PLACEMENTS, POISONS, TARGET, Placement, Poison


class Marked(NamedTuple):
    """How often marked inputs, which have another label unmarked, get that of the trigger."""

    share: float
    before: float  # without bad records


class Trial(NamedTuple):
    """What came of some bad records; `None` where it was not tried."""

    poison: Poison
    placed: Placement
    bad: int  # records, or users
    reached: int  # teachers, or voters
    flipped: float  # share of labels, without noise or with the run's own, that changed
    may_flip: float  # the most that the certificate allows
    broken: int  # labels that changed though they were certified not to: 0, or the certificate is wrong
    answers: float  # share of answers that changed, with the same noise and all that follows from the table
    trigger: Marked | None  # of the vote
    student: Marked | None  # of the student that learned from these answers

    @property
    def planted(self) -> bool:
        """Whether half of the marked inputs or more get the trigger's label from the vote."""
        return self.trigger is not None and self.trigger.share >= 0.5 > self.trigger.before

    def sentence(self) -> str:
        """What it says, for people."""
        found = (
            f"{self.bad:,} bad ({self.poison}, {self.placed}, {self.reached:,} reached): "
            f"{self.flipped:.2%} of the labels change, {self.may_flip:.2%} might, "
            f"and {self.answers:.2%} of the answers"
        )
        for who, marked in (("the vote", self.trigger), ("the student", self.student)):
            if marked is not None:
                found += f"; {who} takes the trigger in {marked.share:.1%} ({marked.before:.1%} without)"
        return (
            f"{found}. THE CERTIFICATE IS WRONG for {self.broken}: report it." if self.broken else f"{found}."
        )


class Targeted(NamedTuple):
    """How few flipped labels change one answer, if the records that tell most are chosen for it."""

    answers: int  # that were tried
    certified: float  # bad voters that the median answer withstands
    needed: float  # flipped labels that change the median answer; inf where all do not
    broken: int  # answers that changed though they were certified not to

    def sentence(self) -> str:
        """What it says, for people."""
        found = (
            f"of {self.answers:,} answers, each attacked by itself, the median one withstands "
            f"{self.certified:,.0f} bad voters by certificate and needs {self.needed:,.0f} flipped labels, "
            "those that tell most"
        )
        return (
            f"{found}. THE CERTIFICATE IS WRONG for {self.broken}: report it." if self.broken else f"{found}."
        )


class Poisoned(NamedTuple):
    """Certificates, and trials beside them."""

    tables: list[Certified]  # one of the votes, or one of each round
    trials: list[Trial]
    targeted: list[Targeted]

    @property
    def holds(self) -> bool:
        """Whether nothing changed that was certified not to."""
        return not sum(one.broken for one in self.trials) + sum(one.broken for one in self.targeted)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        first = self.tables[0].to_dict()
        more = {"rounds": [one.to_dict() for one in self.tables[1:]]} if len(self.tables) > 1 else {}
        trials = [{**one._asdict(), "trigger": _pair(one.trigger), "student": _pair(one.student)}
                  for one in self.trials]  # fmt: skip
        needed = {"targeted": [one._asdict() for one in self.targeted]} if self.targeted else {}
        return {**first, "warning": self.warning, **more, "target": TARGET, "trials": trials, **needed}

    @property
    def warning(self) -> str:
        """What it was computed from."""
        return OF_RECORDS if self.trials or self.targeted else OF_VOTES

    def text(self) -> str:
        """For a terminal."""
        lines = [f"poisoning ({self.warning}): {one.sentence()}." for one in self.tables]
        lines += [f"  {one.sentence()}" for one in self.targeted]
        lines += [f"  {one.sentence()}" for one in self.trials]
        return "\n".join([*lines, *(f"  {one}" for one in self.planted())])

    def planted(self) -> list[str]:
        """From how many bad records on the trigger is planted in the vote, for people."""
        return [line for placed in PLACEMENTS if (line := _from(self.trials, placed)) is not None]


def _pair(marked: Marked | None) -> dict[str, float] | None:
    return None if marked is None else marked._asdict()


def _from(trials: Sequence[Trial], placed: Placement) -> str | None:
    tried = [one for one in trials if one.placed == placed and one.trigger is not None]
    if not tried:
        return None
    least = min((one.bad for one in tried if one.planted), default=None)
    if least is None:
        return f"{max(one.bad for one in tried):,} bad records {placed} do not plant the trigger in the vote."
    return f"{least:,} bad records {placed} plant the trigger in the vote."


def marked(
    said: Int[np.ndarray, " input"], before: Int[np.ndarray, " input"], plain: Int[np.ndarray, " input"]
) -> Marked:
    """The shares of marked inputs with the trigger's label, of those that have another one unmarked.

    >>> marked(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([0, 1, 2]))
    Marked(share=0.5, before=0.0)
    """
    others = plain != TARGET
    if not others.any():
        return Marked(0.0, 0.0)
    return Marked(float((said[others] == TARGET).mean()), float((before[others] == TARGET).mean()))


def compared(
    most: Int[np.ndarray, " query"], changed: Bool[np.ndarray, " query"], reached: int
) -> tuple[float, float, int]:
    """The share that changed, the share that might have, and how many did though they could not."""
    certain = most >= reached
    return float(changed.mean()), float((~certain).mean()), int((changed & certain).sum())


def kinds() -> list[tuple[Poison, Placement]]:
    """Every poison in every placement."""
    return [(poison, placement) for poison in POISONS for placement in PLACEMENTS]
