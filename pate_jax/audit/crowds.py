"""Checks of a crowd's run: who voted, what was counted, what was released and what that cost.

Like those of teachers' runs they recompute from the files: the public side from public inputs, the noise and
the noisy table from the exact one, the figure from the releases; and with `deep` the table from the records.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np

from pate_jax import accounting, student
from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit.retraining import compared
from pate_jax.audit.shards import absent
from pate_jax.audit.spending import covers, differences
from pate_jax.audit.subject import Subject
from pate_jax.crowd import Voters
from pate_jax.data import partition
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount, NeighbourCounts
from pate_jax.runs import batches, budget, chain, ledger
from pate_jax.runs.crowds import public_side, release, stages
from pate_jax.runs.crowds.certificate import faults
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_MOVED = 1e-3  # share of a table that rounding of features may move between two machines
_ALONE = 20  # voters who are counted one by one


def opened(subject: Subject) -> Crowd | Finding:
    """The crowd of a run, or why its data cannot be had."""
    inputs = subject.inputs
    return inputs if isinstance(inputs, Finding) else Crowd(inputs, subject.run.record.read().crowd)


def voters(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether the certificate fits the table and its release, and the data are the certified ones."""
    if not (run.certificate.exists() and run.table.exists() and run.public_side.exists()):
        path = next(one for one in (run.public_side, run.table, run.certificate) if not one.exists())
        yield absent(run, path, "run")
        return
    certificate, choice = storage.read_json(run.certificate, "certificate"), run.record.read().crowd
    made = public_side.read(run.public_side)
    plan, public = public_side.plan_of(made, run.public_side), public_side.digest(made)
    whom = f"{certificate.get('records')} records by {certificate.get('by')}"
    yield from judged(
        faults(certificate, plan.release, release.load_table(run), public),
        f"{whom} are certified, and the table holds no more than they can cast",
    )
    if (certificate.get("by"), certificate.get("voters")) != (choice.by, choice.voters):
        yield failed(f"{whom} are certified, and the run claims {choice.voters} by {choice.by}")
    if isinstance(crowd, Finding):
        yield crowd
        return
    private, key = crowd.dataset.private, crowd.inputs.partition_key
    alone = partition.divide(private, 1, key=key, by=choice.by)
    differing = partition.check_certificate(certificate, alone, private, key=key)
    yield from judged(
        (one.removeprefix("teacher 0: ") for one in differing),
        "ids and contents of all records are the certified ones",
    )


def public(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether space, weights, queries and noise are those that public inputs and settings give."""
    if not run.public_side.exists():
        yield absent(run, run.public_side, "run")
        return
    if isinstance(crowd, Finding):
        yield crowd
        return
    kept = public_side.read(run.public_side)
    plan = crowd.planned()
    again = crowd.arrays(plan)
    before = public_side.plan_of(kept, run.public_side).release
    if plan.release != before:
        yield failed(f"public inputs and settings give the release {plan.release}, and the run has {before}")
    elif public_side.digest(kept) == public_side.digest(again):
        yield passed("space, weights, queries and noise follow from public inputs and settings, bit for bit")
    else:
        names = sorted(name for name in {*kept, *again} if not _same(kept.get(name), again.get(name)))
        yield unchecked(
            f"{', '.join(names)} of the public side come out otherwise here, as rounding on another "
            "machine or another version may do; they read public inputs alone"
        )


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def lines(run: RunDirectory) -> Iterator[Finding]:
    """Whether the ledger is whole, and shows the release that the files hold at its cost."""
    if not run.ledger.exists():
        yield absent(run, run.ledger, "run")
        return
    found, wished = list(ledger.releases(run.ledger)), run.record.read().crowd
    for line in found:
        yield from judged(
            (f"release {line.batch}: {fault}" for fault in _faults(run, line)),
            f"release {line.batch}: what was counted, its cost and the noisy numbers are the recorded ones",
        )
    releases, named = [line.release for line in found], ("headcount", wished.voters)
    if tuple(one.name for one in releases) != named or len(list(ledger.entries(run.ledger))) != len(named):
        yield failed(f"the ledger shows {[one.name for one in releases]}, and this run releases {named}")
    elif (cost := counts.worst(releases, wished.delta)) > wished.epsilon:
        yield failed(f"epsilon {wished.epsilon:g} was allowed, and the releases cost {cost:g}")
    state = chain.check(run.ledger)
    if state.torn is not None:
        yield unchecked("the last line was being written when a crash came; nothing of it had left")
    yield passed(f"{state.entries} lines form one chain, and its head counts {state.counted} of them")


def _faults(run: RunDirectory, line: CrowdLine) -> Iterator[str]:
    """What of one line differs from the files of the run."""
    missing = [path.name for path in (run.table, run.public_side, run.certificate) if not path.exists()]
    if missing:
        yield f"{missing[0]} is missing"
        return
    if line.table != storage.digest(_exact(run, line)):
        yield "the table is not the one that was released"
    made = public_side.read(run.public_side)
    if line.public != (release.NOTHING if _is_number(line) else public_side.digest(made)):
        yield "the public side is not the one that voters were asked on"
    if not _is_number(line) and line.release != public_side.plan_of(made, run.public_side).release:
        yield "the ledger names another release than the public side"
    charged = ledger.cost_to_dict(line.order, line.cost)
    costs = ledger.cost_to_dict(*budget.release_cost(line.budget, line.release))
    if list(differences(charged, costs)):
        yield f"it was charged {charged} and costs {costs}"
    if not run.answers.exists():
        yield f"{run.answers.name} is missing; the command that made the run writes it again"
    elif not _is_number(line):
        release.load_noisy(run)


def _is_number(line: CrowdLine) -> bool:
    return isinstance(line.release, HeadCount)


def _exact(run: RunDirectory, line: CrowdLine) -> np.ndarray:
    """What a release is the noisy form of: the certified number of voters, or the table."""
    if not _is_number(line):
        return release.load_table(run)
    certificate = storage.read_json(run.certificate, "certificate")
    return np.array([[certificate["users" if certificate["by"] == "user" else "records"]]])


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
    for which, path in (("private", run.statement), ("published", run.public_statement)):
        body = storage.read_json(path, "statement")
        yield from judged(
            (f"the {which} statement differs: {one}" for one in differences(body, again)),
            f"the {which} statement is what the ledger gives, at delta {again['delta']:g}",
        )


def published(statement: accounting.CrowdStatement) -> Iterator[Finding]:
    """The published figure again, from the releases that a statement names."""
    again, epsilon = figure_of(statement.releases, statement.delta).epsilon, statement.headline.epsilon
    same = epsilon is None if again is None else epsilon is not None and covers(epsilon, again)
    yield from judged(
        [] if same else [f"epsilon {epsilon} is published for tables that cost {again}"],
        f"epsilon {epsilon} is what the tables cost that the statement names",
    )


def recounted(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether the records give the table again, in two parts that know nothing of each other, added up.

    And whether some voters, each counted alone, say no more than the release allows to one.
    """
    if isinstance(crowd, Finding):
        yield crowd
        return
    if not (run.table.exists() and run.public_side.exists()):
        yield absent(run, run.table, "run")
        return
    table, people = release.load_table(run), crowd.people
    of = np.arange(len(people.labels)) if people.users is None else people.users
    random = np.random.default_rng(secrets.randbits(64))
    half = random.random(int(of.max(initial=0)) + 1) < 0.5
    again = sum(release.counted(crowd, _some(people, half[of] == side)) for side in (True, False))
    off = np.abs(again - table).sum()
    if 0 < off <= _MOVED * np.abs(table).sum():
        yield unchecked(f"the table differs by {off:,}, as rounding of features may between machines")
    else:
        yield from judged(
            [f"the records give another table: the numbers differ by {off:,} in all"] if off else [],
            f"two halves of {len(half):,} voters, counted apart, give the table when they are added",
        )
    sample = random.choice(len(half), min(_ALONE, len(half)), replace=False)
    alone = (release.counted(crowd, _some(people, of == voter)) for voter in sample)
    beyond = [fault for cast in alone for fault in says_too_much(cast, crowd.plan.release)]
    yield from judged(beyond[:3], f"{len(sample)} voters, each counted alone, say no more than they may")


def _some(people: Voters, rows: np.ndarray) -> Voters:
    users = None if people.users is None else people.users[rows]
    return Voters(people.inputs[rows], people.labels[rows], users)


def says_too_much(cast: np.ndarray, released: CrowdRelease) -> Iterator[str]:
    """By how much what one voter cast exceeds the release's bound.

    >>> kept = NeighbourCounts(queries=3, classes=2, votes=1, sigma=2.0)
    >>> list(says_too_much(np.array([[1, 0], [0, 0], [0, 1]]), kept))
    ['one voter cast 2 votes at 2 queries, and may cast 1']
    """
    if isinstance(released, NeighbourCounts):
        votes, queries = int(np.abs(cast).sum()), int((cast != 0).any(1).sum())
        if votes > released.votes or votes != queries:
            yield f"one voter cast {votes} votes at {queries} queries, and may cast {released.votes}"
    elif isinstance(released, ClassSums) and int((cast.astype(object) ** 2).sum()) > released.length**2:
        yield f"one voter cast a vector longer than {released.length}"


def student_again(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    """Whether the student, trained again from public inputs and the noisy table, is the one in release/."""
    if isinstance(crowd, Finding):
        yield crowd
        return
    if not run.results.exists():
        yield unchecked("there is no student yet: run `pate student`")
        return
    again, _, _ = stages.learn(crowd, run.record.read().student)
    released = student.Student.load(run.student)
    what = "public inputs and the noisy table"
    yield compared(released.parameters, again.parameters, "the student", what)
