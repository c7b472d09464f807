"""The class of each query's largest noisy count: the kernels behind `pate_jax.aggregate`.

All loops run across queries, with counts as [class, query]. Continuous noise for few classes (up to ten with
Gaussian, seven with other noise) is made from one block of the cipher for each query: its words give the
noise of all classes and choose among the largest, and the label is all that leaves the registers. Discrete
noise, and that of more classes, is drawn into memory and searched for its largest entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import noise

_UNROLL = 5  # rows in one step of the loops over rows


class Chance(NamedTuple):
    """All that is random in one call, whatever the scale."""

    noise: (
        Any  # a key, where noise is made in registers; else words of discrete noise, or values of any other
    )
    ties: Any  # uint32[words, query], which chooses among tied classes; None where `noise` is a key


def in_registers(family: str, classes: int) -> bool:
    """Whether noise of this family for so many classes is made in registers, a block for each query."""
    return not family.startswith("discrete") and classes <= noise.values_in(family)


def chance(family: str, key: jax.Array, shape: tuple[int, int], *, stored: bool) -> Chance:
    """What the noise and the ties of one call need; `stored` when several calls will read it."""
    queries, classes = shape
    for_noise, for_ties = jax.random.split(key)
    if not in_registers(family, classes):
        ties = jax.random.bits(for_ties, (4, queries), jnp.uint32)
        return Chance(noise.standard(family, for_noise, (classes, queries)), ties)
    if not stored:
        return Chance(for_noise, None)
    values, spare = _made(family, for_noise, shape, in_line=False)
    return Chance(*jax.lax.optimization_barrier((jnp.stack(values), spare[None])))


def labels(source: noise.Source, counts: Any, chance: Chance) -> Any:
    """The class of the largest noisy count, ties at random; counts are [class, query]."""
    if in_registers(source.family, counts.shape[0]):
        return _in_one_loop(source, counts.astype(jnp.float32), chance)
    noisy = counts + noise.scaled(source, chance.noise)
    most, ties = largest(noisy)
    return place_of(noisy, most, share(tuple(chance.ties), ties))


def _made(family: str, key: jax.Array, shape: tuple[int, int], *, in_line: bool) -> tuple:
    """Noise at scale 1 for each class, an array each, and the word that is left over.

    One block is what XLA can fuse: with a second one compiling takes minutes.
    """
    queries, classes = shape
    words = noise.lanes(key, np.uint32(0), queries, in_line=in_line)
    return noise.from_words(family, words)[:classes], words[-1]


def _in_one_loop(source: noise.Source, counts: Any, chance: Chance) -> Any:
    """The label by operations on whole arrays, class by class.

    The label is the one result, so XLA makes one loop of it all and computes each noisy count once, in a
    register: comparing it with the largest of them is exact.
    """
    if chance.ties is None:
        values, word = _made(source.family, chance.noise, counts.shape[::-1], in_line=True)
    else:
        values, word = chance.noise, chance.ties[0]
    noisy = [count + source.scale * value for count, value in zip(counts, values, strict=True)]
    most = noisy[0]
    for one in noisy[1:]:
        most = jnp.maximum(most, one)
    tied = [(one == most).astype(jnp.uint32) for one in noisy]
    rank = share((word,), sum(tied[1:], tied[0]))
    seen, place = tied[0], tied[0] ^ tied[0]
    for one in tied[1:]:
        place = place + (seen <= rank)
        seen = seen + one
    return place.astype(jnp.int32)


def largest(noisy: Any) -> tuple:
    """The largest entry of each column, and how often it occurs.

    A loop over rows with all columns at once, here and in `place_of`: on a CPU many times faster than an
    argmax and a cumulative sum, and every comparison reads the one array of noisy counts. (Fused reductions
    may compute it twice and round it differently, so that no entry equals the largest.)
    """

    def step(row: Any, state: tuple) -> tuple:
        most, ties = state
        entry = noisy[row]
        ties = jnp.where(entry > most, 1, ties + (entry == most))
        return jnp.maximum(most, entry), ties

    start = (noisy[0], (noisy[0] == noisy[0]).astype(jnp.uint32))
    return jax.lax.fori_loop(1, noisy.shape[0], step, start, unroll=_UNROLL)


def place_of(noisy: Any, most: Any, rank: Any) -> Any:
    """The row, in each column, of the entry of this rank (0 is the first) among the largest ones."""

    def step(row: Any, state: tuple) -> tuple:
        seen, place = state
        seen = seen + (noisy[row] == most)
        return seen, place + (seen <= rank)

    start = (rank ^ rank, (rank ^ rank).astype(jnp.int32))
    return jax.lax.fori_loop(0, noisy.shape[0], step, start, unroll=_UNROLL)[1]


def share(words: tuple, count: Any) -> Any:
    """`floor(w count / 2^n)` for the number w of n bits in these words and a count below 2^16."""
    carry = words[0] ^ words[0]
    for word in words[::-1]:
        for part in (word & np.uint32(0xFFFF), word >> np.uint32(16)):
            carry = (part * count + carry) >> np.uint32(16)
    return carry
