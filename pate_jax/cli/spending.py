"""`pate budget`: what a run may spend, has spent and has left."""

from __future__ import annotations

import json as json_format
from typing import Any

from pate_jax import budget
from pate_jax.cli.printing import RunPath
from pate_jax.rundir import RunDirectory


def budget_command(run: RunPath, json: bool = False) -> None:
    """Show what a run has spent and what is left, whatever its votes; nothing shown depends on them.

    Args:
        run: the run directory.
        json: print one JSON object.
    """
    found = budget.summary(RunDirectory(run))
    print(json_format.dumps(found) if json else "\n".join(_lines(found)))


def _lines(found: dict[str, Any]) -> list[str]:
    spent, left, fixed = found["spent"], found["left"], found["budget"]
    lines = [f"Run {found['run_dir']}: {found['mechanism']}"]
    for entry in found["batches"]:
        rdp, order = entry["cost"]["rdp"], entry["cost"]["order"]
        lines.append(f"  batch {entry['batch']}: {entry['asked']} queries, {rdp:.6f} at order {order:.4g}")
    if fixed is None:
        epsilon = "no finite epsilon" if spent["epsilon"] is None else f"epsilon {spent['epsilon']:.4f}"
        lines.append(
            f"Spent: {spent['queries']} queries, {epsilon} at delta {spent['delta']:g}, whatever the votes."
        )
        return [*lines, "No budget was fixed: this list of queries cannot be added to."]
    more = "" if left["queries"] is None else f": {left['queries']} more queries of this mechanism"
    return [
        *lines,
        f"Budget: epsilon {fixed['epsilon']:g} at delta {fixed['delta']:g}, the figure to publish; that is "
        f"{fixed['rdp']:.6f} at order {fixed['order']:.4g}.",
        f"Spent:  {spent['share']:.1%} of it, by {spent['queries']} queries.",
        f"Left:   {left['share']:.1%}{more}.",
    ]
