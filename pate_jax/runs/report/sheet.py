"""What the student says of public inputs, and the contact sheet: some inputs that were asked, with answers.

It holds public inputs, released answers and public labels, and nothing else. It is made when the student is,
while the data are open, and kept for the pages. The page in release/ shows inputs only where they may go out.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy import special

from pate_jax.aggregate import Answers
from pate_jax.data import Dataset, Part, readable
from pate_jax.student import Student

IMAGES, ROWS = 48, 12  # the most inputs that were asked about
UNSURE = {True: 12, False: 6}  # the most unsure inputs, of images and of tables; 60 pictures in all at most


def made(dataset: Dataset, asked: Part, answers: Answers, pool: Seen) -> dict[str, Any]:
    """Inputs that were asked about, spread over the answers, and those that the student is least sure of."""
    labels, image = np.asarray(answers.labels), dataset.public.inputs.ndim == 4
    rows = spread(labels, np.flatnonzero(np.asarray(answers.answered)), IMAGES if image else ROWS)
    given = answers.probabilities
    sure = None if given is None else np.asarray(given)[rows, labels[rows]]
    doubtful = unsure(pool, UNSURE[image])
    best = pool.probabilities[doubtful]
    return {
        "kind": "image" if image else "table",
        "shown": dataset.show_public,
        "answered": int(np.asarray(answers.answered).sum()),
        "counts": counts(labels[np.asarray(answers.answered)], dataset.class_names),
        "asked": _items(dataset, asked.take(rows), labels[rows], sure),
        "unsure": _items(dataset, pool.part.take(doubtful), best.argmax(1), best.max(1)),
    }


def counts(labels: Int[np.ndarray, " answers"], names: Sequence[str]) -> dict[str, int]:
    """How many inputs got each answer, of those that were given.

    >>> counts(np.array([1, 1]), ("no", "yes"))
    {'yes': 2}
    """
    return {names[int(label)]: int((labels == label).sum()) for label in np.unique(labels)}


def released(sheet: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What of a sheet the page in release/ shows: all, or no input where these may not go out.

    >>> released({"shown": False, "asked": [{"record": []}], "unsure": [], "answered": 1})["asked"]
    []
    """
    return sheet if sheet is None or sheet.get("shown") else {**sheet, "asked": [], "unsure": []}


def spread(
    labels: Int[np.ndarray, " answers"], rows: Int[np.ndarray, " answered"], count: int
) -> Int[np.ndarray, " chosen"]:
    """At most `count` of these rows, as many of each label as possible, in the order of the labels.

    Which of them follows from their number alone, at random: files are often sorted.

    >>> chosen = spread(np.array([0, 0, 0, 1, 2, 2]), np.arange(6), 4)
    >>> np.array([0, 0, 0, 1, 2, 2])[chosen].tolist()
    [0, 0, 1, 2]
    """
    groups = [rows[labels[rows] == label] for label in np.unique(labels[rows])]
    share = [0] * len(groups)
    while sum(share) < min(count, len(rows)):
        open_ones = [place for place, group in enumerate(groups) if share[place] < len(group)]
        share[min(open_ones, key=lambda place: (share[place], place))] += 1
    random = np.random.default_rng(0)
    chosen = [
        np.sort(random.permutation(group)[:number]) for group, number in zip(groups, share, strict=True)
    ]
    return np.concatenate(chosen) if chosen else rows[:0]


def _items(
    dataset: Dataset, part: Part, answers: np.ndarray, sure: np.ndarray | None
) -> list[dict[str, Any]]:
    names, shown = dataset.class_names, _shown(dataset, part.inputs)
    return [
        {
            "answer": names[int(answer)],
            "probability": None if sure is None else round(float(sure[row]), 4),
            "label": None if part.labels is None else names[int(part.labels[row])],
            **shown[row],
        }
        for row, answer in enumerate(answers)
    ]


def _shown(dataset: Dataset, inputs: np.ndarray) -> Sequence[dict[str, Any]]:
    """Each input as a picture, or as the names and values of its columns."""
    if inputs.ndim == 4:
        return [{"picture": address(thumbnail(image))} for image in inputs]
    return [{"record": record} for record in readable.records(dataset, inputs)]


SIDE = 64  # the most pixels of a side
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR = {1: 0, 3: 2}  # the PNG's type of colour, by the number of channels
PREFIX = "data:image/png;base64,"
Pixels = UInt8[np.ndarray, "height width channels"]


def thumbnail(
    image: Float[np.ndarray, "height width channels"] | Pixels,
) -> UInt8[np.ndarray, "rows columns _"]:
    """An image as bytes of one or three channels, at most 64 pixels wide and high.

    Numbers that are no bytes are stretched from their least to their greatest. Larger images become the means
    of squares of pixels.

    >>> thumbnail(np.array([[[0.0], [0.5]]])).tolist(), thumbnail(np.full((130, 65, 4), 7, np.uint8)).shape
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

    >>> read_png(png(np.array([[[1], [2]]], np.uint8))).tolist()
    [[[1], [2]]]
    """
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)  # each begins with its filter: none
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(*one) for one in chunks)


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def read_png(content: bytes) -> Pixels:
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


BOUNDS = (0.5, 0.8, 0.95)  # of the most probable class
_POOL = 2000  # public inputs that are looked at
_DOUBT = 0.05  # the chance that an interval misses the truth


class Seen(NamedTuple):
    """Public inputs, and the probabilities that the student gives them."""

    where: Literal["test", "public"]
    part: Part
    probabilities: Float[np.ndarray, "inputs classes"]

    @property
    def right(self) -> np.ndarray | None:
        """Which of them the student gets right; None where nobody knows."""
        return None if self.part.labels is None else self.probabilities.argmax(1) == self.part.labels


def look(learned: Student, dataset: Dataset) -> Seen:
    """Ask the student about the test part, or else about the first inputs of the public part."""
    return pool(learned, dataset) if dataset.test is None else _look("test", dataset.test, learned)


def pool(learned: Student, dataset: Dataset) -> Seen:
    """Ask the student about the first inputs of the public part."""
    return _look("public", dataset.public.take(slice(_POOL)), learned)


def _look(where: Literal["test", "public"], part: Part, learned: Student) -> Seen:
    return Seen(where, part, learned(part.inputs))


def accuracy(found: Seen) -> float | None:
    """The share of test inputs that are right; None without a test part that has labels."""
    return None if found.where != "test" or found.right is None else float(found.right.mean())


def interval(right: int, inputs: int) -> tuple[float, float]:
    """The exact binomial interval at 95% (Clopper and Pearson, 1934) of a share of `right` in `inputs`.

    Its limits are the chances at which so many right answers, or more, and so many or fewer, have a
    probability of 2.5% each.

    >>> [round(limit, 4) for limit in interval(9, 10)]
    [0.555, 0.9975]
    >>> interval(0, 0)
    (0.0, 1.0)
    """
    wrong = inputs - right
    low = 0.0 if right == 0 else float(special.betaincinv(right, wrong + 1, _DOUBT / 2))
    high = 1.0 if wrong == 0 else float(special.betaincinv(right + 1, wrong, 1 - _DOUBT / 2))
    return low, high


def facts(found: Seen, names: Sequence[str]) -> dict[str, Any]:
    """What a report shows of it: how many are right, in all, by class, and by how sure the student is."""
    right = found.right
    return {
        "where": found.where,
        **_count(right, np.ones(len(found.probabilities), bool)),
        "unsure": list(_bands(found.probabilities.max(1), right)),
        "classes": [] if right is None else _classes(right, np.asarray(found.part.labels), names),
    }


def count_of(right: np.ndarray) -> dict[str, Any]:
    """How many inputs are right, of how many, with the interval of that share.

    >>> count_of(np.array([True, False]))["right"]
    1
    """
    return _count(right, np.ones(len(right), bool))


def lead(right: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """By how much more often the first is right on the same inputs, and the 95% interval of that.

    The difference is the mean of numbers in -1, 0 and 1, one for each input, whose error is that of a mean.

    >>> [round(number, 3) for number in lead(np.array([True] * 3 + [False]), np.array([False] * 4))]
    [0.75, 0.326, 1.174]
    """
    apart = right.astype(np.float64) - other
    error = -float(special.ndtri(_DOUBT / 2)) * float(apart.std()) / np.sqrt(len(apart))
    return float(apart.mean()), float(apart.mean() - error), float(apart.mean() + error)


def _count(right: np.ndarray | None, of: np.ndarray) -> dict[str, Any]:
    """How many inputs these are and, where labels are known, how many of them are right."""
    inputs = int(of.sum())
    if right is None:
        return {"inputs": inputs, "right": None, "low": None, "high": None}
    known = int(right[of].sum())
    low, high = interval(known, inputs)
    return {"inputs": inputs, "right": known, "low": low, "high": high}


def _bands(best: np.ndarray, right: np.ndarray | None) -> Any:
    """The inputs whose most probable class lies between two bounds, with what the student says on average."""
    edges = (0.0, *BOUNDS, np.inf)
    for least, below in pairwise(edges):
        of = (best >= least) & (best < below)
        if of.any():
            said = round(float(best[of].astype(np.float64).mean()), 6)
            yield {"from": least, "below": min(below, 1.0), "said": said, **_count(right, of)}


def _classes(right: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """The count of each class that occurs, the worst first."""
    rows = [{"name": name, **_count(right, labels == label)} for label, name in enumerate(names)]
    return sorted((row for row in rows if row["inputs"]), key=lambda row: row["right"] / row["inputs"])


def unsure(found: Seen, count: int) -> np.ndarray:
    """The rows of the inputs that the student is least sure of, the most doubtful first.

    >>> part = Part(np.zeros((3, 2)), None, np.array(["a", "b", "c"]))
    >>> unsure(Seen("public", part, np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]])), 2).tolist()
    [1, 2]
    """
    rows: np.ndarray = np.argsort(found.probabilities.max(1), kind="stable")[:count]
    return rows
