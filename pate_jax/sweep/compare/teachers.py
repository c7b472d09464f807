"""Linear teachers on shards, whose noisy answers teach a student."""

from __future__ import annotations

from collections.abc import Sequence

from pate_jax import aggregate
from pate_jax.accounting import planning
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_NEEDS = Needs(
    pool="unlabelled inputs to ask about, which the student learns from",
    trust="each teacher's trainer sees its shard; the aggregator sees votes",
    gives="a student, and the noisy answers",
)


def contender(name: str, numbers: Sequence[int] = planning.TEACHERS) -> Contender:
    """Teachers whose number is one of these, and whose noise and queries are planned as in `pate run`."""

    def learn(ground: Ground, draw: Draw) -> Outcome:
        return _learn(ground, draw, numbers, name)

    return Contender(name, _NEEDS, learn)


def _learn(ground: Ground, draw: Draw, numbers: Sequence[int], name: str) -> Outcome:
    classes, most = ground.dataset.classes, len(ground.different)
    found = planning.plan(
        ground.records, classes, draw.epsilon, ground.delta, most_queries=most, teachers=numbers
    ).best
    votes = ground.votes(found.teachers, draw.seed)[: found.queries]
    answers = aggregate.answer(found.mechanism, votes, key=draw.noise_key(name))
    rows = ground.different[: found.queries]
    said, method = ground.taught(answers, rows, draw.number(f"{name} student"))
    answered = int(answers.answered.sum())
    settings: dict[str, float | str] = {
        "teachers": found.teachers,
        "queries": found.queries,
        "answered": answered,
        "student": method,
    }
    return Outcome(said, found.epsilon, settings)
