"""What a party sends: bits, so that all others can check its votes without seeing them.

Each count and each number of noise is sent as its binary digits, each of them shared. A digit b is 0 or 1 if
and only if `b (b - 1) = 0`, and a query's counts add up to N if and only if `sum - N = 0`. All these numbers
of one party are multiplied by public random numbers and added up, and this one sum is opened. If all are
zero, it is zero, and whoever sees it learns nothing. If any is not, then it is zero with a chance of one in
the modulus, because the random numbers are drawn after every party has received everything: see `inputs.py`.
A party that also lies about its own share of this sum is not found (docs/proofs/parties.md).

A count that may be anything up to a limit, as those of neighbours may, gets one more class, "no vote", which
takes the rest up to the limit.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int32, Int64, Shaped, UInt8

from pate_jax.errors import PateError
from pate_jax.parties import engine
from pate_jax.parties.agreement import Agreement, Party
from pate_jax.parties.shamir import Prime

SCALES = 12  # of a share of noise: discrete Gaussian noise lies beyond with a chance below 1e-31


class Block(NamedTuple):
    """Numbers of one kind: each is its digits' sum minus the offset."""

    rows: int
    columns: int
    bits: int
    offset: int

    @property
    def digits(self) -> int:
        """How many digits are sent."""
        return self.rows * self.columns * self.bits

    @property
    def least(self) -> int:
        """The smallest number that can be sent."""
        return -self.offset

    @property
    def most(self) -> int:
        """The largest number that can be sent."""
        return (1 << self.bits) - 1 - self.offset


class Sent(NamedTuple):
    """The numbers of one party, or the places for them."""

    counts: Block
    noise: Block
    test: Block | None

    @property
    def digits(self) -> int:
        """How many digits are sent in all."""
        return self.counts.digits + self.noise.digits + (self.test.digits if self.test else 0)


def share_scale(agreement: Agreement, scale: float) -> float:
    """The scale of each party's noise: those who neither collude nor drop out reach the agreed scale."""
    return scale / math.sqrt(len(agreement.parties) - agreement.colluders - agreement.dropouts)


def noise_range(agreement: Agreement, scale: float) -> int:
    """The power of two R so that a share of this noise must be at least -R and less than R."""
    return 1 << max(3, math.ceil(math.log2(SCALES * share_scale(agreement, scale))))


def sent(agreement: Agreement, party: Party) -> Sent:
    """What a party sends."""
    rows, classes, noise = agreement.queries, agreement.classes, agreement.noise
    largest = party.votes.bit_length()
    if agreement.voters == "sums":
        counts = Block(rows, classes, largest + 1, 2**largest)
    else:
        counts = Block(rows, classes + (agreement.voters == "neighbours"), largest, 0)
    of_noise = _of_noise(rows, classes, noise_range(agreement, noise.scale))
    if noise.test_scale is None:
        return Sent(counts, of_noise, None)
    return Sent(counts, of_noise, _of_noise(rows, 1, noise_range(agreement, noise.test_scale)))


def _of_noise(rows: int, columns: int, largest: int) -> Block:
    return Block(rows, columns, largest.bit_length(), largest)


def digits(
    agreement: Agreement,
    party: Party,
    counts: Int64[np.ndarray, "query class"],
    noise: Int64[np.ndarray, "query class"],
    test: Int64[np.ndarray, " query"] | None,
) -> UInt8[np.ndarray, " digit"]:
    """The digits of a party's own numbers, which are checked first."""
    blocks = sent(agreement, party)
    shape = (agreement.queries, agreement.classes)
    counts, noise = _whole(counts, "counts", shape), _whole(noise, "noise", shape)
    found = [_bits(_complete(agreement, party, counts), blocks.counts, "counts")]
    found.append(_bits(noise, blocks.noise, "noise"))
    if (test is None) != (blocks.test is None):
        raise PateError("noise of the test goes with an agreement that has a threshold, and only with one")
    if test is not None and blocks.test is not None:
        found.append(_bits(_whole(test, "noise of the test", shape[:1])[:, None], blocks.test, "the test"))
    return np.concatenate(found)


def _whole(values: np.ndarray, what: str, shape: tuple[int, ...]) -> Int64[np.ndarray, "*shape"]:
    values = np.asarray(values)
    if values.shape != shape or values.dtype.kind not in "iu":
        raise PateError(
            f"{what} of shape {values.shape} ({values.dtype}) must be whole numbers of shape {shape}"
        )
    return values.astype(np.int64)


def _complete(agreement: Agreement, party: Party, counts: np.ndarray) -> Int64[np.ndarray, "query class"]:
    """The counts with the class "no vote", where there is one."""
    cast = counts.sum(1)
    wrong = cast != party.votes if agreement.voters == "teachers" else cast > party.votes
    if agreement.voters == "sums":
        if (abs(counts) > party.votes).any():
            raise PateError(
                f"a sum of {abs(counts).max()} is larger than the {party.votes} that the agreement allows "
                f"{party.name}: state a larger limit there, or clip the records' vectors"
            )
        return counts
    if wrong.any() or (counts < 0).any():
        query = int(np.argmax(wrong | (counts < 0).any(1)))
        raise PateError(
            f"query {query} has the counts {counts[query][:12].tolist()}, and {party.name} has "
            f"{party.votes} votes on each in the agreement: count again, or agree on another number"
        )
    rest = (party.votes - cast)[:, None]
    return np.concatenate([counts, rest], 1) if agreement.voters == "neighbours" else counts


def _bits(values: Int64[np.ndarray, "row column"], block: Block, what: str) -> UInt8[np.ndarray, " digit"]:
    if values.min() < block.least or values.max() > block.most:
        raise PateError(
            f"{what} from {values.min()} to {values.max()} must be from {block.least} to {block.most}: "
            "that is the range which the agreement leads to"
        )
    shifted = (values + block.offset).reshape(1, -1)
    return (shifted >> np.arange(block.bits)[:, None] & 1).astype(np.uint8).reshape(-1)


def numbers(
    field: Prime, blocks: Sent, shares: Shaped[np.ndarray, " digit"]
) -> list[Shaped[np.ndarray, "row column"]]:
    """Shares of the numbers from shares of their digits, one array for each kind."""
    found, start = [], 0
    for block in blocks:
        if block is not None:
            piece = shares[start : start + block.digits].reshape(block.bits, block.rows, block.columns)
            found.append(_number(field, block, piece))
            start += block.digits
    return found


def _number(field: Prime, block: Block, digits: np.ndarray) -> Shaped[np.ndarray, "row column"]:
    total = field.of(np.full(digits.shape[1:], -block.offset, np.int64))
    for place, digit in enumerate(digits):
        total = field.add(total, field.times(digit, 1 << place))
    return total


def combination(
    field: Prime, agreement: Agreement, party: Party, shares: Shaped[np.ndarray, " digit"], seed: bytes
) -> int:
    """This party's share, of degree 2t, of the sum that is zero if and only if another kept to its range."""
    blocks = sent(agreement, party)
    weights = field.public(seed, len(shares) + blocks.counts.rows)
    products = field.times(shares, field.add(shares, field.of(np.full(len(shares), -1))))
    total = field.total(field.times(products, weights[: len(shares)]))
    if agreement.voters == "sums":
        return total
    counts = numbers(field, blocks, shares)[0]
    rows = field.of(np.full(len(counts), -party.votes))
    for column in range(counts.shape[1]):
        rows = field.add(rows, counts[:, column])
    return (total + field.total(field.times(rows, weights[len(shares) :]))) % field.modulus


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
