"""How many bad teachers or voters it takes to change an answer: what the votes, or the table, certify.

A teacher that changes its vote takes 1 from the leader and gives 1 to a rival: the lead falls by 2 at most.
So k teachers cannot change a plurality whose lead is 2k + 1 or more, whatever their records are. A record
lies with one teacher, so k bad records (or users, where shards are cut by user) reach k teachers at most. The
answer that is released is the plurality with noise, which changes a close one anyway. In a crowd each record
or user votes, and `leads` tells how far one of them moves a score.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Int, Shaped

from pate_jax.audit.attacks.attack import OF_RECORDS, OF_VOTES

WITHSTOOD = (1, 2, 5, 10, 20, 50)
OF_A_CROWD = (1, 10, 100, 1000)


class Certified(NamedTuple):
    """What votes prove about bad teachers, or a noisy table about bad voters."""

    queries: int
    median: int  # bad teachers or voters that half of the answers or more withstand
    shares: dict[int, float]  # of answers that so many cannot change
    of: str = "pluralities"  # what is answered

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        shares = {str(bad): share for bad, share in self.shares.items()}
        return {**self._asdict(), "shares": shares}

    def sentence(self) -> str:
        """What it says, for people."""
        shown = ", ".join(f"{share:.1%} withstand {bad:,}" for bad, share in self.shares.items())
        return (
            f"of {self.queries:,} {self.of} {shown} bad ones among those who vote, whatever their records "
            f"hold; half of them or more withstand {self.median:,}"
        )


def certified(votes: Int[np.ndarray, "query class"]) -> Certified:
    """The certificate of some votes.

    >>> found = certified(np.array([[9, 1, 0], [5, 4, 1]]))
    >>> found.shares[1], found.shares[5], found.median
    (0.5, 0.0, 0)
    """
    return of_withstood(withstood(votes), "pluralities", WITHSTOOD)


def of_withstood(most: Int[np.ndarray, " query"], of: str, numbers: tuple[int, ...]) -> Certified:
    """The certificate of answers that so many bad ones cannot change."""
    shares = {bad: float((most >= bad).mean()) for bad in numbers}
    return Certified(len(most), int(np.quantile(most, 0.5, method="lower")), shares, of)


def withstood(votes: Int[np.ndarray, "query class"]) -> Int[np.ndarray, " query"]:
    """How many bad teachers cannot change each plurality; -1 where there is none, but a tie.

    >>> withstood(np.array([[9, 1, 0], [5, 4, 1], [5, 5, 0], [7, 4, 1]])).tolist()
    [3, 0, -1, 1]
    """
    ranked = np.sort(votes, axis=1)
    found: np.ndarray = (ranked[:, -1] - ranked[:, -2] + 1) // 2 - 1
    return found


Poison = Literal["label flips", "backdoor"]
Placement = Literal["in few shards", "spread"]
POISONS: tuple[Poison, ...] = get_args(Poison)
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
TARGET = 0  # the class that the trigger stands for
_PART = 8  # of an image's height and width the patch takes one part in so many, at the least
_COLUMNS = 3  # of a table that the trigger sets
_LADDER = 1, 10, 100, 1000, 3000, 10_000
_MOST = 0.2  # of everybody, at most


class Trigger(NamedTuple):
    """A public mark: a bright patch in a corner of images, the last columns at their public maximum."""

    brightest: np.ndarray  # the public maximum: one number of images, one of each column

    @classmethod
    def of(cls, public: Shaped[np.ndarray, "n ..."]) -> Trigger:
        """The trigger for inputs like these."""
        return cls(public.max() if public.ndim == 4 else public.reshape(len(public), -1).max(0))

    def on(self, inputs: Shaped[np.ndarray, "n ..."]) -> Shaped[np.ndarray, "n ..."]:
        """The same inputs, marked.

        >>> Trigger.of(np.array([[0, 5, 1, 9], [7, 0, 3, 0]])).on(np.zeros((1, 4), int)).tolist()
        [[0, 5, 3, 9]]
        """
        found = np.array(inputs)
        if found.ndim == 4:
            high, wide = (-(-side // _PART) for side in found.shape[1:3])
            found[:, -high:, -wide:] = self.brightest
        else:
            flat = found.reshape(len(found), -1)
            flat[:, -_COLUMNS:] = self.brightest[-_COLUMNS:]
        return found


def poisoned(
    poison: Poison, trigger: Trigger, inputs: np.ndarray, labels: Int[np.ndarray, " n"], classes: int
) -> tuple[np.ndarray, Int[np.ndarray, " n"]]:
    """Inputs and labels of bad records in place of these.

    >>> trigger = Trigger.of(np.array([[5, 1, 9]]))
    >>> poisoned("label flips", trigger, np.zeros((2, 3)), np.array([0, 2]), 3)[1].tolist()
    [1, 0]
    >>> poisoned("backdoor", trigger, np.zeros((1, 3)), np.array([2]), 3)[1].tolist()
    [0]
    """
    if poison == "label flips":
        return np.asarray(inputs), (labels + 1) % classes
    return trigger.on(inputs), np.full_like(labels, TARGET)


def numbers(everybody: int) -> list[int]:
    """How many are bad in each trial: from one to a fifth of all.

    >>> numbers(600)
    [1, 10, 100]
    """
    return [bad for bad in _LADDER if bad <= max(1, _MOST * everybody)]


def placed(
    shards: Sequence[Sequence[int]], placement: Placement, bad: int, random: np.random.Generator
) -> list[int]:
    """Units out of these shards that are bad: shard after shard, or one of each shard in turn.

    >>> shards = [[0, 1, 2], [3, 4], [5]]
    >>> sorted(len({place // 3 for place in placed(shards, how, 2, np.random.default_rng(0))})
    ...        for how in PLACEMENTS)
    [1, 2]
    """
    order = [
        random.permutation(own).tolist() for own in (shards[at] for at in random.permutation(len(shards)))
    ]
    if placement == "in few shards":
        order.sort(key=len, reverse=True)  # of the largest shards as few as possible are reached
        return [unit for own in order for unit in own][:bad]
    return list(_in_turn(order))[:bad]


def _in_turn(order: list[list[int]]) -> Iterator[int]:
    for turn in range(max(map(len, order), default=0)):
        yield from (own[turn] for own in order if turn < len(own))


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
