"""Small pictures of images, as PNG: pixels and nothing else, so that whoever checks a page can read it.

A picture depends on its own image alone. So the same image gives the same picture wherever it is made.
"""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from jaxtyping import Float, UInt8

SIDE = 64  # the most pixels of a side
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR = {1: 0, 3: 2}  # the PNG's type of colour, by the number of channels
PREFIX = "data:image/png;base64,"
Pixels = UInt8[np.ndarray, "height width channels"]


def small(image: Float[np.ndarray, "height width channels"] | Pixels) -> UInt8[np.ndarray, "rows columns _"]:
    """An image as bytes of one or three channels, at most 64 pixels wide and high.

    Numbers that are no bytes are stretched from their least to their greatest. Larger images become the means
    of squares of pixels.

    >>> small(np.array([[[0.0], [0.5]]])).tolist(), small(np.full((130, 65, 4), 7, np.uint8)).shape
    ([[[0], [255]]], (43, 21, 1))
    """
    numbers = image.astype(np.float64)
    if image.dtype != np.uint8:
        spread = np.ptp(numbers)
        numbers = (numbers - numbers.min()) * (255 / spread if spread else 0.0)
    if image.shape[-1] not in _COLOUR:
        numbers = numbers.mean(-1, keepdims=True)
    step = -(-max(image.shape[:2]) // SIDE)
    if step > 1:
        numbers = _coarse(numbers, min(step, *image.shape[:2]))
    return np.rint(numbers).astype(np.uint8)


def _coarse(numbers: np.ndarray, step: int) -> np.ndarray:
    """The means of squares of this many pixels; what is left at the edges is cut off."""
    height, width = (side // step for side in numbers.shape[:2])
    cut = numbers[: height * step, : width * step]
    means: np.ndarray = cut.reshape(height, step, width, step, -1).mean((1, 3))
    return means


def png(pixels: Pixels) -> bytes:
    """A PNG that holds these pixels.

    >>> read(png(np.array([[[1], [2]]], np.uint8))).tolist()
    [[[1], [2]]]
    """
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(*one) for one in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read(content: bytes) -> Pixels:
    """The pixels of a PNG that `png` could have written; a ValueError where anything else is in it."""
    if content[:16] != _SIGNATURE + struct.pack(">I", 13) + b"IHDR" or len(content) < 57:
        raise ValueError("this is no PNG of this kind")
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", content[16:29])
    channels = {kind: channels for channels, kind in _COLOUR.items()}.get(colour, 0)
    if depth != 8 or any(rest) or not channels or not (0 < width <= SIDE and 0 < height <= SIDE):
        raise ValueError(f"{width} x {height} pixels of type {colour} and depth {depth}")
    (size,) = struct.unpack(">I", content[33:37])
    packed, wanted = content[41 : 41 + size], height * (1 + width * channels)
    header = content[16:29]
    if content != _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b""):
        raise ValueError("there is more than one picture in it")
    reader = zlib.decompressobj()
    lines = np.frombuffer(reader.decompress(packed, wanted + 1), np.uint8)
    if not reader.eof or reader.unused_data or lines.size != wanted:
        raise ValueError("its pixels are not complete, or there is more behind them")
    lines = lines.reshape(height, -1)
    if lines[:, 0].any():
        raise ValueError("its lines are filtered")
    return lines[:, 1:].reshape(height, width, channels)


def address(pixels: Pixels) -> str:
    """The picture as an address that a page can hold."""
    return PREFIX + base64.b64encode(png(pixels)).decode()
