"""From host arrays of private records to the input of each teacher: its own shard and its own key only."""

from __future__ import annotations

import hashlib
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import Shard, epochs_of
from pate_jax.errors import PateError
from pate_jax.system import headcount, storage

ALIGNED = 64  # bytes
_AT_ONCE = 1 << 15  # records that are put behind a front, where they do not lie in memory


class Records(NamedTuple):
    """The private records, which teacher each belongs to, and every teacher's own key."""

    inputs: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    counts: np.ndarray
    keys: np.ndarray
    length: int
    """the length to which every shard is padded; no result depends on it"""
    public: int
    """the number of records, rounded as far as plans may know it"""


def records(inputs: Any, labels: Any, shards: Any, key: Array, config: TeacherConfig) -> Records:
    """Check the records and shards, and give every teacher a key: `fold_in(key, teacher)`."""
    inputs, labels = np.asarray(inputs), np.asarray(labels)
    rows, counts = np.asarray(shards.rows), np.asarray(shards.counts, np.int32)
    _check_records(inputs, labels)
    _check_shards(rows, counts, len(inputs))
    longest = max(1, int(counts.max(initial=0)))
    batch = config.batch_size or 1
    length = -(-longest // batch) * batch
    public = config.public_records or headcount.coarse_above(len(inputs))
    return Records(inputs, labels.astype(np.int32), rows, counts, keys_of(key, len(counts)), length, public)


def take(data: Records, ids: np.ndarray, config: TeacherConfig) -> Shard:
    """The shards of these teachers as host arrays; id -1 is a place without a teacher or records."""
    counts = np.where(ids >= 0, data.counts[ids], 0).astype(np.int32)
    inputs = _aligned((len(ids), data.length, *data.inputs.shape[1:]), data.inputs.dtype)
    labels = np.zeros((len(ids), data.length), np.int32)
    for place, (teacher, count) in enumerate(zip(ids, counts, strict=True)):
        rows = data.rows[teacher, :count]
        if count:
            np.take(data.inputs, rows, axis=0, out=inputs[place, :count], mode="clip")
        inputs[place, count:] = 0
        labels[place, :count] = data.labels[rows]
    return Shard(
        inputs, labels, counts, epochs_of(counts, config), data.keys[ids], *_constant_answers(labels, counts)
    )  # fmt: skip


def behind(front: Any, inputs: np.ndarray, rows: np.ndarray, folder: Path | None) -> np.ndarray:
    """What a front makes of these records; where they lie in a file, so does this, without a name."""
    if folder is None or not isinstance(inputs.base, np.memmap):
        return np.asarray(front(inputs[rows]))
    storage.make_folder(folder)
    first = front(inputs[rows[:1]])
    with tempfile.TemporaryFile(dir=folder) as file:
        seen = np.memmap(file, first.dtype, "w+", shape=(len(rows), *first.shape[1:]))
    for start in range(0, len(rows), _AT_ONCE):
        there = rows[start : start + _AT_ONCE]
        seen[start : start + len(there)] = front(inputs[there])
    return seen


def _aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array, not filled, where XLA wants one to lie: a CPU's devices then read it without a copy."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNED, np.uint8)
    return memory[-memory.ctypes.data % ALIGNED :][:size].view(dtype).reshape(shape)


def _constant_answers(
    labels: Int[np.ndarray, "teachers places"], counts: Int[np.ndarray, " teachers"]
) -> tuple[Int[np.ndarray, " teachers"], Float[np.ndarray, " teachers"]]:
    """The hits of the best constant answer on each shard, and its mean loss (the labels' entropy)."""
    classes = int(labels.max(initial=0)) + 1
    cells = np.arange(len(labels))[:, None] * classes + labels
    real = np.arange(labels.shape[1]) < counts[:, None]
    found, times = np.unique(cells[real], return_counts=True)
    owner, hits = found // classes, np.zeros(len(labels), np.int32)
    np.maximum.at(hits, owner, times)
    shares = times / counts[owner]
    return hits, np.bincount(owner, -shares * np.log(shares), len(labels)).astype(np.float32)


def digest_of_keys(keys: np.ndarray) -> str:
    """The digest of all teachers' keys, which reveals none of them."""
    return hashlib.sha256(keys.tobytes()).hexdigest()


def keys_of(key: Array, teachers: int) -> np.ndarray:
    """Every teacher's own key: `fold_in(key, teacher)`, as key data."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise PateError("key is not a typed JAX key; make one with jax.random.key(seed)")
    if str(jax.random.key_impl(key)) != "threefry2x32":
        # Another generator (256 bits of ChaCha20, say) seeds the counter-based one that streams are cut from.
        key = jax.random.wrap_key_data(jax.random.bits(key, (2,), jnp.uint32), impl="threefry2x32")
    cut = jax.vmap(lambda teacher: jax.random.key_data(jax.random.fold_in(key, teacher)))
    return np.asarray(cut(jnp.arange(teachers)))


def _check_records(inputs: np.ndarray, labels: np.ndarray) -> None:
    if inputs.ndim < 2 or inputs.dtype not in (np.uint8, np.float32):
        raise PateError(
            f"inputs are {inputs.dtype}{list(inputs.shape)}; give uint8 images [n, height, width, channels] "
            "or float32 tables [n, features]"
        )
    if labels.shape != inputs.shape[:1] or labels.dtype.kind not in "iu":
        raise PateError(
            f"labels are {labels.dtype}{list(labels.shape)}; give one integer for each of {len(inputs)}"
        )
    if len(labels) and labels.min() < 0:
        raise PateError(f"label {labels.min()} is negative; classes count from 0")


def _check_shards(rows: np.ndarray, counts: np.ndarray, records: int) -> None:
    if counts.ndim != 1 or not len(counts) or rows.ndim != 2 or len(rows) != len(counts):
        raise PateError(
            f"shards have rows{list(rows.shape)} and counts{list(counts.shape)}; one row per teacher"
        )
    if counts.min() < 0 or counts.max() > rows.shape[1]:
        raise PateError(
            f"shard sizes run from {counts.min()} to {counts.max()} and {rows.shape[1]} places are given"
        )
    used = rows[np.arange(rows.shape[1]) < counts[:, None]]
    if len(used) and not 0 <= used.min() <= used.max() < records:
        raise PateError(f"shards name rows {used.min()} to {used.max()} of {records} records")
    if np.bincount(used).max(initial=0) > 1:
        raise PateError("a record is in two shards, or twice in one; cut them with data.partition")
