"""The figures of a statement as a table: text for a terminal, HTML for a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.party_statement import PartyStatement
from pate_jax.accounting.statement import Statement

Rows = Sequence[tuple[str, Figure]]
_TITLES = {"exact": "exact, Renyi", "pld": "exact, PLD", "data_independent": "data-independent"}
_CELL = "text-align:left;padding:0.2em 0.8em;border-bottom:1px solid var(--line,#ccc)"


def rounded_up(epsilon: float) -> str:
    """Four decimals, rounded up: a printed figure is never below the computed one.

    >>> rounded_up(1.00001)
    '1.0001'
    """
    return f"{math.ceil(epsilon * 1e4) / 1e4:.4f}" if epsilon < 1e6 else f"{epsilon * (1 + 1e-4):.4g}"


def card_line(statement: Statement | CrowdStatement | PartyStatement, caveat: str = "") -> str:
    """One line for a model card, from the publishable headline only."""
    warning = f"{statement.warning} " if statement.warning else ""
    if statement.headline.epsilon is None:
        return f"{warning}No finite epsilon holds at delta = {statement.delta:g}."
    epsilon = rounded_up(statement.headline.epsilon)
    return (
        f"{warning}({epsilon}, {statement.delta:g})-differentially private for {statement.covers}; "
        f"{statement.charged}; data-independent{caveat}."
    )


def text(
    statement: Statement | CrowdStatement | PartyStatement, rows: Rows, *, publishable_only: bool
) -> str:
    """The table for a terminal; sensitive rows say so."""
    lines = [statement.warning, ""] if statement.warning else []
    lines += [
        f"Privacy at delta = {statement.delta:g}, for {statement.covers}",
        f"Charged: {statement.charged}",
        "",
        f"  {'figure':<18}{'epsilon':>10}{'order':>9}  status",
    ]
    for name, figure in rows:
        cells = f"{_epsilon(figure.epsilon):>10}{_order(figure.order):>9}"
        lines.append(f"  {_TITLES.get(name, name):<18}{cells}  {figure.status}")
        lines.append(f"  {'':<18}{figure.note}")
    if not publishable_only and isinstance(statement, Statement):
        lines += _sensitive_lines(statement)
    if statement.private:
        lines += ["", f"All releases together: {statement.trade_off.words}."]
    lines += ["", f"Model card: {statement.model_card_line()}"]
    if not publishable_only:
        lines += ["Figures marked sensitive are functions of the private votes: keep them inside."]
    return "\n".join(lines) + "\n"


def html(statement: Statement | CrowdStatement | PartyStatement, rows: Rows) -> str:
    """The table as a self-contained HTML fragment; words and colour mark the sensitive rows."""
    warning = f"<p><strong>{escape(statement.warning)}</strong></p>\n" if statement.warning else ""
    heads = "".join(
        f'<th style="{_CELL}">{head}</th>' for head in ("figure", "epsilon", "order", "status", "note")
    )
    about = f"delta = {statement.delta:g}; {statement.covers}; {statement.charged}."
    return (
        f"{warning}<p>{escape(about)}</p>\n"
        f'<table style="border-collapse:collapse"><tr>{heads}</tr>\n'
        f"{''.join(_html_row(name, figure) for name, figure in rows)}</table>\n"
        f"{_together(statement)}<p>Model card: {escape(statement.model_card_line())}</p>\n"
    )


def _together(statement: Statement | CrowdStatement | PartyStatement) -> str:
    words = escape(statement.trade_off.words) if statement.private else ""
    return f"<p>All releases together: {words}.</p>\n" if words else ""


def _sensitive_lines(statement: Statement) -> list[str]:
    smallest = statement.smallest
    least, title = statement.figures[smallest], _TITLES.get(smallest, smallest)
    cell = f"{_epsilon(least.epsilon)} ({title}; {least.status})"
    lines = ["", f"Smallest guarantee for this data set: {cell}"]
    if statement.sums:
        lines += ["", "  Sums that are no bounds (sensitive):"]
        lines += [f"    {name:<28}{_epsilon(one['epsilon']):>10}" for name, one in statement.sums.items()]
    return lines


def _html_row(name: str, figure: Figure) -> str:
    withheld = figure.status == "sensitive"
    colour = "var(--withheld,#b00020)" if withheld else "var(--released,#006b3c)"  # a page may set both
    cells = (_TITLES.get(name, name), _epsilon(figure.epsilon), _order(figure.order))
    body = "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in cells)
    status = f'<td style="{_CELL};color:{colour}"><strong>{figure.status}</strong></td>'
    return f'<tr>{body}{status}<td style="{_CELL}">{escape(figure.note)}</td></tr>\n'


def _epsilon(epsilon: float | None) -> str:
    return "none" if epsilon is None else rounded_up(epsilon)


def _order(order: float | None) -> str:
    return "" if order is None else f"{order:.4g}"
