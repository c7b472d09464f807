"""What nets minimise over answers and public inputs, and how they look at these.

`supervised` is cross-entropy on the answered queries, with smoothing and small shifts. In virtual adversarial
training (`vat`, Miyato et al. 2018) no public input's answer may hang on a small change. In `fixmatch` (Sohn
et al. 2020) the net learns in a distorted image what it is sure of in a moved one.

Each part of a loss is one formula over a batch: its mean, or one number per input. Targets and probabilities
are [input, class]; logits likewise. Nothing here draws batches or holds state. A method looks at stored
inputs as they are, slightly moved, or strongly distorted, then scaled (`Views`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax.data import Preprocessing
from pate_jax.models import Model, augment
from pate_jax.student.settings import FixMatch, Supervised, Vat
from pate_jax.student.training import Objective

Logits = Float[Array, "batch classes"]


def cross_entropy(logits: Logits, wanted: Logits) -> Float[Array, " batch"]:
    """`-sum_c wanted_c log p_c` of each input."""
    return -jnp.sum(wanted * jax.nn.log_softmax(logits), axis=-1)


def on_answers(
    logits: Logits, wanted: Logits, weights: Float[Array, " batch"] | None = None
) -> Float[Array, ""]:
    """`E weight * CE(wanted, p)`, what a loss has of the answers; without weights all count alike."""
    lost = cross_entropy(logits, wanted)
    return lost.mean() if weights is None else (weights * lost).mean()


def divergence(logits: Logits, other: Logits) -> Float[Array, " batch"]:
    """`KL(p || q)` of each input, both given by logits."""
    logs = jax.nn.log_softmax(logits)
    return jnp.sum(jnp.exp(logs) * (logs - jax.nn.log_softmax(other)), axis=-1)


def entropy(logits: Logits) -> Float[Array, " batch"]:
    """`-sum_c p_c log p_c` of each input."""
    return cross_entropy(logits, jax.nn.softmax(logits))


def unit(directions: Array) -> Array:
    """Each input's direction scaled to length 1."""
    axes = tuple(range(1, directions.ndim))
    return directions / (jnp.sqrt(jnp.sum(directions**2, axis=axes, keepdims=True)) + 1e-12)


def contrast(directions: Float[Array, "views dimensions"], heat: float) -> tuple[Array, Array]:
    """How surprising each view's partner is among all other views (NT-Xent), and whether it is the nearest.

    The directions have length 1; view i and view i + half are of one image.

    >>> two = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    >>> lost, found = contrast(two, 1.0)
    >>> bool(jnp.allclose(lost, jnp.log(1 + 2 / jnp.e))), found.tolist()
    (True, [True, True, True, True])
    """
    count = len(directions)
    near = jnp.where(jnp.eye(count, dtype=bool), -jnp.inf, directions @ directions.T / heat)
    partner = (jnp.arange(count) + count // 2) % count
    return -jax.nn.log_softmax(near)[jnp.arange(count), partner], near.argmax(1) == partner


def worst_direction(
    apply: Callable[[Array], Logits],
    inputs: Array,
    logits: Logits,
    start: Array,
    *,
    small: float = 1e-2,
    rounds: int = 1,
) -> Array:
    """The unit direction in which the answers change most (Miyato et al. 2018, eqs. 9 to 12).

    Power iteration: the gradient of `KL(p(x) || p(x + small d))` with respect to d is nearly the Hessian
    times `d`; `logits` are `apply(inputs)` and `start` random directions. No gradient flows back through it.
    """
    answers = jax.lax.stop_gradient(logits)
    towards = unit(start)
    for _ in range(rounds):
        turn = jax.grad(lambda d: jnp.sum(divergence(answers, apply(inputs + small * d))))
        towards = unit(turn(towards))
    return jax.lax.stop_gradient(towards)


def virtual_adversarial(
    apply: Callable[[Array], Logits], inputs: Array, logits: Logits, direction: Array, radius: Any
) -> Float[Array, " batch"]:
    """`KL(p(x) || p(x + r))` for the change r of length `radius` in a direction; p(x) is held fixed."""
    return divergence(jax.lax.stop_gradient(logits), apply(inputs + radius * direction))


def confident(probabilities: Logits, confidence: float) -> tuple[Array, Float[Array, " batch"]]:
    """The guessed class of each input, and 1 where its probability is at least `confidence`, else 0.

    >>> guesses, mask = confident(jnp.array([[0.96, 0.04], [0.3, 0.7]]), 0.95)
    >>> guesses.tolist(), mask.tolist()
    ([0, 1], [1.0, 0.0])
    """
    found = jnp.max(probabilities, axis=-1) >= confidence
    return jnp.argmax(probabilities, axis=-1), found.astype(jnp.float32)


def aligned(probabilities: Logits, frequencies: Float[Array, " classes"], share: float) -> Logits:
    """Guesses pulled towards equal frequencies: divided by `frequencies ** share`, made to sum to 1.

    Distribution alignment (Berthelot et al. 2020, section 3.1) with a uniform prior; 0 does nothing.
    """
    pulled = probabilities / jnp.maximum(frequencies, 1e-4) ** share
    return pulled / jnp.sum(pulled, axis=-1, keepdims=True)


def realness(logits: Logits) -> Float[Array, " batch"]:
    """Log-odds of an input being real, `log sum_c exp l_c`: class K+1, "generated", has logit 0."""
    return jax.nn.logsumexp(logits, axis=-1)


def real_or_generated(real: Logits, generated: Float[Array, "others classes"]) -> Float[Array, ""]:
    """`-E log D(x) - E log(1 - D(G(z)))` with `D = Z / (Z + 1)` (Salimans et al. 2016, section 5), halved."""
    on_real = jax.nn.softplus(-realness(real))
    on_generated = jax.nn.softplus(realness(generated))
    return 0.5 * (jnp.mean(on_real) + jnp.mean(on_generated))


def feature_matching(real: Float[Array, "batch f"], generated: Float[Array, "others f"]) -> Float[Array, ""]:
    """`||E f(x) - E f(G(z))||^2`, the generator's loss (Salimans et al. 2016, section 3.1), per feature."""
    return jnp.mean((jnp.mean(real, axis=0) - jnp.mean(generated, axis=0)) ** 2)


View = Callable[[Array, Array], Array]  # (key of each input, inputs as stored) -> inputs for the net


class Views(NamedTuple):
    """The three ways; for tables all are the same."""

    plain: Callable[[Array], Array]
    weak: View
    strong: View


def views(
    preprocessing: Preprocessing, *, image: bool, shift: int, flip: bool = False, strength: float = 1.0
) -> Views:
    """Images move by up to `shift` pixels, `flip` exchanges left and right, `strength` is of distortions."""
    plain = preprocessing.apply
    if not image:
        return Views(plain, lambda _, inputs: plain(inputs), lambda _, inputs: plain(inputs))

    def moved(key, picture):
        shift_key, flip_key = jax.random.split(key)
        picture = augment.shift(shift_key, picture, pixels=shift) if shift else picture
        return augment.flip(flip_key, picture) if flip else picture

    def bent(key, picture):
        weak_key, strong_key = jax.random.split(key)
        return augment.distort(strong_key, moved(weak_key, picture), strength=strength)

    return Views(plain, partial(_each, moved, plain), partial(_each, bent, plain))


def apart(keys: Array, place: int) -> Array:
    """A stream of its own for each view of the same images."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, place)


def beside(*batches: Array) -> Array:
    """Several batches as one: an equal share of each, then the next share of each, and so on.

    One call of the net serves all. A batch is spread over devices along its rows, and this order leaves each
    row on the device that has it. `divided` takes the batches apart again.

    >>> import jax.numpy as jnp
    >>> beside(jnp.array([1, 2]), jnp.array([3, 4, 5, 6])).tolist()
    [1, 3, 4, 2, 5, 6]
    """
    shares = math.gcd(*map(len, batches))
    groups = [each.reshape(shares, -1, *each.shape[1:]) for each in batches]
    return jnp.concatenate(groups, axis=1).reshape(-1, *batches[0].shape[1:])


def divided(rows: Array, *counts: int) -> list[Array]:
    """The batches of so many rows each that `beside` made one of.

    >>> import jax.numpy as jnp
    >>> [each.tolist() for each in divided(jnp.array([1, 3, 4, 2, 5, 6]), 2, 4)]
    [[1, 2], [3, 4, 5, 6]]
    """
    shares = math.gcd(*counts)
    ends = np.cumsum([count // shares for count in counts])[:-1].tolist()
    groups = jnp.split(rows.reshape(shares, -1, *rows.shape[1:]), ends, axis=1)
    return [each.reshape(-1, *rows.shape[1:]) for each in groups]


def _each(function, plain, keys, inputs):
    return plain(jax.vmap(function)(keys, inputs))


_REMEMBERED = 0.99  # of the classes' frequencies among FixMatch's guesses, per step


def supervised(model: Model, views: Views, config: Supervised) -> Objective:
    """The loss: `E CE(smoothed answer, p(moved input))`."""

    def start(key):
        return {"net": model.init(key)}, ()

    def look(batch):
        return views.weak(batch.keys, batch.inputs)

    def loss(parameters, memory, batch, key):
        logits = model.apply(parameters["net"], batch.seen)
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        return on_answers(logits, batch.targets, batch.weights), (memory, right)

    return Objective(start, look, loss, "right")


def vat(model: Model, views: Views, config: Vat) -> Objective:
    """The loss: `CE(answers) + weight * (E KL(p(x) || p(x + r)) + entropy * E H(p(x)))`, x any public input.

    The paper's radius is a length; here it is a share of the pool's spread, so that one value serves data of
    every scale.
    """

    def start(key):
        return {"net": model.init(key)}, ()

    def look(batch):
        return views.weak(beside(batch.keys, batch.other_keys), beside(batch.inputs, batch.others))

    def loss(parameters, memory, batch, key):
        apply = partial(model.apply, parameters["net"])
        held = partial(model.apply, jax.lax.stop_gradient(parameters["net"]))
        counts = len(batch.inputs), len(batch.others)
        _, others = divided(batch.seen, *counts)
        logits, guesses = divided(
            apply(batch.seen), *counts
        )  # the guesses serve the direction and both terms
        random = jax.random.normal(key, others.shape)
        direction = worst_direction(held, others, guesses, random)
        changed = virtual_adversarial(apply, others, guesses, direction, config.radius * batch.scale)
        free = changed.mean() + config.entropy * entropy(guesses).mean()
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        total = on_answers(logits, batch.targets, batch.weights) + (config.weight or 0.0) * free
        return total, (memory, right)

    return Objective(start, look, loss, "right")


def fixmatch(model: Model, views: Views, config: FixMatch) -> Objective:
    """The loss: `CE(answers) + weight * E 1[max q >= confidence] CE(argmax q, p(distorted x))`.

    `q = p(moved x)` of any public image, with no gradient; the mean is over all of them, sure or not. The
    classes' frequencies among the guesses are remembered for `alignment`.
    """
    classes = model.description["classes"]

    def start(key):
        return {"net": model.init(key)}, jnp.full(classes, 1 / classes, jnp.float32)

    def look(batch):
        weak_keys, strong_keys = (apart(batch.other_keys, place) for place in range(2))
        if config.distort_answers:
            seen = views.strong(beside(batch.keys, strong_keys), beside(batch.inputs, batch.others))
        else:
            known = views.weak(batch.keys, batch.inputs)
            seen = beside(known, views.strong(strong_keys, batch.others))
        return seen, views.weak(weak_keys, batch.others)

    def loss(parameters, memory, batch, key):
        net, (seen, moved) = parameters["net"], batch.seen
        logits, distorted = divided(model.apply(net, seen), len(batch.inputs), len(batch.others))
        guessing = model.apply(jax.lax.stop_gradient(net), moved)
        guesses = jax.nn.softmax(guessing)
        memory = _REMEMBERED * memory + (1 - _REMEMBERED) * guesses.mean(0)
        pulled = aligned(guesses, memory * classes, config.alignment)
        labels, sure = confident(pulled, config.confidence)
        taught = cross_entropy(distorted, jax.nn.one_hot(labels, classes))
        weight = config.weight or 0.0
        total = on_answers(logits, batch.targets, batch.weights) + weight * (sure * taught).mean()
        return total, (memory, sure.mean())

    return Objective(start, look, loss, "confident")
