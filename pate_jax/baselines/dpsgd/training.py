"""The training itself: sample, clip, add noise, step; and the net that comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int

from pate_jax import models
from pate_jax.aggregate import noise as keys
from pate_jax.baselines.dpsgd import calibration, gradients
from pate_jax.baselines.dpsgd.calibration import Plan, plan
from pate_jax.baselines.dpsgd.settings import LINEAR, Settings
from pate_jax.errors import PateError
from pate_jax.models.flax_nets import AsStored, Preprocessing
from pate_jax.system import devices, progress

_INIT, _STEPS = 0, 1  # children of the key
_SAMPLE, _NOISE = 0, 1  # of a step's key
_BLOCK = 1000  # inputs predicted together


@dataclass(frozen=True)
class Fitted:
    """A trained net, and what its training cost."""

    params: Any
    net: models.Model
    steps: int
    noise_multiplier: float
    epsilon: float  # one record added or removed
    delta: float
    replaced: float  # epsilon where one record's contents are changed instead
    private: bool  # whether the noise came from a key that nobody can foresee
    preprocessing: Preprocessing = field(default_factory=AsStored)

    def probabilities(self, inputs: np.ndarray) -> Float[np.ndarray, "input classes"]:
        """Class probabilities of inputs as stored."""
        seen, preprocess = _seen(self.net, self.preprocessing, inputs)
        apply = jax.jit(lambda params, block: jax.nn.softmax(self.net.apply(params, preprocess(block))))
        found = [np.zeros((0, self.net.description["classes"]), np.float32)]
        for start in range(0, len(seen), _BLOCK):
            block = np.zeros((_BLOCK, *seen.shape[1:]), seen.dtype)
            taken = seen[start : start + _BLOCK]
            block[: len(taken)] = taken
            found.append(np.asarray(apply(self.params, block))[: len(taken)])
        return np.concatenate(found)

    def accuracy(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Share of inputs whose most probable class is the label."""
        return float(np.mean(self.probabilities(inputs).argmax(1) == labels))


def fit(
    inputs: np.ndarray,
    labels: np.ndarray,
    classes: int,
    settings: Settings,
    *,
    key: Array,
    preprocessing: Preprocessing | None = None,
    model: models.Model | None = None,
) -> Fitted:
    """Train a net on private records, at the cost that `plan` says.

    `inputs` are as stored, and `preprocessing` scales them by public constants. `model` is a net of your own,
    or a linear head on a public space (`models.on_space`), in place of the one that the settings name. The
    same key, records and settings give the same net, so a training that was interrupted can be repeated.

    >>> random = np.random.default_rng(0)
    >>> inputs, labels = random.normal(size=(60, 3)).astype(np.float32), np.arange(60) % 2
    >>> chosen = Settings(steps=2, batch=20, net="table", microbatch=8)
    >>> found = fit(inputs, labels, 2, chosen, key=keys.seeded_key(1))
    >>> found.probabilities(inputs[:5]).shape, found.epsilon <= 3.0, found.private
    ((5, 2), True, False)
    """
    key = keys.check_key(key)
    _check(inputs, labels, classes)
    net = model or _net(settings, inputs.shape[1:], classes)
    scaling = preprocessing or AsStored()
    made = plan(settings.epsilon, settings.delta, len(inputs), settings)
    seen, preprocess = _seen(net, scaling, inputs)
    with devices.kept_memory():
        params = _trained(net, preprocess, seen, np.asarray(labels, np.int32), settings, made, key)
    return Fitted(
        jax.tree.map(np.asarray, params),
        net,
        made.steps,
        made.noise_multiplier,
        made.epsilon,
        made.delta,
        made.replaced,
        keys.is_private(key),
        scaling,
    )


def check(
    shape: tuple[int, ...],
    classes: int,
    settings: Settings,
    made: Plan,
    model: models.Model | None = None,
) -> int:
    """The number of parameters; what `fit` would refuse is refused here, before anything is charged for it.

    >>> made = Plan(0.1, 10**6, 1.0, 8.0, 12.0, 1e-9)
    >>> check((4,), 2, Settings(net="table"), made)
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: steps=1000000 of 2,466 parameters draw too much noise for delta=1e-09 ...
    """
    count = size(model or _net(settings, shape, classes))
    gradients.shrunk(settings.clip, count)
    gradients.check_reserve(made, count)
    return count


def size(net: models.Model) -> int:
    """The number of a net's parameters.

    >>> size(models.build("table", input_shape=(4,), classes=2))
    2466
    """
    parameters = jax.eval_shape(net.init, jax.random.key(0))
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(parameters))


def _trained(
    net: models.Model,
    preprocess: Callable[[Any], Any],
    inputs: np.ndarray,
    labels: np.ndarray,
    settings: Settings,
    made: Plan,
    key: Array,
) -> Any:
    """The running average of the parameters over all steps."""
    flat, unflatten = ravel_pytree(jax.jit(net.init)(jax.random.fold_in(key, _INIT)))
    gradients.check_reserve(made, len(flat))
    sums = gradients.sums(net, preprocess, settings.clip, len(flat))
    advance = _advance(settings)
    steps, state = jax.random.fold_in(key, _STEPS), (flat, jnp.zeros_like(flat), flat)
    for step in progress.track(range(made.steps), "training by DP-SGD", total=made.steps):
        sample_key, noise_key = _keys(steps, step)
        rows = calibration.draw(sample_key, len(inputs), made.rate)
        total = _total(sums, unflatten(state[0]), inputs, labels, rows, settings.microbatch)
        drawn = gradients.noisy(total, settings.clip, made.noise_multiplier, noise_key)
        mean = drawn / settings.batch  # the expected size: the real one is private
        state = advance(state, jnp.asarray(mean, jnp.float32), step)
    return unflatten(state[2])


@jax.jit
def _keys(steps: Array, step: Array) -> tuple[Array, Array]:
    """The two keys of a step, which serve nothing else."""
    key = jax.random.fold_in(steps, step)
    return jax.random.fold_in(key, _SAMPLE), jax.random.fold_in(key, _NOISE)


def _total(
    sums: gradients.Sums, params: Any, inputs: np.ndarray, labels: np.ndarray, rows: np.ndarray, size: int
) -> Int[np.ndarray, " parameter"]:
    """The whole batch's sum, in 64 bits on the host; this process's devices take the microbatches in turn."""
    copies = cycle([(place, jax.device_put(params, place)) for place in devices.local()])
    parts = []
    for slots, is_padding in calibration.microbatches(rows, size):
        place, copy = next(copies)
        given = jax.device_put((inputs[slots], labels[slots], is_padding), place)
        parts.append(sums.apply(copy, *given))
    total = np.zeros(sum(leaf.size for leaf in jax.tree.leaves(params)), np.int64)
    for found in parts:
        total += np.asarray(found)
    return total


def _advance(settings: Settings) -> Callable[[Any, Array, int], Any]:
    """One step of gradient descent with momentum, and of the running average."""

    @jax.jit
    def advance(state: Any, gradient: Array, step: Array) -> Any:
        params, velocity, average = state
        velocity = settings.momentum * velocity + gradient
        params = params - settings.learning_rate * velocity
        kept = jnp.minimum(settings.average, (1 + step) / (10 + step))
        return params, velocity, kept * average + (1 - kept) * params

    return advance


def _net(settings: Settings, shape: tuple[int, ...], classes: int) -> models.Model:
    if settings.net == LINEAR:
        raise PateError(f"net={LINEAR!r} needs the space it is on: pass model=models.on_space(...)")
    return models.build(
        settings.net,
        input_shape=shape,
        classes=classes,
        activation=settings.activation,
        **dict[str, Any](settings.shape_of_activation),
    )


def _seen(
    net: models.Model, preprocessing: Preprocessing, inputs: np.ndarray
) -> tuple[np.ndarray, Callable[[Any], Any]]:
    """Inputs as training keeps them, and what is done to them in each step; a front is passed only once."""
    if net.front is None:
        return np.asarray(inputs), preprocessing.apply
    return net.front(np.asarray(inputs)), lambda found: found


def _check(inputs: np.ndarray, labels: np.ndarray, classes: int) -> None:
    if len(inputs) != len(labels) or not len(inputs):
        raise PateError(f"{len(inputs)} inputs and {len(labels)} labels are given; give one label for each")
    low, high = int(np.min(labels)), int(np.max(labels))
    if low < 0 or high >= classes:
        raise PateError(f"labels go from {low} to {high}; classes={classes} takes 0 to {classes - 1}")
    if not np.isfinite(inputs).all():
        raise PateError("inputs hold NaN or infinity; fill or remove those records")
