"""What several runs cost together, and for whom: no run that spends on somebody is left out of a sum.

Relations are ordered: a run by party spends on each user of the party, one by user on each record of the
user, and one by record on the contents of the record, each as much as it promises. So all runs have a sum for
the narrowest relation among them. For a wider one some promise nothing, and no sum of the others is given: a
run by record promises nothing for a user of several records, one by contents nothing for a record that is
removed. This holds as long as no record belongs to two users or two parties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pate_jax.accounting import costs, filter
from pate_jax.runs.plans import Plan

NARROWEST_FIRST = ("contents", "record", "user", "party")
WHOM = {
    "record": "one record",
    "user": "one user",
    "contents": "the contents of one record",
    "party": "all that one party holds",
}
_CLOSER = 1e-9  # relative: what is spent is rounded up


class Sum(NamedTuple):
    """What some runs cost together for one relation; epsilon is None where no finite one holds."""

    relation: str
    epsilon: float | None
    delta: float
    silent: int  # how many of the runs promise nothing for this relation

    def text(self) -> str:
        """The sum in words, without the runs.

        >>> Sum("record", 2.4412, 1e-5, 0).text()
        'epsilon 2.45 at delta 1e-05, for one record'
        """
        epsilon = "no finite epsilon" if self.epsilon is None else f"epsilon {rounded(self.epsilon):.2f}"
        return f"{epsilon} at delta {self.delta:g}, for {WHOM[self.relation]}"


def rounded(epsilon: float) -> float:
    """Epsilon with two decimals, rounded up."""
    return math.ceil(epsilon * 100 * (1 - _CLOSER)) / 100


def of(plans: Sequence[Plan], delta: float) -> list[Sum]:
    """The sum for each relation of some runs, the narrowest first, which is the one that all have part in.

    >>> from pate_jax.accounting.costs import Tables
    >>> both = of([Plan((Tables(0.2, "sums"),), relation) for relation in ("record", "user")], 1e-5)
    >>> [(one.relation, one.epsilon is None, one.silent) for one in both]
    [('record', False, 0), ('user', True, 1)]
    """
    there = [one for one in NARROWEST_FIRST if one in {plan.relation for plan in plans}]
    width = {relation: number for number, relation in enumerate(NARROWEST_FIRST)}
    silent = {one: sum(width[plan.relation] < width[one] for plan in plans) for one in there}
    return [Sum(one, None if silent[one] else together(plans, delta), delta, silent[one]) for one in there]


def together(plans: Sequence[Plan], delta: float) -> float | None:
    """Epsilon of several runs together, whatever the records; None where none is finite.

    >>> from pate_jax.mechanisms import GNMax
    >>> from pate_jax.mechanisms.events import Answers
    >>> one = Plan((Answers(GNMax(40.0), 250, 10, 100),), "record")
    >>> together([one], 1e-5) < together([one, one], 1e-5) < 2 * together([one], 1e-5)
    True
    """
    return costs.epsilon([event for plan in plans for event in plan.events], delta)


def cost(plans: Sequence[Plan], order: float) -> filter.Cost:
    """What several runs cost at one order."""
    total = filter.NOTHING
    for one in plans:
        total = total.plus(one.cost(order))
    return total
