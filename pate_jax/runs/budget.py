"""The budget of a run: fixed before its first answer, and checked before every batch of queries.

Nothing here reads a vote. How many queries a budget affords follows from the mechanism, the numbers of
teachers and classes, delta and the ledger so far, so a refusal reveals nothing about the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.accounting import costs, curves, filter, stable
from pate_jax.accounting.costs import AnyEvent
from pate_jax.accounting.curves import sampler_slack
from pate_jax.accounting.filter import NOTHING, Cost, Filter, budget_to_dict
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, delta_for
from pate_jax.data import Dataset, partition
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import chain, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import AnswerLine, AnyLine, CrowdLine
from pate_jax.system import progress


def people(dataset: Dataset, by: str) -> int:
    """How many records, or users, the guarantee covers one of."""
    units = partition.units_of(dataset.private, by)
    if by == "record":
        return len(units)
    return len(np.unique(units)) if dataset.scan is None else int(dataset.scan.people.number)


def warn_of_delta(delta: float, records: int, by: str = "record") -> None:
    """Warn of a delta that promises nothing, only at the terminal: the number of records is private."""
    if delta * records > 1:
        progress.say(
            f"delta={delta:g} is above one over the {records:,} private {by}s, so one of them may be "
            f"revealed completely: use a --delta of {delta_for(records):g} or less"
        )


def settle(
    run: RunDirectory,
    mechanism: AnyMechanism,
    *,
    teachers: int,
    classes: int,
    epsilon: float | None,
    delta: float = CUSTOMARY_DELTA,
) -> Filter | None:
    """Fix mechanism and budget of a run before anything is asked, or check that they equal the fixed ones.

    A list of stable answers costs the same whatever is asked, so its budget is only a limit of that cost.
    """
    settings, planned = run.record.read(), None
    if isinstance(mechanism, StableAnswers):
        _check_list(run, mechanism, epsilon, delta)
    elif "budget" in settings:
        _check_agreed(run, settings.budget, epsilon, delta)
        planned = settings.budget
    else:
        planned = _plan(run, mechanism, teachers, classes, epsilon, delta)
    run.record.agree("mechanism", to_dict(mechanism))
    run.record.agree("budget", budget_to_dict(planned))
    return planned


def fixed(run: RunDirectory) -> Filter | None:
    """The filter of a run; None if it has no budget."""
    return run.record.read().budget


def cost_of(fixed: Filter | None, event: AnyEvent, *, first: bool = True) -> tuple[float, Cost]:
    """The order (of the budget, or else the event's own) and the cost of an event, whatever the votes.

    A list of stable answers is charged as a whole in the `first` line of a run.
    """
    order = _own_order(event) if fixed is None else fixed.order
    paid = isinstance(event, Answers) and isinstance(event.mechanism, StableAnswers) and not first
    return order, NOTHING if paid else costs.cost(event, order)


def spent(run: RunDirectory) -> Cost:
    """The total cost in the ledger, at the order of the run's filter."""
    budget, total = fixed(run), NOTHING
    for line in ledger.entries(run.ledger):
        total = total.plus(recorded_cost(budget, line))
    return total


def recorded_cost(fixed: Filter | None, line: AnyLine) -> Cost:
    """The cost of one line of the ledger, whose budget must still be the run's."""
    if line.budget != fixed:
        then, now = budget_to_dict(line.budget), budget_to_dict(fixed)
        raise PateError(
            f"batch {line.batch} in the ledger was answered under the budget {then}, and "
            f"private/settings.json now says {now}: a budget is fixed before the first answer. "
            "Restore private/settings.json from a backup"
        )
    return line.cost


def fit(run: RunDirectory, spent: Cost, *, wanted: int, teachers: int, classes: int) -> int:
    """How many of the wanted queries may be asked: all without a budget, else as many as it affords.

    A message says if these are fewer, and none at all is refused. The result depends on public numbers only.
    """
    settings = run.record.read()
    budget = settings.budget
    if budget is None or wanted == 0:
        return wanted
    mechanism = settings.mechanism
    if isinstance(mechanism, StableAnswers):
        raise PateError(f"budget={budget} is none of stable answers: restore private/settings.json")
    each = filter.cost(mechanism, teachers=teachers, classes=classes, order=budget.order)
    room = budget.affords(spent, each)
    if room == 0:
        raise PateError(
            f"budget_epsilon={budget.epsilon:g} of {run.root} is spent: no further query of {mechanism!r} "
            f"fits, and nothing was asked. `pate budget {run.root}` shows how it was spent; only a new run, "
            "whose budget adds to this one, can ask more"
        )
    if room < wanted:
        progress.say(
            f"The budget of epsilon {budget.epsilon:g} affords {room} more queries of this mechanism, "
            f"whatever the votes: of the {wanted} wanted, the first {room} are asked"
        )
    return min(wanted, room)


def _check_list(run: RunDirectory, mechanism: StableAnswers, epsilon: float | None, delta: float) -> None:
    """Refuse a list of stable answers beyond its budget, before its first answer or where one is named."""
    if "mechanism" in run.record.read() and epsilon is None:
        return
    cost = stable.epsilon(mechanism, delta)
    if not math.isfinite(cost):
        raise PateError(
            f"{mechanism!r} has no finite epsilon at delta={delta:g}, which must exceed the cutoff times the "
            f"chance of a false answer, {mechanism.cutoff * stable.false_answer(mechanism):.3g}: raise the "
            "threshold, or leave out --threshold and --scale to have both chosen"
        )
    if epsilon is not None and cost > epsilon:
        raise PateError(
            f"{mechanism!r} costs epsilon {cost:.4f} at delta={delta:g}, more than the budget of "
            f"{epsilon:g}: raise the scale and the threshold, or leave both out to have them chosen"
        )


def agreed_delta(run: RunDirectory, delta: float | None) -> float:
    """The delta of the run's statement: that of its budget, or the recorded one, or the requested one."""
    settings = run.record.read()
    fixed = settings.budget or settings.limit
    if fixed is not None and delta not in (None, fixed.delta):
        raise PateError(f"delta={delta} is not that of the budget of {run.root}, {fixed.delta}; leave it out")
    known = CUSTOMARY_DELTA if settings.delta is None else settings.delta
    return fixed.delta if fixed is not None else known if delta is None else delta


def summary(run: RunDirectory) -> dict[str, Any]:
    """The content of `pate budget`: the budget, what is spent of it and what is left, whatever the votes."""
    if not run.root.exists():
        raise PateError(f"{run.root} does not exist: name the --out of a run")
    lines, settings, total = ledger.read(run.ledger), run.record.read(), spent(run)
    budget = settings.budget
    if not lines and budget is None:
        raise PateError(f"{run.root} has answered nothing and has no budget: there is nothing to show yet")
    mechanism = settings.mechanism
    if isinstance(mechanism, StableAnswers):
        return _summary_of_list(run, mechanism, lines)
    asked = sum(line.event.asked for line in lines)
    batches = [_shown(line) for line in lines]
    shown = {"run_dir": str(run.root), "mechanism": to_dict(mechanism), "batches": batches}
    if budget is None:
        delta = CUSTOMARY_DELTA if settings.delta is None else settings.delta
        limit = settings.limit
        epsilon = limit.epsilon if limit else _epsilon(mechanism, lines, delta)
        spent_now = {"queries": asked, "epsilon": epsilon, "delta": delta}
        if limit is not None:
            spent_now["headcount"] = limit.headcount.sigma
        return {**shown, "budget": None, "spent": spent_now, "left": None}
    share = total.rdp / budget.rdp
    left = {"rdp": max(budget.rdp - total.rdp, 0.0), "share": max(1 - share, 0.0), "queries": None}
    if lines:
        last = lines[-1]
        each = filter.cost(
            mechanism, teachers=last.event.teachers, classes=last.event.classes, order=budget.order
        )
        left["queries"] = budget.affords(total, each)
    return {
        **shown,
        "budget": to_dict(budget),
        "spent": {"queries": asked, "rdp": total.rdp, "share": share},
        "left": left,
    }


def of_releases(
    run: RunDirectory,
    lines: Sequence[CrowdLine],
    delta: float,
    state: Callable[[RunDirectory, float], accounting.Statement],
) -> dict[str, Any]:
    """What `summary` says of a run whose tables together have one figure."""
    if not lines:
        raise PateError(f"{run.root} has released nothing yet: there is nothing to show")
    shown = [{name: to_dict(line)[name] for name in ("batch", "event", "order", "cost")} for line in lines]
    spent = {"epsilon": state(run, delta).headline.epsilon, "delta": delta}
    return {"run_dir": str(run.root), "releases": shown, "budget": None, "spent": spent, "left": None}


def _shown(line: AnswerLine) -> dict[str, Any]:
    """What `pate budget` shows of a line."""
    known = to_dict(line)
    return {"batch": line.batch, "order": line.order, "cost": known["cost"], **known["event"]}


def _summary_of_list(
    run: RunDirectory, mechanism: StableAnswers, lines: Sequence[AnswerLine]
) -> dict[str, Any]:
    """What `summary` says of a list of stable answers: its whole cost, and how far it has come."""
    known, asked = run.record.read().delta, sum(line.event.asked for line in lines)
    delta = CUSTOMARY_DELTA if known is None else known
    found = stable.epsilon(mechanism, delta)
    answered = sum(int(ledger.given(line).answered.sum()) for line in lines)
    unanswered = asked - answered
    return {
        "run_dir": str(run.root),
        "mechanism": to_dict(mechanism),
        "batches": [_shown(line) for line in lines],
        "budget": None,
        "spent": {"queries": asked, "epsilon": found if math.isfinite(found) else None, "delta": delta},
        "left": {"queries": stable.MOST_QUERIES - asked, "unanswered": mechanism.cutoff - unanswered},
    }


def _plan(
    run: RunDirectory,
    mechanism: Mechanism,
    teachers: int,
    classes: int,
    epsilon: float | None,
    delta: float,
) -> Filter | None:
    if epsilon is None:
        return None
    if chain.check(run.ledger).entries:
        raise PateError(
            f"budget_epsilon={epsilon:g} comes too late for {run.root}, which has already answered: a budget "
            "is fixed before the first answer; choose another --out"
        )
    return filter.plan(mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)


def _check_agreed(run: RunDirectory, budget: Filter | None, epsilon: float | None, delta: float) -> None:
    old = (None, None) if budget is None else (budget.epsilon, budget.delta)
    new = (epsilon, None if epsilon is None else delta)
    if old != new:
        raise PateError(
            f"{run.root} was made with budget epsilon={old[0]} and delta={old[1]}, not {new[0]} and "
            f"{new[1]}: a budget is fixed before the first answer. Leave it as it is, or choose another --out"
        )


def _own_order(event: AnyEvent) -> float:
    """The order for a run without a budget: the one at which this event alone has the least epsilon."""
    orders = curves.default_orders()
    asked = replace(event, asked=max(event.asked, 1)) if isinstance(event, Answers) else event
    best = curves.epsilon(orders, costs.curve(asked, orders), CUSTOMARY_DELTA).order
    return float(np.asarray(best, np.float64))


def _epsilon(mechanism: Mechanism, lines: Sequence[AnswerLine], delta: float) -> float | None:
    totals = np.concatenate([np.full(line.event.asked, line.event.teachers) for line in lines])
    classes = max(line.event.classes for line in lines)
    slack = sampler_slack(mechanism, len(totals), classes)
    cost, _ = accounting.worst_case(mechanism, totals, delta, classes=classes, slack=slack)
    epsilon = float(cost.epsilon)
    return epsilon if np.isfinite(epsilon) else None
