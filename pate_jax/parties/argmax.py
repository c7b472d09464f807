"""Of shared counts and noise, the answers alone are opened: a test, a shuffle and a tournament.

Ties must be broken at random, since the accountant counts on it, and nobody may see that there was a tie. So
the classes of each query are put in a secret random order first. Then the tournament may keep the first of
two equals. Every set of all parties but t knows one permutation, and the classes pass through all of these.
Whichever t parties collude, one set has none of them in it, and its permutation hides the order from them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int32, Shaped

from pate_jax.parties import engine
from pate_jax.parties.shamir import Prime


class Limits(NamedTuple):
    """The largest sizes of the numbers that are compared."""

    votes: int  # of all parties, on one query
    noise: int
    test: int

    @property
    def bits(self) -> int:
        """Digits, with the sign, of every difference that is compared."""
        return (2 * (self.votes + 2 * self.noise + 2 * self.test) + 4).bit_length()


class Race(NamedTuple):
    """Shared numbers of all parties together, and the test."""

    counts: Shaped[np.ndarray, "query class"]
    noise: Shaped[np.ndarray, "query class"]
    test: Shaped[np.ndarray, " query"] | None
    threshold: float | None


def modulus(runtime: Any, limits: Limits) -> int:
    """The prime with which MPyC compares numbers of this size."""
    return int(runtime.SecInt(limits.bits).field.modulus)


async def answers(runtime: Any, prime: Prime, limits: Limits, race: Race) -> Int32[np.ndarray, " query"]:
    """Open the class with the most noisy votes for each query, or -1 where the test refuses it."""
    integers = runtime.SecInt(limits.bits)
    queries, classes = race.counts.shape
    both = np.stack([prime.add(race.counts, race.noise), prime.of(np.tile(np.arange(classes), (queries, 1)))])
    both = await shuffle(runtime, prime, both)
    values, labels = (_secret(integers, values.T) for values in both)
    found = _winner(runtime, values, labels, (2 * limits.noise + limits.votes).bit_length() + 1)[1]
    if race.test is None or race.threshold is None:
        opened = await runtime.output(found)
        return np.array(opened).astype(np.int32).reshape(queries)
    refused = _refused(runtime, integers, limits, race)
    opened = await runtime.output((1 - refused) * (found + 1))
    return np.array(opened).astype(np.int32).reshape(queries) - np.int32(1)


def _refused(runtime: Any, integers: Any, limits: Limits, race: Race) -> Any:
    """Shared bits: whether the largest count plus noise stays below the threshold."""
    counts = _secret(integers, race.counts.T)
    largest = _winner(runtime, counts, None, limits.votes.bit_length() + 1)[0]
    reach = limits.votes + limits.test + 1  # beyond it every query is refused
    least = min(math.ceil(race.threshold or 0.0), reach)
    difference = largest + _secret(integers, race.test[None]) - least  # type: ignore[index]
    return runtime.np_sgn(difference, l=(2 * reach).bit_length() + 1, LT=True)


def _secret(integers: Any, shares: np.ndarray) -> Any:
    """Shares as MPyC's arrays."""
    return integers.array(integers.field.array(shares.astype(object)))


def _winner(runtime: Any, values: Any, labels: Any, bits: int) -> tuple[Any, Any]:
    """The largest of each column and its label, by a tournament that keeps the first of two equals."""
    while (rows := values.shape[0]) > 1:
        half = rows // 2
        worse = runtime.np_sgn(values[:half] - values[half : 2 * half], l=bits, LT=True)
        values = _kept(runtime, values, worse, half)
        labels = None if labels is None else _kept(runtime, labels, worse, half)
    return values, labels


def _kept(runtime: Any, values: Any, worse: Any, half: int) -> Any:
    first, second, rest = values[:half], values[half : 2 * half], values[2 * half :]
    kept = first + worse * (second - first)
    return runtime.np_concatenate((kept, rest), axis=0) if rest.shape[0] else kept


async def shuffle(
    runtime: Any, prime: Prime, shares: Shaped[np.ndarray, "table query class"]
) -> Shaped[np.ndarray, "table query class"]:
    """Put the classes of each query in an order that no t parties know, the same in all tables.

    For each set of all parties but t, its members permute their shares with the permutation they alone know,
    and the first t + 1 of them share the result anew, so that nobody else can tell what moved where.
    """
    module, parties, t = engine.library(), len(runtime.parties), runtime.threshold
    for members in itertools.combinations(range(parties), parties - t):
        if runtime.pid in members:
            order = _order(runtime.orders[members], *shares.shape[1:])
            shares = np.take_along_axis(shares, order[None], axis=2)
        senders = members[: t + 1]
        payloads = [b""] * parties
        if runtime.pid in senders:
            weights = module.thresha._recombination_vector(
                module.finfields.GF(prime.modulus), tuple(member + 1 for member in senders), 0
            )
            own = prime.times(shares.reshape(-1), int(weights[senders.index(runtime.pid)]))
            payloads = [prime.pack(piece) for piece in prime.split(own, t, parties)]
        received = await runtime.round(payloads)
        pieces = [prime.unpack(received[sender], shares.size) for sender in senders]
        shares = sum(pieces[1:], pieces[0]).reshape(shares.shape) % prime.modulus
    return shares


def _order(key: bytes, queries: int, classes: int) -> Int[np.ndarray, "query class"]:
    """A uniform order of the classes for each query, from a key; two of its numbers are equal with 2^-128."""
    raw = hashlib.shake_256(key).digest(16 * queries * classes)
    words = np.frombuffer(raw, "<u8").reshape(2, queries, classes)
    return np.lexsort(words, axis=1)
