"""The privacy statement: all figures side by side, each marked sensitive or publishable, and their JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import after_count, answers_trade_off, curves, figures, filter
from pate_jax.accounting.after_count import Limit
from pate_jax.accounting.exact import groups
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.filter import Filter
from pate_jax.accounting.inputs import check_delta, check_orders, check_votes
from pate_jax.accounting.slack import sampler_slack
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, to_dict
from pate_jax.mechanisms.stable import StableAnswers, from_dict

if TYPE_CHECKING:
    from pate_jax.accounting.crowd_statement import CrowdStatement

NAMES = ("exact", "pld", "published", "data_independent", "sanitised")
# `pate verify` compares the sentences of a published statement with these, so a change fails older runs
NOT_PRIVATE = "NOT PRIVATE: the noise came from a fixed seed, so anyone who knows it can take it away again."
RELATIONS = {
    "record": "one record added, removed or changed under the same id",
    "user": "all records of one user added, removed or changed under the same id",
    "contents": "the contents of one record changed, none added or removed (the records have no ids)",
    "party": "the one teacher of a party changed, whatever its records",
}
Relation = Literal["record", "user", "contents", "party"]
DECLARED = ", as declared by the makers of the votes"
APART = "the release of the sanitised figure apart"
_IDEAL = "; for ideal noise: what rounding its float32 draws reveals is not covered"


@dataclass(frozen=True)
class Statement:
    """What a list of queries cost. `statement` makes it; `publishable()` gives the part to publish."""

    figures: dict[str, Figure]
    asked: int
    answered: int
    delta: float
    relation: str
    charged: str
    mechanism: dict[str, Any]
    private: bool
    slack: float = 0.0
    sums: dict[str, dict[str, Any]] = field(default_factory=dict)
    teachers: int = 0  # 0 if the number of teachers differs between queries
    classes: int = 0
    declared: bool = False  # whether the makers of the votes vouch for the relation, not the run's partition
    rule: curves.Rule = "counts"  # what the headline charges for; statements of older versions lack it
    headcount: float = 0.0  # scale of the noise in the number of voters that chose them; 0 if none did

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words, and who vouches for it."""
        return RELATIONS[self.relation] + (DECLARED if self.declared else "")

    @property
    def warning(self) -> str:
        """The warning that comes first for a seeded run; empty for any other."""
        return "" if self.private else NOT_PRIVATE

    @property
    def smallest(self) -> str:
        """Which figure is the smallest guarantee for this data set; sensitive, unless it is the headline."""
        valid = [
            (figure.epsilon, name)
            for name, figure in self.figures.items()
            if name in ("exact", "pld", "data_independent")
            and figure.epsilon is not None
            and figure.note != figures.HISTORY
        ]
        return min(valid)[1] if valid else "data_independent"

    @property
    def headline(self) -> Figure:
        """The figure to publish: a guarantee that reads nothing from the votes."""
        return self.figures["data_independent"]

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach, whatever the votes are: as publishable as the headline."""
        mechanism = from_dict(self.mechanism)
        if isinstance(mechanism, StableAnswers):
            return answers_trade_off.of_stable(mechanism, self.delta)
        if self.headcount and self.headline.epsilon is not None:
            return answers_trade_off.of_limit(self.headline.epsilon, self.delta)
        epsilon = self.headline.epsilon
        found = answers_trade_off.of_answers(
            mechanism,
            self.asked,
            teachers=self.teachers,
            classes=self.classes,
            rule=self.rule,
            delta=self.delta,
            headline=math.inf if epsilon is None else epsilon,
            budgeted=self.headline.basis == "filter",
        )
        return found._replace(apart=APART if self.charged.endswith(APART) else "")

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON; sensitive, since it holds sensitive figures."""
        return {
            **self._facts(),
            "figures": {name: self.figures[name].to_dict() for name in NAMES},
            "sums": self.sums,
            "smallest": self.smallest,
            "status": "sensitive",
        }

    def publishable(self) -> dict[str, Any]:
        """The publishable figures only, as JSON: the form for `release/`."""
        allowed = {name: figure for name, figure in self.figures.items() if figure.status == "publishable"}
        return {
            **self._facts(),
            "figures": {
                name: figure.to_dict() for name, figure in allowed.items() if _worth_showing(name, figure)
            },
            "status": "publishable",
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Statement | CrowdStatement:
        """The statement that `to_dict` or `publishable` described: of answers, or of a crowd's tables."""
        if "releases" in description:
            from pate_jax.accounting.crowd_statement import CrowdStatement  # which uses this module

            return CrowdStatement.from_dict(description)
        try:
            statement = cls._of(description)
            _check(statement)
        except (KeyError, TypeError, AttributeError) as error:
            raise PateError(
                f"this is not a statement ({error!r}); write it again with `pate account`"
            ) from error
        return statement

    @classmethod
    def _of(cls, description: Mapping[str, Any]) -> Statement:
        known = description["figures"]
        none = {
            name: {"epsilon": None, "order": None, "status": _status(name), "note": "not in this file"}
            for name in NAMES
        }
        return cls(
            figures={name: Figure(**known.get(name, none[name])) for name in NAMES},
            sums=description.get("sums", {}),
            declared=description.get("declared", False),
            rule=description.get("rule", "counts"),
            headcount=description.get("headcount", 0.0),
            **{name: description[name] for name in _FACTS if name in description or name not in _LATER},
        )

    def model_card_line(self) -> str:
        """One line for a model card, from the publishable headline only."""
        from pate_jax.accounting import figure_table  # imported here, as it imports this module

        return figure_table.card_line(self, self._caveat())

    def _caveat(self) -> str:
        """What the figure does not cover if the noise is continuous; empty for whole-number noise."""
        mechanism = from_dict(self.mechanism)
        if isinstance(mechanism, StableAnswers):
            return ""
        noises = [mechanism.noise, *([mechanism.test.noise] if mechanism.test is not None else [])]
        return "" if all(noise.is_discrete for noise in noises) else _IDEAL

    def text(self, *, publishable_only: bool = False) -> str:
        """The table for a terminal; sensitive rows say so."""
        from pate_jax.accounting import figure_table  # imported here, as it imports this module

        return figure_table.text(self, self._rows(publishable_only), publishable_only=publishable_only)

    def html(self, *, publishable_only: bool = False) -> str:
        """The table as a self-contained HTML fragment; words and colour mark the sensitive rows."""
        from pate_jax.accounting import figure_table  # imported here, as it imports this module

        return figure_table.html(self, self._rows(publishable_only))

    def _rows(self, publishable_only: bool) -> list[tuple[str, Figure]]:
        rows = [(name, self.figures[name]) for name in NAMES]
        return [
            (name, figure)
            for name, figure in rows
            if not publishable_only or (figure.status == "publishable" and _worth_showing(name, figure))
        ]

    def _facts(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _FACTS}
        return {
            **({"warning": self.warning} if self.warning else {}),
            **facts,
            **({"declared": True} if self.declared else {}),
            **({} if self.rule == "counts" else {"rule": self.rule}),
            **({"headcount": self.headcount} if self.headcount else {}),
            "relation_in_words": self.covers,
            "model_card_line": self.model_card_line(),
            "trade_off": self.trade_off.to_dict(),
        }


_LATER = ("teachers", "classes")  # statements of the first version do not have them
_FACTS = ("asked", "answered", "delta", "relation", "charged", "mechanism", "private", "slack", *_LATER)


def _check(statement: Statement) -> None:
    """Refuse a statement whose fields have other types than `to_dict` writes."""
    wanted = {
        **dict.fromkeys(("asked", "answered", "teachers", "classes"), int),
        "relation": str,
        "charged": str,
        "mechanism": dict,
        "private": bool,
        "declared": bool,
        "sums": dict,
    }
    for name, kind in wanted.items():
        if type(getattr(statement, name)) is not kind:
            raise TypeError(f"{name}={getattr(statement, name)!r}")
    numbers = [statement.delta, statement.slack, statement.headcount]
    for figure in statement.figures.values():
        numbers += [value for value in (figure.epsilon, figure.order) if value is not None]
        if not all(isinstance(text, str) for text in (figure.status, figure.basis, figure.note)):
            raise TypeError(f"the texts of {figure!r} must be strings")
    for entry in statement.sums.values():
        numbers += [] if entry["epsilon"] is None else [entry["epsilon"]]
    if not all(type(number) in (int, float) and 0 <= number <= sys.float_info.max for number in numbers):
        raise TypeError(f"{numbers} must be finite numbers >= 0")
    _check_relation(statement.relation)
    curves.check_rule(statement.rule)
    from_dict(statement.mechanism)
    check_delta(statement.delta)


def _check_relation(relation: str) -> None:
    if relation not in RELATIONS:
        raise PateError(f"relation={relation!r} must be one of {', '.join(RELATIONS)}")


def _status(name: str) -> figures.Status:
    return "publishable" if name in ("data_independent", "sanitised") else "sensitive"


def _worth_showing(name: str, figure: Figure) -> bool:
    return name != "sanitised" or figure.epsilon is not None


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
    rule: curves.Rule = curves.NEWEST,
) -> Statement:
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
    counts = check_votes(votes)
    _check_rows(counts, voters_may_sit_out)
    mask = _mask(answered, len(counts))
    _check_relation(relation)
    grid = curves.default_orders() if orders is None else check_orders(orders)
    slack = sampler_slack(mechanism, *counts.shape)
    merged = groups.distinct(counts, mask)
    known = None if answered is None else merged.among[0]
    delta = check_delta(delta)
    if budget is not None:
        _check_within(budget, mechanism, counts, delta, rule)
    if after is not None:
        _check_after(after, mechanism, counts, delta, rule)
    chosen = adaptive or after is not None
    case = figures.Case(
        mechanism, merged.votes, merged.asked, known, delta, grid, slack, chosen, rule, with_sums=True
    )
    fixed = None if budget is None else figures.FILTER.of(budget.epsilon)
    fixed = fixed if after is None else figures.AFTER.of(after.epsilon)
    return Statement(
        figures=figures.all_figures(case, fixed, sanitised, pld),
        asked=len(counts),
        answered=int(mask.sum()),
        delta=delta,
        relation=relation,
        charged=_charged(mechanism, len(counts), budget, after) + _apart(sanitised),
        mechanism=to_dict(mechanism),
        private=private,
        slack=slack,
        sums=figures.sums(case),
        teachers=_teachers(counts),
        classes=counts.shape[1],
        declared=declared,
        rule=rule,
        headcount=0.0 if after is None else after.headcount.sigma,
    )


def _mask(answered: ArrayLike | None, queries: int) -> NDArray[np.bool_]:
    """Which queries were answered; all of them if that is not known."""
    mask = np.ones(queries, bool) if answered is None else np.asarray(answered)
    if mask.shape != (queries,) or mask.dtype != np.bool_:
        raise PateError(f"answered of shape {mask.shape} and type {mask.dtype} must be {queries} booleans")
    return mask


def _check_within(
    budget: Filter, mechanism: Mechanism, counts: np.ndarray, delta: float, rule: curves.Rule
) -> None:
    """Refuse queries that a filter would not have let ask, and a delta that is not its own."""
    if budget.delta != delta:
        raise PateError(f"delta={delta} is not that of the budget, {budget.delta}: give the budget's")
    spent, of = filter.NOTHING, {"classes": counts.shape[1], "order": budget.order, "rule": rule}
    for teachers, asked in zip(*np.unique(counts.sum(axis=1), return_counts=True), strict=True):
        each = filter.cost(mechanism, teachers=int(teachers), **of)
        spent = spent.plus(each.times(int(asked)))
    if not budget.allows(spent):
        raise PateError(
            f"budget.epsilon={budget.epsilon:g} does not afford {len(counts)} queries of {mechanism!r}, "
            "whatever the votes: leave budget out, which states the worst case over all of them"
        )


def _check_after(
    after: Limit, mechanism: Mechanism, counts: np.ndarray, delta: float, rule: curves.Rule
) -> None:
    """Refuse answers that cost more than may follow a number of voters, and another delta."""
    if after.delta != delta:
        raise PateError(f"delta={delta} is not that of the limit, {after.delta}: give the limit's")
    size = {"queries": len(counts), "teachers": _teachers(counts), "classes": counts.shape[1]}
    if not size["teachers"] or not after_count.fits(mechanism, after, **size, rule=rule):
        raise PateError(
            f"epsilon={after.epsilon:g} does not allow {len(counts)} answers of {mechanism!r} after a noisy "
            "number of voters, whatever the votes: restore the run's settings from a backup"
        )


def _check_rows(counts: np.ndarray, may_differ: bool) -> None:
    """Refuse votes on no query, and rows of different totals unless those were allowed."""
    totals = counts.sum(axis=1)
    if not len(totals):
        raise PateError("votes cover no query: there is nothing to account for yet")
    other = np.flatnonzero(totals != totals[0])
    if other.size and not may_differ:
        raise PateError(
            f"votes row {other[0]} sums to {totals[other[0]]}, row 0 to {totals[0]}: each teacher must vote "
            "once on each query; if who votes on which query was fixed without the records, pass "
            "voters_may_sit_out=True"
        )


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
