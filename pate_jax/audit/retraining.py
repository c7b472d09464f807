"""Computes parts of a run again from the inputs that should determine them, and compares the results.

The teachers label the public inputs again. Some teachers are trained again from only their own shard and
key, and the student is trained again from only public inputs and the answers. The tables and scores of a
crowd are counted again from the records.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pate_jax import ensemble, student
from pate_jax.audit.crowds import begun, named
from pate_jax.audit.subject import Subject
from pate_jax.data.partition import Shards
from pate_jax.ensemble import checkpoint
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, NeighbourCounts
from pate_jax.models import trees
from pate_jax.runs import answers, public_labels, students
from pate_jax.runs.crowds import answers as crowd_answers
from pate_jax.runs.crowds import release, scans, stages, steps
from pate_jax.runs.crowds import students as crowd_students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.runs.record import NET
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked
from pate_jax.runs.students import taught
from pate_jax.system import storage

_MOVED = 1e-3  # share of labels that rounding may move between two machines
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4


def labels(subject: Subject) -> Iterator[Finding]:
    """Whether the stored teachers give the labels in the votes files."""
    run, opened = subject.run, _ready(subject)
    yield from _source(subject, opened)
    votes = answers.load_asked(run)
    if votes.teacher_labels is None:
        raise Ended(unchecked("the votes files hold no labels of single teachers"))
    asked = opened.seen_of(asked_inputs(opened))
    teachers = checkpoint.finished_teachers(run.teachers, opened.net)
    again = ensemble.predict(opened.net, opened.dataset.preprocessing, teachers, asked)
    wrong = again != votes.teacher_labels
    if 0 < wrong.mean() <= _MOVED:
        yield unchecked(f"{wrong.sum()} of {wrong.size:,} labels differ, as rounding may between machines")
    else:
        yield from judged(
            [f"{wrong.sum()} of {wrong.size:,} labels are not the teachers'"] if wrong.any() else [],
            f"{len(again)} teachers give their {wrong.size:,} labels again",
        )


def _source(subject: Subject, opened: Inputs) -> Iterator[Finding]:
    """Whether a net of the user's own is still the code that the teachers were trained with."""
    if NET not in subject.settings:
        return
    yield _same_source(subject.settings.of(NET), opened.net.description)


def _same_source(then: Mapping[str, Any], now: Mapping[str, Any]) -> Finding:
    """Whether the net of a training has the name, arguments and source that it had then."""
    if all(then.get(name) == now[name] for name in ("name", "arguments", "source")):
        return passed(f"the source of the net {now['name']} is that of the training")
    return unchecked(
        f"the source of the net {now['name']} has changed since the training (its digest was "
        f"{str(then.get('source'))[:12]} and is {now['source'][:12]}): today's is what is computed below"
    )


def teachers(subject: Subject) -> Iterator[Finding]:
    """Whether some teachers, each trained again from its own shard alone, equal the stored ones."""
    run, opened = subject.run, _ready(subject)
    dataset, shards = opened.dataset, opened.shards
    config = replace(opened.teacher, width=checkpoint.plan(checkpoint.folders(run.teachers)[0]).width)
    sampled = _sample(len(shards.counts), subject.retrained)
    stored = checkpoint.finished_teachers(run.teachers, opened.net)
    before = dict(checkpoint.parameters_of(stored, sampled))
    for teacher, parameters in before.items():
        again = ensemble.fit(
            opened.net,
            dataset.preprocessing,
            opened.seen.private.inputs,
            np.asarray(opened.private.labels),
            _alone(shards, teacher),
            key=opened.teacher_key,
            config=config,
        )
        trained = dict(checkpoint.parameters_of(again, [teacher]))[teacher]
        yield compared(parameters, trained, f"teacher {teacher}", "its own shard and key")


def _sample(teachers: int, wanted: int) -> list[int]:
    """An unpredictable sample of teachers."""
    return sorted(secrets.SystemRandom().sample(range(teachers), min(wanted, teachers)))


def _alone(shards: Shards, teacher: int) -> Shards:
    counts = np.zeros_like(shards.counts)
    counts[teacher] = shards.counts[teacher]
    return Shards(shards.rows, counts)


def compared(before: Any, again: Any, who: str, what: str) -> Finding:
    """Whether two trees of parameters are equal, bit for bit or up to rounding.

    >>> compared({"a": np.ones(2)}, {"a": np.ones(2)}, "the student", "the answers").outcome
    'passed'
    """
    then, now = trees.flat(before), trees.flat(again)
    pairs = [(then[name], now[name]) for name in then if name in now]
    if then.keys() != now.keys() or any(np.shape(old) != np.shape(new) for old, new in pairs):
        return failed(f"{who} is of another shape than {what} give")
    if all(np.array_equal(old, new) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, bit for bit")
    if all(np.allclose(old, new, rtol=_RELATIVE, atol=_ABSOLUTE) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, to rounding")
    return failed(f"{who} does not follow from {what} alone")


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether the student, trained again from public inputs and answers alone, is the one in release/."""
    run, opened = subject.run, subject.inputs
    if not run.results.exists():
        raise Ended(unchecked("there is no student yet: run `pate student`"))
    config, asked = subject.settings.student, asked_inputs(opened)
    yield from method_again(run, lambda: students.choose(run, config, opened.dataset, asked))
    again = students.learn(run, students.taught(run), opened.dataset, asked)
    again = public_labels.informed(run, again, opened.dataset)
    yield from _released(run, again, "public inputs and answers")


def _released(run: RunDirectory, again: student.Student, what: str) -> Iterator[Finding]:
    """Whether the student in release/ is this one."""
    released = student.Student.load(run.student)
    if released.program is not None:
        yield _same_source(released.description, again.description)
    yield compared(released.parameters, again.parameters, "the student", what)


def method_again(run: RunDirectory, choose: Callable[[], student.Choice]) -> Iterator[Finding]:
    """Whether the student's method, if answers decided on it, is what they decide on again."""
    results = storage.read_json(run.results, "results")
    if not results.get("comparison"):
        return
    method, again = results["method"], choose().config.method
    if method == again:
        yield passed(f"that the student learned by {method} follows from public inputs and answers alone")
    else:
        yield unchecked(
            f"the student learned by {method}, and compared again {again} is better: where two methods are "
            "about as good, rounding may decide between machines"
        )


def _ready(subject: Subject) -> Inputs:
    """The inputs of a run whose teachers are stored and have voted."""
    run = subject.run
    if "data" in subject.settings and not (checkpoint.folders(run.teachers) and run.answers.exists()):
        raise Ended(unchecked("no teachers are kept in this run, or nothing was answered yet"))
    return subject.inputs


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
        yield from _same(
            crowd_students.load_score(run), crowd_students.counted(crowd), crowd.judging, "the score"
        )
    if steps.shown(run).comparisons:
        yield from _compared_again(subject, _last(run, crowd))


def _last(run: RunDirectory, crowd: Crowd) -> Crowd:
    """The crowd in its last step."""
    return crowd.at(len(steps.shown(run).tables))


def _recounted(run: RunDirectory, crowd: Crowd) -> Iterator[Finding]:
    """Whether the records give the table of one step again."""
    table, which = release.load_table(run, crowd.step), named(crowd.step)
    random = np.random.default_rng(secrets.randbits(64))
    again, voters, sample, beyond = np.zeros_like(table), 0, 0, []
    for people in [crowd.people] if crowd.dataset.scan is None else scans.voters(crowd):
        of = np.arange(len(people.labels)) if people.users is None else people.users
        half, names = random.random(int(of.max(initial=0)) + 1) < 0.5, np.unique(of)
        again += sum(release.counted(crowd, people.take(half[of] == side)) for side in (True, False))
        some = random.choice(names, min(1 if sample else _ALONE, len(names)), replace=False)
        alone = (release.counted(crowd, people.take(of == voter)) for voter in some)
        beyond += [fault for cast in alone for fault in says_too_much(cast, crowd.plan.release)]
        voters, sample = voters + len(names), sample + len(some)
    off = np.abs(again - table).sum()
    if 0 < off <= _MOVED * np.abs(table).sum():
        yield unchecked(f"{which}the table differs by {off:,}, as rounding of features may between machines")
    else:
        yield from judged(
            [f"{which}the records give another table: the numbers differ by {off:,} in all"] if off else [],
            f"{which}two halves of {voters:,} voters, counted apart, give the table when they are added",
        )
    yield from judged(
        (f"{which}{fault}" for fault in beyond[:3]),
        f"{which}{sample} voters, each counted alone, say no more than they may",
    )


def _compared_again(subject: Subject, crowd: Crowd) -> Iterator[Finding]:
    """Whether the voters who are held out give the comparison of students again."""
    subject.needs("run", subject.run.comparison)
    again = crowd_students.agreement(crowd, crowd_students.every(crowd))
    yield from _same(
        crowd_students.load_comparison(subject.run), again, crowd.judging, "the comparison of students"
    )


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


def student_of_tables(subject: Subject) -> Iterator[Finding]:
    """Whether each student, trained again from public inputs and noisy tables, is the one that is kept."""
    run = subject.run
    yield from between_again(subject)
    if not run.results.exists():
        raise Ended(unchecked("there is no student yet: run `pate student`"))
    last = _last(run, subject.crowd)
    config = subject.settings.student
    yield from method_again(run, lambda: crowd_students.chosen(config, last, *crowd_answers.given(last)))
    again = stages.learn(last, taught(run))[0]
    yield from _released(run, again, _LEARNED_FROM)


def between_again(subject: Subject) -> Iterator[Finding]:
    """Whether the student of a candidate, and those that were compared, come out again."""
    run, last = subject.run, _last(subject.run, subject.crowd)
    if steps.shown(run).scores:
        again = crowd_students.learned(last)
        yield compared(last.scored.parameters, again.parameters, "the scored student", _LEARNED_FROM)
    for method in crowd_students.methods(run) if steps.shown(run).comparisons else ():
        kept, again = crowd_students.kept(last, method), crowd_students.by_method(last, method)
        yield compared(kept.parameters, again.parameters, f"the compared student {method}", _LEARNED_FROM)
