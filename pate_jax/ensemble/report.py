"""The report of training, for the private part of a run and never for its release."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from pate_jax.ensemble.feeding import Records
from pate_jax.ensemble.teacher import News
from pate_jax.ensemble.waves import Machine


def of(
    machine: Machine, data: Records, mine: np.ndarray, news: News, pace: float, seconds: float
) -> dict[str, Any]:
    """What became of the teachers `mine`, as JSON."""
    some = data.counts[mine] > 0
    return {
        "teachers": len(mine),
        "plan": dataclasses.asdict(machine.plan),
        "backend": machine.devices[0].platform,
        "devices": len(machine.devices),
        "seconds": seconds,
        "images_per_second": pace,
        "private": {
            "about": "derived from private records: not to be published",
            "shard_size": _spread(data.counts[mine]),
            "empty_shards": int((~some).sum()),
            "own_accuracy": _spread(news.accuracy[some]),
            "own_loss": _spread(news.loss[some]),
            "restarted": {str(mine[row]): int(news.attempt[row]) for row in np.flatnonzero(news.attempt)},
            "failed": mine[np.flatnonzero(news.failed)].tolist(),
        },
    }


def _spread(values: np.ndarray) -> dict[str, float] | None:
    """Minimum, mean and maximum of the finite values."""
    finite = np.asarray(values, np.float64)[np.isfinite(values)]
    if not len(finite):
        return None
    return {"min": float(finite.min()), "mean": float(finite.mean()), "max": float(finite.max())}
