"""The budget of a run: fixed before its first answer, and asked before every batch of queries.

Nothing here reads a vote. How many queries a budget affords follows from the mechanism, the number of
teachers and classes, delta and what the ledger holds already, so a refusal tells nothing of the records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.accounting import curves, figures, filter
from pate_jax.accounting.filter import NOTHING, Cost, Filter
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, from_dict, to_dict
from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import progress

CUSTOMARY_DELTA = 1e-5


def warn_of_delta(delta: float, records: int) -> None:
    """Tell of a delta that promises nothing: at the terminal, since how many records there are is private."""
    if delta * records > 1:
        progress.say(
            f"delta={delta:g} is above one over the {records:,} private records, and so allows to give one "
            f"of them away whole: use a --delta of {10.0 ** math.floor(-math.log10(10 * records)):g} or less"
        )


def settle(
    run: RunDirectory,
    mechanism: Mechanism,
    *,
    teachers: int,
    classes: int,
    epsilon: float | None,
    delta: float = CUSTOMARY_DELTA,
) -> Filter | None:
    """Fix mechanism and budget of a run before anything is asked, or check that they are the ones fixed."""
    recorded = run.recorded()
    if "budget" in recorded:
        _agree(run, epsilon, delta)
    planned = recorded.get("budget") or _plan(run, mechanism, teachers, classes, epsilon, delta)
    run.agree("mechanism", to_dict(mechanism))
    run.agree("budget", planned)
    return fixed(run)


def fixed(run: RunDirectory) -> Filter | None:
    """The filter of a run; None where it has no budget."""
    recorded = run.recorded().get("budget", described(None))
    return None if recorded == described(None) else Filter.from_dict(recorded)


def described(found: Filter | None) -> dict[str, Any]:
    """A budget, or that there is none, as settings and ledger record it."""
    return {"epsilon": None} if found is None else found.to_dict()


def cost_of(found: Filter | None, mechanism: Mechanism, teachers: int, classes: int, asked: int) -> dict:
    """What a batch costs whatever the votes, at the filter's order or else its own, as the ledger has it."""
    order = _own_order(mechanism, teachers, asked) if found is None else found.order
    each = filter.cost(mechanism, teachers=teachers, classes=classes, order=order)
    return {"order": order, **each.times(asked)._asdict()}


def spent(run: RunDirectory) -> Cost:
    """What the ledger shows, at the order of the run's filter."""
    found, total = fixed(run), NOTHING
    for entry in ledger.entries(run.ledger):
        total = total.plus(recorded_cost(found, entry))
    return total


def recorded_cost(found: Filter | None, entry: Mapping[str, Any]) -> Cost:
    """What one entry of the ledger cost, under the budget that is still the run's."""
    if entry.get("budget") != described(found):
        raise PateError(
            f"batch {entry['batch']} in the ledger was answered under the budget {entry.get('budget')}, and "
            f"private/settings.json now says {described(found)}: a budget is fixed before the first answer. "
            "Restore private/settings.json from a backup"
        )
    return Cost(entry["cost"]["rdp"], entry["cost"]["slack"])


def fit(run: RunDirectory, gone: Cost, *, wanted: int, teachers: int, classes: int) -> int:
    """How many of the queries wanted may be asked: all without a budget, else as many as it affords.

    Says so where it is fewer, and refuses where it is none; a function of public numbers only.
    """
    found = fixed(run)
    if found is None or wanted == 0:
        return wanted
    mechanism = from_dict(run.recorded()["mechanism"])
    each = filter.cost(mechanism, teachers=teachers, classes=classes, order=found.order)
    room = found.affords(gone, each)
    if room == 0:
        raise PateError(
            f"budget_epsilon={found.epsilon:g} of {run.root} is spent: not one more query of {mechanism!r} "
            f"fits, and nothing was asked. `pate budget {run.root}` shows where it went; more privacy can be "
            "spent only by a new run, whose budget adds to this one"
        )
    if room < wanted:
        progress.say(
            f"The budget of epsilon {found.epsilon:g} affords {room} more queries of this mechanism, "
            f"whatever the votes: of the {wanted} wanted, the first {room} are asked"
        )
    return min(wanted, room)


def needed_for_more(run: RunDirectory) -> None:
    """Refuse a second list of queries in a run without a budget."""
    if fixed(run) is None:
        raise PateError(
            f"{run.root} was made without a budget, so its figure holds for the one list of queries that it "
            "was begun with: begin a run with --budget-epsilon to ask more later, or choose another --out "
            "and add up what both have spent"
        )


def agreed_delta(run: RunDirectory, delta: float | None) -> float:
    """The delta of the run's statement: that of its budget, or the one recorded, or the one asked for."""
    found = fixed(run)
    if found is not None and delta not in (None, found.delta):
        raise PateError(f"delta={delta} is not that of the budget of {run.root}, {found.delta}; leave it out")
    recorded = run.recorded().get("account", {}).get("delta")
    known = CUSTOMARY_DELTA if recorded is None else recorded
    return found.delta if found is not None else known if delta is None else delta


def summary(run: RunDirectory) -> dict[str, Any]:
    """What `pate budget` shows: the budget, what is spent of it and what is left, whatever the votes."""
    entries = [
        {name: entry[name] for name in ("batch", "asked", "teachers", "classes", "cost", "mechanism")}
        for entry in ledger.entries(run.ledger)
    ]
    found, total = fixed(run), spent(run)
    settings = run.recorded()
    if not entries and found is None:
        raise PateError(f"{run.root} has answered nothing and has no budget: there is nothing to show yet")
    mechanism = from_dict(settings["mechanism"])
    asked = sum(entry["asked"] for entry in entries)
    shown = {"run_dir": str(run.root), "mechanism": to_dict(mechanism), "batches": entries}
    if found is None:
        delta = settings.get("account", {}).get("delta", CUSTOMARY_DELTA)
        spent_now = {"queries": asked, "epsilon": _epsilon(mechanism, entries, delta), "delta": delta}
        return {**shown, "budget": None, "spent": spent_now, "left": None}
    share = total.rdp / found.rdp
    left = {"rdp": max(found.rdp - total.rdp, 0.0), "share": max(1 - share, 0.0), "queries": None}
    if entries:
        last = entries[-1]
        each = filter.cost(mechanism, teachers=last["teachers"], classes=last["classes"], order=found.order)
        left["queries"] = found.affords(total, each)
    return {
        **shown,
        "budget": found.to_dict(),
        "spent": {"queries": asked, "rdp": total.rdp, "share": share},
        "left": left,
    }


def _plan(
    run: RunDirectory,
    mechanism: Mechanism,
    teachers: int,
    classes: int,
    epsilon: float | None,
    delta: float,
) -> dict[str, Any]:
    if epsilon is None:
        return described(None)
    if ledger.check(run.ledger).entries:
        raise PateError(
            f"budget_epsilon={epsilon:g} comes too late for {run.root}, which has answered already: a budget "
            "is fixed before the first answer; choose another --out"
        )
    return described(filter.plan(mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta))


def _agree(run: RunDirectory, epsilon: float | None, delta: float) -> None:
    recorded = run.recorded()["budget"]
    old = (recorded["epsilon"], recorded.get("delta"))
    new = (epsilon, None if epsilon is None else delta)
    if old != new:
        raise PateError(
            f"{run.root} was made with budget epsilon={old[0]} and delta={old[1]}, not {new[0]} and "
            f"{new[1]}: a budget is fixed before the first answer. Leave it as it is, or choose another --out"
        )


def _own_order(mechanism: Mechanism, teachers: int, asked: int) -> float:
    """Without a budget: the order at which this list alone comes out lowest."""
    orders = curves.default_orders()
    curve = curves.data_independent(mechanism, teachers, orders)[0] * max(asked, 1)
    best = curves.epsilon(orders, curve, CUSTOMARY_DELTA).order
    return float(np.asarray(best, np.float64))


def _epsilon(mechanism: Mechanism, entries: list[dict[str, Any]], delta: float) -> float | None:
    totals = np.concatenate([np.full(entry["asked"], entry["teachers"]) for entry in entries])
    classes = max(entry["classes"] for entry in entries)
    slack = figures.sampler_slack(mechanism, len(totals), classes)
    found, _ = accounting.worst_case(mechanism, totals, delta, slack=slack)
    epsilon = float(found.epsilon)
    return epsilon if np.isfinite(epsilon) else None
