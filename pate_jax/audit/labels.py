"""The checks of a run of several labels: each label's run, what all cost together, and the one release."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pate_jax.accounting.exact import counts
from pate_jax.audit import accounts
from pate_jax.audit.subject import Subject
from pate_jax.data import texts
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import labels
from pate_jax.runs.directory import RunDirectory, kind_of
from pate_jax.runs.record import LABEL
from pate_jax.runs.release import check
from pate_jax.runs.release.findings import Examination, Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_MAY_DIFFER = ("label_column", "leave_out")


def each(run: RunDirectory, examine: Callable[[RunDirectory], Examination]) -> Iterator[Finding]:
    """Every check of every label's run, with the label in front of what it found."""
    for label, one in labels.of(run).runs(run).items():
        if not _begun(one):
            yield unchecked(f"{label}: its run has not begun yet: repeat the command")
            continue
        if kind_of(one) != "crowd":
            yield failed(f"{label}: {one.root} is not the run of a crowd")
            continue
        found = examine(one)
        good, bad, open_yet = (found.of(outcome) for outcome in ("passed", "failed", "unchecked"))
        yield from (failed(f"{label}: {text}") for text in bad)
        yield from (unchecked(f"{label}: {text}") for text in open_yet)
        yield passed(f"{label}: {len(good)} checks of its own run hold (`pate verify {one.root}` lists them)")


def shared(subject: Subject) -> Iterator[Finding]:
    """Whether each label has its share of one budget, and all are of the same records and settings."""
    several = labels.of(subject.run)
    share = counts.share_of(several.epsilon, several.delta, len(several.labels))
    number = len(several.labels)
    yield from judged(
        []
        if several.share <= share
        else [f"each label may spend {several.share:g}, and its share is {share:g}"],
        f"{number} labels may spend {several.share:g} each, their share of epsilon {several.epsilon:g}",
    )
    yield from judged(_unlike(subject.run, several), "all labels are of the same files, people and settings")


def _unlike(run: RunDirectory, several: labels.Several) -> Iterator[str]:
    """What the runs of the labels have not in common, or one of them spends beyond its share."""
    runs = {label: one for label, one in several.runs(run).items() if _begun(one)}
    first = _common(next(iter(runs.values()))) if runs else {}
    for label, one in runs.items():
        settings = one.record.read()
        crowd, data = settings.crowd, settings.data
        if (crowd.epsilon, crowd.delta, crowd.by) != (several.share, several.delta, several.by):
            yield f"{label} has epsilon {crowd.epsilon:g}, delta {crowd.delta:g}, by {crowd.by}"
        if one.record.stages().get(LABEL) != {"of": len(several.labels), "epsilon": several.epsilon}:
            yield f"{label} is not recorded as one of {len(several.labels)} labels"
        gone = texts.named(data.leave_out, "leave_out")
        if data.label_column != label or not {*several.labels} - {label} <= {*gone}:
            yield f"{label} learns {data.label_column} and leaves out {', '.join(gone) or 'nothing'}"
        if differ := [name for name, value in _common(one).items() if first.get(name) != value]:
            yield f"{label} has another {', '.join(differ)} than {several.labels[0]}"
    noises = [_secret(one) for one in runs.values() if one.secret.seed is None]
    if len(set(noises)) != len(noises):
        yield "two labels share one secret, and so their noise"


def _begun(run: RunDirectory) -> bool:
    return "crowd" in run.record.read()


def _common(run: RunDirectory) -> dict[str, Any]:
    """What all labels' runs have recorded alike: which files, how they are read, and where they count."""
    stages = run.record.stages()
    data = {name: value for name, value in stages.get("data", {}).items() if name not in _MAY_DIFFER}
    return data | {"register": stages.get("register", {}).get("file")}


def _secret(run: RunDirectory) -> str:
    return run.secret.derive("name in a register").hex()


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether both statements are what the ledgers of all labels give together."""
    run = subject.run
    subject.needs("run", run.statement)
    again = labels.state(run).publishable()
    yield from accounts.stated(subject, "run", again, again, "the ledgers of all labels give")


def released(subject: Subject) -> Iterator[Finding]:
    """Whether the release is what the labels' students, statement and figures give, byte for byte."""
    run = subject.run
    subject.needs("run", run.results)
    made = storage.read_json(run.results, "results")
    yield from written_again(run, partial(labels.release, run, made), "runs of the labels")


def written_again(run: RunDirectory, write: Callable[[Path], None], whose: str) -> Iterator[Finding]:
    """Whether the files of the release are those that are written once more into another folder."""
    with tempfile.TemporaryDirectory(prefix="pate-") as folder:
        write(Path(folder))
        due = {path.relative_to(folder): path for path in storage.files(Path(folder))}
        faults = [
            f"{name} is not what the {whose} give"
            for name, path in due.items()
            if not (run.release / name).is_file() or (run.release / name).read_bytes() != path.read_bytes()
        ]
        yield from judged(faults, f"{len(due)} files are what the {whose} give, byte for byte")


def secrets(run: RunDirectory, of: Callable[[Subject], check.Secrets]) -> check.Secrets:
    """What no file of the release may have: the secrets of all labels' runs."""
    each = {label: of(Subject(one)) for label, one in labels.of(run).runs(run).items()}
    first = next(iter(each.values()))
    told = {f"{what} ({label})": text for label, one in each.items() for what, text in one.texts.items()}
    names = frozenset(name for one in each.values() for name in one.names)

    def arrays() -> Iterable[tuple[str, Any]]:
        return itertools.chain.from_iterable(one.arrays() for one in each.values())

    return check.Secrets(told, names, arrays, first.inputs, first.public)


def measured_again(subject: Subject) -> Iterator[Finding]:
    """Whether the figures are what the students and the test part give again."""
    made: Mapping[str, Any] = storage.read_json(subject.run.results, "results")
    yield from same_figures(made, labels.measures(subject.run))


def same_figures(made: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the results hold what was measured again."""
    faults = accounts.differences({name: made.get(name) for name in again}, again)
    yield from judged(faults, "the figures of every label follow from its student and the test part")


def ledgers(subject: Subject) -> Iterator[Finding]:
    """How many releases the ledgers of all labels show."""
    found = labels.releases(subject.run, labels.of(subject.run))
    kinds = {to_dict(one)["name"] for one in found}
    yield passed(f"{len(found)} releases of {', '.join(sorted(kinds))} stand in the ledgers of all labels")
