"""What a person reads of a comparison: accuracy, epsilon and time of each method, and what else it needs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table

from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Ground
from pate_jax.sweep.compare.recommendation import Standing, standings
from pate_jax.sweep.results import Row


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
