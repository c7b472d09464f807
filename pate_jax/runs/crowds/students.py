"""The students of a crowd: which method the last one has, and that of a candidate of a choice of settings.

The latter is trained, kept in the run, and judged by the voters who are held out. What it says of a voter's
record depends on that record alone, bit for bit, so that one voter moves its score by 1 at most.

All answers of sums share one noise, so no answer can judge a student that learned from the others. Where the
inputs are images, a student may be right more often than the classifier of the sums, or less. So one voter in
ten votes in no table, and they say, with noise, how many of them agree with each student: a table that one of
them moves no further than `mechanisms.crowds.Comparison` says. What follows reads the released numbers alone:
another student is taken if it is ahead of the classifier by more than the noise between the two, and else the
classifier, which copies nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.aggregate import Answers
from pate_jax.crowd import steps as slope
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Comparison
from pate_jax.models import trees
from pate_jax.runs import students as training
from pate_jax.runs.crowds import answers, public_side, steps
from pate_jax.runs.crowds.inputs import Crowd, compares
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import (
    Auto,
    Choice,
    Linear,
    PublicInputs,
    Student,
    StudentConfig,
    spaces,
    sums,
    with_method,
)
from pate_jax.student import check as check_fits
from pate_jax.student.settings import Settings
from pate_jax.system import devices, progress, storage

_SCORE, _COMPARISON = "crowd-score", "crowd-comparison"
Cells = Int[np.ndarray, "1 students"]


def check(config: StudentConfig, crowd: Crowd) -> None:
    """Refuse a student that the answers of this crowd cannot give, or that holds inputs not to be shown."""
    if not isinstance(config, Linear):
        check_fits(config, PublicInputs.of(crowd.dataset))
        return
    if crowd.choice.voters != "sums":
        config.resolved(image=crowd.dataset.kind == "image")
    if crowd.kind == "encoder":
        raise PateError(
            "student method='linear' would have to hold your encoder, and a released student cannot: choose "
            "another method, which learns what the classifier says of public inputs"
        )


def chosen(config: StudentConfig, crowd: Crowd, found: Answers, asked: Part) -> Choice:
    """The method that trains the last student, for `auto` the one that suits the answers.

    Sums are a classifier, which `auto` takes as it is, but that of an owner's encoder, and but
    where held-out voters have compared it with other students and prefer one of these. Of images that this
    package draws it is known that small turns keep the class, which fixmatch learns.
    Each answer of neighbours has noise of its own, so methods are compared on them; those of sums share one.
    """
    check(config, crowd)
    if not isinstance(config, Auto):
        return Choice(config, [])
    if compares(crowd.run, crowd.choice):
        return Choice(crowd.run.record.read().rivals.get(taken(crowd.run), Linear()), [])
    of_counts = crowd.choice.voters == "neighbours"
    if not of_counts and crowd.dataset.synthetic and crowd.dataset.kind == "image":
        return Choice(with_method(config, "fixmatch"), [])
    if not of_counts and sums.holds(crowd.plan.space.front):
        return Choice(Linear(), [])
    return training.choose(crowd.run, config, crowd.dataset, asked, found, independent=of_counts)


def of_sums(crowd: Crowd) -> Student:
    """The classifier of a crowd's sums, as a student."""
    if crowd.step > 1:
        return of_weights(crowd, answers.after(crowd))
    plan, public = crowd.plan, PublicInputs.of(crowd.dataset)
    made = sums.of_sums(public, plan.space, plan.scaling, answers.classifier(crowd))
    return made._replace(columns=crowd.dataset.columns)


def of_weights(crowd: Crowd, weights: slope.Weights) -> Student:
    """The classifier at weights that steps have led to, as a student."""
    plan, kernel = crowd.plan, weights / 2.0**slope.FINE * crowd.plan.scaling.length
    made = sums.of_head(PublicInputs.of(crowd.dataset), plan.space, plan.scaling, kernel)
    return made._replace(columns=crowd.dataset.columns)


def final(crowd: Crowd, choice: Choice) -> Student:
    """The student of all steps up to this one, by the method that was chosen for it."""
    if isinstance(choice.config, Linear):
        return of_sums(crowd)
    found, asked = answers.given(crowd)
    return training.learn(crowd.run, choice.config, crowd.dataset, asked, found)


def scored(crowd: Crowd) -> str:
    """A digest of the student of a candidate's last step, which is trained if the run has none yet."""
    folder = crowd.run.scored
    if not (folder / "student.json").exists():  # the last of its files
        learned(crowd).save(folder)
    return digest(crowd.scored)


def learned(crowd: Crowd) -> Student:
    """The student of a candidate of a choice of settings."""
    config = crowd.run.record.read().student
    return final(crowd, chosen(config, crowd, *answers.given(crowd)))


def digest(student: Student) -> str:
    """What names a student, and the noise of what is said of it."""
    arrays = {name: np.asarray(leaf) for name, leaf in trees.flat(student.parameters).items()}
    net = json.dumps(student.description, sort_keys=True)
    return public_side.digest({**arrays, "net": np.array(net)})


def score(crowd: Crowd) -> Cells:
    """The exact score of a candidate's student, a table of one cell. It is counted once, and private."""
    return _once(crowd.run.score, _SCORE, lambda: counted(crowd))


def counted(crowd: Crowd) -> Cells:
    """How many held-out voters have the label that the candidate's student gives."""
    return _agreeing(crowd, [crowd.scored])


def load_score(run: RunDirectory) -> Cells:
    """The exact score that the run of a candidate keeps."""
    return storage.read_arrays(run.existing(run.score, "run"), _SCORE)["table"]


def every(crowd: Crowd) -> list[Student]:
    """All that are compared, made once and kept: the classifier of the sums first."""
    return [kept(crowd, method) for method in methods(crowd.run)]


def kept(crowd: Crowd, method: str) -> Student:
    """One of the students that are compared, which is made when it is first asked for."""
    folder = crowd.run.compared(method)
    if not (folder / "student.json").exists():  # the last of its files
        by_method(crowd, method).save(folder)
    return Student.load(folder)


def by_method(crowd: Crowd, method: str) -> Student:
    """One of them anew, from public inputs and the noisy tables."""
    if method == FIRST:
        return of_sums(crowd)
    found, asked = answers.given(crowd)
    return training.learn(crowd.run, crowd.run.record.read().rivals[method], crowd.dataset, asked, found)


def digest_of_all(run: RunDirectory) -> str:
    """What names the students that are compared, and the noise of their comparison."""
    names = [digest(Student.load(run.compared(method))) for method in methods(run)]
    return public_side.digest({"compared": np.array(json.dumps(names))})


def comparison(crowd: Crowd) -> Cells:
    """The exact table of a comparison, which is counted once. It is private."""
    return _once(crowd.run.comparison, _COMPARISON, lambda: agreement(crowd, every(crowd)))


def agreement(crowd: Crowd, students: list[Student]) -> Cells:
    """How many held-out voters agree with each student, times their number, less the sum; private."""
    agree = _agreeing(crowd, students)
    cells: Cells = len(students) * agree - agree.sum()
    return cells


def load_comparison(run: RunDirectory) -> Cells:
    """The exact table of a comparison that a run keeps."""
    return storage.read_arrays(run.existing(run.comparison, "run"), _COMPARISON)["table"]


def _agreeing(crowd: Crowd, students: list[Student]) -> Cells:
    return np.array([[voting.agreeing(crowd.judges, partial(spaces.labels, one)) for one in students]])


def _once(path: Path, kind: str, count: Callable[[], Cells]) -> Cells:
    """An exact table, counted if it is not kept yet."""
    if not path.exists():
        storage.write_arrays(path, kind, {"table": count()})
    return storage.read_arrays(path, kind)["table"]


FIRST, RIVALS = "linear", ("supervised", "fixmatch")


def rivals(config: StudentConfig, crowd: Crowd) -> list[Settings]:
    """How the students are trained that a crowd's classifier is compared with, if its voters are sums.

    There are none where the user names a method, for tables and vectors, for images that this package draws,
    for an encoder of the owner's, over several processes, and where the owner does not declare that
    ids stay with their records, since others may be held out by them. Nothing of private records is read.
    """
    dataset = crowd.dataset
    image = dataset.kind == "image" and not dataset.synthetic and crowd.kind != "encoder"
    if not isinstance(config, Auto) or not image or devices.processes() > 1:
        return []
    if not crowd.declared:
        progress.say(
            "students are not compared, since that holds out one voter in ten by its id: pass "
            "--ids-are-stable if each record (or user) keeps its id when others come or go"
        )
        return []
    return [with_method(config, method).resolved(image=True, whole=True) for method in RIVALS]


def methods(run: RunDirectory) -> list[str]:
    """Of the students that are compared, the classifier's first."""
    return [FIRST, *run.record.read().rivals]


def taken(run: RunDirectory) -> str:
    """The method with which the most held-out voters agree, as far as the released numbers tell."""
    found = steps.shown(run)
    if not found.comparisons:
        raise PateError(f"{run.ledger} shows no comparison of students yet: repeat the command of the run")
    return ahead(methods(run), found.leads(), _between_two(found))


def ahead(names: list[str], leads: list[float], noise: float) -> str:
    """The student with the most voters if it leads the first by more than `noise`, else the first.

    >>> ahead(["linear", "fixmatch"], [-3.0, 3.0], noise=7.0), ahead(["linear", "fixmatch"], [-4.0, 4.0], 7.0)
    ('linear', 'fixmatch')
    """
    best = max(leads)
    return names[leads.index(best)] if best - leads[0] > noise else names[0]


def _between_two(found: steps.Shown) -> float:
    """The scale of the noise in the difference of two students, in voters."""
    (line,) = found.comparisons
    return cast(Comparison, line.event).between_two


class Compared(NamedTuple):
    """What a run's results say of a comparison."""

    leads: dict[str, float]  # by method: the share of those held out who agree with it, less the first's
    noise: float  # standard deviation of each
    voters: int  # about how many were held out


def told(run: RunDirectory) -> Compared:
    """What a run has released of its comparison."""
    found, some = steps.shown(run), steps.held_out(run)
    leads = found.leads()
    beyond = {name: (lead - leads[0]) / some for name, lead in zip(methods(run), leads, strict=True)}
    return Compared(beyond, _between_two(found) / some, some)
