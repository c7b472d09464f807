"""What a list of stable answers costs: data-independent, so it may be published. See docs/proofs/stable.md.

An *epoch* lasts from one draw of the threshold's noise to the next query that is not answered. With noise of
scale s on the threshold and on each distance, an epoch is `(3/s, p)`-differentially private: 1/s pays for the
threshold, 2/s for the query that ended the epoch, and p is the chance that a query of distance 0 is answered.
The list is at most `cutoff` epochs, and the number of stable answers does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting import composition
from pate_jax.accounting.curves import Epsilon, with_slack
from pate_jax.accounting.inputs import Curve, check_delta
from pate_jax.accounting.vote_models import Votes
from pate_jax.errors import PateError
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.descriptions import SMALLEST_SCALE
from pate_jax.mechanisms.stable import LARGEST_SCALE, LARGEST_THRESHOLD, StableAnswers, distance

_UP = 1 + 1e-11  # relative; covers the rounding of some thousand sums
_ROUNDING = 1e-15  # absolute, of a difference of logarithms
_LARGEST_BUDGET = 40.0  # beyond it, the rounding of the noise would cost more delta than less noise is worth
_LEAST = 1e-300  # no chance is stated below this, where float64 underflows
MOST_QUERIES = 1_000_000  # of a list, unless a figure is told another number
CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000)  # that an outlook tries
_SHARES = (0.02, 0.1, 0.5)  # shares of delta that may go to composition


def epoch_epsilon(mechanism: StableAnswers) -> float:
    """The epsilon of one epoch, `3 / scale`: pure for the pattern of answered and unanswered queries.

    >>> epoch_epsilon(StableAnswers(threshold=40, scale=6.0, cutoff=1))
    0.500000000005
    """
    return 3.0 / float(mechanism.scale) * _UP


def false_answer(mechanism: StableAnswers) -> float:
    """The chance that a query of distance 0 is answered by a fresh threshold, rounded up.

    It is the chance that `X >= threshold + Y` for independent X and Y of the noise's law. With `q = e^(-1/s)`
    and the threshold w it is the sum over the values of Y, `(1-q)/(1+q)` times

        q^w (1/(1-q) - q / ((1+q)(1-q^2)))    for Y <= -w
        q^w (w-1) / (1+q)                     for -w < Y < 0
        q^w / ((1+q)(1-q^2))                  for Y >= 0

    >>> false_answer(StableAnswers(threshold=1, scale=0.05, cutoff=1)) < 1e-8
    True
    """
    scale, threshold = float(mechanism.scale), mechanism.threshold
    q = math.exp(-1 / scale)
    one_minus = -math.expm1(-1 / scale)
    rest = one_minus * (1 + q)  # 1 - q^2
    below = 1 / one_minus - q / ((1 + q) * rest)
    terms = below + (threshold - 1) / (1 + q) + 1 / ((1 + q) * rest)
    return max(one_minus / (1 + q) * terms * math.exp(-threshold / scale) * _UP, _LEAST)


def curve(mechanism: StableAnswers, orders: Curve) -> Curve:
    """The Renyi curve of a list where no query of distance 0 is answered: that of `cutoff` pure epochs.

    Of a pure epsilon, with `q = 1 / (1 + e^epsilon)`, it is at most
    `log((1-q)^a q^(1-a) + q^a (1-q)^(1-a)) / (a-1)`, the cost of randomised response. `strays` pays for the
    other queries.

    >>> two = StableAnswers(threshold=40, scale=6.0, cutoff=2)
    >>> curve(two, np.array([2.0, 1e6])).round(3).tolist()
    [0.455, 1.0]
    """
    one, grid = epoch_epsilon(mechanism), np.asarray(orders, np.float64)
    total = np.logaddexp(grid * one, (1 - grid) * one) - np.logaddexp(0.0, one)
    total += _ROUNDING * (1 + grid * one)
    found: Curve = mechanism.cutoff * np.minimum(total / (grid - 1), one) * (1 + 1e-9)
    return found


def strays(mechanism: StableAnswers) -> float:
    """How far a whole list may stray from what `curve` covers: false answers, and the rounding of noise.

    False answers take `cutoff * false_answer` of delta, without the factor `1 + e^epsilon` that what strays
    is charged with. So this is more than is needed.

    >>> strays(StableAnswers(threshold=40, scale=3.0, cutoff=1)) < 1e-4
    True
    """
    return mechanism.cutoff * false_answer(mechanism) * _UP + slack(mechanism, MOST_QUERIES)


def slack(mechanism: StableAnswers, queries: int) -> float:
    """The total-variation distance of all draws from their laws: one for each query and each threshold.

    >>> slack(StableAnswers(40, 3.0, 1), 1_000_000) < 1e-25
    True
    """
    if type(queries) is not int or queries < 0:
        raise PateError(f"queries={queries!r} must be a whole number of at least 0")
    return (queries + mechanism.cutoff) * laws.distance(mechanism.noise) * _UP


def epsilon(mechanism: StableAnswers, delta: float, queries: int = MOST_QUERIES) -> float:
    """The least proven epsilon of a list of at most so many queries; infinite if delta is too small.

    Of delta, `cutoff` times `false_answer` goes to wrongly answered queries and a little to the rounding of
    the noise. The rest goes to the composition of `cutoff` pure epochs (Kairouz, Oh, Viswanath 2015).

    >>> round(epsilon(StableAnswers(threshold=40, scale=3.0, cutoff=1), 1e-5), 4)
    1.0
    >>> epsilon(StableAnswers(threshold=30, scale=3.0, cutoff=1), 1e-5)
    inf
    """
    false = mechanism.cutoff * false_answer(mechanism) * _UP
    steps = [(epoch_epsilon(mechanism), mechanism.cutoff)]

    def at(inner: float) -> Epsilon:
        rest = inner - false
        found = composition.pure_epsilon(steps, rest * (1 - 1e-9)) if rest > 0 else math.inf
        return Epsilon(found, None)

    return float(with_slack(at, check_delta(delta), slack(mechanism, queries)).epsilon)


def calibrate(budget: float, delta: float, cutoff: int, queries: int = MOST_QUERIES) -> StableAnswers:
    """The mechanism of the least threshold that keeps to a budget; it reads no votes.

    A few shares of delta for the composition are tried; the rest is the threshold's.

    >>> calibrate(1.0, 1e-5, cutoff=1)
    StableAnswers(threshold=39, scale=3.0000000003, cutoff=1)
    """
    delta = check_delta(delta)
    if not (isinstance(budget, Real) and 0 < budget < math.inf):
        raise PateError(f"budget={budget!r} must be a finite epsilon above 0; 1 is an example")
    budget = min(float(budget), _LARGEST_BUDGET)
    plain = max(3 * cutoff / budget * (1 + 1e-10), SMALLEST_SCALE)
    scales = [(plain, 1 - 1e-5)]
    if cutoff > 1:
        scales += [(_scale(budget, delta * share, cutoff), 1 - share - 1e-5) for share in _SHARES]
    made = [_made(scale, delta * share, cutoff) for scale, share in scales if scale <= LARGEST_SCALE]
    fitting = [one for one in made if one is not None and epsilon(one, delta, queries) <= budget]
    if not fitting:
        raise PateError(
            f"budget={budget:g} at delta {delta:g} allows no cutoff={cutoff}: take a smaller cutoff"
        )
    return min(fitting, key=lambda one: one.threshold)


def _scale(budget: float, delta: float, cutoff: int) -> float:
    """The least scale, to a millionth, at which the composed epochs keep to the budget at this delta."""
    low, high = 3 / budget / 2, 3 * cutoff / budget * (1 + 1e-10)
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        fits = composition.pure_epsilon([(3 / middle * _UP, cutoff)], delta * (1 - 1e-6)) <= budget
        low, high = (low, middle) if fits else (middle, high)
    return max(high, SMALLEST_SCALE)


def _made(scale: float, delta: float, cutoff: int) -> StableAnswers | None:
    """The mechanism of the least threshold at which false answers take at most this delta."""

    def enough(threshold: int) -> bool:
        return cutoff * false_answer(StableAnswers(threshold, scale, cutoff)) * _UP**2 <= delta

    low, high = 0, 1
    while not enough(high):
        if high == LARGEST_THRESHOLD:
            return None
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return StableAnswers(high, scale, cutoff)


def least_distance(mechanism: StableAnswers, queries: int, chance: float = 0.9) -> int:
    """The least distance of each of so many queries at which one threshold answers all, with this chance.

    It says what a list must be like; it is no part of the guarantee. The chance is the sum over the values y
    of the threshold's noise of `P[Y = y] P[distance + X >= threshold + y]^queries`.

    >>> least_distance(StableAnswers(threshold=39, scale=3.0, cutoff=1), queries=1000)
    67
    """
    if not 0 < chance < 1:
        raise PateError(f"chance={chance!r} must be above 0 and below 1")
    low, high = -1, 1
    while _all_answered(mechanism, queries, high) < chance:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _all_answered(mechanism, queries, middle) >= chance else (middle, high)
    return high


def _all_answered(mechanism: StableAnswers, queries: int, distance: int) -> float:
    scale = float(mechanism.scale)
    reach = math.ceil(40 * scale)
    values = np.arange(-reach, reach + 1)
    q = math.exp(-1 / scale)
    law = -math.expm1(-1 / scale) / (1 + q) * np.exp(-np.abs(values) / scale)
    need = mechanism.threshold + values - distance
    size = np.exp(-np.abs(np.where(need > 0, need, 1 - need)) / scale) / (1 + q)
    log_answered = np.where(need > 0, np.log(np.maximum(size, 1e-300)), np.log1p(-size))
    return float(np.sum(law * np.exp(queries * log_answered)))


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
                f"Stable answers (docs/proofs/stable.md) would hardly ever answer: {teachers:,} votes are "
                "too few for their threshold at this epsilon."
            )
        said = (
            f"Stable answers (docs/proofs/stable.md) would give about {self.answers:,.1f} exact ones at this "
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

    A list of queries of which a share r is unstable meets the u-th of these after about `u/r` queries. What
    is expected is no part of the guarantee.

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
            mechanism = calibrate(budget, delta, cutoff)
        except PateError:  # it needs a larger scale than noise has, and so does every larger cutoff
            break
        if mechanism.threshold > teachers // 2:
            break
        least = least_distance(mechanism, queries)
        share = float(np.mean(readings < least))
        answers = min(queries, cutoff / max(share, 1e-12)) * (1 - share)
        if best.mechanism is None or answers > best.answers:
            best = Outlook(mechanism, 2 * least + 1, share, answers)
    return best
