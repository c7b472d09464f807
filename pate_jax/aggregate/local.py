"""Local noise drawn exactly, and what a collector computes from it: unbiased counts, and answers.

A voter's class is turned into what it sends by one uniform word of 128 bits, or one for each bit, against the
whole-number table of the mechanism (`mechanisms.local`). Everything after `send` is post-processing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float64, Int, Int32, Shaped

from pate_jax.aggregate.noise import check_key
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.local import Local

MISSING = -1  # stands for a question that a voter did not answer


def send(mechanism: Local, labels: Shaped[Any, "*shape"], *, key: jax.Array) -> np.ndarray:
    """What voters send in place of their classes: one number each, or one bit for each class.

    Truncated geometric noise sends what the paper prints: 1..C for the classes 0..C-1, and 0 for no class.

    >>> from pate_jax.aggregate import seeded_key
    >>> send(local.RandomisedResponse(3, 40.0), np.array([[0, 2], [1, 1]]), key=seeded_key(1))
    array([[0, 2],
           [1, 1]], dtype=int32)
    """
    chosen = _checked(mechanism, labels)
    rows = chosen if not local.is_bits(mechanism) else _one_hot(chosen, mechanism.classes)
    words = np.asarray(jax.random.bits(check_key(key), (4, *rows.shape), jnp.uint32))
    return _searched(_ends(mechanism), rows, words)


def send_named(
    mechanism: Local, labels: Shaped[Any, "*shape"], names: Iterable[str], *, secret: bytes
) -> np.ndarray:
    """What `send` gives, where the noise of each class follows from a secret of 32 bytes and its own name.

    Its words are SHAKE-256 of secret and name: equal for equal names, and independent for others.

    >>> response = local.RandomisedResponse(3, 1.0)
    >>> send_named(response, np.array([2, 2, 2]), ["a", "b", "a"], secret=bytes(32)).tolist()
    [2, 1, 2]
    """
    if len(secret) != 32:
        raise PateError(f"secret has {len(secret)} bytes; 32 are wanted")
    chosen = _checked(mechanism, labels)
    rows = chosen if not local.is_bits(mechanism) else _one_hot(chosen, mechanism.classes)
    size = 16 * (rows.size // max(chosen.size, 1))
    drawn = b"".join(hashlib.shake_256(secret + name.encode()).digest(size) for name in names)
    words = np.frombuffer(drawn, ">u4").astype(np.uint32).reshape(*rows.shape, 4)
    return _searched(_ends(mechanism), rows, np.moveaxis(words, -1, 0))


def counts(mechanism: Local, sent: Int[Any, "voters ..."]) -> np.ndarray:
    """How many voters named each value, for each question: [question, value], from [voter, question].

    Voters who did not answer a question are `MISSING` there. For one-hot noise there is one value for each
    class, which counts the bits.

    >>> counts(local.RandomisedResponse(3, 1.0), np.array([[0, -1], [2, 1]])).tolist()
    [[1, 0, 1], [0, 1, 0]]
    """
    values = np.asarray(sent)
    if local.is_bits(mechanism):
        bits: np.ndarray = np.where(values == MISSING, 0, values).sum(axis=0)
        return bits
    each = range(len(local.channel(mechanism)[0]))
    return np.stack([(values == value).sum(axis=0) for value in each], axis=-1)


def estimates(
    mechanism: Local, counted: Int[Any, "questions values"], voters: Int[Any, " questions"]
) -> Float64[np.ndarray, "questions classes"]:
    """Unbiased estimates of the counts of the voters' own classes, from the noisy ones.

    The expected noisy counts are the true ones times the matrix of the channel, which is inverted; for bits,
    `(ones - voters q) / (p - q)` with the chances p and q of a one for a set and for an unset bit.

    >>> noise = local.RandomisedResponse(2, 1.0)
    >>> estimates(noise, np.array([[60, 40]]), np.array([100])).round(1)
    array([[71.6, 28.4]])
    """
    matrix = np.array(local.channel(mechanism), np.float64) / local.WORDS
    noisy = np.asarray(counted, np.float64)
    if local.is_bits(mechanism):
        set_one, unset_one = matrix[1, 1], matrix[0, 1]
        unbiased: np.ndarray = (noisy - np.asarray(voters)[:, None] * unset_one) / (set_one - unset_one)
        return unbiased
    solved: np.ndarray = np.linalg.lstsq(matrix.T, noisy.T, rcond=None)[0].T
    return solved


def answers(mechanism: Local, counted: Int[Any, "questions values"]) -> Int32[np.ndarray, " questions"]:
    """The class that was named most often at each question, or -1 where nobody named one.

    Ties go to another class at each question, so no class is preferred. All voters have one epsilon, so for
    randomised response and one-hot noise this is also the class of the largest estimate.

    >>> answers(local.RandomisedResponse(3, 1.0), np.array([[2, 2, 0], [2, 2, 0], [0, 0, 0]])).tolist()
    [0, 1, -1]
    """
    named = np.asarray(counted)[:, -mechanism.classes :]
    questions, classes = named.shape
    place = (np.arange(classes) - np.arange(questions)[:, None]) % classes
    best = (named * classes + (classes - 1 - place)).argmax(axis=1)
    return np.where(named.sum(axis=1) > 0, best, -1).astype(np.int32)


def _checked(mechanism: Local, labels: Any) -> np.ndarray:
    chosen = np.asarray(labels)
    if chosen.dtype.kind not in "iu":
        raise PateError(f"labels has type {chosen.dtype}; class numbers are wanted")
    if chosen.size and not 0 <= chosen.min() <= chosen.max() < mechanism.classes:
        raise PateError(
            f"labels holds {chosen.min()} to {chosen.max()}, out of range for {mechanism.classes} classes"
        )
    return chosen


def _one_hot(chosen: np.ndarray, classes: int) -> np.ndarray:
    bits: np.ndarray = (chosen[..., None] == np.arange(classes)).astype(np.int64)
    return bits


def _ends(mechanism: Local) -> list[list[np.ndarray]]:
    """For each value but the last, the largest word of each row that sends at most it, in four parts."""
    rows = local.channel(mechanism)
    ends = [np.cumsum(np.array(row, dtype=object)) - 1 for row in rows]
    columns = range(len(rows[0]) - 1)
    return [[_part([int(end[at]) for end in ends], part) for part in range(4)] for at in columns]


def _part(words: list[int], part: int) -> np.ndarray:
    return np.array([word >> (96 - 32 * part) & 0xFFFFFFFF for word in words], np.uint32)


def _searched(ends: list[list[np.ndarray]], rows: np.ndarray, words: np.ndarray) -> np.ndarray:
    """The first value whose largest word is not below the drawn one: the number of ends below it."""
    found = np.zeros(rows.shape, np.int32)
    for end in ends:
        found += _below([part[rows] for part in end], words)
    return found


def _below(left: list[np.ndarray], right: np.ndarray) -> np.ndarray:
    """Whether one number of four words, most significant word first, is less than another."""
    less = left[3] < right[3]
    for at in (2, 1, 0):
        less = (left[at] < right[at]) | ((left[at] == right[at]) & less)
    result: np.ndarray = less
    return result
