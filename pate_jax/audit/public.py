"""Checks of what a run takes for public: nobody has changed it, and spaces and queries follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pate_jax import voting
from pate_jax.audit.subject import Subject
from pate_jax.data import duplicates
from pate_jax.runs import answers, public_part, queries
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import Spacing, asked_inputs
from pate_jax.runs.record import PUBLIC, stage_of
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked

_NEAR = 1e-3  # of the largest number of an array: what rounding may move
_TURNED = 0.03  # of products of vectors: on another processor 0.008, of other inputs' space 0.2
_SAMPLE = 300  # public inputs whose vectors are compared
_OF_FEATURES = ("patches", "contrast", "encoder", "student")  # kinds of spaces whose features machines round
ELSEWHERE = "verify it on the machine and with the version that made it, if that was another"


class Seen(NamedTuple):
    """A space as arrays, and as a function: what it makes of public inputs."""

    arrays: Mapping[str, np.ndarray]
    vectors: Callable[[np.ndarray], np.ndarray]


def recorded(subject: Subject) -> Iterator[Finding]:
    """Whether the public part is the one with which the run was begun."""
    inputs, settings = subject.inputs, subject.settings
    if PUBLIC not in settings:
        yield unchecked("the run has recorded no digest of its public part, so a change would go unseen")
    else:
        yield from judged(
            ["the public inputs, or their labels, users or ids, are not those with which the run was begun"]
            if public_part.is_other(settings, inputs.dataset)
            else [],
            "the public inputs, their labels, users and ids are those with which the run was begun",
        )


def learned(
    kept: Seen, again: Seen, public: np.ndarray, which: str, what: str, prefix: str = ""
) -> Iterator[Finding]:
    """Whether what a run keeps comes out again; `what` should give it, and `public` are the inputs to see.

    Rounding turns some directions of a space of image features, where many vary alike. So such spaces are
    compared by how they see public inputs, and all other numbers one by one.
    """
    names = sorted({*kept.arrays, *again.arrays})
    pairs = {name: (kept.arrays.get(name), again.arrays.get(name)) for name in names}
    other = [name for name in names if not _same(*pairs[name])]
    far = [name for name in other if not _near(*pairs[name])]
    if not other:
        yield passed(f"{which} follow from {what}, bit for bit")
    elif far and not (
        _turns(kept, other, prefix) and _are_numbers(pairs, far) and _alike(kept, again, public)
    ):
        yield failed(
            f"{', '.join(far)} of {which} are not what {what} give here, beyond rounding: {ELSEWHERE}"
        )
    else:
        yield unchecked(
            f"{', '.join(other)} of {which} come out otherwise here, by no more than rounding on another "
            f"machine makes: {ELSEWHERE}"
        )


def _same(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def _near(one: np.ndarray | None, other: np.ndarray | None) -> bool:
    """Whether two arrays are equal, or numbers that rounding can make of each other.

    >>> _near(np.ones(3), np.ones(3) + 1e-6), _near(np.ones(3), np.ones(2)), _near(np.ones(3), None)
    (True, False, False)
    """
    if one is None or other is None or one.shape != other.shape or one.dtype.kind not in "iuf":
        return _same(one, other)
    numbers, others = one.astype(np.float64), other.astype(np.float64)
    return bool((np.abs(numbers - others) <= _NEAR * np.abs(others).max(initial=0.0)).all())


def _turns(kept: Seen, other: list[str], prefix: str) -> bool:
    """Whether a space is of features that another machine rounds otherwise, and it has done so."""
    return str(kept.arrays.get(f"{prefix}front/kind")) in _OF_FEATURES and f"{prefix}middle" in other


def _are_numbers(pairs: Mapping[str, tuple[np.ndarray | None, np.ndarray | None]], names: list[str]) -> bool:
    return all(one is not None and one.dtype.kind in "iuf" for name in names for one in pairs[name])


def _alike(kept: Seen, again: Seen, public: np.ndarray) -> bool:
    """Whether products of the public inputs' vectors are about the same, whichever way directions turn."""
    one, other = (np.asarray(seen.vectors(public[:_SAMPLE]), np.float64) for seen in (kept, again))
    products, others = one @ one.T, other @ other.T
    return bool(np.linalg.norm(products - others) <= _TURNED * np.linalg.norm(others))


def chosen(subject: Subject) -> Iterator[Finding]:
    """Whether public inputs and settings give the queries of each batch again."""
    run, inputs = subject.run, subject.inputs
    if not run.answers.exists():
        raise Ended(unchecked("nothing was answered yet"))
    known: list[str] = []
    for batch in range(1, run.batches + 1):
        votes = voting.load_votes(run.votes_of(batch))
        wanted = _chosen_again(inputs, batch, len(votes.votes), known)
        named = [] if votes.digests is None else votes.digests.tolist()
        yield from judged(
            [f"batch {batch} asks about other inputs than its settings choose here: {ELSEWHERE}"]
            if named != duplicates.digests(wanted)
            else [],
            f"the {len(named):,} queries of batch {batch} follow from public inputs and settings",
        )
        known += named


def _chosen_again(inputs: Inputs, batch: int, wanted: int, known: list[str]) -> np.ndarray:
    """The inputs that a batch of so many queries asks about, after those that are known."""
    run, dataset = inputs.run, inputs.dataset
    choice = run.record.read().vote(batch)
    spacing = queries.spacing(inputs, choice.min_distance)
    if spacing is not None and batch > 1:
        first = sum(line.event.asked for line in answers.asked(run) if line.batch < batch)
        spacing = Spacing(spacing.ruler, spacing.distance, asked_inputs(inputs).inputs[:first])
    pool = queries.pool_of(dataset, choice.public)
    pool = pool.take(queries.different(pool, wanted, known, spacing))
    key = run.secret.derive(f"selection {stage_of('vote', batch)}")
    selection: Any = choice.selection or "first"
    seen = inputs.seen_by_space(pool) if selection == "space" else None
    found = queries.select(pool, dataset.preprocessing, wanted, selection, key, seen)
    return found.inputs
