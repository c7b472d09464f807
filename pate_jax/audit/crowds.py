"""Checks of a crowd's run: who voted, what was counted, what was released and what that cost.

Like those of teachers' runs they recompute from the files: the public side from public inputs, the noise and
the noisy table from the exact one, the figure from the releases. `retraining` has the deep checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pate_jax import accounting, student
from pate_jax.accounting import after_count
from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit import accounts
from pate_jax.audit import public as public_part
from pate_jax.audit.subject import Subject
from pate_jax.crowd import vectors
from pate_jax.crowd.plan import Plan
from pate_jax.data import partition
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import (
    MOST_STEPS,
    ClassSums,
    Comparison,
    CrowdRelease,
    CrowdTable,
    HeadCount,
    Score,
)
from pate_jax.runs import budget, driver, ledger
from pate_jax.runs.crowds import public_side, release, scans, stages, steps, students
from pate_jax.runs.crowds.inputs import Crowd, compares, comparison_of, is_candidate
from pate_jax.runs.crowds.release import faults, held_out
from pate_jax.runs.crowds.release import voters as certified_voters
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.public_part import other_encoders
from pate_jax.runs.record import PLANNED, STEPS
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.runs.settings import CrowdChoice
from pate_jax.system import storage

_WHITENED = 1e-4  # relative: how far weights of whitening may differ from machine to machine
_ROUNDED = 1 << 12  # of weights: what least squares on another machine may move them by


def voters(subject: Subject) -> Iterator[Finding]:
    """Whether certificates fit the tables and their releases, and the data are the certified ones."""
    run = subject.run
    for step in begun(run):
        subject.needs("run", *_files(run, step))
        yield from _certified(run, step)
    crowd = subject.crowd
    if crowd.judged and crowd.renumbers:
        yield failed(
            "voters are held out by row numbers: removing one would hold out others, which no figure covers"
        )
    private, key = crowd.dataset.private, crowd.inputs.partition_key
    scanned = crowd.dataset.scan is not None
    alone = None if scanned else partition.divide(private, 1, key=key, by=crowd.choice.by)
    for step in begun(run):
        certificate = storage.read_json(run.certificate_of(step), "certificate")
        if alone is None:
            faults = list(scans.differences(certificate, crowd.dataset, key))
        else:
            differing = partition.check_certificate(certificate, alone, private, key=key)
            faults = [one.removeprefix("teacher 0: ") for one in differing]
        if held_out(certificate) != crowd.judging:
            faults += [f"{held_out(certificate)} voters are certified as held out, and {crowd.judging} are"]
        faults += other_encoders(certificate, crowd.dataset)
        yield from judged(
            (f"{named(step)}{fault}" for fault in faults),
            f"{named(step)}ids and contents of all records are the certified ones",
        )


def _certified(run: RunDirectory, step: int) -> Iterator[Finding]:
    """Whether the certificate of a step fits the files and the settings of the run."""
    choice = run.record.read().crowd
    certificate = storage.read_json(run.certificate_of(step), "certificate")
    public = public_side.digest(public_side.read(run.public_side_of(step)))
    table, released = release.load_table(run, step), _release_of(run, step)
    whom = f"{named(step)}{certificate.get('records')} records by {certificate.get('by')}"
    yield from judged(
        faults(certificate, released, table, public),
        f"{whom} are certified, and the table holds no more than they can cast",
    )
    if (certificate.get("by"), certificate.get("voters")) != (choice.by, choice.voters):
        yield failed(f"{whom} are certified, and the run claims {choice.voters} by {choice.by}")


def _release_of(run: RunDirectory, step: int) -> CrowdTable:
    """The release that the public side plans for a step."""
    plan = public_side.plan_of(public_side.read(run.public_side), run.public_side)
    if step == 1:
        return plan.release
    if plan.steps is None:
        raise PateError(f"{run.public_side} plans one table, and a step {step} was made: restore both")
    return plan.steps.release


def begun(run: RunDirectory) -> range:
    """The steps that a run has begun: the first, and those of which a file or a line is there."""
    shown = ledger.releases(run.ledger) if run.ledger.exists() else ()
    tables = sum(isinstance(line.event, ClassSums) for line in shown)
    return range(1, max(1, tables, _last_file(run)) + 1)


def _last_file(run: RunDirectory) -> int:
    every = range(1, MOST_STEPS + 1)
    return max((step for step in every if run.table_of(step).exists()), default=0)


def _files(run: RunDirectory, step: int) -> tuple[Path, ...]:
    return run.public_side_of(step), run.table_of(step), run.certificate_of(step)


def _read_by(run: RunDirectory, line: CrowdLine) -> tuple[Path, ...]:
    """The files that one line of the ledger is compared with."""
    if isinstance(line.event, Comparison):
        kept = (run.compared(method) / "student.json" for method in students.methods(run))
        return (*kept, run.comparison)
    if isinstance(line.event, Score):
        return run.scored / "student.json", run.score
    return _files(run, 1 if isinstance(line.event, HeadCount) else steps.step_of(line))


def named(step: int) -> str:
    """What a sentence about a step begins with; nothing for the first.

    >>> named(2)
    'step 2: '
    """
    return "" if step == 1 else f"step {step}: "


def public(subject: Subject) -> Iterator[Finding]:
    """Whether space, weights, queries and noise are those that public inputs and settings give."""
    for step in begun(subject.run):
        path = subject.run.public_side_of(step)
        subject.needs("run", path)
        yield from _planned(path, subject.crowd.at(step))


def _planned(path: Path, crowd: Crowd) -> Iterator[Finding]:
    """Whether the public side of a step comes out again."""
    kept, which = public_side.read(path), named(crowd.step)
    if crowd.step > 1:
        yield from _weighed(kept, crowd)
        return
    plan = crowd.planned()
    again = crowd.arrays(plan)
    before_plan = public_side.plan_of(kept, path)
    before = before_plan.release
    if plan.release != before:
        yield failed(
            f"{which}public inputs and settings give the release {plan.release}, and the run has {before}"
        )
        return
    yield from public_part.learned(
        seen(public_side.plan_of(kept, path), kept),
        seen(plan, again),
        crowd.seen.public.inputs,
        f"{which}space, weights, queries and noise",
        "public inputs and settings",
        public_side.SPACE,
    )
    told = crowd.run.record.stages().get(STEPS)
    if told not in (None, steps.recorded(before_plan.steps)):
        yield failed(f"the settings tell of the steps {told}, and {path.name} plans others")
    if before_plan.steps is not None or plan.steps is not None:
        yield from _same_steps(before_plan, plan)


def _same_steps(kept: Plan, again: Plan) -> Iterator[Finding]:
    """Whether as many steps are planned, whitened alike and with as much noise; weights may be rounded."""
    pair = kept.steps, again.steps
    told = [None if one is None else (one.number, one.release, one.scaling[1:]) for one in pair]
    faults = [f"the run has the steps {told[0]}, and public inputs and settings give {told[1]}"]
    same = told[0] == told[1]
    if same and pair[0] is not None and pair[1] is not None:
        faults = ["the steps whiten or move otherwise than public inputs and settings say"]
        mine, theirs = ((*one.scaling.weights, one.rate) for one in (pair[0], pair[1]))
        same = bool(np.allclose(mine, theirs, rtol=_WHITENED, atol=0))
    yield from judged([] if same else faults, "the steps follow from public inputs and settings")


def _weighed(kept: Mapping[str, np.ndarray], crowd: Crowd) -> Iterator[Finding]:
    """Whether the weights of a step are those that the tables before it give."""
    try:
        again = release.public(crowd)
    except PateError as error:
        yield failed(str(error))
        return
    same = kept.keys() == again.keys() and all(
        np.array_equal(kept[name], again[name]) for name in ("step", "first")
    )
    off = int(np.abs(kept["slope"] - again["slope"]).max(initial=0)) if same else 0
    which = named(crowd.step)
    if same and 0 < off <= (_ROUNDED if crowd.step == 2 else 0):
        yield unchecked(f"{which}weights differ by {off} in their last digits, as rounding may make them")
        return
    yield from judged(
        [f"{which}the weights are not those that the noisy tables before it give"] if off or not same else [],
        f"{which}the weights follow from the noisy tables before it",
    )


def seen(plan: Plan, made: Mapping[str, np.ndarray]) -> public_part.Seen:
    """A plan as arrays, and as what it makes of public inputs."""
    return public_part.Seen(
        made, lambda inputs: np.asarray(vectors(plan.scaling, plan.space.coordinates(inputs)))
    )


def lines(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger is whole, and shows the releases that the files hold at their cost."""
    run, wished = subject.run, subject.settings.crowd
    subject.needs("run", run.ledger)
    found = list(ledger.releases(run.ledger))
    for line in found:
        yield from judged(
            (f"release {line.batch}: {fault}" for fault in _faults(run, line)),
            f"release {line.batch}: what was counted, its cost and the noisy numbers are the recorded ones",
        )
    yield from _in_order(run, wished)
    cost = counts.worst([line.event for line in found], wished.delta)
    if cost > wished.epsilon:
        yield failed(f"epsilon {wished.epsilon:g} was allowed, and the releases cost {cost:g}")
    yield from accounts.chained(run)


def _in_order(run: RunDirectory, wished: CrowdChoice) -> Iterator[Finding]:
    """Whether the lines are those of a run with these settings, and all its steps were made."""
    shown, entries = steps.shown(run), list(ledger.entries(run.ledger))
    names = [line.event.name for line in ledger.releases(run.ledger)]
    made, due = len(shown.tables), steps.planned(run)
    others = any(line.event.name != wished.voters for line in shown.tables)
    if len(names) != len(entries) or others or made > due or not made:
        yield failed(f"the ledger shows {names}, and this run releases {due} tables of {wished.voters}")
        return
    numbers = [line.event for line in (*shown.numbers, *shown.scores)]
    planned = _numbers(run, wished, len(shown.scores))
    if is_candidate(run) and numbers != planned:
        yield failed(f"numbers of voters are released as {numbers}, and {planned} was planned")
    yield from _compared(run, shown, wished)
    if not steps.finished(run, wished):
        yield unchecked(f"{made} of {due} steps were made, and the run can go on")
    elif due > 1:
        yield passed(f"all {due} steps were made")


def _compared(run: RunDirectory, shown: steps.Shown, wished: CrowdChoice) -> Iterator[Finding]:
    """Whether students were compared only if this run does that, and the best of them was taken."""
    found = [line.event for line in shown.comparisons]
    planned = [comparison_of(run, wished)] if shown.numbers and compares(run, wished) else []
    if found and found != planned:
        yield failed(f"students are compared by {found}, and {planned} was planned")
        return
    if not found or not run.results.exists() or not isinstance(run.record.read().student, student.Auto):
        return
    method, better = storage.read_json(run.results, "results")["method"], students.taken(run)
    yield from judged(
        [] if method == better else [f"the comparison favours {better}, and the student is {method}"],
        f"the student is {method}, as the comparison of the held-out voters says",
    )


def _numbers(run: RunDirectory, wished: CrowdChoice, scored: int) -> list[CrowdRelease]:
    """The releases of single numbers that settings plan for, with so many scores.

    Where the run chose its voters, their number has noise that suits all.
    """
    mu = counts.mu_for(wished.epsilon, wished.delta)
    score = counts.score_for(mu, wished.voters)
    chosen = PLANNED in run.record.read()
    number = after_count.headcount(wished.epsilon, wished.delta) if chosen else None
    return [number or counts.headcount_for(mu, wished.voters), *[score] * scored]


def _faults(run: RunDirectory, line: CrowdLine) -> Iterator[str]:
    """What of one line differs from the files of the run."""
    step, is_table = steps.step_of(line), not _is_number(line)
    files = _read_by(run, line)
    missing = [path.name for path in files if not path.exists()]
    if missing:
        yield f"{missing[0]} is missing"
        return
    if line.exact != storage.digest(_exact(run, line)):
        yield "the table is not the one that was released"
    if line.public != release.asked_on(run, line):
        yield "the public side is not the one that voters were asked on"
    if is_table and line.event != _release_of(run, step):
        yield "the ledger names another release than the public side"
    yield from accounts.miscounted(line, budget.cost_of(line.budget, line.event))
    if is_table and not run.answers_of(step).exists():
        yield f"{run.answers_of(step).name} is missing; the command that made the run writes it again"
    elif is_table:
        steps.load_noisy(run, step)


def _is_number(line: CrowdLine) -> bool:
    return isinstance(line.event, HeadCount | Score | Comparison)


def _exact(run: RunDirectory, line: CrowdLine) -> np.ndarray:
    """What a release is the noisy form of: the certified number of voters, a score, a comparison, a table."""
    if isinstance(line.event, Score):
        return students.load_score(run)
    if isinstance(line.event, Comparison):
        return students.load_comparison(run)
    if isinstance(line.event, HeadCount):
        return np.array([[certified_voters(storage.read_json(run.certificate, "certificate"))]])
    return release.load_table(run, steps.step_of(line))


def noise(subject: Subject) -> Iterator[Finding]:
    """Whether the noisy table follows from the exact one and the noise that the ledger committed to."""
    run = subject.run
    subject.needs("run", run.ledger)
    found = list(ledger.releases(run.ledger))
    yield from accounts.committed(run, found, "release", "releases")
    for line in found:
        recorded = ledger.unpack_table(line.values, line.event.shape)
        table = _exact(run, line)
        if table.shape != line.event.shape:
            yield failed(f"release {line.batch}: the table is of another shape")
            continue
        again = driver.noisy(run, line, table)
        wrong = int((again != recorded).sum())
        yield from judged(
            [f"release {line.batch}: {wrong:,} numbers do not follow from the table and the noise"]
            if wrong
            else [],
            f"release {line.batch}: {again.size:,} noisy numbers follow from the table and the noise",
        )


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether both statements are what the ledger gives."""
    run = subject.run
    subject.needs("account", run.statement)
    yield from accounts.certified(run, {})
    again = stages.state(run, budget.agreed_delta(run, None)).publishable()
    yield from accounts.stated(subject, "account", again, again, "the ledger gives")


def published(statement: accounting.CrowdStatement) -> Iterator[Finding]:
    """The published figure again, from the releases that a statement names."""
    again = figure_of(statement.releases, statement.delta, statement.tuned).epsilon
    costs = "the tables cost that the statement names"
    yield from accounts.figure(statement.headline.epsilon, again, "tables that cost", costs)
