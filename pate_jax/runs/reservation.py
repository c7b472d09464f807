"""What a run of teachers reserves in its register, from its settings before it trains, or from its votes."""

from __future__ import annotations

from pathlib import Path

from pate_jax import voting
from pate_jax.data import Dataset, relation
from pate_jax.mechanisms.stable import AnyMechanism
from pate_jax.runs import budget, plans, registration, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs, open_data
from pate_jax.runs.plans import Plan
from pate_jax.runs.settings import RunConfig


def before_training(inputs: Inputs, config: RunConfig, mechanism: AnyMechanism) -> None:
    """Enter a whole run with the most that its settings let it spend."""
    dataset, cut = inputs.dataset, inputs.cut
    teachers, classes = cut.number, dataset.classes
    most = None if config.budget is None else (config.budget, config.delta)
    settings = inputs.run.record.read()
    queries = plans.answers(mechanism, teachers=teachers, classes=classes, queries=config.wanted, most=most)
    plan = Plan(mechanism, teachers, classes, queries, relation.of(dataset, cut.by))
    registration.enter(inputs.run, plans.beside(settings.limit, plan), lambda: dataset, config.register)


def before_answers(
    run: RunDirectory, file: Path | None, mechanism: AnyMechanism, epsilon: float | None, delta: float | None
) -> None:
    """Enter a run that has voted, or whose votes were made elsewhere."""
    votes, fixed = voting.load_votes(run.existing(run.votes, "vote")).votes, budget.fixed(run)
    teachers, classes = int(votes.sum(1).max()), votes.shape[1]
    most = None if epsilon is None else (epsilon, delta or budget.CUSTOMARY_DELTA)
    if fixed is not None:
        most = (fixed.epsilon, fixed.delta)
    settings = run.record.read()
    queries = plans.answers(mechanism, teachers=teachers, classes=classes, queries=len(votes), most=most)
    plan = Plan(mechanism, teachers, classes, queries, stages.covered(run))

    def records() -> Dataset | None:
        return open_data(settings.data) if "data" in settings else None

    registration.enter(run, plans.beside(settings.limit, plan), records, file)
