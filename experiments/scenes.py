"""Drawn photos, for what has to be judged where no photo may be looked at: 10 kinds of things in scenes.

A thing has a shape, one of two fillings (plain, striped, checked, spotted) and a leaning to some colours,
which it shares with others, so that none of these tells it alone. It is turned, mirrored, of any size and
place, lit from a side, and lies before clouds of colours whose spectrum falls as that of photos does.
"""

from __future__ import annotations

import numpy as np

SIDE, CLASSES = 32, 10
_BLOCK = 500  # scenes drawn at a time
_Y, _X = np.mgrid[:SIDE, :SIDE].astype(np.float32)
_LOBES = np.array([0, 2, 3, 4, 5, 0, 2, 3, 4, 5])  # of a shape's outline
_DEPTH = np.array([0.0, 0.35, 0.3, 0.3, 0.35, 0.0, 0.5, 0.5, 0.2, 0.5])  # of these lobes
_HOLE = np.array([0.0, 0, 0, 0, 0, 0.55, 0, 0.3, 0.4, 0])  # in its middle
_FILLINGS = np.array([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3], [2, 0], [3, 1], [0, 3], [1, 2]])
_HUES = np.array([0.05, 0.55, 0.3, 0.1, 0.6, 0.35, 0.05, 0.8, 0.55, 0.8])


def drawn(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """So many scenes [count, 32, 32, 3] of uint8, and their labels.

    >>> scenes, labels = drawn(3, 0)
    >>> scenes.shape, labels.max() < CLASSES
    ((3, 32, 32, 3), True)
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    blocks = [_scenes(labels[start : start + _BLOCK], random) for start in range(0, count, _BLOCK)]
    return np.concatenate([np.zeros((0, SIDE, SIDE, 3), np.uint8), *blocks]), labels.astype(np.int32)


def _scenes(labels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    count = len(labels)

    def some(low: float, high: float) -> np.ndarray:
        return random.uniform(low, high, (count, 1, 1)).astype(np.float32)

    turn, size, mirrored = some(-0.7, 0.7), some(6.5, 13), np.where(some(0, 1) < 0.5, -1, 1)
    x, y = (_X - SIDE / 2 - some(-6, 6)) * mirrored, _Y - SIDE / 2 - some(-6, 6)
    x, y = x * np.cos(turn) - y * np.sin(turn), (x * np.sin(turn) + y * np.cos(turn)) * some(0.8, 1.25)
    lobes, depth, hole = (each[labels][:, None, None] for each in (_LOBES, _DEPTH, _HOLE))
    angle, far = np.arctan2(y, x + 0.15 * np.abs(y)), np.hypot(x, y)
    edge = size * (1 + depth * np.cos(lobes * angle)) / (1 + depth / 2)
    inside = 1 / (1 + np.exp(np.clip(1.6 * (far - edge), -30, 30)))
    inside = inside - 1 / (1 + np.exp(np.clip(1.6 * (far - hole * edge), -30, 30))) * (hole > 0)
    filling = _FILLINGS[labels, random.integers(0, 2, count)][:, None, None]
    pitch = 2 * np.pi / some(3.5, 6)
    waves = np.sin(pitch * x + some(0, 6)), np.sin(pitch * y + some(0, 6))
    pattern = np.select(
        [filling == 1, filling == 2, filling == 3],
        [waves[0], waves[0] * waves[1] * 1.5, waves[0] + waves[1] - 1],
        0,
    )
    hue = _HUES[labels][:, None, None] + 0.13 * random.normal(size=(count, 1, 1))
    thing = _coloured(hue, some(0.2, 0.9), some(0.35, 0.9))
    other = _coloured(hue + some(-0.3, 0.3), some(0.2, 0.9), some(0.2, 1))
    mixed = (0.5 + 0.5 * np.clip(2 * pattern, -1, 1))[..., None]
    lit = 1 + some(-0.4, 0.4) * (x + y) / SIDE
    thing = (thing * (1 - mixed) + other * mixed) * lit[..., None]
    seen = thing * inside[..., None] + _clouds(count, random) * (1 - inside[..., None])
    seen = seen * some(0.6, 1.1)[..., None] + 0.03 * random.normal(size=seen.shape)
    return np.clip(255 * seen, 0, 255).astype(np.uint8)


def _coloured(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    wave = [np.clip(np.abs((hue + third) % 1 * 6 - 3) - 1, 0, 1) for third in (0, 2 / 3, 1 / 3)]
    return value[..., None] * (1 - saturation[..., None] * (1 - np.stack(wave, -1)))


def _clouds(count: int, random: np.random.Generator) -> np.ndarray:
    """Noise whose amplitude falls with the frequency, in colours that go together."""
    across, down = np.fft.rfftfreq(SIDE)[None, :], np.fft.fftfreq(SIDE)[:, None]
    fall = 1 / np.maximum(np.hypot(across, down), 0.6 / SIDE) ** random.uniform(0.8, 1.6, (count, 1, 1, 1))
    waves = np.fft.irfft2(np.fft.rfft2(random.normal(size=(count, 3, SIDE, SIDE))) * fall)
    waves /= waves.std((2, 3), keepdims=True)
    mixing = np.array([[1, 0.35, 0.15], [1, 0.0, -0.25], [1, -0.35, 0.15]])
    means, scale = random.uniform(0.25, 0.75, (count, 1, 1, 3)), random.uniform(0.05, 0.25, (count, 1, 1, 1))
    return means + scale * np.einsum("nkyx,ck->nyxc", waves, mixing)
