"""A space as arrays and back, so that a run keeps the very space in which its voters were compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from pate_jax.errors import PateError
from pate_jax.models import patches, photos, trees
from pate_jax.models.preprocessing import Preprocessing
from pate_jax.models.products import Products
from pate_jax.models.ramps import Ramps
from pate_jax.models.spaces import fronts
from pate_jax.models.spaces.fronts import Front
from pate_jax.models.spaces.space import Space

_FRONT, _WEIGHTS, _PRODUCTS = "front/", "weights/", "products/"
_OWN = ("middle", "steps", "directions", "variances")


def arrays(space: Space) -> dict[str, np.ndarray]:
    """All that a space consists of, but the scaling of its inputs; an encoder is known by its name alone."""
    made = {name: np.asarray(getattr(space, name)) for name in _OWN}
    named = {"kind": np.array(space.front.kind), **_of_front(space.front)}
    return made | {f"{_FRONT}{name}": array for name, array in named.items()}


def space_of(stored: Mapping[str, np.ndarray], preprocessing: Preprocessing) -> Space:
    """The space that `arrays` gave; `preprocessing` scales inputs as it did there.

    >>> from pate_jax.models import spaces
    >>> from pate_jax.models.preprocessing import AsStored
    >>> space = spaces.learn("identity", np.random.default_rng(0).normal(size=(50, 3)))
    >>> space_of(arrays(space), AsStored()).description() == space.description()
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
