"""Finished teachers as they lie on disk, for whoever wants to read them and change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pate_jax.ensemble.checkpoint import IDENTITY, Store
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.waves import Teachers
from pate_jax.errors import PateError
from pate_jax.system import storage


def folders(directory: Path | str) -> list[Path]:
    """The folders that processes kept their teachers in, in order; none where nothing was kept."""
    root = Path(directory)
    if (root / "identity.json").exists():
        return [root]
    return sorted(path.parent for path in root.glob("process-*/identity.json"))


def identities(directory: Path | str) -> list[dict[str, Any]]:
    """What each process began its teachers with: config, net, digests of data and key."""
    return [_identity(folder / "identity.json") for folder in folders(directory)]


def _identity(path: Path) -> dict[str, Any]:
    identity: Any = storage.read_json(path, IDENTITY).get("identity")
    numbers = [identity.get(name) for name in ("teachers", "processes")] if isinstance(identity, dict) else []
    if not numbers or not all(type(one) is int and 0 < one < 1 << 24 for one in numbers):
        raise PateError(f"{path} does not say how many teachers and processes there are; restore it")
    return identity


def plan(folder: Path) -> Plan:
    """How the teachers of one of the `folders` were computed."""
    stored = Store(folder, 0.0).plan()
    if stored is None:
        raise PateError(f"{folder} holds no plan.json, so nobody can say how its teachers were computed")
    try:
        return Plan(**stored)
    except TypeError as error:
        raise PateError(f"{folder}: plan.json is no plan ({error}); restore it") from error


def kept(directory: Path | str) -> Teachers:
    """The teachers of all processes, read from disk wave by wave as they are asked for.

    Nothing is trained, swept or written; teachers that are not finished are refused.
    """
    parts: list[tuple[np.ndarray, Any]] = []
    found = folders(directory)
    for index, (folder, identity) in enumerate(zip(found, identities(directory), strict=True)):
        teachers, processes = identity["teachers"], identity["processes"]
        if processes != len(found):
            raise PateError(f"{directory} holds the teachers of {len(found)} of {processes} processes")
        mine = np.arange(index * teachers // processes, (index + 1) * teachers // processes, dtype=np.int32)
        store, wave = Store(folder, 0.0), plan(folder).wave
        for number, first in enumerate(range(0, len(mine), wave)):
            if not store.finished(number):
                raise PateError(f"{folder} holds no finished wave {number}: repeat `pate train` to go on")
            parts.append((mine[first : first + wave], partial(store.params, number)))
    if not parts:
        raise PateError(f"{directory} holds no teachers")
    return Teachers(np.concatenate([ids for ids, _ in parts]), {}, tuple(parts))


def of(teachers: Teachers, wanted: Sequence[int]) -> Iterator[tuple[int, Any]]:
    """Some teachers by number, each with its parameters."""
    for ids, load in teachers.parts:
        rows = [row for row, one in enumerate(ids.tolist()) if one in set(wanted)]
        stacked = load() if rows else None
        for row in rows:
            yield int(ids[row]), jax.tree.map(lambda leaf: np.asarray(leaf[row]), stacked)  # noqa: B023
