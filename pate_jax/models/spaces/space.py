"""A space: a map from inputs to whole-number vectors that public inputs alone have taught.

A front (`fronts`) turns an input into features. They are put on a grid around the middle of the public pool
and measured along its principal directions, the most varied first. All of it costs nothing, since no private
record has part in it, and from the features on it is whole numbers: a record's coordinates are a function of
that record and the space, bit for bit, whatever else is in the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.errors import PateError, one_of
from pate_jax.models import integers, names, patches, photos, trees
from pate_jax.models.flax_nets import AsStored, Preprocessing
from pate_jax.models.spaces import fronts
from pate_jax.models.spaces.fronts import Features, Front
from pate_jax.models.table_features import Products, Ramps
from pate_jax.system import eigen
from pate_jax.system.eigen import eigensystem

Kind = names.Space
_AS_STORED = AsStored()
BLOCK, _PIECE = 2000, 250  # records looked at together, and measured together
_POOL, _EACH = 5000, 10  # public inputs that directions are learned from, at most; more where each needs them
_TURNS, _MORE = 3, 32  # of orthogonal iteration, and directions beyond those wanted
_SMALL = 600  # features up to which the eigensystem is computed in full
_DIRECTION = 2000  # length of directions: their product with features on their grid is below 2^24
_TYPICAL = 4000  # length that public features have on their grid, typically
_FAINT = 1e-4  # of the largest variance: directions that vary less are left out


class Description(NamedTuple):
    """What a space is, for a run's settings and its report."""

    kind: str
    features: int
    directions: int
    digest: str  # of all numbers that it consists of: equal ones give equal coordinates


class Axes(NamedTuple):
    """What features are measured by: whole-number directions, through the middle of the public pool."""

    middle: Float[Array | np.ndarray, " features"]
    steps: Float[Array | np.ndarray, ""]  # of the grid in one unit of the features
    directions: Float[Array | np.ndarray, "features directions"]


class Space(NamedTuple):
    """What public inputs have taught, frozen."""

    front: Front
    middle: Float[np.ndarray, " features"]
    steps: float  # of the grid in one unit of the features
    directions: Float[np.ndarray, "features directions"]  # whole numbers
    variances: Float[np.ndarray, " directions"]  # of the public pool's coordinates

    @property
    def axes(self) -> Axes:
        """The part that is traced in kernels, behind the front."""
        return Axes(self.middle, np.array(self.steps, np.float32), self.directions)

    def coordinates(self, inputs: np.ndarray) -> Int[np.ndarray, "record directions"]:
        """Coordinates of any records, most varied direction first."""
        found = np.zeros((len(inputs), len(self.variances)), np.int32)
        axes = jax.device_put(self.axes)
        for start in range(0, len(inputs), BLOCK):
            block = _coordinates(axes, self.block(inputs[start : start + BLOCK]))
            found[start : start + BLOCK] = np.asarray(block)[: len(found) - start]
        return found

    def block(self, inputs: np.ndarray, first: int = 0) -> Float[np.ndarray, "block features"]:
        """Features of up to `BLOCK` records; rows beyond them are of no record.

        `first` is the row of the first of them among all records, for messages.
        """
        seen = features(self.front, inputs, first)
        if seen.shape[1] != len(self.middle):
            raise PateError(
                f"records of {seen.shape[1]} features do not fit a space of {len(self.middle)}: "
                "give inputs of the same shape as the public ones"
            )
        return _padded(seen, self.middle)

    def description(self) -> Description:
        """The space in few words.

        >>> pool = np.random.default_rng(0).normal(size=(50, 3)) * [9, 1, 3]
        >>> learn("identity", pool, directions=2).description()[:3]
        ('identity', 3, 2)
        """
        return Description(self.front.kind, len(self.middle), len(self.variances), _digest(self))

    def narrowed(self, wanted: int) -> Space:
        """The same space with its first directions only."""
        kept = min(wanted, len(self.variances))
        return self._replace(directions=self.directions[:, :kept], variances=self.variances[:kept])


class Learned(NamedTuple):
    """A space that public inputs teach, and where they lie in it."""

    space: Space
    pool: Int[np.ndarray, "pool directions"]


def learn(
    kind: Kind,
    public: np.ndarray,
    preprocessing: Preprocessing = _AS_STORED,
    *,
    directions: int = 400,
    encoder: str = "",
    seed: int = 0,
    number: int | None = None,
) -> Space:
    """The space that public inputs, as stored, teach: as many directions as wanted, or as there are.

    Of `number` records that will be looked at, photos are seen as closely as there is time for.

    >>> pool = np.random.default_rng(0).normal(size=(50, 3)) * [9, 1, 3]
    >>> space = learn("identity", pool, directions=2)
    >>> space.coordinates(pool).shape, bool(space.variances[0] > 4 * space.variances[1])
    ((50, 2), True)
    """
    front = front_of(kind, public, preprocessing, encoder=encoder, seed=seed, number=number)
    return over(front, public, directions)


def effort(kind: Kind, public: np.ndarray, number: int | None) -> int:
    """How closely a space would look at photos, of which there are so many: numbers alike in this share one.

    >>> [effort("patches", np.zeros((9, 32, 32, 3)), number) for number in (None, 9_000, 100_000)]
    [1600, 1600, 800]
    """
    is_photo = kind == "patches" and fronts.are_photos(public.shape[1:])
    return photos.kinds_for(number, public.shape[1:]) if is_photo else 0


def front_of(
    kind: Kind,
    public: np.ndarray,
    preprocessing: Preprocessing,
    *,
    encoder: str = "",
    seed: int = 0,
    number: int | None = None,
) -> Front:
    """What a space of this kind looks at, where public inputs need not train a net for it."""
    one_of(get_args(Kind), space=kind)
    if kind == "contrast":
        raise PateError("space='contrast' is a net that has to be trained: pate_jax.student.spaces learns it")
    if kind == "patches":
        return fronts.patches_of(public, preprocessing, seed=seed, number=number)
    if kind == "columns":
        return fronts.columns_of(public, preprocessing)
    if kind == "encoder" and encoder:
        return fronts.encoder_named(encoder)
    if kind == "encoder" and public.ndim != 2:
        raise PateError("space='encoder' needs encoder=module:function, or vectors in place of the inputs")
    return fronts.Identity(kind)


def over(front: Front, public: np.ndarray, directions: int, *, faint: float = _FAINT) -> Space:
    """The space of a front's features: middle, grid and directions are those of the public pool.

    Directions that vary less than `faint`, of the largest variance, are left out.
    """
    return _over(front, public, _sample(public, directions), directions, faint).space


def over_pool(front: Front, public: np.ndarray, directions: int) -> Learned:
    """The space, and the coordinates of all public inputs, each of which is looked at once."""
    rows = _sample(public, directions)
    space, known = _over(front, public, rows, directions, _FAINT)
    pool = np.empty((len(public), known.shape[1]), np.int32)
    pool[rows] = known
    others = np.setdiff1d(np.arange(len(public)), rows)
    pool[others] = space.coordinates(public[others])
    return Learned(space, pool)


def _sample(public: np.ndarray, directions: int) -> Int[np.ndarray, " sample"]:
    """The rows of the public inputs that directions are learned from."""
    return np.random.default_rng(0).permutation(len(public))[: max(_POOL, _EACH * directions)]


def _over(
    front: Front, public: np.ndarray, rows: Int[np.ndarray, " sample"], directions: int, faint: float
) -> Learned:
    """The space, and the coordinates of these rows alone."""
    if directions < 1 or len(public) < 2:
        raise PateError(f"directions={directions} must be at least 1, and public inputs ({len(public)}) two")
    starts = range(0, len(rows), BLOCK)
    blocks = [features(front, public[rows[start : start + BLOCK]]) for start in starts]
    seen = np.concatenate(blocks)
    middle = seen.mean(0, dtype=np.float64).astype(np.float32)
    centred = np.subtract(seen, middle, out=seen)
    typical = float(np.sqrt(np.einsum("ij,ij->i", centred, centred).mean(dtype=np.float64)))
    if typical == 0:
        raise PateError("all public inputs are the same vector in this space: no direction tells them apart")
    vectors = integers.directions(_principal(centred, directions), _DIRECTION)
    space = Space(front, middle, _TYPICAL / typical, vectors, np.ones(vectors.shape[1]))
    found = np.concatenate(
        [np.asarray(_coordinates(space.axes, _padded(block, middle)))[: len(block)] for block in blocks]
    )
    variances = found.astype(np.float64).var(0)
    kept = int((variances >= faint * variances.max()).sum())
    return Learned(space._replace(variances=variances).narrowed(kept), found[:, :kept])


def features(front: Front, inputs: np.ndarray, first: int = 0) -> Features:
    """A front's features, if they are finite numbers; `first` is the row of the first input, for messages."""
    seen = np.asarray(front(inputs), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(np.isfinite(seen.sum(1)).all())  # so is each number then, and sums take half the time
    if not finite and len(wrong := np.flatnonzero(~np.isfinite(seen).all(1))):
        raise PateError(
            f"{len(wrong)} of the {len(inputs)} records read together have features that are not finite "
            f"numbers, the first of them at row {first + wrong[0]}: correct or remove them, or correct the "
            "encoder that made them"
        )
    return seen


def along(axes: Axes, seen: Float[Array, "block features"]) -> Int[Array, "block directions"]:
    """Coordinates of features; whole numbers from the first rounding on.

    A piece of the block at a time: what lies between features and coordinates then stays in the processor's
    cache, which halves the time of thousands of features. No bit depends on the pieces.
    """

    def piece(some: Float[Array, "piece features"]) -> Int[Array, "piece directions"]:
        return integers.measured((some - axes.middle) * axes.steps, axes.directions)

    found = jax.lax.map(piece, seen.reshape(-1, _PIECE, seen.shape[1]))
    return found.reshape(len(seen), -1)


_coordinates = jax.jit(along)


def _digest(space: Space) -> str:
    """128 bits of BLAKE2b. What scales the inputs is no array, and shows in the middle of their features."""
    digest = hashlib.blake2b(digest_size=16)
    for leaf in jax.tree.leaves(space):
        if isinstance(leaf, np.ndarray | jax.Array | float):
            array = np.ascontiguousarray(leaf)
            digest.update(f"{array.dtype.str}{array.shape};".encode() + array.tobytes())
    return digest.hexdigest()


def _padded(block: np.ndarray, middle: np.ndarray) -> np.ndarray:
    if len(block) == BLOCK:
        return block
    padded = np.broadcast_to(middle, (BLOCK, len(middle))).copy()
    padded[: len(block)] = block
    return padded


def _principal(centred: np.ndarray, wanted: int) -> np.ndarray:
    """The principal directions [features, directions], those of the largest variance first."""
    columns = centred.shape[1]
    most = min(wanted, columns, len(centred) - 1)
    if columns <= _SMALL:
        square = centred.astype(np.float64)
        return eigensystem(square.T @ square).directions[:, ::-1][:, :most]
    random = np.random.default_rng(0)
    start = random.standard_normal((columns, min(columns, most + _MORE)))
    found = eigen.leading(centred, start, _TURNS)
    inside = (centred @ found).astype(np.float64)
    return (found @ eigensystem(inside.T @ inside).directions[:, ::-1])[:, :most]


_FRONT, _WEIGHTS, _PRODUCTS = "front/", "weights/", "products/"
_OWN = ("middle", "steps", "directions", "variances")


def arrays_of(space: Space) -> dict[str, np.ndarray]:
    """All that a space consists of, but the scaling of its inputs; an encoder is known by its name alone."""
    made = {name: np.asarray(getattr(space, name)) for name in _OWN}
    named = {"kind": np.array(space.front.kind), **_of_front(space.front)}
    return made | {f"{_FRONT}{name}": array for name, array in named.items()}


def space_of(stored: Mapping[str, np.ndarray], preprocessing: Preprocessing) -> Space:
    """The space that `arrays` gave; `preprocessing` scales inputs as it did there.

    >>> from pate_jax.models import spaces
    >>> from pate_jax.models.flax_nets import AsStored
    >>> space = spaces.learn("identity", np.random.default_rng(0).normal(size=(50, 3)))
    >>> space_of(arrays_of(space), AsStored()).description() == space.description()
    True
    """
    own = {name.removeprefix(_FRONT): stored[name] for name in stored if name.startswith(_FRONT)}
    try:
        front = _front(own, preprocessing)
        return Space(
            front, stored["middle"], float(stored["steps"]), stored["directions"], stored["variances"]
        )
    except (KeyError, TypeError) as error:
        raise PateError(f"these arrays hold no space ({error!r}): restore them from a backup") from error


def _of_front(front: Front) -> dict[str, np.ndarray]:
    if isinstance(front, fronts.Patches | fronts.Photos):
        return {name: np.asarray(array) for name, array in front.known._asdict().items()}
    if isinstance(front, fronts.Columns):
        pairs = {f"{_PRODUCTS}{name}": array for name, array in front.products._asdict().items()}
        return {"low": front.low, "high": front.high, **front.ramps._asdict(), **pairs}
    if isinstance(front, fronts.Net):
        leaves = trees.flat(front.parameters)
        weights = {_WEIGHTS + name: np.asarray(leaf) for name, leaf in leaves.items()}
        return {"net": np.array(front.description), **weights}
    if isinstance(front, fronts.Encoder):
        if not front.name:
            raise PateError("the space's encoder has no name: make it with fronts.encoder_named")
        return {"name": np.array(front.name)}
    return {}


def _front(own: dict[str, np.ndarray], preprocessing: Preprocessing) -> Front:
    kind: Any = str(own.pop("kind"))
    if kind == "patches" and "filters" in own:
        return fronts.Photos(photos.Photos(**own), preprocessing)
    if kind == "patches":
        known = patches.Patches(**{name: jnp.asarray(array) for name, array in own.items()})
        return fronts.Patches(known, preprocessing)
    if kind == "columns":
        pairs = Products(*(own.pop(f"{_PRODUCTS}{name}") for name in Products._fields))
        low, high = own.pop("low"), own.pop("high")
        return fronts.Columns(preprocessing, low, high, Ramps(**own), pairs)
    if "net" in own:
        net = str(own.pop("net"))
        weights = trees.nested({name.removeprefix(_WEIGHTS): leaf for name, leaf in own.items()})
        return fronts.Net(kind, net, weights, preprocessing)
    return fronts.encoder_named(str(own["name"])) if "name" in own else fronts.Identity(kind)
