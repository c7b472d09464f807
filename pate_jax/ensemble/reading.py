"""A user's own code, read before it trains on private records: its program must keep teachers apart.

A teacher may know its own shard, its own key and public numbers. So the program of a net, a loss, an
augmentation or a rule of the user's own is traced, with that of its gradient, and refused where it talks to
other devices, calls the host, says what becomes of it in a `vmap`, where teachers lie side by side, or holds
arrays that no argument brought: those would be the same for all teachers, and nobody can say whether private
records went into them. What is computed from private records before that, and is as small as a few numbers,
cannot be seen here.
"""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.extend import core

from pate_jax.ensemble.feeding import Records
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import LossOf, Own
from pate_jax.errors import PateError, PateWarning
from pate_jax.models import NETS, Model, Net, model_of
from pate_jax.models.flax_nets import seen_by_nets
from pate_jax.models.preprocessing import Preprocessing
from pate_jax.models.trees import Tree

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
