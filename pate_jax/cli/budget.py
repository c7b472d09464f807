"""`pate budget`: what a run, or all runs of a register, may spend, have spent and have left."""

from __future__ import annotations

import json as json_format
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import plans
from pate_jax.runs import register as registers
from pate_jax.runs.directory import RunDirectory


def budget_command(
    run: Annotated[Positional[Path | None], arg(metavar="[RUN]")] = None,
    register: Path | None = None,
    begin: bool = False,
    limit: float | None = None,
    delta: float | None = None,
    json: bool = False,
) -> None:
    """Show what a run has spent and what is left, or without one, all runs of the register.

    Nothing shown depends on votes. The register finds runs on the same people, and adds them up.

    Args:
        run: the run directory; unset: the register of this user's runs.
        register: another register: a file that several people share, beside the data.
        begin: begin this register, which is not there yet.
        limit: set the epsilon that all runs on the same people may spend together, once.
        delta: the delta of that limit, and of what is shown where there is none; unset: 1e-5.
        json: print one JSON object.
    """
    if run is not None and (register is not None or limit is not None or begin or delta is not None):
        raise PateError(
            f"name one of the run directory {run} and a register: --register, --begin, --limit and --delta "
            "are about the register"
        )
    if run is not None and run.is_file():
        raise PateError(f"{run} is a file: name a run directory, or a register by --register {run}")
    if run is not None:
        found = _summary(RunDirectory(run))
        lines = _lines(found)
    else:
        found = _register(register, begin, limit, delta)
        lines = _registered(found)
    print(json_format.dumps(found) if json else "\n".join(lines))


def _register(named: Path | None, begin: bool, limit: float | None, delta: float | None) -> dict[str, Any]:
    if begin and named is None:
        raise PateError("--begin goes with --register FILE: the register of this user begins by itself")
    if begin and named is not None:
        registers.begin(named)
    file = registers.find(named)
    if limit is not None:
        registers.set_limit(file, limit, delta or CUSTOMARY_DELTA)
    return registers.summary(file, delta)


def _summary(run: RunDirectory) -> dict[str, Any]:
    from pate_jax.runs import kinds

    return kinds.of(run).summary(run)


def _registered(found: dict[str, Any]) -> list[str]:
    runs, limit = found["runs"], found["limit"]
    lines = [f"Register {found['register']}: {_counted(len(runs), 'run')}"]
    for number, one in enumerate(runs, 1):
        relation, what = _planned(one["plan"])
        what += "" if one["known"] else "; nobody knows whose records its votes are of"
        cost = f"{_said(one['epsilon'])} by {relation}"
        lines.append(f"  {number}. {one['time']}  {one['name']}: {cost}, for {what}")
    for group in found["groups"]:
        lines += _group(group, limit)
    if limit is not None:
        of_all = f"epsilon {limit['epsilon']:g} at delta {limit['delta']:g}"
        lines.append(f"Limit: {of_all}, for all runs on the same people.")
    return lines


def _group(group: Mapping[str, Any], limit: Mapping[str, Any] | None) -> list[str]:
    """The lines about runs on the same people."""
    names, (first, *wider) = ", ".join(map(str, group["runs"])), (plans.Sum(**one) for one in group["sums"])
    share = "" if limit is None else f"; {group['share']:.1%} of the limit is spent"
    lines = [f"On the same people: {names}. Together {first.text()}, whatever the votes{share}."]
    return lines + [
        f"  For {plans.WHOM[one.relation]}: no sum, since {one.silent} of these promise nothing for that."
        for one in wider
    ]


def _planned(plan: Mapping[str, Any]) -> tuple[str, str]:
    """Whom a run covers, and what it is."""
    *before, own = plan["events"]
    kind = own["name"]
    if kind == "party-vote":
        what = f"a vote of {own['vote']['parties']} parties, against the audience that learns most"
    elif kind == "best-of":
        what = f"the best of several candidates of {own['tuned']['settings']} settings"
    elif kind == "training":
        what = f"a net trained by DP-SGD in {own['training']['steps']:,} steps"
    elif kind == "tables":
        what = "the noisy tables of a crowd"  # who votes may have been chosen after this entry
    else:
        stable = own["mechanism"]["name"] == StableAnswers.name
        most = "one list of stable" if stable else f"at most {own['asked']:,}"
        what = f"{most} answers of {own['teachers']:,} teachers"
    return plan["relation"], f"a noisy number of voters and {what}" if before else what


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _said(epsilon: float | None) -> str:
    return "no finite epsilon" if epsilon is None else f"epsilon {epsilon:.4f}"


def _released(found: dict[str, Any]) -> list[str]:
    """The lines of a crowd's run."""
    lines = [f"Run {found['run_dir']}: every record or user votes by itself"]
    for one in found["releases"]:
        kind, sigma = one["event"]["name"], one["event"]["sigma"]
        lines.append(f"  release {one['batch']}: {kind}, with noise of scale {sigma:,.4g}")
    spent = found["spent"]
    return [
        *lines,
        f"Spent: {_said(spent['epsilon'])} at delta {spent['delta']:g} together, whatever the records.",
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
        rdp, order = batch["cost"]["rdp"], batch["order"]
        lines.append(f"  batch {batch['batch']}: {batch['asked']} queries, {rdp:.6f} at order {order:.4g}")
    if fixed is None and left is not None:
        return [*lines, *_of_list(spent, left)]
    if "headcount" in spent:
        return [
            *lines,
            f"Spent: {_said(spent['epsilon'])} at delta {spent['delta']:g}, for a number "
            f"of voters, with noise of scale {spent['headcount']:,.4g}, and {spent['queries']} queries that "
            "were chosen by it.",
            "Nothing more can be asked by this run.",
        ]
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
