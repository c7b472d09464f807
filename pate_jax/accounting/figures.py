"""The epsilons of one list of queries, each computed by its own method and marked for whom it is.

Continuous samplers and tables stray from the ideal law by a total-variation distance `slack`
(`pate_jax.laws`). If ideal answers are (epsilon, delta')-DP, drawn ones are (epsilon, delta' + (1 +
e^epsilon) slack)-DP, so every figure is taken at a delta' that leaves room for the second term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import composition, curves
from pate_jax.accounting.curves import Conversion, Epsilon
from pate_jax.mechanisms import InteractiveGNMax, Mechanism

Status = Literal["sensitive", "publishable"]
HISTORY = "cost along this history; no guarantee, since the queries depend on earlier answers"
ONE_WAY = "no guarantee: bounds one direction of the divergence only, and weighs the argmax by Pr[answered]"
FILTER = "the budget of a privacy filter, spent in full whatever the realised sum"
WORST_CASE = "holds for all data and every history of this many queries; each is charged as if answered"
_TWO_COUNTS = ("discrete_gaussian", "laplace")
_LARGE = 50.0  # an epsilon past which a distribution of losses is not worth its grid


@dataclass(frozen=True)
class Figure:
    """One epsilon: `None` where there is none, infinite figures included.

    >>> Figure(1.5, 8.0, "publishable").to_dict()["status"]
    'publishable'
    """

    epsilon: float | None
    order: float | None
    status: Status
    basis: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "epsilon": self.epsilon,
            "order": self.order,
            "status": self.status,
            "basis": self.basis,
            "note": self.note,
        }


def figure(found: Epsilon, status: Status, basis: str, note: str = "") -> Figure:
    """A figure from an epsilon; an infinite one becomes `None` with a note.

    >>> figure(Epsilon(math.inf, None), "sensitive", "renyi").epsilon is None
    True
    """
    value, order = float(found.epsilon), None if found.order is None else float(found.order)
    if math.isfinite(value):
        return Figure(value, order, status, basis, note)
    return Figure(
        None, None, status, basis, "no finite epsilon at this delta; the sampler's own error may exceed it"
    )


def with_slack(curve: Callable[[float], Epsilon], delta: float, slack: float) -> Epsilon:
    """The epsilon of `curve` at a delta' with `delta' + (1 + e^epsilon) slack <= delta`, or infinity.

    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-18)
    Epsilon(epsilon=1.0, order=2.0)
    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-5).epsilon
    inf
    """
    inner = delta * (1 - 1e-6)  # room for the slack of a 62-bit sampler without a second try
    for _ in range(50):
        found = curve(inner)
        if slack == 0:
            return found
        if found.epsilon > math.log(delta) - math.log(slack):
            break
        needed = (1 + math.exp(found.epsilon)) * slack
        if inner + needed <= delta:
            return found
        inner = delta - 2 * needed if delta - 2 * needed < inner else inner / 2
        if inner <= 0:
            break
    return Epsilon(math.inf, None)


@dataclass(frozen=True)
class Case:
    """What the figures are computed from."""

    mechanism: Mechanism
    votes: NDArray[np.int64]
    answered: NDArray[np.bool_]
    delta: float
    orders: NDArray[np.float64]
    slack: float
    student_probabilities: ArrayLike | None = None
    adaptive: bool = False

    def curve(self, method: curves.Method) -> NDArray[np.float64]:
        """The curves [query, order] by one method."""
        given = self.student_probabilities
        return curves.rdp(self.mechanism, self.votes, self.orders, method=method, student_probabilities=given)

    @cached_property
    def exact(self) -> NDArray[np.float64]:
        """The exact curves, computed once."""
        return self.curve("exact")

    def epsilon(self, curve: NDArray[np.float64], conversion: Conversion = "tight") -> Epsilon:
        """Of a curve [A] that is already summed, at the delta that the sampler leaves."""
        return with_slack(
            lambda delta: curves.epsilon(self.orders, curve, delta, conversion=conversion),
            self.delta,
            self.slack,
        )


def is_adaptive(mechanism: Mechanism) -> bool:
    """Whether the mechanism's own test depends on earlier answers.

    >>> from pate_jax.mechanisms import GNMax
    >>> is_adaptive(GNMax(40.0))
    False
    """
    return isinstance(mechanism, InteractiveGNMax)


def exact(case: Case) -> Figure:
    """The joint mechanism over all queries asked, in both directions."""
    curve = case.exact.sum(axis=0)
    note = HISTORY if case.adaptive else "bound for this data set and a list of queries fixed in advance"
    return figure(case.epsilon(curve), "sensitive", "renyi, joint over all queries asked", note)


def pld(case: Case) -> Figure:
    """The same list by privacy-loss distributions."""
    if case.adaptive:
        return Figure(None, None, "sensitive", "privacy-loss distributions", "not defined for adaptive lists")
    if case.epsilon(case.exact.sum(axis=0)).epsilon > _LARGE:
        return Figure(
            None, None, "sensitive", "privacy-loss distributions", "left out where epsilon is beyond 50"
        )
    from pate_jax.accounting import pld as distributions

    def curve(delta: float) -> Epsilon:
        return Epsilon(distributions.epsilon(case.mechanism, case.votes, delta), None)

    note = "bound for this data set and a list of queries fixed in advance"
    return figure(with_slack(curve, case.delta, case.slack), "sensitive", "privacy-loss distributions", note)


def published(case: Case) -> Figure:
    """The papers' analysis: expected cost, with the tight conversion."""
    curve = case.curve("published").sum(axis=0)
    return figure(case.epsilon(curve), "sensitive", "published bounds, expected sum", ONE_WAY)


def data_independent(case: Case) -> Figure:
    """The smallest of the valid worst-case figures over all queries asked.

    `worst_case`, and for plain discrete Gaussian or Laplace answers, whose composition has no closed form,
    the privacy-loss distribution of the two shifted counts.
    """
    found, basis = worst_case(
        case.mechanism, case.votes.sum(axis=1), case.delta, orders=case.orders, slack=case.slack
    )
    plain = case.mechanism.test is None and case.mechanism.noise.family in _TWO_COUNTS
    if plain and found.epsilon < _LARGE:
        from pate_jax.accounting import pld as distributions

        def curve(delta: float) -> Epsilon:
            value = distributions.data_independent_epsilon(case.mechanism, *_sizes(case), delta)
            return Epsilon(value, None)

        composed = with_slack(curve, case.delta, case.slack)
        if composed.epsilon < found.epsilon:
            found, basis = composed, "privacy-loss distributions, worst case"
    return figure(found, "publishable", basis, WORST_CASE)


def _sizes(case: Case) -> tuple[int, int]:
    return case.votes.shape[0], case.votes.shape[1]


def worst_case(
    mechanism: Mechanism,
    teachers: ArrayLike,
    delta: float,
    *,
    orders: ArrayLike | None = None,
    slack: float = 0.0,
) -> tuple[Epsilon, str]:
    """Data-independent epsilon of one query for each entry of `teachers`, and the method that gave it.

    >>> from pate_jax.mechanisms import GNMax
    >>> found, basis = worst_case(GNMax(sigma=40.0), [250] * 100, 1e-5)
    >>> round(found.epsilon, 4), basis
    (1.3565, 'Gaussian-DP')
    """
    grid = curves.default_orders() if orders is None else curves.check_orders(orders)
    totals = np.atleast_1d(np.asarray(teachers))
    summed = curves.data_independent(mechanism, totals, grid).sum(axis=0)
    methods: list[tuple[str, Callable[[float], Epsilon]]] = [
        ("renyi, worst case", lambda inner: curves.epsilon(grid, summed, inner))
    ]
    mu = composition.gaussian_dp(mechanism, len(totals))
    if mu is not None:
        methods.append(("Gaussian-DP", lambda inner: Epsilon(composition.gaussian_epsilon(mu, inner), None)))
    steps = composition.pure_steps(mechanism, len(totals))
    if steps is not None:
        methods.append(
            ("pure-DP composition", lambda inner: Epsilon(composition.pure_epsilon(steps, inner), None))
        )
    each = [(with_slack(curve, delta, slack), basis) for basis, curve in methods]
    return min(each, key=lambda pair: pair[0].epsilon)


def sums(case: Case) -> dict[str, dict[str, Any]]:
    """The expected and realised sums of the papers, under their own names; neither is a bound by itself."""
    given = case.student_probabilities
    published = curves.published_parts(case.mechanism, case.votes, case.orders, student_probabilities=given)
    parts = {"published": published, "exact": _exact_parts(case)}
    found = {}
    for name, (test, argmax, log_answered) in parts.items():
        for kind, weight in (("expected", np.exp(log_answered)), ("realised", case.answered)):
            curve = (test + weight[:, None] * argmax).sum(axis=0)
            value = figure(
                case.epsilon(curve), "sensitive", f"{name} bounds, {kind} sum", "not a bound by itself"
            )
            found[f"{name}_{kind}"] = value.to_dict()
            if name == "published":
                value = replace(
                    figure(case.epsilon(curve, "classic"), "sensitive", value.basis), note=value.note
                )
                found[f"{name}_{kind}_classic"] = value.to_dict()
    return found


def _exact_parts(case: Case) -> curves.Parts:
    if case.mechanism.test is None:
        return curves.Parts(np.zeros_like(case.exact), case.exact, np.zeros(len(case.votes)))
    from pate_jax.accounting import exact as quadrature

    given = case.student_probabilities
    return curves.Parts(
        *quadrature.parts(case.mechanism, case.votes, case.orders, student_probabilities=given)
    )


def sampler_slack(mechanism: Mechanism, queries: int, classes: int) -> float:
    """Total-variation distance of all draws from their ideal laws, from `pate_jax.laws`.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> sampler_slack(DiscreteGaussianMax(40.0), 100, 10) < 1e-20
    True
    """
    from pate_jax import laws

    return laws.delta_slack(mechanism, queries=queries, classes=classes)


def all_figures(case: Case, budget: float | None, sanitised: Figure | None) -> dict[str, Figure]:
    """The five figures of a statement, by name."""
    if sanitised is None:
        sanitised = Figure(None, None, "publishable", "smooth sensitivity", "not computed")
    worst = (
        data_independent(case)
        if budget is None
        else Figure(float(budget), None, "publishable", "filter", FILTER)
    )
    return {
        "exact": exact(case),
        "pld": pld(case),
        "published": published(case),
        "data_independent": worst,
        "sanitised": sanitised,
    }
