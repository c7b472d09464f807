"""`pate run`, `train`, `vote` and `aggregate`: from private records to answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from pate_jax import pipeline, stages, voting
from pate_jax.cli.printing import RunPath, finish, say
from pate_jax.config import DataChoice, MechanismChoice, PartitionChoice, RunConfig, check_queries
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.rundir import RunDirectory


def run(config: Annotated[RunConfig, arg(name="")], json: bool = False) -> None:
    """Do the whole job: from private records to a student that may be published.

    Repeat the same command to continue a run that was stopped; what is finished is not repeated.

    Args:
        config: the run.
        json: end with one JSON object in place of the summary.
    """
    finish(pipeline.run(config), json)


def train(
    data: Annotated[DataChoice, arg(name="")],
    partition: Annotated[PartitionChoice, arg(name="")],
    teacher: Annotated[TeacherConfig, arg(name="")],
    out: Path,
    json: bool = False,
) -> None:
    """Cut the private records into shards and train one teacher on each.

    Args:
        data: which records.
        partition: how they are cut.
        teacher: how a teacher is trained.
        out: the run directory.
        json: print one JSON object.
    """
    run = RunDirectory(out)
    with run.writing():
        say(stages.train(run, data, partition, teacher), json)


def vote(run: RunPath, queries: int = 500, json: bool = False) -> None:
    """Let the teachers of a run label public inputs, into private/votes.npz.

    Args:
        run: the run directory.
        queries: number of public inputs.
        json: print one JSON object.
    """
    check_queries(queries)
    directory = RunDirectory(run)
    with directory.writing():
        votes = stages.vote(directory, queries)
    say(
        {"votes": str(directory.votes), "queries": len(votes.votes), "teachers": int(votes.votes[0].sum())},
        json,
    )


def aggregate(
    source: Positional[Path],
    mechanism: MechanismChoice,
    out: Path | None = None,
    labels_are_teacher_labels: bool = False,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Answer every query of a run, or of a votes file made elsewhere, with a mechanism's noise.

    Args:
        source: a run directory, or a votes file (.npz or .npy); a votes file needs --out.
        mechanism: the noise.
        out: the run directory to make from a votes file.
        labels_are_teacher_labels: the file holds labels[teacher, query] and not histograms.
        seed: make the noise reproducible and therefore NOT private.
        json: print one JSON object.
    """
    run = _run_of(source, out)
    with run.writing():
        if not source.is_dir():
            stages.adopt(
                run, voting.load_votes(source, labels_are_teacher_labels=labels_are_teacher_labels), seed
            )
        answers = stages.answer(run, mechanism)
    answered = int(answers.answered.sum())
    say({"answers": str(run.answers), "queries": len(answers.labels), "answered": answered}, json)


def _run_of(source: Path, out: Path | None) -> RunDirectory:
    if source.is_dir():
        return RunDirectory(source)
    if out is None:
        raise PateError(
            f"{source} is no run directory: give --out, the run directory to make from this votes file"
        )
    return RunDirectory(out)
