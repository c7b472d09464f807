"""Plots of a sweep, as SVG. matplotlib is loaded when one is drawn and not before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pate_jax.accounting.many import many
from pate_jax.accounting.many_exact import exact_many
from pate_jax.accounting.plots import rendered
from pate_jax.mechanisms import from_dict
from pate_jax.sweep.pareto import front

Row = Mapping[str, Any]
COLOURS = ("#1b6ca8", "#c8553d", "#3f7d20", "#e3b23c", "#6a4c93", "#4a4a4a", "#2a9d8f", "#b00020")
_CROWD = 4000  # points that one plot shows at most


def accuracy(rows: Sequence[Row]) -> bytes | None:
    """Accuracy against epsilon, a colour for each number of teachers, the front's cells joined by a line."""
    some = [row for row in rows if row["data_independent"] is not None and _accuracy(row) is not None]
    if not some:
        return None
    figure, axes = _canvas("data-independent epsilon", _what(some))
    kinds = sorted({(row["name"], row["teachers"]) for row in some})
    for place, kind in enumerate(kinds):
        own = [row for row in some if (row["name"], row["teachers"]) == kind]
        colour = COLOURS[place % len(COLOURS)]
        shown = own[:: max(1, len(own) // _CROWD)]
        axes.scatter(
            [row["data_independent"] for row in shown],
            [100 * _accuracy(row) for row in shown],
            s=12,
            alpha=0.5,
            color=colour,
            linewidths=0,
            label=f"{kind[0]}, {kind[1]} teachers",
        )
        best = _climbing(front(own))
        axes.plot(
            [row["data_independent"] for row in best],
            [100 * _accuracy(row) for row in best],
            color=colour,
            linewidth=1,
        )
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.legend(frameon=False, fontsize=8)
    return rendered(figure)


def thresholds(rows: Sequence[Row]) -> bytes | None:
    """Share of the queries answered, and answered and right, against the threshold; a colour a noise."""
    some = [row for row in rows if "threshold" in row["mechanism"]]
    if len({row["mechanism"]["threshold"] for row in some}) < 2:
        return None
    frames = Counter(map(_frame, some))
    first = max(frames, key=lambda frame: (frames[frame], frame))
    some = [row for row in some if _frame(row) == first]
    scales = sorted({_scale(row) for row in some})
    scales = [scales[place] for place in np.unique(np.linspace(0, len(scales) - 1, 4).round().astype(int))]
    figure, axes = _canvas(f"threshold, of {first[1]} votes", f"share of {first[3]:,} queries, %")
    for place, scale in enumerate(scales):
        own = [row for row in some if _scale(row) == scale]
        at = sorted({row["mechanism"]["threshold"] for row in own})
        for name, style in (("answered", "-"), ("right", "--")):
            means = [
                np.mean([row[name] / row["queries"] for row in own if row["mechanism"]["threshold"] == value])
                for value in at
                if all(row[name] is not None for row in own)
            ]
            if means:
                label = f"{name}, noise {scale:.3g}"
                axes.plot(at, 100 * np.array(means), style, color=COLOURS[place], label=label)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return rendered(figure)


def queries(row: Row, votes: np.ndarray, exact: bool) -> bytes:
    """Epsilon against the number of queries for one setting, by way of accounting."""
    mechanism, delta = from_dict(dict(row["mechanism"])), row["delta"]
    at = np.unique(np.geomspace(max(1, row["queries"] / 50), row["queries"], 10).round().astype(int)).tolist()
    found = many([mechanism] * len(at), votes, delta, queries=at)
    figure, axes = _canvas("queries asked", f"epsilon at delta = {delta:g}")
    axes.plot(at, found.data_independent, color="#4a4a4a", label="data-independent")
    axes.plot(at, found.published, color="#c8553d", label="published (expected, one direction)")
    if exact:
        few = at[-5:]
        costs = exact_many([mechanism] * len(few), votes, delta, queries=few)
        axes.plot(few, [one.epsilon for one in costs], color="#1b6ca8", label="exact (joint)")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return rendered(figure)


def _accuracy(row: Row) -> Any:
    return row["label_accuracy"] if row["student_accuracy"] is None else row["student_accuracy"]


def _what(rows: Sequence[Row]) -> str:
    students = any(row["student_accuracy"] is not None for row in rows)
    return "accuracy of the student, %" if students else "answers that are right, %"


def _climbing(rows: Sequence[Row]) -> list[Row]:
    """Of a front, the rows that are more accurate than every row of less epsilon."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["data_independent"], -(_accuracy(row) or 0))):
        if not best or (_accuracy(row) or 0) > (_accuracy(best[-1]) or 0):
            best.append(row)
    return best


def _frame(row: Row) -> tuple:
    return row["name"], row["teachers"], row["mechanism"]["name"], row["queries"]


def _scale(row: Row) -> float:
    return from_dict(dict(row["mechanism"])).noise.scale


def _canvas(across: str, up: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 3.3), layout="constrained")  # as wide as a phone
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10 on a logarithmic axis, and no powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
