"""The privacy statement: figures, whom they cover and what they charge, as JSON, text and HTML.

Every kind of run has its kind of statement: of answers, of the tables of a crowd, of a vote among parties and
of a training. What they have in common is here.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar, Literal, Self, get_args

from pate_jax.accounting.figures import Figure, rounded_up
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.errors import PateError

HEADLINE = "data_independent"  # the name of the figure to publish
PAPERS = "published"  # that of the papers' own, which is no guarantee
NOT_PRIVATE = "NOT PRIVATE: the noise came from a fixed seed, so anyone who knows it can take it away again."
RELATIONS = {
    "record": "one record added, removed or changed under the same id",
    "user": "all records of one user added, removed or changed under the same id",
    "contents": "the contents of one record changed, none added or removed (the records have no ids)",
    "party": "the one teacher of a party changed, whatever its records",
}
Relation = Literal["record", "user", "contents", "party"]
DECLARED = ", as declared by the makers of the votes"
_DERIVED = {
    *("artefact", "schema", "trial", "warning", "asked", "smallest"),
    *("charged", "relation_in_words", "model_card_line", "trade_off", "status"),
}
_TYPES = {"int": (int,), "bool": (bool,), "str": (str,), "float": (int, float), "dict": (dict,)}
_TITLES = {"exact": "exact, Renyi", "pld": "exact, PLD", HEADLINE: "data-independent"}
_CELL = "text-align:left;padding:0.2em 0.8em;border-bottom:1px solid var(--line,#ccc)"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What releases cost. A function makes each kind; `publishable()` gives the part to publish."""

    figures: dict[str, Figure]
    delta: float
    relation: str
    private: bool
    declared: bool = False  # whether the makers of the votes vouch for the relation, not the run itself

    mark: ClassVar[str] = "nothing"  # the field that only files of this kind have
    relations: ClassVar[tuple[str, ...]] = ("record", "user")
    sensitive: ClassVar[tuple[str, ...]] = ()  # names of the figures that follow from private votes

    @property
    def warning(self) -> str:
        """The warning that comes first for a seeded run; empty for any other."""
        return "" if self.private else NOT_PRIVATE

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words, and who vouches for it."""
        return RELATIONS[self.relation] + (DECLARED if self.declared else "")

    @property
    def charged(self) -> str:
        """What the figures cover, in words."""
        raise NotImplementedError

    @property
    def headline(self) -> Figure:
        """The figure to publish: a guarantee that reads nothing private."""
        return self.figures[HEADLINE]

    @property
    def smallest(self) -> str:
        """Which figure is the smallest guarantee for this data set; sensitive, unless it is the headline."""
        return HEADLINE

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach, whatever the records are: as publishable as the headline."""
        raise NotImplementedError

    def own(self) -> dict[str, Any]:
        """The fields of this kind, as JSON."""
        raise NotImplementedError

    def publishable(self) -> dict[str, Any]:
        """The publishable figures only, as JSON: the form for `release/`."""
        return {
            **({"warning": self.warning} if self.warning else {}),
            **self.own(),
            "delta": self.delta,
            "relation": self.relation,
            "private": self.private,
            "charged": self.charged,
            **({"declared": True} if self.declared else {}),
            "relation_in_words": self.covers,
            "model_card_line": self.model_card_line(),
            "figures": {name: figure.to_dict() for name, figure in self._rows(publishable_only=True).items()},
            "trade_off": self.trade_off.to_dict(),
            "status": "publishable",
        }

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON; sensitive where a figure is."""
        return self.publishable()

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> Self:
        """The statement that `to_dict` or `publishable` described, of whichever kind."""
        try:
            kinds = [one for one in (*cls.__subclasses__(), cls) if one.mark in description]
            if not kinds:
                raise KeyError("mechanism")
            kind = kinds[0]
            known = {field.name for field in dataclasses.fields(kind)}
            if unknown := sorted({*description} - known - {kind.mark, *_DERIVED}):
                raise TypeError(f"the field {unknown[0]!r}")
            statement = kind.described(description)
            statement.check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PateError(
                f"this is no statement ({error!r}); write it again with `pate account`"
            ) from error
        return statement

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """The statement of this kind that these fields give."""
        raise NotImplementedError

    def check(self) -> None:
        """Refuse fields of other types than `to_dict` writes, and numbers that cannot be."""
        for field in dataclasses.fields(self):
            check_value(field.name, getattr(self, field.name), str(field.type))
        for name, figure in self.figures.items():
            for part, value in zip(("epsilon", "order"), (figure.epsilon, figure.order), strict=True):
                if value is not None:
                    check_value(f"{name}.{part}", value, "float")
            texts = (figure.status, figure.basis, figure.note)
            right = "sensitive" if name in self.sensitive else "publishable"
            if figure.status != right or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"the figure {figure!r}")
        if self.relation not in self.relations:
            raise TypeError(f"relation={self.relation!r} is none of {', '.join(self.relations)}")
        check_delta(self.delta)

    def model_card_line(self) -> str:
        """One line for a model card, from the publishable headline only."""
        warning, epsilon = f"{self.warning} " if self.warning else "", self.headline.epsilon
        if epsilon is None:
            return f"{warning}No finite epsilon holds at delta = {self.delta:g}."
        return (
            f"{warning}({rounded_up(epsilon)}, {self.delta:g})-differentially private for {self.covers}; "
            f"{self._narrower()}{self.charged}; data-independent{self._caveat()}."
        )

    def _narrower(self) -> str:
        """What else holds, for the line of a model card."""
        return ""

    def _caveat(self) -> str:
        """What the figure takes for granted, for the line of a model card."""
        return ""

    def _rows(self, *, publishable_only: bool) -> dict[str, Figure]:
        """The figures to show, by name, the one to publish first; one that holds nothing is not shown."""
        others = {
            name: figure
            for name, figure in self.figures.items()
            if name not in (HEADLINE, PAPERS)
            and figure.epsilon is not None
            and not (publishable_only and figure.status == "sensitive")
        }
        return {HEADLINE: self.headline, **others}

    def text(self, *, publishable_only: bool = False) -> str:
        """The table for a terminal; sensitive rows say so."""
        lines = [self.warning, ""] if self.warning else []
        lines += [
            f"Privacy at delta = {self.delta:g}, for {self.covers}",
            f"Charged: {self.charged}",
            "",
            f"  {'figure':<20}{'epsilon':>10}{'order':>9}  status",
        ]
        rows = self._rows(publishable_only=publishable_only)
        for name, figure in rows.items():
            title, epsilon, order = _cells(name, figure)
            lines += [
                f"  {title:<20}{epsilon:>10}{order:>9}  {figure.status}",
                f"  {'':<20}{figure.note}",
            ]
        sensitive = any(figure.status == "sensitive" for figure in rows.values())
        lines += self._sensitive_lines() if sensitive else []
        lines += ["", f"All releases together: {self.trade_off.words}."] if self.private else []
        lines += ["", f"Model card: {self.model_card_line()}"]
        if sensitive:
            lines += ["Figures marked sensitive are functions of the private votes: keep them inside."]
        return "\n".join(lines) + "\n"

    def _sensitive_lines(self) -> list[str]:
        """What the table says below its rows where it shows sensitive ones."""
        title, epsilon, _ = _cells(self.smallest, self.figures[self.smallest])
        status = self.figures[self.smallest].status
        return ["", f"Smallest guarantee for this data set: {epsilon} ({title}; {status})"]

    def html(self, *, publishable_only: bool = False) -> str:
        """The table as a self-contained HTML fragment; words and colour mark the sensitive rows."""
        warning = f"<p><strong>{escape(self.warning)}</strong></p>\n" if self.warning else ""
        heads = "".join(
            f'<th style="{_CELL}">{head}</th>' for head in ("figure", "epsilon", "order", "status", "note")
        )
        about = f"delta = {self.delta:g}; {self.covers}; {self.charged}."
        rows = self._rows(publishable_only=publishable_only).items()
        together = f"<p>All releases together: {escape(self.trade_off.words)}.</p>\n" if self.private else ""
        return (
            f"{warning}<p>{escape(about)}</p>\n"
            f'<table style="border-collapse:collapse"><tr>{heads}</tr>\n'
            f"{''.join(_html_row(name, figure) for name, figure in rows)}</table>\n"
            f"{together}<p>Model card: {escape(self.model_card_line())}</p>\n"
        )


def check_relation(relation: str, allowed: tuple[str, ...] = get_args(Relation)) -> None:
    """Refuse a relation that statements of a kind cannot have.

    >>> check_relation("user")
    """
    if relation not in allowed:
        raise PateError(f"relation={relation!r} must be one of {', '.join(allowed)}")


def check_value(name: str, value: object, kind: str) -> None:
    """Refuse a value of another type than a field's, and a number below 0 or beyond all floats.

    >>> check_value("asked", 3, "int")
    """
    allowed = _TYPES.get(kind.split("[")[0], (type(value),))
    beyond = isinstance(value, int | float) and not 0 <= value <= sys.float_info.max
    if type(value) not in allowed or beyond:
        raise TypeError(f"{name}={value!r}")


def printed(epsilon: float | None) -> str:
    """An epsilon in a table.

    >>> printed(1.00001), printed(None)
    ('1.0001', 'none')
    """
    return "none" if epsilon is None else rounded_up(epsilon)


def _cells(name: str, figure: Figure) -> tuple[str, str, str]:
    """The title, the epsilon and the order of a row."""
    order = "" if figure.order is None else f"{figure.order:.4g}"
    return _TITLES.get(name, name), printed(figure.epsilon), order


def _html_row(name: str, figure: Figure) -> str:
    withheld = figure.status == "sensitive"
    colour = "var(--withheld,#b00020)" if withheld else "var(--released,#006b3c)"  # a page may set both
    body = "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in _cells(name, figure))
    status = f'<td style="{_CELL};color:{colour}"><strong>{figure.status}</strong></td>'
    return f'<tr>{body}{status}<td style="{_CELL}">{escape(figure.note)}</td></tr>\n'
