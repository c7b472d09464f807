"""`pate run`, `train`, `vote` and `aggregate`: from private records to answers."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from pate_jax.accounting import Relation
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, check_delta
from pate_jax.cli.output import RunPath, finish, say
from pate_jax.data import table_files
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import budget, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import refuse_crowd
from pate_jax.runs.settings import (
    DataChoice,
    PartitionChoice,
    RunConfig,
    check_budget,
    check_distance,
    check_queries,
)
from pate_jax.runs.thresholds import MechanismOrRun, StableChoice, check_threshold, threshold_warning
from pate_jax.student.settings import Selection
from pate_jax.system import progress, tasks
from pate_jax.system import topology as machines
from pate_jax.voting.votes import votes_of


def run(
    config: Annotated[RunConfig, arg(name="")],
    file: Annotated[Path | None, arg(name="config")] = None,
    topology: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    coordinator: str | None = None,
    compile_anew: bool = False,
    json: bool = False,
    where: Annotated[tasks.Where, OmitArgPrefixes] = tasks.HERE_ALONE,
) -> None:
    """Do the whole job: from private records to a student that may be published.

    Repeat the same command to continue a run that was stopped; what is finished is not repeated.

    Args:
        config: the run.
        file: take flags from a file, as a run writes it into private/config.toml; those given here win.
        topology: the machines, by name or .toml file: cpu-8, v5e-8, ... (docs/start/gpus_and_clusters.md).
        processes: how many processes run this command together; unset: as many as the topology has hosts.
        process: which of them this is, from 0; unset: Slurm or the TPU pod tells.
        coordinator: HOST:PORT of the first one, which alone writes the run; goes with --process.
        compile_anew: take no compiled program from ~/.cache/pate_jax/programs and keep none there.
        json: end with one JSON object in place of the summary.
        where: who reads a private table in several files.
    """
    from pate_jax.runs import pipeline

    del compile_anew  # `system.devices` has read it before JAX was imported
    if file is not None:  # `cli.of_run` has put its flags in its place
        raise PateError(f"--config {file} is read from a command line alone")
    machines.enter(topology, coordinator, processes, process)
    _check_where(where, config.data, processes)
    with tasks.engine(where) as engine:
        results = pipeline.run(config, engine)
    if results:
        new = config.data.test or config.data.public
        if new is not None and not json:
            print(f"next: {shlex.join(['pate', 'predict', str(results['run_dir']), str(new)])}")
        finish(results, json)  # whose last line may be that this is a trial


def _check_where(where: tasks.Where, data: DataChoice, processes: int | None) -> None:
    """Refuse workers for whom there is no work."""
    if where == tasks.HERE_ALONE:
        return
    flag = f"--workers {where.workers}" if where.cluster is None else f"--cluster {where.cluster}"
    if data.private is None or not table_files.are_several(data.private):
        raise PateError(
            f"{flag} shares out a private table in several files ('folder/*.parquet'), and the private "
            "records are no such table: leave it out"
        )
    if processes is not None:
        raise PateError(f"{flag} and --processes {processes} were both given: leave out one of them")


def train(
    data: Annotated[DataChoice, OmitArgPrefixes],
    partition: Annotated[PartitionChoice, OmitArgPrefixes],
    teacher: Annotated[TeacherConfig, OmitArgPrefixes],
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
    from pate_jax.data import encoders
    from pate_jax.runs import publication, stages

    encoders.frozen(data.encoder)
    run = RunDirectory(out)
    with run.writing():
        report = stages.train(stages.begin(run, data, partition, teacher))
        say({**report, **publication.trial(run)}, json)


def vote(
    run: RunPath,
    queries: int = 500,
    selection: Selection = "first",
    more: bool = False,
    public: Path | None = None,
    min_distance: float | None = None,
    json: bool = False,
) -> None:
    """Let the teachers of a run label public inputs, into private/votes.npz.

    Args:
        run: the run directory.
        queries: number of public inputs.
        selection: which: the first, random ones, or one for each of as many clusters: kmeans compares pixels
            or columns, learned (images; a few minutes) what a net learned of the public part.
        more: ask about further inputs, under the budget of a run that has answered already.
        public: take them from this .npz of further public inputs; goes with --more.
        min_distance: leave out inputs nearer than this to an earlier one, in units of the typical distance
            between a public input and its nearest; 0.5 leaves out near-duplicates.
        json: print one JSON object.
    """
    check_queries(queries)
    check_distance(min_distance)
    if public is not None and not more:
        raise PateError(f"--public {public} goes with --more: the first inputs are those of the run's data")
    from pate_jax.runs import inputs, publication, stages

    directory = RunDirectory(run)
    with directory.writing():
        votes = stages.vote(inputs.open(directory), queries, more, public, selection, min_distance)
        file = directory.votes_of(directory.batches)
    said = {"votes": str(file), "queries": len(votes.votes), "teachers": int(votes.votes[0].sum())}
    say({**said, **publication.trial(directory)}, json)


def aggregate(
    source: Positional[Path],
    mechanism: MechanismOrRun = None,
    out: Path | None = None,
    budget_epsilon: float | None = None,
    delta: float | None = None,
    more: bool = False,
    relation: Relation | None = None,
    register: Path | None = None,
    labels_are_teacher_labels: bool = False,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Answer every query of a run, or of a votes file made elsewhere, with a mechanism's noise.

    Args:
        source: a run directory, or a votes file (.npz or .npy); a votes file needs --out.
        mechanism: the noise.
        out: the run directory to make from a votes file, or to go on with.
        budget_epsilon: spend no more than this epsilon, whatever the votes; fixed before the first answer.
        delta: the delta of the budget; unset: 1e-5.
        more: the votes file is a further list of queries, under the budget of --out.
        relation: what moves one vote at most, by the word of the votes' makers: one record under its id, all
            records of one user, the contents of one record, or a party's one teacher; a votes file needs it
            once.
        register: the file in which all runs on these records are entered before they answer; unset: this
            user's own; none: somebody else counts (`pate budget`).
        labels_are_teacher_labels: the file holds labels[teacher, query] and not histograms.
        seed: make the noise reproducible and therefore NOT private.
        json: print one JSON object.
    """
    from pate_jax.runs import batches, pipeline, publication, registration
    from pate_jax.runs.parties import merged_votes

    run = _run_of(source, out)
    check_budget(budget_epsilon)
    if delta is not None:
        check_delta(delta)
    with run.writing():
        chosen = mechanism or _recorded_mechanism(run)
        if isinstance(chosen, StableChoice):
            chosen = chosen.settled(budget_epsilon, delta or CUSTOMARY_DELTA)
        if not source.is_dir():
            votes = votes_of(source, labels_are_teacher_labels)
            teachers = int(votes.votes.sum(1).max(initial=0))
            check_threshold(chosen, teachers)
            batches.adopt(run, votes, seed, more, relation, merged_votes.beside(source))
            progress.warn(threshold_warning(chosen, teachers))
        else:
            if relation is not None:
                batches.declare(run, relation)
            if run.votes.exists():
                progress.warn(threshold_warning(chosen, batches.size_of(run)[0]))
        pipeline.before_answers(run, register, chosen, budget_epsilon, delta)
        answers = batches.answer(run, chosen, budget_epsilon, delta)
        found = _answered(run, len(answers.labels), int(answers.answered.sum()), delta)
    say({**found, **registration.shown(run), **publication.trial(run)}, json)


def _answered(run: RunDirectory, asked: int, answered: int, delta: float | None) -> dict[str, Any]:
    """How many queries of the last batch were answered, and the figure to publish of all batches."""
    at = budget.agreed_delta(run, delta)
    return {
        "answers": str(run.answers_of(run.batches)),
        "queries": asked,
        "answered": answered,
        "epsilon": _headline(run, at),
        "delta": at,
    }


def _headline(run: RunDirectory, delta: float) -> float | None:
    """The figure to publish: what was fixed in advance, or the worst case of all queries asked."""
    from pate_jax.accounting.answers_statement import headline

    settings, lines = run.record.read(), ledger.read(run.ledger)
    fixed = settings.budget or settings.limit
    if fixed is not None and not isinstance(settings.mechanism, StableAnswers):
        return fixed.epsilon
    return headline(replace(lines[-1].event, asked=sum(line.event.asked for line in lines)), delta).epsilon


def _recorded_mechanism(run: RunDirectory) -> AnyMechanism:
    settings = run.record.read()
    refuse_crowd(settings, run.root)
    if "mechanism" not in settings:
        raise PateError(
            f"{run.root} has no mechanism yet: name one, as in `pate aggregate ... discrete-gaussian --sigma "
            "40`"
        )
    return settings.mechanism


def _run_of(source: Path, out: Path | None) -> RunDirectory:
    if source.is_dir():
        return RunDirectory(source)
    if out is None:
        raise PateError(
            f"{source} is no run directory: give --out, the run directory to make from this votes file"
        )
    return RunDirectory(out)
