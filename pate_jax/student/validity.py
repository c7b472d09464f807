"""Which values the settings of students may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from pate_jax.errors import PateError, above, at_least, one_of, within

Net = Literal["mlp", "table", "cnn", "pate2017", "tutorial", "resnet"]
_OF_PUBLIC_IMAGES = {"patches": "ridge", "tandem": "tandem"}  # nets that are a method's own


def check(given: Mapping[str, Any]) -> None:
    """Refuse values that make no sense.

    >>> check({"steps": 3, "net": "cnn"})
    """
    for name in ("steps", "batch_size", "learning_rate", "unlabelled", "radius", "latent", "devices"):
        above(0, **{f"student {name}": given.get(name)})
    for name in ("label_smoothing", "average", "hold_out", "settled"):
        if not 0 <= (given.get(name) or 0) < 1:
            raise PateError(f"student {name}={given.get(name)} must be at least 0 and below 1")
    for name in ("confidence", "alignment"):
        within(0, 1, **{f"student {name}": given.get(name)})
    for name in ("shift", "weight_decay", "weight", "strength", "entropy", "patience"):
        at_least(0, **{f"student {name}": given.get(name)})
    if given.get("patience") and not given.get("hold_out"):
        raise PateError(f"student patience={given['patience']} needs answers to judge by: set hold_out=0.1")
    _check_net(given.get("net"))


def _check_net(net: Any) -> None:
    if net in _OF_PUBLIC_IMAGES:
        raise PateError(
            f"student net={net!r} is made of public images, not trained step by step: choose "
            f"method={_OF_PUBLIC_IMAGES[net]!r}, or leave the net out"
        )
    if net is not None:
        one_of(get_args(Net), **{"student net": net})
