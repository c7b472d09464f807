"""The class of each query's largest noisy count: the kernels behind `pate_jax.aggregate`.

All loops run across queries, with counts as [class, query]. Continuous noise is computed in registers:
classes form groups of at most ten (seven if the noise is not Gaussian), and one block of the cipher for each
query and group gives the noise of all its classes and breaks ties. Only the group's largest noisy count and
its class leave the registers. Discrete noise, and continuous noise that serves several settings, is drawn
into memory, where the largest entries are searched.
"""

from __future__ import annotations

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Integer, Shaped

from pate_jax.aggregate import chacha, noise
from pate_jax.errors import PateError
from pate_jax.mechanisms.descriptions import Family

_UNROLL = 5  # rows in one step of the loops over rows
_NORMAL = np.uint32(1 << 29)  # added to any 29 bits, it gives a float that no backend flushes to zero


class Chance(NamedTuple):
    """All random numbers of one call, whatever the scale."""

    noise: Array  # a key, if noise is computed in registers; else [class, query] or words of discrete noise
    ties: Array | None  # uint32[words, query], which break ties; None if `noise` is a key


class Layout(NamedTuple):
    """Classes in groups: class `slot * groups + group` is in that slot of that group."""

    slots: int
    groups: int


def layout(family: Family, classes: int) -> Layout:
    """Groups of equal size, as few as the words of a block allow.

    >>> layout("gaussian", 10), layout("gaussian", 11), layout("laplace", 150)
    (Layout(slots=10, groups=1), Layout(slots=6, groups=2), Layout(slots=7, groups=22))
    """
    groups = -(-classes // noise.values_in(family))
    return Layout(-(-classes // groups), groups)


def chance(family: Family, key: jax.Array, shape: tuple[int, int], *, stored: bool) -> Chance:
    """The random numbers for noise and ties of one call; `stored` if several calls will read them."""
    queries, classes = shape
    for_noise, for_ties = jax.random.split(key)
    if noise.is_drawn_from_table(family):
        ties = jax.random.bits(for_ties, (4, queries), jnp.uint32)
        return Chance(noise.standard(family, for_noise, (classes, queries)), ties)
    slots, groups = layout(family, classes)
    if groups * queries > 1 << 32:
        raise PateError(
            f"queries={queries} of {classes} classes exceed one key's blocks: answer them in parts"
        )
    if not stored:
        return Chance(for_noise, None)
    words = noise.lanes(for_noise, np.uint32(0), groups * queries, in_line=False)
    values = jnp.stack(noise.from_words(family, words)[:slots]).reshape(slots * groups, queries)
    return Chance(values[:classes], words[-1][None, :queries])


def labels(
    source: noise.Source, counts: Integer[Array, "classes queries"], chance: Chance
) -> Int32[Array, " queries"]:
    """The class of the largest noisy count, with ties broken at random; counts are [class, query]."""
    if chance.ties is None:
        return _group_by_group(source, counts.astype(jnp.float32), chance.noise)
    drawn = noise.scaled(source, chance.noise)
    chex.assert_equal_shape([counts, drawn])
    noisy = counts + drawn
    most, ties = largest(noisy)
    return place_of(noisy, most, share(tuple(chance.ties), ties))


def _group_by_group(source: noise.Source, counts: Array, key: Array) -> Array:
    """The labels, from a loop over groups that keeps the largest noisy count so far.

    Block `group * queries + query` of the key's stream serves only that group and query.
    """
    classes, queries = counts.shape
    slots, groups = layout(source.family, classes)
    missing = jnp.full((slots * groups - classes, queries), -jnp.inf, counts.dtype)
    counts = jnp.concatenate([counts, missing]).reshape(slots, groups, queries)

    def after(group: chacha.Number, best: Array | None) -> Array:
        def take(rows: Array) -> Array:
            row: Array = jax.lax.dynamic_index_in_dim(rows, group, keepdims=False)
            return row

        first = jnp.asarray(group, jnp.uint32) * np.uint32(queries)
        words = noise.lanes(key, first, queries, in_line=True)
        values = noise.from_words(source.family, words)[:slots]
        noisy = [take(row) + source.scale * value for row, value in zip(counts, values, strict=True)]
        return _best(noisy, words[-1], group, groups, best)

    best = after(0, None)
    if groups > 1:  # XLA would dissolve a loop of one step, and take minutes over two blocks at once
        best = jax.lax.fori_loop(1, jax.lax.optimization_barrier(np.int32(groups)), after, best)
    return _unpacked(best)[2].astype(jnp.int32)


def _best(noisy: list[Array], word: Array, group: chacha.Number, groups: int, best: Array | None) -> Array:
    """The largest noisy count so far, how many classes have it, and one of them at random.

    All three are returned as ONE array, the parts of a complex number. So XLA makes a single loop of it all
    and computes each noisy count once, in a register, which makes its comparison with the largest one exact.
    """
    most = noisy[0]
    for one in noisy[1:]:
        most = jnp.maximum(most, one)
    seen, label = jnp.uint32(0), jnp.uint32(0)
    if best is not None:
        before, ties, label = _unpacked(best)
        most = jnp.maximum(most, before)
        seen = jnp.where(before == most, ties, jnp.uint32(0))
    tied = [(one == most).astype(jnp.uint32) for one in noisy]
    ties = sum(tied, seen)
    rank = share((word,), ties)
    for slot, one in enumerate(tied):
        here = (one == 1) & (seen <= rank)  # the last such slot is the one of this rank
        label = jnp.where(here, jnp.uint32(slot * groups) + jnp.asarray(group, jnp.uint32), label)
        seen = seen + one
    return _packed(most, ties, label)


def _packed(most: Array, ties: Array, label: Array) -> Array:
    """The three numbers in one complex number, with 15 bits for the label and 14 for the number of ties.

    Still more ties are no longer broken quite evenly.
    """
    code = _NORMAL | jnp.minimum(ties, np.uint32((1 << 14) - 1)) << np.uint32(15) | label
    return jax.lax.complex(most, jax.lax.bitcast_convert_type(code, jnp.float32))


def _unpacked(best: Array) -> tuple[Array, Array, Array]:
    code = jax.lax.bitcast_convert_type(best.imag, jnp.uint32) ^ _NORMAL
    return best.real, code >> np.uint32(15), code & np.uint32((1 << 15) - 1)


def largest(
    noisy: Shaped[Array, "rows columns"],
) -> tuple[Shaped[Array, " columns"], Shaped[Array, " columns"]]:
    """The largest entry of each column, and how often it occurs.

    Here and in `place_of`, a loop over rows treats all columns at once. On a CPU this is many times faster
    than an argmax and a cumulative sum, and every comparison reads the same array of noisy counts. (Fused
    reductions may compute the array twice and round differently, so that no entry equals the largest.)
    """

    def step(row: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        most, ties = state
        entry = noisy[row]
        ties = jnp.where(entry > most, 1, ties + (entry == most))
        return jnp.maximum(most, entry), ties

    start = (noisy[0], (noisy[0] == noisy[0]).astype(jnp.uint32))
    result: tuple[Array, Array] = jax.lax.fori_loop(1, noisy.shape[0], step, start, unroll=_UNROLL)
    return result


def place_of(
    noisy: Shaped[Array, "rows columns"], most: Shaped[Array, " columns"], rank: Shaped[Array, " columns"]
) -> Int32[Array, " columns"]:
    """The row, in each column, of the entry of this rank (0 is the first) among the largest entries."""

    def step(row: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        seen, place = state
        seen = seen + (noisy[row] == most)
        return seen, place + (seen <= rank)

    start = (rank ^ rank, (rank ^ rank).astype(jnp.int32))
    result: tuple[Array, Array] = jax.lax.fori_loop(0, noisy.shape[0], step, start, unroll=_UNROLL)
    return result[1]


def share(words: tuple[Array, ...], count: Array) -> Array:
    """`floor(w count / 2^n)` for the n-bit number w in these words and a count below 2^16."""
    carry = words[0] ^ words[0]
    for word in words[::-1]:
        for part in (word & np.uint32(0xFFFF), word >> np.uint32(16)):
            carry = (part * count + carry) >> np.uint32(16)
    return carry
