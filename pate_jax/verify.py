"""Recomputes a run from its artefacts, and lists what does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np

from pate_jax import artefact, ledger, partition, release, stages, voting
from pate_jax.config import DataChoice, PartitionChoice, from_settings
from pate_jax.errors import PateError
from pate_jax.mechanisms import from_dict
from pate_jax.rundir import RunDirectory


def verify(run: RunDirectory) -> dict[str, list[str]]:
    """What failed, by the name of the check; a check that finds nothing has an empty list."""
    checks: dict[str, Callable[[RunDirectory], list[str]]] = {
        "partition": _partition,
        "votes": _votes,
        "ledger": _ledger,
        "statement": _statement,
        "release": lambda run: release.audit(run.release),
    }
    found = {}
    for name, check in checks.items():
        try:
            found[name] = check(run)
        except PateError as error:  # a file that cannot be read is a finding, and the other checks go on
            found[name] = [str(error)]
    return found


def _partition(run: RunDirectory) -> list[str]:
    settings = run.recorded()
    if "data" not in settings:
        return []  # the votes were made elsewhere
    dataset = stages.open_data(from_settings(DataChoice, settings["data"]))
    cut, key = from_settings(PartitionChoice, settings["partition"]), run.derive("partition")
    shards = partition.divide(dataset.private, cut.teachers, key=key, by=cut.by)
    certificate = artefact.read_json(run.certificate, "certificate")
    return partition.check_certificate(certificate, shards, dataset.private, key=key)


def _votes(run: RunDirectory) -> list[str]:
    votes = voting.load_votes(run.votes)
    if votes.teacher_labels is None:
        return []
    counted = np.asarray(voting.histogram(votes.teacher_labels, votes.votes.shape[1]))
    return (
        []
        if np.array_equal(counted, votes.votes)
        else ["the histograms are not those of the teachers' labels"]
    )


def _ledger(run: RunDirectory) -> list[str]:
    votes, answers = voting.load_votes(run.votes), stages.load_answers(run)
    entries = ledger.read(run.ledger)
    entry = ledger.find(run.ledger, votes=artefact.digest(votes.votes))
    if entry is None or len(entries) != 1:
        return [f"the ledger has {len(entries)} entries, where one for these votes is wanted"]
    found = []
    if entry["mechanism"] != run.recorded().get("mechanism"):
        found.append("the ledger names another mechanism than the settings")
    if entry["labels"] != answers.labels.tolist() or entry["answered"] != answers.answered.tolist():
        found.append("the answers are not those that the ledger recorded")
    again = stages.draw(run, from_dict(entry["mechanism"]), votes.votes)
    if entry["noise"] != stages.commitment(run, entry["votes"]) or not np.array_equal(
        np.asarray(again.labels), answers.labels
    ):
        found.append("the answers do not follow from the votes and the run's noise")
    return found


def _statement(run: RunDirectory) -> list[str]:
    stated = artefact.read_json(run.statement, "statement")
    statement = stages.state(run, stated["delta"])
    found = []
    if json.dumps(statement.to_dict(), sort_keys=True) != json.dumps(stated, sort_keys=True):
        found.append("the private statement is not what the votes and the ledger give")
    published = artefact.read_json(run.public_statement, "statement")
    if json.dumps(statement.publishable(), sort_keys=True) != json.dumps(published, sort_keys=True):
        found.append("the published statement is not what the votes and the ledger give")
    return found
