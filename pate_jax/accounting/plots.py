"""Plots of a run's privacy cost, as SVG, for `pate account` and the report; and the canvas of all pictures.

All plots of costs show sensitive figures. matplotlib is imported only when a picture is drawn.
"""

from __future__ import annotations

import io
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax import accounting
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism

COLOURS = {"exact": "#1b6ca8", "published": "#c8553d", "data_independent": "#4a4a4a", "delta": "#9aa0a6"}
NAMES = {
    "exact": "exact (joint)",
    "published": "published (expected, one direction)",
    "data_independent": "data-independent",
}
_ORDER = 16.0  # of the cost of one query
_POINTS = 200  # the most points of a cumulative curve
Curves = dict[str, NDArray[np.float64]]  # by method, of each query at each order


def every(
    mechanism: Mechanism, votes: ArrayLike, delta: float, *, image: str = "svg"
) -> tuple[bytes, bytes, bytes]:
    """Three pictures as SVG or PNG, from curves that are computed once.

    They show epsilon after each query by method; the mean Renyi cost of a query at one order by the share of
    teachers that agree with the plurality; and the parts of epsilon at the best order: the test, the argmax
    (the rest of the joint cost), and delta.

    >>> from pate_jax.mechanisms import GNMax
    >>> [picture[:5] for picture in every(GNMax(40.0), [[240, 10], [130, 120]], 1e-5)]
    [b'<?xml', b'<?xml', b'<?xml']
    """
    orders = accounting.default_orders()
    curves = {
        name: accounting.rdp(mechanism, votes, orders, method=name) for name in get_args(accounting.Method)
    }
    return (
        _cumulative(curves, delta, image),
        _by_consensus(curves, votes, image),
        _split(split_figures(curves, mechanism, votes, delta), delta, image),
    )


def _cumulative(curves: Curves, delta: float, image: str) -> bytes:
    queries = len(curves["exact"])
    at = np.unique(np.linspace(1, queries, min(queries, _POINTS)).round().astype(int))
    figure, axes = _sensitive_canvas("queries asked", f"epsilon at delta = {delta:g}")
    for name, curve in curves.items():
        spent = accounting.epsilon(
            accounting.default_orders(), np.cumsum(curve, axis=0)[at - 1], delta
        ).epsilon
        axes.plot(at, spent, color=COLOURS[name], label=NAMES[name])
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return rendered(figure, image)


def _by_consensus(curves: Curves, votes: ArrayLike, image: str) -> bytes:
    counts = np.asarray(votes)
    share = counts.max(axis=1) / np.maximum(counts.sum(axis=1), 1)
    bucket = np.minimum((share * 10).astype(int), 9)
    orders = accounting.default_orders()
    at = int(np.abs(orders - _ORDER).argmin())
    figure, axes = _sensitive_canvas(
        "share of teachers behind the plurality", f"mean Renyi cost at order {orders[at]:g}"
    )
    for place, (name, curve) in enumerate(curves.items()):
        means = [curve[bucket == b, at].mean() if np.any(bucket == b) else np.nan for b in range(10)]
        axes.bar(np.arange(10) + 0.28 * (place - 1), means, 0.26, color=COLOURS[name], label=NAMES[name])
    axes.set_yscale("log")
    axes.set_ylim(top=4 * axes.get_ylim()[1])  # room for the legend
    axes.set_xticks(range(10), [f"{b / 10:.1f}\n({np.sum(bucket == b)})" for b in range(10)])
    axes.legend(frameon=False)
    return rendered(figure, image)


def _split(rows: dict[str, dict[str, float]], delta: float, image: str) -> bytes:
    figure, axes = _sensitive_canvas("", f"epsilon at delta = {delta:g}")
    shades = {"test": "#e3b23c", "argmax": "#1b6ca8", "delta": "#9aa0a6"}
    bottom = np.zeros(len(rows))
    for part, shade in shades.items():
        heights = np.array([row[part] for row in rows.values()])
        axes.bar(range(len(rows)), heights, 0.55, bottom=bottom, color=shade, label=part)
        bottom += heights
    axes.set_xticks(range(len(rows)), [NAMES[name] for name in rows])
    axes.legend(frameon=False)
    return rendered(figure, image)


def split_figures(
    curves: Curves, mechanism: Mechanism, votes: ArrayLike, delta: float
) -> dict[str, dict[str, float]]:
    """By method, what test, argmax and delta add to epsilon."""
    orders = accounting.default_orders()
    tests = _tests(mechanism, votes)
    rows = {}
    for name, curve in curves.items():
        summed = curve.sum(axis=0)
        spent = accounting.epsilon(orders, summed, delta)
        index = int(np.flatnonzero(orders == spent.order)[0])
        test = min(float(tests[name].sum(axis=0)[index]), float(summed[index]))
        argmax = float(summed[index]) - test
        rows[name] = {"test": test, "argmax": argmax, "delta": max(float(spent.epsilon) - test - argmax, 0.0)}
    return rows


def _tests(mechanism: Mechanism, votes: ArrayLike) -> dict[str, NDArray[np.float64]]:
    from pate_jax.accounting import exact
    from pate_jax.accounting.bounds import threshold

    orders = accounting.default_orders()
    published = accounting.published_parts(mechanism, votes, orders).test
    if mechanism.test is None:
        return dict.fromkeys(NAMES, published)
    worst = np.broadcast_to(threshold.supremum(mechanism.test.noise, orders), published.shape)
    joint = exact.parts(mechanism, votes, orders)[0]
    return {"exact": joint, "published": published, "data_independent": worst}


def _sensitive_canvas(across: str, up: str) -> tuple[Any, Any]:
    figure, axes = canvas(across, up, (7.0, 4.0))
    axes.set_title("sensitive: computed from the private votes", fontsize=8, loc="right", color="#b00020")
    return figure, axes


def canvas(across: str, up: str, size: tuple[float, float] = (4.8, 3.3)) -> tuple[Any, Any]:
    """A figure and its axes with these labels; the default size (in inches) fits the width of a phone.

    >>> canvas("queries asked", "epsilon")[1].get_ylabel()
    'epsilon'
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def rendered(figure: Any, image: str = "svg") -> bytes:
    """A figure as the bytes of an image file; the same figure always gives the same bytes."""
    import matplotlib

    if image not in ("svg", "png"):
        raise PateError(f"image={image!r} must be 'svg' or 'png'")
    out = io.BytesIO()
    metadata = {"Date": None} if image == "svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "pate", "svg.fonttype": "none"}):
        figure.savefig(out, format=image, metadata=metadata)
    return out.getvalue()
