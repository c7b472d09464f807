"""Which voters a run has where the user leaves that open: those that a rehearsal on public inputs favours.

It reads the public inputs, the number of classes, epsilon and the noisy number of voters, which is released
before it. A run begins as one of neighbours, with the noise that their number of voters needs, which is more
than sums need. So the figure holds for either choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pate_jax.accounting.exact import counts
from pate_jax.crowd import rehearsal
from pate_jax.crowd.rehearsal import Expected
from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs.crowds import release
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import CROWD, PLANNED
from pate_jax.runs.report import crowd_words
from pate_jax.system import progress

FIRST: Voting = "neighbours"  # what a run begins as
Labellings = Sequence[rehearsal.Labels]


def begun_as(run: RunDirectory) -> Voting:
    """The voters with which a run that chooses them begins, or goes on."""
    settings = run.record.read()
    return settings.crowd.voters if CROWD in settings else FIRST


def decided(crowd: Crowd) -> Crowd:
    """The crowd with the voters that were chosen for it, now or when the run was begun."""
    run = crowd.run
    if _open(run):
        release.count_voters(crowd)
        labels = rehearsal.labellings(*crowd.wide, crowd.dataset.classes)
        found = _rehearsed(crowd, labels)
        voters: Voting = max(found, key=lambda one: (found[one].low, one))
        wanted = run.record.read().of(CROWD) | {"voters": voters}
        crowd = crowd.of(voters)
        facts = {"voters": voters, "expected": _listed(found), "at": _at_others(crowd, labels, found[voters])}
        run.record.revise({CROWD: wanted, PLANNED: facts})
    if PLANNED in run.record.read():
        for line in said(crowd, run.record.read().of(PLANNED)):
            progress.say(line)
    return crowd


def _open(run: RunDirectory) -> bool:
    """Whether the voters of a run may still be chosen: nothing was planned, and it began as it should.

    A run that was begun with sums by name has told its number of voters with too little noise for neighbours.
    """
    begun = run.record.read().crowd.voters == FIRST and not run.public_side.exists()
    return begun and PLANNED not in run.record.read()


def _rehearsed(crowd: Crowd, labels: Labellings) -> dict[Voting, Expected]:
    """What is expected of each kind of voters; the number of queries can be chosen of neighbours only."""
    kinds = get_args(Voting) if crowd.choice.queries is None else (FIRST,)
    return {kind: _expected(crowd.of(kind), crowd.mu, labels) for kind in kinds}


def _expected(crowd: Crowd, mu: float, labels: Labellings) -> Expected:
    """What a plan of this cost is expected to bring."""
    return rehearsal.rehearse(crowd.planned(mu), crowd.wide.pool, labels, crowd.voting)


def _listed(found: Mapping[Voting, Expected]) -> dict[str, dict[str, float]]:
    return {kind: each._asdict() for kind, each in found.items()}


def _at_others(crowd: Crowd, labels: Labellings, here: Expected) -> list[dict[str, float]]:
    """What half of the epsilon is expected to bring, as much, and twice as much."""
    wished = crowd.choice.epsilon
    half, twice = (
        _expected(crowd, counts.mu_for(times * wished, crowd.choice.delta), labels) for times in (0.5, 2.0)
    )
    each = {wished / 2: half, wished: here, 2 * wished: twice}
    return [{"epsilon": epsilon, **one._asdict()} for epsilon, one in each.items()]


def said(crowd: Crowd, facts: Mapping[str, Any]) -> list[str]:
    """What was chosen and why, in five lines."""
    choice, dataset = crowd.choice, crowd.dataset
    expected = "; ".join(f"{kind} {_range(one)}" for kind, one in facts["expected"].items())
    plan = crowd.plan
    space = crowd_words.space({"space": plan.space.description()._asdict()})
    return [
        f"Chosen by public inputs alone, for epsilon {choice.epsilon:g} at delta {choice.delta:g}: about "
        f"{crowd.voting:,} voters, {dataset.classes} classes, {len(dataset.public.inputs):,} public inputs.",
        f"  voters: {choice.voters}, which do best where labels are least kind to them. Expected with labels "
        f"that were made up in several ways: {expected}.",
        f"  space: {space}.",
        f"  noise: of scale {plan.release.sigma:,.0f} in each of {math.prod(plan.release.shape):,} numbers, "
        "which are all that leaves.",
        "  Change what you like: --voters, --space, --queries, --student.method (`pate run --help-all`).",
    ]


def _range(one: Mapping[str, float]) -> str:
    return f"{one['accuracy']:.0%} right ({one['low']:.0%} to {one['high']:.0%})"
