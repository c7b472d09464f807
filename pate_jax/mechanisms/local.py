"""Local noise: every voter noises its own answer before it leaves the voter, and trusts nobody.

A mechanism turns a voter's class into what it sends. Three kinds:

- `RandomisedResponse`: the true class with chance `e^eps / (e^eps + C - 1)`, otherwise another class, all of
  them equally likely (Kairouz, Oh, Viswanath 2014: k-ary randomised response).
- `OneHotNoise`: one bit for each class, which says whether it is the voter's. Each bit is flipped
  independently with chance `1 / (e^(eps/2) + 1)`. Two classes differ in two bits. It is the better one for
  many classes and a small epsilon.
- `TruncatedGeometric` (Zhao 2018), as printed: class number `m` of 1..C becomes `m + G`, where `G` falls off
  by `e^(-eps/C)` for each step and is truncated to `-m..C-m`. It is here to be compared with, and three
  things are wrong with it. Its values are 0..C, and no class has the number 0: such votes are lost. Its noise
  moves a vote to *neighbouring numbers*, although classes have no order. And it needs noise for a step of the
  whole range, so it hides far more than it has to: at epsilon 1 with 10 classes and 250 voters of 84%
  accuracy it finds the plurality in less than half of the cases, where randomised response hardly ever fails.

**Exact laws.** Each row of a channel counts how many of the `2^128` words of a uniform draw send each value.
The counts are whole numbers, so the epsilon of what is drawn is exact: the largest ratio of two counts for
one value (`log_ratio`). Rounding is such that it never exceeds the epsilon of the description, so pure
epsilon needs no delta at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Real
from typing import ClassVar

from pate_jax.errors import PateError
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.codec import settle_numbers

WORDS = 1 << laws.WORD_BITS
_ONE = 1 << 256
SMALLEST_EPSILON, LARGEST_EPSILON, MOST_CLASSES = 1e-4, 40.0, 1000

Row = tuple[int, ...]


@dataclass(frozen=True)
class _Local:
    """What all three have: the number of classes, and the epsilon of one answer."""

    classes: int
    epsilon: float

    def __post_init__(self) -> None:
        settle_numbers(self)
        if type(self.classes) is not int or not 2 <= self.classes <= MOST_CLASSES:
            raise PateError(f"classes={self.classes!r} must be a whole number from 2 to {MOST_CLASSES}")
        good = isinstance(self.epsilon, Real) and not isinstance(self.epsilon, bool)
        if not (good and SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON):
            raise PateError(
                f"epsilon={self.epsilon!r} of an answer must be from {SMALLEST_EPSILON:g} to "
                f"{LARGEST_EPSILON:g}"
            )


@dataclass(frozen=True)
class RandomisedResponse(_Local):
    """K-ary randomised response: the class, or another one.

    >>> keep, other, *_ = channel(RandomisedResponse(classes=10, epsilon=4.0))[0]
    >>> round(keep / WORDS, 4), round(other / WORDS, 4)
    (0.8585, 0.0157)
    """

    name: ClassVar[str] = "randomised-response"


@dataclass(frozen=True)
class OneHotNoise(_Local):
    """One bit for each class, each flipped with chance `1 / (e^(epsilon/2) + 1)`.

    >>> rows = channel(OneHotNoise(classes=10, epsilon=4.0))  # of one bit: how often it is sent as 0 and as 1
    >>> [round(ones / WORDS, 4) for _, ones in rows]
    [0.1192, 0.8808]
    """

    name: ClassVar[str] = "one-hot"


@dataclass(frozen=True)
class TruncatedGeometric(_Local):
    """Zhao's truncated geometric noise on the number of the class, as printed, with the faults named above.

    >>> rows = channel(TruncatedGeometric(classes=3, epsilon=3.0))
    >>> [round(count / WORDS, 3) for count in rows[0]]  # class 1 becomes 0, 1, 2 or 3
    [0.197, 0.534, 0.197, 0.072]
    """

    name: ClassVar[str] = "truncated-geometric"


Local = RandomisedResponse | OneHotNoise | TruncatedGeometric
BY_NAME: dict[str, type[Local]] = {
    kind.name: kind for kind in (RandomisedResponse, OneHotNoise, TruncatedGeometric)
}


def make(name: str, classes: int, epsilon: float) -> Local:
    """The mechanism of this name.

    >>> make("one-hot", 10, 1.0)
    OneHotNoise(classes=10, epsilon=1.0)
    """
    if name not in BY_NAME:
        raise PateError(f"mechanism={name!r} is unknown; the local ones are {', '.join(BY_NAME)}")
    return BY_NAME[name](classes, epsilon)


@lru_cache(maxsize=64)
def channel(mechanism: Local) -> tuple[Row, ...]:
    """How many of 2^128 words send each value (columns), for each class, or each state of a bit (rows)."""
    if isinstance(mechanism, RandomisedResponse):
        other = _least_other(mechanism.epsilon, mechanism.classes)
        keep = WORDS - (mechanism.classes - 1) * other
        size = range(mechanism.classes)
        return tuple(tuple(keep if sent == true else other for sent in size) for true in size)
    if isinstance(mechanism, OneHotNoise):
        flipped = _least_other(mechanism.epsilon / 2, 2)
        return (WORDS - flipped, flipped), (flipped, WORDS - flipped)
    return tuple(_geometric(mechanism, number) for number in range(1, mechanism.classes + 1))


def is_bits(mechanism: Local) -> bool:
    """Whether a voter sends one bit for each class, rather than one number."""
    return isinstance(mechanism, OneHotNoise)


def log_ratio(mechanism: Local) -> float:
    """The exact epsilon of one drawn answer, rounded up: the largest log-ratio of two chances of one value.

    >>> log_ratio(RandomisedResponse(10, 1.0)), log_ratio(OneHotNoise(10, 1.0))
    (1.0, 1.0)
    >>> round(log_ratio(TruncatedGeometric(10, 1.0)), 4)  # it hides more than it has to
    0.9738
    """
    columns = list(zip(*channel(mechanism), strict=True))
    ratio = max(Fraction(max(column), min(column)) for column in columns)
    bits = 2 if is_bits(mechanism) else 1  # two classes differ in two bits
    small = _inverse_exp(mechanism.epsilon / bits)
    if ratio.numerator * small <= ratio.denominator * _ONE:  # a proof in whole numbers
        return min(mechanism.epsilon, bits * math.log(ratio) * (1 + 4e-15) + 1e-15)
    return bits * math.log(ratio) * (1 + 4e-15) + 1e-15


def _inverse_exp(epsilon: float) -> int:
    """`2^256 e^-epsilon` or up to two units more: `exp_minus` is at most the truth and less than 2 below."""
    return laws.exp_minus(Fraction(epsilon)) + 2


def _least_other(epsilon: float, values: int) -> int:
    """The fewest words for each other value with `keep / other <= e^epsilon`: `2^128 / (e^epsilon + k - 1)`.

    The quotient rises with `e^-epsilon` and is rounded up, so the ratio never exceeds `e^epsilon`.
    """
    small = _inverse_exp(epsilon)
    return -(-WORDS * small // (_ONE + (values - 1) * small))


def _geometric(mechanism: TruncatedGeometric, number: int) -> Row:
    """The counts of 0..C for one class, within one word of the law; every value has at least one word."""
    classes = mechanism.classes
    step = Fraction(mechanism.epsilon) / classes
    weights = [laws.exp_minus(step * abs(sent - number)) for sent in range(classes + 1)]
    total = sum(weights)
    counts = [max(1, weight * WORDS // total) for weight in weights]
    counts[number] += WORDS - sum(counts)
    return tuple(counts)
