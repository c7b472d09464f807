"""Shadow runs: the whole pipeline again and again, each time on another random half of the records.

The number of shadow and nothing else decides who is in it and what its noise is. So a game that was stopped
goes on, and a larger one holds the smaller one. What shadows show is private, like the records.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax.aggregate import noise
from pate_jax.audit.attacks.roc import Promise
from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import progress, storage
from pate_jax.system.tasks import HERE, Engine, opened_once

LEAST = 16  # shadows: each record is in and out of enough of them
_KIND = "shadows"
_BOTH = 3  # shadows that each record is in at least, and out of


class Seen(NamedTuple):
    """What one run of a pipeline shows."""

    confidence: Float[np.ndarray, " record"]  # the published probability of each record's own label
    reference: Float[np.ndarray, " reference"]  # the same of records that never are members
    table: Float[np.ndarray, " record"] | None = None  # of each record's own table with the noisy one
    known: Float[np.ndarray, " record"] | None = None  # the log-likelihood ratio if all others are known


class Shadows(NamedTuple):
    """What all runs showed, and who was a member of each."""

    member: Bool[np.ndarray, "shadow record"]
    confidence: Float[np.ndarray, "shadow record"]
    reference: Float[np.ndarray, "shadow reference"]
    table: Float[np.ndarray, "shadow record"] | None
    known: Float[np.ndarray, "shadow record"] | None


class Pipeline(Protocol):
    """From records that take part to what is published."""

    @property
    def records(self) -> int:
        """How many records may be members."""

    def __call__(self, member: Bool[np.ndarray, " record"], *, key: jax.Array) -> Seen:
        """What is published if these records take part."""


class Remade(NamedTuple):
    """How a worker makes the pipeline for itself: from a run directory, which it reads where it is."""

    make: Callable[[RunDirectory], tuple[Pipeline, Promise]]
    root: Path


class Shadow(NamedTuple):
    """A shadow run to be made."""

    pipeline: Pipeline | Remade
    member: Bool[np.ndarray, " record"]
    word: int  # that decides its noise


def played(
    pipeline: Pipeline,
    shadows: int,
    seed: int,
    folder: Path | None = None,
    *,
    engine: Engine = HERE,
    remade: Remade | None = None,
) -> Shadows:
    """Run a pipeline so many times; with a folder, each run is kept there, and found there again.

    `seed` decides who is a member and all noise. Nothing of it may be published in place of a run. Workers
    make the pipeline for themselves, as `remade` says; without it they are not asked.
    """
    if shadows < LEAST:
        raise PateError(f"shadows={shadows} must be at least {LEAST}, or nothing is known of most records")
    member = np.stack([members(pipeline.records, seed, number) for number in range(shadows)])
    often = member.sum(0)
    if (often < _BOTH).any() or (often > shadows - _BOTH).any():
        raise PateError(
            f"shadows={shadows} leave some record nearly always in or out: take more of them, such as 64"
        )
    paths = {} if folder is None else {one: folder / f"shadow-{one:05d}.npz" for one in range(shadows)}
    seen = {number: _read(path) for number, path in paths.items() if path.exists()}
    left = [number for number in range(shadows) if number not in seen]
    here = engine is HERE or remade is None
    given = pipeline if here or remade is None else remade
    items = [Shadow(given, member[number], _word(seed, number)) for number in left]
    with progress.bar("shadow runs", total=shadows) as steps:
        steps.advance(len(seen), found=True)
        for place, one in (HERE if here else engine).each(shadow, items):
            number = left[place]
            seen[number] = one
            if number in paths:
                arrays = {name: leaf for name, leaf in one._asdict().items() if leaf is not None}
                storage.write_arrays(paths[number], _KIND, arrays)
            steps.advance()
    found = [seen[number] for number in range(shadows)]
    return Shadows(member, *(_stacked([one[place] for one in found]) for place in range(len(Seen._fields))))  # type: ignore[arg-type]


def shadow(one: Shadow) -> Seen:
    """What one shadow run shows."""
    pipeline = _made(one.pipeline) if isinstance(one.pipeline, Remade) else one.pipeline
    return pipeline(one.member, key=noise.seeded_key(one.word))


@opened_once
def _made(remade: Remade) -> Pipeline:
    return remade.make(RunDirectory(remade.root))[0]


def members(records: int, seed: int, number: int) -> Bool[np.ndarray, " record"]:
    """Who is in a shadow: each record with an even chance, independent of all others.

    >>> bool((members(9, 1, 0) == members(9, 1, 0)).all()), bool((members(9, 1, 0) == members(9, 1, 1)).all())
    (True, False)
    """
    return np.random.default_rng([seed, number, 0]).random(records) < 0.5


def means(
    values: Float[np.ndarray, " record"], persons: Int[np.ndarray, " record"], people: int
) -> Float[np.ndarray, " person"]:
    """The mean over each person's records; persons are numbered from 0.

    >>> means(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 1]), 2).tolist()
    [1.0, 3.0]
    """
    found: np.ndarray = np.bincount(persons, values, people) / np.bincount(persons, None, people)
    return found


def _word(seed: int, number: int) -> int:
    return int(np.random.default_rng([seed, number, 1]).integers(1 << 32))


def _read(path: Path) -> Seen:
    return Seen(**storage.read_arrays(path, _KIND))


def _stacked(each: list[np.ndarray | None]) -> np.ndarray | None:
    there = [one for one in each if one is not None]
    return np.stack(there).astype(np.float64) if len(there) == len(each) else None
