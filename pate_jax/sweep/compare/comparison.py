"""A whole comparison at one epsilon: what was measured, and what a person reads of it.

That is a table (accuracy, epsilon and time of each method, and what else it needs), one sentence, and what
the sentence costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from rich import box
from rich.table import Table

from pate_jax.crowd.metric import Metric
from pate_jax.data import Dataset
from pate_jax.models.names import Metric as Name
from pate_jax.runs.settings import DataChoice
from pate_jax.sweep import results
from pate_jax.sweep.compare.cells import cells_of, measure
from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Ground
from pate_jax.sweep.results import Row
from pate_jax.system import progress
from pate_jax.system.tasks import HERE, Engine

JudgedOn = Literal["private", "public", "synthetic"]
Judge = Name | Literal["r2"]
_OF_NUMBERS = ("r2", "error")
_WIDE = 1.96  # standard errors to each side of a value, in a 95% interval
_ERRORS = 2.0  # standard errors that two methods are apart at least, if one is called better


class Figure(NamedTuple):
    """A mean over draws, and its standard error: of the draws and of the test rows."""

    value: float
    error: float


class Standing(NamedTuple):
    """A method over all draws of one epsilon."""

    method: str
    right: float  # mean share of the test rows
    error: float  # its standard error: of the draws and of the test rows
    spent: float | None  # the largest epsilon stated
    seconds: float
    draws: int
    measures: Mapping[str, Figure] = MappingProxyType({})  # by metric

    def by(self, metric: Judge) -> Figure:
        """How good it is by this metric; of older lines only the share that is right is known."""
        return self.measures.get(metric, Figure(self.right if metric == "accuracy" else 0.0, self.error))


def standings(rows: Sequence[Row], metric: Judge = "accuracy") -> list[Standing]:
    """Of the rows of one epsilon and those without privacy: each method's mean, the best first.

    >>> row = {"method": "sums", "right": 0.8, "test": 400, "spent": 1.0, "seconds": 2.0}
    >>> [(one.method, round(one.error, 3)) for one in standings([row])]
    [('sums', 0.02)]
    """
    learned = [row for row in rows if "refused" not in row]
    names = dict.fromkeys(row["method"] for row in learned)
    each = [_standing([row for row in learned if row["method"] == name]) for name in names]
    return sorted(each, key=lambda one: -one.by(metric).value)


def _standing(rows: Sequence[Row]) -> Standing:
    """Draws share the test rows, so their number makes the first part of the error no smaller."""
    rights = [row.get("right", 0.0) for row in rows]  # of numbers none is
    mean = sum(rights) / len(rights)
    right = _over_draws(rights, math.sqrt(mean * (1 - mean) / rows[0]["test"]))
    spent = [row["spent"] for row in rows if row["spent"] is not None]
    seconds = sum(row["seconds"] for row in rows) / len(rows)
    named = {name: _figure([row["measures"][name] for row in rows]) for name in _known(rows)}
    return Standing(rows[0]["method"], *right, max(spent, default=None), seconds, len(rows), named)


def _known(rows: Sequence[Row]) -> list[str]:
    """The metrics that all draws have."""
    each = [
        {name for name, (value, *_) in row.get("measures", {}).items() if value is not None} for row in rows
    ]
    return [name for name in (*get_args(Name), *_OF_NUMBERS) if all(name in one for one in each)]


def _figure(draws: Sequence[Sequence[float]]) -> Figure:
    """The mean over draws of [value, low, high], and its standard error."""
    width = max(high - low for _, low, high in draws)
    return _over_draws([value for value, *_ in draws], width / (2 * _WIDE))


def _over_draws(values: Sequence[float], of_test: float) -> Figure:
    mean = sum(values) / len(values)
    of_draws = sum((one - mean) ** 2 for one in values) / max(1, len(values) - 1) / len(values)
    return Figure(mean, math.sqrt(of_test**2 + of_draws))


def sentence(
    rows: Sequence[Row],
    epsilon: float,
    majority: float,
    judged_on: JudgedOn,
    metric: Metric | None = Metric(),  # noqa: B008 (it is frozen)
) -> str:
    """The recommendation, with what it rests on; of numbers, which have no metric, by R2.

    `majority` is what the most frequent class of the test rows reaches by this metric, or a constant.
    """
    name: Judge = "r2" if metric is None else metric.name
    found = [one for one in standings(rows, name) if one.spent is not None]
    if not found:
        return f"No method learned anything at epsilon {epsilon:g}: raise epsilon, or gather more records."
    best = found[0]
    value, error = best.by(name)
    right, head = name == "accuracy", "R2" if metric is None else metric.head
    if value - majority < _ERRORS * error:
        usual = f"{majority:.1%} of the test rows have" if right else f"reaches {head} {majority:.3f}"
        known = "a constant" if metric is None else "the most frequent class"
        return (
            f"At epsilon {epsilon:g} no method is surely better than {known}, which {usual}: "
            "raise epsilon, or gather more records."
        )
    near = [one.method for one in found[1:] if not _apart(best.by(name), one.by(name))]
    reached = f"{value:.1%} of the test rows right" if right else f"{head} {value:.3f}"
    others = f", which the test rows do not tell from {_listed(near)}" if near else ""
    return f"At epsilon {epsilon:g} take {best.method} ({reached}){others}; {covered(judged_on)}."


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["sums"]), _listed(["sums", "teachers", "neighbours"])
    ('sums', 'sums, teachers and neighbours')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _apart(best: Figure, other: Figure) -> bool:
    return best.value - other.value >= _ERRORS * math.hypot(best.error, other.error)


def covered(judged_on: JudgedOn) -> str:
    """Whether the choice of a method by these figures is covered by an epsilon.

    >>> covered("public")
    'the records that judged are public, so this choice costs no privacy, and may not carry over to others'
    """
    if judged_on == "private":
        return (
            "but this choice is made on private records and no epsilon covers it (`pate tune` is the "
            "way to pay for one)"
        )
    return (
        f"the records that judged are {judged_on}, so this choice costs no privacy, and may not carry over "
        "to others"
    )


def warning(judged_on: JudgedOn, methods: int) -> str | None:
    """What may not be done with the figures, where they are of private records."""
    if judged_on != "private":
        return None
    return (
        "SENSITIVE: every accuracy here is a function of the private records without protection (most noise "
        "has a known seed, and one model has none), so neither the table nor the models may be published. "
        f"To pick one of {methods} methods by it is a release of its own, of up to "
        f"{math.log2(max(2, methods)):.1f} bits, that no statement of a later run includes. Compare on a "
        "public or synthetic stand-in (--judged-on), or fix the method without looking"
    )


class Comparison(NamedTuple):
    """Methods, the rows that they have, and whose records these rows are about."""

    ground: Ground
    contenders: Sequence[Contender]
    epsilon: float
    judged_on: JudgedOn
    rows: Sequence[Row] = ()

    @property
    def warning(self) -> str | None:
        """What may not be done with the figures."""
        return warning(self.judged_on, sum(one.private for one in self.contenders))

    @property
    def sentence(self) -> str:
        """The recommendation."""
        metric = self.ground.metric if self.ground.dataset.target is None else None
        return sentence(self.rows, self.epsilon, self.ground.majority, self.judged_on, metric)

    def measured(
        self,
        folder: Path,
        draws: int,
        seconds: float,
        engine: Engine = HERE,
        choice: DataChoice | None = None,
    ) -> Comparison:
        """The same with all rows: those that the folder has, and the others."""
        wanted = cells_of(self.contenders, [self.epsilon], draws)
        path = results.file_of(folder)
        with results.writing(path):
            return self._replace(rows=measure(self.ground, wanted, path, seconds, engine, choice))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rows": self.rows,
            "metric": self.ground.metric.name,
            "majority": self.ground.majority,
            "judged_on": self.judged_on,
            "covers": self.ground.covers,
            "warning": self.warning,
            "recommendation": self.sentence,
        }

    def show(self) -> None:
        """Print the table, what each method needs, and the recommendation."""
        from rich.console import Console

        numbers = self.ground.dataset.target is not None
        Console().print((of_numbers if numbers else terminal)(self.rows, self.ground))
        if self.ground.by_group is not None:
            Console().print(groups(self.rows, self.ground))
        lines = [*needs(self.rows, self.contenders), *refusals(self.rows), "", self.sentence]
        print("\n".join(lines))


def begun(
    dataset: Dataset,
    contenders: Sequence[Contender],
    epsilon: float,
    delta: float,
    judged_on: JudgedOn | None,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
    by_group: str | None = None,
) -> Comparison:
    """A comparison without rows yet; records count as private unless they are drawn, or said not to be."""
    kind: JudgedOn = judged_on or ("synthetic" if dataset.synthetic else "private")
    made = Comparison(Ground(dataset, delta, metric, by_group), contenders, epsilon, kind)
    progress.warn(made.warning)
    if dataset.private.users is not None:
        progress.warn("the records name their users, and methods are compared for one record, not for a user")
    return made


def terminal(rows: Sequence[Row], ground: Ground) -> Table:
    """The table for a terminal, the best method first."""
    share = float(np.bincount(ground.truth).max() / len(ground.truth))
    ranks, over = _ranks(ground), "users" if ground.test.users is not None else "rows"
    means = "" if ground.dataset.classes == 2 else ", means over the classes"
    table = _table(
        f"{ground.dataset.name}: {len(ground.truth):,} test rows, the most frequent class alone {share:.1%}",
        f"epsilon: to publish, for {ground.covers}, at delta {ground.delta:g};\n"
        f"{', '.join(map(_head, ranks))}{means}: +- is one standard error, over {over};\n"
        "minutes: of CPU, without what all methods share",
        ("method", "right", *map(_head, ranks), "epsilon", "minutes"),
    )
    for one in standings(rows, ground.metric.name):
        right, *others = figures(one)
        table.add_row(one.method, right, *(_of(one.measures.get(name)) for name in ranks), *others)
    return table


def of_numbers(rows: Sequence[Row], ground: Ground) -> Table:
    """The same of methods that predict a number."""
    name, low, high = ground.dataset.target or ("", 0, 0)
    over = "users" if ground.test.users is not None else "rows"
    table = _table(
        f"{name}, from {low:g} to {high:g}: {len(ground.truth):,} test rows",
        f"epsilon: to publish, for {ground.covers}, at delta {ground.delta:g};\n"
        f"R2 (a constant has 0) and mean absolute error: +- is one standard error, over {over};\n"
        "minutes: of CPU",
        ("method", "R2", "error", "epsilon", "minutes"),
    )
    for one in standings(rows, "r2"):
        _, *others = figures(one)
        error = one.measures["error"]
        told = f"{error.value:.4g} +- {error.error:.2g}"
        table.add_row(one.method, _of(one.measures.get("r2")), told, *others)
    return table


def groups(rows: Sequence[Row], ground: Ground) -> Table:
    """Each method on the test rows of each group, the best method first."""
    ranks, by = _ranks(ground), ground.by_group
    heads = ("method", str(by), "rows", "right", *map(_head, ranks))
    table = _table(f"By {by}, of the first draw", "+- is one standard error", heads)
    first = {row["method"]: row["groups"] for row in reversed(rows) if "groups" in row}
    for one in standings(rows, ground.metric.name):
        for value, told in first.get(one.method, {}).items():
            known = {name: _figure([told[name]]) for name in get_args(Name) if told[name][0] is not None}
            right = known["accuracy"]
            cells = [
                f"{right.value:.1%} +- {100 * right.error:.1f}",
                *(_of(known.get(name)) for name in ranks),
            ]
            table.add_row(one.method, value, f"{told['rows']:,}", *cells)
    return table


def _ranks(ground: Ground) -> list[Name]:
    """The metrics in the table beside the share that is right."""
    usual: list[Name] = ["auroc", "auprc"] if ground.dataset.classes == 2 else ["balanced", "auroc"]
    name = ground.metric.name
    return usual if name == "accuracy" else list(dict.fromkeys([name, *usual]))


def _head(name: Name) -> str:
    return Metric(name).head


def _of(figure: Figure | None) -> str:
    """A metric and its standard error, as short as a terminal wants it.

    >>> _of(Figure(0.971, 0.0083)), _of(None)
    ('0.971+-.008', '-')
    """
    return "-" if figure is None else f"{figure.value:.3f}+-{f'{figure.error:.3f}'.lstrip('0')}"


def _table(title: str, caption: str, heads: Sequence[str]) -> Table:
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        padding=(0, 1),
    )
    for head in heads:
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=head != "method")
    return table


def figures(one: Standing) -> tuple[str, str, str]:
    """Accuracy with its standard error, epsilon rounded up, and CPU minutes.

    >>> figures(Standing("sums", 0.8, 0.02, 0.99991, 30.0, 1))
    ('80.0% +- 2.0', '1.0000', '0.5')
    """
    spent = "none" if one.spent is None else f"{math.ceil(one.spent * 1e4 - 1e-9) / 1e4:.4f}"
    return f"{one.right:.1%} +- {100 * one.error:.1f}", spent, f"{one.seconds / 60:.1f}"


def needs(rows: Sequence[Row], contenders: Sequence[Contender]) -> Iterator[str]:
    """What each method of the table costs beside epsilon, a line for each."""
    there = {one.method for one in standings(rows)}
    for one in contenders:
        if one.name in there:
            pool, trust, gives = one.needs
            yield f"{one.name}: public inputs: {pool}; records: {trust}; may be published: {gives}."


def refusals(rows: Sequence[Row]) -> list[str]:
    """Why methods are not in the table, a line for each.

    >>> refusals([{"method": "sums", "refused": "epsilon is too small"}, {"method": "all", "right": 1.0}])
    ['sums: none, since epsilon is too small']
    """
    told = (f"{row['method']}: none, since {row['refused']}" for row in rows if "refused" in row)
    return list(dict.fromkeys(told))
