"""All that a run may ever spend, as a register writes it down before; and what several runs cost together.

Relations are ordered: a run by party spends on each user of the party, one by user on each record of the
user, and one by record on the contents of the record, each as much as it promises. So all runs have a sum for
the narrowest relation among them. For a wider one some promise nothing, and no sum of the others is given: a
run by record promises nothing for a user of several records, one by contents nothing for a record that is
removed. This holds as long as no record belongs to two users or two parties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

from pate_jax.accounting import costs, filter, stable
from pate_jax.accounting.after_count import Limit
from pate_jax.accounting.costs import AnyEvent, Tables, Trained
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.inputs import Curve
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers

_UP = 1 + 1e-9  # what may be spent is rounded up


class Plan(NamedTuple):
    """All events of a run, and whom its guarantee covers; mostly one, or a number of voters and answers."""

    events: tuple[AnyEvent, ...]
    relation: str

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of all events."""
        total = np.sum([costs.curve(event, orders) for event in self.events], axis=0)
        return np.asarray(total * (_UP if len(self.events) > 1 else 1), np.float64)

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        return sum(costs.strays(event) for event in self.events)

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        first, *rest = (costs.cost(event, order) for event in self.events)
        for one in rest:
            first = first.plus(one)
        return first

    def covers(self, other: Plan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        if len(self.events) != len(other.events) or other.relation not in ("", self.relation):
            return False
        return all(map(_allows, self.events, other.events))


def _allows(mine: AnyEvent, other: AnyEvent) -> bool:
    """Whether an event that a run was entered with stands for another one."""
    match mine, other:
        case Answers(), Answers():
            return replace(mine, asked=other.asked) == other and mine.asked >= other.asked
        case Tables(), Tables():
            # where voters are to be chosen, a run begins as neighbours, whose number has the most noise
            return mine.voters in (other.voters, "neighbours") and mine.mu * _UP >= other.mu
        case HeadCount(), HeadCount():
            return replace(mine, sigma=other.sigma) == other and mine.sigma <= other.sigma * _UP
    return mine == other


def of_answers(wished: Answers, most: tuple[float, float] | None, limit: Limit | None, relation: str) -> Plan:
    """The plan of the answers that a run may give: its list, or what its budget (epsilon, delta) affords.

    >>> from pate_jax.mechanisms import GNMax
    >>> wished = Answers(GNMax(40.0), teachers=250, classes=10, asked=500)
    >>> of_answers(wished, (1.0, 1e-5), None, "record").events[0].asked
    75
    """
    of = {"teachers": wished.teachers, "classes": wished.classes}
    if isinstance(wished.mechanism, StableAnswers):
        wished = replace(wished, asked=stable.MOST_QUERIES)
    elif most is not None:
        affordable = filter.affordable(wished.mechanism, **of, epsilon=most[0], delta=most[1])
        wished = replace(wished, asked=affordable)
    return beside(limit, wished, relation)


def beside(limit: Limit | None, event: Answers, relation: str) -> Plan:
    """The plan of answers, with the number of voters that chose them, if one did."""
    return Plan((event,) if limit is None else (limit.headcount, event), relation)


def kept(before: Sequence[Plan], answered: int, plan: Plan) -> tuple[Plan, ...]:
    """Which earlier plans of a run still count beside a new one: those under which something was answered.

    A run that begins as a crowd and has told its number of voters, alone, may go on as teachers: the new plan
    has that number in it, and nothing else was answered under the earlier one.
    """
    if not answered or (answered == 1 and isinstance(plan.events[0], HeadCount)):
        return ()
    return tuple(before)


def from_json(described: Any) -> Plan:
    """The plan of any kind of run that a register holds."""
    try:
        plan = cast(Plan, from_dict(Plan, described, "plan"))
        if not (plan.events and all(map(_is_possible, plan.events))):
            raise PateError("its numbers are none of a run")
    except PateError as error:
        raise PateError(
            f"plan={described!r} is none that a run was ever entered with: restore the file ({error})"
        ) from error
    return plan


def _is_possible(event: AnyEvent) -> bool:
    """Whether the numbers of an event are some that a run can have."""
    if isinstance(event, Tables):
        return 0 < event.mu < 1e6
    if isinstance(event, Trained):
        rate, steps, noise = event.training
        return 0 < rate <= 1 and noise > 0 and all(0 < one < 1 << 62 for one in (steps, event.draws))
    return True


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


def sums(plans: Sequence[Plan], delta: float) -> list[Sum]:
    """The sum for each relation of some runs, the narrowest first, which is the one that all have part in.

    >>> from pate_jax.accounting.costs import Tables
    >>> both = sums([Plan((Tables(0.2, "sums"),), relation) for relation in ("record", "user")], 1e-5)
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
