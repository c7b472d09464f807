"""The students of a crowd: which method the last one has, and those between two rounds.

A student between rounds is trained, kept in the run, and judged by the voters who are held out.

It has seen public inputs and released answers alone, so its last layer costs nothing as the next round's
space. What it says of a voter's record depends on that record alone, bit for bit, so that one voter moves its
score by 1 at most.
"""

from __future__ import annotations

import json

import numpy as np

from pate_jax import crowd as voting
from pate_jax.aggregate import Answers
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.runs import students as training
from pate_jax.runs.crowds import answers, comparison, public_side
from pate_jax.runs.crowds.inputs import Crowd, compares, is_candidate
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import CrowdChoice
from pate_jax.student import (
    Auto,
    Choice,
    Linear,
    PublicInputs,
    Ridge,
    Student,
    StudentConfig,
    Supervised,
    spaces,
    sums,
)
from pate_jax.student.settings import Settings, check_shown, covers, with_method
from pate_jax.system import storage

_SCORE = "crowd-score"


def between(config: StudentConfig, choice: CrowdChoice, *, pool: int, image: bool) -> Settings:
    """How the students between rounds are trained: as the last one, or by a net where that one has none.

    `pool` is the number of public inputs, of which sums answer all, and neighbours few unless told otherwise.

    >>> between(Supervised(steps=7), CrowdChoice("sums"), pool=90, image=False).steps
    7
    >>> between(Ridge(), CrowdChoice("sums"), pool=90, image=True).net
    'cnn'
    """
    asked = pool if choice.voters == "sums" else choice.queries or 0
    chosen = config.resolved(image=image, whole=covers(asked, pool, image=image))
    return Supervised().resolved(image=image) if isinstance(chosen, Ridge) else chosen


def check(config: StudentConfig, crowd: Crowd) -> None:
    """Refuse a student that the answers of this crowd cannot give, or that holds inputs not to be shown."""
    check_shown(config, image=crowd.dataset.kind == "image", shown=crowd.dataset.show_public)
    if not isinstance(config, Linear):
        return
    if crowd.choice.voters != "sums" or crowd.choice.rounds > 1:
        config.resolved(image=crowd.dataset.kind == "image")
    if crowd.kind == "encoder":
        raise PateError(
            "student method='linear' would have to hold your encoder, and a released student cannot: choose "
            "another method, which learns what the classifier says of public inputs"
        )


def chosen(config: StudentConfig, crowd: Crowd, found: Answers, asked: Part) -> Choice:
    """The method that trains the last student, for `auto` the one that suits the answers.

    Sums of one round are a classifier, which `auto` takes as it is, but that of an owner's encoder, and but
    where held-out voters have compared it with other students and prefer one of these. Of images that this
    package draws it is known that small turns keep the class, which fixmatch learns.
    Each answer of neighbours has noise of its own, so methods are compared on them; those of sums share one.
    """
    check(config, crowd)
    if not isinstance(config, Auto):
        return Choice(config, [])
    if compares(crowd.run, crowd.choice):
        return Choice(crowd.run.record.read().rivals.get(comparison.taken(crowd.run), Linear()), [])
    of_counts = crowd.choice.voters == "neighbours"
    if not of_counts and crowd.dataset.synthetic and crowd.dataset.kind == "image":
        return Choice(with_method(config, "fixmatch"), [])
    if not of_counts and crowd.choice.rounds == 1 and sums.holds(crowd.plan.space.front):
        return Choice(Linear(), [])
    return training.choose(crowd.run, config, crowd.dataset, asked, found, independent=of_counts)


def of_sums(crowd: Crowd) -> Student:
    """The classifier of a crowd's sums, as a student."""
    dataset, plan = crowd.dataset, crowd.plan
    made = sums.of_sums(PublicInputs.of(dataset), plan.space, plan.scaling, answers.classifier(crowd))
    return made._replace(columns=dataset.columns)


def final(crowd: Crowd, choice: Choice) -> Student:
    """The student of all rounds up to this one, by the method that was chosen for it."""
    if isinstance(choice.config, Linear):
        return of_sums(crowd)
    found, asked = answers.given(crowd)
    return training.learn(crowd.run, choice.config, crowd.dataset, asked, found)


def before(crowd: Crowd) -> str:
    """A digest of the student before this round, which is trained if the run has none yet."""
    folder = crowd.run.student_of(crowd.round - 1)
    if not (folder / "student.json").exists():  # the last of its files
        learned(crowd).save(folder)
    return digest(crowd.before, crowd.round)


def learned(crowd: Crowd) -> Student:
    """The student of all rounds before this one: for a candidate of a choice of settings its last one."""
    found, asked = answers.given(crowd.at(crowd.round - 1))
    if is_candidate(crowd.run):
        last, config = crowd.at(crowd.round - 1), crowd.run.record.read().student
        return final(last, chosen(config, last, found, asked))
    return training.learn(crowd.run, crowd.run.record.read().between, crowd.dataset, asked, found)


def digest(student: Student, round: int) -> str:
    """What names a student, and the noise of its score before a round."""
    arrays = {name: np.asarray(leaf) for name, leaf in trees.flat(student.parameters).items()}
    net = json.dumps(student.description, sort_keys=True)
    return public_side.digest({**arrays, "net": np.array(net), "round": np.array(round)})


def score(crowd: Crowd) -> np.ndarray:
    """The exact score of the student before a round, a table of one cell. It is counted once, and private."""
    path = crowd.run.score_of(crowd.round)
    if not path.exists():
        storage.write_arrays(path, _SCORE, {"table": counted(crowd)})
    return load_score(crowd.run, crowd.round)


def counted(crowd: Crowd) -> np.ndarray:
    """How many held-out voters have the label that the student before this round gives."""
    return np.array([[voting.agreeing(crowd.judges, lambda seen: spaces.labels(crowd.before, seen))]])


def load_score(run: RunDirectory, round: int) -> np.ndarray:
    """The exact score before a round that the run keeps."""
    return storage.read_arrays(run.existing(run.score_of(round), "run"), _SCORE)["table"]
