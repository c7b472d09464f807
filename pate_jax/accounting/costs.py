"""What an event costs, whatever the records: its Renyi curve, its cost at an order, how far its noise strays.

`mechanisms.events` has the events of a run's ledger. Here are those besides that a run is entered with before
it spends anything (`runs.plans`). No other place computes what any of them costs. Costs are bounds that add
up; a statement has one figure for all events together, which is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting import curves, filter, parties, repetitions, sampled_noise, stable
from pate_jax.accounting.curves import sampler_slack
from pate_jax.accounting.exact import counts
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.tuning import Tuned
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, Change
from pate_jax.mechanisms.descriptions import Noise
from pate_jax.mechanisms.events import Answers, Event
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.mechanisms.stable import StableAnswers

Curve = NDArray[np.float64]
_UP = 1 + 1e-9  # what may be spent is rounded up
_CELLS = 1 << 30  # of a crowd's tables, at most: a ledger's line holds fewer


@dataclass(frozen=True)
class Tables:
    """The noisy tables of a crowd, all of them together, in Gaussian differential privacy."""

    name: ClassVar[str] = "tables"
    mu: float
    voters: str


@dataclass(frozen=True)
class PartyVote:
    """What one unit of this party may lose by a vote among parties, against the audience that learns most."""

    name: ClassVar[str] = "party-vote"
    vote: SharedVote
    unit: parties.Unit


@dataclass(frozen=True)
class BestOf:
    """The best of several candidates, each of them Gaussian differentially private."""

    name: ClassVar[str] = "best-of"
    tuned: Tuned


@dataclass(frozen=True)
class Trained:
    """A training by DP-SGD on the records themselves."""

    name: ClassVar[str] = "training"
    training: Training
    draws: int  # numbers of noise, in all steps together


AnyEvent = Event | Tables | PartyVote | BestOf | Trained


def curve(event: AnyEvent, orders: Curve) -> Curve:
    """The Renyi curve of an event.

    >>> curve(Tables(0.2, "sums"), np.array([2.0, 4.0])).round(6).tolist()
    [0.04, 0.08]
    """
    match event:
        case Answers(mechanism):
            if isinstance(mechanism, StableAnswers):
                return stable.curve(mechanism, orders)
            one = curves.data_independent(mechanism, event.teachers, event.classes, orders)[0]
            return np.asarray(event.asked * one, np.float64)
        case Tables():
            return np.asarray(orders * event.mu**2 / 2 * _UP, np.float64)
        case PartyVote(vote, unit):
            return np.array([parties.cost(vote, float(order), unit=unit).rdp for order in orders])
        case BestOf(tuned):
            return repetitions.best_of(tuned.law, orders, orders * tuned.mu**2 / 2 * _UP) * _UP
        case Trained((rate, steps, noise)):
            return steps * sampled_noise.changed(rate, noise, orders) * _UP
    every = [counts.rdp(event, orders, change=change) for change in get_args(Change)]
    return np.asarray(np.max(every, axis=0), np.float64)


def strays(event: AnyEvent) -> float:
    """How far all noise of an event may stray from its law.

    >>> strays(Tables(0.2, "sums")) < 1e-9
    True
    """
    match event:
        case Answers(mechanism):
            if isinstance(mechanism, StableAnswers):
                return stable.strays(mechanism)
            return sampler_slack(mechanism, event.asked, event.classes)
        case Tables():
            return _CELLS * laws.distance(Noise("rounded_gaussian", LARGEST_SIGMA))
        case PartyVote():
            return parties.slack(event.vote)
        case BestOf():
            return event.tuned.strays()
        case Trained():
            return event.draws * laws.distance(Noise("gaussian", 1.0))
    return counts.slack_of([event])


def cost(event: AnyEvent, order: float) -> Cost:
    """What an event costs at an order, as filters and registers add it up.

    >>> from pate_jax.mechanisms import GNMax
    >>> round(cost(Answers(GNMax(sigma=10.0), teachers=250, classes=10, asked=3), 2.0).rdp, 3)
    0.038
    """
    match event:
        case Answers(mechanism) if not isinstance(mechanism, StableAnswers):
            each = filter.cost(mechanism, teachers=event.teachers, classes=event.classes, order=order)
            return each.times(event.asked)
        case BestOf():  # the bound of this order, or of a higher one
            orders = np.append(curves.default_orders(), order)
            return Cost(float(curve(event, orders)[-1]) * _UP, strays(event))
        case Answers() | Tables() | PartyVote() | Trained():
            return Cost(float(curve(event, np.array([order]))[0]), strays(event))
    return counts.cost(event, order)
