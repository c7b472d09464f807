"""Synthetic images: `strokes` (ten digits) and `glyphs` (made-up characters). NumPy only.

To make a record, the control points of its character are jittered, the plane is bent and tilted, the curves
are drawn with a soft brush of random width, and noise is added. All random numbers are hashes of the record's
part and number, so the number is a true id: asking for more records changes none of the others.
"""

from __future__ import annotations

import numpy as np

from pate_jax.data.dataset import Dataset, Part, Preprocessing, check, class_names_of, numbered_ids
from pate_jax.data.synthetic import pen_strokes
from pate_jax.data.synthetic.pen_strokes import POINTS, Font
from pate_jax.data.synthetic.record_random import Stream
from pate_jax.errors import PateError
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
    return _dataset("strokes", pen_strokes.digits(), size, public_size, test_size, difficulty)


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
    if not CLASSES[0] <= classes <= CLASSES[1]:
        raise PateError(f"classes={classes} must be from {CLASSES[0]} to {CLASSES[1]} for glyphs")
    return _dataset("glyphs", pen_strokes.made_up(classes), size, public_size, test_size, difficulty)


def _dataset(
    name: str, font: Font, size: int, public_size: int, test_size: int, difficulty: float
) -> Dataset:
    sizes = {"size": size, "public_size": public_size, "test_size": test_size}
    for option, value in sizes.items():
        if value < 1:
            raise PateError(f"{option}={value} must be at least 1")
    if not DIFFICULTY[0] <= difficulty <= DIFFICULTY[1]:
        raise PateError(f"difficulty={difficulty} must be from {DIFFICULTY[0]:g} to {DIFFICULTY[1]:g}")
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
