"""How far predicted numbers are from the true ones: R2 and mean absolute error, beside what is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax.crowd.metric import divided
from pate_jax.crowd.numbers import ridge
from pate_jax.crowd.vectors import Scaling, scaling, vectors
from pate_jax.data import Dataset, Part
from pate_jax.data.targets import GRID, Target
from pate_jax.models import spaces
from pate_jax.runs.report import html, measures
from pate_jax.student import Student

CONSTANT, ALONE, THIS = "a constant, the public mean", "public numbers alone", "this student"
_MIDDLE = "a constant, the middle of the range"
_MOST = 100  # directions that public numbers are fitted in
Values = Float[np.ndarray, " row"]


def results(learned: Student, dataset: Dataset, data: Mapping[str, Any]) -> dict[str, Any]:
    """What is measured on the test part of a student of numbers."""
    target, test = dataset.target, dataset.test
    if target is None:
        raise ValueError("a student of classes")
    facts: dict[str, Any] = {**target._asdict(), "rows": 0, "figures": []}
    private = bool(data.get("test_is_private"))
    if test is not None and test.labels is not None:
        said = {THIS: learned(test.inputs)[:, 1] * GRID, **_free(dataset)}
        true = np.asarray(test.labels, np.float64)
        every = [_figures(name, true, one, test, target.high - target.low) for name, one in said.items()]
        facts |= {"rows": len(true), "figures": every, "private": private}
    return {"numbers": facts, **({"test_is_private": True} if private and facts["rows"] else {})}


def _figures(name: str, true: Values, said: Values, test: Part, width: float) -> dict[str, Any]:
    """R2 and mean absolute error, in the target's unit, of predictions in steps; each with its interval."""
    rows = measures.judged(np.zeros(len(true)), np.zeros(len(true)), 0, test.users)._replace(y=true, p=said)
    error = measures.interval(absolute, rows)
    scaled = [None if one is None else one * width / GRID for one in error]
    return {"name": name, "r2": measures.interval(r2, rows), "error": scaled}


def compared(shares: Values, test: Part, target: Target) -> dict[str, list[float | None]]:
    """R2 and mean absolute error of predicted shares of the range, as [value, low, high]."""
    made = _figures("", np.asarray(test.labels, np.float64), shares * GRID, test, target.high - target.low)
    return {"r2": made["r2"], "error": made["error"]}


def r2(y: np.ndarray, p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The share of the variance that predictions explain: 0 is a constant's, below 0 is worse.

    >>> r2(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]), np.ones((1, 3))).tolist()
    [0.5]
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum(1, keepdims=True)
    middle = weights @ y / total[:, 0]
    spread = (weights * (y - middle[:, None]) ** 2).sum(1)
    return np.asarray(1 - divided(weights @ (y - p) ** 2, spread))


def absolute(y: np.ndarray, p: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean absolute error.

    >>> absolute(np.array([0.0, 1.0]), np.array([0.5, 1.0]), np.ones((1, 2))).tolist()
    [0.25]
    """
    weights = np.asarray(weights, np.float64)
    return np.asarray(weights @ np.abs(y - p) / weights.sum(1))


def _free(dataset: Dataset) -> dict[str, Values]:
    """What nobody's private record is needed for: a constant, and what public numbers teach by themselves."""
    if dataset.test is None:
        return {}
    rows, public = len(dataset.test.inputs), dataset.public
    if public.labels is None:
        return {_MIDDLE: np.full(rows, GRID / 2)}
    known = np.clip(np.asarray(public.labels, np.float64), 0, GRID)
    return {CONSTANT: np.full(rows, known.mean()), ALONE: alone(dataset, dataset.test.inputs, known)}


def alone(dataset: Dataset, inputs: np.ndarray, known: np.ndarray) -> Values:
    """Ridge regression on the public part alone, whose penalty public rows choose that were left out."""
    space = spaces.learn(
        "columns" if dataset.columns else "identity", dataset.public.inputs, directions=_MOST
    )
    seen = space.coordinates(dataset.public.inputs)
    made: Scaling = scaling(space, seen, length=1000, power=0.5, full=0.95)
    ours, theirs = (vectors(made, one) for one in (seen, space.coordinates(inputs)))
    weights = ridge(ours, known)[0]
    return np.asarray(np.clip(theirs @ weights[:-1] + weights[-1], 0, GRID))


def published(found: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that may leave where the test rows are private: none."""
    return {**found, "rows": 0, "figures": []}


def told(results: Mapping[str, Any]) -> str:
    """How good the student is, in words.

    >>> told({"numbers": {"name": "days", "low": 0, "high": 60, "rows": 0, "figures": []}})
    'Predicted days, from 0 to 60: not measured, no public test part'
    """
    found = results["numbers"]
    said = f"Predicted {found['name']}, from {found['low']:.6g} to {found['high']:.6g}"
    if not found["figures"]:
        return f"{said}: not measured, no public test part"
    first, *others = found["figures"]
    beside = "".join(f"; {one['name']}: {_figure(one['r2'])}, error {one['error'][0]:.4g}" for one in others)
    return (
        f"{said}: R2 {_interval(first['r2'], '.3f')}, mean absolute error "
        f"{_interval(first['error'], '.4g')} on {found['rows']:,} test rows{beside}"
    )


def _figure(found: Sequence[float | None]) -> str:
    return "R2 not defined" if found[0] is None else f"R2 {found[0]:.3f}"


def _interval(found: Sequence[float | None], form: str) -> str:
    value, low, high = found
    if value is None or low is None or high is None:
        return "not defined"
    return f"{value:{form}} (95% interval: {low:{form}} to {high:{form}})"


def tile(results: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The figure that stands beside the guarantee."""
    found = results["numbers"]
    if not found["figures"]:
        return []
    value, low, high = found["figures"][0]["error"]
    if value is None:
        return []
    more = f"mean absolute error on {found['rows']:,} test rows; 95% interval: {low:.4g} to {high:.4g}"
    return [(f"The predicted {found['name']} is off by", f"{value:.4g}", more)]


def section(results: Mapping[str, Any]) -> list[str]:
    """The table of all predictions, the student's and what is free."""
    found = results.get("numbers")
    if not found or not found["figures"]:
        return []
    body = [
        [escape(one["name"]), _interval(one["r2"], ".3f"), _interval(one["error"], ".4g")]
        for one in found["figures"]
    ]
    said = (
        f"<p>On {found['rows']:,} test rows. R2 is the share of the variance explained: 1 is perfect, "
        f"and a constant has 0. Predictions lie within {found['low']:.6g} to {found['high']:.6g}.</p>"
    )
    heads = ("Prediction", "R2", "Mean absolute error")
    return [html.heading(f"How far the predicted {found['name']} is off"), said, html.rows(heads, body)]
