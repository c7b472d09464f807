"""The parts of the students' losses, each as one formula over a batch: its mean, or one number per input.

Targets and probabilities are [input, class]; logits likewise. Nothing here draws batches or holds state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

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
