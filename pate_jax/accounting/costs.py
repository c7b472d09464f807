"""What events cost, whatever the records: each by itself, and all together in one figure.

`mechanisms.events` has the events of a run's ledger. Here are those besides that a run is entered with before
it spends anything (`runs.plans`), and the Renyi curve of each, its cost at an order, and how far its noise
strays. No other place computes what any of them costs. Costs are bounds that add up.

A statement has one figure for all events together, `epsilon`, which is smaller than the sum of their costs.
It holds for events whose parameters are fixed in advance, even if each is chosen after those before it were
seen. Answers of one mechanism are one list, whoever asked them, and have its figure; releases of crowds have
theirs; the losses of trainings by DP-SGD are composed. Of others Renyi curves add up, or squares of mu of
Gaussian differential privacy where each event has one: the smaller of both is taken.
docs/proofs/accounting.md, "Events together", says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, get_args

import numpy as np

from pate_jax.accounting import composition, curves, figures, filter, parties, sampled_noise, stable, tuning
from pate_jax.accounting.curves import Epsilon, sampler_slack, with_slack
from pate_jax.accounting.exact import counts
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.inputs import Curve
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.tuning import Tuned
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, Change, CrowdRelease, Judgement
from pate_jax.mechanisms.descriptions import Noise
from pate_jax.mechanisms.events import Answers, Event
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.mechanisms.stable import StableAnswers

_UP = 1 + 1e-9  # what is spent, or may be, is rounded up
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
            return tuning.best_of(tuned.law, orders, orders * tuned.mu**2 / 2 * _UP) * _UP
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


def epsilon(events: Sequence[AnyEvent], delta: float) -> float | None:
    """The epsilon of all events together; None where none is finite.

    >>> from pate_jax.mechanisms import GNMax
    >>> one = Answers(GNMax(40.0), teachers=250, classes=10, asked=100)
    >>> [round(epsilon([one] * number, 1e-5), 4) for number in (1, 2)]
    [1.1243, 1.6162]
    """
    releases = [event for event in events if isinstance(event, CrowdRelease)]
    answers = [event for event in events if isinstance(event, Answers)]
    trained = [event for event in events if isinstance(event, Trained)]
    if len(releases) == len(events) and not _have_judges(releases):
        found = counts.worst(releases, delta)
    elif len(answers) == len(events) and _are_one_list(answers):
        found = _of_list(answers, delta)
    elif len(trained) == len(events):
        found = _of_trainings(trained, delta)
    else:
        found = _of_any(events, releases, delta)
    return found if math.isfinite(found) else None


def _have_judges(releases: Sequence[CrowdRelease]) -> bool:
    """Whether voters are held out in some run, who may vote in the tables of another."""
    return any(isinstance(release, Judgement) for release in releases)


def _are_one_list(answers: Sequence[Answers]) -> bool:
    """Whether all are of one mechanism, by any number of teachers; a stable list is none of these."""
    kinds = {(event.mechanism, event.classes) for event in answers}
    return len(kinds) == 1 and not isinstance(answers[0].mechanism, StableAnswers)


def _of_list(answers: Sequence[Answers], delta: float) -> float:
    """The worst case of as many queries as were asked of each number of teachers."""
    asked: Counter[int] = Counter()
    for event in answers:
        asked[event.teachers] += event.asked
    orders = tuple(curves.default_orders().tolist())
    every = tuple(sorted(asked.items()))
    proved = figures.proved_for(answers[0].mechanism, every, answers[0].classes, orders, delta)
    return float(proved.epsilon.epsilon)


def _of_trainings(trained: Sequence[Trained], delta: float) -> float:
    """The composed losses of all, where one record's contents change."""
    from pate_jax.accounting.training_losses import REPLACE, composed

    losses = tuple(one.training for one in trained)

    def together(inner: float) -> Epsilon:
        return Epsilon(composed(losses, inner, REPLACE), None)

    return float(with_slack(together, delta, sum(map(strays, trained)) * _UP).epsilon)


def _of_any(events: Sequence[AnyEvent], releases: Sequence[CrowdRelease], delta: float) -> float:
    """The smaller of the Renyi and the Gaussian figure, with all that noise may stray from its laws."""
    orders = curves.default_orders()
    total = np.sum([_curve(event) for event in events], axis=0) * _UP
    mu = _mu(events, releases)

    def least(inner: float) -> Epsilon:
        renyi = curves.epsilon(orders, total, inner)
        if mu is None:
            return renyi
        return min(renyi, Epsilon(composition.gaussian_epsilon(mu, inner), None), key=lambda one: one.epsilon)

    return float(with_slack(least, delta, sum(map(strays, events)) * _UP).epsilon)


@lru_cache(maxsize=256)
def _curve(event: AnyEvent) -> Curve:
    """The Renyi curve of one event: a register asks for those of all its runs whenever one is added."""
    return curve(event, curves.default_orders())


def _mu(events: Sequence[AnyEvent], releases: Sequence[CrowdRelease]) -> float | None:
    """The mu of all events, if each has one; that of a crowd's releases is of any voter.

    Where voters are held out, one voter may move every release: it votes in one run and judges in another.
    """
    apart = [[one] for one in releases] if _have_judges(releases) else [releases]
    each = [counts.worst_mu(some) for some in apart if some]
    for event in events:
        if isinstance(event, Tables):
            each.append(event.mu)
        elif isinstance(event, Answers) and not isinstance(event.mechanism, StableAnswers):
            each.append(composition.safe_mu(event.mechanism, event.asked))
        elif not isinstance(event, CrowdRelease):
            return None
    known = [mu for mu in each if mu is not None]
    return math.hypot(*known) * _UP if len(known) == len(each) else None
