"""The stages of a run: each reads the files of the one before and writes its own, once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import accounting, data, ensemble, models, student, voting
from pate_jax.accounting import plots
from pate_jax.data import duplicates, partition, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.models import patches
from pate_jax.runs import answers as recorded_answers
from pate_jax.runs import batches, budget, ledger
from pate_jax.runs import inputs as run_inputs
from pate_jax.runs.answers import load_answers as load_answers
from pate_jax.runs.answers import load_asked as load_asked
from pate_jax.runs.batches import adopt as adopt
from pate_jax.runs.batches import answer as answer
from pate_jax.runs.batches import commitment as commitment
from pate_jax.runs.batches import declare as declare
from pate_jax.runs.batches import draw as draw
from pate_jax.runs.batches import stream as stream
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import stage_of
from pate_jax.runs.release import check, write
from pate_jax.runs.report import run_pages
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student.selection import Selection
from pate_jax.system import devices, progress, storage

_RECORDS = 240  # strokes drawn for each teacher
_WHERE = ("data_dir", "manual_dir", "devices")  # they decide where work is done, never what comes out


@lru_cache(maxsize=1)
def open_data(choice: DataChoice) -> data.Dataset:
    """Load the chosen data set."""
    if choice.private is None or choice.public is None:
        return data.load(
            choice.dataset,
            data_dir=choice.data_dir,
            manual_dir=choice.manual_dir,
            size=choice.records,
            classes=choice.classes,
            ids_are_stable=choice.ids_are_stable,
            equal_rows_are_coincidences=choice.equal_rows_are_coincidences,
        )
    return data.from_files(
        choice.private,
        choice.public,
        choice.test,
        label_column=choice.label_column,
        id_column=choice.id_column,
        user_column=choice.user_column,
        categories=choice.categories,
        scales=choice.scales,
        classes=choice.classes,
        ids_are_stable=choice.ids_are_stable,
        equal_rows_are_coincidences=choice.equal_rows_are_coincidences,
    )


def train(
    run: RunDirectory,
    choice: DataChoice,
    cut: PartitionChoice,
    config: ensemble.TeacherConfig,
    asks: int = 0,
    delta: float = budget.CUSTOMARY_DELTA,
    enter: Callable[[data.Dataset], None] = lambda _: None,
) -> dict[str, Any]:
    """Cut the private records into shards and train one teacher on each.

    Nothing is recorded before the data were opened and found fit for what was asked, so a mistyped command
    can be given again, corrected. If it is known how many public inputs it `asks` about, too many are refused
    before the work, not after it; a `delta` too large for so many records is warned about. `enter` is called
    with the data before the work, and may refuse it (`registration`).
    """
    if choice.dataset == "strokes" and choice.private is None and choice.records is None:
        choice = replace(choice, records=_RECORDS * cut.teachers)
    dataset = open_data(choice)
    whom = relation.of(dataset, cut.by)
    net = None if run.teacher_report.exists() else _checked_net(dataset, cut, config, asks)
    run.secret.draw(cut.seed)
    run.record.agree("data", to_settings(choice), but_not=_WHERE)
    run.record.agree("partition", to_settings(cut))
    run.record.agree("teacher", to_settings(config), but_not=_WHERE)
    run.record.agree("relation", {"relation": whom})
    budget.warn_of_delta(delta, len(dataset.private.ids))
    enter(dataset)
    if net is None:
        return storage.read_json(run.teacher_report, "teacher-report")
    if relation.are_rows(dataset):
        progress.say(relation.ROW_NUMBERS)
    shards = _shards(run, dataset, cut)
    certificate = partition.certificate(
        shards, dataset.private, key=run.secret.derive("partition"), by=cut.by
    )
    storage.write_json(run.certificate, "certificate", certificate)
    teachers = _teachers(run, net, dataset, shards, config)
    found = {
        "teachers": cut.teachers,
        "records": len(dataset.private.ids),
        "shard_size": _spread(shards.counts),
        "notes": dict(dataset.private_notes),
        "training": teachers.report,
    }
    storage.write_json(run.teacher_report, "teacher-report", found)
    return found


def _checked_net(
    dataset: data.Dataset, cut: PartitionChoice, config: ensemble.TeacherConfig, asks: int
) -> models.Model:
    """The teachers' net, where the data are enough for what was asked."""
    partition.check_enough(partition.units_of(dataset.private, cut.by), cut.teachers)
    if asks:
        run_inputs.different(dataset.public, asks, [])
    return teachers_net(config, dataset)


def settle(run: RunDirectory, mechanism: Mechanism, epsilon: float | None, delta: float) -> None:
    """Fix the mechanism and the budget of a trained run before anything is asked."""
    settings = run.record.read()
    teachers, classes = settings.partition.teachers, open_data(settings.data).classes
    budget.settle(run, mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)


def vote(
    run: RunDirectory,
    wanted: int,
    more: bool = False,
    public: Path | None = None,
    selection: Selection = "first",
) -> voting.Votes:
    """Let every teacher label `wanted` public inputs, chosen by `selection`, equal inputs counted once.

    With `more` it is a further batch under the run's budget, of inputs that were not asked about before; from
    the file `public` where one is given. The same call again is the same batch until that is answered.
    """
    run.existing(run.teacher_report, "train")
    batch = _batch_to_vote_on(run, more)
    stage = stage_of("vote", batch)
    chosen = {"queries": wanted, "selection": selection, **run_inputs.named(public)}
    if run.votes_of(batch).exists():
        run.record.agree(stage, chosen)
        return voting.load_votes(run.votes_of(batch))
    settings = run.record.read()
    dataset, cut, config = open_data(settings.data), settings.partition, settings.teacher
    size = {"teachers": cut.teachers, "classes": dataset.classes}
    wanted = budget.fit(run, budget.spent(run), wanted=wanted, **size)
    pool = run_inputs.opened(dataset, public)
    pool = pool.take(run_inputs.different(pool, wanted, batches.known_digests(run)))
    run.record.agree(stage, chosen)
    asked = run_inputs.select(
        pool, dataset.preprocessing, wanted, selection, run.secret.derive(f"selection {stage}")
    )
    net = teachers_net(config, dataset)
    teachers = _teachers(run, net, dataset, _shards(run, dataset, cut), config)
    own = ensemble.predict(net, dataset.preprocessing, teachers, asked.inputs)
    labels = devices.rows_of_all(own)
    histograms = np.asarray(voting.histogram(labels, dataset.classes))
    digests = np.array(duplicates.digests(asked.inputs))
    votes = voting.Votes(histograms, np.asarray(labels), asked.ids, asked.labels, digests)
    voting.save_votes(run.votes_of(batch), votes)
    return votes


def state(run: RunDirectory, delta: float, pld: bool | None = None) -> accounting.Statement:
    """What the answers cost, from the votes and the answers of the run."""
    answers, settings = load_answers(run), run.record.read()
    return accounting.statement(
        settings.mechanism,
        load_asked(run).votes,
        answers.answered,
        delta,
        relation=covered(run),
        declared="data" not in settings,
        private=run.secret.seed is None,
        adaptive=run.batches > 1,
        budget=None if settings.budget is None else settings.budget.epsilon,
        pld=pld,
    )


def covered(run: RunDirectory) -> accounting.Relation:
    """Whom the guarantee covers: as the partition shows, or as the makers of the votes declared."""
    settings = run.record.read()
    if "relation" not in settings and "partition" not in settings:
        raise PateError(
            f"{run.root} was made from votes alone, and nobody declared whom they cover: give --relation "
            f"record, user, contents or party to `pate aggregate {run.root}`, as "
            "docs/votes_from_elsewhere.md tells"
        )
    return relation.claimed(settings.stages)


def account(run: RunDirectory, delta: float | None = None, pld: bool | None = None) -> accounting.Statement:
    """Write the statement whole into private/, and as far as it may be published into release/."""
    delta = budget.agreed_delta(run, delta)
    load_answers(run)  # nothing is recorded of a run that has answered nothing
    run.record.agree("account", {"delta": delta})
    statement = state(run, delta, pld)
    storage.write_json(run.statement, "statement", statement.to_dict())
    storage.write_json(run.public_statement, "statement", statement.publishable())
    return statement


def teach(
    run: RunDirectory, config: student.StudentConfig, public: Path | None = None, test: Path | None = None
) -> dict[str, Any]:
    """Train the student on the answers and write release/; a finished student is not trained again."""
    statement = storage.read_json(run.existing(run.public_statement, "account"), "statement")
    if run.results.exists():
        run.record.agree("student", to_settings(config), but_not=student.not_taken(config))
        results = storage.read_json(run.results, "results")
        if results.get("batches", 1) == run.batches and _told(run, statement):
            return results
    answers, votes = load_answers(run), load_asked(run)
    dataset, asked = _public(run, votes, public, test)
    method = config.resolved(image=dataset.kind == "image").method
    run.record.agree("student", to_settings(config), but_not=student.not_taken(config))
    learned = learn(run, config, dataset, asked)
    right = None if asked.labels is None else answers.labels == asked.labels
    results = {
        "run_dir": str(run.root),
        "dataset": dataset.name,
        "data": dataset.description,
        "synthetic": dataset.synthetic,
        "private": run.secret.seed is None,
        "teachers": int(votes.votes.sum(1).max()),
        "batches": run.batches,
        "queries": len(votes.votes),
        "answered": int(answers.answered.sum()),
        "method": method,
        "selection": _selection(run),
        "label_accuracy": None if right is None else float(right[answers.answered].mean()),
        "student_accuracy": _accuracy(learned, dataset.test),
    }
    write.write(run.release, learned, statement, results)
    storage.write_json(run.results, "results", results)
    return results


def _selection(run: RunDirectory) -> str | None:
    """How the first inputs were chosen; None of votes made elsewhere."""
    settings = run.record.read()
    return settings.vote(1).selection if "vote" in settings else None


def _told(run: RunDirectory, statement: dict[str, Any]) -> bool:
    """Whether the student that is there was released with this statement."""
    path = run.student / "statement.json"
    return path.exists() and storage.read_json(path, "statement") == statement


def learn(
    run: RunDirectory, config: student.StudentConfig, dataset: data.Dataset, asked: data.Part
) -> student.Student:
    """The student of a run: what public inputs and the answers give, and nothing else."""
    rest = run_inputs.unasked(dataset.public, asked)  # students learn from these too
    pool = np.concatenate([asked.inputs, rest])
    inputs = student.PublicInputs(pool, dataset.preprocessing, dataset.classes, dataset.class_names)
    key = jax.random.key(int.from_bytes(run.secret.derive("student")[:4], "big"))
    learned = student.fit(key, inputs, load_answers(run), config)
    return learned._replace(dtype=str(dataset.public.inputs.dtype), columns=dataset.columns)


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both report pages and return the results, with the statement among them."""
    results = storage.read_json(run.existing(run.results, "student"), "results")
    votes, answers, settings = load_asked(run), load_answers(run), run.record.read()
    whole = storage.read_json(run.existing(run.statement, "account"), "statement")
    statement = accounting.Statement.from_dict(whole)
    mechanism, delta = settings.mechanism, whole["delta"]
    inside = _inside(run, votes)
    figures = [
        (run_pages.CONSENSUS, run_pages.consensus(votes.votes, np.asarray(answers.answered))),
        (run_pages.CUMULATIVE, plots.cumulative(mechanism, votes.votes, delta)),
        (run_pages.BY_CONSENSUS, plots.by_consensus(mechanism, votes.votes)),
        (run_pages.SPLIT, plots.split(mechanism, votes.votes, delta)),
        (run_pages.ACCURACY, run_pages.accuracies(results, inside)),
    ]
    page = run_pages.private_page(results, statement, figures, {**inside, "settings": settings.stages})
    storage.write_bytes(run.report, page.encode())
    public = run_pages.public_page(results, statement)
    storage.write_bytes(run.public_report, public.encode())
    check.check(run.release)
    return {**results, "statement": whole, "inside": inside}


def _teachers(run, net: models.Model, dataset, shards, config) -> ensemble.Teachers:
    return ensemble.fit(
        net,
        dataset.preprocessing,
        dataset.private.inputs,
        dataset.private.labels,
        shards,
        key=teacher_key(run),
        config=config,
        directory=run.teachers,
    )


def teacher_key(run: RunDirectory) -> jax.Array:
    """What the keys of all teachers are cut from."""
    words = np.frombuffer(run.secret.derive("teachers")[:8], np.uint32)
    return jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")


def teachers_net(config: ensemble.TeacherConfig, dataset: data.Dataset) -> models.Model:
    """The net of a run's teachers."""
    net = config.net or ("cnn" if dataset.kind == "image" else "table")
    if net == "patches":
        known = patches.learn(dataset.preprocessing.apply(dataset.public.inputs))
        return models.on_patches(
            known, dataset.preprocessing, input_shape=dataset.input_shape, classes=dataset.classes
        )
    if net == "tandem":
        raise PateError("net='tandem' is one of students; choose patches or another net for teachers")
    return models.build(
        net,
        input_shape=dataset.input_shape,
        classes=dataset.classes,
        activation=config.activation,
    )


def _shards(run: RunDirectory, dataset: data.Dataset, cut: PartitionChoice) -> partition.Shards:
    return partition.divide(dataset.private, cut.teachers, key=run.secret.derive("partition"), by=cut.by)


def _batch_to_vote_on(run: RunDirectory, more: bool) -> int:
    if not more:
        return 1
    run.existing(run.votes, "vote")
    waiting = run.batches if run.batches not in [line.batch for line in ledger.lines(run.ledger)] else 1
    return waiting if waiting > 1 else batches.next_batch(run)


def _accuracy(learned: student.Student, test: data.Part | None) -> float | None:
    return None if test is None or test.labels is None else learned.accuracy(test.inputs, test.labels)


def _public(
    run: RunDirectory, votes: voting.Votes, public: Path | None, test: Path | None
) -> tuple[data.Dataset, data.Part]:
    """The public data of a run and, row by row, the inputs that were asked about."""
    settings = run.record.read()
    if "data" in settings:
        if public is not None or test is not None:
            raise PateError(f"{run.root} knows its public data: leave out --public and --test")
        dataset = open_data(settings.data)
        return dataset, run_inputs.asked_inputs(run, dataset)
    if public is None:
        raise PateError(f"{run.root} was made from votes alone: give --public, the inputs that were voted on")
    dataset = data.pool(public, test, classes=votes.votes.shape[1])
    rows = recorded_answers.asked_rows(run)
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
