"""The loop that every method shares: batches drawn on the device, AdamW, a running average of the weights.

An objective is a loss over a batch. Hundreds of steps are one loop on the device; several students run at
once by `vmap`; a batch is spread over devices along its slots. Each slot draws its input and its distortion
from its own stream, so the number of devices changes a student by rounding only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from pate_jax.system import devices as machines
from pate_jax.system import progress

Tree = Any
TICK = 100  # steps in one call of the device
_AHEAD = 10  # steps whose inputs are drawn and moved at once: on a CPU that costs little more than one's


class Pool(NamedTuple):
    """What there is to learn from, on the device: all public inputs, and the answers by row.

    Answers have as many places as there are inputs, so that one program serves however many there are.
    """

    inputs: Any  # [record, ...] as stored
    answers: Any  # how many there are
    rows: Any  # [place]: rows that were answered
    labels: Any  # [place]
    scale: Any  # typical distance of a preprocessed input from the pool's mean
    soft: Any = None  # of soft answers: targets [place, class] and weights [place]


class Batch(NamedTuple):
    """One step's inputs as stored, each with the key of its slot."""

    inputs: Array  # [labelled slot, ...]
    targets: Array  # [labelled slot, class]
    keys: Array | None  # [labelled slot]; None once the inputs are seen
    others: Array  # [unlabelled slot, ...]
    other_keys: Array | None  # [unlabelled slot]; likewise
    scale: Array
    weights: Array | None = None  # [labelled slot], of soft answers
    other_slots: Array | None = None  # [unlabelled slot], their numbers
    seen: Any = None  # the inputs as the net sees them: what the objective's `look` made of this batch


@dataclass(frozen=True)
class Loop:
    """What the loop needs to know, whatever the objective."""

    steps: int
    batch_size: int
    learning_rate: float
    unlabelled: int = 1  # inputs without an answer a step, as a multiple of batch_size
    label_smoothing: float = 0.0
    weight_decay: float = 1e-3
    average: float = 0.998
    patience: int = 0
    first_moment: float = 0.9


class Objective(NamedTuple):
    """What is learned, as pure functions; the published net's parameters are at `parameters["net"]`."""

    start: Callable[[Array], tuple[Tree, Tree]]
    """key -> (parameters, memory)"""
    look: Callable[[Batch], Tree]
    """batch -> its inputs as the net sees them, moved and scaled: whatever does not follow from parameters"""
    loss: Callable[[Tree, Tree, Batch, Array], tuple[Array, tuple[Tree, Array]]]
    """(parameters, memory, batch with what is `seen`, key) -> (loss, (memory, a number worth showing))"""
    shown: str
    """What that number says."""


class State(NamedTuple):
    """A student on its way."""

    parameters: Tree
    average: Tree  # of parameters["net"] over the steps
    memory: Tree
    moments: Tree
    loss: Array
    shown: Array


class Program(NamedTuple):
    """An objective made ready to run."""

    start: Callable[[Any], State]
    """key data [seed, ...] -> states"""
    advance: Callable[..., State]
    """(states, key data, first step, last step, pace, pool, slots, other slots) -> states"""
    shown: str


def targets(labels: Array, classes: int, smoothing: float) -> Float[Array, "batch classes"]:
    """One-hot labels with a share `smoothing` spread evenly over all classes.

    >>> [round(share, 6) for share in targets(jnp.array([1]), 2, 0.2)[0].tolist()]
    [0.1, 0.9]
    """
    return jax.nn.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes


def running_average(average: Tree, latest: Tree, keep: float, step: Array) -> Tree:
    """`keep * average + (1 - keep) * latest`, keeping less at first: at most `(1 + step) / (10 + step)`.

    >>> float(running_average(jnp.array(1.0), jnp.array(2.0), 0.9, jnp.array(1e6)))
    1.100000023841858
    """
    kept = jnp.minimum(keep, (1 + step) / (10 + step))
    return jax.tree.map(lambda old, new: kept * old + (1 - kept) * new, average, latest)


def pace_of(loop: Loop, ending: Ending) -> np.ndarray:
    """What a learning rate goes by: the steps that were planned, and those between which it falls to 0."""
    return np.array([loop.steps, *ending.fall])


def rate(step: Array, pace: Array) -> Array:
    """The share of the peak learning rate: up a line in a tenth of the steps, then down a cosine to 0.

    Between the last two numbers of `pace` it also falls to 0 by itself.

    >>> [round(float(rate(jnp.array(step), jnp.array([100, 55, 76]))), 3) for step in (5, 10, 55, 65, 76)]
    [0.5, 1.0, 0.5, 0.177, 0.0]
    """
    steps, first, last = pace
    up = jnp.maximum(steps // 10, 1)
    planned = jnp.where(step < up, step / up, _cosine((step - up) / (jnp.maximum(steps, 2) - up)))
    return planned * _cosine((step - first) / (last - first))


def _cosine(share: Array) -> Array:
    """From 1 at 0 down to 0 at 1."""
    return (1 + jnp.cos(jnp.pi * jnp.clip(share, 0, 1))) / 2


def program(objective: Objective, loop: Loop, classes: int, implementation: str, several: bool) -> Program:
    """The functions that start and advance students; all move together where there are several."""
    rule = optax.chain(
        optax.scale_by_adam(b1=loop.first_moment), optax.add_decayed_weights(loop.weight_decay)
    )
    wrap = partial(jax.random.wrap_key_data, impl=implementation)
    each: Any = jax.vmap if several else lambda function, **_: _alone(function)

    def start(key_data):
        parameters, memory = objective.start(wrap(key_data))
        zero = jnp.zeros(())
        average = jax.tree.map(jnp.array, parameters["net"])
        return State(parameters, average, memory, rule.init(parameters), zero, zero)

    def draw(key, pool, slots, other_slots):
        draw_key, loss_key = jax.random.split(key)
        batch = _draw(draw_key, pool, slots, other_slots, loop.label_smoothing, classes)
        batch = batch._replace(seen=objective.look(batch), keys=None, other_keys=None)
        return batch, jax.random.key_data(loss_key)

    def step(state, index, pace, batch, loss_data):
        slope = jax.value_and_grad(objective.loss, has_aux=True)
        (loss, (memory, shown)), gradient = slope(state.parameters, state.memory, batch, wrap(loss_data))
        updates, moments = rule.update(gradient, state.moments, state.parameters)
        down = -loop.learning_rate * rate(index, pace)
        updates = jax.tree.map(lambda each: down * each, updates)
        parameters = optax.apply_updates(state.parameters, updates)
        average = running_average(state.average, parameters["net"], loop.average, index)
        return State(parameters, average, memory, moments, loss, shown)

    def advance(state, key_data, first, last, pace, pool, slots, other_slots):
        def some(turn, state):
            begin = first + turn * _AHEAD
            keys = jax.vmap(partial(jax.random.fold_in, wrap(key_data)))(begin + jnp.arange(_AHEAD))
            coming = jax.vmap(draw, in_axes=(0, None, None, None))(keys, pool, slots, other_slots)

            def body(place, state):
                return step(state, begin + place, pace, *jax.tree.map(lambda leaf: leaf[place], coming))

            return jax.lax.fori_loop(0, jnp.minimum(_AHEAD, last - begin), body, state)

        return jax.lax.fori_loop(0, -(-(last - first) // _AHEAD), some, state)

    many = each(advance, in_axes=(0, 0, None, None, None, None, None, None))
    return Program(jax.jit(each(start)), jax.jit(many, donate_argnums=0), objective.shown)


def run(
    program: Program,
    key_data: tuple[np.ndarray, np.ndarray],
    pool: Pool,
    loop: Loop,
    devices: int,
    judge: Callable[[Tree], np.ndarray] | None = None,
    ending: Ending | None = None,
    *,
    title: str,
) -> Tree:
    """Train to the end; return the averaged weights of every student, or the best where there is a judge."""
    slots, others = np.arange(loop.batch_size), np.arange(loop.batch_size * loop.unlabelled)
    own = own_device()
    if devices == 1 and own is not None:
        slots, others, start, pool = jax.device_put((slots, others, key_data[0], pool), own)
    else:
        slots, others = machines.shard_batch((slots, others), devices)
        everywhere = jax.sharding.NamedSharding(slots.sharding.mesh, jax.sharding.PartitionSpec())
        start, pool = jax.device_put((key_data[0], pool), everywhere)
    states, best = program.start(start), Best(loop.patience)
    ending = ending or Ending(loop.steps)
    with machines.kept_memory(), progress.bar(title, total=loop.steps) as bar:
        last = 0
        while last < ending.end:
            first, last = last, min(last + TICK, ending.end)
            pace = pace_of(loop, ending)
            states = program.advance(states, key_data[1], first, last, pace, pool, slots, others)
            loss, shown = float(states.loss.mean()), float(states.shown.mean())
            bar.advance(last - first, note=f"loss {loss:.3f}, {program.shown} {shown:.2f}")
            if judge is not None and best.is_stale(states.average, judge(states.average)):
                break
            if ending.look(last, states.average):
                bar.advance(loop.steps - ending.end, found=True)
    if ending.end < loop.steps:
        progress.say(f"{title}: {ending.why}, so {ending.end} steps are enough")
    return states.average if best.weights is None else best.weights


def own_device() -> Any:
    """The device of this thread (`jax.default_device`), where threads train a student each."""
    return getattr(jax.config, "jax_default_device", None)


class Best:
    """The best weights of every student so far, and when to stop waiting for better ones."""

    def __init__(self, patience: int) -> None:
        self.patience, self.stale = patience, 0
        self.weights: Tree = None
        self.losses = np.array(np.inf)

    def is_stale(self, weights: Tree, losses: np.ndarray) -> bool:
        """Note the losses [student] of these weights; true where none improved for `patience` times."""
        if not self.patience:
            return False
        better = losses < self.losses
        self.stale = 0 if better.any() else self.stale + 1
        self.weights = (
            jax.tree.map(np.asarray, weights) if self.weights is None else self._mixed(weights, better)
        )
        self.losses = np.where(better, losses, self.losses)
        return self.stale >= self.patience

    def _mixed(self, weights: Tree, better: np.ndarray) -> Tree:
        def pick(new, old):
            return np.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(pick, jax.tree.map(np.asarray, weights), self.weights)


def _draw(key: Array, pool: Pool, slots: Array, other_slots: Array, smoothing: float, classes: int):
    labelled_key, other_key = jax.random.split(key)

    def pick(stream, slot, count):
        row_key, slot_key = jax.random.split(jax.random.fold_in(stream, slot))
        return jax.random.randint(row_key, (), 0, count), slot_key

    choose = jax.vmap(pick, in_axes=(None, 0, None))
    answers, keys = choose(labelled_key, slots, pool.answers)
    rows, other_keys = choose(other_key, other_slots, pool.inputs.shape[0])
    weights = None
    if pool.soft is None:
        wanted = targets(pool.labels[answers], classes, smoothing)
    else:
        wanted, weights = (each[answers] for each in pool.soft)
    inputs, others = pool.inputs[pool.rows[answers]], pool.inputs[rows]
    return Batch(inputs, wanted, keys, others, other_keys, pool.scale, weights, other_slots=other_slots)


def _alone(function: Callable) -> Callable:
    """One student without vmap: only its axis comes off and goes on again."""

    def run(first, *rest):
        if not rest:
            return jax.tree.map(lambda leaf: leaf[None], function(first[0]))
        state = jax.tree.map(lambda leaf: leaf[0], first)
        return jax.tree.map(lambda leaf: leaf[None], function(state, rest[0][0], *rest[1:]))

    return run


LOOKED_AT = 1000  # public inputs, evenly spaced over the pool
_EVERY = 400  # steps between two looks at them
_LEAST = 4  # one of so many steps is made in any case
_FALL = 3  # the rate falls while one step is made for so many before
Labels = Callable[[Any], np.ndarray]  # averaged weights -> labels [student, input]


class Ending:
    """The step at which training ends: the last one.

    >>> Ending(3000).look(400, None), Ending(3000).end
    (False, 3000)
    """

    why = ""
    """Why an end before the last step is early enough, for the user."""

    def __init__(self, steps: int) -> None:
        self.end = steps
        self.fall = (steps, steps + 1)
        """The steps between which the learning rate falls to zero, beside its own schedule."""

    def look(self, step: int, weights: Any) -> bool:
        """Look at the labels where it is time; true once training is to end early."""
        return False


class Settling(Ending):
    """The labels that students give as they are trained end it once hardly any changes.

    >>> labels = iter([[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1]])
    >>> training = Settling(6000, lambda weights: np.array([next(labels)]), 0.1)
    >>> [training.look(step, None) for step in (800, 1200, 1600, 2000)], training.fall, training.end
    ([False, False, False, True], (2000, 2667), 2667)
    """

    why = "labels of public inputs have settled"

    def __init__(self, steps: int, labels: Labels, share: float) -> None:
        super().__init__(steps)
        self._labels, self._share = labels, share
        self._before: np.ndarray | None = None

    def look(self, step: int, weights: Any) -> bool:
        """Compare the labels with those of the look before."""
        end = step + -(-step // _FALL)
        if step % _EVERY or step >= self.fall[0] or end >= self.end:
            return False
        now, before = self._labels(weights), self._before
        self._before = now
        if before is None or _LEAST * step < self.end:
            return False
        if (now != before).mean(-1).max() >= self._share:  # of several students the least settled one
            return False
        self.fall, self.end = (step, end), end
        return True


class Clear(Ending):
    """What is asked of a net that is only tried is clear from its labels.

    >>> trial = Clear(1500, lambda weights: np.array([[weights, 1]]), lambda labels: labels.all())
    >>> [trial.look(step, step == 800) for step in (400, 500, 800)], trial.end
    ([False, False, True], 800)
    """

    why = "this trial leaves no doubt"

    def __init__(self, steps: int, labels: Labels, is_clear: Callable[[np.ndarray], bool]) -> None:
        super().__init__(steps)
        self._labels, self._is_clear = labels, is_clear

    def look(self, step: int, weights: Any) -> bool:
        """Ask whether it is clear."""
        if step % _EVERY or step >= self.end or not self._is_clear(self._labels(weights)[0]):
            return False
        self.end = step
        return True
