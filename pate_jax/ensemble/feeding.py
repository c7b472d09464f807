"""From host arrays of private records to the input of each teacher: its own shard and its own key only.

A user's own code is read before it trains on private records: its program must keep teachers apart. A teacher
may know its own shard, its own key and public numbers. So the program of a net, a loss, an augmentation or a
rule of the user's own is traced, with that of its gradient, and refused where it talks to other devices,
calls the host, says what becomes of it in a `vmap`, where teachers lie side by side, or holds arrays that no
argument brought: those would be the same for all teachers, and nobody can say whether private records went
into them. What is computed from private records before that, and is as small as a few numbers, cannot be seen
here.
"""

from __future__ import annotations

import hashlib
import math
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core
from jaxtyping import Array, Float, Int

from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import LossOf, Own, Shard, epochs_of
from pate_jax.errors import PateError, PateWarning
from pate_jax.models import NETS, Model, Net, model_of
from pate_jax.models.flax_nets import Preprocessing, seen_by_nets
from pate_jax.models.trees import Tree
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


HELD = 1024  # numbers that a program may hold in all: kernels of a filter, scales of columns
_COLLECTIVES = (
    "psum",
    "pmin",
    "pmax",
    "ppermute",
    "pbroadcast",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
)
_HOST = ("callback", "debug", "infeed", "outfeed")  # in the names of operations
_ELSEWHERE = ("shard_map", "pmap", "xla_pmap", "axis_index")
_OURS = (*NETS, "linear")  # nets of this library, which are made anew from their names and settings
_LOOKED_AT, _LIKE = 8, 1e-3  # records that a front is tried on, and how far it may round
_SIDE_BY_SIDE = "custom_vmap"  # in the name of an operation that sees all teachers of a `vmap`


def model_for(net: Net, preprocessing: Preprocessing, inputs: np.ndarray) -> Model:
    """The net in the one form, for these inputs once they are scaled."""
    if isinstance(net, Model):
        return net
    return model_of(net, seen_by_nets(preprocessing, inputs.shape[1:], 2).shape[1:])


def check_net(model: Model, preprocessing: Preprocessing, data: Records) -> None:
    """Refuse a net that gives no logits for these records, or too few."""
    logits = model.logits_of(seen_by_nets(preprocessing, data.inputs.shape[1:], 2))
    if logits.ndim != 2 or logits.shape[0] != 2:
        raise PateError(
            f"the net gives an array {list(logits.shape)} for 2 inputs; logits [2, classes] are wanted"
        )
    if len(data.labels) and data.labels.max() >= logits.shape[1]:
        raise PateError(
            f"label {data.labels.max()} is beyond the net's classes={logits.shape[1]}; raise classes"
        )


def own_program(
    model: Model, preprocessing: Preprocessing, data: Records, config: TeacherConfig, own: Own, public: bool
) -> dict[str, str]:
    """The digest of the programs of a user's own parts, once they are read; nothing where there are none."""
    if model.learn is None and model.description.get("name") in _OURS and own == Own():
        return {}
    if "start" not in model.description and ignores_its_key(model.init):
        warnings.warn(
            "this net starts with the same numbers whatever its key: teachers differ by their shards alone, "
            "and those without records are all the same",
            PateWarning,
            stacklevel=3,
        )
    batch = config.batch_size or 1
    inputs = jax.ShapeDtypeStruct((batch, *data.inputs.shape[1:]), data.inputs.dtype)
    seen = seen_by_nets(preprocessing, data.inputs.shape[1:], batch)
    if model.front is not None:
        check_front(model.front, data.inputs)
        seen = jax.ShapeDtypeStruct((batch, *model.front(data.inputs[:1]).shape[1:]), np.float32)
    return {"program": check(model, own, inputs, seen, public_constants=public)}


def check_front(front: Callable[[np.ndarray], np.ndarray], inputs: np.ndarray) -> None:
    """Refuse a front that gives a record other numbers where it sees others beside it."""
    some = inputs[:_LOOKED_AT]
    together, alone = front(some), np.concatenate([front(one[None]) for one in some])
    if not np.allclose(together, alone, rtol=_LIKE, atol=_LIKE * float(np.abs(alone).max(initial=1e-30))):
        raise PateError(
            "the net's front gives a record other numbers beside other records than alone, so teachers would "
            "know of records that are not theirs: take means and scales from public inputs"
        )


def check(model: Model, own: Own, inputs: Any, seen: Any, *, public_constants: bool) -> str:
    """Refuse a user's own parts that may join teachers; the digest of their programs.

    `inputs` and `seen` are shapes of a batch, as stored and as the net sees it.
    """
    key = jax.random.key(0)
    public = public_constants or "start" in model.description
    read = [
        *_read_net(model, seen, key, public=public),
        _read("the net's first numbers", model.init, key, public=public),
    ]
    if own.loss is not None:
        read += _read_loss(model, own.loss, seen, public=public_constants)
    if own.augment is not None:
        one = jax.ShapeDtypeStruct(inputs.shape[1:], inputs.dtype)
        read.append(_read("augment", own.augment, key, one, public=public_constants))
        _same_shape("augment", jax.eval_shape(own.augment, key, one), one.shape, "an input of the same shape")
    if own.tx is not None:
        params, _ = model.parted(jax.eval_shape(model.init, key))
        read.append(_read("tx", own.tx.init, params, public=public_constants))
        moments = jax.eval_shape(own.tx.init, params)
        read.append(_read("tx", own.tx.update, params, moments, params, public=public_constants))
    return hashlib.sha256("\n".join(read).encode()).hexdigest()


def _read_net(model: Model, seen: Any, key: Any, *, public: bool) -> list[str]:
    """The net as it learns, with its gradient, whose rule may be the user's own too; and as it predicts."""
    variables = jax.eval_shape(model.init, key)
    params, state = model.parted(variables)

    def slope(params: Tree, state: Tree, seen: Any, key: Any) -> Tree:
        return jax.grad(lambda moved: model.learning(moved, state, seen, key)[0].sum())(params)

    return [
        _read("the net", model.learning, params, state, seen, key, public=public),
        _read("the net", slope, params, state, seen, key, public=public),
        _read("the net", model.apply, variables, seen, public=public),
    ]


def _read_loss(model: Model, loss: LossOf, seen: Any, *, public: bool) -> list[str]:
    """The loss of a batch, and its gradient."""
    variables = jax.eval_shape(model.init, jax.random.key(0))
    logits = jax.ShapeDtypeStruct(jax.eval_shape(model.apply, variables, seen).shape, np.float32)
    labels = jax.ShapeDtypeStruct(seen.shape[:1], np.int32)
    read = _read("loss", loss, logits, labels, public=public)
    _same_shape("loss", jax.eval_shape(loss, logits, labels), (seen.shape[0],), "one number for each record")
    slope = jax.grad(lambda logits, labels: loss(logits, labels).sum())
    return [read, _read("loss", slope, logits, labels, public=public)]


def ignores_its_key(init: Callable[[Any], Tree]) -> bool:
    """Whether a net starts with the same numbers under every key.

    >>> ignores_its_key(lambda key: np.zeros(3)), ignores_its_key(jax.random.normal)
    (True, False)
    """
    traced = jax.make_jaxpr(init)(jax.random.key(0)).jaxpr
    moved = set(traced.invars)
    for equation in traced.eqns:
        if any(isinstance(each, core.Var) and each in moved for each in equation.invars):
            moved.update(equation.outvars)
    return not any(isinstance(each, core.Var) and each in moved for each in traced.outvars)


def _read(name: str, function: Callable[..., Any], *arguments: Any, public: bool) -> str:
    """The text of a function's program, refused where it does not keep to its arguments."""
    try:
        traced = jax.make_jaxpr(function)(*arguments)
    except NameError as error:  # "unbound axis name"
        raise PateError(
            f"{name} names an axis of devices ({error}): teachers must not exchange numbers"
        ) from error
    held: dict[int, int] = {}  # numbers of each array
    for primitive, constants in _parts(traced):
        if any(primitive.startswith(each) for each in _COLLECTIVES) or primitive in _ELSEWHERE:
            raise PateError(
                f"{name} exchanges numbers between devices ({primitive}), where teachers must not meet"
            )
        if any(each in primitive for each in _HOST):
            raise PateError(
                f"{name} calls the host ({primitive}), which would see private records: leave out "
                "jax.debug.print, io_callback and pure_callback"
            )
        if _SIDE_BY_SIDE in primitive:
            raise PateError(
                f"{name} says what becomes of it in a vmap ({primitive}), where teachers lie side by side "
                "and must not meet: leave out jax.custom_batching"
            )
        for array in constants if not public else ():
            held[id(array)] = np.size(array) if np.ndim(array) else 0
            if sum(held.values()) > HELD:
                raise PateError(
                    f"{name} holds an array {array.dtype}{list(np.shape(array))} that no argument brought "
                    f"({sum(held.values()):,} numbers in all), and all teachers would share it: give "
                    "public_constants=True if no private record went into it"
                )
    return re.sub(r" at 0x[0-9a-f]+", "", str(traced))


def _parts(traced: core.ClosedJaxpr) -> Iterator[tuple[str, list[Any]]]:
    """The operations of a program and of all programs within, each with the arrays that are written there."""
    yield "constants", list(traced.consts)
    for equation in traced.jaxpr.eqns:
        yield (
            equation.primitive.name,
            [each.val for each in equation.invars if isinstance(each, core.Literal)],
        )
        for inner in _programs(equation.params):
            yield from _parts(inner)


def _programs(value: Any) -> Iterator[core.ClosedJaxpr]:
    """The programs among an operation's settings."""
    if isinstance(value, core.ClosedJaxpr):
        yield value
    elif isinstance(value, core.Jaxpr):
        yield core.ClosedJaxpr(value, ())
    elif isinstance(value, dict):
        yield from _programs(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _programs(each)


def _same_shape(name: str, made: Any, shape: tuple[int, ...], wanted: str) -> None:
    if getattr(made, "shape", None) != shape:
        raise PateError(
            f"{name} gives an array {list(getattr(made, 'shape', ()))}; {wanted} is wanted: {list(shape)}"
        )
