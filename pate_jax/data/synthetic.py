"""Synthetic images: `strokes` (ten digits) and `glyphs` (made-up characters). NumPy only.

To make a record, the control points of its character are jittered, the plane is bent and tilted, the curves
are drawn with a soft brush of random width, and noise is added. All random numbers are hashes of the record's
part and number, so the number is a true id: asking for more records changes none of the others.

A stroke is a smooth curve through control points, or a straight line if there are two. A font turns strokes
into matrices, so one matrix product draws a thousand jittered characters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

import numpy as np

from pate_jax.data.dataset import Dataset, Part, Preprocessing, check, class_names_of, numbered_ids
from pate_jax.errors import at_least, within
from pate_jax.system.progress import Bar, bar

SIDE = 28  # pixels
CHARACTER = 19.0  # pixels: the side of the square that a character fills
CHUNK = 1500  # records drawn at a time: limits memory and changes nothing else
CLASSES = (2, 1000)  # glyphs: fewest and most
DIFFICULTY = (0.0, 3.0)

# The variation at difficulty 1: standard deviations, or greatest values where the comment says so.
JITTER = 0.0345  # of control points, in units of the square
WAVE = 0.069  # greatest bend, in units of the square
SHEAR, SLOPE, TURN = 0.247, 0.06, 0.186  # slant, rise, radians
WIDTH, HEIGHT = 0.186, 0.156  # relative, squashed by tanh
SHIFT = 1.43  # pixels
FADE = 0.33  # greatest loss of ink
GRAIN = 33.8  # grey levels of 255


def strokes(
    size: int = 60_000, *, public_size: int = 10_000, test_size: int = 2_000, difficulty: float = 1.0
) -> Dataset:
    """Ten digits of 28x28 pixels that look handwritten, with `size` private records.

    >>> strokes(20, public_size=5, test_size=5).private.inputs.shape
    (20, 28, 28, 1)
    """
    return _dataset("strokes", digits(), size, public_size, test_size, difficulty)


def glyphs(
    size: int = 60_000,
    *,
    classes: int = 150,
    public_size: int = 10_000,
    test_size: int = 2_000,
    difficulty: float = 1.0,
) -> Dataset:
    """Made-up characters of 28x28 pixels, in `classes` classes.

    >>> glyphs(20, classes=12, public_size=5, test_size=5).classes
    12
    """
    within(*CLASSES, " for glyphs", classes=classes)
    return _dataset("glyphs", made_up(classes), size, public_size, test_size, difficulty)


def _dataset(
    name: str, font: Font, size: int, public_size: int, test_size: int, difficulty: float
) -> Dataset:
    sizes = {"size": size, "public_size": public_size, "test_size": test_size}
    at_least(1, **sizes)
    within(*DIFFICULTY, difficulty=difficulty)
    with bar(f"drawing {name}", total=sum(sizes.values())) as progress:
        private, public, test = (
            _part(f"{name}-{part}", records, font, difficulty, progress)
            for part, records in zip(("private", "public", "test"), sizes.values(), strict=True)
        )
    return check(
        Dataset(
            name=name,
            kind="image",
            private=private,
            public=public,
            test=test,
            classes=font.classes,
            class_names=class_names_of(font.classes),
            preprocessing=Preprocessing((0.0,), (255.0,)),
            synthetic=True,
            description=f"{name}: synthetic images, drawn by rule in {font.classes} classes at difficulty "
            f"{difficulty:g}",
            ids_are="stable",
        )
    )


def _part(name: str, records: int, font: Font, difficulty: float, progress: Bar) -> Part:
    inputs = np.empty((records, SIDE, SIDE, 1), np.uint8)
    labels = np.empty(records, np.int32)
    for start in range(0, records, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, records))
        rows = slice(start, start + len(numbers))
        inputs[rows, :, :, 0], labels[rows] = draw(font, Stream(name, numbers), difficulty)
        progress.advance(len(numbers))
    return Part(inputs, labels, numbered_ids(name, np.arange(records)))


def draw(font: Font, stream: Stream, difficulty: float) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, SIDE, SIDE] and labels int32 [n] of the stream's records."""
    labels = stream.integers(font.classes).astype(np.int32)
    way = font.first[labels] + stream.integers(font.ways[labels]).astype(np.int64)
    jitter = stream.normal(2 * POINTS).reshape(-1, POINTS, 2) * np.float32(JITTER * difficulty)
    marks = np.matmul(font.curves[way], font.points[way] + jitter)
    x, y = _tilt(*_bend(marks[..., 0] - 0.5, marks[..., 1] - 0.5, stream, difficulty), stream, difficulty)
    grey = 255 * _ink(x, y, CHARACTER * font.spacing[way], stream, difficulty)
    grey += np.float32(GRAIN * difficulty) * stream.normal(SIDE * SIDE).reshape(grey.shape)
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8), labels


def _bend(x: np.ndarray, y: np.ndarray, stream: Stream, difficulty: float) -> tuple[np.ndarray, np.ndarray]:
    """The points, with each axis displaced by a slow wave along the other."""
    phase_x, phase_y, pitch_x, pitch_y, height_x, height_y = stream.uniform(6).T[:, :, None]
    most, turn = np.float32(WAVE * difficulty), np.float32(2 * np.pi)
    return (
        x + most * height_x * np.sin((3 + 4 * pitch_x) * y + turn * phase_x),
        y + most * height_y * np.sin((3 + 4 * pitch_y) * x + turn * phase_y),
    )


def _tilt(x: np.ndarray, y: np.ndarray, stream: Stream, difficulty: float) -> tuple[np.ndarray, np.ndarray]:
    """The points stretched, slanted, turned, and placed on the pixels slightly off the centre."""
    turn, shear, slope, width, height, right, down = (stream.normal(7) * np.float32(difficulty)).T[:, :, None]
    x = x * (1 + WIDTH * np.tanh(width)) + SHEAR * shear * y
    y = y * (1 + HEIGHT * np.tanh(height)) + SLOPE * slope * x
    cosine, sine, centre = np.cos(TURN * turn), np.sin(TURN * turn), (SIDE - 1) / 2
    return (
        centre + SHIFT * right + CHARACTER * (x * cosine - y * sine),
        centre + SHIFT * down + CHARACTER * (x * sine + y * cosine),
    )


def _ink(x: np.ndarray, y: np.ndarray, spacing: np.ndarray, stream: Stream, difficulty: float) -> np.ndarray:
    """Ink in [0, 1], float32 [n, SIDE, SIDE]: Gaussian brush marks add up along the line, then saturate."""
    width, fade = stream.uniform(2).T[:, :, None, None]
    brush = 0.75 + 0.55 * width
    pixels = np.arange(SIDE, dtype=np.float32)
    across = np.exp(-0.5 * ((pixels - x[..., None]) / brush) ** 2)
    along = np.exp(-0.5 * ((pixels - y[..., None]) / brush) ** 2)
    marks = np.matmul(along.transpose(0, 2, 1), across)
    line = marks * (spacing[:, None, None] / (np.float32(np.sqrt(2 * np.pi)) * brush))
    return np.clip(1.6 * line - 0.25, 0, 1) * (1 - FADE * min(1.0, difficulty) * fade)


MARKS = 64  # brush marks along one character
POINTS = 16  # the most control points of one character
# The greatest cosine between the blurred drawings of two made-up characters. Each refused character raises it
# by the second number for the next one, so that the search always ends.
_ALIKE, _PATIENCE = 0.8, 0.004
_GRID, _BLUR = np.linspace(0, 1, 12), 0.09  # pixels and brush of those drawings
# limits of a made-up character in units of the square: its drawn length; its least width and height
_LENGTH, _EXTENT = (1.0, 3.0), 0.5
_ALONG = np.linspace(0, 1, 8)[:, None]

# Digits as control points "x,y" in hundredths of a square, y downwards; " | " separates the strokes.
# Each digit can be written in several ways.
DIGITS = (
    (
        "50,8 80,20 86,50 78,82 50,92 22,82 14,50 20,20 50,8",
        "56,10 80,20 86,50 78,82 50,92 22,82 14,50 20,20 46,6 62,14",
    ),
    ("50,8 50,92", "34,26 54,8 | 54,8 52,92", "34,24 52,8 | 52,8 52,92 | 28,92 74,92"),
    (
        "20,30 30,12 54,8 76,20 74,42 50,66 20,90 | 20,90 82,90",
        "22,26 50,8 78,26 62,56 30,84 22,92 30,78 56,90 84,86",
    ),
    (
        "22,20 50,8 76,22 68,42 46,48 | 46,48 74,58 78,78 52,93 20,82",
        "22,10 76,10 | 76,10 46,42 | 46,42 76,56 76,80 50,93 20,82",
    ),
    ("62,8 16,62 | 16,62 88,62 | 64,8 64,94", "26,10 20,52 | 20,52 76,50 | 74,10 68,94"),
    (
        "78,10 30,10 | 30,10 26,44 | 26,44 54,38 80,54 76,80 50,93 20,84",
        "30,12 28,46 60,42 78,64 62,90 22,88 | 30,12 78,8",
    ),
    (
        "68,8 38,30 20,64 32,90 60,92 78,72 64,52 40,54 24,70",
        "50,6 26,42 22,74 42,93 72,86 76,64 52,52 24,68",
    ),
    ("18,10 82,10 | 82,10 56,48 42,93", "20,14 80,10 | 80,10 44,93 | 36,52 74,50"),
    (
        "50,48 26,36 28,14 50,7 72,14 74,36 50,48 22,64 24,86 50,94 76,86 78,64 50,48",
        "74,18 50,7 27,20 38,42 64,56 76,78 50,94 25,78 38,56 64,40 74,18",
    ),
    (
        "76,30 60,48 34,46 24,28 40,10 64,10 76,30 | 76,30 74,60 60,94",
        "72,24 50,8 26,20 28,42 52,48 72,30 | 74,10 72,94",
    ),
)

Way = list[np.ndarray]  # the strokes of one way to write a character: float [points, 2] each


class Font(NamedTuple):
    """Prepared characters: `curves @ points` are the brush marks of each way to write each character."""

    points: np.ndarray  # float32 [ways, POINTS, 2]
    curves: np.ndarray  # float32 [ways, MARKS, POINTS]
    spacing: np.ndarray  # float32 [ways]: distance between marks, in units of the square
    ways: np.ndarray  # int [classes]: how many ways there are to write each class
    first: np.ndarray  # int [classes]: the index of the first way

    @property
    def classes(self) -> int:
        """The number of characters."""
        return len(self.ways)


@lru_cache(maxsize=1)
def digits() -> Font:
    """The ten digits.

    >>> digits().classes
    10
    """
    return _font([[_strokes(way) for way in ways] for ways in DIGITS])


@lru_cache(maxsize=4)
def made_up(classes: int) -> Font:
    """Made-up characters; the first ones are the same for any number of classes.

    >>> bool((made_up(3).points == made_up(5).points[:3]).all())
    True
    """
    chosen: list[Way] = []
    drawings = np.empty((classes, _GRID.size**2), np.float32)
    alike = _ALIKE
    inventions = _inventions()
    with bar("inventing characters", total=classes) as progress:
        while len(chosen) < classes:
            way = next(inventions)
            drawing = _drawing(way)
            if (drawings[: len(chosen)] @ drawing).max(initial=0) > alike:
                alike += _PATIENCE
                continue
            drawings[len(chosen)] = drawing
            chosen.append(way)
            alike = _ALIKE
            progress.advance()
    return _font([[way] for way in chosen])


def _inventions() -> Iterator[Way]:
    """An endless series of two or three strokes, each of two to four points on a grid of three by four."""
    block = 512
    for start in count(0, block):
        stream = Stream("pate glyphs", np.arange(start, start + block))
        sizes = np.stack([2 + stream.integers(3) for _ in range(3)], axis=1)
        sizes[:, 2] *= stream.integers(2)
        order = np.argsort(stream.bits(36).reshape(block, 3, 12), axis=2)
        places = np.stack([0.14 + 0.36 * (order % 3), 0.1 + 0.27 * (order // 3)], axis=3)
        for way, lengths in zip(places, sizes.astype(int), strict=True):
            chosen = [stroke[:length] for stroke, length in zip(way, lengths, strict=True) if length]
            length = sum(_lengths(stroke)[-1] for stroke in chosen)
            if _LENGTH[0] < length < _LENGTH[1] and np.ptp(np.concatenate(chosen), axis=0).min() > _EXTENT:
                yield chosen


def _drawing(way: Way) -> np.ndarray:
    """A blurred drawing as a vector of length 1, for comparing characters."""
    corners = [stroke[:-1, None] + _ALONG * np.diff(stroke, axis=0)[:, None] for stroke in way]
    marks = np.concatenate([corner.reshape(-1, 2) for corner in corners])
    x, y = np.exp(-0.5 * ((_GRID - marks.T[:, :, None]) / _BLUR) ** 2)
    drawing = (y.T @ x).ravel().astype(np.float32)
    return drawing / np.linalg.norm(drawing)


def _strokes(way: str) -> Way:
    pairs = [[point.split(",") for point in stroke.split()] for stroke in way.split("|")]
    return [np.array(stroke, float) / 100 for stroke in pairs]


def _font(characters: Sequence[Sequence[Way]]) -> Font:
    points, curves, spacing = zip(*(_prepare(way) for ways in characters for way in ways), strict=True)
    ways = np.array([len(ways) for ways in characters])
    return Font(
        np.stack(points), np.stack(curves), np.array(spacing, np.float32), ways, np.cumsum(ways) - ways
    )


def _prepare(way: Way) -> tuple[np.ndarray, np.ndarray, float]:
    """Control points, the matrix that turns them into brush marks, and the distance between marks."""
    splines = [_spline(len(stroke), 40 * len(stroke)) for stroke in way]
    lengths = [_lengths(spline @ stroke) for spline, stroke in zip(splines, way, strict=True)]
    total = sum(length[-1] for length in lengths)
    edges = np.rint(np.cumsum([0, *(length[-1] for length in lengths)]) / total * MARKS).astype(int)
    points, curve = np.zeros((POINTS, 2), np.float32), np.zeros((MARKS, POINTS), np.float32)
    column = 0
    for stroke, spline, length, start, end in zip(way, splines, lengths, edges, edges[1:], strict=False):
        points[column : column + len(stroke)] = stroke
        marks = (np.arange(end - start) + 0.5) / (end - start) * length[-1]
        for offset, weights in enumerate(spline.T):
            curve[start:end, column + offset] = np.interp(marks, length, weights)
        column += len(stroke)
    return points, curve, total / MARKS


def _lengths(line: np.ndarray) -> np.ndarray:
    """The distance of each point from the start, along the line."""
    return np.concatenate([[0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])


def _spline(points: int, samples: int) -> np.ndarray:
    """The matrix [samples, points] of the Catmull-Rom curve through the points."""
    position = np.linspace(0, points - 1, samples)
    left = np.minimum(position.astype(int), points - 2)
    t = position - left
    weights = (
        np.stack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, -(t**2) + t**3]) / 2
    )
    padded = np.zeros((samples, points + 2))
    for offset in range(4):
        padded[np.arange(samples), left + offset] += weights[offset]
    matrix = padded[:, 1:-1]  # beyond each end comes the mirror image of the second point
    matrix[:, 0] += 2 * padded[:, 0]
    matrix[:, 1] -= padded[:, 0]
    matrix[:, -1] += 2 * padded[:, -1]
    matrix[:, -2] -= padded[:, -1]
    return matrix


_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))


class Stream:
    """Random numbers by record: hashes of the stream's name, the record's number and the order of requests.

    Record 7 gets the same numbers whether ten records are made or a million; each request advances the
    streams of all of them (splitmix64). For synthetic data only: this is not a source of noise for privacy.

    >>> few, many = Stream("demo", np.array([7])), Stream("demo", np.arange(9))
    >>> bool((few.uniform(3)[0] == many.uniform(3)[7]).all())
    True
    """

    def __init__(self, name: str, records: np.ndarray) -> None:
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        self._start = _mix(_mix(np.asarray(records).astype(np.uint64)) ^ np.uint64(start))
        self._drawn = 0

    def bits(self, count: int) -> np.ndarray:
        """Hashes: uint64 [records, count]."""
        steps = np.arange(self._drawn + 1, self._drawn + 1 + count, dtype=np.uint64)
        self._drawn += count
        return _mix(self._start[:, None] + steps * _STEP)

    def uniform(self, count: int) -> np.ndarray:
        """Uniform numbers in [0, 1): float32 [records, count]."""
        return (self.bits(count) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)

    def integers(self, below: np.ndarray | int) -> np.ndarray:
        """One whole number for each record, at least 0 and below its bound."""
        return ((self.bits(1)[:, 0] >> np.uint64(33)) * np.asarray(below, np.uint64)) >> np.uint64(31)

    def normal(self, count: int) -> np.ndarray:
        """Standard normal numbers of 65,536 possible values, four per hash: float32 [records, count]."""
        return _normal_steps()[self.bits(-(-count // 4)).astype("<u8").view("<u2")[:, :count]]


def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> _SHIFTS[0])) * _FACTORS[0]
    state = (state ^ (state >> _SHIFTS[1])) * _FACTORS[1]
    return state ^ (state >> _SHIFTS[2])


@lru_cache(maxsize=1)
def _normal_steps() -> np.ndarray:
    from scipy.special import ndtri

    return ndtri((np.arange(65536) + 0.5) / 65536).astype(np.float32)
