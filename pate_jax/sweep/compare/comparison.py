"""A whole comparison at one epsilon: what was measured, and what may be said of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.data import Dataset
from pate_jax.sweep import results
from pate_jax.sweep.compare import recommendation, table
from pate_jax.sweep.compare.cells import cells_of, measure
from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Ground
from pate_jax.sweep.compare.recommendation import JudgedOn
from pate_jax.sweep.results import Row
from pate_jax.system import progress


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
        return recommendation.warning(self.judged_on, sum(one.private for one in self.contenders))

    @property
    def sentence(self) -> str:
        """The recommendation."""
        return recommendation.sentence(self.rows, self.epsilon, self.ground.majority, self.judged_on)

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

        Console().print(table.terminal(self.rows, self.ground))
        lines = [*table.needs(self.rows, self.contenders), *table.refusals(self.rows), "", self.sentence]
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
