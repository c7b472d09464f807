"""The entry of a run in a register: from its settings before it trains, or its votes before it answers."""

from __future__ import annotations

from pathlib import Path

from pate_jax import voting
from pate_jax.data import relation
from pate_jax.mechanisms.stable import AnyMechanism
from pate_jax.runs import budget, register, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs, open_data
from pate_jax.runs.plans import Plan
from pate_jax.runs.settings import RunConfig


def before_training(inputs: Inputs, config: RunConfig, mechanism: AnyMechanism) -> None:
    """Enter a whole run with the most that its settings let it spend, if they name a register."""
    if config.register is None:
        return
    dataset, cut = inputs.dataset, inputs.cut
    teachers, classes = cut.teachers, dataset.classes
    most = None if config.budget is None else (config.budget, config.delta)
    rule = inputs.run.record.read().rule
    queries = register.planned(
        mechanism, teachers=teachers, classes=classes, queries=config.wanted, most=most, rule=rule
    )
    whom, records = relation.of(dataset, cut.by), register.digest_of(dataset.private.ids)
    plan = Plan(mechanism, teachers, classes, queries, whom, records, rule)
    register.enter(inputs.run, config.register, plan)


def before_answers(
    run: RunDirectory, file: Path, mechanism: AnyMechanism, epsilon: float | None, delta: float | None
) -> None:
    """Enter a run that has voted, or whose votes were made elsewhere."""
    votes, fixed = voting.load_votes(run.existing(run.votes, "vote")).votes, budget.fixed(run)
    teachers, classes = int(votes.sum(1).max()), votes.shape[1]
    most = None if epsilon is None else (epsilon, delta or budget.CUSTOMARY_DELTA)
    if fixed is not None:
        most = (fixed.epsilon, fixed.delta)
    settings, records = run.record.read(), None
    queries = register.planned(
        mechanism, teachers=teachers, classes=classes, queries=len(votes), most=most, rule=settings.rule
    )
    if "data" in settings:
        dataset = open_data(settings.data)
        records = register.digest_of(dataset.private.ids)
    covers = stages.covered(run)
    plan = Plan(mechanism, teachers, classes, queries, covers, records, settings.rule)
    register.enter(run, file, plan)
