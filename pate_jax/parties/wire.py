"""How numbers modulo a prime travel between parties: as bytes of one fixed width, and never pickled.

MPyC pickles arrays. Reading a pickle may run any program of whoever wrote it, so a party could take over all
others. `engine` puts this module's `dumps` and `loads` in the place of pickle's. They also take fewer bytes.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Shaped, UInt64

from pate_jax.errors import PateError

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
