"""A whole comparison at one epsilon: what was measured, and what a person reads of it.

That is a table (accuracy, epsilon and time of each method, and what else it needs), one sentence, and what
the sentence costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rich import box
from rich.table import Table

from pate_jax.data import Dataset
from pate_jax.sweep import results
from pate_jax.sweep.compare.cells import cells_of, measure
from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Ground
from pate_jax.sweep.results import Row
from pate_jax.system import progress

JudgedOn = Literal["private", "public", "synthetic"]
_ERRORS = 2.0  # standard errors that two methods are apart at least, if one is called better


class Standing(NamedTuple):
    """A method over all draws of one epsilon."""

    method: str
    right: float  # mean share of the test rows
    error: float  # its standard error: of the draws and of the test rows
    spent: float | None  # the largest epsilon stated
    seconds: float
    draws: int


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Of the rows of one epsilon and those without privacy: each method's mean, the best first.

    >>> row = {"method": "sums", "right": 0.8, "test": 400, "spent": 1.0, "seconds": 2.0}
    >>> [(one.method, round(one.error, 3)) for one in standings([row])]
    [('sums', 0.02)]
    """
    names = dict.fromkeys(row["method"] for row in rows if "right" in row)
    each = [_standing([row for row in rows if row["method"] == name and "right" in row]) for name in names]
    return sorted(each, key=lambda one: -one.right)


def _standing(rows: Sequence[Row]) -> Standing:
    """Draws share the test rows, so their number makes the first part of the error no smaller."""
    rights = [row["right"] for row in rows]
    mean = sum(rights) / len(rights)
    of_test = mean * (1 - mean) / rows[0]["test"]
    of_draws = sum((one - mean) ** 2 for one in rights) / max(1, len(rights) - 1) / len(rights)
    spent = [row["spent"] for row in rows if row["spent"] is not None]
    seconds = sum(row["seconds"] for row in rows) / len(rows)
    error = math.sqrt(of_test + of_draws)
    return Standing(rows[0]["method"], mean, error, max(spent, default=None), seconds, len(rows))


def sentence(rows: Sequence[Row], epsilon: float, majority: float, judged_on: JudgedOn) -> str:
    """The recommendation, with what it rests on.

    `majority` is the share of test rows of their most frequent class.
    """
    found = [one for one in standings(rows) if one.spent is not None]
    if not found:
        return f"No method learned anything at epsilon {epsilon:g}: raise epsilon, or gather more records."
    best = found[0]
    if best.right - majority < _ERRORS * best.error:
        return (
            f"At epsilon {epsilon:g} no method is surely better than the most frequent class, which "
            f"{majority:.1%} of the test rows have: raise epsilon, or gather more records."
        )
    near = [one.method for one in found[1:] if not _apart(best, one)]
    others = f", which the test rows do not tell from {_listed(near)}" if near else ""
    return (
        f"At epsilon {epsilon:g} take {best.method} ({best.right:.1%} of the test rows right){others}; "
        f"{covered(judged_on)}."
    )


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["sums"]), _listed(["sums", "teachers", "neighbours"])
    ('sums', 'sums, teachers and neighbours')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _apart(best: Standing, other: Standing) -> bool:
    return best.right - other.right >= _ERRORS * math.hypot(best.error, other.error)


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
        return sentence(self.rows, self.epsilon, self.ground.majority, self.judged_on)

    def measured(self, folder: Path, draws: int, seconds: float) -> Comparison:
        """The same with all rows: those that the folder has, and the others."""
        wanted = cells_of(self.contenders, [self.epsilon], draws)
        path = results.file_of(folder, (1, 1))
        with results.writing(path):
            return self._replace(rows=measure(self.ground, wanted, path, seconds))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "rows": self.rows,
            "majority": self.ground.majority,
            "judged_on": self.judged_on,
            "covers": self.ground.covers,
            "warning": self.warning,
            "recommendation": self.sentence,
        }

    def show(self) -> None:
        """Print the table, what each method needs, and the recommendation."""
        from rich.console import Console

        Console().print(terminal(self.rows, self.ground))
        lines = [*needs(self.rows, self.contenders), *refusals(self.rows), "", self.sentence]
        print("\n".join(lines))


def begun(
    dataset: Dataset,
    contenders: Sequence[Contender],
    epsilon: float,
    delta: float,
    judged_on: JudgedOn | None,
) -> Comparison:
    """A comparison without rows yet; records count as private unless they are drawn, or said not to be."""
    kind: JudgedOn = judged_on or ("synthetic" if dataset.synthetic else "private")
    made = Comparison(Ground(dataset, delta), contenders, epsilon, kind)
    progress.warn(made.warning)
    if dataset.private.users is not None:
        progress.warn("the records name their users, and methods are compared for one record, not for a user")
    return made


def terminal(rows: Sequence[Row], ground: Ground) -> Table:
    """The table for a terminal, the best method first."""
    table = Table(
        title=f"{ground.dataset.name}: {len(ground.truth):,} test rows, the most frequent class alone "
        f"{ground.majority:.1%}",
        caption=f"epsilon: to publish, for {ground.covers}, at delta {ground.delta:g};\n"
        "minutes: of CPU, without what all methods share",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        padding=(0, 1),
    )
    for head in ("method", "right", "epsilon", "minutes"):
        table.add_column(head, justify="left" if head == "method" else "right")
    for one in standings(rows):
        table.add_row(one.method, *figures(one))
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
