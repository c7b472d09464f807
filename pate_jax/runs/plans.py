"""All that a run may ever spend, as a register writes it down before the run spends anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting import curves, filter, parties, repetitions, sampled_noise, stable
from pate_jax.accounting.after_count import Limit
from pate_jax.accounting.exact import counts
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.slack import sampler_slack
from pate_jax.accounting.tuning import Tuned
from pate_jax.errors import PateError
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, HeadCount
from pate_jax.mechanisms.descriptions import Noise
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers, from_dict, to_dict

Curve = NDArray[np.float64]
_UP = 1 + 1e-9  # what may be spent is rounded up
_CELLS = 1 << 30  # of a crowd's tables, at most: a ledger's line holds fewer


def answers(
    mechanism: AnyMechanism,
    *,
    teachers: int,
    classes: int,
    queries: int,
    most: tuple[float, float] | None,
) -> int:
    """The number of answers that a run may give: its list, or what its budget (epsilon, delta) affords.

    >>> from pate_jax.mechanisms import GNMax
    >>> answers(GNMax(40.0), teachers=250, classes=10, queries=500, most=(1.0, 1e-5))
    75
    """
    if isinstance(mechanism, StableAnswers):
        return stable.MOST_QUERIES
    if most is None:
        return queries
    epsilon, delta = most
    return filter.affordable(mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)


class Plan(NamedTuple):
    """A number of answers of one mechanism, and whom the run's guarantee covers."""

    mechanism: AnyMechanism
    teachers: int
    classes: int
    queries: int
    relation: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self._asdict(), "mechanism": to_dict(self.mechanism)}

    @classmethod
    def from_dict(cls, described: Any) -> Plan:
        """The plan that `to_dict` described."""
        if not (isinstance(described, dict) and {*described} == set(cls._fields)):
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        return cls(**{**described, "mechanism": from_dict(described["mechanism"])})

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of all its answers."""
        if isinstance(self.mechanism, StableAnswers):
            return stable.curve(self.mechanism, orders)
        one = curves.data_independent(self.mechanism, self.teachers, self.classes, orders)[0]
        return np.asarray(self.queries * one, np.float64)

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        if isinstance(self.mechanism, StableAnswers):
            return stable.strays(self.mechanism)
        return sampler_slack(self.mechanism, self.queries, self.classes)

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        if isinstance(self.mechanism, StableAnswers):
            return Cost(float(self.curve(np.array([order]))[0]), self.strays())
        each = filter.cost(self.mechanism, teachers=self.teachers, classes=self.classes, order=order)
        return each.times(self.queries)

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        mine = isinstance(other, Plan) and self[:3] == other[:3] and self.queries >= other.queries
        return mine and other.relation in ("", self.relation)


class CrowdPlan(NamedTuple):
    """The noisy tables of a crowd, all of them together, in Gaussian differential privacy."""

    mu: float
    voters: str
    relation: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"crowd": self._asdict()}

    @classmethod
    def from_dict(cls, described: Any) -> CrowdPlan:
        """The plan that `to_dict` described."""
        found = described.get("crowd") if isinstance(described, dict) and len(described) == 1 else None
        if not (isinstance(found, dict) and set(found) == set(cls._fields)):
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        plan = cls(**found)
        texts = isinstance(plan.voters, str) and isinstance(plan.relation, str)
        if not texts or type(plan.mu) is not float or not 0 < plan.mu < 1e6:
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        return plan

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of Gaussian differential privacy: `a mu^2 / 2`."""
        return np.asarray(orders * self.mu**2 / 2 * _UP, np.float64)

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        return _CELLS * laws.distance(Noise("rounded_gaussian", LARGEST_SIGMA))

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        return Cost(order * self.mu**2 / 2 * _UP, self.strays())

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        if not isinstance(other, CrowdPlan):
            return False
        # where voters are to be chosen, a run begins as neighbours, whose number has the most noise
        same = self.voters in (other.voters, "neighbours") and other.relation in ("", self.relation)
        return same and self.mu * _UP >= other.mu


class CountedPlan(NamedTuple):
    """A noisy number of voters, and the answers of teachers that were chosen by it."""

    sigma: float  # of the noise in the number
    answers: Plan

    @property
    def relation(self) -> str:
        """Whom the run covers."""
        return self.answers.relation

    @property
    def number(self) -> HeadCount:
        """The number of voters."""
        return HeadCount(self.sigma)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"counted": {"sigma": self.sigma, "answers": self.answers.to_dict()}}

    @classmethod
    def from_dict(cls, described: Any) -> CountedPlan:
        """The plan that `to_dict` described."""
        found = described.get("counted") if isinstance(described, dict) and len(described) == 1 else None
        if not (isinstance(found, dict) and set(found) == set(cls._fields)):
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        plan = cls(found["sigma"], Plan.from_dict(found["answers"]))
        plan.number  # noqa: B018  # refused where it is none
        return plan

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of the number and all answers."""
        number = counts.rdp(self.number, orders, change="joined")
        return np.asarray((self.answers.curve(orders) + number) * _UP, np.float64)

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        return self.answers.strays() + counts.slack_of([self.number])

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        return self.answers.cost(order).plus(counts.cost(self.number, order))

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        same = isinstance(other, CountedPlan) and self.sigma <= other.sigma * _UP
        return same and isinstance(other, CountedPlan) and self.answers.covers(other.answers)


class PartyPlan(NamedTuple):
    """What this party's voters may lose by one vote among parties, against the audience that learns most."""

    vote: SharedVote
    relation: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"party": {**self._asdict(), "vote": dataclasses.asdict(self.vote)}}

    @classmethod
    def from_dict(cls, described: Any) -> PartyPlan:
        """The plan that `to_dict` described."""
        found = described.get("party") if isinstance(described, dict) and len(described) == 1 else None
        if not (
            isinstance(found, dict) and set(found) == set(cls._fields) and isinstance(found["vote"], dict)
        ):
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        vote = dict(found["vote"])
        vote["voters_of_parties"] = tuple(vote.get("voters_of_parties", ()))
        try:
            return cls(SharedVote(**vote), str(found["relation"]))
        except TypeError as error:
            raise PateError(f"plan={described!r} is no vote among parties: restore the file") from error

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of what is opened."""
        unit = cast(parties.Unit, self.relation)
        return np.array([parties.cost(self.vote, float(order), unit=unit).rdp for order in orders])

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        return parties.slack(self.vote)

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        return parties.cost(self.vote, order, unit=cast(parties.Unit, self.relation))

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        return isinstance(other, PartyPlan) and self[:2] == other[:2]


class TunePlan(NamedTuple):
    """A choice of settings: the best of several candidates, each of them Gaussian differentially private."""

    tuned: Tuned
    relation: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"tune": {**self._asdict(), "tuned": self.tuned.to_dict()}}

    @classmethod
    def from_dict(cls, described: Any) -> TunePlan:
        """The plan that `to_dict` described."""
        found = described.get("tune") if isinstance(described, dict) and len(described) == 1 else None
        if not (
            isinstance(found, dict) and set(found) == set(cls._fields) and isinstance(found["tuned"], dict)
        ):
            raise PateError(f"plan={described!r} is none that a run was ever entered with: restore the file")
        return cls(Tuned.from_dict(found["tuned"]), str(found["relation"]))

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of the best candidate."""
        one = orders * self.tuned.mu**2 / 2 * _UP
        return repetitions.best_of(self.tuned.law, orders, one) * _UP

    def strays(self) -> float:
        """How far all its draws may stray from their laws."""
        return self.tuned.strays()

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order: the bound of this order, or of a higher one."""
        orders = np.append(curves.default_orders(), order)
        return Cost(float(self.curve(orders)[-1]) * _UP, self.strays())

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        return isinstance(other, TunePlan) and self[:2] == other[:2]


class TrainingPlan(NamedTuple):
    """A training by DP-SGD on the records themselves."""

    training: Training
    draws: int  # numbers of noise, in all steps together
    relation: str

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"trained": {**self._asdict(), "training": self.training._asdict()}}

    @classmethod
    def from_dict(cls, described: Any) -> TrainingPlan:
        """The plan that `to_dict` described."""
        found = described.get("trained") if isinstance(described, dict) and len(described) == 1 else None
        wrong = f"plan={described!r} is none that a run was ever entered with: restore the file"
        if not (isinstance(found, dict) and set(found) == set(cls._fields)):
            raise PateError(wrong)
        made, draws = found["training"], found["draws"]
        if not (isinstance(made, dict) and set(made) == set(Training._fields)):
            raise PateError(wrong)
        rate, steps, noise = (made[name] for name in Training._fields)
        numbers = all(type(one) is float and 0 < one < np.inf for one in (rate, noise)) and rate <= 1
        counts = all(type(one) is int and 0 < one < 1 << 62 for one in (steps, draws))
        if not (numbers and counts and isinstance(found["relation"], str)):
            raise PateError(wrong)
        return cls(Training(**made), draws, str(found["relation"]))

    def curve(self, orders: Curve) -> Curve:
        """The Renyi curve of all steps."""
        rate, steps, noise = self.training
        return steps * sampled_noise.changed(rate, noise, orders) * _UP

    def strays(self) -> float:
        """How far all its noise may stray from its law."""
        return self.draws * laws.distance(Noise("gaussian", 1.0))

    def cost(self, order: float) -> Cost:
        """What it may spend under a limit with this order."""
        return Cost(float(self.curve(np.array([order]))[0]), self.strays())

    def covers(self, other: AnyPlan) -> bool:
        """Whether a run that was entered with this plan may do what the other one says."""
        return isinstance(other, TrainingPlan) and self[:3] == other[:3]


AnyPlan = Plan | CrowdPlan | CountedPlan | PartyPlan | TunePlan | TrainingPlan


def beside(limit: Limit | None, answers: Plan) -> Plan | CountedPlan:
    """The plan of answers, with the number of voters that chose them, if one did."""
    return answers if limit is None else CountedPlan(limit.headcount.sigma, answers)


def kept(before: Sequence[AnyPlan], answered: int, plan: AnyPlan) -> tuple[AnyPlan, ...]:
    """Which earlier plans of a run still count beside a new one: those under which something was answered.

    A run that begins as a crowd and has told its number of voters, alone, may go on as teachers: the new plan
    has that number in it, and nothing else was answered under the earlier one.
    """
    if not answered or (answered == 1 and isinstance(plan, CountedPlan)):
        return ()
    return tuple(before)


def from_json(described: Any) -> AnyPlan:
    """The plan of any kind of run that a register holds."""
    if isinstance(described, dict) and "party" in described:
        return PartyPlan.from_dict(described)
    if isinstance(described, dict) and "tune" in described:
        return TunePlan.from_dict(described)
    if isinstance(described, dict) and "trained" in described:
        return TrainingPlan.from_dict(described)
    if isinstance(described, dict) and "counted" in described:
        return CountedPlan.from_dict(described)
    crowd = isinstance(described, dict) and "crowd" in described
    return CrowdPlan.from_dict(described) if crowd else Plan.from_dict(described)
