"""Recomputes a run from its artefacts, and says what holds, what does not, and what nobody can check."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax import accounting, artefact, audit, ensemble, ledger, partition, queries, rerun, stages, voting
from pate_jax.accounting import curves, figures
from pate_jax.config import DataChoice, PartitionChoice, from_settings
from pate_jax.ensemble import kept
from pate_jax.ensemble import shards as feeding
from pate_jax.errors import PateError
from pate_jax.findings import Examination, Finding, examine, failed, judged, passed, unchecked
from pate_jax.laws import is_discrete
from pate_jax.mechanisms import from_dict
from pate_jax.partition import Shards
from pate_jax.rundir import RunDirectory

_SHORT = 5  # names of fewer characters occur in any text
_ROUNDING = 1e-9  # relative, between two computations of one epsilon on different machines


def verify(run: RunDirectory, *, deep: bool = False) -> dict[str, list[str]]:
    """What failed, by the name of the check; a check that finds nothing has an empty list."""
    found = of_run(run, deep=deep)
    return {
        name: [finding.text for finding in each if finding.outcome == "failed"]
        for name, each in found.checks.items()
    }


def at(path: Path, *, deep: bool = False, retrained: int = 3) -> Examination:
    """Examine what lies at a path: a whole run, or only its release/."""
    if (path / "private").is_dir():
        return of_run(RunDirectory(path), deep=deep, retrained=retrained)
    for folder in (path, path / "release"):
        if (folder / "statement.json").exists():
            return of_release(folder)
    raise PateError(f"{path} is neither a run directory nor a release: name a folder that `pate` has made")


def of_run(run: RunDirectory, *, deep: bool = False, retrained: int = 3) -> Examination:
    """Recompute everything that the files of a run allow.

    With `deep`, the teachers vote again, some of them are trained again from their own shard alone, and the
    student is trained again from public inputs and answers alone.
    """
    made = {
        "keys": partial(_keys, run),
        "partition": partial(_partition, run),
        "fed": partial(_fed, run),
        "votes": partial(_votes, run),
        "queries": partial(_queries, run),
        "ledger": partial(_ledger, run),
        "noise": partial(_noise, run),
        "statement": partial(_statement, run),
        "release": partial(_release, run),
    }
    again = {
        "labels": partial(rerun.labels, run),
        "teachers": partial(rerun.teachers, run, retrained),
        "student": partial(rerun.student_again, run),
    }
    if not deep:
        again = dict.fromkeys(again, lambda: [unchecked("not made again: --deep does that")])
    return examine(str(run.root), {**made, **again})


def of_release(folder: Path) -> Examination:
    """What an auditor can check who was given release/ and nothing else."""
    return examine(
        str(folder),
        {
            "release": partial(audit.look, folder),
            "agreement": partial(audit.agrees, folder),
            "statement": partial(_stated, folder),
            "private": _out_of_sight,
        },
    )


def _out_of_sight() -> Iterator[Finding]:
    for what in (
        "that the shards are disjoint and that each teacher saw its own only",
        "that the votes are the teachers' labels, and that no input was asked about twice",
        "that the answers are the votes and noise of the stated scale, and that the noise came from entropy",
        "that the ledger shows every query that was ever answered",
    ):
        yield unchecked(f"{what}: that needs private/")


def _keys(run: RunDirectory) -> Iterator[Finding]:
    stored, settings = artefact.read_json(run.keys, "keys"), run.recorded()
    seed, entropy = stored.get("seed"), stored.get("entropy")
    if seed is None and not (isinstance(entropy, str) and len(entropy) == 64 and len(set(entropy)) > 2):
        yield failed("keys.json has neither a seed nor 256 bits of entropy")
    elif seed is not None and entropy is not None:
        yield failed("keys.json has both a seed and entropy")
    else:
        yield passed("the noise comes from 256 bits of entropy" if seed is None else f"seeded with {seed}")
    if settings.get("partition", {}).get("seed", seed) != seed:
        yield failed("the settings name another seed than keys.json")
    modes = {path: stat.S_IMODE(os.stat(path).st_mode) for path in (run.private, run.keys)}
    loose = [path.name for path, mode in modes.items() if mode & 0o077]
    yield from judged(
        (f"{name} can be read by other users of this machine: chmod go= it" for name in loose),
        "private/ and its keys are open to their owner only",
    )


def _partition(run: RunDirectory) -> Iterator[Finding]:
    settings = run.recorded()
    if "data" not in settings:
        yield unchecked("the votes were made elsewhere, so how their teachers were separated is not known")
        return
    if not run.certificate.exists():
        yield _absent(run, run.certificate, "train")
        return
    certificate = artefact.read_json(run.certificate, "certificate")
    about = f"{certificate.get('teachers')} shards by {certificate.get('by')}"
    yield from judged(partition.check_sums(certificate), f"{about} are disjoint and cover the table")
    claimed = settings["partition"]["by"]
    if certificate.get("by") != claimed or certificate.get("teachers") != settings["partition"]["teachers"]:
        yield failed(f"the certificate is for {about}, and the run claims {claimed}")
    found = _opened(run)
    if isinstance(found, Finding):
        yield found
        return
    dataset, shards, key = found
    yield from judged(
        partition.check_certificate(certificate, shards, dataset.private, key=key),
        "ids, contents and places of all records are the certified ones",
    )


def _opened(run: RunDirectory) -> Finding | tuple[Any, Shards, bytes]:
    """The data of the run, cut once more; or why there is none."""
    settings = run.recorded()
    try:
        dataset = stages.open_data(from_settings(DataChoice, settings["data"]))
    except PateError as error:
        return unchecked(f"the data cannot be opened: {error}")
    cut, key = from_settings(PartitionChoice, settings["partition"]), run.derive("partition")
    return dataset, partition.divide(dataset.private, cut.teachers, key=key, by=cut.by), key


def _fed(run: RunDirectory) -> Iterator[Finding]:
    """What each teacher was fed: by the digests that training kept, and by feeding row numbers again."""
    if "data" not in run.recorded():
        yield unchecked("the votes were made elsewhere, so what their teachers were fed is not known")
        return
    if not kept.folders(run.teachers):
        yield _absent(run, run.teachers, "train")
        return
    found = _opened(run)
    if isinstance(found, Finding):
        yield found
        return
    dataset, shards, key = found
    wanted = {
        "inputs": artefact.digest(dataset.private.inputs),
        "labels": artefact.digest(np.asarray(dataset.private.labels, np.int32)),
        "shards": artefact.digest(np.asarray(shards.rows), np.asarray(shards.counts, np.int32)),
    }
    identities = kept.identities(run.teachers)
    differing = sorted(
        {name for one in identities for name in wanted if one["data"].get(name) != wanted[name]}
    )
    yield from judged(
        (f"the teachers were begun with other {name} than the certified ones" for name in differing),
        "the teachers were begun with the certified inputs, labels and shards",
    )
    certificate = artefact.read_json(run.certificate, "certificate")
    yield from judged(
        partition.check_fed(
            certificate, fed_rows(run, shards, len(dataset.private.ids)), dataset.private, key=key
        ),
        "row numbers fed in place of records reach the certified teachers only",
    )


def fed_rows(run: RunDirectory, shards: Shards, records: int) -> list[np.ndarray]:
    """The rows that reach each teacher: the feeding of training, with row numbers in place of the records."""
    import jax

    config = from_settings(ensemble.TeacherConfig, run.recorded()["teacher"])
    config = replace(config, net=config.net or "mlp").resolved()  # the recipe feeds all nets alike
    numbers = np.arange(records, dtype=np.int32)
    empty = np.zeros((records, 1), np.uint8)
    data = feeding.records(empty, numbers, shards, jax.random.key(0), config)
    rows = []
    for teacher in range(len(shards.counts)):
        fed = feeding.take(data, np.array([teacher]), config)
        rows.append(np.asarray(fed.labels[0, : int(fed.count[0])]))
    return rows


def _votes(run: RunDirectory) -> Iterator[Finding]:
    if not run.votes.exists():
        yield _absent(run, run.votes, "vote")
        return
    votes = voting.load_votes(run.votes)
    teachers = int(votes.votes[0].sum())
    claimed = run.recorded().get("partition", {}).get("teachers", teachers)
    if teachers != claimed:
        yield failed(f"{teachers} teachers voted, and the run has {claimed}")
    if votes.teacher_labels is None:
        yield unchecked("the file holds histograms only, so they cannot be counted again from labels")
        return
    counted = np.zeros_like(votes.votes)
    for row in votes.teacher_labels:
        counted[np.arange(len(counted)), row] += 1
    wrong = np.flatnonzero((counted != votes.votes).any(1))
    yield from judged(
        (f"the histogram of query {row} is not that of the teachers' labels" for row in wrong[:3]),
        f"{len(counted):,} histograms are the counted labels of {teachers} teachers",
    )


def _queries(run: RunDirectory) -> Iterator[Finding]:
    if not run.votes.exists():
        yield _absent(run, run.votes, "vote")
        return
    ids = voting.load_votes(run.votes).ids
    if ids is None:
        yield unchecked("the votes file names no inputs, so an input asked twice would go unseen")
        return
    if len(set(ids.tolist())) != len(ids):
        yield failed("a public input was asked about twice: its answers average the noise away")
    if "data" not in run.recorded():
        yield unchecked("the public inputs are not recorded in this run")
        return
    found = _opened(run)
    if isinstance(found, Finding):
        yield found
        return
    pool = found[0].public
    place = {name: row for row, name in enumerate(pool.ids.tolist())}
    strange = [name for name in ids.tolist() if name not in place]
    if strange:
        yield failed(f"input {strange[0]!r} was asked about and is not in the public part")
        return
    asked = pool.inputs[[place[name] for name in ids.tolist()]]
    repeated = len(asked) - len(queries.unique_queries(asked).first_rows)
    yield from judged(
        [f"{repeated} of the queries repeat an input of another id"] if repeated else [],
        f"{len(asked):,} queries ask about different public inputs",
    )


def _ledger(run: RunDirectory) -> Iterator[Finding]:
    if not run.ledger.exists():
        yield _absent(run, run.ledger, "aggregate")
        return
    votes, answers = voting.load_votes(run.votes), stages.load_answers(run)
    entries = ledger.read(run.ledger)
    yield passed(f"{len(entries)} entries form one chain")
    entry = ledger.find(run.ledger, votes=artefact.digest(votes.votes))
    if entry is None or len(entries) != 1:
        yield failed(f"the ledger has {len(entries)} entries, where one for these votes is wanted")
        return
    found = []
    if entry["mechanism"] != run.recorded().get("mechanism"):
        found.append("the ledger names another mechanism than the settings")
    if entry["queries"] != artefact.digest(votes.ids) or entry["asked"] != len(votes.votes):
        found.append("the ledger was charged for other queries than those of the votes file")
    if entry["labels"] != answers.labels.tolist() or entry["answered"] != answers.answered.tolist():
        found.append("the answers are not those that the ledger recorded")
    yield from judged(found, "votes, queries, mechanism and answers are the recorded ones")


def _noise(run: RunDirectory) -> Iterator[Finding]:
    if not run.ledger.exists():
        yield _absent(run, run.ledger, "aggregate")
        return
    votes, answers = voting.load_votes(run.votes), stages.load_answers(run)
    for entry in ledger.read(run.ledger):
        if entry["noise"] != stages.commitment(run, entry["votes"]):
            yield failed("the ledger commits to another noise than the run's")
            continue
        mechanism = from_dict(entry["mechanism"])
        again = stages.draw(run, mechanism, votes.votes)
        differ = (np.asarray(again.labels) != np.asarray(answers.labels)) | (
            np.asarray(again.answered) != np.asarray(answers.answered)
        )
        if differ.any() and not is_discrete(mechanism.noise) and differ.mean() <= 1e-3:
            yield unchecked(f"{differ.sum()} answers differ: continuous noise rounds by machine")
        else:
            yield from judged(
                [f"{differ.sum()} answers do not follow from the votes and the run's noise"]
                if differ.any()
                else [],
                f"{len(differ):,} answers follow from the votes and the committed noise",
            )


def _statement(run: RunDirectory) -> Iterator[Finding]:
    if not run.statement.exists():
        yield _absent(run, run.statement, "account")
        return
    stated = artefact.read_json(run.statement, "statement")
    delta = run.recorded().get("account", {}).get("delta")
    statement = stages.state(run, delta)
    whole = _differences(stated, statement.to_dict())
    yield from judged(
        (f"the private statement is not what the votes and the ledger give: {one}" for one in whole),
        "the private statement is what the votes and the ledger give",
    )
    if not run.public_statement.exists():
        yield _absent(run, run.public_statement, "account")
        return
    published = _differences(artefact.read_json(run.public_statement, "statement"), statement.publishable())
    yield from judged(
        (f"the published statement is not what the votes and the ledger give: {one}" for one in published),
        "the published statement is what the votes and the ledger give",
    )


def _differences(stated: Any, found: Any, name: str = "") -> Iterator[str]:
    """Fields of two JSON values that differ; floating-point numbers by more than rounding."""
    found = json.loads(json.dumps(found)) if not name else found
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in sorted({*stated, *found}):
            if (key in stated) != (key in found):
                yield f"{name}{key} is {'there' if key in stated else 'missing'}"
            else:
                yield from _differences(stated[key], found[key], f"{name}{key}.")
    elif isinstance(stated, float) and isinstance(found, float):
        if not math.isclose(stated, found, rel_tol=_ROUNDING, abs_tol=0.0):
            yield f"{name[:-1]} is {stated!r} and not {found!r}"
    elif stated != found or type(stated) is not type(found):
        yield f"{name[:-1]} is {stated!r} and not {found!r}"


def _stated(folder: Path) -> Iterator[Finding]:
    """The published figures again, from what the statement says of itself."""
    stated = artefact.read_json(folder / "statement.json", "statement")
    statement = accounting.Statement.from_dict(stated)
    if stated.get("model_card_line") != statement.model_card_line():
        yield failed("the guarantee in words is not that of the figures")
    headline = statement.headline.epsilon
    if statement.headline.basis == "filter":
        yield (
            passed("the figure is the budget of a filter")
            if f"epsilon {headline:g}" in statement.charged
            else (failed("the figure is not the budget that the statement names"))
        )
        return
    teachers, classes = stated.get("teachers"), stated.get("classes")
    if not teachers or not classes:
        yield unchecked("the statement names no number of teachers, so its figure cannot be computed again")
        return
    again = _headline(statement, teachers, classes)
    same = headline == again.epsilon or (
        headline is not None
        and again.epsilon is not None
        and math.isclose(headline, again.epsilon, rel_tol=1e-6)
    )
    yield from judged(
        [] if same else [f"epsilon {headline} is published, and the mechanism gives {again.epsilon}"],
        f"epsilon {headline} is what the mechanism gives for {statement.asked} queries to {teachers} teachers",
    )


def _headline(statement: accounting.Statement, teachers: int, classes: int) -> figures.Figure:
    """The data-independent figure, from public numbers alone: it reads nothing else of a histogram."""
    mechanism, grid = from_dict(statement.mechanism), curves.default_orders()
    anything = np.zeros((statement.asked, classes), np.int64)
    anything[:, 0] = teachers
    slack = figures.sampler_slack(mechanism, statement.asked, classes)
    answered = np.ones(statement.asked, bool)
    return figures.data_independent(figures.Case(mechanism, anything, answered, statement.delta, grid, slack))


def _release(run: RunDirectory) -> Iterator[Finding]:
    if not run.release.exists():
        yield _absent(run, run.release, "account")
        return
    yield from audit.look(run.release, secrets(run))
    yield from audit.agrees(run.release)


def secrets(run: RunDirectory) -> audit.Secrets:
    """What the files of a run say must not be found in its release."""
    settings, texts = run.recorded(), {}
    texts["the path of the run"] = str(run.root.resolve())
    for name in ("private", "public", "test", "data_dir", "manual_dir", "categories", "scales"):
        path = settings.get("data", {}).get(name)
        texts |= {f"the path of {name}": path} if path else {}
    entropy = artefact.read_json(run.keys, "keys").get("entropy")
    texts |= {"the run's secret": entropy} if entropy else {}
    texts["the partition key"] = run.derive("partition").hex()
    if run.votes.exists():
        texts["the digest of the votes"] = artefact.digest(voting.load_votes(run.votes).votes)
    if run.statement.exists():
        texts |= _sensitive(artefact.read_json(run.statement, "statement"))
    names: set[str] = set()
    if "data" in settings:
        found = _opened(run)
        if not isinstance(found, Finding):
            private, public = found[0].private, found[0].public
            names = {*private.ids.tolist(), *(() if private.users is None else private.users.tolist())}
            names = {name for name in names - {*public.ids.tolist()} if len(name) >= _SHORT}
    return audit.Secrets(texts, frozenset(names), partial(_secret_arrays, run))


def _sensitive(statement: dict[str, Any]) -> dict[str, str]:
    """Every figure of the private statement that is not published too, as it would be printed."""
    published = {
        form
        for figure in statement["figures"].values()
        if figure["status"] == "publishable" and figure["epsilon"] is not None
        for form in _printed(figure["epsilon"])
    }
    sensitive = {**statement["figures"], **statement["sums"]}
    return {
        f"the sensitive figure {name} ({form})": form
        for name, figure in sensitive.items()
        if figure["status"] != "publishable" and figure["epsilon"]
        for form in _printed(figure["epsilon"])
        if form not in published
    }


def _printed(epsilon: float) -> set[str]:
    return {repr(epsilon), f"{epsilon:.4f}", f"{math.ceil(epsilon * 1e4) / 1e4:.4f}"}


def _secret_arrays(run: RunDirectory) -> Iterator[tuple[str, np.ndarray]]:
    """The votes, and every array of every teacher that is kept."""
    if run.votes.exists():
        votes = voting.load_votes(run.votes)
        yield "the votes", votes.votes
        if votes.teacher_labels is not None:
            yield "the teachers' labels", votes.teacher_labels
    if kept.folders(run.teachers):
        for ids, load in kept.kept(run.teachers).parts:
            leaves = kept.leaves(load())
            yield from ((f"{name} of one of teachers {ids[0]} to {ids[-1]}", leaf) for name, leaf in leaves)


def _absent(run: RunDirectory, path: Path, stage: str) -> Finding:
    """A file that is not there: not made yet, or, where later ones are there, lost."""
    order = [
        run.certificate,
        run.teacher_report,
        run.votes,
        run.ledger,
        run.answers,
        run.statement,
        run.results,
    ]
    later = order[order.index(path) + 1 :] if path in order else order
    if any(one.exists() for one in later):
        return failed(f"{path} is missing, and what was made from it is there")
    return unchecked(f"{path.name} does not exist yet: run `pate {stage}`")
