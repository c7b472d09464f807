"""What bad records hold, and where they lie: flipped labels or a backdoor, in few shards or spread out.

The attacker of these trials writes some of the private records before a run, as somebody can who delivers
data. A label flip gives a record the next class. A backdoor adds a public trigger to the input, and gives it
the label that the attacker wants to see wherever the trigger comes back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Int, Shaped

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
