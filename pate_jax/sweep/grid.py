"""A grid of settings: lists of values, by flags or from a file, and the mechanisms that they make.

A number may be written as it is (`40`), as a share of the teachers (`0.16T`), or as a range of a number of
values (`10:200:20`): evenly spaced for thresholds and queries, by equal factors for noise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.accounting.calibrate import calibrate
from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME, Mechanism, from_dict
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs.thresholds import check_threshold, threshold_warning
from pate_jax.system import progress, storage

ANSWER, TEST = ("sigma", "scale"), ("sigma_threshold", "scale_threshold")
_TEST = 2.5  # noise of the test over noise of the answer, where both are fitted to an epsilon
SWEPT = tuple(name for name, kind in BY_NAME.items() if kind.votes_suffice)


@dataclass(frozen=True)
class Grid:
    """Every combination of these values; a mechanism takes those that it has a use for."""

    mechanisms: tuple[str, ...] = ("confident-discrete-gaussian", "discrete-gaussian")
    """Mechanisms by name."""
    noises: tuple[str, ...] = ("0.08T", "0.16T", "0.32T")
    """Scales of the noise on the votes: 40, 0.16T (times the teachers) or 10:200:20 (a range)."""
    thresholds: tuple[str, ...] = ("0.6T", "0.8T")
    """Thresholds of the mechanisms that test first: 200, 0.8T or 100:240:8."""
    test_noises: tuple[str, ...] = ("0.3T", "0.6T")
    """Scales of the noise of the test."""
    queries: tuple[str, ...] = ()
    """Numbers of queries, 100 500 or 100:1000:4; unset: every query of a votes file, 500 of a data set."""
    epsilons: tuple[str, ...] = ()
    """Publishable epsilons, 0.3 1 3 or 0.1:3:4: the noise is fitted to each, in place of --noises and
    --test-noises."""
    settings: tuple[Mapping[str, Any], ...] = ()  # whole mechanisms, from a file only

    def __post_init__(self) -> None:
        if not (self.mechanisms or self.settings):
            raise PateError(f"mechanisms names none: give at least one of {', '.join(SWEPT)}")

    def asked(
        self, teachers: int, classes: int, sizes: Sequence[int], delta: float
    ) -> list[tuple[Mechanism, int]]:
        """Every mechanism with every number of queries; noise that is fitted depends on that number.

        >>> (few, _), (more, _) = Grid(("gnmax",), epsilons=("1",)).asked(100, 10, [20, 80], 1e-5)
        >>> 1.9 < more.sigma / few.sigma < 2.1
        True
        """
        if not self.epsilons:
            return [(mechanism, size) for mechanism in self.mechanisms_for(teachers) for size in sizes]
        whole = [_whole(description, teachers) for description in self.settings]
        return [(mechanism, size) for mechanism in whole for size in sizes] + [
            (_fitted(mechanism, epsilon, delta, size, teachers, classes), size)
            for mechanism in self._unfitted(teachers)
            for epsilon in _expand(self.epsilons, "epsilons", None, by_factors=True)
            for size in sizes
        ]

    def mechanisms_for(self, teachers: int) -> list[Mechanism]:
        """Every mechanism of the grid for an ensemble of this size, each once, in order.

        >>> Grid(("gnmax",), ("0.1T", "20:40:2")).mechanisms_for(100)
        [GNMax(sigma=10.0), GNMax(sigma=20.0), GNMax(sigma=40.0)]
        """
        whole = [_whole(description, teachers) for description in self.settings]
        combined = [
            from_dict({"name": name, **values})
            for name in self.mechanisms
            for values in self._values_of(name, teachers)
        ]
        return _checked([*whole, *combined], teachers)

    def _unfitted(self, teachers: int) -> list[Mechanism]:
        """The mechanisms with each threshold, and noise that only has the right proportions."""
        start = dataclasses.replace(self, epsilons=(), settings=(), noises=("1",), test_noises=(str(_TEST),))
        return start.mechanisms_for(teachers)

    def queries_for(self, available: int) -> list[int]:
        """The numbers of queries, ascending, each once.

        >>> Grid(queries=("5", "10:30:3")).queries_for(30), Grid().queries_for(30)
        ([5, 10, 20, 30], [30])
        """
        if not self.queries:
            return [available]
        wanted = self.numbers_of_queries()
        if wanted[-1] > available:
            raise PateError(f"queries={wanted[-1]} is more than the {available} queries of the votes")
        return wanted

    def numbers_of_queries(self) -> list[int]:
        """Those that are named, which must be whole, and those of ranges, rounded; none if unset."""
        if not self.queries:
            return []
        for text in self.queries:
            if ":" not in text:
                _whole_number(_number(text, "queries", None), f"queries={text!r}")
        spread = _expand(self.queries, "queries", None, by_factors=False)
        if min(spread) < 1:
            raise PateError(f"queries={min(spread):g} must be at least 1")
        return sorted({round(value) for value in spread})

    def _values_of(self, name: str, teachers: int) -> Iterator[dict[str, float]]:
        if name not in SWEPT:
            more = " (a list of stable answers is charged as a whole)" * (name == StableAnswers.name)
            raise PateError(
                f"mechanism {name!r} cannot be swept{more}; those that can are {', '.join(SWEPT)}"
            )
        axes: list[list[tuple[str, float]]] = []
        for field in dataclasses.fields(BY_NAME[name]):
            axis = "noises" if field.name in ANSWER else "test_noises" if field.name in TEST else "thresholds"
            found = _expand(getattr(self, axis), axis, teachers, by_factors=axis != "thresholds")
            axes.append([(field.name, value) for value in found])
        for values in itertools.product(*axes):
            yield dict(values)


def _checked(mechanisms: Sequence[Mechanism], teachers: int) -> list[Mechanism]:
    """Each mechanism once; a threshold that no ensemble of this size reaches is refused or warned about."""
    different = list(dict.fromkeys(mechanisms))
    for mechanism in different:
        check_threshold(mechanism, teachers)
    warnings = [text for mechanism in different if (text := threshold_warning(mechanism, teachers))]
    if warnings:
        progress.warn(f"{warnings[0]}; {len(warnings)} of {len(different)} settings are like that")
    return different


@cache
def _fitted(
    mechanism: Mechanism, epsilon: float, delta: float, queries: int, teachers: int, classes: int
) -> Mechanism:
    """The mechanism with the least noise by which the figure to publish is at most epsilon."""
    return calibrate(mechanism, epsilon, delta, queries=queries, teachers=teachers, classes=classes).mechanism


def from_file(path: Path) -> list[Grid]:
    """The grids of a JSON file: an object, or a list of objects, with the fields of `Grid`.

    `settings` lists whole mechanisms, such as `{"name": "gnmax", "sigma": "0.2T"}`; a grid that has them and
    names no mechanisms holds only them.
    """
    body = storage.parse_json(b'{"grids": ' + storage.read_bytes(path) + b"}", path)["grids"]
    many = body if isinstance(body, list) else [body]
    if not many:
        raise PateError(f"{path} holds no grid: give an object with mechanisms, noises, thresholds and so on")
    return [_grid(path, one) for one in many]


def _grid(path: Path, body: Any) -> Grid:
    known = {field.name for field in dataclasses.fields(Grid)}
    if not isinstance(body, dict) or not set(body) <= known:
        wrong = sorted(set(body) - known) if isinstance(body, dict) else type(body).__name__
        raise PateError(f"{path}: a grid has the fields {', '.join(sorted(known))}, not {wrong}")
    values = {name: value if isinstance(value, list) else [value] for name, value in body.items()}
    settings = tuple(values.pop("settings", ()))
    if settings and "mechanisms" not in values:
        values["mechanisms"] = []
    return Grid(
        settings=settings, **{name: tuple(str(one) for one in value) for name, value in values.items()}
    )


def _whole(description: Any, teachers: int) -> Mechanism:
    if not isinstance(description, Mapping) or description.get("name") not in SWEPT:
        raise PateError(f"setting {description!r} needs a name out of {', '.join(SWEPT)}")
    values = {
        name: value if name == "name" else _number(str(value), name, teachers)
        for name, value in description.items()
    }
    return from_dict(values)


def _expand(texts: Sequence[str], name: str, teachers: int | None, *, by_factors: bool) -> list[float]:
    numbers: list[float] = []
    for text in texts:
        parts = str(text).split(":")
        if len(parts) == 1:
            numbers.append(_number(parts[0], name, teachers))
        elif len(parts) == 3:
            first, last = (_number(part, name, teachers) for part in parts[:2])
            count = _whole_number(_number(parts[2], name, None), f"the number of values of {name}={text!r}")
            if by_factors and min(first, last) <= 0:
                raise PateError(f"{name}={text!r} must start and end above 0")
            space = np.geomspace if by_factors else np.linspace
            numbers += [float(f"{value:.12g}") for value in space(first, last, count)]
        else:
            raise PateError(f"{name}={text!r} must be a number, a share like 0.2T, or a range like 10:200:20")
    if not numbers:
        raise PateError(f"{name} has no values in the grid; give at least one")
    return list(dict.fromkeys(numbers))


def _number(text: str, name: str, teachers: int | None) -> float:
    share = text.strip().endswith(("T", "t"))
    try:
        value = float(text.strip()[:-1] if share else text)
    except ValueError as error:
        raise PateError(
            f"{name}={text!r} must be a number, a share like 0.2T, or a range like 10:200:20"
        ) from error
    if share and teachers is None:
        raise PateError(f"{name}={text!r} cannot be a share of the teachers; give a number")
    if not math.isfinite(value):
        raise PateError(f"{name}={text!r} must be finite")
    return float(f"{value * teachers:.12g}") if share and teachers is not None else value


def _whole_number(value: float, name: str) -> int:
    if value < 1 or value != int(value):
        raise PateError(f"{name} must be a whole number of at least 1")
    return int(value)
