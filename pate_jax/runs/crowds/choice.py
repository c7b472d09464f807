"""Which voters a run has where the user leaves that open: those that a rehearsal on public inputs favours.

It reads the public inputs, their labels if the user's own file has any, the number of classes, epsilon and
the noisy number of voters, which is released before it. A run begins as one of neighbours, with a number of
voters that has so much noise that the figure holds for every choice, teachers among them (`teachers`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from pate_jax.accounting.exact import counts
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels
from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs.crowds import forecast, release, teachers
from pate_jax.runs.crowds.forecast import Voters
from pate_jax.runs.crowds.inputs import LEAST, Crowd, metric_of
from pate_jax.runs.crowds.teachers import Chosen
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import CROWD, PLANNED
from pate_jax.runs.report import words
from pate_jax.system import progress

FIRST: Voting = "neighbours"  # what a run begins as
_HALVED = 3  # times at most that epsilon is halved, to see whether less would do


def begun_as(run: RunDirectory) -> Voting:
    """The voters with which a run that chooses them begins, or goes on."""
    settings = run.record.read()
    return settings.crowd.voters if CROWD in settings else FIRST


def decided(crowd: Crowd) -> Crowd | Chosen:
    """The crowd with the voters that were chosen for it, now or before; or the teachers."""
    if _open(crowd.run):
        release.count_voters(crowd)
        labels = judges(crowd)
        found = _rehearsed(crowd, labels)
        taught = teachers.rehearsed(crowd, labels)
        if taught is not None:
            found["teachers"] = taught.expected
        chosen = forecast.best(found)
        if taught is not None and chosen == "teachers":
            return teachers.go_on(crowd, taught, {one: found[one] for one in found if one != "teachers"})
        begun, crowd = crowd, _of(crowd, cast(Voting, chosen))
        facts = {
            "voters": chosen,
            "expected": {one: expected._asdict() for one, expected in found.items()},
            "at": _at_others(begun, labels, chosen, found[chosen]),
        }
        crowd.run.record.revise({CROWD: _recorded(crowd), PLANNED: facts})
        for line in said(crowd, facts):
            progress.say(line)
    return crowd


def _open(run: RunDirectory) -> bool:
    """Whether the voters of a run may still be chosen: nothing was planned, and it began as it should.

    A run that was begun with sums by name has told its number of voters with too little noise for neighbours.
    """
    settings = run.record.read()
    begun = begun_as(run) == FIRST and not run.public_side.exists()
    return begun and PLANNED not in settings


def _of(crowd: Crowd, chosen: Voting) -> Crowd:
    """The same crowd as it was chosen, in a space that is learned once."""
    return replace(crowd, choice=replace(crowd.choice, voters=chosen), steps={})


def _recorded(crowd: Crowd) -> dict[str, Any]:
    """The settings that follow from the choice."""
    return crowd.run.record.read().of(CROWD) | {"voters": crowd.choice.voters}


def judges(crowd: Crowd) -> list[Labels]:
    """The labels that judge: those of the user's own public file, if it has any, else several made-up ones.

    A data set by name has public labels to measure with, which a user of such data would not have.
    """
    return forecast.judges(crowd.dataset, crowd.wide, own=crowd.inputs.choice.private is not None)


def _rehearsed(crowd: Crowd, labels: Sequence[Labels]) -> dict[Voters, Expected]:
    """What is expected of each kind of voters; the number of queries can be chosen of neighbours only."""
    wanted = [FIRST] if crowd.choice.queries else forecast.CROWDS
    return _expected(crowd, crowd.mu, labels, wanted)


def _expected(
    crowd: Crowd, mu: float, labels: Sequence[Labels], wanted: Sequence[Voters]
) -> dict[Voters, Expected]:
    """What voters are expected to bring at this cost."""
    return forecast.of_crowds(
        wanted,
        crowd.wide,
        labels,
        voters=crowd.voting,
        classes=crowd.dataset.classes,
        mu=mu,
        queries=crowd.choice.queries,
        users=crowd.public_users,
        metric=metric_of(crowd),
    )


def _at_others(
    crowd: Crowd, labels: Sequence[Labels], chosen: Voters, here: Expected
) -> list[dict[str, float]]:
    """What this epsilon, twice and half of it (if noise can be drawn for it) are expected to bring.

    Where half of it does about as well, a quarter is looked at too, and so on.
    """
    wished, most = crowd.choice.epsilon, counts.largest_epsilon(crowd.choice.delta)
    found, others = {wished: here}, [2 * wished, *(wished / 2**halved for halved in range(1, 1 + _HALVED))]
    for epsilon in others:
        mu = counts.mu_for(min(epsilon, most), crowd.choice.delta)
        if epsilon > most or mu < LEAST:
            continue
        found[epsilon] = _expected(crowd, mu, labels, [chosen])[chosen]
        if epsilon < wished and not forecast.about_as_good(found[epsilon], here):
            break
    return [{"epsilon": epsilon, **found[epsilon]._asdict()} for epsilon in sorted(found)]


def stepping(crowd: Crowd) -> list[str]:
    """The line on the steps of sums, where the run chooses their number."""
    if crowd.choice.voters != "sums" or crowd.choice.steps == 1:
        return []
    return [words.steps_planned(crowd.at(1).plan, crowd.dataset.classes)]


def said(crowd: Crowd, facts: Mapping[str, Any]) -> list[str]:
    """What was chosen and why, in five lines."""
    choice, dataset = crowd.choice, crowd.dataset
    each = {kind: Expected(**one) for kind, one in facts["expected"].items()}
    expected = "; ".join(f"{kind} {one.text()}" for kind, one in each.items())
    plan, some = crowd.plan, next(iter(each.values()))
    own = some.labels == 1
    alone = some.usual + ("" if own else " on average")
    space = words.space({"space": plan.space.description()._asdict()})
    where = "on the labels of your public file" if own else "in their worst case"
    leading = each[choice.voters].least >= max(one.least for one in each.values())
    why = "do best" if leading else "are the simplest of those that do about best"
    made_up = "No forecast without public labels; with labels made up in several ways"
    by = "Expected with these labels, which are public" if own else made_up
    return [
        f"Chosen by public inputs alone, for epsilon {choice.epsilon:g} at delta {choice.delta:g}: about "
        f"{crowd.voting:,} voters, {dataset.classes} classes, {len(dataset.public.inputs):,} public inputs.",
        f"  voters: {choice.voters}, which {why} {where}. {by}: {expected}; {alone}.",
        f"  space: {space}.",
        f"  noise: of scale {plan.release.sigma:,.0f} in each of {math.prod(plan.release.shape):,} numbers"
        + (", which are all that leaves." if plan.steps is None else "."),
        *(f"  steps: {line}." for line in stepping(crowd)),
        *(f"  {line}." for line in [forecast.less(facts["at"], choice.epsilon)] if line),
        "  Change what you like: --voters, --steps, --space, --queries, --student.method "
        "(`pate run --help-all`).",
    ]
