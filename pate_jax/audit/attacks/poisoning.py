"""How many bad teachers or voters it takes to change an answer: what the votes, or the table, certify.

A teacher that changes its vote takes 1 from the leader and gives 1 to a rival: the lead falls by 2 at most.
So k teachers cannot change a plurality whose lead is 2k + 1 or more, whatever their records are. A record
lies with one teacher, so k bad records (or users, where shards are cut by user) reach k teachers at most. The
answer that is released is the plurality with noise, which changes a close one anyway. In a crowd each record
or user votes, and `leads` tells how far one of them moves a score.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

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
