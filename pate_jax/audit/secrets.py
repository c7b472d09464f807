"""The private content of a run that must not be in its release."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence, Set
from functools import partial
from typing import Any, cast

import numpy as np

from pate_jax import voting
from pate_jax.audit.subject import Subject
from pate_jax.data import Part, duplicates, readable, relation
from pate_jax.ensemble import checkpoint
from pate_jax.models import trees
from pate_jax.runs import chain
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import public_parts
from pate_jax.runs.release import check
from pate_jax.runs.release.findings import Finding
from pate_jax.system import storage

_SHORT = 5  # shorter names occur in any text
_PATHS = ("private", "public", "test", "data_dir", "manual_dir", "categories", "scales")
_DIGESTS = ("exact", "records", "noise", "digest")  # in a line of a ledger


def secrets(subject: Subject) -> check.Secrets:
    """Paths, keys, digests, figures, names, votes, teachers and private inputs of a run."""
    run, opened = subject.run, subject.opened
    texts = {
        "the path of the run": str(run.root.resolve()),
        "the partition key": run.secret.derive("partition").hex(),
    }
    paths = run.record.stages().get("data", {})
    texts |= {f"the path of {name}": paths[name] for name in _PATHS if paths.get(name)}
    entropy = storage.read_json(run.keys, "keys").get("entropy")
    texts |= {"the secret of the run": entropy} if entropy else {}
    for entry in (entry for entry in chain.entries(run.ledger) if entry.get("kind") == "release"):
        which = f"of batch {entry.get('batch', 1)}"
        texts |= {f"the {name} {which}": entry[name] for name in _DIGESTS if entry.get(name)}
    if run.statement.exists():
        texts |= _sensitive(storage.read_json(run.statement, "statement"))
    if isinstance(opened, Finding):
        return check.Secrets(texts, arrays=partial(_arrays, run))
    names, shown = _names(opened), opened.dataset.show_public
    public = None if shown else partial(_public, opened)
    return check.Secrets(texts, names, partial(_arrays, run), partial(_inputs, opened), public)


def _names(opened: Inputs) -> Set[str]:
    """Ids and users of private records; but public ids where both are row numbers or known coincidences."""
    dataset, names = opened.dataset, set[str]()
    coincide = opened.choice.equal_ids_are_coincidences or relation.are_rows(dataset)
    if dataset.scan is not None:
        known = dataset.public.ids.tolist() if coincide else ()
        return cast(Set[str], dataset.scan.names(_SHORT, frozenset(known)))
    for part in _private_parts(opened):
        names |= {*part.ids.tolist(), *([] if part.users is None else part.users.tolist())}
    names -= set(dataset.public.ids.tolist() if coincide else ())
    return {name for name in names if len(name) >= _SHORT}


def _private_parts(opened: Inputs) -> list[Part]:
    """The private part, and the test part where its rows were declared private."""
    test = opened.dataset.test if opened.choice.test_is_private else None
    return [opened.dataset.private] if test is None else [opened.dataset.private, test]


def _inputs(opened: Inputs) -> Iterator[np.ndarray]:
    """The private inputs, both stored and preprocessed, except for known coincidences."""
    private, public = _private_parts(opened), set[str]()
    if opened.coincide:
        shown = [part for part in public_parts(opened).values() if all(part is not one for one in private)]
        public = {name for part in shown for name in duplicates.digests(part.inputs)}
    for inputs in _arrays_of(opened, private):
        if public:
            inputs = inputs[[name not in public for name in duplicates.digests(inputs)]]
        yield inputs
        yield opened.dataset.preprocessing.apply(inputs)


def _arrays_of(opened: Inputs, parts: Sequence[Part]) -> Iterator[np.ndarray]:
    """The inputs of private parts, a batch at a time of one that lies in several files."""
    scan = opened.dataset.scan
    for part in parts:
        yield from [part.inputs] if scan is None or part is not opened.dataset.private else scan.inputs()


def _public(opened: Inputs) -> check.Shown:
    """The public inputs as stored, preprocessed, and as the columns of a page, and their features."""
    dataset, parts = opened.dataset, public_parts(opened).values()
    forms = [form for part in parts for form in (part.inputs, dataset.preprocessing.apply(part.inputs))]
    forms += [part.features for part in parts if part.features is not None]
    tables = [part.inputs for part in parts if part.inputs.ndim == 2]
    rows = (row for inputs in tables for row in readable.records(dataset, inputs))
    several = (row for row in rows if len(row) > 1)  # one number alone may stand anywhere
    known = ({name: value for name, value in row if value != readable.MISSING} for row in several)
    return check.Shown(forms, known)


def _sensitive(statement: dict[str, Any]) -> dict[str, str]:
    """Every figure of the private statement that is not also published, in its printed forms."""
    kept_in: dict[str, str] = {}
    published: set[str] = set()
    for name, figure in {**statement["figures"], **statement.get("sums", {})}.items():
        forms = _printed(figure["epsilon"]) if figure["epsilon"] else set()
        if figure["status"] == "publishable":
            published |= forms
        else:
            kept_in |= {f"the sensitive figure {name}, {form}": form for form in forms}
    return {what: form for what, form in kept_in.items() if form not in published}


def _printed(epsilon: float) -> set[str]:
    return {repr(epsilon), f"{epsilon:.4f}", f"{math.ceil(epsilon * 1e4) / 1e4:.4f}"}


def _arrays(run: RunDirectory) -> Iterator[tuple[str, np.ndarray]]:
    """The votes, and every array of every stored teacher."""
    for step in itertools.takewhile(lambda step: run.table_of(step).exists(), itertools.count(1)):
        which = "the exact table" if step == 1 else f"the exact table of step {step}"
        yield which, storage.read_arrays(run.table_of(step), "crowd-table")["table"]
    for batch in range(1, run.batches + 1):
        votes = voting.load_votes(run.votes_of(batch))
        yield f"the votes of batch {batch}", votes.votes
        if votes.teacher_labels is not None:
            yield f"the teachers' labels of batch {batch}", votes.teacher_labels
    if not checkpoint.folders(run.teachers):
        return
    for ids, load in checkpoint.finished_teachers(run.teachers).parts:
        for name, leaf in trees.flat(load()).items():
            yield f"{name} of one of the teachers {ids[0]} to {ids[-1]}", np.asarray(leaf)
