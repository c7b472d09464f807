"""Synthetic characters, drawn by rule: `strokes` (ten digits) and `glyphs` (made-up characters).

A character is a few curves through control points. A record jitters the points, warps the plane, draws along
the curves with a soft brush of its own width and adds noise. Every random number of record `i` is a hash of
(part, i), so a record depends on its own number alone: asking for more records changes none of the others.
NumPy only, nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pate_jax.dataset import Dataset, Part, Preprocessing, check, class_names_of, numbered_ids
from pate_jax.errors import PateError
from pate_jax.progress import bar

SIDE = 28  # pixels
SAMPLES = 56  # brush marks along one character
POINTS = 24  # control points of one character, at most
CHUNK = 1500  # records drawn at a time: bounds memory, changes nothing else

# Control points in the unit square, y downwards; each list is one pen stroke. Two lists of strokes: two ways to write it.
Stroke = list[tuple[float, float]]
_ELLIPSE = [
    (0.5, 0.08),
    (0.8, 0.2),
    (0.86, 0.5),
    (0.78, 0.82),
    (0.5, 0.92),
    (0.22, 0.82),
    (0.14, 0.5),
    (0.2, 0.2),
]
DIGITS: list[list[list[Stroke]]] = [
    [[[*_ELLIPSE, (0.5, 0.08)]], [[(0.56, 0.1), *_ELLIPSE[1:], (0.46, 0.06), (0.62, 0.14)]]],
    [[[(0.5, 0.08), (0.5, 0.92)]], [[(0.34, 0.26), (0.54, 0.08)], [(0.54, 0.08), (0.52, 0.92)]]],
    [
        [[(0.2, 0.3), (0.3, 0.12), (0.54, 0.08), (0.76, 0.2), (0.74, 0.42), (0.5, 0.66), (0.2, 0.9)], [(0.2, 0.9), (0.82, 0.9)]],
        [[(0.22, 0.26), (0.5, 0.08), (0.78, 0.26), (0.62, 0.56), (0.3, 0.84), (0.22, 0.92), (0.3, 0.78), (0.56, 0.9), (0.84, 0.86)]],
    ],
    [
        [[(0.22, 0.2), (0.5, 0.08), (0.76, 0.22), (0.68, 0.42), (0.46, 0.48)], [(0.46, 0.48), (0.74, 0.58), (0.78, 0.78), (0.52, 0.93), (0.2, 0.82)]],
        [[(0.22, 0.1), (0.76, 0.1)], [(0.76, 0.1), (0.46, 0.42)], [(0.46, 0.42), (0.76, 0.56), (0.76, 0.8), (0.5, 0.93), (0.2, 0.82)]],
    ],
    [
        [[(0.62, 0.08), (0.16, 0.62)], [(0.16, 0.62), (0.88, 0.62)], [(0.64, 0.08), (0.64, 0.94)]],
        [[(0.26, 0.1), (0.2, 0.52)], [(0.2, 0.52), (0.76, 0.5)], [(0.74, 0.1), (0.68, 0.94)]],
    ],
    [
        [[(0.78, 0.1), (0.3, 0.1)], [(0.3, 0.1), (0.26, 0.44)], [(0.26, 0.44), (0.54, 0.38), (0.8, 0.54), (0.76, 0.8), (0.5, 0.93), (0.2, 0.84)]],
        [[(0.3, 0.12), (0.28, 0.46), (0.6, 0.42), (0.78, 0.64), (0.62, 0.9), (0.22, 0.88)], [(0.3, 0.12), (0.78, 0.08)]],
    ],
    [
        [[(0.68, 0.08), (0.38, 0.3), (0.2, 0.64), (0.32, 0.9), (0.6, 0.92), (0.78, 0.72), (0.64, 0.52), (0.4, 0.54), (0.24, 0.7)]],
        [[(0.5, 0.06), (0.26, 0.42), (0.22, 0.74), (0.42, 0.93), (0.72, 0.86), (0.76, 0.64), (0.52, 0.52), (0.24, 0.68)]],
    ],
    [
        [[(0.18, 0.1), (0.82, 0.1)], [(0.82, 0.1), (0.56, 0.48), (0.42, 0.93)]],
        [[(0.2, 0.14), (0.8, 0.1)], [(0.8, 0.1), (0.44, 0.93)], [(0.36, 0.52), (0.74, 0.5)]],
    ],
    [
        [[(0.5, 0.48), (0.26, 0.36), (0.28, 0.14), (0.5, 0.07), (0.72, 0.14), (0.74, 0.36), (0.5, 0.48), (0.22, 0.64), (0.24, 0.86), (0.5, 0.94), (0.76, 0.86), (0.78, 0.64), (0.5, 0.48)]],
        [[(0.74, 0.18), (0.5, 0.07), (0.27, 0.2), (0.38, 0.42), (0.64, 0.56), (0.76, 0.78), (0.5, 0.94), (0.25, 0.78), (0.38, 0.56), (0.64, 0.4), (0.74, 0.18)]],
    ],
    [
        [[(0.76, 0.3), (0.6, 0.48), (0.34, 0.46), (0.24, 0.28), (0.4, 0.1), (0.64, 0.1), (0.76, 0.3)], [(0.76, 0.3), (0.74, 0.6), (0.6, 0.94)]],
        [[(0.72, 0.24), (0.5, 0.08), (0.26, 0.2), (0.28, 0.42), (0.52, 0.48), (0.72, 0.3)], [(0.74, 0.1), (0.72, 0.94)]],
    ],
]  # fmt: skip


class Font(NamedTuple):
    """Characters ready to draw: `curve @ points` are the brush marks of a character."""

    points: np.ndarray  # float32 [variants, POINTS, 2]
    curve: np.ndarray  # float32 [variants, SAMPLES, POINTS]
    spacing: np.ndarray  # float32 [variants]: distance between brush marks, in units of the square
    variants: np.ndarray  # int [classes]: ways to write each class
    first: np.ndarray  # int [classes]: where the ways of a class begin


def strokes(
    size: int = 60_000, *, public_size: int = 10_000, test_size: int = 2_000, difficulty: float = 1.0
) -> Dataset:
    """Ten handwriting-like digits of 28x28 pixels, as many private records as asked for.

    >>> strokes(20, public_size=5, test_size=5).private.inputs.shape
    (20, 28, 28, 1)
    """
    return _dataset("strokes", _digit_font(), size, public_size, test_size, difficulty)


def glyphs(
    size: int = 60_000,
    *,
    classes: int = 150,
    public_size: int = 10_000,
    test_size: int = 2_000,
    difficulty: float = 1.0,
) -> Dataset:
    """Made-up characters of 28x28 pixels in as many classes as asked for.

    >>> glyphs(20, classes=12, public_size=5, test_size=5).classes
    12
    """
    if not 2 <= classes <= 2000:
        raise PateError(f"classes={classes} must be between 2 and 2000 for glyphs")
    return _dataset("glyphs", glyph_font(classes), size, public_size, test_size, difficulty)


def _dataset(
    name: str, font: Font, size: int, public_size: int, test_size: int, difficulty: float
) -> Dataset:
    for option, value in (("size", size), ("public_size", public_size), ("test_size", test_size)):
        if value < 1:
            raise PateError(f"{option}={value} must be at least 1")
    if not 0 <= difficulty <= 3:
        raise PateError(f"difficulty={difficulty} must be between 0 and 3")
    classes = len(font.variants)
    with bar(f"drawing {name}", total=size + public_size + test_size) as progress:
        private, public, test = (
            _part(name, part, records, font, difficulty, progress)
            for part, records in (("private", size), ("public", public_size), ("test", test_size))
        )
    return check(
        Dataset(
            name=name,
            kind="image",
            private=private,
            public=public,
            test=test,
            classes=classes,
            class_names=class_names_of(classes),
            preprocessing=Preprocessing((0.0,), (255.0,)),
            synthetic=True,
            description=f"{name}: synthetic characters drawn by rule ({classes} classes, difficulty {difficulty:g})",
        )
    )


def _part(name: str, part: str, records: int, font: Font, difficulty: float, progress) -> Part:
    stream = int.from_bytes(hashlib.sha256(f"{name}/{part}".encode()).digest()[:8], "little")
    inputs = np.empty((records, SIDE, SIDE, 1), np.uint8)
    labels = np.empty(records, np.int32)
    for start in range(0, records, CHUNK):
        numbers = np.arange(start, min(start + CHUNK, records), dtype=np.uint64)
        rows = slice(start, start + len(numbers))
        inputs[rows, :, :, 0], labels[rows] = draw(font, numbers, stream=stream, difficulty=difficulty)
        progress.advance(len(numbers))
    return Part(inputs, labels, numbered_ids(f"{name}-{part}", np.arange(records)))


def draw(font: Font, numbers: np.ndarray, *, stream: int, difficulty: float) -> tuple[np.ndarray, np.ndarray]:
    """Images [n, SIDE, SIDE] and labels [n] of the records with these numbers."""
    random = _Random(numbers, stream)
    classes = len(font.variants)
    labels = np.minimum((random.uniform(1)[:, 0] * classes).astype(np.int64), classes - 1)
    variant = font.first[labels] + (random.uniform(1)[:, 0] * font.variants[labels]).astype(np.int64)
    jitter = random.normal(2 * POINTS).reshape(-1, POINTS, 2) * np.float32(0.022 * difficulty)
    marks = np.matmul(font.curve[variant], font.points[variant] + jitter)
    marks = _warp(marks, random, difficulty)
    ink = _ink(marks, font.spacing[variant], random, difficulty)
    return _noise(ink, random, difficulty), labels.astype(np.int32)


def _warp(marks: np.ndarray, random: _Random, difficulty: float) -> np.ndarray:
    """Brush marks [n, SAMPLES, 2] of the unit square, bent and laid on the pixel grid."""
    n = len(marks)
    spread = np.float32(difficulty)
    turn, shear, wide, high, left, down, slope = (random.normal(7) * spread).T[:, :, None]
    wave = random.uniform(8).reshape(n, 2, 4)
    x, y = marks[..., 0] - 0.5, marks[..., 1] - 0.5
    phase = 2 * np.pi * wave[:, :, 0:1]
    pitch = 3 + 4 * wave[:, :, 1:2]
    height = 0.045 * spread * wave[:, :, 2:3]
    x, y = (
        x + height[:, 0] * np.sin(pitch[:, 0] * y + phase[:, 0]),
        y + height[:, 1] * np.sin(pitch[:, 1] * x + phase[:, 1]),
    )
    x = x * (1 + 0.12 * np.tanh(wide)) + 0.16 * shear * y
    y = y * (1 + 0.10 * np.tanh(high)) + 0.04 * slope * x
    angle = 0.12 * turn
    x, y = x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)
    size = 19.0
    centre = (SIDE - 1) / 2
    return np.stack([centre + size * x + 0.9 * left, centre + size * y + 0.9 * down], axis=-1).astype(
        np.float32
    )


def _ink(marks: np.ndarray, spacing: np.ndarray, random: _Random, difficulty: float) -> np.ndarray:
    """Ink [n, SIDE, SIDE] between 0 and 1 that a soft round brush leaves along the marks."""
    width, level = random.uniform(2).T
    brush = (0.75 + 0.55 * width)[:, None, None].astype(np.float32)
    grid = np.arange(SIDE, dtype=np.float32)
    across = np.exp(-0.5 * ((grid - marks[..., 0:1]) / brush) ** 2)
    along = np.exp(-0.5 * ((grid - marks[..., 1:2]) / brush) ** 2)
    density = np.matmul(along.transpose(0, 2, 1), across)
    profile = density * (19.0 * spacing[:, None, None] / (np.sqrt(2 * np.pi) * brush)).astype(np.float32)
    ink = np.clip(1.6 * profile - 0.25, 0, 1)
    return ink * (1 - 0.3 * min(1, difficulty) * level)[:, None, None].astype(np.float32)


def _noise(ink: np.ndarray, random: _Random, difficulty: float) -> np.ndarray:
    noise = random.grain(SIDE * SIDE).reshape(ink.shape)
    grey = 255 * ink + np.float32(22 * difficulty) * noise
    return np.clip(np.rint(grey), 0, 255).astype(np.uint8)


class _Random:
    """Numbers that depend on the record and the order of asking, and on nothing else (splitmix64)."""

    def __init__(self, numbers: np.ndarray, stream: int) -> None:
        self._start = _mix(numbers.astype(np.uint64) ^ np.uint64(stream))
        self._drawn = 0

    def bits(self, count: int) -> np.ndarray:
        """uint64 [n, count]."""
        steps = np.arange(self._drawn + 1, self._drawn + 1 + count, dtype=np.uint64)
        self._drawn += count
        return _mix(self._start[:, None] + steps * np.uint64(0x9E3779B97F4A7C15))

    def uniform(self, count: int) -> np.ndarray:
        """float64 [n, count] in [0, 1)."""
        return (self.bits(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def normal(self, count: int) -> np.ndarray:
        """float32 [n, count], normal to 16 bits."""
        return self.grain(count)

    def grain(self, count: int) -> np.ndarray:
        """float32 [n, count], normal, four to a hash."""
        words = self.bits(-(-count // 4))
        return _normal_table()[words.view(np.uint16)[:, :count]]


def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@lru_cache(maxsize=1)
def _normal_table() -> np.ndarray:
    from scipy.special import ndtri

    return ndtri((np.arange(65536) + 0.5) / 65536).astype(np.float32)


def font_of(characters: list[list[list[Stroke]]]) -> Font:
    """A font from pen strokes: characters[class][way to write it] is a list of strokes."""
    ways = [way for character in characters for way in character]
    prepared = [_prepare(way) for way in ways]
    variants = np.array([len(character) for character in characters])
    return Font(
        points=np.stack([points for points, _, _ in prepared]),
        curve=np.stack([curve for _, curve, _ in prepared]),
        spacing=np.array([spacing for _, _, spacing in prepared], np.float32),
        variants=variants,
        first=np.cumsum(variants) - variants,
    )


@lru_cache(maxsize=1)
def _digit_font() -> Font:
    return font_of(DIGITS)


def _prepare(way: list[Stroke]) -> tuple[np.ndarray, np.ndarray, float]:
    """Control points, the matrix that turns them into brush marks, and the marks' spacing."""
    count = sum(len(stroke) for stroke in way)
    if count > POINTS:
        raise PateError(f"{count} control points are more than {POINTS}")
    points = np.zeros((POINTS, 2), np.float32)
    points[:count] = np.concatenate([np.array(stroke) for stroke in way])
    fine = [_spline(len(stroke), 40 * len(stroke)) for stroke in way]
    starts = np.cumsum([0, *(len(stroke) for stroke in way)])
    lengths = []
    for matrix, stroke in zip(fine, way, strict=True):
        drawn = matrix @ np.array(stroke)
        lengths.append(np.r_[0, np.cumsum(np.hypot(*np.diff(drawn, axis=0).T))])
    total = sum(length[-1] for length in lengths)
    shares = _shares([length[-1] for length in lengths])
    curve = np.zeros((SAMPLES, POINTS), np.float32)
    row = 0
    for matrix, length, start, share in zip(fine, lengths, starts, shares, strict=False):
        targets = (np.arange(share) + 0.5) / share * length[-1]
        for column in range(matrix.shape[1]):
            curve[row : row + share, start + column] = np.interp(targets, length, matrix[:, column])
        row += share
    return points, curve, total / SAMPLES


def _shares(lengths: list[float]) -> list[int]:
    """Brush marks of each stroke, in proportion to its length and SAMPLES in all."""
    edges = np.rint(np.cumsum([0, *lengths]) / sum(lengths) * SAMPLES).astype(int)
    return np.diff(edges).tolist()


def _spline(points: int, samples: int) -> np.ndarray:
    """Matrix [samples, points] of the Catmull-Rom curve through the points, straight for two."""
    position = np.linspace(0, points - 1, samples)
    left = np.minimum(position.astype(int), points - 2)
    t = position - left
    weights = (
        np.stack([-t + 2 * t**2 - t**3, 2 - 5 * t**2 + 3 * t**3, t + 4 * t**2 - 3 * t**3, -(t**2) + t**3]) / 2
    )
    matrix = np.zeros((samples, points + 2))
    for offset in range(4):
        matrix[np.arange(samples), left + offset] += weights[offset]
    # The curve's ends: a phantom point is the mirror image of the second one.
    matrix[:, 1] += 2 * matrix[:, 0]
    matrix[:, 2] -= matrix[:, 0]
    matrix[:, points] += 2 * matrix[:, points + 1]
    matrix[:, points - 1] -= matrix[:, points + 1]
    return matrix[:, 1 : points + 1]


def glyph_font(classes: int) -> Font:
    """Made-up characters, the same ones for every caller."""
    return font_of([[_made_up(label)] for label in range(classes)])


def _made_up(label: int) -> list[Stroke]:
    """Two to four strokes over a 4x4 grid of anchors, from the class's number."""
    random = np.random.Generator(np.random.Philox(key=[label, 0]))
    way = []
    for _ in range(random.integers(2, 5)):
        anchors = random.choice(16, size=random.integers(2, 5), replace=False)
        way.append([(0.12 + 0.25 * (anchor % 4), 0.1 + 0.27 * (anchor // 4)) for anchor in anchors])
    return way
