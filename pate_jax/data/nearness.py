"""How far public inputs are from each other, so that one question is not asked twice in other words.

An image is compared by the amplitudes of its Fourier transform, which stay as they are when it moves over an
edge and comes back in at the other: a copy moved by a few pixels hardly differs. Other inputs are compared by
their scaled numbers. Distances are told in units of the typical one: in a small sample of the public part,
the median distance to the nearest other. The sample is a quarter at most, so most of it lacks its copies, and
these do not shorten the unit. All of it is a function of public inputs, so it costs nothing.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.data import duplicates
from pate_jax.data.dataset import Preprocessing

NEAR = 0.5  # of the typical distance: below it, two inputs are near-duplicates
_SAMPLE, _SHARE = (
    200,
    4,
)  # public inputs that the typical distance is measured on: at most, and one in so many
_ROUNDING = 1e-6  # of the longest input: distances below it are those of rounding
_COPY = 0.1  # of the usual distance between private inputs: nearer ones may be altered copies
_WORK, _SIDE = 2 * 10**9, 32  # products of numbers for a comparison; pixels on a side of compared images
_BLOCK = 256  # inputs that are compared with all others at a time
Places = Float[np.ndarray, "input coordinates"]


class Ruler(NamedTuple):
    """What distances are measured by; both parts are public."""

    preprocessing: Preprocessing
    typical: float  # distance between a public input and the nearest other of a sample; 0: only rounding

    def apart(
        self, inputs: np.ndarray, distance: float, before: np.ndarray | None = None
    ) -> Int[np.ndarray, " kept"]:
        """Rows that are at least so far from all inputs `before` and from each earlier row that is kept.

        `distance` is in units of the typical one.

        >>> ruler = Ruler(Preprocessing((0.0,), (1.0,)), typical=2.0)
        >>> ruler.apart(np.array([[0.0], [0.9], [2.0], [5.0]]), 0.5, before=np.array([[5.5]])).tolist()
        [0, 2]
        """
        places, reach = coordinates(inputs, self.preprocessing), distance * self.typical
        held = places[:0] if before is None else coordinates(before, self.preprocessing)
        return _apart(places, held, reach)

    def near(self, inputs: np.ndarray) -> int:
        """How many inputs are near-duplicates of an earlier one, each of which is none."""
        return len(inputs) - len(self.apart(inputs, NEAR))


def ruler(public: np.ndarray, preprocessing: Preprocessing) -> Ruler:
    """The ruler of a public part; equal inputs count once.

    >>> ruler(np.arange(40.0)[:, None] % 2, Preprocessing((0.0,), (1.0,))).typical
    1.0
    """
    size = min(_SAMPLE, max(2, len(public) // _SHARE))
    some = public[np.random.default_rng(0).permutation(len(public))[:size]]
    places = coordinates(some[duplicates.unique_queries(some).first_rows], preprocessing)
    gaps = _gaps(places, places)
    np.fill_diagonal(gaps, np.inf)
    typical = float(np.median(gaps.min(1))) if len(places) > 1 else 0.0
    longest = math.sqrt((places**2).sum(1).max(initial=0.0))
    return Ruler(preprocessing, typical if typical > _ROUNDING * longest else 0.0)


def coordinates(inputs: np.ndarray, preprocessing: Preprocessing) -> Places:
    """Where inputs are, as stored: one row for each.

    >>> image = np.zeros((1, 8, 8, 1), np.uint8)
    >>> image[0, 2:5, 3] = 200
    >>> moved, as_stored = np.roll(image, (1, 1), axis=(1, 2)), Preprocessing((0.0,), (1.0,))
    >>> np.allclose(coordinates(image, as_stored), coordinates(moved, as_stored))
    True
    """
    scaled = np.asarray(preprocessing.apply(inputs), np.float64)
    if scaled.ndim == 4:
        scaled = np.abs(np.fft.rfft2(scaled, axes=(1, 2)))
    return scaled.reshape(len(scaled), math.prod(scaled.shape[1:]))


def copies(private: np.ndarray, public: np.ndarray, preprocessing: Preprocessing) -> tuple[int, int]:
    """How many of so many public inputs hardly differ from a private one, if chance does not explain it.

    They are nearer to one than a tenth of what private inputs are apart, and are not equal to it. Of private
    inputs themselves hardly any are so near to each other. Of many inputs a sample is compared.

    >>> private = np.random.default_rng(0).normal(size=(300, 3))
    >>> as_stored = Preprocessing((0.0,), (1.0,))
    >>> copies(private, private[:50] + 1e-4, as_stored), copies(private, private[::2] + 1, as_stored)[0]
    ((50, 50), 0)
    """
    whole = coordinates(_shrunk(private), preprocessing)
    most = max(_SAMPLE, _WORK // max(1, whole.size))
    random = np.random.default_rng(0)
    asked = random.permutation(len(public))[:most]
    own = random.permutation(len(private))[: min(most, 2 * _SAMPLE)]
    near = _nearest(coordinates(_shrunk(public[asked]), preprocessing), whole)
    usual = _nearest(whole[own], whole)
    reach = _COPY * float(np.median(usual[np.isfinite(usual)])) if np.isfinite(usual).any() else 0.0
    found, chance = int((near < reach).sum()), float((usual < reach).mean()) * len(near)
    return (found if found > 2 * chance + 2 else 0), len(near)


def _shrunk(inputs: np.ndarray) -> np.ndarray:
    """Images as the means of blocks, 32 on a side at most, so that large ones are compared in time."""
    by = -(-max(inputs.shape[1:3]) // _SIDE) if inputs.ndim == 4 else 1
    if by == 1:
        return inputs
    height, width = (side // by for side in inputs.shape[1:3])
    cut = inputs[:, : height * by, : width * by]
    blocks = cut.reshape(len(inputs), height, by, width, by, inputs.shape[3])
    return np.asarray(blocks.mean((2, 4), dtype=np.float32))


def _nearest(
    left: Float[np.ndarray, "left coordinates"], right: Float[np.ndarray, "right coordinates"]
) -> Float[np.ndarray, " left"]:
    """How far each of some inputs is from the nearest of others that it does not equal."""
    found = np.full(len(left), np.inf)
    equal = _ROUNDING * np.sqrt((left**2).sum(1))[:, None]
    for start in range(0, len(right), _BLOCK):
        gaps = _gaps(left, right[start : start + _BLOCK])
        found = np.minimum(found, np.where(gaps > equal, gaps, np.inf).min(1))
    return found


def _apart(
    places: Places, held: Float[np.ndarray, "held coordinates"], reach: float
) -> Int[np.ndarray, " kept"]:
    """The rows that are kept, in order: block by block, so that most distances come from one product."""
    kept: list[int] = []
    for start in range(0, len(places), _BLOCK):
        block = places[start : start + _BLOCK]
        free = np.flatnonzero(_gaps(block, held).min(1, initial=np.inf) >= reach)
        block, among = block[free], _gaps(block[free], block[free]) < reach
        new: list[int] = []
        for row in range(len(block)):
            if not among[row, new].any():
                new.append(row)
        kept.extend((start + free[new]).tolist())
        held = np.concatenate([held, block[new]])
    return np.array(kept, np.int64)


def _gaps(
    left: Float[np.ndarray, "left coordinates"], right: Float[np.ndarray, "right coordinates"]
) -> Float[np.ndarray, "left right"]:
    """All distances between two lists."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    gaps: np.ndarray = np.sqrt(np.maximum(squares, 0))
    return gaps
