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
from pate_jax.runs.crowds import forecast, release
from pate_jax.runs.crowds.inputs import LEAST, Crowd
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
        voters = forecast.best(found)
        wanted = run.record.read().of(CROWD) | {"voters": voters}
        crowd = crowd.of(voters)
        facts = {"voters": voters, "expected": _listed(found), "at": _at_others(crowd, labels, found[voters])}
        run.record.revise({CROWD: wanted, PLANNED: facts})
        for line in said(crowd, facts):
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
    """What this epsilon, twice and half of it (if tables hold so much noise) are expected to bring."""
    found = {crowd.choice.epsilon: here}
    for epsilon in (crowd.choice.epsilon / 2, 2 * crowd.choice.epsilon):
        mu = counts.mu_for(epsilon, crowd.choice.delta)
        if mu >= LEAST:
            found[epsilon] = _expected(crowd, mu, labels)
    return [{"epsilon": epsilon, **found[epsilon]._asdict()} for epsilon in sorted(found)]


def said(crowd: Crowd, facts: Mapping[str, Any]) -> list[str]:
    """What was chosen and why, in five lines."""
    choice, dataset = crowd.choice, crowd.dataset
    expected = "; ".join(f"{kind} {Expected(**one).text()}" for kind, one in facts["expected"].items())
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
