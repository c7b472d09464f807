"""The epsilons of one list of queries, each by its own method and marked sensitive or publishable."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting import curves
from pate_jax.accounting.curves import Conversion, Epsilon, with_slack
from pate_jax.accounting.data_independent import LARGE, Proved, WorstCase
from pate_jax.mechanisms import Mechanism
from pate_jax.system import progress

Status = Literal["sensitive", "publishable"]
HISTORY = "cost along this history; no guarantee, since the queries depend on earlier answers"
ONE_WAY = "no guarantee: bounds one direction of the divergence only, and weighs the argmax by Pr[answered]"
NO_FINITE = "no finite epsilon at this delta; the sampler's own error may exceed it"
WORST_CASE = "holds for all data and every history of this many queries; each is charged as if answered"
LEFT_OUT = "left out: not asked for, or more than the Renyi figure for a sample of these votes"
BEYOND_VOTES = "the test reads more than the votes"
SAME_ON_ALL = "noisy counts cost the same whatever the votes: see the data-independent figure"
PART = 1 << 14  # histograms in one part
SAMPLE = 64  # size of the sample that decides whether privacy-loss distributions may give less


@dataclass(frozen=True)
class Figure:
    """One epsilon, or `None` if there is no finite one.

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


class Fixed(NamedTuple):
    """Why an epsilon that was fixed in advance is one to publish."""

    basis: str
    note: str

    def of(self, epsilon: float) -> Figure:
        """The figure of such an epsilon.

        >>> FILTER.of(2).epsilon, FILTER.of(2).basis
        (2.0, 'filter')
        """
        return Figure(float(epsilon), None, "publishable", *self)


FILTER = Fixed("filter", "the budget of a privacy filter, spent in full whatever the realised sum")
AFTER = Fixed("limit", "the most that a noisy number of voters and any answers chosen by it cost together")


def rounded_up(epsilon: float) -> str:
    """Four decimals, rounded up: a printed figure is never below the computed one.

    >>> rounded_up(1.00001)
    '1.0001'
    """
    return f"{math.ceil(epsilon * 1e4) / 1e4:.4f}" if epsilon < 1e6 else f"{epsilon * (1 + 1e-4):.4g}"


def figure(found: Epsilon, status: Status, basis: str, note: str = "") -> Figure:
    """A figure from an epsilon; an infinite one becomes `None` with a note.

    >>> figure(Epsilon(math.inf, None), "sensitive", "renyi").epsilon is None
    True
    """
    value, order = float(found.epsilon), None if found.order is None else float(found.order)
    if math.isfinite(value):
        return Figure(value, order, status, basis, note)
    return Figure(None, None, status, basis, NO_FINITE)


class Exact(NamedTuple):
    """Exact curves, summed with each row of weights, and each histogram's cost at an order in the middle."""

    summed: NDArray[np.float64]  # [weight, order]
    each: NDArray[np.float64]  # [R]
    sums: NDArray[np.float64]  # [kind, order]: the papers' expected and realised sums, if wanted


@dataclass(frozen=True)
class Case:
    """The input of all figures: histograms, and how many queries have each of them."""

    mechanism: Mechanism
    votes: NDArray[np.int64]  # [R, C]
    asked: NDArray[np.int64]  # [R]
    answered: NDArray[np.int64] | None  # [R]; None if it is not known
    delta: float
    orders: NDArray[np.float64]
    slack: float
    adaptive: bool = False
    with_sums: bool = False  # whether the papers' sums of exact costs are wanted too

    def curve(self, method: curves.Method) -> NDArray[np.float64]:
        """The curves [histogram, order] by one method."""
        return curves.rdp(self.mechanism, self.votes, self.orders, method=method)

    def weights(self) -> NDArray[np.float64]:
        """Weights of the histograms: the queries asked and, if known, those answered in a second row."""
        return np.array([self.asked, *([] if self.answered is None else [self.answered])], np.float64)

    def parts(self, description: str) -> Iterator[Case]:
        """The case in parts of limited size, with a progress bar if there are several."""
        starts = range(0, len(self.votes), PART)
        parts = (self.of(slice(start, start + PART)) for start in starts)
        return progress.track(parts, description, len(starts)) if len(starts) > 1 else parts

    def of(self, rows: slice | NDArray[np.int64]) -> Case:
        """The case for some of the histograms."""
        answered = None if self.answered is None else self.answered[rows]
        return replace(self, votes=self.votes[rows], asked=self.asked[rows], answered=answered)

    def summed(self, what: Callable[[Case], NDArray[np.float64]], description: str) -> NDArray[np.float64]:
        """The sum of `what` over all parts."""
        result: NDArray[np.float64] = np.sum([what(part) for part in self.parts(description)], axis=0)
        return result

    @cached_property
    def exact(self) -> Exact:
        """The exact curves, computed once."""
        middle = min(int(np.searchsorted(self.orders, 8.0)), len(self.orders) - 1)
        summed, each, sums = [], [], []
        for part in self.parts("exact privacy"):
            curve, expected = part._exact_curves()
            summed.append(part.weights() @ curve)
            each.append(curve[:, middle])
            sums.append(expected)
        return Exact(np.sum(summed, axis=0), np.concatenate(each), np.sum(sums, axis=0))

    def _exact_curves(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact curves [histogram, order] and the papers' sums of them, which need the same laws."""
        if not self.with_sums or self.mechanism.test is None:
            curve = self.curve("exact")
            return curve, self.weights() @ curve
        from pate_jax.accounting.exact import renyi

        curve, found = renyi.joint_and_parts(self.mechanism, self.votes, self.orders)
        return curve, _both(self, curves.Parts(*found))

    @cached_property
    def published(self) -> NDArray[np.float64]:
        """The papers' curves, expected and (if the answers are known) realised; computed once."""
        return self.summed(lambda part: _both(part, _published_parts(part)), "published bounds")

    def epsilon(self, curve: NDArray[np.float64], conversion: Conversion = "tight") -> Epsilon:
        """Epsilon of a curve [A] that is already summed, at the delta that the sampler leaves over."""
        return with_slack(
            lambda delta: curves.epsilon(self.orders, curve, delta, conversion=conversion),
            self.delta,
            self.slack,
        )


def exact(case: Case) -> Figure:
    """The exact figure: the joint mechanism over all queries asked, in both directions."""
    note = HISTORY if case.adaptive else "bound for this data set and a list of queries fixed in advance"
    return figure(
        case.epsilon(case.exact.summed[0]), "sensitive", "renyi, joint over all queries asked", note
    )


def pld(case: Case, wanted: bool | None = None) -> Figure:
    """The exact figure by privacy-loss distributions: if `wanted` or, by default, if they may give less."""
    note = ""
    if case.adaptive:
        note = "not defined for adaptive lists"
    elif case.epsilon(case.exact.summed[0]).epsilon > LARGE:
        note = "left out where epsilon is beyond 50"
    elif wanted is False or (wanted is None and not _may_give_less(case)):
        note = LEFT_OUT
    if note:
        return Figure(None, None, "sensitive", "privacy-loss distributions", note)
    note = "bound for this data set and a list of queries fixed in advance"
    return figure(_composed(case), "sensitive", "privacy-loss distributions", note)


def _composed(case: Case) -> Epsilon:
    """Epsilon by privacy-loss distributions."""
    from pate_jax.accounting.exact import pld as distributions

    def curve(delta: float) -> Epsilon:
        return Epsilon(distributions.epsilon(case.mechanism, case.votes, delta, times=case.asked), None)

    return with_slack(curve, case.delta, case.slack)


def _may_give_less(case: Case) -> bool:
    """Whether privacy-loss distributions give less than Renyi for a sample of the histograms.

    Each histogram of the sample stands for an equal share of the cost. A wrong guess makes no figure wrong,
    because both figures are bounds.
    """
    each = case.exact.each
    order = np.argsort(each)
    shares = np.cumsum((case.asked * each)[order])
    if len(each) <= 2 * SAMPLE or shares[-1] <= 0:
        return True
    places = shares[-1] * (np.arange(SAMPLE) + 0.5) / SAMPLE
    rows, drawn = np.unique(order[np.searchsorted(shares, places)], return_counts=True)
    times = np.rint(drawn * shares[-1] / SAMPLE / each[rows]).astype(np.int64)
    sample = replace(case.of(rows), asked=np.maximum(times, 1), with_sums=False)
    return bool(_composed(sample).epsilon < sample.epsilon(sample.exact.summed[0]).epsilon)


def published(case: Case) -> Figure:
    """The papers' analysis: expected cost, with the tight conversion."""
    return figure(case.epsilon(case.published[0]), "sensitive", "published bounds, expected sum", ONE_WAY)


def data_independent(case: Case) -> Figure:
    """The smallest of the valid worst-case figures over all queries asked.

    Each query is charged as if it was answered, whether or not it was.
    """
    teachers, times = np.unique(np.repeat(case.votes.sum(axis=1), case.asked), return_counts=True)
    asked = tuple(zip(teachers.tolist(), times.tolist(), strict=True))
    proved = proved_for(case.mechanism, asked, case.votes.shape[1], tuple(case.orders.tolist()), case.delta)
    return figure(proved.epsilon, "publishable", proved.basis, WORST_CASE)


@lru_cache(maxsize=512)
def proved_for(
    mechanism: Mechanism,
    asked: tuple[tuple[int, int], ...],
    classes: int,
    orders: tuple[float, ...],
    delta: float,
) -> Proved:
    """The worst-case figure for pairs of a number of teachers and how many queries they were asked.

    It takes a second or two and depends on public numbers alone. One `pate verify` wants it several times.
    """
    teachers, times = np.array(asked, np.int64).reshape(-1, 2).T
    return _worst_case(mechanism, tuple(teachers.tolist()), classes, orders).figure(times, delta)


@lru_cache(maxsize=16)
def _worst_case(
    mechanism: Mechanism,
    teachers: tuple[int, ...],
    classes: int,
    orders: tuple[float, ...],
) -> WorstCase:
    """Its curves are those of one query, so they serve every delta and every number of queries."""
    return WorstCase(mechanism, np.array(teachers, np.int64), classes, orders=np.array(orders))


def sums(case: Case) -> dict[str, dict[str, Any]]:
    """The expected and realised sums of the papers, under their own names; neither is a bound by itself.

    Realised sums are left out if the answers are not known, and all sums if a test reads more than the votes,
    or if the votes do not matter.
    """
    if not case.mechanism.votes_suffice or case.mechanism.releases_counts:
        return {}
    summed = {"published": case.published, "exact": case.exact.sums}
    totals = {}
    for name, rows in summed.items():
        for kind, curve in zip(("expected", "realised"), rows, strict=False):
            value = figure(
                case.epsilon(curve), "sensitive", f"{name} bounds, {kind} sum", "not a bound by itself"
            )
            totals[f"{name}_{kind}"] = value.to_dict()
            if name == "published":
                value = replace(
                    figure(case.epsilon(curve, "classic"), "sensitive", value.basis), note=value.note
                )
                totals[f"{name}_{kind}_classic"] = value.to_dict()
    return totals


def _both(case: Case, parts: curves.Parts) -> NDArray[np.float64]:
    """The expected sum and, if the answers are known, the realised one [kind, order]."""
    weights = case.weights()
    weights[0] *= np.exp(parts.log_answered)
    return case.asked @ parts.test + weights @ parts.argmax


def _published_parts(case: Case) -> curves.Parts:
    return curves.published_parts(case.mechanism, case.votes, case.orders)


def all_figures(
    case: Case, fixed: Figure | None, sanitised: Figure | None, pld_wanted: bool | None
) -> dict[str, Figure]:
    """The five figures of a statement, by name; what was `fixed` in advance stands for the worst case."""
    if sanitised is None:
        sanitised = Figure(None, None, "publishable", "exact joint cost, sanitised", "not computed")
    worst = data_independent(case) if fixed is None else fixed
    if not case.mechanism.votes_suffice or case.mechanism.releases_counts:
        why = SAME_ON_ALL if case.mechanism.releases_counts else BEYOND_VOTES
        unknown = Figure(None, None, "sensitive", "", why)
        of_votes = dict.fromkeys(("exact", "pld", "published"), unknown)
    else:
        of_votes = {"exact": exact(case), "pld": pld(case, pld_wanted), "published": published(case)}
    return {**of_votes, "data_independent": worst, "sanitised": sanitised}
