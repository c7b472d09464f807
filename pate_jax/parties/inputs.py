"""From every party's own numbers to shares of all of them, checked by all.

The order of steps is what the check rests on: digits are shared; each party says that it has received all
shares; only then is the seed of the random numbers opened, which no t parties can know before; and only then
is each party's sum opened. A party that fails is named to all by everybody who saw it fail. All shares are
needed for that opening, so it takes parties that show theirs as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Shaped, UInt8

from pate_jax.errors import PateError
from pate_jax.parties import engine, ranges
from pate_jax.parties.agreement import Agreement, Party
from pate_jax.parties.connections import Refusal
from pate_jax.parties.shamir import Prime


async def shared(
    runtime: Any,
    prime: Prime,
    agreement: Agreement,
    present: tuple[Party, ...],
    own: UInt8[np.ndarray, " digit"],
) -> list[Shaped[np.ndarray, "row column"]]:
    """Shares of the sums of all parties' numbers, after all of them passed the check."""
    pieces = prime.split(prime.of(own.astype(np.int64)), runtime.threshold, len(present))
    received = await runtime.round([prime.pack(piece) for piece in pieces])
    shares = [_read(prime, agreement, *pair) for pair in zip(present, received, strict=True)]
    await runtime.round([b"received"] * len(present))
    bad = await _failing(runtime, prime, agreement, present, shares)
    await _agree(runtime, agreement, present, bad)
    total: list[np.ndarray] = []
    for party, piece in zip(present, shares, strict=True):
        own_numbers = ranges.numbers(prime, ranges.sent(agreement, party), piece)  # type: ignore[arg-type]
        votes = own_numbers[0][:, : agreement.classes]  # without the class "no vote"
        parts = [votes, *own_numbers[1:]]
        total = [prime.add(*pair) for pair in zip(total, parts, strict=True)] if total else parts
    return total


def _read(prime: Prime, agreement: Agreement, party: Party, content: bytes) -> np.ndarray | None:
    """A party's shares, or None where they are not what the agreement asks of it."""
    try:
        return prime.unpack(content, ranges.sent(agreement, party).digits)
    except PateError:
        return None


async def _failing(
    runtime: Any, prime: Prime, agreement: Agreement, present: tuple[Party, ...], shares: list[Any]
) -> list[int]:
    """Which parties sent no votes, as far as this party sees."""
    field = engine.library().finfields.GF(prime.modulus)
    coin = await runtime.output(field.array(runtime._np_randoms(field, 2).value))
    seed = b"|".join(str(int(number)).encode() for number in coin.value)
    sums = [
        0 if piece is None else ranges.combination(prime, agreement, party, piece, seed)
        for party, piece in zip(present, shares, strict=True)
    ]
    hidden = field.array(np.array(sums, object)) + runtime.zeros(field, len(sums))
    opened = await runtime.output(hidden, threshold=2 * runtime.threshold)
    return [i for i, piece in enumerate(shares) if piece is None or int(opened.value[i]) != 0]


async def _agree(runtime: Any, agreement: Agreement, present: tuple[Party, ...], bad: list[int]) -> None:
    """Refuse, all with one sentence, if any party saw another fail."""
    verdicts = await runtime.round([bytes(int(i in bad) for i in range(len(present)))] * len(present))
    named = [
        party.name
        for i, party in enumerate(present)
        if any(len(verdict) == len(present) and verdict[i] for verdict in verdicts)
    ]
    if named:
        rule = {
            "teachers": "with exactly its teachers' votes on each query",
            "neighbours": "with its agreed votes at most on each query",
            "sums": "with sums within the agreed size",
        }[agreement.voters]
        raise Refusal(
            f"{', '.join(named)} sent numbers out of the agreed range: each party sends "
            f"{agreement.queries} x {agreement.classes} counts {rule}, and noise of the agreed scale; "
            "nothing was opened"
        )
