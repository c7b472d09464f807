"""Features of images that are learned from public images alone, without a gradient (Coates, Ng, Lee 2011).

Every patch of an image is compared with a hundred that are typical of the public pool, and how much it is
like each of them is summed over the cells of a grid, which overlap by a pixel. What changes most in these
numbers when public images are moved by a pixel counts less (an image moved is the same thing). Where
labels are few, a linear classifier on them can be right more often than a net that has to find out by itself
what images are made of. No private image is looked at to learn them, and each image's features are its own.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models import clusters
from pate_jax.system import devices, eigen, progress
from pate_jax.system.eigen import eigensystem

SIZE, KINDS, CELLS, SHAKY = 5, 100, 7, 100
_SAMPLE, _IMAGES, _ROUNDS = 100_000, 3000, 12  # patches, of how many images, and rounds of k-means on them
_FLAT = 0.1  # added to a patch's variance, as a share of the mean: a featureless patch is like no other
_RIDGE = 0.1  # added to the variance of a direction, as a share of the mean
_TINY = 1e-6  # under a root
_OVERLAP = 1  # rows and columns of pixels that a cell takes from its neighbours
_MOVED = 1000  # images that are moved by a pixel to see what changes
_STEADY = 0.3  # weight of what changes, against all directions alike
_TURNS = 8  # of orthogonal iteration
_BLOCK = 100  # images whose patches are drawn at the same places
_LENGTH = 8000  # of an image on the grid of `_shaken`


class Patches(NamedTuple):
    """What is typical of the public pool: its patches, and how much of each an image holds in the mean."""

    flat: Float[Array, ""]
    offset: Float[Array, " pixels"]
    whitening: Float[Array, "pixels pixels"]
    typical: Float[Array, "kinds pixels"]
    middle: Float[Array, " features"]
    shaky: Float[Array, "features directions"]  # along which images change most when they are moved
    taken: Float[Array, " directions"]  # share of it that is taken away
    spread: Float[Array, ""]  # typical distance of an image's features from the middle


def learn(
    images: Float[np.ndarray, "image ..."],
    *,
    seed: int = 0,
    kinds: int = KINDS,
    size: int = SIZE,
    cells: int = CELLS,
) -> Patches:
    """The patches that are typical of public images, which are scaled as a net sees them.

    >>> pool = np.random.default_rng(0).random((20, 8, 8, 1)).astype(np.float32)
    >>> known = learn(pool, kinds=5, size=3, cells=2)
    >>> features(known, pool).shape
    (20, 20)
    """
    if np.ndim(images) != 4 or not len(images):
        raise PateError(
            f"typical patches are those of images [n, height, width, channels], and the public inputs are "
            f"{list(np.shape(images))}: choose another net"
        )
    random = np.random.default_rng(seed)
    chosen = images[random.permutation(len(images))[:_IMAGES]]
    raw = _some_patches(chosen, size, random)
    variance = raw.var(1)
    flat = np.float32(_FLAT * variance.mean())
    sharp = np.asarray(_sharpened(raw[variance > flat], flat))
    if len(sharp) <= kinds:
        raise PateError(
            f"{len(sharp)} patches of {len(images)} public images are not flat, and patches of {kinds} kinds "
            "are wanted; give more images, or use another net"
        )
    offset = sharp.mean(0)
    values, directions = eigensystem(np.cov((sharp - offset).T.astype(np.float64)))
    whitening = (directions / np.sqrt(values + _RIDGE * values.mean())) @ directions.T
    white = ((sharp - offset) @ whitening).astype(np.float32)
    typical = _middles(white, white[random.permutation(len(white))[:kinds]])
    length = cells * cells * kinds
    most = min(SHAKY, length)
    nothing = np.zeros(length), np.zeros((length, most)), np.zeros(most)
    known = Patches(*map(jnp.float32, (flat, offset, whitening, typical, *nothing, 1.0)))
    found = features(known, chosen)
    known = known._replace(middle=jnp.asarray(found.mean(0)))
    found -= found.mean(0)
    shaky, taken = _shaky(known, chosen[:_MOVED], found[:_MOVED], random)
    found -= found @ shaky * taken @ shaky.T
    spread = np.sqrt((found**2).sum(1).mean())
    return known._replace(shaky=jnp.asarray(shaky), taken=jnp.asarray(taken), spread=jnp.float32(spread))


def features(known: Patches, images: Float[np.ndarray, "image h w c"]) -> Float[np.ndarray, "image features"]:
    """`look` at any number of images, each by itself, so that no image changes another's last bit."""
    return block_features(_looked, known, images, len(known.middle))


def look(known: Patches, images: Float[Array | np.ndarray, "image h w c"]) -> Float[Array, "image features"]:
    """How much of each typical patch is in each cell of each image: roots of sums, about 1 long in all."""
    against = _compared(known)
    found = jax.vmap(lambda image: _raw(known, against, image))(jnp.asarray(images))
    return (found - (found @ known.shaky * known.taken) @ known.shaky.T) / known.spread


def likeness(
    ones: Float[Array, "one features"], others: Float[Array, "other features"]
) -> Float[Array, "one other"]:
    """How alike things of these features are, by the angle between them: 1 in the same direction, 0 opposite.

    The arc-cosine kernel of order 1 (Cho and Saul 2009), which is a wide layer of random half-planes.

    >>> found = likeness(jnp.array([[1.0, 0]]), jnp.array([[2.0, 0], [0, 1], [-1, 0]]))
    >>> bool(jnp.allclose(found, jnp.array([1, 1 / jnp.pi, 0]), atol=1e-6))
    True
    """
    ones, others = (
        each / jnp.maximum(jnp.linalg.norm(each, axis=-1, keepdims=True), _TINY) for each in (ones, others)
    )
    cosine = jnp.clip(ones @ others.T, -1, 1)
    angle = jnp.arccos(cosine)
    return (jnp.sin(angle) + (jnp.pi - angle) * cosine) / jnp.pi


def _looked(known: Patches, images: Array) -> Array:
    """What `look` says, each image by itself: no other changes its bits, and no batch is computed at once."""
    against = _compared(known)

    def one(image: Array) -> tuple[Array, Array]:
        found = _raw(known, against, image)
        return found, _LENGTH / jnp.maximum(jnp.sqrt((found**2).sum()), _TINY)

    found, steps = jax.lax.map(one, images)
    return (found - _shaken(known, found, steps[:, None])) / known.spread


looked = jax.jit(_looked)


class _Compared(NamedTuple):
    """What all patches are multiplied by: the whitening, and the typical patches behind it."""

    kernel: Float[Array, "pixels+kinds pixels"]
    offset: Float[Array, " pixels+kinds"]


def _compared(known: Patches) -> _Compared:
    pixels = known.whitening.shape[0]
    both = jnp.concatenate([known.whitening, known.whitening @ known.typical.T], 1)
    centring = jnp.eye(pixels) - 1 / pixels
    return _Compared(product(centring, both).T, known.offset @ both)


def _raw(known: Patches, against: _Compared, image: Float[Array, "h w c"]) -> Float[Array, " features"]:
    """Features of one image before what is shaky is taken away.

    Pixels lie along the last axis, where a CPU's arithmetic is fastest. Sums over the first axis are products
    with ones: XLA on CPUs would join a sum and the roots after it, in a loop that takes six times as long.
    """
    high, wide, channels = image.shape
    size = round((known.offset.shape[0] / channels) ** 0.5)
    cells = round((known.middle.shape[0] / known.typical.shape[0]) ** 0.5)
    seen = _surroundings(image, size)
    pixels = len(seen)
    flatness = 1 / jnp.sqrt(((seen - seen.mean(0)) ** 2).mean(0) + known.flat)
    white, alongside = jnp.split(product(against.kernel, seen), [pixels])
    squares = _added((white * flatness - against.offset[:pixels, None]) ** 2)
    lengths = (known.typical**2).sum(1) + 2 * against.offset[pixels:]
    gaps = jnp.sqrt(jnp.maximum(squares + lengths[:, None] - 2 * flatness * alongside, _TINY))
    usual = _added(gaps) / len(gaps)
    rows, columns = (_edges(extent, cells) for extent in (high, wide))
    sums = []
    for first, end in rows:
        inside = slice(first * wide, end * wide)
        alike = jax.nn.relu(usual[inside] - gaps[:, inside])
        sums.append(sum(alike[:, start : start + wide] for start in range(0, alike.shape[1], wide)))
    within = np.array([[left <= x < right for left, right in columns] for x in range(wide)])
    summed = product(jnp.concatenate(sums, 1).reshape(-1, wide), within.astype(np.float32))
    return jnp.sqrt(summed.reshape(len(gaps), -1).T.ravel()) - known.middle


def _added(rows: Float[Array, "row place"]) -> Float[Array, " place"]:
    """The sum of the rows, as a product with ones."""
    return product(jnp.ones((1, len(rows))), rows)[0]


def _surroundings(image: Float[Array, "h w c"], size: int) -> Float[Array, "places h*w"]:
    """The surroundings of each pixel, zeros outside, in the order of `convolution.patches`."""
    high, wide, channels = image.shape
    low, high_end = size // 2, size - 1 - size // 2
    padded = jnp.pad(image, ((low, high_end), (low, high_end), (0, 0)))
    seen = [padded[y : y + high, x : x + wide] for y in range(size) for x in range(size)]
    return jnp.stack(seen).transpose(0, 3, 1, 2).reshape(size * size * channels, high * wide)


def _shaken(
    known: Patches, found: Float[Array, "image features"], steps: Float[Array, "image 1"]
) -> Float[Array, "image features"]:
    """What is taken away of the directions along which images change when they are moved.

    Many images are multiplied at a time, which is quick, and in whole numbers, so that no image changes
    another's bits (`models.integers`). No sum reaches 2^24: with up to 10,000 features, rounding makes a
    vector at most 50 longer. `steps` puts an image on a grid on which it is 8,050 long, and directions are
    2,050 long. They are orthogonal but for their rounding, so the image is no longer than 11,000 along all
    of them together; and no feature's row of 100 directions is longer than 1,500.
    """
    there = product(jnp.round(found * steps), jnp.round(known.shaky * 2000)) / 2000
    fine = 1490 / jnp.maximum(jnp.sqrt((known.shaky**2).sum(1)), _TINY)  # of each feature
    taken = product(jnp.round(there * known.taken), jnp.round(known.shaky * fine[:, None]).T)
    return taken / (steps * fine)


def product(left: Array | np.ndarray, right: Array | np.ndarray) -> Array:
    """In float32 to its last bits, on every kind of device."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _edges(extent: int, cells: int) -> list[tuple[int, int]]:
    """Where each cell begins and ends.

    >>> _edges(12, 4)
    [(0, 4), (2, 7), (5, 10), (8, 12)]
    """
    ends = [extent * cell // cells for cell in range(cells + 1)]
    return [(max(0, top - _OVERLAP), min(extent, end + _OVERLAP)) for top, end in itertools.pairwise(ends)]


def _sharpened(seen, flat):
    centred = seen - seen.mean(-1, keepdims=True)
    return centred / (((centred**2).mean(-1, keepdims=True) + flat) ** 0.5)


def _some_patches(images: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """Patches at random places of each image, the same ones for all images of a block."""
    each, (high, wide), low = max(1, _SAMPLE // len(images)), images.shape[1:3], size // 2
    around = ((0, 0), (low, size - 1 - low), (low, size - 1 - low), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, around), (size, size), axis=(1, 2))
    drawn = []
    for start in range(0, len(images), _BLOCK):
        rows, columns = np.divmod(random.permutation(high * wide)[:each], wide)
        seen = windows[start : start + _BLOCK, rows, columns].transpose(0, 1, 3, 4, 2)
        drawn.append(seen.reshape(-1, size * size * images.shape[3]))
    return np.concatenate(drawn).astype(np.float32)


def _shaky(
    known: Patches, images: np.ndarray, still: np.ndarray, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The directions in which features change most when images are moved by a pixel, and how much to take.

    `still` are the features of the images where they are. Of a direction whose mean square change is c times
    that of all directions, 1 / sqrt(1 + 0.3 c) stays.
    """
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), "edge")
    high, wide = images.shape[1:3]
    moved = [padded[:, y : y + high, x : x + wide] for y, x in ((0, 1), (2, 1), (1, 0), (1, 2))]
    changes = np.empty((len(moved), *still.shape), np.float32)
    for place, each in zip(changes, moved, strict=True):
        np.subtract(features(known, each), still, out=place)
    changes = changes.reshape(-1, still.shape[1])
    found = eigen.leading(changes, random.standard_normal(known.shaky.shape), _TURNS)
    squares = ((changes @ found) ** 2).mean(0)
    all_alike = np.square(changes, out=changes).mean()
    return found, (1 - 1 / np.sqrt(1 + _STEADY * squares / max(all_alike, _TINY))).astype(np.float32)


def _middles(points: np.ndarray, middles: np.ndarray) -> np.ndarray:
    """k-means from these middles; one that loses all its points stays where it is."""
    for _ in range(_ROUNDS):
        middles = clusters.middles(points, clusters.nearest(points, middles), middles)
    return middles


_AT_ONCE = 100  # images that a core looks at together, at most: more leave its cache; calls cost it little
_TOGETHER = 2000  # images that all devices look at together, at least: as many as `spaces` hands over
Look = Callable[[Any, Array], Array]  # of what is known and a block: one row for each image of it


def block_features(
    look: Look, known: Any, images: Float[np.ndarray, "image h w c"], width: int
) -> Float[np.ndarray, "image features"]:
    """`look` at any number of images, which gives `width` numbers of each.

    All devices take part, whichever one a caller prefers. Every block has the same shape and program, so a
    `look` that treats each image by itself gives it the same bits alone and in any company.
    """
    present = devices.local()
    each = -(-_TOGETHER // len(present))
    each = min(_AT_ONCE, each) if present[0].platform == "cpu" else each
    places = tuple(present[: max(1, -(-len(images) // each))])
    program, rows, everywhere = _looking(look, places)
    there, step = jax.device_put(known, everywhere), each * len(places)
    found = np.zeros((len(images), width), np.float32)

    def begun(start: int) -> Array:
        given = np.zeros((step, *images.shape[1:]), np.float32)
        given[: len(images) - start] = images[start : start + step]
        return program(there, jax.device_put(given, rows))

    with devices.kept_memory():
        starts = range(0, len(images), step)
        blocks = [begun(start) for start in starts[:1]]  # and one more while the first is computed
        for start in progress.track(starts, "comparing patches", total=len(starts)):
            if start + step < len(images):
                blocks.append(begun(start + step))
            for shard in blocks.pop(0).addressable_shards:
                first = start + (shard.index[0].start or 0)
                room = found[first : first + each]
                room[:] = np.asarray(shard.data)[: len(room)]
    return found


@functools.cache
def _looking(
    look: Look, places: tuple[jax.Device, ...]
) -> tuple[Callable[..., Array], NamedSharding, NamedSharding]:
    """The program that looks at blocks of images on these devices at once, and where its arguments lie.

    It is one program: were each device to run its own, each would compile it.
    """
    mesh = Mesh(np.array(places), ("image",))
    split, whole = PartitionSpec("image"), PartitionSpec()
    mapped = jax.shard_map(look, mesh=mesh, in_specs=(whole, split), out_specs=split, check_vma=False)
    # Where a device is a core: all devices share a pool of threads, where their products wait for each other.
    options = devices.compiling(places[0].platform)
    return jax.jit(mapped, compiler_options=options), NamedSharding(mesh, split), NamedSharding(mesh, whole)
