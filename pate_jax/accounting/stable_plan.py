"""How many answers a list of stable answers may expect at a budget, before any private vote is cast.

Expectations come from a model of votes or from public or synthetic votes (`vote_models`), like those of
`planning`, and are no part of the guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting import stable
from pate_jax.accounting.planning import Votes
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers, distance, to_dict

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)


class Outlook(NamedTuple):
    """The best cutoff and what to expect of it."""

    mechanism: StableAnswers | None  # None if no reading can reach the threshold of any cutoff
    least_lead: int  # by which the plurality must lead so that a whole list is likely to be answered
    unstable: float  # the share of queries that lead by less
    answers: float  # expected number, all of them exact

    @property
    def flags(self) -> str:
        """What chooses this list on the command line; empty if there is none.

        >>> Outlook(StableAnswers(threshold=40, scale=3.0, cutoff=1), 139, 0.1, 9.0).flags
        'stable-answers --cutoff 1 --threshold 40 --scale 3.0'
        """
        found = self.mechanism
        if found is None:
            return ""
        return f"{found.name} --cutoff {found.cutoff} --threshold {found.threshold} --scale {found.scale!r}"

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "mechanism": None if self.mechanism is None else to_dict(self.mechanism),
            "least_lead": self.least_lead,
            "unstable": self.unstable,
            "answers": self.answers,
            "flags": self.flags,
        }

    def text(self, teachers: int, worth: float) -> str:
        """Whether they win, and where, beside what the answers of noisy counts are worth in right ones."""
        if self.mechanism is None:
            return (
                f"Stable answers (docs/stable.md) would hardly ever answer: {teachers:,} votes are too few "
                "for their threshold at this epsilon."
            )
        said = (
            f"Stable answers (docs/stable.md) would give about {self.answers:,.1f} exact ones at this "
            f"epsilon to queries in random order,\n{{}} than the {worth:,.0f} right ones that the answers "
            f"above are worth: {self.unstable:.1%} of the queries lead by less than\n{self.least_lead:,} "
            f"votes, and the list ends after {self.mechanism.cutoff:,} of them. "
        )
        if self.answers > worth:
            return said.format("more") + f"Here they win: {self.flags}"
        return said.format("fewer") + (
            f"They win where a list of easy queries, chosen without the\nvotes, has more than {worth:,.0f} "
            f"that all lead by so much: {self.flags}"
        )


def outlook(
    models: Sequence[Votes],
    *,
    teachers: int,
    shard: int,
    classes: int,
    queries: int,
    budget: float,
    delta: float,
) -> Outlook:
    """The cutoff with the most expected answers, on queries in random order; a mean over the models.

    A list of queries of which a share r is unstable meets the u-th of these after about `u/r` queries.

    >>> from pate_jax.accounting.vote_models import MODELS
    >>> goal = {"shard": 240, "classes": 10, "queries": 2000, "budget": 1.0, "delta": 1e-5}
    >>> found = outlook(MODELS[:1], teachers=250, **goal)
    >>> found.mechanism.cutoff, found.answers < 20
    (1, True)
    >>> outlook(MODELS[:1], teachers=50, **goal).mechanism is None
    True
    """
    random = np.random.default_rng(7)
    votes = [random.multinomial(teachers, model.shares(shard, classes)) for model in models]
    readings = np.concatenate([distance(counts) for counts in votes])
    best = Outlook(None, teachers, 1.0, 0.0)
    for cutoff in CUTOFFS:
        if cutoff > 1 and best.mechanism is None:
            break
        try:
            mechanism = stable.calibrate(budget, delta, cutoff)
        except PateError:  # it needs a larger scale than noise has, and so does every larger cutoff
            break
        if mechanism.threshold > teachers // 2:
            break
        least = stable.least_distance(mechanism, queries)
        share = float(np.mean(readings < least))
        answers = min(queries, cutoff / max(share, 1e-12)) * (1 - share)
        if best.mechanism is None or answers > best.answers:
            best = Outlook(mechanism, 2 * least + 1, share, answers)
    return best
