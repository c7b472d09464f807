"""The stages of a run: each reads the files of the one before and writes its own, once."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import (
    accounting,
    aggregate,
    artefact,
    chacha,
    data,
    devices,
    ensemble,
    ledger,
    models,
    partition,
    plots,
    progress,
    queries,
    release,
    report,
    student,
    voting,
)
from pate_jax.config import DataChoice, PartitionChoice, check_threshold, from_settings, to_settings
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, from_dict, to_dict
from pate_jax.rundir import RunDirectory

_RECORDS = 240  # strokes drawn for each teacher
_NEAR = 0.02  # of the scale that inputs have after preprocessing
_WHERE = (
    "data_dir",
    "manual_dir",
    "devices",
)  # settings that decide where work is done, never what comes out


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
    )


def train(
    run: RunDirectory, choice: DataChoice, cut: PartitionChoice, config: ensemble.TeacherConfig
) -> dict[str, Any]:
    """Cut the private records into shards and train one teacher on each."""
    if choice.dataset == "strokes" and choice.private is None and choice.records is None:
        choice = replace(choice, records=_RECORDS * cut.teachers)
    run.secret(cut.seed)
    run.agree("data", to_settings(choice), but_not=_WHERE)
    run.agree("partition", to_settings(cut))
    run.agree("teacher", to_settings(config), but_not=_WHERE)
    if run.teacher_report.exists():
        return artefact.read_json(run.teacher_report, "teacher-report")
    dataset = open_data(choice)
    shards = _shards(run, dataset, cut)
    certificate = partition.certificate(shards, dataset.private, key=run.derive("partition"), by=cut.by)
    artefact.write_json(run.certificate, "certificate", certificate)
    teachers = _teachers(run, dataset, shards, config)
    found = {
        "teachers": cut.teachers,
        "records": len(dataset.private.ids),
        "shard_size": _spread(shards.counts),
        "notes": dict(dataset.private_notes),
        "training": teachers.report,
    }
    artefact.write_json(run.teacher_report, "teacher-report", found)
    return found


def vote(run: RunDirectory, wanted: int) -> voting.Votes:
    """Let every teacher label the first `wanted` inputs of the public part, equal inputs counted once."""
    run.existing(run.teacher_report, "train")
    run.agree("vote", {"queries": wanted})
    if run.votes.exists():
        return voting.load_votes(run.votes)
    settings = run.recorded()
    dataset = open_data(from_settings(DataChoice, settings["data"]))
    cut = from_settings(PartitionChoice, settings["partition"])
    config = from_settings(ensemble.TeacherConfig, settings["teacher"])
    teachers = _teachers(run, dataset, _shards(run, dataset, cut), config)
    asked = _select(dataset.public, dataset.preprocessing, wanted)
    own = ensemble.predict(_model(config, dataset), dataset.preprocessing, teachers, asked.inputs)
    labels = devices.rows_of_all(own)
    histograms = np.asarray(voting.histogram(labels, dataset.classes))
    votes = voting.Votes(histograms, np.asarray(labels), asked.ids, asked.labels)
    voting.save_votes(run.votes, votes)
    return votes


def adopt(run: RunDirectory, votes: voting.Votes, seed: int | None) -> None:
    """Start a run from votes that were made elsewhere."""
    run.secret(seed)
    run.agree("votes", {"digest": artefact.digest(votes.votes)})
    if not run.votes.exists():
        voting.save_votes(run.votes, votes)


def answer(run: RunDirectory, mechanism: Mechanism) -> aggregate.Answers:
    """Answer every query of the votes file once; the ledger holds the answers before they leave."""
    votes = voting.load_votes(run.existing(run.votes, "vote"))
    check_threshold(mechanism, int(votes.votes.sum(1).max()))
    run.agree("mechanism", to_dict(mechanism))
    digest = artefact.digest(votes.votes)
    entry = ledger.find(run.ledger, votes=digest)
    if entry is None:
        if ledger.read(run.ledger):
            raise PateError(
                f"{run.ledger} shows that this run has answered other votes than those in {run.votes}, and "
                "its statement covers one list only: choose another --out, and add up what both have spent"
            )
        entry = _charge(run, mechanism, votes, digest)
    arrays = {"labels": np.array(entry["labels"], np.int32), "answered": np.array(entry["answered"], bool)}
    artefact.write_arrays(run.answers, "answers", arrays)
    return load_answers(run)


def draw(run: RunDirectory, mechanism: Mechanism, votes: np.ndarray) -> aggregate.Answers:
    """The mechanism's answers under the run's noise for these votes: the same at every call."""
    words = _noise_words(run, artefact.digest(votes))
    impl = chacha.PRIVATE if run.seed is None else chacha.SEEDED
    key = jax.random.wrap_key_data(jnp.asarray(words), impl=impl)
    return aggregate.answer(mechanism, jnp.asarray(votes), key=key)


def commitment(run: RunDirectory, votes_digest: str) -> str:
    """A digest that binds the run to its noise without telling it."""
    return artefact.digest(_noise_words(run, votes_digest))


def _noise_words(run: RunDirectory, votes_digest: str) -> np.ndarray:
    # The stream is the votes' own, so that no noise can ever serve two different histograms.
    return np.frombuffer(run.derive(f"noise for {votes_digest}"), np.uint32)


def _charge(run: RunDirectory, mechanism: Mechanism, votes: voting.Votes, digest: str) -> dict[str, Any]:
    drawn = draw(run, mechanism, votes.votes)
    entry = {
        "mechanism": to_dict(mechanism),
        "votes": digest,
        "queries": artefact.digest(votes.ids),
        "noise": commitment(run, digest),
        "asked": len(votes.votes),
        "labels": np.asarray(drawn.labels).tolist(),
        "answered": np.asarray(drawn.answered).tolist(),
    }
    ledger.append(run.ledger, entry)
    return entry


def load_answers(run: RunDirectory) -> aggregate.Answers:
    """The answers that the mechanism gave."""
    arrays = artefact.read_arrays(run.existing(run.answers, "aggregate"), "answers")
    return aggregate.Answers(jnp.asarray(arrays["labels"]), jnp.asarray(arrays["answered"]))


def state(run: RunDirectory, delta: float) -> accounting.Statement:
    """What the answers cost, from the votes and the answers of the run."""
    answers, settings = load_answers(run), run.recorded()
    return accounting.statement(
        from_dict(settings["mechanism"]),
        voting.load_votes(run.votes).votes,
        answers.answered,
        delta,
        relation=settings.get("partition", {}).get("by", "record"),
        private=run.seed is None,
    )


def account(run: RunDirectory, delta: float) -> accounting.Statement:
    """Write the statement whole into private/, and as far as it may be published into release/."""
    run.agree("account", {"delta": delta})
    statement = state(run, delta)
    artefact.write_json(run.statement, "statement", statement.to_dict())
    artefact.write_json(run.public_statement, "statement", statement.publishable())
    return statement


def teach(
    run: RunDirectory, config: student.StudentConfig, public: Path | None = None, test: Path | None = None
) -> dict[str, Any]:
    """Train the student on the answers and write release/; a finished student is not trained again."""
    run.agree("student", to_settings(config))
    statement = artefact.read_json(run.existing(run.public_statement, "account"), "statement")
    if run.results.exists():
        return artefact.read_json(run.results, "results")
    answers, votes = load_answers(run), voting.load_votes(run.votes)
    dataset, asked = _public(run, votes, public, test)
    inputs = student.PublicInputs(asked.inputs, dataset.preprocessing, dataset.classes, dataset.class_names)
    key = jax.random.key(int.from_bytes(run.derive("student")[:4], "big"))
    learned = student.fit(key, inputs, answers, config)
    learned = learned._replace(dtype=str(dataset.public.inputs.dtype), columns=dataset.columns)
    right = None if asked.labels is None else answers.labels == asked.labels
    results = {
        "run_dir": str(run.root),
        "dataset": dataset.name,
        "data": dataset.description,
        "synthetic": dataset.synthetic,
        "private": run.seed is None,
        "teachers": int(votes.votes.sum(1).max()),
        "queries": len(votes.votes),
        "answered": int(answers.answered.sum()),
        "method": config.method,
        "label_accuracy": None if right is None else float(right[answers.answered].mean()),
        "student_accuracy": _accuracy(learned, dataset.test),
    }
    release.write(run.release, learned, statement, results)
    artefact.write_json(run.results, "results", results)
    return results


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both report pages and return the results, with the statement among them."""
    results = artefact.read_json(run.existing(run.results, "student"), "results")
    votes, answers, settings = voting.load_votes(run.votes), load_answers(run), run.recorded()
    whole = artefact.read_json(run.existing(run.statement, "account"), "statement")
    statement = accounting.Statement.from_dict(whole)
    mechanism, delta = from_dict(settings["mechanism"]), whole["delta"]
    inside = _inside(run, votes)
    figures = [
        (report.CONSENSUS, report.consensus(votes.votes, np.asarray(answers.answered))),
        (report.CUMULATIVE, plots.cumulative(mechanism, votes.votes, delta)),
        (report.BY_CONSENSUS, plots.by_consensus(mechanism, votes.votes)),
        (report.SPLIT, plots.split(mechanism, votes.votes, delta)),
        (report.ACCURACY, report.accuracies(results, inside)),
    ]
    page = report.private_page(results, statement.html(), figures, {**inside, "settings": settings})
    artefact.write_bytes(run.report, page.encode())
    public = report.public_page(results, statement.html(publishable_only=True))
    artefact.write_bytes(run.public_report, public.encode())
    release.check(run.release)
    return {**results, "statement": whole, "inside": inside}


def _teachers(run, dataset, shards, config) -> ensemble.Teachers:
    words = np.frombuffer(run.derive("teachers")[:8], np.uint32)
    return ensemble.fit(
        _model(config, dataset),
        dataset.preprocessing,
        dataset.private.inputs,
        dataset.private.labels,
        shards,
        key=jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32"),
        config=config,
        directory=run.teachers,
    )


def _model(config: ensemble.TeacherConfig, dataset: data.Dataset) -> models.Model:
    return models.build(
        config.net or ("cnn" if dataset.kind == "image" else "table"),
        input_shape=dataset.input_shape,
        classes=dataset.classes,
        activation=config.activation,
    )


def _shards(run: RunDirectory, dataset: data.Dataset, cut: PartitionChoice) -> partition.Shards:
    return partition.divide(dataset.private, cut.teachers, key=run.derive("partition"), by=cut.by)


def _select(pool: data.Part, preprocessing: data.Preprocessing, wanted: int) -> data.Part:
    """The first inputs of the pool that differ from each other; nearly equal ones are reported."""
    rows = queries.unique_queries(pool.inputs).first_rows
    if len(rows) < wanted:
        raise PateError(
            f"queries={wanted} is more than the {len(rows)} different public inputs; ask for fewer"
        )
    chosen = pool.take(rows[:wanted])
    near = queries.near_duplicates(preprocessing.apply(chosen.inputs), _NEAR)
    if len(near.pairs):
        progress.say(
            f"{len(near.pairs)} pairs of the {wanted} queries are nearly equal (root mean square difference "
            f"at most {_NEAR}): asking twice buys little, and each answer is charged"
        )
    return chosen


def _rows_of(ids: np.ndarray, wanted: np.ndarray | None) -> np.ndarray:
    if wanted is None:
        raise PateError("the votes file names no inputs: run `pate vote` anew in another run directory")
    place = {name: row for row, name in enumerate(ids.tolist())}
    missing = [name for name in wanted.tolist() if name not in place]
    if missing:
        raise PateError(f"public input {missing[0]!r} was voted on but is not in the public part; restore it")
    return np.array([place[name] for name in wanted.tolist()])


def _accuracy(learned: student.Student, test: data.Part | None) -> float | None:
    return None if test is None or test.labels is None else learned.accuracy(test.inputs, test.labels)


def _public(
    run: RunDirectory, votes: voting.Votes, public: Path | None, test: Path | None
) -> tuple[data.Dataset, data.Part]:
    """The public data of a run and, row by row, the inputs that were asked about."""
    settings = run.recorded()
    if "data" in settings:
        if public is not None or test is not None:
            raise PateError(f"{run.root} knows its public data: leave out --public and --test")
        dataset = open_data(from_settings(DataChoice, settings["data"]))
        return dataset, dataset.public.take(_rows_of(dataset.public.ids, votes.ids))
    if public is None:
        raise PateError(f"{run.root} was made from votes alone: give --public, the inputs that were voted on")
    dataset = data.pool(public, test, classes=votes.votes.shape[1])
    if len(dataset.public.ids) < len(votes.votes):
        raise PateError(f"{public} has {len(dataset.public.ids)} inputs for {len(votes.votes)} rows of votes")
    return dataset, dataset.public.take(slice(len(votes.votes)))


def _inside(run: RunDirectory, votes: voting.Votes) -> dict[str, Any]:
    """What the owner may know of shards and teachers, and nobody else."""
    inside = {}
    if run.teacher_report.exists():
        inside["teachers"] = artefact.read_json(run.teacher_report, "teacher-report")
    if votes.labels is not None and votes.teacher_labels is not None:
        inside["accuracy"] = ensemble.score(votes.teacher_labels, votes.labels, votes.votes.shape[1])
    return inside


def _spread(counts: np.ndarray) -> dict[str, float]:
    return {"least": int(counts.min()), "mean": float(counts.mean()), "most": int(counts.max())}
