"""DP-SGD on the same records: a net with one of two activations, or a linear head on a public space.

Its noise is planned for a record whose contents change (REPLACE_ONE), which the statements of all other
methods cover too; what the same noise costs where a record is added or removed stands beside it.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

import numpy as np

from pate_jax.baselines import dpsgd
from pate_jax.baselines.dpsgd import calibration
from pate_jax.errors import PateError
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_COARSE, _FINE = 1e-3, 1e-3  # step of privacy losses, and relative precision, of the search
_MOST_EXAMPLES = 600_000  # that a net on images sees, each record as often as it is drawn
_MOST = 2.0**12  # the largest multiplier that is tried


def of_net(ground: Ground, draw: Draw, activation: str) -> Outcome:
    """A net on the inputs as they are stored."""
    dataset = ground.dataset
    settings = chosen(ground, draw.epsilon, activation=activation, **_shorter(ground))
    made = dpsgd.fit(
        dataset.private.inputs,
        ground.labels,
        dataset.classes,
        settings,
        key=draw.noise_key(f"dpsgd {activation}"),
        preprocessing=dataset.preprocessing,
    )
    return outcome(made, ground.test.inputs)


def _shorter(ground: Ground) -> dict[str, Any]:
    """Fewer steps of a net on many images, so that a whole comparison takes minutes."""
    if ground.dataset.kind != "image":
        return {}
    usual = dpsgd.choose(len(ground.labels), ground.dataset.classes, image=True)
    steps = min(usual.steps, max(1, _MOST_EXAMPLES // usual.batch))
    return {"steps": steps, "average": 1 - 1 / max(2.0, steps / 20)}


def of_head(ground: Ground, draw: Draw) -> Outcome:
    """A matrix on what linear teachers see."""
    seen = ground.entries
    made = dpsgd.fit(
        seen.private,
        ground.labels,
        ground.dataset.classes,
        chosen(ground, draw.epsilon),
        key=draw.noise_key("dpsgd head"),
        model=seen.model,
    )
    return outcome(made, seen.tested)


def outcome(made: dpsgd.Fitted, tested: np.ndarray) -> Outcome:
    """What a training has brought, and what it costs under both relations."""
    settings = {
        "steps": made.steps,
        "noise_multiplier": made.noise_multiplier,
        "added_or_removed": made.epsilon,
    }
    return Outcome(made.probabilities(tested).argmax(1), made.replaced, settings)


def chosen(ground: Ground, epsilon: float, **changed: Any) -> dpsgd.Settings:
    """The settings of the baseline's own rules, with noise for a record whose contents change."""
    records = len(ground.labels)
    image = ground.dataset.kind == "image"
    settings = dpsgd.choose(
        records, ground.dataset.classes, image=image, epsilon=epsilon, delta=ground.delta, **changed
    )
    rate = calibration.rate_of(settings.batch, records)
    found = multiplier(epsilon, ground.delta, rate, settings.steps)
    return dataclasses.replace(settings, noise_multiplier=found)


def multiplier(epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least multiplier, but for a thousandth, at which a changed record costs at most epsilon.

    >>> found = multiplier(2.0, 1e-5, 0.5, 2)
    >>> calibration.cost(found, 0.5, 2, 1e-5, calibration.REPLACE) <= 2
    True
    """
    cost = partial(calibration.cost, rate=rate, steps=steps, delta=delta, relation=calibration.REPLACE)
    low, high = 0.5, 1.0
    while cost(high, grid=_COARSE) > epsilon:
        low, high = high, 2 * high
        if high > _MOST:
            raise PateError(f"epsilon={epsilon:g} needs more noise than {_MOST:g} times a gradient: raise it")
    while high > low * (1 + _FINE):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle, grid=_COARSE) > epsilon else (low, middle)
    found = math.ceil(high * 1e4) / 1e4
    while cost(found) > epsilon:
        found = math.ceil(found * (1 + _FINE) * 1e4) / 1e4
    return found


_NET = Needs(
    pool="none",
    trust="one trainer sees the records",
    gives="a net",
)
NETS = tuple(
    Contender(f"DP-SGD {said}", _NET, partial(of_net, activation=activation))
    for said, activation in (("ReLU", "relu"), ("tempered", "tempered_sigmoid"))
)
HEAD = Contender(
    "DP-SGD linear",
    Needs(
        pool="unlabelled inputs, which only say what records are compared by",
        trust="one trainer sees the records",
        gives="a linear classifier",
    ),
    of_head,
)
