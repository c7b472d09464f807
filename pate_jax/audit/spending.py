"""Checks of the answers and their cost: ledger, noise, budget and statement."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.accounting import after_count, curves, figures, filter, stable_statement
from pate_jax.accounting.party_statement import PartyStatement
from pate_jax.accounting.slack import sampler_slack
from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.audit.shards import absent
from pate_jax.mechanisms.stable import StableAnswers, from_dict
from pate_jax.runs import batches, budget, chain, ledger, plans, stable_list, stages, trials
from pate_jax.runs.answers import load_batch, load_charged, same
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import Line
from pate_jax.runs.plans import CountedPlan, Plan
from pate_jax.runs.record import Settings
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

ROUNDING = 1e-8  # relative, between two computations of one epsilon on different machines
_ADDED = 2e-6  # relative: how much more an older version charged, without the exact worst reading
_OLDER = (
    "an older version drew the noise of batch 1, named after the votes alone: that no copy of this run made "
    "before its first answer asked another list, whose equal votes would show"
)
_FIRST_OF_INDEX = 4  # schema of a ledger's line before which queries were charged for the noisy counts
_MOVED = 1e-3  # share of answers that continuous noise may round differently on another machine


def lines(run: RunDirectory) -> Iterator[Finding]:
    """Whether the ledger is whole, and shows exactly the answers that the run has given."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "aggregate")
        return
    answered = []
    for line in ledger.lines(run.ledger):
        answered.append(line.batch)
        yield from judged(
            (f"batch {line.batch}: {fault}" for fault in _faults(run, line)),
            f"batch {line.batch}: votes, queries, mechanism and answers are the recorded ones",
        )
    state = chain.check(run.ledger)
    if state.torn is not None:
        yield unchecked("the last line was being written when a crash came; none of its answers had left")
    yield passed(f"{state.entries} lines form one chain, and its head counts {state.counted} of them")
    voted, given = range(1, run.batches + 1), run.answers.parent.glob(f"{run.answers.stem}*.npz")
    if answered != sorted(set(answered)) or set(answered) - set(voted):
        yield failed(f"the ledger shows the batches {answered}, and votes are there for {len(voted)}")
    shown = {run.answers_of(batch).name for batch in answered}
    for name in sorted({path.name for path in given} - shown):
        yield failed(f"{name} holds answers that the ledger does not show")
    for name in sorted(name for name in shown if not (run.private / name).exists()):
        yield failed(f"{name} is missing; `pate aggregate` writes it again from the ledger")


def _faults(run: RunDirectory, line: Line) -> Iterator[str]:
    """The differences between one line and the files of its batch."""
    settings = run.record.read()
    if not run.votes_of(line.batch).exists() or not run.answers_of(line.batch).exists():
        yield "its votes or its answers are missing"
        return
    votes = load_batch(run, line)
    answers = storage.read_arrays(run.answers_of(line.batch), "answers")
    if settings.rule != "counts" and line.schema < _FIRST_OF_INDEX:
        yield f"the settings name the rule {settings.rule!r}, which is newer than the version that charged it"
    if "mechanism" not in settings or line.mechanism != settings.mechanism:
        yield "the ledger names another mechanism than the settings"
    named = load_charged(run, line)
    if line.votes != storage.digest(named.votes):
        yield "the votes are not those that were answered"
    digests = storage.digest(named.ids), storage.digest(named.digests)
    if (line.queries, line.inputs, line.asked) != (*digests, len(votes.votes)):
        yield "the queries are not those that were charged"
    if not same(line.given, answers):
        yield "the answers are not those that the ledger recorded"
    totals = np.unique(votes.votes.sum(1)).tolist()
    if totals not in ([], [line.teachers]) or votes.votes.shape[1] != line.classes:
        yield "it was charged for another number of teachers or classes"
    charged = ledger.cost_to_dict(line.order, line.cost)
    costs = _costs(line, settings)
    if list(differences(charged, costs)):
        yield f"it was charged {charged} and costs {costs}"


def _costs(line: Line, settings: Settings) -> dict[str, float]:
    """What the ledger must say that a line costs."""
    mechanism = line.mechanism
    if isinstance(mechanism, StableAnswers):
        return ledger.cost_to_dict(*stable_list.cost(mechanism, first=line.batch == 1))
    size = {"teachers": line.teachers, "classes": line.classes, "asked": line.asked}
    return ledger.cost_to_dict(*budget.cost_of(settings.budget, mechanism, **size, rule=settings.rule))


def noise(run: RunDirectory) -> Iterator[Finding]:
    """Whether the answers follow from the votes and the noise that the ledger committed to."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "aggregate")
        return
    commitments: list[str] = []
    before: list[Line] = []
    for line in ledger.lines(run.ledger):
        commitments.append(line.noise)
        stream = batches.stream(line.mechanism, line.votes, _label(line))
        if line.noise != batches.commitment(run, stream):
            yield failed(f"batch {line.batch}: the ledger commits to another noise than the run's")
        yield _drawn_again(run, line, before)
        before.append(line)
        if line.batch == 1 and line.schema < 3:
            yield unchecked(_OLDER)
    if len(set(commitments)) != len(commitments):
        yield failed("one noise served two batches")


def _label(line: Line) -> int | str:
    return batches.noise_label(line.batch, line.queries, line.inputs, line.schema)


def _drawn_again(run: RunDirectory, line: Line, before: list[Line]) -> Finding:
    batch, mechanism = line.batch, line.mechanism
    if isinstance(mechanism, StableAnswers):
        return _listed_again(run, line, mechanism, before)
    votes = load_batch(run, line).votes
    again = batches.draw(run, mechanism, votes, _label(line))
    labels, answered, counts = line.given
    if len(labels) != len(votes):
        return failed(f"batch {batch}: {len(labels)} answers were given to {len(votes)} queries")
    given = np.where(np.asarray(again.answered), np.asarray(again.labels), -1)
    differ = (given != np.where(answered, labels, -1)) | (np.asarray(again.answered) != answered)
    if counts is not None:
        differ |= (np.asarray(again.counts) != counts).any(1)
    if not differ.any():
        return passed(f"batch {batch}: {len(labels):,} answers follow from the votes and the noise")
    if not mechanism.noise.is_discrete and differ.mean() <= _MOVED:
        return unchecked(f"batch {batch}: {differ.sum()} answers differ; continuous noise rounds by machine")
    return failed(f"batch {batch}: {differ.sum()} answers do not follow from the votes and the run's noise")


def _listed_again(run: RunDirectory, line: Line, mechanism: StableAnswers, before: list[Line]) -> Finding:
    """Whether a batch of a list of stable answers follows, also where the list ends."""
    stream = batches.stream(mechanism, line.votes, _label(line))
    again = stable_list.drawn(run, mechanism, load_charged(run, line).votes, stream, before)
    if ledger.pack(again.labels, again.answered) == line.answers:
        return passed(
            f"batch {line.batch}: {line.asked:,} stable answers follow from the votes and the noise"
        )
    return failed(
        f"batch {line.batch}: the list of stable answers does not follow from the votes and the run's noise, "
        f"or did not end where it must: {len(again.labels):,} queries may be asked, and {line.asked:,} are"
    )


def spent(run: RunDirectory) -> Iterator[Finding]:
    """Whether the cost is within the budget, and the budget is what its epsilon and delta allow."""
    settings = run.record.read()
    fixed, mechanism = settings.budget, settings.mechanism
    if isinstance(mechanism, StableAnswers):
        yield from _spent_on_a_list(run, mechanism)
        return
    if fixed is None:
        batch = run.batches
        yield from judged(
            [f"{batch} batches were asked without a budget: no figure holds for them together"] * (batch > 1),
            "one list of queries, fixed before the first answer; no budget is needed",
        )
        return
    if not run.ledger.exists():
        yield absent(run, run.ledger, "aggregate")
        return
    first = next(ledger.lines(run.ledger))
    again = filter.plan(
        mechanism,
        teachers=first.teachers,
        classes=first.classes,
        epsilon=fixed.epsilon,
        delta=fixed.delta,
        rule=settings.rule,
    )
    differing = differences(fixed.to_dict(), again.to_dict())
    yield from judged(
        (f"the recorded budget is not that of its epsilon: {one}" for one in differing),
        f"epsilon {fixed.epsilon:g} allows {fixed.rdp:.6g} at order {fixed.order:.4g}, as recorded",
    )
    total = budget.spent(run)
    yield from judged(
        [] if again.allows(total) else [f"{total.rdp:.6g} was spent, which is more than the budget"],
        f"{total.rdp:.6g} of it was spent",
    )


def _spent_on_a_list(run: RunDirectory, mechanism: StableAnswers) -> Iterator[Finding]:
    """Whether a list of stable answers is one list: charged in its first line, and ended by its cutoff."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "aggregate")
        return
    lines = ledger.read(run.ledger)
    done, paid = stable_list.progress(lines), [line.batch for line in lines if line.cost.rdp > 0]
    faults = [f"the batches {paid} are charged, and not the first alone"] * (paid != [1][: len(lines)])
    over = done.unstable > mechanism.cutoff
    faults += [f"{done.unstable} queries are unanswered, beyond the cutoff"] * over
    how = f"{done.unstable} of {mechanism.cutoff} unanswered queries are used up"
    yield from judged(faults, f"one list of stable answers, charged once; {how}")


def stated(run: RunDirectory) -> Iterator[Finding]:
    """Whether both statements follow from the votes, the ledger and the budget."""
    if not run.statement.exists():
        yield absent(run, run.statement, "account")
        return
    whole = storage.read_json(run.statement, "statement")
    certificate = run.certificate.exists() and storage.read_json(run.certificate, "certificate").get("by")
    proved = ("record", "contents") if certificate == "record" else (certificate,)
    if certificate and whole.get("relation") not in proved:
        yield failed(f"the statement is by {whole.get('relation')}, and the certificate by {certificate}")
    delta = budget.agreed_delta(run, None)
    statement = stages.state(run, delta, _pld_of(whole))
    yield from judged(
        (f"the private statement differs: {one}" for one in differences(whole, statement.to_dict())),
        f"the private statement is what the votes and the ledger give, at delta {delta:g}",
    )
    if not run.public_statement.exists():
        yield absent(run, run.public_statement, "account")
        return
    published = storage.read_json(run.public_statement, "statement")
    yield from judged(
        (
            f"the published statement differs: {one}"
            for one in differences(published, trials.stated(run, statement.publishable()))
        ),
        "the published statement is what the votes and the ledger give",
    )


def _pld_of(statement: Mapping[str, Any]) -> bool | None:
    """Whether privacy-loss distributions were composed for a statement, whose maker may leave them out."""
    figure = statement.get("figures", {}).get("pld", {})
    if figure.get("epsilon") is not None:
        return True
    return False if figure.get("note") == figures.LEFT_OUT else None


def differences(stated: Any, found: Any, name: str = "") -> Iterator[str]:
    """The fields in which two JSON values differ; floating-point numbers may differ by rounding.

    >>> list(differences({"a": 1.0, "b": 2}, {"a": 1.0, "b": 3}))
    ['b is 2 and not 3']
    """
    found = found if name else json.loads(json.dumps(found))
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in sorted({*stated, *found}):
            if (key in stated) != (key in found):
                yield f"{name}{key} is {'there' if key in stated else 'missing'}"
            else:
                yield from differences(stated[key], found[key], f"{name}{key}.")
    elif isinstance(stated, float) and isinstance(found, float):
        if not covers(stated, found):
            yield f"{name[:-1]} is {stated!r} and not {found!r}"
    elif stated != found or type(stated) is not type(found):
        yield f"{name[:-1]} is {stated!r} and not {found!r}"


def covers(stated: float, again: float) -> bool:
    """Whether a recorded figure equals the computed one: not below it, and above it at most by rounding."""
    return again * (1 - ROUNDING) <= stated <= again * (1 + _ADDED)


def coherent(
    body: dict[str, Any],
    statement: accounting.Statement | accounting.CrowdStatement | PartyStatement | TrainingStatement,
) -> Iterator[Finding]:
    """Whether the sentences of a published statement follow from its numbers."""
    yield from judged(
        (
            f"the statement is not what its own fields give: {one}"
            for one in differences({**body, "trial": None}, {**statement.publishable(), "trial": None})
        ),
        "the statement's words are those of its numbers",
    )


def asked(run: RunDirectory) -> Plan | CountedPlan | None:
    """All that a run of teachers has asked, as its register has to show it; None if it asked nothing."""
    lines, settings = ledger.read(run.ledger), run.record.read()
    if not lines:
        return None
    total = sum(line.asked for line in lines)
    last = lines[-1]
    answers = Plan(last.mechanism, last.teachers, last.classes, total, settings.relation or "", settings.rule)
    return plans.beside(settings.limit, answers)


def published(statement: accounting.Statement, line: Any) -> Iterator[Finding]:
    """Whether the published figure follows from the statement alone."""
    if not 0 <= statement.answered <= statement.asked:
        yield failed(f"{statement.answered} of {statement.asked} queries are said to be answered")
    if line != statement.model_card_line():
        yield failed("the guarantee in words is not that of the figures")
    headline = statement.headline
    if headline.basis == "filter":
        named = headline.epsilon is not None and f"epsilon {headline.epsilon:g}," in statement.charged
        yield from judged(
            [] if named else ["the figure is not the budget that the statement names"],
            f"epsilon {headline.epsilon} is the budget of a filter; that it was kept needs private/",
        )
        return
    if headline.basis == "limit":
        yield from _limited(statement)
        return
    if not statement.teachers or not statement.classes:
        yield unchecked("the statement names no number of teachers, so its figure cannot be computed again")
        return
    again = _headline(statement).epsilon
    same = (headline.epsilon is None and again is None) or (
        headline.epsilon is not None and again is not None and covers(headline.epsilon, again)
    )
    asked = f"{statement.asked} queries to {statement.teachers} teachers"
    yield from judged(
        [] if same else [f"epsilon {headline.epsilon} is published for {asked}, which cost {again}"],
        f"epsilon {headline.epsilon} is what the mechanism gives for {asked}",
    )


def _limited(statement: accounting.Statement) -> Iterator[Finding]:
    """Whether answers that a number of voters chose are within the limit that the statement names."""
    epsilon, mechanism = statement.headline.epsilon, from_dict(statement.mechanism)
    size = {"queries": statement.asked, "teachers": statement.teachers, "classes": statement.classes}
    if epsilon is None or isinstance(mechanism, StableAnswers) or not all(size.values()):
        yield failed("the statement names no answers that could follow a number of voters")
        return
    limit = after_count.limit(epsilon, statement.delta)
    named = f"at most epsilon {epsilon:g}," in statement.charged
    faults = ["the figure is not the limit that the statement names"] * (not named)
    if not covers(statement.headcount, limit.headcount.sigma):
        faults.append(f"the number of voters has noise of scale {statement.headcount:g}, which is not enough")
    if not after_count.fits(mechanism, limit, **size, rule=statement.rule):
        faults.append(f"{statement.asked} answers of {mechanism!r} cost more than may follow that number")
    yield from judged(
        faults,
        f"epsilon {epsilon:g} is enough for the number of voters and {statement.asked} answers after it",
    )


def _headline(statement: accounting.Statement) -> figures.Figure:
    """The data-independent figure from public numbers alone, as it reads nothing else of a histogram."""
    mechanism = from_dict(statement.mechanism)
    if isinstance(mechanism, StableAnswers):
        return stable_statement.headline(mechanism, statement.delta)
    anything = np.zeros((1, statement.classes), np.int64)
    anything[:, 0] = statement.teachers
    slack = sampler_slack(mechanism, statement.asked, statement.classes)
    asked, orders = np.array([statement.asked]), curves.default_orders()
    case = figures.Case(mechanism, anything, asked, None, statement.delta, orders, slack, rule=statement.rule)
    return figures.data_independent(case)
