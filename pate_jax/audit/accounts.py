"""Checks that all kinds of runs go through: the ledger's chain, costs, noise, and statements."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pate_jax.accounting.filter import Cost
from pate_jax.audit.subject import Subject
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import chain, publication
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import ChargedFirst
from pate_jax.runs.ledger import AnyLine, E, Line
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

ROUNDING = 1e-8  # relative, between two computations of one epsilon on different machines
_ADDED = 2e-6  # relative: how much more an older version charged, without the exact worst reading
_UNEQUAL = "the ledger commits to another noise than the run's"


def differences(stated: Any, found: Any, name: str = "") -> Iterator[str]:
    """The fields in which two JSON values differ; floating-point numbers may differ by rounding.

    >>> list(differences({"a": 1.0, "b": 2}, {"a": 1.0, "b": 3}))
    ['b is 2 and not 3']
    """
    found = found if name else json.loads(json.dumps(found))
    if isinstance(stated, dict) and isinstance(found, dict):
        for key in sorted({*stated, *found}):
            if (key in stated) != (key in found):
                yield f"{name}{key} is {'there' if key in stated else 'missing'}"
            else:
                yield from differences(stated[key], found[key], f"{name}{key}.")
    elif isinstance(stated, float) and isinstance(found, float):
        if not covers(stated, found):
            yield f"{name[:-1]} is {stated!r} and not {found!r}"
    elif stated != found or type(stated) is not type(found):
        yield f"{name[:-1]} is {stated!r} and not {found!r}"


def covers(stated: float | None, again: float | None) -> bool:
    """Whether a recorded figure equals the computed one: not below it, and above it at most by rounding.

    >>> covers(1.0, 1.0), covers(0.99, 1.0), covers(None, None), covers(1.0, None)
    (True, False, True, False)
    """
    if stated is None or again is None:
        return stated is again
    return again * (1 - ROUNDING) <= stated <= again * (1 + _ADDED)


def chained(run: RunDirectory) -> Iterator[Finding]:
    """Whether the lines of the ledger form one chain, which its head counts."""
    state = chain.check(run.ledger)
    if state.torn is not None:
        yield unchecked("the last line was being written when a crash came; nothing of it had left")
    yield passed(f"{state.entries} lines form one chain, and its head counts {state.counted} of them")


def miscounted(line: Line[E], due: tuple[float, Cost]) -> Iterator[str]:
    """Whether a line was charged otherwise than what it costs."""
    charged, costs = ({"order": order, **cost._asdict()} for order, cost in ((line.order, line.cost), due))
    if list(differences(charged, costs)):
        yield f"it was charged {charged} and costs {costs}"


def uncommitted(run: RunDirectory, noise: str, stream: str) -> Iterator[str]:
    """Whether what commits a run to its noise is not that of this stream."""
    if noise != run.secret.commitment(stream):
        yield _UNEQUAL


def committed(run: RunDirectory, lines: Iterable[AnyLine], one: str, all_: str) -> Iterator[Finding]:
    """Whether each line commits to noise of its own that follows from the run's secret."""
    commitments = []
    for line in lines:
        commitments.append(line.noise)
        for fault in uncommitted(run, line.noise, line.stream):
            yield failed(f"{one} {line.batch}: {fault}")
    if len(set(commitments)) != len(commitments):
        yield failed(f"one noise served two {all_}")


def stated(
    subject: Subject, stage: str, whole: Mapping[str, Any], published: Mapping[str, Any], source: str
) -> Iterator[Finding]:
    """Whether both statements are what a `source` gives again."""
    run = subject.run
    for which, path, due in (
        ("private", run.statement, whole),
        ("published", run.public_statement, publication.stated(run, dict(published))),
    ):
        subject.needs(stage, path)
        faults = differences(storage.read_json(path, "statement"), due)
        yield from judged(
            (f"the {which} statement differs: {one}" for one in faults),
            f"the {which} statement is what {source}, at delta {whole['delta']:g}",
        )


def certified(run: RunDirectory, also: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the statement covers those whom the certificate names, or what it names `also` proves."""
    by = storage.read_json(run.certificate, "certificate").get("by") if run.certificate.exists() else None
    relation = storage.read_json(run.statement, "statement").get("relation")
    if by is not None and relation not in (by, also.get(by, by)):
        yield failed(f"the statement is by {relation}, and the certificate by {by}")


def coherent(body: dict[str, Any], again: dict[str, Any]) -> Iterator[Finding]:
    """Whether the sentences of a published statement follow from its numbers, which give it `again`."""
    faults = differences({**body, "trial": None}, {**again, "trial": None})
    yield from judged(
        (f"the statement is not what its own fields give: {one}" for one in faults),
        "the statement's words are those of its numbers",
    )


def figure(stated: float | None, again: float | None, what: str, source: str) -> Iterator[Finding]:
    """Whether a published epsilon is what its `source` gives again; `what` says who costs it."""
    yield from judged(
        [] if covers(stated, again) else [f"epsilon {stated} is published for {what} {again}"],
        f"epsilon {stated} is what {source}",
    )


def due(line: Line[E], method: ChargedFirst[E]) -> Iterator[Finding]:
    """Whether the one line of a run that is charged first is what its settings and records give."""
    again = method.due()
    run, faults = method.run, list(differences(to_dict(line.event), to_dict(again.event), "event."))
    if line.batch != again.batch:
        faults.append(f"it is called release {line.batch}, and there is one")
    if line.public != again.public:
        faults.append("it was asked on other public things or settings than are here")
    if line.exact != again.exact:
        faults.append("the records are others than those that it names")
    yield from judged(
        [f"the ledger's line: {fault}" for fault in faults],
        "the ledger has one line: what settings and public things plan for these records",
    )
    yield from judged(miscounted(line, (again.order, again.cost)), "it was charged what it costs")
    yield from judged(
        uncommitted(run, line.noise, again.stream),
        "its noise follows from the run's secret, the settings and the records",
    )
