"""Local noise on votes: each record noises the one vote that it casts, and trusts nobody.

A record's answer is a pair of one of Q public inputs and its own label, so one of `Q C` values. It is sent
by randomised response or one-hot noise (`mechanisms.local`), whichever has the smaller variance, with the
whole epsilon and no delta. The collector's unbiased counts then teach a student, as the noisy counts of
neighbours do. Q follows from public numbers by the rule of neighbours, with the noise of the counts in place
of theirs.

Of `n` records, `c` of which have a value, one-hot noise counts `Binomial(c, p) + Binomial(n - c, q)` ones of
it, independently for each value. That law is drawn here in place of `n Q C` bits. Randomised response sends
a value from a row of its channel, so its counts are sums of multinomial draws.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Int

from pate_jax import crowd
from pate_jax.crowd.plan import Plan
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.local import Local
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.crowds import counted, from_counts
from pate_jax.sweep.compare.ground import Draw, Ground

_ROUNDS = 3  # in which the number of values and the noise that it means are brought together


def learn(ground: Ground, draw: Draw) -> Outcome:
    """A student of the unbiased counts."""
    made, noise = plan(ground, draw.epsilon)
    random = np.random.default_rng(draw.number("local votes"))
    exact = counted(made, ground).ravel()
    sent = received(noise, exact, random)
    unbiased = estimates(noise, sent, int(exact.sum())).reshape(made.release.shape)
    found = from_counts(np.rint(unbiased).astype(np.int64), made, ground, draw, local.log_ratio(noise))
    return found._replace(settings={**found.settings, "mechanism": noise.name})


def plan(ground: Ground, epsilon: float) -> tuple[Plan, Local]:
    """Queries, each record having one vote, and the noise of what it sends."""
    classes, most = ground.dataset.classes, local.MOST_CLASSES // ground.dataset.classes
    if most < 1:
        raise PateError(f"{classes} classes are more than the {local.MOST_CLASSES} values that are sent")
    wanted = most
    for _ in range(_ROUNDS):
        noise = quietest(max(2, wanted * classes), epsilon)
        mu = math.sqrt(2 / (ground.records * variance(noise)))
        made = _asked(ground, mu, None)
        if made.release.shape[0] > most:
            made = _asked(ground, mu, most)
        wanted = made.release.shape[0]
    return made, quietest(wanted * classes, epsilon)


def _asked(ground: Ground, mu: float, queries: int | None) -> Plan:
    """A plan of neighbours in which each record has one vote."""
    return crowd.plan(
        "neighbours",
        *ground.wide,
        voters=ground.records,
        classes=ground.dataset.classes,
        mu=mu,
        queries=queries,
        votes=1,
    )


def quietest(values: int, epsilon: float) -> Local:
    """Randomised response or one-hot noise, whichever leaves counts with less variance.

    >>> quietest(4, 3.0).name, quietest(400, 3.0).name
    ('randomised-response', 'one-hot')
    """
    kinds = (local.RandomisedResponse.name, local.OneHotNoise.name)
    return min((local.make(kind, values, epsilon) for kind in kinds), key=variance)


def variance(noise: Local) -> float:
    """The variance of an unbiased count of a rare value, for each record: `q (1 - q) / (p - q)^2`.

    >>> round(variance(local.OneHotNoise(100, 2.0)), 3)
    0.921
    """
    right, wrong = chances(noise)
    return wrong * (1 - wrong) / (right - wrong) ** 2


def chances(noise: Local) -> tuple[float, float]:
    """The chances that a value is reported by a record that has it, and by one that has not.

    >>> [round(chance, 4) for chance in chances(local.RandomisedResponse(10, 4.0))]
    [0.8585, 0.0157]
    """
    rows = local.channel(noise)
    if local.is_bits(noise):
        return rows[1][1] / local.WORDS, rows[0][1] / local.WORDS
    return rows[0][0] / local.WORDS, rows[0][1] / local.WORDS


def received(
    noise: Local, exact: Int[np.ndarray, " value"], random: np.random.Generator
) -> Int[np.ndarray, " value"]:
    """How often each value is reported, drawn from the law of all records' noise together."""
    right, wrong = chances(noise)
    if local.is_bits(noise):
        ones: np.ndarray = random.binomial(exact, right) + random.binomial(exact.sum() - exact, wrong)
        return ones
    kept = random.binomial(exact, right)
    moved = exact - kept
    reported = kept.copy()
    for value, number in enumerate(moved):  # to the other values, evenly
        others = np.full(len(exact), 1 / (len(exact) - 1))
        others[value] = 0
        reported += random.multinomial(number, others)
    return reported


def estimates(noise: Local, reported: Int[np.ndarray, " value"], records: int) -> Float[np.ndarray, " value"]:
    """Unbiased counts of what records hold.

    >>> exact = estimates(local.RandomisedResponse(2, 1.0), np.array([60, 40]), 100)
    >>> exact.round(1).tolist()
    [71.6, 28.4]
    """
    right, wrong = chances(noise)
    found: np.ndarray = (reported - records * wrong) / (right - wrong)
    return found


LOCAL_VOTES = Contender(
    "local votes",
    Needs(
        pool="unlabelled inputs, sent to every record's owner, which the student learns from",
        trust="nobody: each record is noised before it leaves its owner",
        gives="a student, and the noisy counts",
    ),
    learn,
)
