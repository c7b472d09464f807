"""The students of a crowd: which method the last one has, and that of a candidate of a choice of settings.

The latter is trained, kept in the run, and judged by the voters who are held out. What it says of a voter's
record depends on that record alone, bit for bit, so that one voter moves its score by 1 at most.
"""

from __future__ import annotations

import json

import numpy as np

from pate_jax import crowd as voting
from pate_jax.aggregate import Answers
from pate_jax.crowd import steps
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.runs import students as training
from pate_jax.runs.crowds import answers, comparison, public_side
from pate_jax.runs.crowds.inputs import Crowd, compares
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Auto, Choice, Linear, PublicInputs, Student, StudentConfig, spaces, sums
from pate_jax.student import check as check_fits
from pate_jax.student.settings import with_method
from pate_jax.system import storage

_SCORE = "crowd-score"


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
        return Choice(crowd.run.record.read().rivals.get(comparison.taken(crowd.run), Linear()), [])
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


def of_weights(crowd: Crowd, weights: steps.Weights) -> Student:
    """The classifier at weights that steps have led to, as a student."""
    plan, kernel = crowd.plan, weights / 2.0**steps.FINE * crowd.plan.scaling.length
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


def score(crowd: Crowd) -> np.ndarray:
    """The exact score of a candidate's student, a table of one cell. It is counted once, and private."""
    if not crowd.run.score.exists():
        storage.write_arrays(crowd.run.score, _SCORE, {"table": counted(crowd)})
    return load_score(crowd.run)


def counted(crowd: Crowd) -> np.ndarray:
    """How many held-out voters have the label that the candidate's student gives."""
    return np.array([[voting.agreeing(crowd.judges, lambda seen: spaces.labels(crowd.scored, seen))]])


def load_score(run: RunDirectory) -> np.ndarray:
    """The exact score that the run of a candidate keeps."""
    return storage.read_arrays(run.existing(run.score, "run"), _SCORE)["table"]
