"""A canary in one teacher's shard, at the queries and among the teachers where its vote tells most.

All records are chosen by the attacker, which a guarantee for all data sets must allow. Every teacher has two:
some the canary's own input with a class A, the others a similar input with a class B, as many as make the
race in which one moved vote changes the law of an answer most. The canary is a record of its own input with A
and goes where the run's partition puts it: to a teacher that else says B. All queries are near-duplicates
of its input. So its presence moves one vote at every query, through the run's own partition, teachers and
sampler. Teachers follow from their shards, so they are trained once with the canary and once without it, and
only coins and noise are new in each run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax import aggregate
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import mechanism as sampler
from pate_jax.audit.attacks.canary_bounds import Rates
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards, assign, divide
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.system.tasks import HERE, Engine

Labeller = Callable[[Part, Shards, np.ndarray], Int[np.ndarray, "teacher query"]]
_AT_ONCE = 200_000  # answers that are drawn at a time
CANARY = "canary"  # its id
_EACH = 2  # records of each teacher
_SIMILAR = 0.1  # the similar input: of all others, so many are nearer
_FLAT = 50.0  # the most that one answer may say, where a twin gives what an honest one never would


class Pair(NamedTuple):
    """The votes on every query without the canary and with it."""

    without: Int[np.ndarray, "query class"]
    with_it: Int[np.ndarray, "query class"]


def votes(
    labelled: Labeller,
    inputs: np.ndarray,
    race: Int[np.ndarray, " class"],
    queries: int,
    *,
    key: bytes,
) -> Pair:
    """The votes of teachers that are trained without the canary and with it, for a race without it."""
    teachers, first = int(race.sum()), int(race[0])
    own, similar = inputs[0], _similar(inputs)
    ids = np.append(_ids(teachers, key), CANARY)
    home_of = assign(ids, teachers, key=key)
    says_b = (home_of[:-1] - home_of[-1]) % teachers < first
    seen = np.stack([*(similar if one else own for one in says_b), own])
    part, asked = Part(seen, np.append(np.where(says_b, 0, 1), 1).astype(np.int32), ids), near(own, queries)
    rows = slice(0, len(ids) - 1), slice(0, len(ids))
    both = [_counted(labelled, part.take(some), teachers, asked, len(race), key) for some in rows]
    if (both[0] == both[1]).all():
        raise PateError("the canary moves no vote: the space of these teachers takes it for no other input")
    return Pair(*both)


def near(own: np.ndarray, queries: int) -> np.ndarray:
    """Near-duplicates: one pixel is another one by a little, or the whole input is by a ten-thousandth.

    >>> near(np.array([0, 255, 7], np.uint8), 4).tolist()
    [[1, 255, 7], [0, 254, 7], [0, 255, 8], [2, 255, 7]]
    """
    found, number = np.repeat(own[None], queries, axis=0), np.arange(queries)
    if not np.issubdtype(own.dtype, np.integer):
        factor = 1 + 1e-4 * (number + 1) / queries
        return (found * factor.reshape(-1, *[1] * own.ndim)).astype(own.dtype)
    flat, size = found.reshape(queries, -1), own.size
    place, step = number % size, 1 + number // size
    up = flat[number, place].astype(np.int64)
    flat[number, place] = np.where(up < 128, up + step, up - step).astype(own.dtype)
    return found


def rates(
    mechanism: Mechanism,
    pair: Pair,
    runs: int,
    *,
    coins: np.random.Generator,
    key: Callable[[], jax.Array] = noise.fresh_key,
    engine: Engine = HERE,
) -> dict[str, Rates]:
    """The scores of runs with the canary and without it, in pairs of runs with coins and noise of their own.

    `answers`: the log-likelihood ratio of all answers. `difference`: the same less that of another run, which
    cancels noise that both have in common.
    """
    present = coins.random((2, -(-runs // 2))) < 0.5
    none = np.zeros((2, max(1, len(present[0]) // 2)), bool)
    asked = Asked(mechanism, pair, _ratios(mechanism, pair), key)
    draws = [*_draws(asked, present), *_draws(asked, none)]
    found = dict(engine.each(drawn, draws))
    every = [np.concatenate([found[place] for place in range(side, len(draws), 2)]) for side in (0, 1)]
    scores, before = np.split(np.stack(every), [present.shape[1]], axis=1)
    single = Rates(scores[present], scores[~present], before.ravel())
    apart, there = scores[0] - scores[1], present[0]
    return {"answers": single, "difference": Rates(apart[there], apart[~there], before[0] - before[1])}


class Asked(NamedTuple):
    """What every run is asked: planted votes and what each answer says, no private record among them."""

    mechanism: Mechanism
    pair: Pair
    ratios: Float[np.ndarray, "query outcome"]
    key: Callable[[], jax.Array]


class Draws(NamedTuple):
    """Some runs of which it is known who has the canary, and whose answers are to be drawn."""

    asked: Asked
    present: Bool[np.ndarray, " run"]
    size: int  # that their number is filled up to


def _draws(asked: Asked, present: Bool[np.ndarray, "side run"]) -> list[Draws]:
    """All runs, in parts: those of the first side and of the second in turns, which are drawn alike."""
    runs = present.shape[1]
    size = max(1, min(runs, _AT_ONCE // len(asked.ratios)))
    return [
        Draws(asked, side[start : start + size], size) for start in range(0, runs, size) for side in present
    ]


def drawn(some: Draws) -> Float[np.ndarray, " run"]:
    """The log-likelihood ratio of each run's answers."""
    asked, both = some.asked, np.stack(some.asked.pair).astype(np.int32)
    queries, classes = both.shape[1:]
    which = np.zeros(some.size, np.int64)
    which[: len(some.present)] = some.present
    answers = aggregate.answer(asked.mechanism, both[which].reshape(-1, classes), key=asked.key())
    labels = np.where(np.asarray(answers.answered), np.asarray(answers.labels), -1) + 1
    told = asked.ratios[np.arange(queries), labels.reshape(some.size, queries)].sum(1)
    return np.asarray(told[: len(some.present)])


def _ratios(mechanism: Mechanism, pair: Pair) -> Float[np.ndarray, "query outcome"]:
    """What each outcome of each query says for the canary, refused first."""
    joined = np.concatenate(pair, axis=1)
    races, which = np.unique(joined, axis=0, return_inverse=True)
    found = np.zeros((len(races), pair.without.shape[1] + 1))
    for row, race in enumerate(races):
        without, with_it = sampler.laws(mechanism, race.reshape(2, -1))
        there = np.isfinite(without) | np.isfinite(with_it)
        found[row][there] = np.clip(with_it[there] - without[there], -_FLAT, _FLAT)
    return found[which.ravel()]


def _counted(
    labelled: Labeller, part: Part, teachers: int, asked: np.ndarray, classes: int, key: bytes
) -> Int[np.ndarray, "query class"]:
    labels = labelled(part, divide(part, teachers, key=key), asked)
    found: np.ndarray = (labels[..., None] == np.arange(classes)).sum(0)
    return found


def _ids(teachers: int, key: bytes) -> np.ndarray:
    """Ids of which every teacher gets two, so that none has too few however their number is rounded."""
    wanted = 8 * teachers
    while True:
        ids = np.array([f"planted-{number}" for number in range(wanted)])
        home_of = assign(ids, teachers, key=key)
        order = np.argsort(home_of, kind="stable")
        first = np.searchsorted(home_of[order], np.arange(teachers))
        if np.bincount(home_of, minlength=teachers).min() >= _EACH:
            chosen: np.ndarray = ids[order[first[:, None] + np.arange(_EACH)].ravel()]
            return chosen
        wanted *= 2


def _similar(inputs: np.ndarray) -> np.ndarray:
    """An input that is like the first one, and another one."""
    flat = inputs.reshape(len(inputs), -1).astype(np.float64)
    apart = ((flat - flat[0]) ** 2).sum(1)
    others = np.flatnonzero(apart > 0)
    if not len(others):
        raise PateError("all public inputs are equal: the canary needs another one beside its own")
    ranked = others[np.argsort(apart[others], kind="stable")]
    found: np.ndarray = inputs[ranked[int(_SIMILAR * len(ranked))]]
    return found
