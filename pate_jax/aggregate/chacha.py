"""ChaCha20 (RFC 8439) as two kinds of JAX key: one for private noise, one for reproducible experiments.

A key has 256 bits. Everything derived from it is a ChaCha20 block whose nonce belongs to one domain, so
random bits, children of `split` and children of `fold_in` never share a block. The two kinds of key have
different domains and different types, and the type follows a key through jit, vmap, split and fold_in:

- `PRIVATE`: cannot be made from a number. Its 256 bits come from the operating system (`noise.fresh_key`).
- `SEEDED`: made from a number, so everyone who knows the number knows the noise. NOT private.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.extend.random
import jax.numpy as jnp
import numpy as np

from pate_jax.errors import PateError

KEY_WORDS = 8
_BLOCK_WORDS = 16
_CONSTANTS = np.frombuffer(b"expand 32-byte k", np.uint32)
_DOUBLE_ROUNDS = 10
_GROUP = 8192  # blocks computed together: half a mebibyte
_FEW = 2048  # blocks up to which compiling the cipher takes longer than computing it

# the first nonce word: the use of the key that a block serves
_BITS, _SPLIT, _FOLD_IN, _SEED, _LANES = 1, 2, 3, 4, 5
_SEEDED_DOMAIN = 0x100  # added for seeded keys
Words = tuple[jax.Array, ...]
Number = int | np.integer | jax.Array
Nonce = tuple[Number, Number, Number]


def block(key: jax.Array, counter: jax.Array, nonce: Nonce) -> jax.Array:
    """The ChaCha20 block function of RFC 8439, section 2.3, for many counters at once.

    `key` is uint32[8], `counter` uint32[n], `nonce` three numbers or arrays that broadcast with the counter.
    Returns uint32[16, n]: column i is the block of `counter[i]`.
    """
    start = _start(key, counter, nonce)
    if start[0].ndim == 1 and start[0].size <= _FEW:
        return _by_rows(start)
    end = jax.lax.fori_loop(0, _DOUBLE_ROUNDS, lambda _, words: _double_round(words), start)
    return jnp.stack([first + last for first, last in zip(start, end, strict=True)])


def block_in_line(key: jax.Array, counter: jax.Array, nonce: Nonce) -> Words:
    """The same words as `block`, one array each, by a thousand operations without a loop.

    It is meant for a reader that reduces all sixteen words to ONE array. XLA then makes one loop of cipher
    and reader, in which the words stay in registers; on a CPU this is three times as fast as `block`. For a
    reader with several results, XLA would compute the cipher again for each of them.
    """
    start = end = _start(key, counter, nonce)
    for _ in range(_DOUBLE_ROUNDS):
        end = _double_round(end)
    return tuple(first + last for first, last in zip(start, end, strict=True))


def _start(key: jax.Array, counter: jax.Array, nonce: Nonce) -> Words:
    counter = jnp.asarray(counter, jnp.uint32)
    nothing = (counter ^ counter) + (key[0] ^ key[0])  # zeros, by which all words vary over a mesh as the key
    parts = [*_CONSTANTS, *(key[i] for i in range(KEY_WORDS)), counter, *nonce]
    return tuple(nothing + jnp.asarray(part, jnp.uint32) for part in parts)


def _by_rows(start: Words) -> jax.Array:
    """The blocks from four rows of four words each, in an eighth of the operations: quick to compile."""
    rows = tuple(jnp.stack(start[row : row + 4]) for row in range(0, _BLOCK_WORDS, 4))
    end = jax.lax.fori_loop(0, _DOUBLE_ROUNDS, _double_round_of_rows, rows)
    return jnp.concatenate([first + last for first, last in zip(rows, end, strict=True)])


def _double_round_of_rows(_: Number, rows: Words) -> Words:
    for turns in ((0, 1, 2, 3), (0, 3, 2, 1)):  # columns, then diagonals: columns of rows that are turned
        rows = tuple(map(_turned, _quarter_round(*rows), turns))
    return rows


def _turned(row: jax.Array, places: int) -> jax.Array:
    parts = (jax.lax.slice_in_dim(row, places, 4), jax.lax.slice_in_dim(row, 0, places))
    return jax.lax.concatenate(parts, 0) if places else row


@jax.jit  # so that ten in a row are traced and lowered once; XLA puts all of them in line
def _double_round(state: Words) -> Words:
    words = list(state)
    for shift in (0, 1):  # columns, then diagonals
        for i in range(4):
            at = [4 * row + (i + row * shift) % 4 for row in range(4)]
            for place, word in zip(at, _quarter_round(*(words[place] for place in at)), strict=True):
                words[place] = word
    return tuple(words)


def _quarter_round(a: jax.Array, b: jax.Array, c: jax.Array, d: jax.Array) -> Words:
    a = a + b
    d = _rotate(d ^ a, 16)
    c = c + d
    b = _rotate(b ^ c, 12)
    a = a + b
    d = _rotate(d ^ a, 8)
    c = c + d
    b = _rotate(b ^ c, 7)
    return a, b, c, d


def _rotate(word: jax.Array, places: int) -> jax.Array:
    return (word << np.uint32(places)) | (word >> np.uint32(32 - places))


def _words(key: jax.Array, count: int, domain: int, detail: int = 0) -> jax.Array:
    """`count` words of the domain's stream.

    Blocks form groups of equal size, at most `_GROUP`. A group lists the first words of all its blocks, then
    the second words, and so on, so nothing has to be transposed, and a group fits into a CPU's cache. The
    order depends only on the count, so every platform draws the same numbers.
    """
    blocks = -(-count // _BLOCK_WORDS)
    groups = max(1, -(-blocks // _GROUP))
    size = -(-blocks // groups)
    if groups * size > 1 << 32:
        raise PateError(f"{count} words from one key exceed ChaCha20's counter; split the key")
    nonce = (domain, detail, 0)
    if groups == 1:
        words = block(key, jax.lax.iota(jnp.uint32, size), nonce)
    else:
        words = jax.lax.platform_dependent(
            key, cpu=partial(_in_turn, groups, size, nonce), default=partial(_at_once, groups, size, nonce)
        )
    return words.reshape(-1)[:count]


def _in_turn(groups: int, size: int, nonce: Nonce, key: jax.Array) -> jax.Array:
    firsts = jnp.arange(groups, dtype=jnp.uint32) * np.uint32(size)
    words: jax.Array = jax.lax.map(
        lambda first: block(key, first + jax.lax.iota(jnp.uint32, size), nonce), firsts
    )
    return words


def _at_once(groups: int, size: int, nonce: Nonce, key: jax.Array) -> jax.Array:
    words = block(key, jax.lax.iota(jnp.uint32, groups * size), nonce)
    return words.reshape(_BLOCK_WORDS, groups, size).swapaxes(0, 1)


@partial(jax.jit, static_argnames=("bit_width", "shape", "domain"))
def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...], *, domain: int) -> jax.Array:
    if bit_width not in (8, 16, 32, 64):
        raise PateError(f"bit_width={bit_width} must be 8, 16, 32 or 64")
    size = math.prod(shape)
    words = _words(key, -(-size * bit_width // 32), domain + _BITS, bit_width)
    if bit_width == 32:
        return words.reshape(shape)
    if bit_width == 64:
        pairs = words.reshape(2, -1).astype(jnp.uint64)
        wide: jax.Array = pairs[0] << np.uint64(32) | pairs[1]
        return wide.reshape(shape)
    narrow = jnp.dtype(f"uint{bit_width}")
    parts = jnp.stack([(words >> np.uint32(shift)).astype(narrow) for shift in range(0, 32, bit_width)])
    return parts.reshape(-1)[:size].reshape(shape)


@partial(jax.jit, static_argnames=("shape", "domain"))
def _split(key: jax.Array, shape: tuple[int, ...], *, domain: int) -> jax.Array:
    count = math.prod(shape)
    blocks = block(key, jax.lax.iota(jnp.uint32, count), (domain + _SPLIT, 0, 0))
    return blocks[:KEY_WORDS].T.reshape(*shape, KEY_WORDS)


@partial(jax.jit, static_argnames="domain")
def _fold_in(key: jax.Array, number: Number, *, domain: int) -> jax.Array:
    counter = jnp.asarray(number, jnp.uint32).reshape(1)
    return block(key, counter, (domain + _FOLD_IN, 0, 0))[:KEY_WORDS, 0]


def lanes(key: jax.Array, first: Number, count: int, *, private: bool, in_line: bool) -> Words:
    """Sixteen words of the blocks `first` .. `first + count - 1`, one array for each word.

    These blocks have their own domain and are numbered, so a kernel can compute the words of its own queries
    where it needs them. Both forms, `in_line` or not, give the same words.
    """
    nonce = ((0 if private else _SEEDED_DOMAIN) + _LANES, 0, 0)
    counter = jnp.asarray(first, jnp.uint32) + jax.lax.iota(jnp.uint32, count)
    return block_in_line(key, counter, nonce) if in_line else tuple(block(key, counter, nonce))


def _refuse_seed(seed: Number) -> jax.Array:
    raise PateError(
        "a private key cannot be made from a number: use pate_jax.fresh_key(), "
        "or seeded_key(seed) for an experiment that is not private"
    )


@jax.jit
def _expand_seed(seed: Number) -> jax.Array:
    """A key from a seed: the first half of the block under the key (low, high, 0, ..) in its own domain."""
    low = jnp.asarray(seed).astype(jnp.uint32)
    wide = jnp.asarray(seed).dtype.itemsize == 8
    high = (jnp.asarray(seed) >> 32).astype(jnp.uint32) if wide else jnp.zeros_like(low)
    key = jnp.zeros(KEY_WORDS, jnp.uint32).at[0].set(low).at[1].set(high)
    return block(key, jnp.zeros(1, jnp.uint32), (_SEEDED_DOMAIN + _SEED, 0, 0))[:KEY_WORDS, 0]


def _define(name: str, tag: str, domain: int, seed: Any) -> Any:
    return jax.extend.random.define_prng_impl(
        key_shape=(KEY_WORDS,),
        seed=seed,
        split=partial(_split, domain=domain),
        random_bits=partial(_random_bits, domain=domain),
        fold_in=partial(_fold_in, domain=domain),
        name=name,
        tag=tag,
    )


PRIVATE = _define("pate_chacha20", "pcc", 0, _refuse_seed)
SEEDED = _define("pate_chacha20_seeded", "pcs", _SEEDED_DOMAIN, _expand_seed)
