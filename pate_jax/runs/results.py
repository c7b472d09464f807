"""What every kind of run leaves in the same way: its statements, its results, the release, and its pages."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.accounting import Statement
from pate_jax.aggregate import Answers
from pate_jax.data import Dataset, Part, labels
from pate_jax.runs import measured, public_labels, publication, registration
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check, write
from pate_jax.runs.release import labels as of_labels
from pate_jax.runs.report import labels_page, run_pages, sheet
from pate_jax.runs.settings import to_settings
from pate_jax.student import Student, StudentConfig, Students, several
from pate_jax.system import storage

SHEET = "sheet"  # the kind of the file of the contact sheet
ATTACKS = "attacks"  # and of that of attacks


def state(run: RunDirectory, statement: Statement) -> dict[str, Any]:
    """Write a statement whole into private/, and as far as it may be published, which is returned."""
    published = publication.stated(run, statement.publishable())
    storage.write_json(run.statement, "statement", statement.to_dict())
    storage.write_json(run.public_statement, "statement", published)
    return published


def facts(run: RunDirectory, dataset: Dataset, described: str) -> dict[str, Any]:
    """The results that say what a run is of."""
    return {
        "run_dir": str(run.root),
        "dataset": dataset.name,
        "data": described,
        "synthetic": dataset.synthetic,
        "private": run.secret.seed is None,
        **publication.trial(run),
        **public_labels.said(run),
        "others": registration.published(RunDirectory(run.root)),
    }


def finish(
    run: RunDirectory,
    learned: Student,
    dataset: Dataset,
    statement: Mapping[str, Any],
    own: Mapping[str, Any],
    taught: tuple[Part, Answers] | None = None,
    *,
    shown: bool = True,
) -> dict[str, Any]:
    """Measure a student and write its release; `own` are the results of this kind of run alone.

    `taught` are the inputs that it was taught on, with their answers, of which some are `shown`.
    """
    data = run.record.stages().get("data", {})
    if dataset.target is None:
        found = sheet.look(learned, public_labels.unlearned(run, dataset))
        made = {**own, **measured.results(found, dataset, data)}
    else:
        made = {**own, **measured.of_numbers(learned, dataset, data)}
    if taught is not None:
        made["label_accuracy"] = _right(*taught)
    if taught is not None and shown:
        storage.write_json(run.sheet, SHEET, sheet.made(dataset, *taught, sheet.pool(learned, dataset)))
    return keep(run, learned, statement, made)


def finish_labels(
    run: RunDirectory,
    learned: Students,
    dataset: Dataset,
    statement: Mapping[str, Any],
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """The same of the students of several labels, which one release holds."""
    names = [*learned.by_label]
    made = {**own, **measured_labels(run, learned, dataset, own["voters"])}
    for label, student in learned.by_label.items():
        student.save(run.private / "students" / several.folder_of(names, label))
    release_labels(run, statement, made, run.release)
    storage.write_json(run.results, "results", made)
    return made


def release_labels(
    run: RunDirectory, statement: Mapping[str, Any], made: Mapping[str, Any], folder: Path
) -> None:
    """Write the release of the students of several labels that one run has made into a folder."""
    called = {label: several.folder_of([*made["labels"]], label) for label in made["labels"]}
    homes = {place: run.private / "students" / place for place in called.values()}
    of_labels.write(folder, called, homes, statement, made)


def measured_labels(run: RunDirectory, learned: Students, dataset: Dataset, voters: str) -> dict[str, Any]:
    """What is measured of the students of several labels that one run has made."""
    choice = run.record.read().data
    data = {
        label: (choice, labels.of_one(dataset, place), voters) for place, label in enumerate(learned.by_label)
    }
    return measured.of_labels(learned.by_label, data)


def _right(asked: Part, given: Answers) -> float | None:
    """The share of answers that are the labels of what was asked; None where these are not known."""
    if asked.labels is None:
        return None
    return float((np.asarray(given.labels) == asked.labels)[np.asarray(given.answered)].mean())


def keep(
    run: RunDirectory, learned: Student, statement: Mapping[str, Any], results: dict[str, Any]
) -> dict[str, Any]:
    """Write release/, and then the results, by which a student counts as finished."""
    write.write(run.release, learned, statement, results)
    storage.write_json(run.results, "results", results)
    return results


def finished(run: RunDirectory, config: StudentConfig, statement: Mapping[str, Any]) -> dict[str, Any] | None:
    """The results of a student that was trained so already, and released with this statement."""
    if not run.results.exists():
        return None
    run.record.agree("student", to_settings(config))
    path = run.student / "statement.json"
    return kept(run) if path.exists() and storage.read_json(path, "statement") == statement else None


def kept(run: RunDirectory, stage: str = "student") -> dict[str, Any]:
    """What a run has found, as the student's stage left it."""
    return storage.read_json(run.existing(run.results, stage), "results")


def contact_sheet(run: RunDirectory) -> dict[str, Any] | None:
    """Inputs with their answers, for the pages; None where there are none."""
    return storage.read_json(run.sheet, SHEET) if run.sheet.exists() else None


def attacked(run: RunDirectory) -> dict[str, Any] | None:
    """What attacks found, for the owner's page; None where there were none."""
    return storage.read_json(run.attacks, ATTACKS) if run.attacks.exists() else None


def tell(run: RunDirectory, told: dict[str, Any]) -> dict[str, Any]:
    """Write the page that may be published, beside the owner's; `told` is what that returned."""
    statement = Statement.from_dict(told["statement"])
    pages = labels_page if "labels" in told else run_pages
    page = pages.public_page(kept(run), statement, sheet.released(contact_sheet(run)))
    storage.write_bytes(run.public_report, page.encode())
    check.check(run.release)
    return told


def tell_plain(run: RunDirectory) -> dict[str, Any]:
    """Write both pages of a run without sensitive figures, and return the results with the statement."""
    return tell(run, tell_owner(run))


def tell_owner(run: RunDirectory, results: str = "student", statement: str = "account") -> dict[str, Any]:
    """Write the owner's page of a run without sensitive figures; results with the statement among them.

    `results` and `statement` name the commands that write these.
    """
    found = kept(run, results)
    whole = storage.read_json(run.existing(run.statement, statement), "statement")
    stages, shown, stated = run.record.stages(), contact_sheet(run), Statement.from_dict(whole)
    if "labels" in found:
        page = labels_page.private_page(found, stated, {})
    else:
        page = run_pages.plain_page(found, stated, stages, shown, attacked(run))
    storage.write_bytes(run.report, page.encode())
    return {**found, "statement": whole}
