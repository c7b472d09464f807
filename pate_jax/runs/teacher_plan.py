"""Number of teachers, noise and queries for a wished epsilon, where the user leaves them open."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pate_jax import mechanisms
from pate_jax.accounting import planning
from pate_jax.data import Dataset, partition
from pate_jax.runs import queries
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.record import PLANNED
from pate_jax.runs.settings import STROKES, PartitionChoice, RunConfig
from pate_jax.runs.stable_choice import StableChoice
from pate_jax.system import devices, progress

_MOST_QUERIES = 2000


def settled(run: RunDirectory, config: RunConfig) -> RunConfig:
    """A run of teachers with all that `--epsilon` leaves open; others are returned as they are.

    The choice reads the number of records or users, rounded down to two digits, and no record. It is kept
    with the settings, so that the run can be continued.
    """
    if isinstance(config.mechanism, StableChoice):
        return replace(config, mechanism=config.mechanism.settled(config.budget, config.delta))
    if config.budget_epsilon is not None or config.mechanism is not None:
        return config
    config = replace(config, data=config.data.drawn(STROKES))
    stages = run.record.stages()
    found = stages[PLANNED] if PLANNED in stages else _planned(config)
    if devices.is_first():
        run.record.agree(PLANNED, found)
    progress.say(_said(found))
    return replace(
        config,
        epsilon=config.budget,
        partition=replace(config.partition, teachers=found["teachers"]),
        queries=found["queries"],
        mechanism=mechanisms.from_dict(found["mechanism"]),
    )


def _planned(config: RunConfig) -> dict[str, Any]:
    """The plan as it is recorded."""
    given = config.partition.teachers
    with devices.failing_together():
        dataset = open_data(config.data)
        units = np.unique(partition.units_of(dataset.private, config.partition.by))
        if given != PartitionChoice.teachers:
            partition.check_enough(units, given)
        pool = _pool(config, dataset)
    found = planning.plan(
        planning.counted(len(units)),
        dataset.classes,
        float(config.budget or 0),
        config.delta,
        most_queries=min(pool, config.queries or _MOST_QUERIES),
        teachers=planning.TEACHERS if given == PartitionChoice.teachers else (given,),
    ).best
    return {
        "epsilon": config.budget,
        "delta": config.delta,
        "teachers": found.teachers,
        "queries": found.queries,
        "mechanism": mechanisms.to_dict(found.mechanism),
        "answers": found.answers,
        "right": found.right,
    }


def _pool(config: RunConfig, dataset: Dataset) -> int:
    """How many public inputs there are to ask about; refused if they are fewer than the user wants."""
    if config.min_distance is not None:
        spacing = queries.Spacing(queries.ruler_of(dataset), config.min_distance)
        return len(queries.different(dataset.public, config.queries or 1, [], spacing))
    if config.queries is not None:
        queries.different(dataset.public, config.queries, [])
    return len(dataset.public.inputs)


def _said(found: dict[str, Any]) -> str:
    """What was chosen, in a sentence."""
    return (
        f"Chosen for epsilon {found['epsilon']:g} at delta {found['delta']:g}, by the rounded number of "
        f"records and votes of known teachers: {found['teachers']:,} teachers, {found['queries']:,} queries, "
        f"{found['mechanism']['name']}; {found['answers']:,.0f} answers are expected, {found['right']:.0%} "
        "of them right."
    )
