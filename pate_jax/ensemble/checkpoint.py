"""What an ensemble leaves on disk, and what a run that goes on must agree on; the only file that names Orbax.

    identity.json        config, net, digests of the data, key, plan: whatever decides the result
    wave-00003.json      which folder holds wave 3, and whether it is finished; written once that is whole
    wave-00003-000012/   an Orbax checkpoint of the wave's stacked tree (of several processes: arrays.npz)

A folder that no JSON file names is left over from a crash and is removed. Orbax is called synchronously.
"""

from __future__ import annotations

import functools
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pate_jax.ensemble.waves import Wave
from pate_jax.errors import PateError
from pate_jax.models.trees import Tree, flat, nested
from pate_jax.system import storage

IDENTITY, STAGE = "teachers", "teachers-wave"
ARRAYS = "arrays.npz"  # of a wave, where several processes run together


class Store:
    """The folder of one process's teachers."""

    def __init__(self, folder: Path | str, seconds: float) -> None:
        self.folder, self._seconds, self._saved = Path(folder), seconds, time.monotonic()

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
        return self._read(index)["params"]

    def news(self, index: int) -> dict[str, np.ndarray]:
        """What the last epoch of each teacher of a finished wave came to."""
        return self._read(index)["news"]

    def resume(self, index: int, empty: Wave) -> Wave:
        """The wave as it was last kept, or `empty`."""
        if not self._stage(index):
            return empty
        leaves, shape = jax.tree.flatten(empty)
        kept = [np.array(leaf) for leaf in jax.tree.leaves(_ordered(self._read(index)["wave"]))]
        same = len(kept) == len(leaves) and all(
            (a.shape, a.dtype) == (b.shape, b.dtype) for a, b in zip(kept, leaves, strict=True)
        )
        if not same:
            raise PateError(
                f"wave {index} in {self.folder} has other shapes than this run; give another folder"
            )
        return jax.tree.unflatten(shape, kept)

    def offer(self, index: int, fill: Callable[[], Wave]) -> None:
        """Keep the wave if the last time is long enough ago."""
        if time.monotonic() - self._saved >= self._seconds:
            leaves = jax.tree.leaves(fill())
            self._write(index, {"wave": {f"{place:04d}": leaf for place, leaf in enumerate(leaves)}}, False)
            self._saved = time.monotonic()

    def finish(self, index: int, wave: Wave) -> None:
        """Keep what a finished wave leaves: parameters and how its teachers fared."""
        self._write(index, {"params": wave.state.params, "news": wave.news._asdict()}, True)
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

    def _read(self, index: int) -> Any:
        folder = self.folder.absolute() / self._stage(index)["folder"]
        if not folder.is_dir():
            raise PateError(f"{folder} is gone: restore it from a backup, or give another folder")
        if (folder / ARRAYS).exists():
            return nested(storage.read_arrays(folder / ARRAYS, STAGE), ".")
        return _orbax().restore(folder)

    def _write(self, index: int, tree: Tree, finished: bool) -> None:
        before = self._stage(index)
        turn = before.get("turn", 0) + 1
        name = f"wave-{index:05d}-{turn:06d}"
        self._save(self.folder.absolute() / name, tree)
        stage = {"folder": name, "turn": turn, "finished": finished}
        storage.write_json(self.folder / f"wave-{index:05d}.json", STAGE, stage)
        if before:
            shutil.rmtree(self.folder / before["folder"], ignore_errors=True)

    def _save(self, folder: Path, tree: Tree) -> None:
        if jax.process_count() > 1:  # of host arrays, Orbax writes the first process's only
            leaves = {name: np.asarray(leaf) for name, leaf in flat(tree, ".").items()}
            storage.write_arrays(folder / ARRAYS, STAGE, leaves)
            return
        from orbax.checkpoint import args

        _orbax().save(folder, args=args.PyTreeSave(tree))


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


@functools.cache
def _orbax() -> Any:
    import orbax.checkpoint as orbax

    return orbax.PyTreeCheckpointer()


def _ordered(tree: Mapping[str, Any]) -> list[Any]:
    return [tree[name] for name in sorted(tree)]
