"""Checks of the answers and their cost: ledger, noise, budget and statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pate_jax import accounting
from pate_jax.accounting import after_count, answers_statement, figures, filter
from pate_jax.audit import accounts
from pate_jax.audit.subject import Subject
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers, from_dict
from pate_jax.runs import batches, budget, driver, ledger, plans, stable_list, stages
from pate_jax.runs.answers import load_batch, load_charged, same
from pate_jax.runs.crowds import release
from pate_jax.runs.crowds.release import voters
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import AnswerLine, CrowdLine
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import PLANNED
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_MOVED = 1e-3  # share of answers that continuous noise may round differently on another machine


def lines(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger is whole, and shows exactly the answers that the run has given."""
    run = subject.run
    subject.needs("aggregate", run.ledger)
    answered = []
    for line in ledger.lines(run.ledger):
        answered.append(line.batch)
        yield from judged(
            (f"batch {line.batch}: {fault}" for fault in _faults(run, line)),
            f"batch {line.batch}: votes, queries, mechanism and answers are the recorded ones",
        )
    yield from accounts.chained(run)
    voted, given = range(1, run.batches + 1), run.answers.parent.glob(f"{run.answers.stem}*.npz")
    if answered != sorted(set(answered)) or set(answered) - set(voted):
        yield failed(f"the ledger shows the batches {answered}, and votes are there for {len(voted)}")
    shown = {run.answers_of(batch).name for batch in answered}
    for name in sorted({path.name for path in given} - shown):
        yield failed(f"{name} holds answers that the ledger does not show")
    for name in sorted(name for name in shown if not (run.private / name).exists()):
        yield failed(f"{name} is missing; `pate aggregate` writes it again from the ledger")


def _faults(run: RunDirectory, line: AnswerLine) -> Iterator[str]:
    """The differences between one line and the files of its batch."""
    settings = run.record.read()
    if not run.votes_of(line.batch).exists() or not run.answers_of(line.batch).exists():
        yield "its votes or its answers are missing"
        return
    votes = load_batch(run, line)
    answers = storage.read_arrays(run.answers_of(line.batch), "answers")
    if "mechanism" not in settings or line.event.mechanism != settings.mechanism:
        yield "the ledger names another mechanism than the settings"
    named = load_charged(run, line)
    if line.exact != storage.digest(named.votes):
        yield "the votes are not those that were answered"
    if (line.public, line.event.asked) != (ledger.asked(named), len(votes.votes)):
        yield "the queries are not those that were charged"
    if not same(ledger.given(line), answers):
        yield "the answers are not those that the ledger recorded"
    totals = np.unique(votes.votes.sum(1)).tolist()
    if totals not in ([], [line.event.teachers]) or votes.votes.shape[1] != line.event.classes:
        yield "it was charged for another number of teachers or classes"
    yield from accounts.miscounted(line, budget.cost_of(settings.budget, line.event, first=line.batch == 1))


def noise(subject: Subject) -> Iterator[Finding]:
    """Whether the answers follow from the votes and the noise that the ledger committed to."""
    run = subject.run
    subject.needs("aggregate", run.ledger)
    lines = ledger.read(run.ledger)
    yield from accounts.committed(run, lines, "batch", "batches")
    for place, line in enumerate(lines):
        yield _drawn_again(run, line, lines[:place])


def _drawn_again(run: RunDirectory, line: AnswerLine, before: list[AnswerLine]) -> Finding:
    batch, mechanism = line.batch, line.event.mechanism
    if isinstance(mechanism, StableAnswers):
        return _listed_again(run, line, before)
    votes = load_batch(run, line).votes
    again = batches.draw(run, line, votes)
    labels, answered, counts = ledger.given(line)
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


def _listed_again(run: RunDirectory, line: AnswerLine, before: list[AnswerLine]) -> Finding:
    """Whether a batch of a list of stable answers follows, also where the list ends."""
    votes = load_charged(run, line).votes
    again = stable_list.drawn(run, line, votes, before)
    if ledger.pack(again.labels, again.answered) == line.values:
        return passed(
            f"batch {line.batch}: {line.event.asked:,} stable answers follow from the votes and the noise"
        )
    return failed(
        f"batch {line.batch}: the list of stable answers does not follow from the votes and the run's noise, "
        f"or did not end where it must: {len(again.labels):,} queries may be asked, and {line.event.asked:,} "
        "are"
    )


def spent(subject: Subject) -> Iterator[Finding]:
    """Whether the cost is within the budget, and the budget is what its epsilon and delta allow."""
    run, settings = subject.run, subject.settings
    fixed, mechanism = settings.budget, settings.mechanism
    if isinstance(mechanism, StableAnswers):
        subject.needs("aggregate", run.ledger)
        yield from _spent_on_a_list(run, mechanism)
        return
    if fixed is None:
        batch = run.batches
        yield from judged(
            [f"{batch} batches were asked without a budget: no figure holds for them together"] * (batch > 1),
            "one list of queries, fixed before the first answer; no budget is needed",
        )
        return
    subject.needs("aggregate", run.ledger)
    first = next(ledger.lines(run.ledger))
    again = filter.plan(
        mechanism,
        teachers=first.event.teachers,
        classes=first.event.classes,
        epsilon=fixed.epsilon,
        delta=fixed.delta,
    )
    differing = accounts.differences(to_dict(fixed), to_dict(again))
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
    lines = ledger.read(run.ledger)
    done, paid = stable_list.progress(lines), [line.batch for line in lines if line.cost.rdp > 0]
    faults = [f"the batches {paid} are charged, and not the first alone"] * (paid != [1][: len(lines)])
    over = done.unstable > mechanism.cutoff
    faults += [f"{done.unstable} queries are unanswered, beyond the cutoff"] * over
    how = f"{done.unstable} of {mechanism.cutoff} unanswered queries are used up"
    yield from judged(faults, f"one list of stable answers, charged once; {how}")


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether both statements follow from the votes, the ledger and the budget."""
    run = subject.run
    subject.needs("account", run.statement)
    yield from accounts.certified(run, {"record": "contents"})
    whole = storage.read_json(run.statement, "statement")
    again = stages.state(run, budget.agreed_delta(run, None), _pld_of(whole))
    yield from accounts.stated(
        subject, "account", again.to_dict(), again.publishable(), "the votes and the ledger give"
    )


def _pld_of(statement: Mapping[str, Any]) -> bool | None:
    """Whether privacy-loss distributions were composed for a statement, whose maker may leave them out."""
    figure = statement.get("figures", {}).get("pld", {})
    if figure.get("epsilon") is not None:
        return True
    return False if figure.get("note") == figures.LEFT_OUT else None


def asked(subject: Subject) -> Plan | None:
    """All that a run of teachers has asked; None if it asked nothing."""
    lines, settings = ledger.read(subject.run.ledger), subject.settings
    if not lines:
        return None
    asked = replace(lines[-1].event, asked=sum(line.event.asked for line in lines))
    return plans.beside(settings.limit, asked, settings.relation or "")


def published(statement: accounting.AnswersStatement, line: Any) -> Iterator[Finding]:
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
    asked = f"{statement.asked} queries to {statement.teachers} teachers"
    event = Answers(from_dict(statement.mechanism), statement.teachers, statement.classes, statement.asked)
    again = answers_statement.headline(event, statement.delta).epsilon
    gives = f"the mechanism gives for {asked}"
    yield from accounts.figure(headline.epsilon, again, f"{asked}, which cost", gives)


def _limited(statement: accounting.AnswersStatement) -> Iterator[Finding]:
    """Whether answers that a number of voters chose are within the limit that the statement names."""
    epsilon, mechanism = statement.headline.epsilon, from_dict(statement.mechanism)
    size = {"queries": statement.asked, "teachers": statement.teachers, "classes": statement.classes}
    if epsilon is None or isinstance(mechanism, StableAnswers) or not all(size.values()):
        yield failed("the statement names no answers that could follow a number of voters")
        return
    limit = after_count.limit(epsilon, statement.delta)
    named = f"at most epsilon {epsilon:g}," in statement.charged
    faults = ["the figure is not the limit that the statement names"] * (not named)
    if not accounts.covers(statement.headcount, limit.headcount.sigma):
        faults.append(f"the number of voters has noise of scale {statement.headcount:g}, which is not enough")
    if not after_count.fits(mechanism, limit, **size):
        faults.append(f"{statement.asked} answers of {mechanism!r} cost more than may follow that number")
    yield from judged(
        faults,
        f"epsilon {epsilon:g} is enough for the number of voters and {statement.asked} answers after it",
    )


def headcount(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger begins with the number that the settings name, and with nothing else of a crowd."""
    run, limit = subject.run, subject.settings.limit
    entries, numbers = list(ledger.entries(run.ledger)), list(ledger.releases(run.ledger))
    if limit is None:
        if numbers:
            yield failed("the ledger shows a number of voters, and the settings do not say what it chose")
        return
    if len(numbers) != 1 or entries[0] != numbers[0]:
        yield failed("the ledger does not begin with the one noisy number of voters that chose the teachers")
        return
    yield from judged(
        (f"the number of voters: {fault}" for fault in _headcount_faults(run, numbers[0])),
        "the number of voters, its cost and its noise are the recorded ones",
    )


def _headcount_faults(run: RunDirectory, number: CrowdLine) -> Iterator[str]:
    """What of the line differs from the settings, the certificate and the noise of the run."""
    limit = run.record.read().limit
    if limit is None or number.event != limit.headcount:
        yield f"{number.event} was released, and {limit and limit.headcount} is planned for"
        return
    yield from accounts.miscounted(number, budget.cost_of(number.budget, number.event))
    yield from accounts.uncommitted(run, number.noise, number.stream)
    if number.public != release.NOTHING:
        yield "it was asked of something, and a number of voters is asked of nothing"
    if not run.certificate.exists():
        return
    exact = np.array([[voters(storage.read_json(run.certificate, "certificate"))]])
    if number.exact != storage.digest(exact):
        yield "it is not the noisy form of the certified number"
    again = driver.noisy(run, number, exact)
    if not np.array_equal(again, ledger.unpack_table(number.values, number.event.shape)):
        yield "it does not follow from the certified number and the noise"


def within_limit(subject: Subject) -> Iterator[Finding]:
    """Whether the answers are within the limit, and of the teachers that were planned after the number."""
    settings, lines = subject.settings, ledger.read(subject.run.ledger)
    if not lines:
        raise Ended(unchecked("nothing was answered yet after the number of voters: run `pate run`"))
    limit, planned, mechanism = settings.limit, settings.of(PLANNED), settings.mechanism
    if limit is None or isinstance(mechanism, StableAnswers):
        yield failed("the settings name no limit of what may follow the number of voters")
        return
    size = {"teachers": lines[0].event.teachers, "classes": lines[0].event.classes}
    asked = sum(one.event.asked for one in lines)
    fits = len(lines) == 1 and after_count.fits(mechanism, limit, **size, queries=asked)
    yield from judged(
        [] if fits else [f"{asked} answers of {mechanism!r} cost more than may follow the number of voters"],
        f"{asked} answers and the number of voters cost at most epsilon {limit.epsilon:g} together",
    )
    if planned.get("teachers") != lines[0].event.teachers:
        yield failed(
            f"{planned.get('teachers')} teachers were planned, and {lines[0].event.teachers} answered"
        )
