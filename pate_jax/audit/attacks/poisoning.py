"""How many bad teachers, and so how many bad records, it takes to change what the teachers agree on.

A teacher that changes its vote takes 1 from the leader and gives 1 to a rival: the lead falls by 2 at most.
So k teachers cannot change a plurality whose lead is 2k + 1 or more, whatever their records are. A record
lies with one teacher, so k bad records (or users, where shards are cut by user) reach k teachers at most. The
answer that is released is the plurality with noise, which changes a close one anyway.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.audit.attacks.attack import OF_VOTES, Attack, Flags
from pate_jax.runs import answers
from pate_jax.runs.crowds.inputs import is_crowd
from pate_jax.runs.directory import RunDirectory

WITHSTOOD = (1, 2, 5, 10, 20, 50)


class Certified(NamedTuple):
    """What votes prove about bad teachers. It is sensitive, as the votes are."""

    queries: int
    median: int  # bad teachers that half of the pluralities or more withstand
    shares: dict[int, float]  # of pluralities that so many bad teachers cannot change

    @property
    def holds(self) -> bool:
        """It is a certificate: nothing that it counts is a mistake."""
        return True

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        shares = {str(bad): share for bad, share in self.shares.items()}
        return {"warning": OF_VOTES, **self._asdict(), "shares": shares}

    def text(self) -> str:
        """For a terminal."""
        return f"poisoning ({OF_VOTES}): {self.sentence()}."

    def sentence(self) -> str:
        """What it says, for people."""
        shown = ", ".join(f"{share:.1%} withstand {bad}" for bad, share in self.shares.items())
        return (
            f"of {self.queries:,} pluralities {shown} bad records, whatever these hold; half of them or more "
            f"withstand {self.median}"
        )


def certified(votes: Int[np.ndarray, "query class"]) -> Certified:
    """The certificate of some votes.

    >>> found = certified(np.array([[9, 1, 0], [5, 4, 1]]))
    >>> found.shares[1], found.shares[5], found.median
    (0.5, 0.0, 0)
    """
    most = withstood(votes)
    shares = {bad: float((most >= bad).mean()) for bad in WITHSTOOD}
    return Certified(len(votes), int(np.quantile(most, 0.5, method="lower")), shares)


def withstood(votes: Int[np.ndarray, "query class"]) -> Int[np.ndarray, " query"]:
    """How many bad teachers cannot change each plurality; -1 where there is none, but a tie.

    >>> withstood(np.array([[9, 1, 0], [5, 4, 1], [5, 5, 0], [7, 4, 1]])).tolist()
    [3, 0, -1, 1]
    """
    ranked = np.sort(votes, axis=1)
    found: np.ndarray = (ranked[:, -1] - ranked[:, -2] + 1) // 2 - 1
    return found


def unfit(run: RunDirectory) -> str | None:
    """Why nothing of a run can be certified: it has no teachers."""
    if not is_crowd(run):
        return None
    return f"{run.root} has no teachers, so no agreement of theirs withstands anything: leave out --only"


def of_run(run: RunDirectory, flags: Flags) -> Certified:
    """The certificate of a run's votes."""
    return certified(answers.load_asked(run).votes)


ATTACK = Attack("poisoning", unfit, of_run)
