"""Teachers among the voters that a run may choose: rehearsed with the others, after one number for all.

The number of voters is released first, with noise that leaves room for whoever votes after it
(`accounting.after_count`). A run that chooses teachers goes on as one of teachers: the number stays the first
line of its ledger, and the number and the answers together cost at most what the run may spend.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pate_jax import mechanisms, models
from pate_jax.accounting import after_count
from pate_jax.accounting.after_count import Limit
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels
from pate_jax.data import Dataset, relation
from pate_jax.errors import PateError
from pate_jax.runs.crowds.inputs import Crowd, metric_of, told
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import COMPARED, CROWD, HEADCOUNT, LABEL, PLANNED
from pate_jax.runs.settings import RunConfig

Planned = dict[str, Any]  # as `teacher_plan` records a plan


class Rehearsed(NamedTuple):
    """How teachers would be asked, and what is expected of their student."""

    planned: Planned
    net: models.Model | None
    expected: Expected


class Chosen(NamedTuple):
    """The teachers that a run goes on with."""

    planned: Planned
    net: models.Model | None = None
    opened: Dataset | None = None


def of(run: RunDirectory) -> Chosen | None:
    """The teachers that a run has chosen, if it has."""
    stages = run.record.stages()
    return Chosen(stages[PLANNED]) if HEADCOUNT in stages else None


def limit_of(crowd: Crowd) -> Limit:
    """What answers may cost after the number of voters."""
    return after_count.limit(crowd.choice.epsilon, crowd.choice.delta)


def rehearsed(crowd: Crowd, labels: list[Labels]) -> Rehearsed | None:
    """What teachers are expected to bring; None where nothing is, or the user has chosen for crowds alone."""
    from pate_jax.runs import teacher_plan  # imported here, as it imports this room

    choice = crowd.choice
    one_of_several = LABEL in crowd.run.record.read()  # whose costs add up as those of tables do
    apart = choice.queries is not None or choice.encoder or choice.space is not None
    if apart or one_of_several:
        return None
    config = RunConfig(voters="teachers", delta=choice.delta, epsilon=choice.epsilon)
    limit = limit_of(crowd)
    try:
        pool = teacher_plan.askable(config, crowd.dataset)
        planned, net = teacher_plan.planned(
            config,
            crowd.dataset,
            crowd.wide,
            labels,
            pool,
            records=told(crowd.run),
            epsilon=limit.answers,
            metric=metric_of(crowd),
        )
    except PateError:  # so few records, or so little epsilon, that answers teach nothing
        return None
    return Rehearsed(planned, net, Expected(**planned["expected"]))


def go_on(crowd: Crowd, found: Rehearsed, kinds: dict[str, Expected]) -> Chosen:
    """Make the run one of teachers, in one write; `kinds` is what was expected of all others."""
    planned, limit = found.planned, limit_of(crowd)
    size = {"queries": planned["queries"], "teachers": planned["teachers"]}
    mechanism = after_count.calibrated(
        mechanisms.from_dict(planned["mechanism"]), limit, **size, classes=crowd.dataset.classes
    )
    planned |= {
        "epsilon": limit.epsilon,
        "mechanism": mechanisms.to_dict(mechanism),
        "headcount": limit.headcount.sigma,
        "kinds": {kind: one._asdict() for kind, one in kinds.items()},
    }
    whom = {"relation": relation.of(crowd.dataset, crowd.choice.by)}
    both = {"epsilon": limit.epsilon, "delta": limit.delta}
    crowd.run.record.revise(
        {PLANNED: planned, HEADCOUNT: both, "relation": whom}, forgotten=(CROWD, COMPARED)
    )
    return Chosen(planned, found.net, crowd.dataset)
