"""`pate`: the stages of a run as commands, with flags made from the dataclasses that the functions take."""

from __future__ import annotations

import io
import json as json_format
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from pate_jax import devices

devices.prepare()

import numpy as np  # noqa: E402
import tyro  # noqa: E402
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, arg  # noqa: E402

from pate_jax import accounting, artefact, pipeline, report, stages, verify, voting  # noqa: E402
from pate_jax import plots as draw  # noqa: E402
from pate_jax.config import (  # noqa: E402
    DataChoice,
    MechanismChoice,
    MechanismOrRun,
    PartitionChoice,
    RunConfig,
    check_delta,
    check_queries,
    check_threshold,
)
from pate_jax.ensemble import TeacherConfig  # noqa: E402
from pate_jax.errors import PateError  # noqa: E402
from pate_jax.mechanisms import Mechanism, from_dict  # noqa: E402
from pate_jax.rundir import RunDirectory  # noqa: E402
from pate_jax.student import StudentConfig  # noqa: E402

RunPath = Annotated[Positional[Path], arg(metavar="RUN")]


def run(config: Annotated[RunConfig, arg(name="")], json: bool = False) -> None:
    """Do the whole job: from private records to a student that may be published.

    Repeat the same command to continue a run that was stopped; what is finished is not repeated.

    Args:
        config: the run.
        json: end with one JSON object in place of the summary.
    """
    _finish(pipeline.run(config), json)


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
        _say(stages.train(run, data, partition, teacher), json)


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
    _say(
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
    _say({"answers": str(run.answers), "queries": len(answers.labels), "answered": answered}, json)


def account(
    votes: Positional[Path],
    mechanism: MechanismOrRun = None,
    delta: float = 1e-5,
    queries: int | None = None,
    answered: Path | None = None,
    labels_are_teacher_labels: bool = False,
    published: bool = False,
    sanitise: bool = False,
    plots: Path | None = None,
    json: bool = False,
) -> None:
    """Say what answering the queries of a votes file costs, or what a run has spent.

    Args:
        votes: a votes file (.npz or .npy), or a run directory (which knows its own mechanism).
        mechanism: the mechanism that answers.
        delta: the delta of the statement.
        queries: count the first so many queries only.
        answered: .npy mask of the queries that were answered; unset: all of them.
        labels_are_teacher_labels: the file holds labels[teacher, query] and not histograms.
        published: print the papers' own figures as well.
        sanitise: release a sanitised estimate too (gnmax, confident-gnmax); each call draws and costs anew.
        plots: folder to write the plots into, as SVG.
        json: print one JSON object.
    """
    check_delta(delta)
    if votes.is_dir():
        if sanitise or queries is not None or answered is not None or mechanism is not None:
            raise PateError(
                f"{votes} is a run, whose mechanism, queries and answers are recorded: leave out the "
                "mechanism, --queries, --answered and --sanitise, or name a votes file"
            )
        run = RunDirectory(votes)
        with run.writing():
            statement = stages.account(run, delta)
        mechanism, histograms = from_dict(run.recorded()["mechanism"]), voting.load_votes(run.votes).votes
    elif mechanism is None:
        raise PateError(
            f"{votes} is a votes file: name a mechanism, as in `pate account {votes} gnmax --sigma 40`"
        )
    else:
        loaded = voting.load_votes(votes, labels_are_teacher_labels=labels_are_teacher_labels).votes
        histograms = _first(loaded, queries)
        check_threshold(mechanism, int(histograms.sum(1).max()))
        mask = None if answered is None else _mask(answered, len(histograms))
        figure = _sanitised(mechanism, histograms, delta) if sanitise else None
        statement = accounting.statement(mechanism, histograms, mask, delta, sanitised=figure)
    if plots is not None:
        _draw(plots, mechanism, histograms, delta)
    if json:
        papers = {"papers": accounting.published(mechanism, histograms, delta)._asdict()} if published else {}
        print(json_format.dumps({**statement.to_dict(), **papers}))
    else:
        print(statement.text())
        print(accounting.published_text(mechanism, histograms, delta) if published else "", end="")


def student(
    run: RunPath,
    config: Annotated[StudentConfig, arg(name="")],
    public: Path | None = None,
    test: Path | None = None,
    json: bool = False,
) -> None:
    """Train the student of a run on its answers and write release/.

    Args:
        run: the run directory.
        config: how the student learns.
        public: for votes made elsewhere: the public inputs that were voted on, in the order of the votes.
        test: for votes made elsewhere: a public labelled test part.
        json: print one JSON object.
    """
    directory = RunDirectory(run)
    with directory.writing():
        results = stages.teach(directory, config, public, test)
    _say(results, json)


def report_command(run: RunPath, json: bool = False) -> None:
    """Write the report pages of a run and print its summary.

    Args:
        run: the run directory.
        json: print one JSON object in place of the summary.
    """
    directory = RunDirectory(run)
    with directory.writing():
        results = stages.tell(directory)
    _finish(results, json)


def verify_command(run: RunPath, json: bool = False) -> None:
    """Recompute a run from its files, and list what does not fit; exit code 1 where something does not.

    Args:
        run: the run directory.
        json: print one JSON object.
    """
    found = verify.verify(RunDirectory(run))
    failed = [f"{check}: {finding}" for check, findings in found.items() for finding in findings]
    _say({"checked": list(found), "failed": failed}, json)
    sys.exit(1 if failed else 0)


_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run,
    "train": train,
    "vote": vote,
    "aggregate": aggregate,
    "account": account,
    "student": student,
    "report": report_command,
    "verify": verify_command,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input ends with one sentence and exit code 2."""
    settings = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)
    try:
        tyro.extras.subcommand_cli_from_dict(
            _COMMANDS, prog="pate", args=arguments, config=settings, description=__doc__
        )
    except PateError as error:
        print(f"pate: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("pate: stopped; repeat the same command to go on from the last finished stage", file=sys.stderr)
        sys.exit(130)


def _say(facts: dict[str, Any], json: bool) -> None:
    print(json_format.dumps(facts) if json else json_format.dumps(facts, indent=1))


def _finish(results: dict[str, Any], json: bool) -> None:
    if json:
        wanted = (
            "run_dir",
            "teachers",
            "queries",
            "answered",
            "label_accuracy",
            "student_accuracy",
            "statement",
        )
        print(json_format.dumps({name: results[name] for name in wanted}))
    else:
        print(report.summary(results, accounting.Statement.from_dict(results["statement"]).text()))


def _run_of(source: Path, out: Path | None) -> RunDirectory:
    if source.is_dir():
        return RunDirectory(source)
    if out is None:
        raise PateError(
            f"{source} is no run directory: give --out, the run directory to make from this votes file"
        )
    return RunDirectory(out)


def _first(votes: np.ndarray, queries: int | None) -> np.ndarray:
    if queries is None:
        return votes
    check_queries(queries)
    if queries > len(votes):
        raise PateError(f"queries={queries} is more than the {len(votes)} queries of the votes file")
    return votes[:queries]


def _sanitised(mechanism: Mechanism, votes: np.ndarray, delta: float) -> accounting.Figure:
    """The parameters come from public numbers only: queries, teachers, classes and delta."""
    teachers = int(votes.sum(1).max())
    plan = accounting.plan(mechanism, len(votes), teachers, votes.shape[1], delta)
    return accounting.sanitise(mechanism, votes, delta, plan)


def _draw(folder: Path, mechanism: Mechanism, votes: np.ndarray, delta: float) -> None:
    artefact.write_bytes(folder / "cumulative.svg", draw.cumulative(mechanism, votes, delta))
    artefact.write_bytes(folder / "by_consensus.svg", draw.by_consensus(mechanism, votes))
    artefact.write_bytes(folder / "split.svg", draw.split(mechanism, votes, delta))


def _mask(path: Path, queries: int) -> np.ndarray:
    mask = np.load(io.BytesIO(artefact.read_bytes(path)), allow_pickle=False)
    if mask.shape != (queries,) or mask.dtype != bool:
        raise PateError(
            f"{path} must hold {queries} booleans, one for each query; it holds {mask.shape} {mask.dtype}"
        )
    return mask


if __name__ == "__main__":
    main()
