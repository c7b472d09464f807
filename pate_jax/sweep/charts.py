"""Plots of a sweep, as SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from pate_jax.accounting import plots
from pate_jax.accounting.many import exact_many, many
from pate_jax.accounting.plots import canvas, rendered
from pate_jax.crowd.metric import Metric
from pate_jax.mechanisms import from_dict
from pate_jax.sweep.pareto import averaged, score
from pate_jax.sweep.results import Row

COLOURS = ("#1b6ca8", "#c8553d", "#3f7d20", "#e3b23c", "#6a4c93", "#4a4a4a", "#2a9d8f", "#b00020")
CAPTION = (
    "Accuracy against publishable epsilon, a line for each number of teachers. Points are settings, means "
    "over seeds; a line joins those that are better than all with less epsilon. They were picked by this "
    "very accuracy, so lines lie a little high."
)
_HARDLY_MORE = 1.05  # noise that is fitted to one epsilon for several lists ends a little below it
_CROWD = 4000  # points that one plot shows at most


def accuracy(rows: Sequence[Row]) -> bytes | None:
    """Accuracy against publishable epsilon, a line through the best settings for each number of teachers."""
    known = [row for row in rows if row["data_independent"] is not None]
    taught = [row for row in known if row["student_accuracy"] is not None]
    some = [row for row in averaged(taught or known) if _accuracy(row) is not None]
    if not some:
        return None
    figure, axes = canvas("publishable epsilon", _what(some))
    kinds = sorted({_kind(row) for row in some})
    for place, kind in enumerate(kinds):
        group = [row for row in some if _kind(row) == kind]
        points = group[:: max(1, len(group) // _CROWD)]
        colour = COLOURS[place % len(COLOURS)]
        axes.scatter(*_places(points), s=14, alpha=0.35, color=colour, linewidths=0)
        axes.plot(*_places(_climbing(group)), "o-", color=colour, ms=5, lw=1.6, label=_named(kind, kinds))
    axes.set_xscale("log")
    _plain_numbers(axes.xaxis)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return rendered(figure)


def _kind(row: Row) -> tuple[str, float, int]:
    return row["name"], row["delta"], row["teachers"]


def _named(kind: tuple[str, float, int], kinds: Sequence[tuple[str, float, int]]) -> str:
    """What a line stands for, as far as lines differ."""
    (name, delta, teachers), names, deltas = kind, {one[0] for one in kinds}, {one[1] for one in kinds}
    return "".join(
        [
            f"{name}, " * (len(names) > 1 and teachers > 0),
            f"{teachers:,} teachers" if teachers else name,
            f", delta {delta:g}" * (len(deltas) > 1),
        ]
    )


def _places(rows: Sequence[Row]) -> tuple[list[float], list[float]]:
    return [row["data_independent"] for row in rows], [100 * _accuracy(row) for row in rows]


def thresholds(rows: Sequence[Row]) -> bytes | None:
    """Share of the queries that are answered, and of those answered rightly, against the threshold.

    Each noise scale has a colour; of many scales, four are drawn.
    """
    some = [row for row in rows if "threshold" in row["mechanism"]]
    if len({_threshold(row) for row in some}) < 2:
        return None
    frames = Counter(map(_frame, some))
    first = max(frames, key=lambda frame: (frames[frame], frame))
    some = [row for row in some if _frame(row) == first]
    scales = sorted({_scale(row) for row in some})
    scales = [scales[place] for place in np.unique(np.linspace(0, len(scales) - 1, 4).round().astype(int))]
    figure, axes = canvas(f"threshold, of {first[1]} votes", f"share of {first[3]:,} queries, %")
    for place, scale in enumerate(scales):
        group = [row for row in some if _scale(row) == scale]
        at = sorted({_threshold(row) for row in group})
        for name, style in (("answered", "-"), ("right", "--")):
            means = [
                np.mean(
                    [row[name] / row["queries"] for row in group if row["mechanism"]["threshold"] == value]
                )
                for value in at
                if all(row[name] is not None for row in group)
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
    costs = many([mechanism] * len(at), votes, delta, queries=at)
    figure, axes = canvas("queries asked", f"epsilon at delta = {delta:g}")
    lines = {"data_independent": (at, costs.data_independent), "published": (at, costs.published)}
    if exact:
        few = at[-5:]
        joint = exact_many([mechanism] * len(few), votes, delta, queries=few)
        lines["exact"] = (few, np.array([cost.epsilon for cost in joint]))
    for name, (across, up) in lines.items():
        axes.plot(across, up, color=plots.COLOURS[name], label=plots.NAMES[name])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=8)
    return rendered(figure)


def _accuracy(row: Row) -> Any:
    found = score(row)
    return row["label_accuracy"] if found is None else found


def _what(rows: Sequence[Row]) -> str:
    students = any(row["student_accuracy"] is not None for row in rows)
    metric = rows[0].get("metric", "accuracy")
    head = (
        "accuracy of the student, %" if metric == "accuracy" else f"{Metric(metric).head} of the student, %"
    )
    return head if students else "answers that are right, %"


def _climbing(rows: Sequence[Row]) -> list[Row]:
    """The rows that are more accurate than every row with a smaller epsilon, or with hardly more of it."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row["data_independent"], -(_accuracy(row) or 0))):
        if not best or (_accuracy(row) or 0) > (_accuracy(best[-1]) or 0):
            if best and row["data_independent"] < _HARDLY_MORE * best[-1]["data_independent"]:
                best.pop()
            best.append(row)
    return best


def _frame(row: Row) -> tuple[str, int, str, int]:
    return row["name"], row["teachers"], row["mechanism"]["name"], row["queries"]


def _threshold(row: Row) -> float:
    return float(row["mechanism"]["threshold"])


def _scale(row: Row) -> float:
    return from_dict(dict(row["mechanism"])).noise.scale


def _plain_numbers(axis: Any) -> None:
    """1, 2, 5, 10 on a logarithmic axis, and no powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
