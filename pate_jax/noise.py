"""Keys from operating-system entropy, and the samplers of every family of noise.

**Keys.** JAX's default key carries 64 bits, too few to hide noise behind. `fresh_key` makes a 256-bit ChaCha20 key
(`pate_jax.chacha`) from the operating system's entropy and raises where there is none. `seeded_key` makes a
reproducible key of another type: whoever knows the seed knows the noise, so what is drawn from it is NOT private,
and `is_private` tells the two apart, under jit too.

**Samplers.** Discrete noise is drawn by searching the 128-bit table of its law (`pate_jax.laws`) in a fixed number
of steps, on integers only: the same key gives the same values on any CPU, GPU or TPU. Continuous noise is float32,
drawn from uniform numbers of 62 bits or more whose logarithms keep their relative precision on both ends;
`laws.distance` says what is claimed for either.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import chacha, laws
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise


def fresh_key() -> jax.Array:
    """A private key: 256 bits of the operating system's entropy. Raises where none can be had.

    >>> key = fresh_key()
    >>> is_private(key), key.shape
    (True, ())
    """
    try:
        entropy = secrets.token_bytes(4 * chacha.KEY_WORDS)
    except (OSError, NotImplementedError) as error:
        raise PateError("the operating system gave no entropy, so no private noise can be drawn") from error
    words = np.frombuffer(entropy, np.uint32)
    if words.size != chacha.KEY_WORDS or not words.any():
        raise PateError(f"the operating system gave {len(entropy)} usable bytes of entropy instead of 32")
    return jax.random.wrap_key_data(jnp.asarray(words), impl=chacha.PRIVATE)


def seeded_key(seed: int) -> jax.Array:
    """A reproducible key for experiments. NOT private: the seed tells all noise drawn from it.

    >>> is_private(seeded_key(7))
    False
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 32:
        raise PateError(f"seed={seed!r} must be a whole number from 0 to 2^32 - 1")
    return jax.random.key(np.uint32(seed), impl=chacha.SEEDED)


def check_key(key: Any) -> jax.Array:
    """The key, if it is one typed JAX key; else an error that says what it is."""
    dtype = getattr(key, "dtype", None)
    if dtype is None or not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        raise PateError(
            f"key={type(key).__name__} is not a typed JAX key: use pate_jax.noise.fresh_key(), "
            "or seeded_key(seed) for an experiment that is not private"
        )
    if key.shape != ():
        raise PateError(f"key has shape {key.shape} where a single key is wanted: vmap over the keys")
    return key


def is_private(key: jax.Array) -> bool:
    """Whether a key descends from `fresh_key`: a property of its type, so it can be read under jit.

    >>> is_private(jax.random.key(0))
    False
    """
    dtype = getattr(key, "dtype", None)
    return dtype is not None and dtype == _PRIVATE_DTYPE


_PRIVATE_DTYPE = jax.eval_shape(
    lambda data: jax.random.wrap_key_data(data, impl=chacha.PRIVATE),
    jax.ShapeDtypeStruct((chacha.KEY_WORDS,), jnp.uint32),
).dtype


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Source:
    """A noise ready to be drawn on a device; a pytree that can be stacked and mapped over.

    `scale` serves the continuous families; `words` and `lowest` are the table of a discrete one.
    """

    family: str = field(metadata={"static": True})
    scale: Any
    words: Any  # uint32[rows, 4], a power of two of rows
    lowest: Any


def source(noise: Noise, length: int | None = None) -> Source:
    """What `draw` needs of a noise; tables of several scales can be padded to one `length`.

    >>> source(Noise("discrete_gaussian", 1.0)).words.shape
    (32, 4)
    """
    if not laws.is_discrete(noise):
        return Source(noise.family, jnp.asarray(noise.scale, jnp.float32), None, None)
    if isinstance(noise.scale, jax.core.Tracer):
        raise PateError(
            "a discrete noise's table is built on the host, so its scale cannot be traced: "
            "make the mechanism ready outside jit with pate_jax.aggregate.prepare(mechanism)"
        )
    law = laws.table(noise, length)
    return Source(noise.family, None, jnp.asarray(law.words), jnp.int32(law.lowest))


def draw(noise: Noise | Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent values of the noise: int32 for discrete families, float32 for continuous ones.

    >>> draw(Noise("discrete_laplace", 2.0), seeded_key(1), (3,)).dtype
    dtype('int32')
    """
    ready = noise if isinstance(noise, Source) else source(noise)
    if ready.words is None:
        return ready.scale * _STANDARD[ready.family](key, shape)
    words = jax.random.bits(key, (4, *shape), jnp.uint32)
    return ready.lowest + _search(ready.words, tuple(words))


def _search(table: jax.Array, words: tuple) -> jax.Array:
    """The first row that is not below the 128-bit word, in a fixed number of steps."""
    place = jnp.zeros(words[0].shape, jnp.int32)
    step = table.shape[0] // 2
    while step:
        row = table[place + (step - 1)]
        place = place + step * _below(tuple(row[..., i] for i in range(4)), words).astype(jnp.int32)
        step //= 2
    return place


def _below(left: tuple, right: tuple) -> jax.Array:
    """Whether one number of four words, most significant first, is less than another."""
    less = left[3] < right[3]
    for first, second in zip(left[2::-1], right[2::-1], strict=True):
        less = (first < second) | ((first == second) & less)
    return less


def _halves(key: jax.Array, shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """A fair bit, and a number between 0 and 1/2 from 63 further bits with full relative precision."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32)
    whole = (high & np.uint32(0x7FFFFFFF)).astype(jnp.float32) * np.float32(2**32)
    return high >> np.uint32(31) == 1, (whole + low.astype(jnp.float32) + np.float32(0.5)) * np.float32(
        2**-64
    )


def _exponential(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """`-log V` for a uniform V: from V itself below 1/2, else from 1 - V."""
    low, half = _halves(key, shape)
    return -jnp.where(low, jnp.log(half), jnp.log1p(-half))


def _laplace(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    negative, half = _halves(key, shape)
    size = -jnp.log(2 * half)
    return jnp.where(negative, -size, size)


def _gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return -jnp.log(_exponential(key, shape))


def _gaussian(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Two values from each radius of 64 bits and angle of 32 (Box and Muller 1958)."""
    size = math.prod(shape)
    pairs = (size + 1) // 2
    for_radius, for_angle = jax.random.split(key)
    radius = jnp.sqrt(2 * _exponential(for_radius, (pairs,)))
    angle = jax.random.bits(for_angle, (pairs,), jnp.uint32).astype(jnp.float32) * np.float32(
        2 * math.pi * 2.0**-32
    )
    both = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)])
    return both.reshape(-1)[:size].reshape(shape)


_STANDARD = {
    "gaussian": _gaussian,
    "laplace": _laplace,
    "gumbel": _gumbel,
    "exponential": _exponential,
}
