"""What all runs on the same private records may spend together: a file next to the data, one line per run.

A register belongs to one owner's one collection of records, and is private like the records. Every run in it
counts, whatever table it names: tables overlap, and the digest of the ids in a line shows only which tables
are equal. A run is entered with the most that it may ever spend, before it trains or answers, so a crash
counts too much and never too little. The same run in the same place is entered once, and a copy again. The
file is a chain of lines like a run's ledger (`chain`), with the same durability and a single writer.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax.accounting import composition, curves, filter, stable
from pate_jax.accounting.curves import Rule
from pate_jax.accounting.exact import counts
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.slack import with_slack
from pate_jax.accounting.training_statement import Training
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import budget, chain, ledger, plans
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import AnyPlan, CrowdPlan, PartyPlan, Plan, TrainingPlan, TunePlan
from pate_jax.runs.record import CROWD
from pate_jax.runs.release.findings import Finding, judged, unchecked
from pate_jax.system import storage

_STAGE = "register"
# Relations whose runs spend on whom another covers too: one by user does so on each of the user's records.
_WIDER = {"record": ("user",), "contents": ("record", "user")}
_BEGINS = b'{"artefact": "ledger"'  # a register, or as much of it as a crash left
_CLOSER = 1e-9  # relative: what is spent is rounded up


class Entry(NamedTuple):
    """One run of a register."""

    run: str  # what names it and tells nothing of its secret
    name: str  # where it lies
    time: str
    plan: AnyPlan


class Book(NamedTuple):
    """What a register says: its runs, and what they may spend together where a limit was set."""

    entries: list[Entry]
    limit: filter.Filter | None

    @property
    def plans(self) -> list[AnyPlan]:
        """What each of its runs may spend."""
        return [entry.plan for entry in self.entries]


def read(file: Path) -> Book:
    """The content of a register; an absent file has no entries."""
    lines = chain.read(file)
    if not all("plan" in line or "limit" in line for line in lines):
        raise PateError(f"{file} is the ledger of a run and no register: name a file of its own")
    limits = [filter.Filter.from_dict(line["limit"]) for line in lines if "limit" in line]
    entries = [_entry(line, file) for line in lines if "plan" in line]
    return Book(entries, limits[0] if limits else None)


def _entry(line: Mapping[str, Any], file: Path) -> Entry:
    run, name, time = (line.get(field) for field in ("run", "name", "time"))
    if not (isinstance(run, str) and isinstance(name, str) and isinstance(time, str)):
        raise PateError(f"a line of {file} names no run: restore the file from a backup")
    return Entry(run, name, time, plans.from_json(line["plan"]))


def planned(
    mechanism: AnyMechanism,
    *,
    teachers: int,
    classes: int,
    queries: int,
    most: tuple[float, float] | None,
    rule: Rule,
) -> int:
    """The number of answers that a run may give: its list, or what its budget (epsilon, delta) affords.

    >>> from pate_jax.mechanisms import GNMax
    >>> planned(GNMax(40.0), teachers=250, classes=10, queries=500, most=(1.0, 1e-5), rule="counts")
    48
    """
    if isinstance(mechanism, StableAnswers):
        return stable.MOST_QUERIES
    if most is None:
        return queries
    epsilon, delta = most
    fixed = filter.plan(
        mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta, rule=rule
    )
    each = filter.cost(mechanism, teachers=teachers, classes=classes, order=fixed.order, rule=rule)
    return fixed.affords(filter.NOTHING, each)


def digest_of(ids: np.ndarray) -> str:
    """A digest of the private ids, whatever their order.

    >>> digest_of(np.array(["b", "a"])) == digest_of(np.array(["a", "b"]))
    True
    """
    return storage.digest(np.sort(ids))


def enter(run: RunDirectory, file: Path, plan: AnyPlan) -> None:
    """Write a run's line once, before it spends anything; refused if a limit would be exceeded."""
    if run.secret.seed is not None:
        raise PateError(f"{run.root} has a seed, so it promises nothing to be added up: leave out --seed")
    if _STAGE in run.record.read():
        run.record.agree(_STAGE, {"file": str(file.resolve())})
    _check_kind(file)
    with chain.Writer(file) as writer:
        book = read(file)
        if not _stands(book, run, plan):
            _check_alone(book, run, plan)
            _check_limit(file, book, plan)
            writer.append(_line(run, plan))
    os.chmod(chain.head_path(file), 0o600)
    run.record.agree(_STAGE, {"file": str(file.resolve())})


def confirm(run: RunDirectory, mechanism: AnyMechanism, teachers: int, classes: int, queries: int) -> None:
    """Refuse to answer if the run's register does not show everything that the run may ask."""
    if _STAGE not in run.record.read():
        return
    fixed = budget.fixed(run)
    most = None if fixed is None else (fixed.epsilon, fixed.delta)
    rule = run.record.read().rule
    queries = planned(mechanism, teachers=teachers, classes=classes, queries=queries, most=most, rule=rule)
    _check_stands(run, Plan(mechanism, teachers, classes, queries, "", None, rule))


def _check_stands(run: RunDirectory, plan: AnyPlan) -> None:
    file = _file(run)
    again = f"enter it with `pate aggregate {run.root} --register {file}`"
    if isinstance(plan, CrowdPlan):
        again = "begin it anew in another --out"
    if isinstance(plan, TunePlan):
        again = f"give `pate tune` --register {file} again"
    if isinstance(plan, PartyPlan):
        again = f"give `pate party join` --register {file} again"
    if isinstance(plan, TrainingPlan):
        again = f"give `pate baseline dpsgd` --register {file} again"
    if not _stands(read(file), run, plan):
        raise PateError(
            f"{file} does not show what {run.root} is about to spend: it was moved, copied or changed since "
            f"it was entered; {again}"
        )


def limit(file: Path, epsilon: float, delta: float) -> None:
    """Set the limit of what a register's runs may spend together, once; it fixes the order of the sum."""
    limit = _filter(epsilon, check_delta(delta))
    _check_kind(file)
    with chain.Writer(file) as writer:
        before = read(file).limit
        if before is not None and (before.epsilon, before.delta) != (epsilon, delta):
            raise PateError(
                f"{file} has the limit epsilon={before.epsilon:g} at delta={before.delta:g}, which is set "
                "once: leave it as it is, or begin another register for other records"
            )
        if before is None:
            writer.append({"limit": limit.to_dict()})
    os.chmod(chain.head_path(file), 0o600)


def _filter(epsilon: float, delta: float) -> filter.Filter:
    """The budget at the order that is best for costs that grow with the order, as those of Gaussian noise do.

    Any order gives a valid limit, so the quicker rule chooses it. A thousandth of delta is left for what
    samplers of continuous noise stray from their laws.
    """
    inner = delta * (1 - 1e-3)
    noise = DiscreteGaussianMax(max(100.0 / epsilon, 2.0) if epsilon > 0 else 2.0)
    found = filter.plan(noise, teachers=250, classes=10, epsilon=epsilon, delta=inner, rule="counts")
    strays = (delta - inner) / (1 + math.exp(min(epsilon, 700.0))) * (1 - _CLOSER)
    return replace(found, delta=delta, slack=found.slack + strays)


def summary(file: Path, delta: float | None) -> dict[str, Any]:
    """Every run's line, and what all that cover a relation may spend together."""
    if not file.exists():
        raise PateError(f"{file} does not exist: `pate run --register {file}` begins it")
    book = read(file)
    limit, plans = book.limit, book.plans
    delta = delta or (limit.delta if limit else budget.CUSTOMARY_DELTA)
    runs = [
        {"name": name, "time": time, "plan": plan.to_dict(), "epsilon": together([plan], delta)}
        for _, name, time, plan in book.entries
    ]
    by_relation = {
        relation: together(
            [plan for plan in plans if plan.relation in (relation, *_WIDER.get(relation, ()))], delta
        )
        for relation in dict.fromkeys(plan.relation for plan in plans)
    }
    limited = None
    if limit is not None:
        total = _total(plans, limit.order)
        limited = {**limit.to_dict(), "spent": total.rdp, "share": total.rdp / limit.rdp}
    return {"register": str(file), "runs": runs, "delta": delta, "epsilon": by_relation, "limit": limited}


def together(plans: Sequence[AnyPlan], delta: float) -> float | None:
    """Epsilon of several runs together, whatever the records; None where none is finite.

    Renyi curves add up. Where all runs are of crowds, squares of mu add up, and the figure is exact; where
    all are trainings, their privacy losses are composed.

    >>> from pate_jax.mechanisms import GNMax
    >>> one = Plan(GNMax(40.0), 250, 10, 100, "record", None, "counts")
    >>> together([one], 1e-5) < together([one, one], 1e-5) < 2 * together([one], 1e-5)
    True
    """
    orders = curves.default_orders()
    total = np.sum([one.curve(orders) for one in plans], axis=0) * (1 + _CLOSER)
    mus = [one.mu for one in plans if isinstance(one, CrowdPlan)]
    mu = math.hypot(*mus) * (1 + _CLOSER) if len(mus) == len(plans) else None
    trained = [one.training for one in plans if isinstance(one, TrainingPlan)]

    def least(inner: float) -> curves.Epsilon:
        if mu is not None:
            return curves.Epsilon(composition.gaussian_epsilon(mu, inner), None)
        if len(trained) == len(plans):
            return curves.Epsilon(_composed(trained, inner), None)
        return curves.epsilon(orders, total, inner)

    found = with_slack(least, delta, sum(one.strays() for one in plans) * (1 + _CLOSER))
    return float(found.epsilon) if math.isfinite(found.epsilon) else None


def _composed(trained: Sequence[Training], delta: float) -> float:
    """Epsilon of several trainings together, where one record's contents change."""
    from pate_jax.baselines.dpsgd import calibration  # which takes a second to load

    return calibration.composed(tuple(trained), delta, calibration.REPLACE)


def examined(run: RunDirectory) -> Iterator[Finding]:
    """Whether a run that was recorded with a register is entered there, with everything that it asked."""
    if _STAGE not in run.record.read():
        return
    file, lines = _file(run), ledger.read(run.ledger)
    if not file.exists():
        yield unchecked(f"{file} is not here, so nobody can see whether the run stands in it")
        return
    key, total = _key(run), sum(line.asked for line in lines)
    covered = run.record.read().relation
    asked = {(line.mechanism, line.teachers, line.classes, covered) for line in lines}
    entered = [entry.plan for entry in read(file).entries if entry.run == key]
    stands = any(
        plan.queries >= total and asked <= {(plan.mechanism, plan.teachers, plan.classes, plan.relation)}
        for plan in entered
        if isinstance(plan, Plan)
    )
    what = f"the {total} queries that it asked"
    if CROWD in run.record.read():
        stands, what = any(plan.covers(crowd_plan(run, None)) for plan in entered), "its noisy tables"
    yield from judged(
        [] if stands else [f"{file} does not show this run with {what}"],
        f"the register shows this run with at least {what}",
    )


def examined_plan(run: RunDirectory, plan: AnyPlan, what: str) -> Iterator[Finding]:
    """Whether a run is entered with a plan in the register that it was recorded with."""
    if _STAGE not in run.record.read():
        return
    file = _file(run)
    if not file.exists():
        yield unchecked(f"{file} is not here, so nobody can see whether the {what} stands in it")
        return
    stands = any(entry.plan.covers(plan) for entry in read(file).entries if entry.run == _key(run))
    fault = f"{file} does not show this {what}"
    yield from judged([] if stands else [fault], f"the register shows this {what}")


def confirm_plan(run: RunDirectory, plan: AnyPlan) -> None:
    """Refuse to spend anything where the register of a run does not show what it may spend."""
    if _STAGE in run.record.read():
        _check_stands(run, plan)


def crowd_plan(run: RunDirectory, records: str | None) -> CrowdPlan:
    """All that the settings of a crowd's run let it spend."""
    choice = run.record.read().crowd
    return CrowdPlan(counts.mu_for(choice.epsilon, choice.delta), choice.voters, choice.by, records)


def confirm_crowd(run: RunDirectory) -> None:
    """Refuse to release where the register that a crowd's run is kept in does not show what it may spend."""
    confirm_plan(run, crowd_plan(run, None))


def _file(run: RunDirectory) -> Path:
    return run.record.read().register


def _key(run: RunDirectory) -> str:
    """The name of a run in a register, which reveals nothing about its secret."""
    return run.secret.derive("name in a register").hex()


def _line(run: RunDirectory, plan: AnyPlan) -> dict[str, Any]:
    entry = Entry(_key(run), str(run.root.resolve()), datetime.now(UTC).isoformat(timespec="seconds"), plan)
    return {**entry._asdict(), "plan": plan.to_dict()}


def _stands(book: Book, run: RunDirectory, plan: AnyPlan) -> bool:
    """Whether this run, in this place, was entered with at least this plan."""
    place = (_key(run), str(run.root.resolve()))
    return any(entry.plan.covers(plan) for entry in book.entries if (entry.run, entry.name) == place)


def _check_alone(book: Book, run: RunDirectory, plan: AnyPlan) -> None:
    """Refuse a copy of a list of stable answers or of a training, whose two releases would share noise.

    Stable answers share a threshold. Another machine adds up gradients with other rounding, so that two nets
    would differ by that alone, and show the sums behind the noise.
    """
    here = str(run.root.resolve())  # where settings may still change, before the first answer
    places = [entry.name for entry in book.entries if entry.run == _key(run) and entry.name != here]
    stable = isinstance(plan, Plan) and isinstance(plan.mechanism, StableAnswers)
    made = run.student.exists() and run.public_statement.exists()  # so it is not trained once more
    if places and (stable or (isinstance(plan, TrainingPlan) and not made)):
        what = "list of stable answers" if stable else "training by DP-SGD"
        raise PateError(
            f"{run.root} is a copy of {places[0]}, and a {what} goes on in one place alone: continue it "
            "there, or begin another run"
        )


def _check_kind(file: Path) -> None:
    """Refuse any other kind of file, before its end is mistaken for a line that a crash cut short."""
    begins = storage.read_bytes(file)[: len(_BEGINS)] if file.exists() else b""
    if not _BEGINS.startswith(begins):
        raise PateError(f"{file} is no register: name a file that `--register` has begun, or a new one")


def _total(plans: Sequence[AnyPlan], order: float) -> filter.Cost:
    """What several runs cost at one order."""
    total = filter.NOTHING
    for one in plans:
        total = total.plus(one.cost(order))
    return total


def _check_limit(file: Path, book: Book, plan: AnyPlan) -> None:
    limit, before = book.limit, book.plans
    if limit is None:
        return
    others = sorted({one.relation for one in before} - {plan.relation})
    if others:
        raise PateError(
            f"{file} has a limit, and holds runs by {', '.join(others)}: one by {plan.relation} cannot be "
            "added to these; choose a run of the same relation"
        )
    if not limit.allows(_total([*before, plan], limit.order)):
        spent, more = (_total(plans, limit.order).rdp / limit.rdp for plans in (before, [plan]))
        raise PateError(
            f"the limit of epsilon {limit.epsilon:g} at delta {limit.delta:g} in {file} would be exceeded: "
            f"{spent:.1%} of it is spent, and this run may cost {more:.1%}; ask fewer queries or add noise"
        )
