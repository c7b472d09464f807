"""`pate budget`: what a run, or all runs of a register, may spend, have spent and have left."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import budget
from pate_jax.runs import register as registers
from pate_jax.runs.directory import RunDirectory

_HOW_ADDED = (
    "A sum also has the runs of wider relations: one by user spends on each of the user's records. Nothing "
    "is said of all runs together: a run by record promises nothing to a user of several records."
)


def budget_command(
    run: Annotated[Positional[Path | None], arg(metavar="[RUN]")] = None,
    register: Path | None = None,
    limit_epsilon: float | None = None,
    limit_delta: float | None = None,
    json: bool = False,
) -> None:
    """Show what a run has spent and what is left, whatever its votes; nothing shown depends on them.

    Args:
        run: the run directory.
        register: show all runs on the same private records instead, from the file that they are entered in.
        limit_epsilon: set what the runs of the register may spend together, once.
        limit_delta: the delta of that limit, and of what is shown where there is none; unset: 1e-5.
        json: print one JSON object.
    """
    if (run is None) == (register is None):
        raise PateError("name one of a run directory and --register FILE: both say what was spent")
    if run is not None and run.is_file():
        raise PateError(f"{run} is a file: name a run directory, or a register by --register {run}")
    if register is None:
        if limit_epsilon is not None or limit_delta is not None:
            raise PateError(
                "--limit-epsilon and --limit-delta belong to a register: name it by --register FILE"
            )
        found = _summary(RunDirectory(Path(run or "")))
    else:
        if limit_epsilon is not None:
            registers.limit(register, limit_epsilon, limit_delta or budget.CUSTOMARY_DELTA)
        found = registers.summary(register, limit_delta)
    lines = _lines(found) if register is None else _registered(found)
    print(json_format.dumps(found) if json else "\n".join(lines))


def _summary(run: RunDirectory) -> dict[str, Any]:
    from pate_jax.runs.baselines import report, training
    from pate_jax.runs.crowds import inputs, stages

    if training.is_training(run):
        return report.summary(run)
    return stages.summary(run) if inputs.is_crowd(run) else budget.summary(run)


def _registered(found: dict[str, Any]) -> list[str]:
    lines = [f"Register {found['register']}: {len(found['runs'])} runs on the same private records"]
    for one in found["runs"]:
        crowd, party = one["plan"].get("crowd"), one["plan"].get("party")
        chosen, trained = one["plan"].get("tune"), one["plan"].get("trained")
        plan = crowd or party or chosen or trained or one["plan"]
        if party:
            what = f"a vote of {party['vote']['parties']} parties, against the audience that learns most"
        elif chosen:
            what = f"the best of several candidates of {chosen['tuned']['settings']} settings"
        elif trained:
            what = f"a net trained by DP-SGD in {trained['training']['steps']:,} steps"
        elif crowd:
            what = "the noisy tables of a crowd"  # who votes may have been chosen after this entry
        else:
            stable = plan["mechanism"]["name"] == StableAnswers.name
            most = "one list of stable" if stable else f"at most {plan['queries']:,}"
            what = f"{most} answers of {plan['teachers']:,} teachers"
        lines.append(
            f"  {one['time']}  {one['name']}: {_said(one['epsilon'])} by {plan['relation']}, for {what}"
        )
    delta, limit = found["delta"], found["limit"]
    for relation, epsilon in found["epsilon"].items():
        lines.append(f"Together by {relation}: {_said(epsilon)} at delta {delta:g}, for any votes.")
    if len(found["epsilon"]) > 1:
        lines.append(_HOW_ADDED)
    if limit is not None:
        share = f"{limit['share']:.1%} of it is spent."
        lines.append(f"Limit: epsilon {limit['epsilon']:g} at delta {limit['delta']:g}; {share}")
    return lines


def _said(epsilon: float | None) -> str:
    return "no finite epsilon" if epsilon is None else f"epsilon {epsilon:.4f}"


def _released(found: dict[str, Any]) -> list[str]:
    """The lines of a crowd's run."""
    lines = [f"Run {found['run_dir']}: every record or user votes by itself"]
    for one in found["releases"]:
        kind, sigma = one["release"]["name"], one["release"]["sigma"]
        lines.append(f"  release {one['batch']}: {kind}, with noise of scale {sigma:,.4g}")
    spent, unmade = found["spent"], found.get("unmade")
    if unmade is not None:
        lines.append(
            f"Left: {unmade['share']:.0%} of the squared mu of all tables, for {unmade['rounds']} rounds "
            "that were not made."
        )
    return [
        *lines,
        f"Spent: {_said(spent['epsilon'])} at delta {spent['delta']:g} together, whatever the records"
        f"{', with what is left' if unmade else ''}.",
        "Labels for any number of public inputs follow from that; nothing more can be released by this run.",
    ]


def _trained(found: dict[str, Any]) -> list[str]:
    """The lines of a net trained on the records themselves."""
    spent = found["spent"]
    return [
        f"Run {found['run_dir']}: {found['charged']}",
        f"Spent: {_said(spent['epsilon'])} at delta {spent['delta']:g}, whatever the records.",
        "All steps are charged before the first one; nothing more can be released by this run.",
    ]


def _of_list(spent: dict[str, Any], left: dict[str, Any]) -> list[str]:
    """The lines of a list of stable answers."""
    charged = f"{_said(spent['epsilon'])} at delta {spent['delta']:g}, whatever the votes"
    lines = [f"Spent: {charged}, for the whole list; {spent['queries']:,} queries were asked."]
    if left["unanswered"] == 0:
        return [*lines, "The list has ended: nothing more can be asked by this run."]
    return [
        *lines,
        f"Left:   up to {left['queries']:,} queries at no further cost, until {left['unanswered']:,} more "
        "are unanswered.",
    ]


def _lines(found: dict[str, Any]) -> list[str]:
    if "releases" in found:
        return _released(found)
    if "training" in found:
        return _trained(found)
    spent, left, fixed = found["spent"], found["left"], found["budget"]
    lines = [f"Run {found['run_dir']}: {found['mechanism']}"]
    for batch in found["batches"]:
        rdp, order = batch["cost"]["rdp"], batch["cost"]["order"]
        lines.append(f"  batch {batch['batch']}: {batch['asked']} queries, {rdp:.6f} at order {order:.4g}")
    if fixed is None and left is not None:
        return [*lines, *_of_list(spent, left)]
    if fixed is None:
        lines.append(
            f"Spent: {spent['queries']} queries, {_said(spent['epsilon'])} at delta {spent['delta']:g}, "
            "whatever the votes, by the bound by which budgets are added up; `pate account` has the figure "
            "to publish, which may be smaller."
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
