"""Records that vote by themselves, as a run of theirs would: by neighbours, or by sums in steps."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from pate_jax import crowd
from pate_jax.accounting.exact import counts
from pate_jax.aggregate.noise import noisy_table
from pate_jax.crowd import shares, steps
from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.step_choice import stepped
from pate_jax.crowd.vectors import Scaling
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.runs.crowds.answers import soft
from pate_jax.sweep.compare import whole_run
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_AT_ONCE = 2000  # records
Table = Int[np.ndarray, "row column"]


def plan(kind: crowd.Kind, ground: Ground, epsilon: float) -> Plan:
    """The plan of a run at this epsilon; its cost is computed anew."""
    voters, mu = ground.records, counts.mu_for(epsilon, ground.delta)
    if kind == "sums":
        made = stepped(*ground.wide, voters=voters, classes=ground.dataset.classes, mu=mu)
    else:
        made = crowd.plan(kind, *ground.wide, voters=voters, classes=ground.dataset.classes, mu=mu)
    cost = spent(made, ground)
    if cost > epsilon:
        raise PateError(f"epsilon={epsilon:g} is below the {cost:g} that {made.release} costs: raise it")
    return made


def spent(made: Plan, ground: Ground) -> float:
    """What all tables of a plan cost."""
    later = [] if made.steps is None else made.steps.later
    return counts.epsilon([made.release, *later], ground.delta)


def by_sums(ground: Ground, draw: Draw) -> Outcome:
    """The classifier that noisy sums of the records' vectors give; of images, the student of a whole run."""
    if ground.dataset.kind == "image" and ground.dataset.public.features is None:
        return whole_run.by_sums(ground, draw)
    made = plan("sums", ground, draw.epsilon)
    noisy = noisy_table(made.release, summed(made, ground), key=draw.noise_key("sums")).values
    model = shares.classifier_of(noisy, made, ground.wide.pool, ground.records)
    first = made if made.steps is None else made.steps
    settings = {"directions": len(first.space.variances), "sigma": round(first.release.sigma, 1)}
    if made.steps is None:
        found = model.judged(_seen(made.scaling, ground.tested))
    else:
        found = after_steps(made.steps, model, _seen(made.scaling, ground.wide.pool), ground, draw)
        settings |= {"steps": made.steps.number}
    return Outcome(found, spent(made, ground), settings)


def after_steps(
    made: steps.Steps, model: Linear, first: Int[np.ndarray, "pool entries"], ground: Ground, draw: Draw
) -> Float[np.ndarray, "test classes"]:
    """What the classifier says of the test rows after all steps behind the first table's."""
    private, pool, tested = (
        _seen(made.scaling, places) for places in (ground.places, ground.wide.pool, ground.tested)
    )

    def ask(step: int, weights: steps.Weights) -> Table:
        exact = steps.gradients(private, ground.labels, None, weights, made.release)
        return noisy_table(made.release, exact, key=draw.noise_key(f"sums, step {step}")).values

    return steps.probabilities(steps.taken(made, model, first, pool, ask), tested)


def _seen(scaling: Scaling, places: Int[np.ndarray, "n directions"]) -> Int[np.ndarray, "n entries"]:
    return crowd.vectors(scaling, places[:, : len(scaling.weights)])


def by_neighbours(ground: Ground, draw: Draw) -> Outcome:
    """A student of the noisy counts that records of each class cast for their nearest public inputs."""
    made = plan("neighbours", ground, draw.epsilon)
    key = draw.noise_key("neighbours")
    noisy = noisy_table(made.release, counted(made, ground), key=key).values
    return from_counts(noisy, made, ground, draw, counts.epsilon([made.release], ground.delta))


def from_counts(noisy: Table, made: Plan, ground: Ground, draw: Draw, spent: float) -> Outcome:
    """A student of noisy counts of votes at the queries of a plan."""
    release, chosen = made.release, made.queries
    if chosen is None or not isinstance(release, NeighbourCounts):
        raise PateError(f"{release} has no queries: make the plan for neighbours")
    answers, key = soft(shares.of_counts(noisy, release)), draw.number("student of counts")
    said, method = ground.taught(answers, chosen.rows, key)
    settings = {"queries": release.queries, "votes": release.votes, "sigma": round(release.sigma, 1)}
    return Outcome(said, spent, {**settings, "student": method})


def summed(made: Plan, ground: Ground) -> Table:
    """The table of `crowd.sums`, from coordinates that are known already."""
    classes, release = ground.dataset.classes, made.release
    if not isinstance(release, ClassSums):
        raise PateError(f"{release} has no sums: make the plan for sums")
    seen = ground.places[:, : len(made.space.variances)]
    table = np.zeros((classes, release.directions), np.int64)
    for start in range(0, len(seen), _AT_ONCE):
        there = slice(start, start + _AT_ONCE)
        np.add.at(table, ground.labels[there], crowd.vectors(made.scaling, seen[there]).astype(np.int64))
    return table[1:] - table[:1] if classes == 2 else table


def counted(made: Plan, ground: Ground) -> Table:
    """The table of `crowd.counts`, from coordinates that are known already."""
    release, chosen = made.release, made.queries
    if chosen is None or not isinstance(release, NeighbourCounts):
        raise PateError(f"{release} has no queries: make the plan for neighbours")
    seen = ground.places[:, : len(made.space.variances)]
    table = np.zeros(release.shape, np.int64)
    for start in range(0, len(seen), _AT_ONCE):
        there = slice(start, start + _AT_ONCE)
        rows = crowd.vectors(chosen.scaling, seen[there]).astype(np.float64)
        gaps = chosen.offsets - 2 * rows @ chosen.vectors
        nearest = np.argsort(gaps, axis=1, kind="stable")[:, : release.votes]
        np.add.at(table, (nearest, ground.labels[there][:, None]), 1)
    return table


SUMS = Contender(
    "sums",
    Needs(
        pool="unlabelled inputs, which only say what records are compared by",
        trust="one aggregator sees the records",
        gives="a linear classifier, and the noisy sums",
    ),
    by_sums,
)
NEIGHBOURS = Contender(
    "neighbours",
    Needs(
        pool="unlabelled inputs to ask about, which the student learns from",
        trust="one aggregator sees each record's votes",
        gives="a student, and the noisy counts",
    ),
    by_neighbours,
)
