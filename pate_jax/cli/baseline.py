"""`pate baseline`: other ways to learn from the same records."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from tyro.conf import arg

from pate_jax.runs.baselines.training import BaselineConfig


def dpsgd(config: Annotated[BaselineConfig, arg(name="")], json: bool = False) -> None:
    """Train a net on the private records themselves, by DP-SGD, to compare it with a run.

    Repeat the same command to continue a run that was stopped: it makes the same steps with the same noise.

    Args:
        config: the training.
        json: end with one JSON object in place of the summary.
    """
    from pate_jax.runs.baselines import training

    results = training.run(config)
    print(json_format.dumps(results) if json else training.told(results))
