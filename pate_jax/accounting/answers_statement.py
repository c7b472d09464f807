"""The privacy statement of answers: five figures, of which two may be published; also of a stable list."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import after_count, curves, figures, filter, stable, trade_off
from pate_jax.accounting.after_count import Limit
from pate_jax.accounting.curves import Epsilon, sampler_slack
from pate_jax.accounting.exact import groups
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.filter import Filter
from pate_jax.accounting.inputs import check_delta, check_orders, check_totals, check_votes
from pate_jax.accounting.statement import (
    HEADLINE,
    PAPERS,
    RELATIONS,
    Relation,
    Statement,
    check_relation,
    check_value,
    printed,
)
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers, from_dict

SENSITIVE = ("exact", "pld", PAPERS)
NAMES = (*SENSITIVE, HEADLINE, "sanitised")
APART = "the release of the sanitised figure apart"
_PAPERS_OWN = "papers' own (not a guarantee)"
_IDEAL = "; for ideal noise: what rounding its float32 draws reveals is not covered"
_STABLE = "composition of the epochs of a list of stable answers"
_WHOLE_LIST = (
    "holds for all data and every history; the list is charged once, whatever its length and answers"
)
_FACTS = ("delta", "relation", "private", "asked", "answered", "mechanism", "slack")
_LATER = ("teachers", "classes", "headcount", "declared", "sums")  # fields that may be missing


@dataclass(frozen=True, kw_only=True)
class AnswersStatement(Statement):
    """What a list of queries cost. `statement` and `stable_statement` make it."""

    asked: int
    answered: int
    words: str  # what the figures cover
    mechanism: dict[str, Any]
    slack: float = 0.0
    sums: dict[str, dict[str, Any]] = field(default_factory=dict)
    teachers: int = 0  # 0 if the number of teachers differs between queries
    classes: int = 0
    headcount: float = 0.0  # scale of the noise in the number of voters that chose them; 0 if none did

    mark, relations, sensitive = "mechanism", tuple(RELATIONS), SENSITIVE

    @property
    def charged(self) -> str:
        """What the figures cover, in words."""
        return self.words

    @property
    def smallest(self) -> str:
        """Which figure is the smallest guarantee for this data set; sensitive, unless it is the headline."""
        valid = [
            (figure.epsilon, name)
            for name, figure in self.figures.items()
            if name in ("exact", "pld", HEADLINE)
            and figure.epsilon is not None
            and figure.note != figures.HISTORY
        ]
        return min(valid)[1] if valid else HEADLINE

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach, whatever the votes are: as publishable as the headline."""
        mechanism = from_dict(self.mechanism)
        if isinstance(mechanism, StableAnswers):
            return trade_off.of_stable(mechanism, self.delta)
        if self.headcount and self.headline.epsilon is not None:
            return trade_off.of_limit(self.headline.epsilon, self.delta)
        epsilon = self.headline.epsilon
        found = trade_off.of_answers(
            mechanism,
            self.asked,
            teachers=self.teachers,
            classes=self.classes,
            delta=self.delta,
            headline=math.inf if epsilon is None else epsilon,
            budgeted=self.headline.basis == "filter",
        )
        return found._replace(apart=APART if self.charged.endswith(APART) else "")

    def own(self) -> dict[str, Any]:
        """The fields of this kind, as JSON."""
        names = ("asked", "answered", "mechanism", "slack", "teachers", "classes")
        return {
            **{name: getattr(self, name) for name in names},
            **({"headcount": self.headcount} if self.headcount else {}),
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON; sensitive, since it holds sensitive figures."""
        return {
            **self.publishable(),
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
            "sums": self.sums,
            "smallest": self.smallest,
            "status": "sensitive",
        }

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """The statement of this kind that these fields give; figures that they lack have no epsilon."""
        known = description["figures"]
        return cls(
            figures={
                name: Figure(**known[name]) if name in known else _no_figure(name, "not in this file")
                for name in NAMES
            },
            words=description["charged"],
            **{name: description[name] for name in _FACTS},
            **{name: description[name] for name in _LATER if name in description},
        )

    def check(self) -> None:
        """Refuse fields of other types than `to_dict` writes."""
        super().check()
        for entry in self.sums.values():
            check_value("epsilon", entry["epsilon"] or 0.0, "float")
        from_dict(self.mechanism)

    def papers_text(self) -> str:
        """The papers' own figure, and sums that are no bounds, for who wishes to compare; all sensitive."""
        own = self.figures[PAPERS]
        lines = [f"  {_PAPERS_OWN:<40}{printed(own.epsilon):>10}  {own.status}", f"  {own.note}"]
        lines += [f"  {name:<40}{printed(one['epsilon']):>10}  sensitive" for name, one in self.sums.items()]
        return "\n".join(lines) + "\n"

    def _caveat(self) -> str:
        """What the figure does not cover if the noise is continuous; empty for whole-number noise."""
        mechanism = from_dict(self.mechanism)
        if isinstance(mechanism, StableAnswers):
            return ""
        noises = [mechanism.noise, *([mechanism.test.noise] if mechanism.test is not None else [])]
        return "" if all(noise.is_discrete for noise in noises) else _IDEAL


def _no_figure(name: str, why: str) -> Figure:
    return Figure(None, None, "sensitive" if name in SENSITIVE else "publishable", "", why)


def statement(
    mechanism: Mechanism,
    votes: ArrayLike,
    answered: ArrayLike | None,
    delta: float,
    *,
    private: bool,
    relation: Relation = "party",
    declared: bool = True,
    adaptive: bool = False,
    budget: Filter | None = None,
    after: Limit | None = None,
    sanitised: Figure | None = None,
    orders: ArrayLike | None = None,
    pld: bool | None = None,
    voters_may_sit_out: bool = False,
) -> AnswersStatement:
    """The privacy statement of a list of queries.

    `private` is true only if every key that draws the noise comes from `fresh_key()`, which
    `aggregate.is_private(key)` tells. Otherwise the statement says first that it protects nobody.
    `votes` holds every query that was ASKED, and `answered` says which were answered. With `None` all count
    as answered, and the sums over realised answers are left out. Set `adaptive=True` if the list was not
    fixed before the first answer: data-dependent figures are then no guarantee, and the worst case over the
    queries asked is one only if their number was fixed. `budget` is the privacy filter (`filter.plan`) that
    was fixed in advance where it was not; its epsilon takes the place of the worst case. `after` is the limit
    of answers that were chosen by a noisy number of voters; its epsilon is that of both. `pld` says whether
    to compose privacy-loss distributions; by default, only if they may give less than Renyi.

    All rows must have the same total, the number of teachers, unless `voters_may_sit_out=True`: who votes on
    which query was fixed without the records. Votes alone prove a guarantee for one voter ("party"). For any
    other relation the votes' makers must declare it; `declared=False` is for a run whose partition proves it.

    >>> from pate_jax.mechanisms import GNMax
    >>> statement(GNMax(40.0), [[9, 1]], None, 1e-5, private=True).covers
    'the one teacher of a party changed, whatever its records, as declared by the makers of the votes'
    """
    counts = _check_rows(check_votes(votes), voters_may_sit_out)
    mask = _mask(answered, len(counts))
    check_relation(relation)
    delta = check_delta(delta)
    promised = _promised(mechanism, counts, delta, budget, after)
    known = None if answered is None else mask
    case = _case(mechanism, counts, known, delta, orders, adaptive or after is not None)
    return AnswersStatement(
        figures=figures.all_figures(case, promised, sanitised, pld),
        asked=len(counts),
        answered=int(mask.sum()),
        delta=delta,
        relation=relation,
        words=_charged(mechanism, len(counts), budget, after) + _apart(sanitised),
        mechanism=to_dict(mechanism),
        private=private,
        slack=case.slack,
        sums=figures.sums(case),
        teachers=_teachers(counts),
        classes=counts.shape[1],
        declared=declared,
        headcount=0.0 if after is None else after.headcount.sigma,
    )


def _mask(answered: ArrayLike | None, queries: int) -> NDArray[np.bool_]:
    """Which queries were answered; all of them if that is not known."""
    mask = np.ones(queries, bool) if answered is None else np.asarray(answered)
    if mask.shape != (queries,) or mask.dtype != np.bool_:
        raise PateError(f"answered of shape {mask.shape} and type {mask.dtype} must be {queries} booleans")
    return mask


def _case(
    mechanism: Mechanism,
    counts: NDArray[np.int64],
    known: NDArray[np.bool_] | None,
    delta: float,
    orders: ArrayLike | None,
    chosen: bool,
) -> figures.Case:
    """What figures are computed of: histograms, how often each was asked and, if known, answered."""
    merged = groups.distinct(counts, np.ones(len(counts), bool) if known is None else known)
    answered, slack = None if known is None else merged.among[0], sampler_slack(mechanism, *counts.shape)
    grid = curves.default_orders() if orders is None else check_orders(orders)
    facts = (mechanism, merged.votes, merged.asked, answered, delta, grid, slack, chosen)
    return figures.Case(*facts, with_sums=True)


def _check_rows(counts: NDArray[np.int64], may_differ: bool) -> NDArray[np.int64]:
    """Refuse votes on no query, and rows of different totals unless those were allowed."""
    if not len(counts):
        raise PateError("votes cover no query: there is nothing to account for yet")
    if not may_differ:
        check_totals(counts)
    return counts


def _promised(
    mechanism: Mechanism, counts: np.ndarray, delta: float, budget: Filter | None, after: Limit | None
) -> Figure | None:
    """What was promised in advance, if anything; refused where queries or delta would not be within it."""
    if budget is not None and budget.delta != delta:
        raise PateError(f"delta={delta} is not that of the budget, {budget.delta}: give the budget's")
    if budget is not None and not budget.allows(_most(mechanism, counts, budget.order)):
        raise PateError(
            f"budget.epsilon={budget.epsilon:g} does not afford {len(counts)} queries of {mechanism!r}, "
            "whatever the votes: leave budget out, which states the worst case over all of them"
        )
    if after is None:
        return None if budget is None else figures.FILTER.of(budget.epsilon)
    if after.delta != delta:
        raise PateError(f"delta={delta} is not that of the limit, {after.delta}: give the limit's")
    size = {"queries": len(counts), "teachers": _teachers(counts), "classes": counts.shape[1]}
    if not size["teachers"] or not after_count.fits(mechanism, after, **size):
        raise PateError(
            f"epsilon={after.epsilon:g} does not allow {len(counts)} answers of {mechanism!r} after a noisy "
            "number of voters, whatever the votes: restore the run's settings from a backup"
        )
    return figures.AFTER.of(after.epsilon)


def _most(mechanism: Mechanism, counts: np.ndarray, order: float) -> filter.Cost:
    """What a filter charges for these queries, whatever the votes."""
    spent, of = filter.NOTHING, {"classes": counts.shape[1], "order": order}
    for teachers, asked in zip(*np.unique(counts.sum(axis=1), return_counts=True), strict=True):
        each = filter.cost(mechanism, teachers=int(teachers), **of)
        spent = spent.plus(each.times(int(asked)))
    return spent


def _teachers(counts: np.ndarray) -> int:
    totals = counts.sum(axis=1)
    return int(totals[0]) if len(totals) and np.ptp(totals) == 0 else 0


def _apart(sanitised: Figure | None) -> str:
    """The words for a sanitised figure that was published: no other figure pays for its release.

    It stays released where later questions leave it no meaning any more, and then has no epsilon.
    """
    leaves = sanitised is not None and sanitised.status == "publishable"
    return f", {APART}" if leaves else ""


def _charged(mechanism: Mechanism, asked: int, budget: Filter | None, after: Limit | None) -> str:
    if after is not None:
        return (
            f"the number of voters with Gaussian noise, rounded, of scale {after.headcount.sigma:.6g}, and "
            f"{_charged(mechanism, asked, None, None)}, which were chosen by it: together at most epsilon "
            f"{after.epsilon:g}, fixed in advance"
        )
    if budget is None and mechanism.releases_counts:
        return f"all {asked} queries asked, each answered by its whole row of noisy counts"
    if budget is None and mechanism.test is None:
        return f"all {asked} queries asked"
    if budget is None:
        return f"all {asked} queries asked, test and answer as one joint mechanism"
    return f"the whole budget of a privacy filter, epsilon {budget.epsilon:g}, fixed in advance"


def stable_statement(
    mechanism: StableAnswers,
    delta: float,
    *,
    asked: int,
    answered: int,
    teachers: int,
    classes: int,
    private: bool,
    relation: Relation = "party",
    declared: bool = True,
) -> AnswersStatement:
    """The statement of a list, or of as much of it as was asked so far.

    How many queries were asked and answered may be published, because the answers show it. `private` is true
    only if every key that draws the noise comes from `fresh_key()`.

    >>> size = {"asked": 90, "answered": 89, "teachers": 250, "classes": 10}
    >>> made = stable_statement(StableAnswers(threshold=40, scale=3.0, cutoff=1), 1e-5, private=True, **size)
    >>> round(made.headline.epsilon, 4), made.charged
    (1.0, 'a whole list of stable answers, which ends with its first unanswered query; 90 queries asked')
    """
    if not 0 <= answered <= asked <= stable.MOST_QUERIES:
        raise PateError(
            f"answered={answered} and asked={asked} must be in this order from 0 to {stable.MOST_QUERIES:,}"
        )
    return AnswersStatement(
        figures={
            name: stable_headline(mechanism, check_delta(delta))
            if name == HEADLINE
            else _no_figure(name, "not defined for stable answers")
            for name in NAMES
        },
        asked=asked,
        answered=answered,
        delta=delta,
        relation=relation,
        words=_whole_list(mechanism, asked),
        mechanism=to_dict(mechanism),
        private=private,
        slack=stable.slack(mechanism, stable.MOST_QUERIES),
        teachers=teachers,
        classes=classes,
        declared=declared,
    )


def headline(event: Answers, delta: float) -> Figure:
    """The figure to publish of answers without a budget: nothing of the votes is read but their number.

    >>> from pate_jax.mechanisms import GNMax
    >>> round(headline(Answers(GNMax(40.0), teachers=250, classes=10, asked=100), 1e-5).epsilon, 4)
    1.1243
    """
    mechanism = event.mechanism
    if isinstance(mechanism, StableAnswers):
        return stable_headline(mechanism, delta)
    anything = np.zeros((1, event.classes), np.int64)
    anything[:, 0] = event.teachers
    slack = sampler_slack(mechanism, event.asked, event.classes)
    asked, orders = np.array([event.asked]), curves.default_orders()
    case = figures.Case(mechanism, anything, asked, None, delta, orders, slack)
    return figures.data_independent(case)


def stable_headline(mechanism: StableAnswers, delta: float) -> Figure:
    """The only figure of a list, which follows from the mechanism and delta.

    >>> stable_headline(StableAnswers(threshold=30, scale=3.0, cutoff=1), 1e-5).epsilon is None
    True
    """
    epsilon = Epsilon(stable.epsilon(mechanism, delta), None)
    return figures.figure(epsilon, "publishable", _STABLE, _WHOLE_LIST)


def _whole_list(mechanism: StableAnswers, asked: int) -> str:
    last = "first unanswered query" if mechanism.cutoff == 1 else f"unanswered query {mechanism.cutoff:,}"
    return f"a whole list of stable answers, which ends with its {last}; {asked:,} queries asked"
