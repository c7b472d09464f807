"""Keys from operating-system entropy, and the samplers of every family of noise.

**Keys.** JAX's default key has 64 bits, too few to protect the noise. `fresh_key` makes a 256-bit ChaCha20
key (`pate_jax.aggregate.chacha`) from the operating system's entropy, and raises if there is none.
`seeded_key` makes a reproducible key of another type: everyone who knows the seed knows the noise, so its
draws are NOT private. `is_private` distinguishes the two, also under jit.

**Samplers.** Discrete noise is drawn by searching the 128-bit table of its law (`mechanisms.laws`) in a fixed
number of steps, with integers only, so the same key gives the same values on any CPU, GPU or TPU. Continuous
noise is float32, drawn from uniform numbers of 64 bits whose logarithms keep their relative precision at both
ends. `laws.distance` says what is claimed for each.

**Tables.** The whole table of a crowd gets the noise that `mechanisms.crowds` describes.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import get_opaque_trace_state
from jaxtyping import Int, Int32
from numpy.typing import ArrayLike

from pate_jax.aggregate import chacha
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise, laws
from pate_jax.mechanisms.crowds import CrowdRelease
from pate_jax.mechanisms.descriptions import Family
from pate_jax.system import devices


def fresh_key(*, shared: bool | None = None) -> jax.Array:
    """A private key: 256 bits of the operating system's entropy. Raises if there is no entropy.

    It is refused where JAX traces, since the key would be a constant of the program: all calls of the
    program, lanes of vmap and steps of a scan would share one noise.

    In a program of several processes (`jax.distributed`) say whether the key is `shared`. If so, all
    processes call this together and get the key of the first one, as what they compute together needs. If
    not, the key is this process's alone, as votes that it answers alone need.

    >>> key = fresh_key()
    >>> is_private(key), key.shape
    (True, ())
    """
    if _is_traced():
        raise PateError(
            "fresh_key() within jit, vmap, grad, scan or shard_map would give every call, lane and step the "
            "same noise: make the key outside, and pass it as an argument"
        )
    if shared is None and devices.processes() > 1:
        raise PateError(
            f"fresh_key() in a program of {devices.processes()} processes needs shared=True, called by all "
            "together, for what they compute together, or shared=False for what each computes alone"
        )
    try:
        entropy = secrets.token_bytes(4 * chacha.KEY_WORDS)
    except (OSError, NotImplementedError) as error:
        raise PateError("the operating system gave no entropy, so no private noise can be drawn") from error
    words = np.frombuffer(devices.from_first(entropy) if shared else entropy, np.uint32)
    if words.size != chacha.KEY_WORDS or not words.any():
        raise PateError(f"the operating system gave {len(entropy)} usable bytes of entropy instead of 32")
    key: jax.Array = jax.random.wrap_key_data(jnp.asarray(words), impl=chacha.PRIVATE)
    return key


def _is_traced() -> bool:
    """Whether JAX traces the program that calls this, so that what the host draws becomes a constant."""
    with jax.core.eval_context():
        outside = get_opaque_trace_state()
    return bool(get_opaque_trace_state() != outside)


def seeded_key(seed: int) -> jax.Array:
    """A reproducible key for experiments. NOT private: the seed determines all noise drawn from it.

    >>> is_private(seeded_key(7))
    False
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 32:
        raise PateError(f"seed={seed!r} must be a whole number from 0 to 2^32 - 1")
    return jax.random.key(np.uint32(seed), impl=chacha.SEEDED)


def check_key(key: object) -> jax.Array:
    """The key, if it is a single typed JAX key; anything else is refused."""
    if not isinstance(key, jax.Array) or not jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        raise PateError(
            f"key={type(key).__name__} is not a typed JAX key: use pate_jax.fresh_key(), "
            "or seeded_key(seed) for an experiment that is not private"
        )
    if key.shape != ():
        raise PateError(f"key has shape {key.shape} where a single key is wanted: vmap over the keys")
    return key


def is_private(key: jax.Array) -> bool:
    """Whether a key descends from `fresh_key`: its type says so, so this works under jit.

    >>> is_private(jax.random.key(0))
    False
    """
    dtype = getattr(key, "dtype", None)
    return dtype is not None and dtype == _PRIVATE_DTYPE


def _dtype_of(kind: Any) -> Any:
    words = jax.ShapeDtypeStruct((chacha.KEY_WORDS,), jnp.uint32)
    return jax.eval_shape(lambda data: jax.random.wrap_key_data(data, impl=kind), words).dtype


_PRIVATE_DTYPE, _SEEDED_DTYPE = _dtype_of(chacha.PRIVATE), _dtype_of(chacha.SEEDED)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Source:
    """Noise prepared for drawing on a device; a pytree that can be stacked and mapped over.

    A continuous family has a `scale`; a discrete one has a table, `words` and `lowest`.
    """

    family: Family = field(metadata={"static": True})
    scale: Any
    words: Any  # uint32[rows, 4], a power of two of rows
    lowest: Any


def source(noise: Noise, length: int | None = None) -> Source:
    """The noise prepared for `draw`; tables of several scales can be padded to one `length`.

    >>> source(Noise("discrete_gaussian", 1.0)).words.shape
    (64, 4)
    """
    if not noise.is_discrete:
        return Source(noise.family, jnp.asarray(noise.scale, jnp.float32), None, None)
    if isinstance(noise.scale, jax.core.Tracer):
        raise PateError(
            "a discrete noise's table is built on the host, so its scale cannot be traced: "
            "make the mechanism ready outside jit with pate_jax.aggregate.prepare(mechanism)"
        )
    law = laws.table(noise, length)
    return Source(noise.family, None, jnp.asarray(law.words), jnp.asarray(np.int32(law.lowest)))


def draw(noise: Noise | Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Independent values of the noise: int32 for discrete families, float32 for continuous ones.

    >>> draw(Noise("discrete_laplace", 2.0), seeded_key(1), (3,)).dtype
    dtype('int32')
    """
    ready = noise if isinstance(noise, Source) else source(noise)
    return scaled(ready, standard(ready.family, key, shape))


def standard(family: Family, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The random part of a draw, whatever the scale: noise of scale 1, or words to look up in a table."""
    if family == "gaussian":
        return _gaussian(key, shape)
    if family in _FROM_PAIR:
        return _FROM_PAIR[family](*jax.random.bits(key, (2, *shape), jnp.uint32))
    if not is_drawn_from_table(family):
        raise PateError(f"no sampler is known here of {family} noise")
    return jax.random.bits(key, (4, *shape), jnp.uint32)


def lanes(key: jax.Array, first: chacha.Number, count: int, *, in_line: bool) -> chacha.Words:
    """Sixteen arrays of `count` random words: the blocks from `first` on of one stream.

    With `in_line`, the words of a ChaCha20 key need not be stored in memory (see `chacha.block_in_line`).
    Keys of other kinds give their own bits, with another stream for each `first`.
    """
    if key.dtype in (_PRIVATE_DTYPE, _SEEDED_DTYPE):
        private = key.dtype == _PRIVATE_DTYPE
        return chacha.lanes(jax.random.key_data(key), first, count, private=private, in_line=in_line)
    return tuple(jax.random.bits(jax.random.fold_in(key, first), (16, count), jnp.uint32))


def is_drawn_from_table(family: Family) -> bool:
    """Whether noise of this family is discrete, so that it is drawn from the table of its law.

    >>> is_drawn_from_table("discrete_laplace"), is_drawn_from_table("laplace")
    (True, False)
    """
    return Noise(family, 1.0).is_discrete


def values_in(family: Family) -> int:
    """How many values of noise the sixteen words of a block give; one word is left over.

    >>> values_in("gaussian"), values_in("laplace")
    (10, 7)
    """
    return 10 if family == "gaussian" else 7


def from_words(family: Family, words: chacha.Words) -> list[jax.Array]:
    """`values_in` values of continuous noise at scale 1, by the same transforms as `standard`."""
    if family == "gaussian":
        return [value for at in range(0, 15, 3) for value in _gaussian_pair(*words[at : at + 3])]
    return [_FROM_PAIR[family](*words[at : at + 2]) for at in range(0, 14, 2)]


def scaled(source: Source, chance: jax.Array) -> jax.Array:
    """The noise at the source's scale, from the random part that `standard` gives."""
    if source.words is None:
        continuous: jax.Array = source.scale * chance
        return continuous
    discrete: jax.Array = source.lowest + _search(source.words, tuple(chance))
    return discrete


def _search(table: jax.Array, words: chacha.Words) -> jax.Array:
    """The first row that is at least the 128-bit word, in a fixed number of steps."""
    rows = table.shape[0]
    start = (words[0] ^ words[0]) + (table[0, 0] ^ table[0, 0])  # zeros that vary over a mesh as both do

    def halve(index: jax.Array, place: jax.Array) -> jax.Array:
        step = jnp.int32(rows // 2) >> index
        at = place + (step - 1)
        row = tuple(table.at[at, part].get(mode="promise_in_bounds") for part in range(4))
        moved: jax.Array = place + step * _below(row, words).astype(jnp.int32)
        return moved

    place: jax.Array = jax.lax.fori_loop(0, rows.bit_length() - 1, halve, start.astype(jnp.int32))
    return place


def _below(left: chacha.Words, right: chacha.Words) -> jax.Array:
    """Whether one number of four words, most significant word first, is less than another."""
    less = left[3] < right[3]
    for first, second in zip(left[2::-1], right[2::-1], strict=True):
        less = (first < second) | ((first == second) & less)
    return less


def _coin_and_half(high: jax.Array, low: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A fair bit, and a number between 0 and 1/2 with full relative precision from the other 63 bits."""
    whole = (high & np.uint32(0x7FFFFFFF)).astype(jnp.float32) * np.float32(2**32)
    return high >> np.uint32(31) == 1, (whole + low.astype(jnp.float32) + np.float32(0.5)) * np.float32(
        2**-64
    )


@jax.jit  # as the others of which a block gives several: traced once for all of them
def _minus_log(high: jax.Array, low: jax.Array) -> jax.Array:
    """`-log V` of a uniform V: from V itself if it is below 1/2, else from 1 - V.

    `log(1 - h)` is the logarithm of the rounded `u = 1 - h` times `h / (1 - u)`, which corrects the rounding.
    So one logarithm serves both halves, and every backend vectorises it.
    """
    below, half = _coin_and_half(high, low)
    other = 1 - half
    size = -jnp.log(jnp.where(below, half, other))
    corrected = jnp.where(other == 1, half, size * (half / (1 - jnp.minimum(other, 1 - 2.0**-24))))
    return jnp.where(below, size, corrected)


@jax.jit
def _minus_log_log(high: jax.Array, low: jax.Array) -> jax.Array:
    return -jnp.log(_minus_log(high, low))


@jax.jit
def _signed_log(high: jax.Array, low: jax.Array) -> jax.Array:
    negative, half = _coin_and_half(high, low)
    size = -jnp.log(2 * half)
    return jnp.where(negative, -size, size)


@jax.jit
def _gaussian_pair(high: jax.Array, low: jax.Array, turn: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two values from a radius of 64 bits and an angle of 32 (Box and Muller 1958)."""
    radius = jnp.sqrt(2 * _minus_log(high, low))
    return radius * _cosine(turn), radius * _cosine(turn - np.uint32(1 << 30))  # sin x = cos(x - quarter)


def _gaussian(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    size = math.prod(shape)
    high, low, turn = jax.random.bits(key, (3, (size + 1) // 2), jnp.uint32)
    radius = jnp.sqrt(2 * _minus_log(high, low))
    quarter = jnp.asarray([[0], [1 << 30]], jnp.uint32)  # broadcast: XLA would make two joined halves twice
    return (radius * _cosine(turn - quarter)).reshape(-1)[:size].reshape(shape)


def _cosine(turn: jax.Array) -> jax.Array:
    """The cosine of `turn / 2^32` of a circle: two bits give the quarter, thirty bits the place within it."""
    within = ((turn << np.uint32(2)).astype(jnp.int32) >> 2).astype(jnp.float32) * np.float32(2.0**-30)
    square = within * within
    quarter = (turn + np.uint32(1 << 29)) >> np.uint32(30)  # the nearest one
    even, odd = _polynomial(_COSINE, square), -within * _polynomial(_SINE, square)
    size = jnp.where(quarter & 1 == 0, even, odd)
    return jnp.where(quarter >= 2, -size, size)


def _polynomial(coefficients: np.ndarray, x: jax.Array) -> jax.Array:
    total = jnp.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total = total * x + coefficient
    return total


def _fit(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Coefficients of a near-minimax polynomial in the squared place within a quarter, from 0 to 1/4."""
    series = np.polynomial.Chebyshev.interpolate(function, 4, domain=[0, 0.25])
    return series.convert(kind=np.polynomial.Polynomial).coef.astype(np.float32)


_COSINE = _fit(lambda square: np.cos(np.pi / 2 * np.sqrt(square)))
_SINE = _fit(lambda square: np.pi / 2 * np.sinc(np.sqrt(square) / 2))
_FROM_PAIR: dict[str, Callable[[jax.Array, jax.Array], jax.Array]] = {
    "laplace": _signed_log,
    "gumbel": _minus_log_log,
    "exponential": _minus_log,
}


def share(of: Noise, shape: tuple[int, ...], *, key: jax.Array) -> Int[np.ndarray, "*shape"]:
    """Independent whole noise for every number of a table; a key serves one table only.

    >>> share(Noise("discrete_gaussian", 28.3), (2, 3), key=seeded_key(7)).shape
    (2, 3)
    """
    check_key(key)
    if not of.is_discrete:
        raise PateError(f"noise of {of.family!r} is not whole: shares are added up as whole numbers")
    return np.asarray(_drawn(source(of), key, shape), np.int64)


@partial(jax.jit, static_argnames="shape")
def _drawn(source: Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return draw(source, key, shape)


class NoisyTable(NamedTuple):
    """What is released, and what is known of it: all that follows from the two is free of cost."""

    values: Int[np.ndarray, "rows columns"]
    release: CrowdRelease


def noisy_table(release: CrowdRelease, table: ArrayLike, *, key: jax.Array) -> NoisyTable:
    """The table with independent whole noise in every cell; a key serves one table only.

    >>> from pate_jax.mechanisms.crowds import NeighbourCounts
    >>> release = NeighbourCounts(queries=2, classes=3, votes=1, sigma=1.5)
    >>> made = noisy_table(release, np.array([[9, 0, 0], [0, 5, 2]]), key=seeded_key(7))
    >>> made.values.shape, made.values.dtype
    ((2, 3), dtype('int64'))
    """
    check_key(key)
    counts = np.asarray(table)
    if counts.shape != release.shape or counts.dtype.kind not in "iu":
        raise PateError(
            f"a table {list(counts.shape)} of {counts.dtype} is given for a release of whole numbers "
            f"{list(release.shape)}: give the sums that were made for it"
        )
    drawn = noise_on(release, key=key)
    return NoisyTable(counts.astype(np.int64) + np.asarray(drawn, np.int64), release)


def noise_on(release: CrowdRelease, *, key: jax.Array) -> Int32[jax.Array, "rows columns"]:
    """The noise alone, for a program of your own: add it once to the table of all voters, in whole numbers.

    It runs under jit, and on every device of a mesh that is given the same key it is the same noise.

    >>> from pate_jax.mechanisms.crowds import ClassSums
    >>> release = ClassSums(classes=3, directions=2, length=10, sigma=90.0)
    >>> noise_on(release, key=seeded_key(7)).shape
    (3, 2)
    """
    check_key(key)
    drawn: jax.Array = _draw(source(release.noise), key, release.shape)
    return drawn


@partial(jax.jit, static_argnames="shape")
def _draw(source: Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """One program for all tables of a shape: outside jit every draw would trace and compile its search."""
    return draw(source, key, shape)
