"""From host arrays of private records to the input of each teacher: its own shard and its own key only."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import Shard, epochs_of
from pate_jax.errors import PateError
from pate_jax.system import headcount


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
    rows = np.zeros((len(ids), data.length), np.int64)
    wide = min(data.length, data.rows.shape[1])
    rows[:, :wide] = data.rows[ids, :wide]
    rows = np.where(np.arange(data.length) < counts[:, None], rows, 0)
    labels = data.labels[rows] if len(data.labels) else np.zeros(rows.shape, np.int32)
    shape = (*rows.shape, *data.inputs.shape[1:])
    inputs = data.inputs[rows] if len(data.inputs) else np.zeros(shape, data.inputs.dtype)
    guess = [_constant_answer(shard[:count]) for shard, count in zip(labels, counts, strict=True)]
    majority, entropy = (np.array(column) for column in zip(*guess, strict=True))
    return Shard(
        inputs, labels, counts, epochs_of(counts, config), data.keys[ids],
        majority.astype(np.int32), entropy.astype(np.float32),
    )  # fmt: skip


def _constant_answer(labels: np.ndarray) -> tuple[int, float]:
    """The hits of the best constant answer on these labels, and its mean loss (the labels' entropy)."""
    if not len(labels):
        return 0, 0.0
    counts = np.unique(labels, return_counts=True)[1]
    return int(counts.max()), float(-(counts / len(labels) * np.log(counts / len(labels))).sum())


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
    if len(np.unique(used)) != len(used):
        raise PateError("a record is in two shards, or twice in one; cut them with data.partition")
