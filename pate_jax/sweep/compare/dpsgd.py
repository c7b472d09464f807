"""DP-SGD on the same records: a net with one of two activations, or a linear head on a public space.

Its noise is planned for a record whose contents change (REPLACE_ONE), which the statements of all other
methods cover too; what the same noise costs where a record is added or removed stands beside it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from pate_jax import models
from pate_jax.baselines import dpsgd
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_MOST_EXAMPLES = 600_000  # that a net on images sees, each record as often as it is drawn


def of_net(ground: Ground, draw: Draw, activation: str) -> Outcome:
    """A net on the inputs as they are stored."""
    dataset = ground.dataset
    settings = chosen(ground, draw.epsilon, _net_size(ground), activation=activation, **_shorter(ground))
    made = dpsgd.fit(
        dataset.private.inputs,
        ground.labels,
        dataset.classes,
        settings,
        key=draw.noise_key(f"dpsgd {activation}"),
        preprocessing=dataset.preprocessing,
    )
    return outcome(made, ground.test.inputs)


def _net_size(ground: Ground) -> int | None:
    """As `pate baseline dpsgd` counts it for its rule of fewer steps: None for images."""
    dataset = ground.dataset
    if dataset.kind == "image":
        return None
    return dpsgd.size(models.build("table", input_shape=dataset.input_shape, classes=dataset.classes))


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
        chosen(ground, draw.epsilon, dpsgd.size(seen.model)),
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
    return Outcome(made.probabilities(tested), made.replaced, settings)


def chosen(ground: Ground, epsilon: float, parameters: int | None, **changed: Any) -> dpsgd.Settings:
    """The settings of the baseline's own rules, with noise for a record whose contents change."""
    return dpsgd.choose(
        len(ground.labels),
        ground.dataset.classes,
        image=ground.dataset.kind == "image",
        epsilon=epsilon,
        delta=ground.delta,
        parameters=parameters,
        neighbours="changed",
        **changed,
    )


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
