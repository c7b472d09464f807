"""Shamir's secret sharing of whole arrays, modulo a prime.

A secret s is shared with the polynomial `f(x) = s + c_1 x + ... + c_t x^t`, whose coefficients c are uniform
and independent; party i (from 0) receives `f(i + 1)`. Any t shares are uniform and independent of s, and any
t + 1 shares give it. The sum of two parties' shares is a share of the sum, and so is a share times a known
number. The product of shares lies on a polynomial of degree 2t.

The points and the polynomials are MPyC's, so shares made here go on in its protocols. What is added is speed:
MPyC draws and multiplies Python integers one by one, while `Mersenne` works on arrays of 64 bits, with the
prime `2^61 - 1`. `Prime` serves any prime with Python's integers.

Numbers travel between parties as bytes of one fixed width.
MPyC pickles arrays. Reading a pickle may run any program of whoever wrote it, so a party could take over all
others. `engine` puts this module's `dumps` and `loads` in the place of pickle's. They also take fewer bytes.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

import numpy as np
from jaxtyping import Integer, Shaped, UInt64

from pate_jax.errors import PateError

MERSENNE = 2**61 - 1
_P = np.uint64(MERSENNE)
_LOW31, _LOW30 = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
_ONE, _S30, _S31, _S61 = (np.uint64(number) for number in (1, 30, 31, 61))


class Prime:
    """Arithmetic on arrays of Python integers modulo a prime."""

    def __init__(self, modulus: int) -> None:
        self.modulus = modulus

    def of(self, values: Integer[np.ndarray, "*shape"]) -> Shaped[np.ndarray, "*shape"]:
        """Integers as residues."""
        found: np.ndarray = values.astype(object) % self.modulus
        return found

    def uniform(self, *shape: int) -> Shaped[np.ndarray, "*shape"]:
        """Uniform residues from the system's secure randomness."""
        count, width = int(np.prod(shape)), (self.modulus.bit_length() + 7) // 8 + 16  # 128 bits too many
        raw = secrets.token_bytes(count * width)
        drawn = [int.from_bytes(raw[i : i + width], "little") for i in range(0, len(raw), width)]
        found: np.ndarray = np.array(drawn, object).reshape(shape) % self.modulus
        return found

    def add(self, first: np.ndarray, second: np.ndarray) -> np.ndarray:
        """The sum of two arrays."""
        found: np.ndarray = (first + second) % self.modulus
        return found

    def times(self, first: np.ndarray, second: Any) -> np.ndarray:
        """The product of two arrays, or of an array and a number."""
        found: np.ndarray = first * second % self.modulus
        return found

    def total(self, values: np.ndarray) -> int:
        """The sum of all elements, as a residue."""
        return int(values.sum()) % self.modulus

    def public(self, seed: bytes, count: int) -> Shaped[np.ndarray, " coefficient"]:
        """Numbers below 2^61 that everybody expands from one seed."""
        return expand(seed, count).astype(object)

    def pack(self, values: np.ndarray) -> bytes:
        """An array as bytes."""
        return dumps(values)

    def unpack(self, content: bytes, count: int) -> Shaped[np.ndarray, " number"]:
        """The array of this many residues that `pack` wrote."""
        found = loads(content)
        if len(found) != count or any(number >= self.modulus for number in found):
            raise PateError(f"a message of {len(found)} numbers is not of the {count} that were agreed on")
        return found

    def split(self, secret: Shaped[np.ndarray, " number"], t: int, parties: int) -> list[np.ndarray]:
        """Fresh shares of degree t of each number, one array for each party.

        >>> prime = Prime(101)
        >>> first, second, third = prime.split(np.array([5, 7], object), 1, 3)
        >>> ((2 * first - second) % 101).tolist(), ((3 * second - 2 * third) % 101).tolist()
        ([5, 7], [5, 7])
        """
        coefficients = self.uniform(t, len(secret))
        return [self._at(secret, coefficients, point) for point in range(1, parties + 1)]

    def _at(self, secret: np.ndarray, coefficients: np.ndarray, point: int) -> np.ndarray:
        """The polynomials' values at a point, by Horner's rule."""
        value = coefficients[0]
        for coefficient in coefficients[1:]:
            value = self.add(self.times(value, point), coefficient)
        return self.add(self.times(value, point), secret)


class Mersenne(Prime):
    """The same on arrays of 64 bits, modulo 2^61 - 1.

    >>> field = Mersenne()
    >>> int(field.times(np.array([2**60], np.uint64), 2**60 + 3)[0]) == 2**60 * (2**60 + 3) % (2**61 - 1)
    True
    """

    def __init__(self) -> None:
        super().__init__(MERSENNE)

    def of(self, values: Integer[np.ndarray, "*shape"]) -> UInt64[np.ndarray, "*shape"]:
        """Integers as residues."""
        found: np.ndarray = np.mod(values, MERSENNE).astype(np.uint64)
        return found

    def uniform(self, *shape: int) -> UInt64[np.ndarray, "*shape"]:
        """Uniform residues: 61 secure random bits each, drawn again where they are the prime itself."""
        count = int(np.prod(shape))
        found: np.ndarray = np.frombuffer(secrets.token_bytes(8 * count), "<u8") & _P
        while (found == _P).any():
            found = np.where(found == _P, np.frombuffer(secrets.token_bytes(8 * count), "<u8") & _P, found)
        return found.astype(np.uint64).reshape(shape)

    def add(self, first: np.ndarray, second: np.ndarray) -> UInt64[np.ndarray, "*shape"]:
        """The sum of two arrays."""
        return _reduced(first + second)

    def times(self, first: np.ndarray, second: Any) -> UInt64[np.ndarray, "*shape"]:
        """The product: the two halves of both factors, where `2^61` counts as 1.

        Each partial sum below stays under 2^64: twice 2^60, 2^32, 2^61 and 2^62.
        """
        other = np.asarray(second, np.uint64)
        high, low, other_high, other_low = first >> _S31, first & _LOW31, other >> _S31, other & _LOW31
        middle = high * other_low + low * other_high
        return _reduced(
            (high * other_high << _ONE) + (middle >> _S30) + ((middle & _LOW30) << _S31) + low * other_low
        )

    def total(self, values: np.ndarray) -> int:
        """The sum of all elements, as a residue; halves of 32 bits do not overflow."""
        high, low = int((values >> np.uint64(32)).sum()), int((values & np.uint64(2**32 - 1)).sum())
        return ((high << 32) + low) % MERSENNE

    def public(self, seed: bytes, count: int) -> UInt64[np.ndarray, " coefficient"]:
        """Numbers below 2^61 that everybody expands from one seed."""
        return expand(seed, count)

    def pack(self, values: np.ndarray) -> bytes:
        """An array as bytes, 8 for each number."""
        return pack(values)

    def unpack(self, content: bytes, count: int) -> UInt64[np.ndarray, " number"]:
        """The array of this many residues that `pack` wrote."""
        if len(content) != 8 * count:
            raise PateError(f"a message of {len(content)} bytes is not of the {count} numbers agreed on")
        found = np.frombuffer(content, "<u8").astype(np.uint64)
        if (found >= _P).any():
            raise PateError("a message holds numbers above the modulus that was agreed on")
        return found


def expand(seed: bytes, count: int) -> UInt64[np.ndarray, " coefficient"]:
    """Numbers below the Mersenne prime from a seed, with SHAKE-256; one value of 2^61 is met twice."""
    raw = np.frombuffer(hashlib.shake_256(seed).digest(8 * count), "<u8") & _P
    return np.where(raw == _P, np.uint64(0), raw).astype(np.uint64)


def _reduced(values: np.ndarray) -> UInt64[np.ndarray, "*shape"]:
    """Numbers below 2^64 modulo 2^61 - 1."""
    folded = (values & _P) + (values >> _S61)
    return np.where(folded >= _P, folded - _P, folded)


_WORD = 2**64 - 1
_LARGEST = 8  # words of 8 bytes, so that primes may have up to 512 bits


def dumps(values: object) -> bytes:
    """The bytes of a flat array of integers from 0 on; the first byte is their width.

    >>> dumps(np.array([1, 256], object))
    b'\\x02\\x01\\x00\\x00\\x01'
    """
    numbers = np.asarray(values, object).reshape(-1)
    largest = max((int(number) for number in numbers), default=0)
    width = max(1, (largest.bit_length() + 7) // 8)
    words = np.empty((len(numbers), (width + 7) // 8), "<u8")
    for word in range(words.shape[1]):
        words[:, word] = ((numbers >> 64 * word) & _WORD).astype(np.uint64)
    rows = np.ascontiguousarray(words).view(np.uint8).reshape(len(numbers), 8 * words.shape[1])
    return bytes([width]) + rows[:, :width].tobytes()


def loads(content: bytes) -> Shaped[np.ndarray, " number"]:
    """The integers that `dumps` wrote, as Python's own.

    >>> loads(dumps(np.array([3, 2**70 + 5], object))).tolist() == [3, 2**70 + 5]
    True
    """
    width = content[0] if content else 0
    if not 1 <= width <= 8 * _LARGEST or (len(content) - 1) % width:
        raise PateError("a message holds no whole numbers: all parties must run the same version")
    count = (len(content) - 1) // width
    rows = np.zeros((count, 8 * ((width + 7) // 8)), np.uint8)
    rows[:, :width] = np.frombuffer(content, np.uint8, offset=1).reshape(count, width)
    words = rows.view("<u8")
    numbers = words[:, 0].astype(object)
    for word in range(1, words.shape[1]):
        numbers = numbers + (words[:, word].astype(object) << 64 * word)
    return numbers


def pack(values: UInt64[np.ndarray, "*shape"]) -> bytes:
    """The bytes of an array of 64-bit numbers, without their shape."""
    return values.astype("<u8", copy=False).tobytes()
