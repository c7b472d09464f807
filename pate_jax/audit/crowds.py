"""Checks of a crowd's run: who voted, what was counted, what was released and what that cost.

Like those of teachers' runs they recompute from the files: the public side from public inputs, the noise and
the noisy table from the exact one, the figure from the releases. `recounts` has the deep checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from pate_jax import accounting, student
from pate_jax.accounting import after_count
from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit import public as public_part
from pate_jax.audit.shards import absent
from pate_jax.audit.spending import covers, differences
from pate_jax.audit.subject import Subject
from pate_jax.crowd import vectors
from pate_jax.crowd.plan import Plan
from pate_jax.data import partition
from pate_jax.mechanisms.crowds import Comparison, CrowdRelease, HeadCount, Score
from pate_jax.runs import batches, budget, chain, ledger, trials
from pate_jax.runs.crowds import comparison, public_side, release, rivals, rounds, stages, students
from pate_jax.runs.crowds.certificate import faults, held_out
from pate_jax.runs.crowds.certificate import voters as certified_voters
from pate_jax.runs.crowds.inputs import Crowd, compares, comparison_of, is_candidate
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.record import PLANNED
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.runs.settings import CrowdChoice
from pate_jax.system import storage


def opened(subject: Subject) -> Crowd | Finding:
    """The crowd of a run, or why its data cannot be had."""
    inputs = subject.inputs
    return inputs if isinstance(inputs, Finding) else Crowd(inputs, subject.run.record.read().crowd)


def voters(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether certificates fit the tables and their releases, and the data are the certified ones."""
    for round in begun(run):
        missing = [path for path in _files(run, round) if not path.exists()]
        if missing:
            yield absent(run, missing[0], "run")
            return
        yield from _certified(run, round)
    if isinstance(crowd, Finding):
        yield crowd
        return
    if crowd.judged and crowd.renumbers:
        yield failed(
            "voters are held out by row numbers: removing one would hold out others, which no figure covers"
        )
    private, key = crowd.dataset.private, crowd.inputs.partition_key
    alone = partition.divide(private, 1, key=key, by=crowd.choice.by)
    for round in begun(run):
        certificate = storage.read_json(run.certificate_of(round), "certificate")
        differing = partition.check_certificate(certificate, alone, private, key=key)
        faults = [one.removeprefix("teacher 0: ") for one in differing]
        if held_out(certificate) != crowd.judging:
            faults += [f"{held_out(certificate)} voters are certified as held out, and {crowd.judging} are"]
        yield from judged(
            (f"{named(round)}{fault}" for fault in faults),
            f"{named(round)}ids and contents of all records are the certified ones",
        )


def _certified(run: RunDirectory, round: int) -> Iterator[Finding]:
    """Whether the certificate of a round fits the files and the settings of the run."""
    choice = run.record.read().crowd
    certificate = storage.read_json(run.certificate_of(round), "certificate")
    made = public_side.read(run.public_side_of(round))
    plan = public_side.plan_of(made, run.public_side_of(round))
    public, table = public_side.digest(made), release.load_table(run, round)
    whom = f"{named(round)}{certificate.get('records')} records by {certificate.get('by')}"
    yield from judged(
        faults(certificate, plan.release, table, public),
        f"{whom} are certified, and the table holds no more than they can cast",
    )
    if (certificate.get("by"), certificate.get("voters")) != (choice.by, choice.voters):
        yield failed(f"{whom} are certified, and the run claims {choice.voters} by {choice.by}")


def begun(run: RunDirectory) -> range:
    """The rounds that a run has begun: the first, and those of which a file or a line is there."""
    lines = len(list(ledger.releases(run.ledger))) if run.ledger.exists() else 0
    return range(1, max(1, lines // 2, _last_file(run)) + 1)


def _last_file(run: RunDirectory) -> int:
    most = run.record.read().crowd.rounds
    return max((round for round in range(1, most + 1) if run.table_of(round).exists()), default=0)


def _files(run: RunDirectory, round: int) -> tuple[Path, ...]:
    first = () if round == 1 else (run.student_of(round - 1) / "student.json", run.score_of(round))
    return (*first, run.public_side_of(round), run.table_of(round), run.certificate_of(round))


def _read_by(run: RunDirectory, line: CrowdLine) -> tuple[Path, ...]:
    """The files that one line of the ledger is compared with."""
    if isinstance(line.release, Comparison):
        kept = (run.compared(method) / "student.json" for method in comparison.methods(run))
        return (*kept, run.comparison)
    files = _files(run, rounds.round_of(line))
    return files[:2] if isinstance(line.release, Score) else files


def named(round: int) -> str:
    """What a sentence about a round begins with; nothing for the first.

    >>> named(2)
    'round 2: '
    """
    return "" if round == 1 else f"round {round}: "


def public(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether space, weights, queries and noise are those that public inputs and settings give."""
    for round in begun(run):
        path = run.public_side_of(round)
        if not path.exists():
            yield absent(run, path, "run")
            return
        if isinstance(crowd, Finding):
            yield crowd
            return
        yield from _planned(path, crowd.at(round))


def _planned(path: Path, crowd: Crowd) -> Iterator[Finding]:
    """Whether the public side of a round comes out again."""
    kept, which = public_side.read(path), named(crowd.round)
    plan = crowd.planned()
    again = crowd.arrays(plan)
    before = public_side.plan_of(kept, path).release
    if plan.release != before:
        yield failed(
            f"{which}public inputs and settings give the release {plan.release}, and the run has {before}"
        )
        return
    what = "public inputs and settings" if crowd.round == 1 else "public inputs and released answers"
    yield from public_part.learned(
        seen(public_side.plan_of(kept, path), kept),
        seen(plan, again),
        crowd.seen.public.inputs,
        f"{which}space, weights, queries and noise",
        what,
        public_side.SPACE,
    )


def seen(plan: Plan, made: Mapping[str, np.ndarray]) -> public_part.Seen:
    """A plan as arrays, and as what it makes of public inputs."""
    return public_part.Seen(
        made, lambda inputs: np.asarray(vectors(plan.scaling, plan.space.coordinates(inputs)))
    )


def lines(run: RunDirectory) -> Iterator[Finding]:
    """Whether the ledger is whole, and shows the releases that the files hold at their cost."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "run")
        return
    found, wished = list(ledger.releases(run.ledger)), run.record.read().crowd
    for line in found:
        yield from judged(
            (f"release {line.batch}: {fault}" for fault in _faults(run, line)),
            f"release {line.batch}: what was counted, its cost and the noisy numbers are the recorded ones",
        )
    yield from _in_order(run, wished)
    cost = counts.worst([line.release for line in found], wished.delta, rounds.unmade(run, wished))
    if cost > wished.epsilon:
        yield failed(f"epsilon {wished.epsilon:g} was allowed, and the releases cost {cost:g}")
    state = chain.check(run.ledger)
    if state.torn is not None:
        yield unchecked("the last line was being written when a crash came; nothing of it had left")
    yield passed(f"{state.entries} lines form one chain, and its head counts {state.counted} of them")


def _in_order(run: RunDirectory, wished: CrowdChoice) -> Iterator[Finding]:
    """Whether the lines are those of a run with these settings, and its rounds ended as its scores say."""
    shown, entries = rounds.shown(run), list(ledger.entries(run.ledger))
    names = [entry.release.name for entry in entries if isinstance(entry, CrowdLine)]
    made, scored = len(shown.tables), len(shown.scores)
    others = any(line.release.name != wished.voters for line in shown.tables)
    if len(names) != len(entries) or others or made > wished.rounds or not made:
        yield failed(f"the ledger shows {names}, and this run releases tables of {wished.voters}")
        return
    numbers = [line.release for line in (*shown.numbers, *shown.scores)]
    scored_by_plan = wished.rounds > 1 or is_candidate(run)
    if scored_by_plan and numbers != (planned := _numbers(run, wished, scored)):
        yield failed(f"numbers of voters are released as {numbers}, and {planned} was planned")
    yield from _compared(run, shown, wished)
    early = [round for round in range(2, made + 1) if not rounds.continues(run, round - 1)]
    if early:
        yield failed(f"round {early[0]} was made, and the score before it says that rounds end there")
    elif not rounds.finished(run, wished):
        yield unchecked(f"{made} of at most {wished.rounds} rounds were made, and the run can go on")
    elif made < wished.rounds:
        yield passed(f"{made} of at most {wished.rounds} rounds were made, as the last score says")


def _compared(run: RunDirectory, shown: rounds.Shown, wished: CrowdChoice) -> Iterator[Finding]:
    """Whether students were compared only if this run does that, and the best of them was taken."""
    found = [line.release for line in shown.comparisons]
    planned = [comparison_of(run, wished)] if shown.numbers and compares(run, wished) else []
    if found and found != planned:
        yield failed(f"students are compared by {found}, and {planned} was planned")
        return
    if not found or not run.results.exists() or not isinstance(run.record.read().student, student.Auto):
        return
    method, better = storage.read_json(run.results, "results")["method"], comparison.taken(run)
    yield from judged(
        [] if method == better else [f"the comparison favours {better}, and the student is {method}"],
        f"the student is {method}, as the comparison of the held-out voters says",
    )


def _numbers(run: RunDirectory, wished: CrowdChoice, scored: int) -> list[CrowdRelease]:
    """The releases of single numbers that settings plan for, with so many scores.

    Where the run chose its voters, their number has noise that suits all.
    """
    mu = counts.mu_for(wished.epsilon, wished.delta)
    score = counts.score_for(mu, wished.voters, max(1, wished.rounds - 1))
    chosen = PLANNED in run.record.read()
    number = after_count.headcount(wished.epsilon, wished.delta) if chosen else None
    return [number or counts.headcount_for(mu, wished.voters), *[score] * scored]


def _faults(run: RunDirectory, line: CrowdLine) -> Iterator[str]:
    """What of one line differs from the files of the run."""
    round, is_table = rounds.round_of(line), not _is_number(line)
    files = _read_by(run, line)
    missing = [path.name for path in files if not path.exists()]
    if missing:
        yield f"{missing[0]} is missing"
        return
    if line.table != storage.digest(_exact(run, line)):
        yield "the table is not the one that was released"
    if line.public != _asked_on(run, line):
        yield "the public side is not the one that voters were asked on"
    if is_table:
        made = public_side.read(run.public_side_of(round))
        if line.release != public_side.plan_of(made, run.public_side_of(round)).release:
            yield "the ledger names another release than the public side"
    charged = ledger.cost_to_dict(line.order, line.cost)
    costs = ledger.cost_to_dict(*budget.release_cost(line.budget, line.release))
    if list(differences(charged, costs)):
        yield f"it was charged {charged} and costs {costs}"
    if is_table and not run.answers_of(round).exists():
        yield f"{run.answers_of(round).name} is missing; the command that made the run writes it again"
    elif is_table:
        rounds.load_noisy(run, round)


def _is_number(line: CrowdLine) -> bool:
    return isinstance(line.release, HeadCount | Score | Comparison)


def _asked_on(run: RunDirectory, line: CrowdLine) -> str:
    """The digest of what a release was asked on: a public side, students, or nothing."""
    if isinstance(line.release, HeadCount):
        return release.NOTHING
    if isinstance(line.release, Comparison):
        return rivals.digest(run)
    round = rounds.round_of(line)
    if isinstance(line.release, Score):
        return students.digest(student.Student.load(run.student_of(round - 1)), round)
    return public_side.digest(public_side.read(run.public_side_of(round)))


def _exact(run: RunDirectory, line: CrowdLine) -> np.ndarray:
    """What a release is the noisy form of: the certified number of voters, a score, a comparison, a table."""
    round = rounds.round_of(line)
    if isinstance(line.release, Score):
        return students.load_score(run, round)
    if isinstance(line.release, Comparison):
        return rivals.load(run)
    if isinstance(line.release, HeadCount):
        return np.array([[certified_voters(storage.read_json(run.certificate, "certificate"))]])
    return release.load_table(run, round)


def noise(run: RunDirectory) -> Iterator[Finding]:
    """Whether the noisy table follows from the exact one and the noise that the ledger committed to."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "run")
        return
    commitments = []
    for line in ledger.releases(run.ledger):
        commitments.append(line.noise)
        if line.noise != batches.commitment(run, release.stream(line.release, line.table, line.public)):
            yield failed(f"release {line.batch}: the ledger commits to another noise than the run's")
        recorded = ledger.unpack_table(line.values, line.release.shape)
        table = _exact(run, line)
        if table.shape != line.release.shape:
            yield failed(f"release {line.batch}: the table is of another shape")
            continue
        again = release.draw(run, line.release, table, line.public)
        wrong = int((again != recorded).sum())
        yield from judged(
            [f"release {line.batch}: {wrong:,} numbers do not follow from the table and the noise"]
            if wrong
            else [],
            f"release {line.batch}: {again.size:,} noisy numbers follow from the table and the noise",
        )
    if len(set(commitments)) != len(commitments):
        yield failed("one noise served two releases")


def stated(run: RunDirectory) -> Iterator[Finding]:
    """Whether both statements are what the ledger gives."""
    for path in (run.statement, run.public_statement):
        if not path.exists():
            yield absent(run, path, "account")
            return
    certificate = storage.read_json(run.certificate, "certificate") if run.certificate.exists() else {}
    whole = storage.read_json(run.statement, "statement")
    if whole.get("relation") != certificate.get("by"):
        yield failed(
            f"the statement is by {whole.get('relation')}, and the certificate by {certificate.get('by')}"
        )
    again = stages.state(run, budget.agreed_delta(run, None)).publishable()
    for which, path, due in (
        ("private", run.statement, again),
        ("published", run.public_statement, trials.stated(run, again)),
    ):
        body = storage.read_json(path, "statement")
        yield from judged(
            (f"the {which} statement differs: {one}" for one in differences(body, due)),
            f"the {which} statement is what the ledger gives, at delta {again['delta']:g}",
        )


def published(statement: accounting.CrowdStatement) -> Iterator[Finding]:
    """The published figure again, from the releases that a statement names."""
    again = figure_of(statement.releases, statement.delta, statement.unmade, statement.tuned).epsilon
    epsilon = statement.headline.epsilon
    same = epsilon is None if again is None else epsilon is not None and covers(epsilon, again)
    yield from judged(
        [] if same else [f"epsilon {epsilon} is published for tables that cost {again}"],
        f"epsilon {epsilon} is what the tables cost that the statement names",
    )
