"""Every net in one form: `Model`, a few pure functions, made of Flax modules or given as they are.

A net keeps up to three things: parameters, which gradients move; state, such as the statistics of BatchNorm,
which training moves; and streams of random numbers, such as those of dropout, which follow from the key of
each step alone. A module of Linen or of NNX is taken as it is; the nets of this library are NNX modules.

What scales inputs before a net reads them is, as nets see it, anything that has `apply`: `Preprocessing`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen, nnx
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models.identity import arguments_of, digest_of, named, source_of
from pate_jax.models.trees import flat


class Preprocessing(Protocol):
    """Scales a NumPy or JAX array: `data.Preprocessing`, or one of your own."""

    def apply(self, inputs: Any) -> Any:
        """The scaled array, of the same kind."""
        ...

    def __hash__(self) -> int:
        """Equal ones share a compiled program."""
        ...


class AsStored:
    """Leaves inputs as they are stored.

    >>> AsStored().apply(np.array([3], np.uint8))
    array([3.], dtype=float32)
    """

    def apply(self, inputs: Any) -> Any:
        """The same numbers as float32."""
        return inputs.astype(np.float32)


Params = Any
Net = Any  # a Model, a module of Linen, or of NNX: an instance, or a class with arguments (functools.partial)
Paths = str | tuple[str, ...]
_TRAINING = ("train", "training", "is_training")
_PREDICTING = ("deterministic", "use_running_average", "inference")


class Model(NamedTuple):
    """A net as pure functions: `init(key) -> variables`, `apply(variables, inputs) -> logits`.

    `description` is JSON, and enough to build a net of this library again: `build(**description)`. It is the
    identity of a net of your own too: a checkpoint is refused where it differs.

    A net may have a `front` that is the same for all teachers and never learns: it turns stored inputs into
    what `apply` takes, once before training instead of at every step, in place of the preprocessing. `hidden`
    is what the last layer reads: the net's features.

    A net that learns in another way than it predicts, or keeps state beside its parameters, has `learn`; its
    variables are `{"params": ..., "state": ...}`, and gradients move the parameters alone.

    >>> mean = Model(lambda key: jnp.zeros(3), lambda bias, inputs: inputs.mean(1)[:, None] + bias, {})
    >>> mean.apply(mean.init(jax.random.key(0)), jnp.ones((2, 5))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Float[Array, "batch ..."]], Float[Array, "batch classes"]]
    description: dict[str, Any]
    front: Callable[[np.ndarray], np.ndarray] | None = None
    hidden: Callable[[Params, Float[Array, "batch ..."]], Float[Array, "batch features"]] | None = None
    learn: Callable[[Params, Float[Array, "batch ..."], Array], tuple[Array, Any]] | None = None
    """(variables, inputs, key) -> (logits, the new state)"""

    def parted(self, variables: Params) -> tuple[Params, Any]:
        """The parameters, and the state that the net keeps beside them."""
        return (variables, ()) if self.learn is None else (variables["params"], variables["state"])

    def joined(self, params: Params, state: Any) -> Params:
        """The inverse of `parted`."""
        return params if self.learn is None else {"params": params, "state": state}

    def learning(self, params: Params, state: Any, inputs: Array, key: Array) -> tuple[Array, Any]:
        """Logits of a batch in training, and the state after it."""
        if self.learn is None:
            return self.apply(params, inputs), ()
        return self.learn(self.joined(params, state), inputs, key)

    def logits_of(self, seen: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        """The shape of what it gives for inputs of this shape, of which nothing is computed."""
        found: jax.ShapeDtypeStruct = jax.eval_shape(
            self.apply, jax.eval_shape(self.init, jax.random.key(0)), seen
        )
        return found


def seen_by_nets(preprocessing: Preprocessing, shape: tuple[int, ...], count: int) -> jax.ShapeDtypeStruct:
    """The shape of what a net sees of so many inputs that are stored in this shape.

    >>> from pate_jax.models.flax_nets import AsStored
    >>> seen_by_nets(AsStored(), (28, 28, 1), 2).shape
    (2, 28, 28, 1)
    """
    found: jax.ShapeDtypeStruct = jax.eval_shape(
        preprocessing.apply, jax.ShapeDtypeStruct((count, *shape), np.float32)
    )
    return found


def model_of(
    net: Net,
    input_shape: tuple[int, ...],
    *,
    variables: Any = None,
    trainable: Paths | None = None,
) -> Model:
    """Any net in the one form, for inputs of this shape (of one, after preprocessing).

    `net` is a module of Linen, a class of NNX with its arguments (`functools.partial(MLP, 8, classes=3)`;
    `rngs` is passed to it), an instance of NNX, whose numbers every teacher starts with, or a `Model`, which
    is returned as it is. Its `__call__` takes inputs, and, if it likes, `train` or `deterministic`.

    `variables` of a Linen module are numbers to start with. Where `trainable` is given, only parameters whose
    path, such as `head/kernel`, begins with it are learned, or with one of several; all others stay as they
    are, are stored once and not for each teacher, and must be public.

    >>> class Small(nnx.Module):
    ...     def __init__(self, classes, rngs):
    ...         self.dense, self.dropout = nnx.Linear(5, classes, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
    ...     def __call__(self, inputs):
    ...         return self.dense(self.dropout(inputs))
    >>> model = model_of(partial(Small, classes=3), (5,))
    >>> variables = model.init(jax.random.key(0))
    >>> model.apply(variables, jnp.ones((2, 5))).shape, variables["params"]["dense"]["bias"].shape
    ((2, 3), (3,))
    """
    if isinstance(net, Model):
        return net
    make = _model if variables is None and _is_hashable(net) else _model.__wrapped__
    return make(net, tuple(input_shape), variables, trainable)


@lru_cache(maxsize=16)
def _model(net: Net, input_shape: tuple[int, ...], variables: Any, trainable: Paths | None) -> Model:
    """Made once: a net asked for again is the same functions, so nothing is compiled again for it."""
    if isinstance(net, linen.Module):
        parts = _of_linen(net, input_shape, variables)
    elif isinstance(net, nnx.Module):
        parts = _of_nnx(lambda rngs: net, net)
    elif _is_class(net):
        parts = _of_nnx(net)
    else:
        raise PateError(
            f"net is a {type(net).__name__}: give a module of flax.linen, one of flax.nnx (an instance, or "
            "its class with functools.partial and its arguments), or models.Model(init, apply, description)"
        )
    about = {"name": named(net), "arguments": arguments_of(net), "source": source_of(net)}
    if parts.start is not None:
        about["start"] = digest_of(parts.start)
    model = _joined(parts, {**about, "input_shape": list(input_shape)}, trainable)
    check(model, (2, *input_shape))
    return model


class _Parts(NamedTuple):
    """A net whose parameters and state are not yet told apart from what stays as it is."""

    init: Callable[[Array], tuple[Any, Any]]
    """key -> (parameters, state)"""
    call: Callable[[Any, Any, Array, Array | None], tuple[Array, Any]]
    """(parameters, state, inputs, key or None to predict) -> (logits, state)"""
    start: Any = None
    """the numbers that it starts with, whatever the key"""


def _joined(parts: _Parts, description: dict[str, Any], trainable: Paths | None) -> Model:
    if trainable is not None:
        parts, description = _frozen(parts, trainable), {**description, "trainable": trainable}

    def init(key: Array) -> Params:
        params, state = parts.init(key)
        return {"params": params, "state": state}

    def apply(variables: Params, inputs: Array) -> Array:
        return parts.call(variables["params"], variables["state"], inputs, None)[0].astype(jnp.float32)

    def learn(variables: Params, inputs: Array, key: Array) -> tuple[Array, Any]:
        logits, state = parts.call(variables["params"], variables["state"], inputs, key)
        return logits.astype(jnp.float32), state

    return Model(init, apply, description, learn=learn)


def _frozen(parts: _Parts, trainable: Paths) -> _Parts:
    """The same net, of whose parameters only those at these paths are learned."""
    if parts.start is None:
        raise PateError(
            f"trainable={trainable!r} leaves the other parameters as they are, and this net starts with "
            "random ones: give an instance of NNX, or the variables of a Linen module"
        )
    params, _ = parts.start
    learned = {path: leaf for path, leaf in flat(params).items() if path.startswith(trainable)}
    if not learned:
        raise PateError(f"trainable={trainable!r} names no parameter: they are {', '.join(flat(params))}")

    def call(some: Any, state: Any, inputs: Array, key: Array | None) -> tuple[Array, Any]:
        leaves = [some.get(path, leaf) for path, leaf in flat(params).items()]
        return parts.call(jax.tree.unflatten(jax.tree.structure(params), leaves), state, inputs, key)

    return _Parts(lambda key: (dict(learned), parts.init(key)[1]), call, parts.start)


def _of_linen(net: linen.Module, input_shape: tuple[int, ...], start: Any) -> _Parts:
    modes = partial(_modes, type(net))
    modes(True)
    one = jnp.zeros((1, *input_shape), jnp.float32)

    def split(variables: Mapping[str, Any]) -> tuple[Any, Any]:
        kept = {name: tree for name, tree in variables.items() if name not in ("params", "intermediates")}
        return variables.get("params", {}), kept

    def init(key: Array) -> tuple[Any, Any]:
        return split(net.init(key, one, **modes(False)) if start is None else start)

    def call(params: Any, state: Any, inputs: Array, key: Array | None) -> tuple[Array, Any]:
        variables = {"params": params, **state}
        if key is None:
            return jnp.asarray(net.apply(variables, inputs, **modes(False))), state
        more: dict[str, Any] = {**modes(True), "rngs": {"params": key}, "mutable": list(state)}
        logits, latest = net.apply(variables, inputs, **more)
        return jnp.asarray(logits), latest

    return _Parts(init, call, None if start is None else split(start))


def _of_nnx(make: Callable[..., Any], instance: Any = None) -> _Parts:
    """Of an NNX module: its graph in training and in use, and streams of random numbers from a step's key."""
    shape = nnx.eval_shape(lambda: _made(make, nnx.Rngs(0)))
    modes = partial(_modes, type(shape))
    modes(True)
    graphs = {mode: _graph(shape, mode) for mode in (True, False)}
    streams = nnx.to_pure_dict(nnx.state(shape, nnx.RngState))

    def parts(module: Any) -> tuple[Any, Any]:
        kinds: tuple[Any, ...] = (nnx.Param, nnx.RngState, nnx.Intermediate, ...)
        params, _, _, state = nnx.state(module, *kinds)
        return nnx.to_pure_dict(params), nnx.to_pure_dict(state)

    def init(key: Array) -> tuple[Any, Any]:
        return parts(instance if instance is not None else _made(make, nnx.Rngs(key)))

    def call(params: Any, state: Any, inputs: Array, key: Array | None) -> tuple[Array, Any]:
        drawn = seeded(streams, jax.random.key(0) if key is None else key)
        states = (nnx.State(tree) for tree in (params, drawn, state))
        module = nnx.merge(graphs[key is not None], *states)
        more = modes(key is not None)
        if "rngs" in more:
            more["rngs"] = nnx.Rngs(jax.random.key(0) if key is None else key)
        return module(inputs, **more), parts(module)[1]

    return _Parts(init, call, None if instance is None else parts(instance))


def _graph(shape: Any, training: bool) -> Any:
    """The static part of an NNX module, with dropout and batch statistics as in training or in use."""
    shape.train() if training else shape.eval()
    return nnx.split(shape)[0]


def seeded(streams: Any, key: Array) -> Any:
    """A module's streams of random numbers, begun anew: each follows from the key and its place alone.

    >>> seeded({"count": jnp.uint32(7), "key": jax.random.key(0)}, jax.random.key(1))["count"].tolist()
    0
    """
    leaves, tree = jax.tree.flatten(streams)
    made = []
    for place, leaf in enumerate(leaves):
        own = jax.random.fold_in(key, place)
        keyed = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        many = jax.random.split(own, leaf.shape) if keyed and leaf.shape else own
        made.append(many if keyed else jnp.zeros(leaf.shape, leaf.dtype))
    return jax.tree.unflatten(tree, made)


def _made(make: Callable[..., Any], rngs: nnx.Rngs) -> Any:
    try:
        return make(rngs=rngs)
    except TypeError as error:
        raise PateError(
            f"{named(make)} cannot be made ({error}): give its arguments with functools.partial (or "
            "--net-args); it must take rngs"
        ) from error


def _modes(kind: type, training: bool) -> dict[str, Any]:
    """What a module's `__call__` takes beside inputs: whether it is trained, as its signature calls that."""
    others = list(inspect.signature(kind.__call__).parameters.values())[2:]  # after self and the inputs
    made: dict[str, Any] = {}
    for each in others:
        if each.name in _TRAINING:
            made[each.name] = training
        elif each.name in _PREDICTING:
            made[each.name] = not training
        elif each.name == "rngs" and issubclass(kind, nnx.Module):
            made[each.name] = None
        elif each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise PateError(
                f"{kind.__name__}.__call__ also takes {each.name!r}: a net is called with inputs and, if it "
                f"takes them, {', '.join((*_TRAINING, *_PREDICTING))}; give {each.name!r} a default"
            )
    return made


def check(model: Model, shape: tuple[int, ...]) -> None:
    """Refuse a net that does not take inputs of this shape, or whose state changes its shape."""
    inputs, key = jax.ShapeDtypeStruct(shape, np.float32), jax.random.key(0)
    name = model.description.get("name", "the net")
    try:
        variables = jax.eval_shape(model.init, key)
        said = [jax.eval_shape(model.apply, variables, inputs)]
        if model.learn is not None:
            logits, state = jax.eval_shape(model.learn, variables, inputs, key)
            said.append(logits)
    except PateError:
        raise
    except Exception as error:  # a module of the user's may raise anything
        why = str(error).strip().splitlines() or [type(error).__name__]
        raise PateError(f"{name} cannot be called with inputs {_told(inputs)}: {why[0]}") from error
    for each in said:
        if each.ndim != 2 or each.shape[0] != shape[0]:
            raise PateError(
                f"{name} gives an array {list(each.shape)} for {shape[0]} inputs; logits [{shape[0]}, "
                "classes] are wanted"
            )
    if model.learn is not None and _shapes(state) != _shapes(variables["state"]):
        raise PateError(f"{name} keeps a state that changes its shape in a step; keep arrays of one shape")


def _shapes(tree: Any) -> dict[str, tuple[Any, ...]]:
    return {path: (leaf.shape, leaf.dtype) for path, leaf in flat(tree).items()}


def _told(array: Any) -> str:
    return f"{array.dtype}{list(array.shape)}"


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return not isinstance(value, nnx.Module)  # whose numbers may change


def _is_class(net: Any) -> bool:
    made = net.func if isinstance(net, partial) else net
    return isinstance(made, type) and issubclass(made, nnx.Module)
