"""What events cost together, whatever the records: one figure for all, smaller than the sum of their costs.

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
from functools import lru_cache

import numpy as np

from pate_jax.accounting import composition, costs, curves, figures
from pate_jax.accounting.costs import AnyEvent, Tables, Trained
from pate_jax.accounting.curves import Epsilon, with_slack
from pate_jax.accounting.exact import counts
from pate_jax.mechanisms.crowds import CrowdRelease
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers

_UP = 1 + 1e-9  # what is spent is rounded up


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
    if len(releases) == len(events):
        found = counts.worst(releases, delta)
    elif len(answers) == len(events) and _are_one_list(answers):
        found = _of_list(answers, delta)
    elif len(trained) == len(events):
        found = _of_trainings(trained, delta)
    else:
        found = _of_any(events, releases, delta)
    return found if math.isfinite(found) else None


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
    from pate_jax.accounting.training_losses import REPLACE, composed  # which takes a second to load

    losses = tuple(one.training for one in trained)

    def together(inner: float) -> Epsilon:
        return Epsilon(composed(losses, inner, REPLACE), None)

    return float(with_slack(together, delta, sum(map(costs.strays, trained)) * _UP).epsilon)


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

    return float(with_slack(least, delta, sum(map(costs.strays, events)) * _UP).epsilon)


@lru_cache(maxsize=256)
def _curve(event: AnyEvent) -> curves.Curve:
    """The Renyi curve of one event: a register asks for those of all its runs whenever one is added."""
    return costs.curve(event, curves.default_orders())


def _mu(events: Sequence[AnyEvent], releases: Sequence[CrowdRelease]) -> float | None:
    """The mu of all events, if each has one; that of a crowd's releases is of any voter."""
    each = [counts.worst_mu(releases)] if releases else []
    for event in events:
        if isinstance(event, Tables):
            each.append(event.mu)
        elif isinstance(event, Answers) and not isinstance(event.mechanism, StableAnswers):
            each.append(composition.safe_mu(event.mechanism, event.asked))
        elif not isinstance(event, CrowdRelease):
            return None
    known = [mu for mu in each if mu is not None]
    return math.hypot(*known) * _UP if len(known) == len(each) else None
