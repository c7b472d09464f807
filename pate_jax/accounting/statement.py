"""The privacy statement: all figures side by side, each marked sensitive or publishable, and their JSON."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.accounting import curves, figures
from pate_jax.accounting.exact import groups
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.inputs import check_delta, check_orders, check_votes
from pate_jax.accounting.slack import sampler_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, from_dict, to_dict

NAMES = ("exact", "pld", "published", "data_independent", "sanitised")
NOT_PRIVATE = "NOT PRIVATE: the noise came from a fixed seed, so anyone who knows it can take it away again."
RELATIONS = {
    "record": "one record added, removed or changed under the same id",
    "user": "all records of one user added, removed or changed under the same id",
    "contents": "the contents of one record changed, none added or removed (the records have no ids)",
    "party": "the whole vote of one party changed, whatever its records",
}
Relation = Literal["record", "user", "contents", "party"]
DECLARED = ", as declared by the makers of the votes"
_IDEAL = "; for ideal noise: what rounding its float32 draws reveals is not covered"


@dataclass(frozen=True)
class Statement:
    """What a list of queries cost. Made by `statement`; `publishable()` is what may leave the house."""

    figures: dict[str, Figure]
    asked: int
    answered: int
    delta: float
    relation: str
    charged: str
    mechanism: dict[str, Any]
    private: bool = True
    slack: float = 0.0
    sums: dict[str, dict[str, Any]] = field(default_factory=dict)
    teachers: int = 0  # 0 where not every query was put to the same number of them
    classes: int = 0
    declared: bool = False  # the relation is the word of whoever made the votes; else the run's own partition
    rule: curves.Rule = "counts"  # what the headline charges for; statements of older versions do not say

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words, and whose word that is."""
        return RELATIONS[self.relation] + (DECLARED if self.declared else "")

    @property
    def warning(self) -> str:
        """What to say first of a seeded run; nothing of any other."""
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
        """The same with publishable figures only: the form for `release/`."""
        allowed = {name: figure for name, figure in self.figures.items() if figure.status == "publishable"}
        return {
            **self._facts(),
            "figures": {
                name: figure.to_dict() for name, figure in allowed.items() if _worth_showing(name, figure)
            },
            "status": "publishable",
        }

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Statement:
        """The statement that `to_dict` or `publishable` described."""
        try:
            found = cls._of(description)
            _check(found)
        except (KeyError, TypeError, AttributeError) as error:
            raise PateError(
                f"this is no statement ({error!r}); write it again with `pate account`"
            ) from error
        return found

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
            **{name: description[name] for name in _FACTS if name in description or name not in _LATER},
        )

    def model_card_line(self) -> str:
        """One line for a model card, from the publishable headline only."""
        warning = f"{self.warning} " if self.warning else ""
        if self.headline.epsilon is None:
            return f"{warning}No finite epsilon holds at delta = {self.delta:g}."
        from pate_jax.accounting import figure_table  # which describes statements

        epsilon = figure_table.rounded_up(self.headline.epsilon)
        return (
            f"{warning}({epsilon}, {self.delta:g})-differentially private for {self.covers}; "
            f"{self.charged}; data-independent{self._caveat()}."
        )

    def _caveat(self) -> str:
        """What the figure does not cover where noise is continuous; whole-number noise has no such gap."""
        mechanism = from_dict(self.mechanism)
        noises = [mechanism.noise, *([mechanism.test.noise] if mechanism.test is not None else [])]
        return "" if all(noise.is_discrete for noise in noises) else _IDEAL

    def text(self, *, publishable_only: bool = False) -> str:
        """For a terminal; sensitive rows say so."""
        from pate_jax.accounting import figure_table  # which describes statements

        return figure_table.text(self, self._rows(publishable_only), publishable_only=publishable_only)

    def html(self, *, publishable_only: bool = False) -> str:
        """A self-contained fragment; sensitive rows are marked in words and in colour."""
        from pate_jax.accounting import figure_table  # which describes statements

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
            "relation_in_words": self.covers,
            "model_card_line": self.model_card_line(),
        }


_LATER = ("teachers", "classes")  # statements of the first version do not have them
_FACTS = ("asked", "answered", "delta", "relation", "charged", "mechanism", "private", "slack", *_LATER)


def _check(statement: Statement) -> None:
    """Refuse a statement whose fields are of other types than those that were written."""
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
    numbers = [statement.delta, statement.slack]
    for figure in statement.figures.values():
        numbers += [value for value in (figure.epsilon, figure.order) if value is not None]
        if not all(isinstance(text, str) for text in (figure.status, figure.basis, figure.note)):
            raise TypeError(f"a figure's words are {figure!r}")
    for entry in statement.sums.values():
        numbers += [] if entry["epsilon"] is None else [entry["epsilon"]]
    if not all(type(number) in (int, float) and 0 <= number <= sys.float_info.max for number in numbers):
        raise TypeError(f"one of {numbers} is no number >= 0")
    if statement.relation not in RELATIONS:
        raise PateError(f"relation={statement.relation!r} must be one of {', '.join(RELATIONS)}")
    curves.check_rule(statement.rule)
    from_dict(statement.mechanism)
    check_delta(statement.delta)


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
    relation: Relation = "party",
    declared: bool = True,
    private: bool = True,
    adaptive: bool = False,
    budget: float | None = None,
    sanitised: Figure | None = None,
    orders: ArrayLike | None = None,
    pld: bool | None = None,
    voters_may_sit_out: bool = False,
    rule: curves.Rule = curves.NEWEST,
) -> Statement:
    """The privacy statement of a list of queries.

    `votes` holds every query ASKED, `answered` says which were answered; with `None` all count as answered,
    and the sums over the answers there were are left out. `adaptive=True`
    where the list was not fixed before the first answer: data-dependent figures are then no guarantee.
    `budget` is the epsilon of a privacy filter, fixed in advance; it replaces the worst case over the
    queries asked, whose number is then itself an answer. `sanitised` comes from `sanitise`.
    `private=False` marks a seeded run. `pld` says whether privacy-loss distributions are composed; unset:
    where they may give less than the Renyi figure. `rule` is that of the run, where there is one.

    Every row must have one total, the number of teachers: a record moves a vote, and makes none appear.
    `voters_may_sit_out=True` where who votes on which query was fixed without the records.

    What is proved of votes alone is about one voter: `relation="party"`. That a record, a user or a record's
    contents moves one vote at most is for the votes' makers to declare, and the statement says that they did;
    `declared=False` is for teachers of one's own, whose partition shows it.

    >>> from pate_jax.mechanisms import GNMax
    >>> statement(GNMax(40.0), [[9, 1]], None, 1e-5).covers
    'the whole vote of one party changed, whatever its records, as declared by the makers of the votes'
    """
    counts = check_votes(votes)
    _check_rows(counts, voters_may_sit_out)
    mask = np.ones(len(counts), bool) if answered is None else np.asarray(answered)
    if mask.shape != (len(counts),) or mask.dtype != np.bool_:
        raise PateError(
            f"answered of shape {mask.shape} and type {mask.dtype} must be {len(counts)} booleans"
        )
    if relation not in RELATIONS:
        raise PateError(f"relation={relation!r} must be one of {', '.join(RELATIONS)}")
    grid = curves.default_orders() if orders is None else check_orders(orders)
    slack = sampler_slack(mechanism, *counts.shape)
    kinds = groups.distinct(counts, mask)
    known = None if answered is None else kinds.among[0]
    delta = check_delta(delta)
    case = figures.Case(mechanism, kinds.votes, kinds.asked, known, delta, grid, slack, adaptive, rule)
    return Statement(
        figures=figures.all_figures(case, budget, sanitised, pld),
        asked=len(counts),
        answered=int(mask.sum()),
        delta=case.delta,
        relation=relation,
        charged=_charged(mechanism, len(counts), budget) + _apart(sanitised),
        mechanism=to_dict(mechanism),
        private=private,
        slack=slack,
        sums=figures.sums(case),
        teachers=_teachers(counts),
        classes=counts.shape[1],
        declared=declared,
        rule=rule,
    )


def _check_rows(counts: np.ndarray, may_differ: bool) -> None:
    totals = counts.sum(axis=1)
    if not len(totals):
        raise PateError("votes are on no query: there is nothing to account for yet")
    other = np.flatnonzero(totals != totals[0])
    if other.size and not may_differ:
        raise PateError(
            f"votes row {other[0]} sums to {totals[other[0]]}, row 0 to {totals[0]}: each teacher must vote "
            "once on each query; where it was fixed without the records who votes on which, say so "
            "(voters_may_sit_out=True)"
        )


def _teachers(counts: np.ndarray) -> int:
    totals = counts.sum(axis=1)
    return int(totals[0]) if len(totals) and np.ptp(totals) == 0 else 0


def _apart(sanitised: Figure | None) -> str:
    """A sanitised figure that leaves is a release of its own, which no other figure pays for."""
    leaves = sanitised is not None and sanitised.status == "publishable" and sanitised.epsilon is not None
    return ", the release of the sanitised figure apart" if leaves else ""


def _charged(mechanism: Mechanism, asked: int, budget: float | None) -> str:
    if budget is None and mechanism.test is None:
        return f"all {asked} queries asked"
    if budget is None:
        return f"all {asked} queries asked, test and answer as one joint mechanism"
    return f"the whole budget of a privacy filter, epsilon {budget:g}, fixed in advance"
