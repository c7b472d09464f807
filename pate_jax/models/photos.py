"""Features of colour photos that are learned from public photos alone: many kinds of patches, in few cells.

Every patch is freed of its brightness and contrast, whitened, and compared with hundreds of directions that
are typical of the public pool (spherical k-means). What is beyond a threshold is summed over the cells of a
grid (Coates and Ng 2011, "The importance of encoding versus training"; of one polarity, and the root of each
sum). A photo and its mirrored copy add up, where public photos look the same mirrored: a record is still one
vector, so it costs nothing. No private photo is looked at to learn any of it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models import clusters, patches
from pate_jax.models.patches import product
from pate_jax.system.eigen import eigensystem

SIZE, CELLS, THRESHOLD = 6, 3, 1.0
LEAST_SIDE = 16  # pixels; what is smaller is seen as grey pictures are
_KINDS = (1600, 800, 400, 200, 100)  # the first for which there is time
_OPERATIONS = 4e13  # for all photos; what this is in minutes: benchmarks/NOTES.md
_USUAL = 60_000  # photos, where nobody says how many there will be
_SAMPLE, _PHOTOS, _ROUNDS = 100_000, 3000, 12  # patches, of how many photos, and rounds of k-means on them
_FLAT, _RIDGE = 0.1, 0.1  # added to the variance of a patch and of a direction, as shares of the mean
_JUDGED, _TOLD = (
    1000,
    0.6,
)  # photos that are told from their mirrored copies, and the share from which that counts
_FEW = 100  # kinds that tell
_PENALTY = 0.1  # of least squares, as a share of the mean square
_TINY = 1e-6  # under a root


class Photos(NamedTuple):
    """What is typical of public photos; a second side holds the same for the mirrored copy."""

    flat: Float[Array | np.ndarray, ""]
    threshold: Float[Array | np.ndarray, ""]
    filters: Float[Array | np.ndarray, "side pixels kinds"]  # the whitening, and typical directions behind it
    offset: Float[Array | np.ndarray, " kinds"]  # what the mean patch answers
    within: Float[Array | np.ndarray, "side places cells"]  # the share with which a place counts in a cell

    @property
    def features(self) -> int:
        """How many numbers a photo becomes."""
        return self.filters.shape[2] * self.within.shape[2]


def learn(
    photos: Float[np.ndarray, "photo h w c"],
    *,
    seed: int = 0,
    kinds: int | None = None,
    size: int = SIZE,
    cells: int = CELLS,
    number: int | None = None,
) -> Photos:
    """What is typical of public photos, which are scaled as a net sees them.

    Unless `kinds` are given, there are as many as there is time for: `number` photos will be looked at.

    >>> pool = np.random.default_rng(0).random((30, 16, 18, 3)).astype(np.float32)
    >>> known = learn(pool, kinds=5, cells=2)
    >>> features(known, pool).shape
    (30, 20)
    """
    shape = photos.shape[1:]
    if not len(photos):
        raise PateError(f"the public photos are {list(photos.shape)}: give some, which teach the space")
    random = np.random.default_rng(seed)
    raw = _some_patches(photos[random.permutation(len(photos))[:_PHOTOS]], size, random)
    plain = _typical(raw, min(kinds or _FEW, _FEW), random, shape, cells)
    sides = 1 if tells_mirrored(plain, photos) else 2
    kinds = kinds or kinds_for(number, shape, size)
    return _with_sides(_typical(raw, kinds, random, shape, cells), shape, sides)


def kinds_for(number: int | None, shape: tuple[int, ...], size: int = SIZE) -> int:
    """For how many kinds of patches there is time, counted in operations: the same on every machine.

    It is counted as if mirrored copies were looked at. Where nobody says the number of photos it is 60,000.

    >>> [kinds_for(number, (32, 32, 3)) for number in (5_000, None, 100_000, 1_000_000)]
    [1600, 1600, 800, 100]
    """
    high, wide, channels = shape
    places = (high - size + 1) * (wide - size + 1)
    each = 2 * 2 * size * size * channels * places  # operations of a kind in a photo and its mirrored copy
    photos = _USUAL if number is None else number
    return next((kinds for kinds in _KINDS if kinds * each * photos <= _OPERATIONS), _KINDS[-1])


def empty(shape: tuple[int, ...], *, kinds: int, size: int, cells: int, sides: int) -> Photos:
    """What a net holds of photos of this shape before it is given what is typical.

    >>> empty((16, 18, 3), kinds=5, size=6, cells=2, sides=2).within.shape
    (2, 143, 4)
    """
    high, wide, channels = shape
    places = (high - size + 1) * (wide - size + 1)
    sizes = (), (), (sides, size * size * channels, kinds), (kinds,), (sides, places, cells * cells)
    return Photos(*(jnp.zeros(each) for each in sizes))


def features(known: Photos, photos: Float[np.ndarray, "photo h w c"]) -> Float[np.ndarray, "photo features"]:
    """`looked` at any number of photos; no photo changes another's last bit."""
    high, wide, _ = photos.shape[1:]
    size = math.isqrt(known.filters.shape[1] // photos.shape[3])
    if (high - size + 1) * (wide - size + 1) != known.within.shape[1]:
        raise PateError(
            f"photos of {high} x {wide} pixels do not fit a space of others: give those of the public shape"
        )
    return patches.block_features(_looked, known, photos, known.features)


def _looked(known: Photos, photos: Float[Array, "photo h w c"]) -> Float[Array, "photo features"]:
    """How much of each typical direction is in each cell, kind by kind; each photo by itself."""
    beyond, within = (known.offset + known.threshold)[:, None], jnp.concatenate(list(known.within))

    def one(photo: Array) -> Array:
        seen = _sharp(photo, known)
        answers = jnp.concatenate([product(side.T, seen) for side in known.filters], 1)
        return jnp.sqrt(product(jax.nn.relu(answers - beyond), within)).ravel()

    return jax.lax.map(one, photos)


looked = jax.jit(_looked)


def tells_mirrored(known: Photos, photos: Float[np.ndarray, "photo h w c"]) -> bool:
    """Whether public photos can be told from their mirrored copies, as digits and letters can.

    Half of some photos teach a linear function of the features, whose answers are judged on the other half.
    """
    some = photos[:_JUDGED]
    change = features(known, some) - features(known, some[:, :, ::-1])
    half = len(change) // 2
    taught, judged = change[:half].astype(np.float64), change[half:]
    alike = taught @ taught.T
    penalty = _PENALTY * max(np.trace(alike) / max(1, half), _TINY)
    weights = taught.T @ np.linalg.solve(alike + penalty * np.eye(half), np.ones(half))
    return bool(np.mean(judged @ weights > 0) > _TOLD)


def _sharp(photo: Float[Array, "h w c"], known: Photos) -> Float[Array, "pixels places"]:
    """The patches around all places where they are whole, freed of brightness and contrast."""
    high, wide, channels = photo.shape
    size = math.isqrt(known.filters.shape[1] // channels)
    down, across = high - size + 1, wide - size + 1
    seen = jnp.stack([photo[y : y + down, x : x + across] for y in range(size) for x in range(size)])
    seen = seen.transpose(0, 3, 1, 2).reshape(size * size * channels, down * across)
    seen = seen - seen.mean(0)
    return seen / jnp.sqrt((seen**2).mean(0) + known.flat)


def _typical(
    raw: Float[np.ndarray, "patch pixels"],
    kinds: int,
    random: np.random.Generator,
    shape: tuple[int, ...],
    cells: int,
) -> Photos:
    """The directions that k-means finds among whitened patches, for photos as they are."""
    variance = raw.var(1)
    flat = np.float32(_FLAT * variance.mean())
    raw = raw[variance > flat]
    if len(raw) <= kinds:
        raise PateError(
            f"{len(raw)} patches of the public photos are not flat, and patches of {kinds} kinds are wanted: "
            "give more photos, or choose another space"
        )
    sharp = (raw - raw.mean(1, keepdims=True)) / np.sqrt(raw.var(1, keepdims=True) + flat)
    offset = sharp.mean(0)
    values, directions = eigensystem(np.cov((sharp - offset).T.astype(np.float64)))
    whitening = ((directions / np.sqrt(values + _RIDGE * values.mean())) @ directions.T).astype(np.float32)
    white = (sharp - offset) @ whitening
    typical = white[random.permutation(len(white))[:kinds]]
    for _ in range(_ROUNDS):
        typical = clusters.middles(white, clusters.nearest(white, typical), typical)
    typical /= np.maximum(np.linalg.norm(typical, axis=1, keepdims=True), _TINY)
    filters = whitening @ typical.T
    size = math.isqrt(raw.shape[1] // shape[2])
    within = _cells(shape[0] - size + 1, shape[1] - size + 1, cells)
    parts = flat, THRESHOLD, filters[None], offset @ filters, within[None]
    return Photos(*(np.asarray(part, np.float32) for part in parts))


def _with_sides(known: Photos, shape: tuple[int, ...], sides: int) -> Photos:
    """The same, with the mirrored copy where there are two sides: its patches, and the cells it lies in."""
    if sides == 1:
        return known
    filters, within = np.asarray(known.filters), np.asarray(known.within)
    size = math.isqrt(filters.shape[1] // shape[2])
    turned = filters.reshape(1, size, size, shape[2], -1)[:, :, ::-1].reshape(filters.shape)
    wide = shape[1] - size + 1
    other = within.reshape(1, -1, wide, within.shape[2])[:, :, ::-1].reshape(within.shape)
    halves = np.concatenate([within, other]) / np.float32(2)
    return known._replace(filters=np.concatenate([filters, turned]), within=halves)


def _cells(down: int, across: int, cells: int) -> Float[np.ndarray, "places cells"]:
    """Which places lie in which cell.

    >>> _cells(2, 4, 2).argmax(1).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    rows, columns = (np.arange(extent) * cells // extent for extent in (down, across))
    cell = (rows[:, None] * cells + columns).ravel()
    return (cell[:, None] == np.arange(cells * cells)).astype(np.float32)


def _some_patches(photos: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Patches at random places of random photos."""
    windows = np.lib.stride_tricks.sliding_window_view(photos, (size, size), axis=(1, 2))
    places = [random.integers(0, extent, _SAMPLE) for extent in windows.shape[:3]]
    drawn = windows[tuple(places)].transpose(0, 2, 3, 1)
    return np.ascontiguousarray(drawn.reshape(_SAMPLE, -1), np.float32)
