"""From inputs, as stored, to features: what each kind of space looks at before its directions.

A front is frozen and was made from public inputs or constants alone. It looks at each record by itself, so
what it says of one does not depend on any other. Nets and patches do that in a loop on the device: in one
product of a whole batch, a row at the edge may be summed in another order, and a last bit that changes with
the neighbours would change a rounding, and with it two voters instead of one.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from pate_jax.errors import PateError
from pate_jax.models import nets, patches, photos
from pate_jax.models.flax_nets import Preprocessing
from pate_jax.models.layers import Form
from pate_jax.models.table_features import NO_PRODUCTS, Products, Ramps, products_of, ramps_of
from pate_jax.system import devices, progress

_TAIL = 0.005  # share of public values on either side beyond which a number is drawn in
_TINY = 1e-12  # a length is above
_COLOURS = 3  # channels of a photo
_BLOCK = 250  # records that a net looks at in one call
Features = Float[np.ndarray, "record features"]


class Front(Protocol):
    """Features of each record, from its input as stored."""

    @property
    def kind(self) -> str:
        """What makes the features, in a word."""
        ...

    def __call__(self, inputs: np.ndarray) -> Features:
        """One row of float32 for each record."""
        ...


class Patches(NamedTuple):
    """How much each cell of an image holds of what is typical of public images (`models.patches`)."""

    known: patches.Patches
    preprocessing: Preprocessing
    kind: str = "patches"

    def __call__(self, inputs: np.ndarray) -> Features:
        """Features of images."""
        return patches.features(self.known, np.asarray(self.preprocessing.apply(inputs), np.float32))


class Photos(NamedTuple):
    """The same of colour photos: of many more kinds, in fewer cells (`models.photos`)."""

    known: photos.Photos
    preprocessing: Preprocessing
    kind: str = "patches"

    def __call__(self, inputs: np.ndarray) -> Features:
        """Features of photos."""
        return photos.features(self.known, np.asarray(self.preprocessing.apply(inputs), np.float32))


class Columns(NamedTuple):
    """Scaled columns of a table, numbers beyond what is usual in public drawn in to that; ramps; products.

    `data.columns` marks missing values, and scales numbers by constants or by the public part.
    """

    preprocessing: Preprocessing
    low: np.ndarray
    high: np.ndarray
    ramps: Ramps
    products: Products = NO_PRODUCTS
    kind: str = "columns"

    def __call__(self, inputs: np.ndarray) -> Features:
        """Features of rows."""
        scaled = np.asarray(self.preprocessing.apply(inputs), np.float32)
        scaled = np.clip(scaled, self.low, self.high)
        return np.concatenate([scaled, self.ramps.of(scaled), self.products.of(scaled)], axis=1)


class Identity(NamedTuple):
    """The vectors themselves, which somebody's encoder has made."""

    kind: str = "identity"

    def __call__(self, inputs: np.ndarray) -> Features:
        """The same numbers as float32."""
        return np.asarray(inputs, np.float32).reshape(len(inputs), -1)


class Encoder(NamedTuple):
    """A function of the user's own, shown one record at a time, so that no record colours another's vector.

    That it keeps nothing from one call to the next is its maker's word.
    """

    function: Callable[[np.ndarray], Any]  # one input, as stored, to one vector
    name: str = ""  # module:function, by which it is found again
    kind: str = "encoder"

    def __call__(self, inputs: np.ndarray) -> Features:
        """Features of any inputs."""
        return np.stack([self._vector(one) for one in inputs])

    def _vector(self, one: np.ndarray) -> np.ndarray:
        vector = np.asarray(self.function(one), np.float32)
        if vector.ndim != 1 or not vector.size:
            raise PateError(
                f"the encoder made {list(vector.shape)} of one input: it must make one vector of numbers"
            )
        return vector


class Net(NamedTuple):
    """A net that public inputs, or answers about them, have taught.

    Features of a `student` are what its last layer reads; of a net taught by `contrast`, the direction of its
    output, as it was taught.
    """

    kind: Literal["contrast", "student"]
    description: str  # JSON, of what `models.build` takes
    parameters: Any
    preprocessing: Preprocessing

    def __call__(self, inputs: np.ndarray) -> Features:
        """Features of the kind of inputs that the net takes."""
        return _seen(self, self.kind, inputs)

    def labels(self, inputs: np.ndarray) -> Int[np.ndarray, " record"]:
        """The label that a student gives each input, which depends on that input alone, bit for bit."""
        return _seen(self, "logits", inputs).argmax(1)


def _seen(net: Net, what: Literal["contrast", "student", "logits"], inputs: np.ndarray) -> Features:
    """What a net says of inputs, block by block, each input by itself."""
    wanted = tuple(json.loads(net.description)["input_shape"])
    if inputs.shape[1:] != wanted:
        raise PateError(
            f"inputs of shape {list(inputs.shape[1:])} do not fit a net that takes {list(wanted)}"
        )
    looked, blocks = _looking(what, net.description, net.preprocessing), []
    starts = range(0, max(1, len(inputs)), _BLOCK)
    with devices.kept_memory():
        for start in progress.track(starts, "looking at inputs", total=len(starts)):
            block = np.zeros((_BLOCK, *wanted), inputs.dtype)
            rows = len(inputs[start : start + _BLOCK])
            block[:rows] = inputs[start : start + _BLOCK]
            blocks.append(np.asarray(looked(net.parameters, block))[:rows])
    return np.concatenate(blocks)


@lru_cache(maxsize=8)
def _looking(
    what: str, description: str, preprocessing: Preprocessing
) -> Callable[[Any, np.ndarray], jax.Array]:
    """What a net says of a block, one input after another, so that none changes another's last bit."""
    net: Any = nets.build(**json.loads(description), form=Form("patches"))

    def features(parameters, one):
        if what == "student":
            return net.hidden(parameters, one[None])[0]
        found = net.apply(parameters, one[None])[0]
        return found if what == "logits" else found / (jnp.linalg.norm(found) + _TINY)

    def block(parameters, inputs):
        return jax.lax.map(lambda one: features(parameters, one), preprocessing.apply(inputs))

    return jax.jit(block)


def patches_of(
    public: np.ndarray, preprocessing: Preprocessing, *, seed: int = 0, number: int | None = None
) -> Patches | Photos:
    """The front of images, learned from public ones; `number` says how many photos will be looked at."""
    seen = np.asarray(preprocessing.apply(public), np.float32)
    if are_photos(seen.shape[1:]):
        return Photos(photos.learn(seen, seed=seed, number=number), preprocessing)
    return Patches(patches.learn(seen, seed=seed), preprocessing)


def are_photos(shape: tuple[int, ...]) -> bool:
    """Whether inputs of this shape are seen as photos: they have three colours, and are no mere icons.

    >>> are_photos((32, 32, 3)), are_photos((28, 28, 1)), are_photos((8, 8, 3)), are_photos((3072,))
    (True, False, False, False)
    """
    return len(shape) == 3 and shape[2] == _COLOURS and min(shape[:2]) >= photos.LEAST_SIDE


def columns_of(public: np.ndarray, preprocessing: Preprocessing) -> Columns:
    """The front of a table; what is usual is what all but a hundredth of public numbers are.

    The last features may be an encoder's (`preprocessing.encoded` of them), which have neither ramps nor
    products: no one of them says anything by itself.

    >>> from pate_jax.models.flax_nets import AsStored
    >>> front = columns_of(np.arange(1000.0)[:, None], AsStored())
    >>> front(np.array([[-1e9], [3.0], [500.0]]))[:, 0].round(1).tolist()
    [4.0, 4.0, 500.0]
    """
    scaled = np.asarray(preprocessing.apply(public), np.float32)
    low, high = np.quantile(scaled, [_TAIL, 1 - _TAIL], axis=0, method="inverted_cdf")
    same = low == high  # a rare mark would vanish
    low, high = np.where(same, scaled.min(0), low), np.where(same, scaled.max(0), high)
    low, high = low.astype(np.float32), high.astype(np.float32)
    drawn_in = np.clip(scaled, low, high)
    own = drawn_in[:, : drawn_in.shape[1] - getattr(preprocessing, "encoded", 0)]
    return Columns(preprocessing, low, high, ramps_of(own, _TAIL), products_of(own, _TAIL))


def encoder_named(name: str) -> Encoder:
    """The encoder that `module:function` names.

    >>> encoder_named("numpy:ravel")(np.ones((2, 3, 1))).shape
    (2, 3)
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise PateError(f"encoder={name!r} must be module:function")
    try:
        return Encoder(getattr(importlib.import_module(module), function), name)
    except (ImportError, AttributeError) as error:
        raise PateError(f"encoder={name!r} cannot be loaded: {error}") from error
