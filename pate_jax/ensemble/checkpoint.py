"""What an ensemble writes to disk, what a resumed run must agree on, and how finished teachers are read.

    identity.json        config, net, digests of the data, key: whatever decides the result
    plan.json            how the teachers are computed
    wave-00003.json      which folder holds wave 3, and whether it is finished; written after that folder
    wave-00003-000012/   arrays.npz: the wave's arrays by their paths

A folder that no JSON file names is left over from a crash and is removed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.waves import Teachers, Wave
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.models.trees import Tree, filled, flat, nested, with_dtype
from pate_jax.system import storage

IDENTITY, STAGE = "teachers", "teachers-wave"
ARRAYS = "arrays.npz"


class Store:
    """The folder of one process's teachers; `like` has the containers and types of a net's parameters."""

    def __init__(self, folder: Path | str, seconds: float, like: Tree = None) -> None:
        self.folder, self._seconds, self._like = Path(folder), seconds, like
        self._saved = time.monotonic()

    def agree(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with another config, net, key or data set than those of the run that began here."""
        path = self.folder / "identity.json"
        if path.exists():
            before = storage.read_json(path, IDENTITY).get("identity")
            if not isinstance(before, dict):
                raise PateError(
                    f"{path} does not say what was begun here; restore it, or give another folder"
                )
            recorded, wanted = flat(before, "."), flat(dict(identity), ".")
            for name in sorted({*recorded, *wanted}):
                was, now = recorded.get(name), wanted.get(name)
                if was != now:
                    raise PateError(
                        f"{name}={now!r} but the teachers in {self.folder} were begun with {was!r}; "
                        "give that value again, or another folder"
                    )
        else:
            storage.write_json(path, IDENTITY, {"identity": dict(identity)})

    def plan(self) -> dict[str, Any] | None:
        """The plan of the run that began here, if one did."""
        path = self.folder / "plan.json"
        if not path.exists():
            return None
        plan = storage.read_json(path, IDENTITY).get("plan")
        numbers = [plan.get(name) for name in ("width", "wave")] if isinstance(plan, dict) else []
        if isinstance(plan, dict):
            numbers += [plan.get(name, 1) or 1 for name in ("public_records", "length")]  # 0: not known
        if not numbers or not all(type(one) is int and 0 < one < 1 << 24 for one in numbers):
            raise PateError(
                f"{path} does not say how teachers are computed; restore it, or give another folder"
            )
        return plan

    def keep_plan(self, plan: Mapping[str, Any]) -> None:
        """Store the plan that every later run obeys."""
        storage.write_json(self.folder / "plan.json", IDENTITY, {"plan": dict(plan)})

    def finished(self, index: int) -> bool:
        """Is this wave trained to its end?"""
        return bool(self._stage(index).get("finished"))

    def params(self, index: int) -> Tree:
        """The stacked parameters of a finished wave."""
        leaves = self._read(index, "params")
        return nested(leaves, ".") if self._like is None else filled(self._like, leaves, ".")

    def news(self, index: int) -> dict[str, np.ndarray]:
        """What the last epoch of each teacher of a finished wave came to."""
        return self._read(index, "news")

    def resume(self, index: int, empty: Wave) -> Wave:
        """The wave as it was last written, or `empty`."""
        if not self._stage(index):
            return empty
        leaves, structure = jax.tree.flatten(empty)
        stored = [leaf for _, leaf in sorted(self._read(index, "wave").items())]
        if [leaf.shape for leaf in stored] == [leaf.shape for leaf in leaves]:
            stored = [np.array(with_dtype(*pair)) for pair in zip(stored, leaves, strict=True)]
            if [leaf.dtype for leaf in stored] == [leaf.dtype for leaf in leaves]:
                return jax.tree.unflatten(structure, stored)
        raise PateError(f"wave {index} in {self.folder} has other shapes than this run; give another folder")

    def offer(self, index: int, fill: Callable[[], Wave]) -> None:
        """Write the wave if the last time is long enough ago."""
        if time.monotonic() - self._saved >= self._seconds:
            leaves = enumerate(jax.tree.leaves(fill()))
            self._write(index, {"wave": {f"{place:04d}": leaf for place, leaf in leaves}}, finished=False)
            self._saved = time.monotonic()

    def finish(self, index: int, wave: Wave) -> None:
        """Write what a finished wave leaves: parameters and how its teachers fared."""
        self._write(index, {"params": wave.state.params, "news": wave.news._asdict()}, finished=True)
        self._saved = time.monotonic()

    def sweep(self) -> None:
        """Remove folders that nothing refers to: a crash left them."""
        named = {_checked(path)["folder"] for path in self.folder.glob("wave-*.json")}
        for path in self.folder.glob("wave-*"):
            if path.is_dir() and path.name not in named:
                shutil.rmtree(path)

    def _stage(self, index: int) -> dict[str, Any]:
        path = self.folder / f"wave-{index:05d}.json"
        return _checked(path, index) if path.exists() else {}

    def _read(self, index: int, part: str) -> dict[str, np.ndarray]:
        """The arrays of one part of a wave, by their paths."""
        folder = self.folder.absolute() / self._stage(index)["folder"]
        if not folder.is_dir():
            raise PateError(f"{folder} is gone: restore it from a backup, or give another folder")
        arrays = storage.read_arrays(folder / ARRAYS, STAGE)
        prefix = f"{part}."
        return {name[len(prefix) :]: leaf for name, leaf in arrays.items() if name.startswith(prefix)}

    def _write(self, index: int, parts: Mapping[str, Tree], *, finished: bool) -> None:
        before = self._stage(index)
        turn = before.get("turn", 0) + 1
        name = f"wave-{index:05d}-{turn:06d}"
        path = self.folder.absolute() / name / ARRAYS
        storage.write_arrays(path, STAGE, _by_path(parts), mode=0o600, compressed=False)
        stage = {"folder": name, "turn": turn, "finished": finished}
        storage.write_json(self.folder / f"wave-{index:05d}.json", STAGE, stage)
        if before:
            shutil.rmtree(self.folder / before["folder"], ignore_errors=True)


def _by_path(parts: Mapping[str, Tree]) -> dict[str, np.ndarray]:
    return {
        f"{part}.{path}": np.asarray(leaf)
        for part, tree in parts.items()
        for path, leaf in flat(tree, ".").items()
    }


def _checked(path: Path, index: int | None = None) -> dict[str, Any]:
    """What a wave's file says, if it names a folder beside it: that folder is read, and later removed."""
    stage = storage.read_json(path, STAGE)
    folder, turn = stage.get("folder"), stage.get("turn")
    wave = r"\d{5,}" if index is None else f"{index:05d}"
    if not (isinstance(folder, str) and re.fullmatch(rf"wave-{wave}-\d{{6,}}", folder) and type(turn) is int):
        raise PateError(
            f"{path} names no folder of its wave; give another folder, or restore it from a backup"
        )
    return stage


def folders(directory: Path | str) -> list[Path]:
    """The folders of the processes that trained teachers here, in order; empty where none did."""
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


def share_of(teachers: int, index: int, processes: int) -> np.ndarray:
    """The teachers of one process: a contiguous share of all.

    >>> share_of(5, 1, processes=2).tolist()
    [2, 3, 4]
    """
    return np.arange(index * teachers // processes, (index + 1) * teachers // processes, dtype=np.int32)


def finished_teachers(directory: Path | str, net: Model | None = None) -> Teachers:
    """The teachers of all processes, read from disk wave by wave as they are asked for.

    With the `net` they have its containers, also those that hold nothing. Nothing is trained, removed or
    written; teachers that are not finished are refused.
    """
    parts: list[tuple[np.ndarray, Any]] = []
    like = None if net is None else jax.eval_shape(net.init, jax.random.key(0))
    present = folders(directory)
    for index, (folder, identity) in enumerate(zip(present, identities(directory), strict=True)):
        teachers, processes = identity["teachers"], identity["processes"]
        if processes != len(present):
            raise PateError(f"{directory} holds the teachers of {len(present)} of {processes} processes")
        mine = share_of(teachers, index, processes)
        store, wave = Store(folder, 0.0, like), plan(folder).wave
        for number, first in enumerate(range(0, len(mine), wave)):
            if not store.finished(number):
                raise PateError(f"{folder} holds no finished wave {number}: repeat `pate train` to go on")
            parts.append((mine[first : first + wave], partial(store.params, number)))
    if not parts:
        raise PateError(f"{directory} holds no teachers")
    return Teachers(np.concatenate([ids for ids, _ in parts]), {}, tuple(parts))


def parameters_of(teachers: Teachers, wanted: Sequence[int]) -> Iterator[tuple[int, Tree]]:
    """The numbers of some teachers, each with its parameters."""
    for ids, load in teachers.parts:
        rows = [row for row, one in enumerate(ids.tolist()) if one in set(wanted)]
        stacked = load() if rows else None
        for row in rows:
            yield int(ids[row]), jax.tree.map(lambda leaf: np.asarray(leaf[row]), stacked)  # noqa: B023
