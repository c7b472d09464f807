"""The stages of a run: each reads the files of the one before and writes its own, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax import accounting, data, ensemble, models, student, voting
from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.data import duplicates, partition, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import (
    batches,
    budget,
    ledger,
    limits,
    public_labels,
    public_part,
    publication,
    queries,
    results,
    students,
)
from pate_jax.runs import inputs as run_inputs
from pate_jax.runs.answers import asked_rows, load_answers, load_asked
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import WHERE, Inputs
from pate_jax.runs.record import NET, refuse_crowd, stage_of
from pate_jax.runs.report import run_pages
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student.settings import Selection
from pate_jax.system import devices, progress, storage
from pate_jax.system.tasks import HERE, Engine

_RECORDS = 240  # strokes drawn for each teacher


def begin(
    run: RunDirectory,
    choice: DataChoice,
    cut: PartitionChoice,
    config: ensemble.TeacherConfig,
    asks: int = 0,
    delta: float = CUSTOMARY_DELTA,
    min_distance: float | None = None,
    learner: student.StudentConfig | None = None,
    net: models.Model | None = None,
    opened: data.Dataset | None = None,  # what the choice names, where it is open already
    engine: Engine = HERE,
) -> Inputs:
    """Open the data of a run, and record what it is made from.

    Nothing is recorded before the data were opened and found fit for what was asked, so a mistyped command
    can be given again, corrected. If it is known how many public inputs it `asks` about, too many are refused
    before the work, not after it, and so is a `learner` that these data cannot have; a `delta` too large for
    so many records is warned about.
    """
    cut = replace(cut, teachers=cut.number)
    choice = choice.drawn(_RECORDS * cut.number)
    with devices.failing_together():
        refuse_crowd(run.record.read(), run.root)
        inputs = Inputs(run, choice, cut, config, opened=opened, known=net, engine=engine)
        whom = relation.of(inputs.dataset, cut.by)
        run_inputs.same_records(run, inputs.dataset)  # as those whose number was released, if one was
        if learner is not None:
            student.check(learner, student.PublicInputs.of(inputs.dataset))
        if not run.teacher_report.exists():
            _check_fit(inputs, asks, min_distance)
    run.secret.draw(cut.seed)
    run_inputs.record(run, inputs.dataset, choice)
    run.record.agree("partition", to_settings(cut))
    run.record.agree("teacher", to_settings(config), but_not=WHERE)
    if config.own_net:
        described = inputs.net.description
        run.record.agree(NET, {name: described[name] for name in ("name", "arguments", "source")})
    run.record.agree("relation", {"relation": whom})
    budget.warn_of_delta(delta, budget.people(inputs.dataset, cut.by), cut.by)
    return inputs


def _check_fit(inputs: Inputs, asks: int, min_distance: float | None) -> None:
    """Refuse data that are not enough for what is asked, and a net that does not fit them."""
    dataset, cut = inputs.dataset, inputs.cut
    partition.check_number(budget.people(dataset, cut.by), cut.number)
    run_inputs.check_files(dataset)
    if asks:
        queries.different(dataset.public, asks, [], queries.spacing(inputs, min_distance))
    inputs.net  # noqa: B018  # built now: a net that cannot be built is refused before anything is recorded


def train(inputs: Inputs) -> dict[str, Any]:
    """Cut the private records into shards and train one teacher on each."""
    run, dataset = inputs.run, inputs.dataset
    if run.teacher_report.exists():
        return storage.read_json(run.teacher_report, "teacher-report")
    if relation.are_rows(dataset):
        progress.say(relation.ROW_NUMBERS)
    certificate = partition.certificate(
        inputs.shards, inputs.private, key=inputs.partition_key, by=inputs.cut.by
    )
    storage.write_json(run.certificate, "certificate", certificate | public_part.encoders(dataset))
    teachers = _teachers(inputs)
    report = {
        "teachers": inputs.cut.number,
        "records": len(dataset.private.ids),
        "shard_size": _spread(inputs.shards.counts),
        "notes": dict(dataset.private_notes),
        "training": teachers.report,
    }
    storage.write_json(run.teacher_report, "teacher-report", report)
    return report


def settle(inputs: Inputs, mechanism: AnyMechanism, epsilon: float | None, delta: float) -> None:
    """Fix the mechanism and the budget of a trained run before anything is asked."""
    teachers, classes = inputs.cut.number, inputs.dataset.classes
    budget.settle(inputs.run, mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)


def vote(
    inputs: Inputs,
    wanted: int,
    more: bool = False,
    public: Path | None = None,
    selection: Selection = "first",
    min_distance: float | None = None,
) -> voting.Votes:
    """Let every teacher label `wanted` public inputs, chosen by `selection`, equal inputs counted once.

    An input nearer than `min_distance` to an earlier one is left out before they are chosen. With `more` it
    is a further batch under the run's budget, of inputs that were not asked about before; from the file
    `public` where one is given. The same call again is the same batch until that is answered.
    """
    run = inputs.run
    run.existing(run.teacher_report, "train")
    batch = _batch_to_vote_on(run, more)
    stage = stage_of("vote", batch)
    min_distance = queries.distance_of(run, batch, min_distance)
    chosen = {"queries": wanted, "selection": selection, **queries.named(public, min_distance)}
    if run.votes_of(batch).exists():
        run.record.agree(stage, chosen)
        return voting.load_votes(run.votes_of(batch))
    dataset, teachers = inputs.dataset, inputs.cut.number
    wanted = budget.fit(run, budget.spent(run), wanted=wanted, teachers=teachers, classes=dataset.classes)
    given = dataset if public is None else queries.further(dataset, public)
    pool = given.public
    spacing = queries.spacing(inputs, min_distance, batch)
    pool = pool.take(queries.different(pool, wanted, batches.known_digests(run), spacing))
    run.record.agree(stage, chosen)
    publication.record_trial(run, given.trial)
    if public is not None and dataset.name == "own":
        public_part.warn_of_copies(dataset, {"further public": given.public})
    key = run.secret.derive(f"selection {stage}")
    seen = inputs.seen_by_space(pool) if selection == "space" else None
    asked = queries.select(pool, dataset.preprocessing, wanted, selection, key, seen)
    queries.tell_near(inputs, asked, batch)
    votes = votes_on(inputs, asked)._replace(trial=dataset.trial or given.trial)
    voting.save_votes(run.votes_of(batch), votes)
    return votes


def votes_on(inputs: Inputs, asked: data.Part) -> voting.Votes:
    """What the teachers say of inputs, with the names of these."""
    dataset = inputs.dataset
    seen = inputs.seen_of(asked)
    labels = ensemble.predict(inputs.net, dataset.preprocessing, _teachers(inputs), seen)
    labels = np.asarray(devices.rows_of_all(labels))
    histograms = np.asarray(voting.histogram(labels, dataset.classes))
    digests = np.array(duplicates.digests(asked.inputs))
    return voting.Votes(histograms, labels, asked.ids, asked.labels, digests, dataset.trial)


def state(run: RunDirectory, delta: float, pld: bool | None = None) -> accounting.AnswersStatement:
    """What the answers cost, from the votes and the answers of the run."""
    answers, settings = load_answers(run), run.record.read()
    if isinstance(settings.mechanism, StableAnswers):
        teachers, classes = batches.size_of(run)
        return accounting.stable_statement(
            settings.mechanism,
            delta,
            asked=len(answers.labels),
            answered=int(answers.answered.sum()),
            teachers=teachers,
            classes=classes,
            relation=covered(run),
            declared="data" not in settings,
            private=run.secret.seed is None,
        )
    return accounting.statement(
        settings.mechanism,
        load_asked(run).votes,
        answers.answered,
        delta,
        relation=covered(run),
        declared="data" not in settings,
        private=run.secret.seed is None,
        adaptive=run.batches > 1,
        budget=settings.budget,
        after=settings.limit,
        sanitised=limits.figure(run, settings.mechanism, delta),
        pld=pld,
    )


def covered(run: RunDirectory) -> accounting.Relation:
    """Whom the guarantee covers: as the partition shows, or as the makers of the votes declared."""
    settings = run.record.read()
    if "relation" not in settings and "partition" not in settings:
        raise PateError(
            f"{run.root} was made from votes alone, and nobody declared whom they cover: give --relation "
            f"record, user, contents or party to `pate aggregate {run.root}`, as "
            "docs/start/votes_from_elsewhere.md tells"
        )
    claimed: accounting.Relation = relation.claimed(settings.stages)
    return claimed


def account(
    run: RunDirectory, delta: float | None = None, pld: bool | None = None, sanitise: float | None = None
) -> accounting.AnswersStatement:
    """Write the statement whole into private/, and as far as it may be published into release/.

    `sanitise` is the confidence at which a limit of the exact cost is released as well; each one costs.
    """
    delta = budget.agreed_delta(run, delta)
    load_answers(run)  # nothing is recorded of a run that has answered nothing
    run.record.agree("account", {"delta": delta})
    if sanitise is not None:
        limits.release(run, run.record.read().mechanism, delta, sanitise)
    statement = state(run, delta, pld)
    results.state(run, statement)
    return statement


def teach(
    run: RunDirectory,
    config: student.StudentConfig,
    public: Path | None = None,
    test: Path | None = None,
    inputs: Inputs | None = None,
    show_public: bool = False,
) -> dict[str, Any]:
    """Train the student on the answers and write release/; a finished student is not trained again.

    `inputs` are those that an earlier stage has opened; unset: the run's own are opened, where it has any.
    `show_public` says that inputs of the file `public` may go into the release.
    """
    statement = storage.read_json(run.existing(run.public_statement, "account"), "statement")
    before = results.finished(run, config, statement)
    if before is not None and before.get("batches", 1) == run.batches:
        return before
    answers, votes = load_answers(run), load_asked(run)
    dataset, asked = _public(run, inputs, votes, public, test, show_public)
    publication.record_trial(run, dataset.trial)
    statement = _restated(run, statement)
    student.check(config, student.PublicInputs.of(dataset))
    run.record.agree("student", to_settings(config))
    choice = students.choose(run, config, dataset, asked)
    learned = students.learn(run, choice.config, dataset, asked)
    learned = public_labels.informed(run, learned, dataset)
    mechanism = run.record.read().mechanism
    made = {
        **results.facts(run, dataset, dataset.description),
        "teachers": int(votes.votes.sum(1).max()),
        "batches": run.batches,
        "queries": len(votes.votes),
        "answered": int(answers.answered.sum()),
        **({"cutoff": mechanism.cutoff} if isinstance(mechanism, StableAnswers) else {}),
        **({"counts": True} if mechanism.releases_counts else {}),
        "method": choice.config.method,
        "comparison": choice.comparison,
        "selection": _selection(run),
        "near": queries.near(dataset, asked),
    }
    return results.finish(run, learned, dataset, statement, made, (asked, answers))


def _restated(run: RunDirectory, statement: dict[str, Any]) -> dict[str, Any]:
    """The published statement, which says of a trial that it is one; what votes were made on shows late."""
    said = publication.stated(run, statement)
    if said != statement:
        storage.write_json(run.public_statement, "statement", said)
    return said


def _selection(run: RunDirectory) -> str | None:
    """How the first inputs were chosen; None of votes made elsewhere."""
    settings = run.record.read()
    return settings.vote(1).selection if "vote" in settings else None


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both report pages and return the results, with the statement among them."""
    return results.tell(run, tell_owner(run))


def tell_owner(run: RunDirectory) -> dict[str, Any]:
    """Write the owner's page alone, and return the results, with the statement among them."""
    found = results.kept(run)
    votes, answers, settings = load_asked(run), load_answers(run), run.record.read()
    whole = storage.read_json(run.existing(run.statement, "account"), "statement")
    statement = accounting.Statement.from_dict(whole)
    inside = _inside(run, votes)
    figures = [
        (run_pages.CONSENSUS, run_pages.consensus(votes.votes, np.asarray(answers.answered))),
        *run_pages.costs(settings.mechanism, votes.votes, whole["delta"]),
        (run_pages.ACCURACY, run_pages.accuracies(found, inside)),
    ]
    shown, details = results.contact_sheet(run), {**inside, "settings": settings.stages}
    page = run_pages.private_page(found, statement, figures, details, shown, results.attacked(run))
    storage.write_bytes(run.report, page.encode())
    return {**found, "statement": whole, "inside": inside}


def _teachers(inputs: Inputs) -> ensemble.Teachers:
    """The teachers of a run: trained, or as far as that is done already, read."""
    return ensemble.fit(
        inputs.net,
        inputs.dataset.preprocessing,
        inputs.seen.private.inputs,
        np.asarray(inputs.private.labels),
        inputs.shards,
        key=inputs.teacher_key,
        config=inputs.teacher,
        directory=inputs.run.teachers,
    )


def _batch_to_vote_on(run: RunDirectory, more: bool) -> int:
    if not more:
        return 1
    run.existing(run.votes, "vote")
    waiting = run.batches if run.batches not in [line.batch for line in ledger.lines(run.ledger)] else 1
    return waiting if waiting > 1 else batches.next_batch(run)


def _public(
    run: RunDirectory,
    inputs: Inputs | None,
    votes: voting.Votes,
    public: Path | None,
    test: Path | None,
    show_public: bool,
) -> tuple[data.Dataset, data.Part]:
    """The public data of a run and, row by row, the inputs that were asked about."""
    settings = run.record.read()
    if "data" in settings:
        if public is not None or test is not None or show_public:
            raise PateError(f"{run.root} knows its public data: leave out --public, --test and --show-public")
        inputs = inputs or run_inputs.open(run)
        return inputs.dataset, queries.asked_inputs(inputs)
    if public is None:
        raise PateError(f"{run.root} was made from votes alone: give --public, the inputs that were voted on")
    dataset = data.pool(public, test, classes=votes.votes.shape[1], show_public=show_public)
    rows = asked_rows(run)
    if len(dataset.public.ids) <= rows.max(initial=-1):
        raise PateError(
            f"{public} has {len(dataset.public.ids)} inputs, and row {rows.max()} of the votes was asked "
            "about: it must hold one input for each row of votes, batch after batch"
        )
    return dataset, dataset.public.take(rows)


def _inside(run: RunDirectory, votes: voting.Votes) -> dict[str, Any]:
    """What the owner may know of shards and teachers, and nobody else."""
    inside = {}
    if run.teacher_report.exists():
        inside["teachers"] = storage.read_json(run.teacher_report, "teacher-report")
    if votes.labels is not None and votes.teacher_labels is not None:
        inside["accuracy"] = ensemble.score(votes.teacher_labels, votes.labels, votes.votes.shape[1])
    return inside


def _spread(counts: np.ndarray) -> dict[str, float]:
    return {"least": int(counts.min()), "mean": float(counts.mean()), "most": int(counts.max())}
