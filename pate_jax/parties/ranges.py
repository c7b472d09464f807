"""What a party sends: bits, so that all others can check its votes without seeing them.

Each count and each number of noise is sent as its binary digits, each of them shared. A digit b is 0 or 1 if
and only if `b (b - 1) = 0`, and a query's counts add up to N if and only if `sum - N = 0`. All these numbers
of one party are multiplied by public random numbers and added up, and this one sum is opened. If all are
zero, it is zero, and whoever sees it learns nothing. If any is not, then it is zero with a chance of one in
the modulus, because the random numbers are drawn after every party has received everything: see `inputs.py`.
A party that also lies about its own share of this sum is not found (docs/parties.md).

A count that may be anything up to a limit, as those of neighbours may, gets one more class, "no vote", which
takes the rest up to the limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, Shaped, UInt8

from pate_jax.errors import PateError
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
