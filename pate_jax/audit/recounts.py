"""Deep checks of a crowd's run: tables and scores counted again from the records, students trained again."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np

from pate_jax import student
from pate_jax.audit.crowds import begun, named
from pate_jax.audit.retraining import compared, method_again
from pate_jax.audit.subject import Subject
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, NeighbourCounts
from pate_jax.runs.crowds import answers, comparison, release, rivals, stages, steps, students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release.findings import Ended, Finding, judged, unchecked
from pate_jax.runs.students import taught

_MOVED = 1e-3  # share of a table that rounding of features may move between two machines
_ALONE = 20  # voters who are counted one by one
_LEARNED_FROM = "public inputs and noisy tables"


def recounted(subject: Subject) -> Iterator[Finding]:
    """Whether the records give each table again, in two parts that know nothing of each other, added up.

    And whether some voters, each counted alone, say no more than the release allows to one; and whether the
    held-out voters give the scores again.
    """
    run, crowd = subject.run, subject.crowd
    for step in begun(run):
        subject.needs("run", run.table_of(step), run.public_side_of(step))
        yield from _recounted(run, crowd.at(step))
    if steps.shown(run).scores:
        yield from _same(students.load_score(run), students.counted(crowd), crowd.judging, "the score")
    if steps.shown(run).comparisons:
        yield from _compared_again(subject, _last(run, crowd))


def _last(run: RunDirectory, crowd: Crowd) -> Crowd:
    """The crowd in its last step."""
    return crowd.at(len(steps.shown(run).tables))


def _recounted(run: RunDirectory, crowd: Crowd) -> Iterator[Finding]:
    """Whether the records give the table of one step again."""
    table, people, which = release.load_table(run, crowd.step), crowd.people, named(crowd.step)
    of = np.arange(len(people.labels)) if people.users is None else people.users
    random = np.random.default_rng(secrets.randbits(64))
    half = random.random(int(of.max(initial=0)) + 1) < 0.5
    again = sum(release.counted(crowd, people.take(half[of] == side)) for side in (True, False))
    off, voters = np.abs(again - table).sum(), np.unique(of)
    if 0 < off <= _MOVED * np.abs(table).sum():
        yield unchecked(f"{which}the table differs by {off:,}, as rounding of features may between machines")
    else:
        yield from judged(
            [f"{which}the records give another table: the numbers differ by {off:,} in all"] if off else [],
            f"{which}two halves of {len(voters):,} voters, counted apart, give the table when they are added",
        )
    sample = random.choice(voters, min(_ALONE, len(voters)), replace=False)
    alone = (release.counted(crowd, people.take(of == voter)) for voter in sample)
    beyond = [fault for cast in alone for fault in says_too_much(cast, crowd.plan.release)]
    yield from judged(
        (f"{which}{fault}" for fault in beyond[:3]),
        f"{which}{len(sample)} voters, each counted alone, say no more than they may",
    )


def _compared_again(subject: Subject, crowd: Crowd) -> Iterator[Finding]:
    """Whether the voters who are held out give the comparison of students again."""
    subject.needs("run", subject.run.comparison)
    again = rivals.counted(crowd, rivals.every(crowd))
    yield from _same(rivals.load(subject.run), again, crowd.judging, "the comparison of students")


def _same(kept: np.ndarray, again: np.ndarray, voters: int, what: str) -> Iterator[Finding]:
    off = int(np.abs(kept - again).max())
    if 0 < off <= max(1, kept.size * voters // 1000):
        yield unchecked(f"{what} differs by {off}, as rounding may make it")
    else:
        yield from judged(
            [f"the held-out voters give {what} as {again.tolist()}, not {kept.tolist()}"] if off else [],
            f"{voters:,} held-out voters give {what} again",
        )


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


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether each student, trained again from public inputs and noisy tables, is the one that is kept."""
    run = subject.run
    yield from between_again(subject)
    if not run.results.exists():
        raise Ended(unchecked("there is no student yet: run `pate student`"))
    last = _last(run, subject.crowd)
    config = subject.settings.student
    yield from method_again(run, lambda: students.chosen(config, last, *answers.given(last)))
    again = stages.learn(last, taught(run))[0]
    released = student.Student.load(run.student)
    yield compared(released.parameters, again.parameters, "the student", _LEARNED_FROM)


def between_again(subject: Subject) -> Iterator[Finding]:
    """Whether the student of a candidate, and those that were compared, come out again."""
    run, last = subject.run, _last(subject.run, subject.crowd)
    if steps.shown(run).scores:
        again = students.learned(last)
        yield compared(last.scored.parameters, again.parameters, "the scored student", _LEARNED_FROM)
    for method in comparison.methods(run) if steps.shown(run).comparisons else ():
        kept, again = rivals.kept(last, method), rivals.learned(last, method)
        yield compared(kept.parameters, again.parameters, f"the compared student {method}", _LEARNED_FROM)
