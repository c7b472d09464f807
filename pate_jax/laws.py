"""The laws of the noises as integer tables, and how far what is drawn may stray from them.

A discrete noise is drawn by inversion. `table` holds, for each value of the noise in ascending order, the
largest 128-bit word that draws it; a uniform word draws the first value whose entry is not below it. No
floating-point number takes part: the entries come from integers of 256 fractional bits and exact rational
scales, with every rounding error bounded. NumPy and the standard library only.

**What the bound rests on.** Let `F_i` be the exact distribution function of the law at the i-th value and `c_i`
the integer count of words that draw one of the first i values. `table` ensures `|c_i / 2^128 - F_i| <= 2^-128`
(proof: `_cumulative`), with `c_n = 2^128` at the last of `n` values, beyond which the law holds at most 2^-129 on
either side. A value's chance differs from the law's by the difference of two neighbouring errors, so the absolute
differences sum to at most `2 (n - 1) 2^-128 + 2 * 2^-128`, and the total-variation distance, half of that sum with
the missing tails, is at most `n 2^-128`. At a scale of 40 that is 2^-118 for a Gaussian.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise

WORD_BITS = 128  # of the uniform word that draws one value
LARGEST_TABLE = 1 << 22  # entries, 64 MiB; Gaussian scales to about 155,000, Laplace scales to about 23,000
CONTINUOUS_TAIL = 2.0**-62  # mass of a continuous law beyond the largest value that its sampler can draw
_BITS = 256  # fractional bits of the host's fixed-point numbers
_GUARD = 64  # further bits while an exponential is computed
_ONE = 1 << _BITS
_FULL = 1 << WORD_BITS
_DISCRETE = ("discrete_gaussian", "discrete_laplace")


class Table(NamedTuple):
    """A discrete law for sampling by inversion: `words[i]` is the largest word that draws `lowest + i`."""

    words: np.ndarray  # uint32[n, 4], most significant word first; entries past the support are all ones
    lowest: int  # the least value that can be drawn
    size: int  # values that can be drawn; rows from here on are padding


def is_discrete(noise: Noise) -> bool:
    """Whether the noise is integer-valued, drawn from a table.

    >>> is_discrete(Noise("discrete_laplace", 3.0)), is_discrete(Noise("laplace", 3.0))
    (True, False)
    """
    return noise.family in _DISCRETE


def support(noise: Noise) -> int:
    """The largest value a table holds: beyond it the law has at most 2^-129 on either side.

    For the Gaussian, `P[X > b] <= exp(-b^2 / (2 sigma^2))` (Canonne, Kamath, Steinke 2020, Proposition 25 gives
    the continuous Gaussian's tail as a bound); for the Laplace, `P[X > b] <= exp(-b / scale)`. Both are solved
    for 2^-130, and one is added so that rounding in this function cannot matter.

    >>> support(Noise("discrete_gaussian", 40.0)), support(Noise("discrete_laplace", 20.0))
    (538, 1804)
    """
    bits = (WORD_BITS + 2) * math.log(2)
    if noise.family == "discrete_gaussian":
        reach = noise.scale * math.sqrt(2 * bits)
    elif noise.family == "discrete_laplace":
        reach = noise.scale * bits
    else:
        raise PateError(f"noise family {noise.family!r} has no table; the discrete families have one")
    if 2 * reach + 3 > LARGEST_TABLE:
        largest = noise.scale * (LARGEST_TABLE - 3) / (2 * reach)
        raise PateError(
            f"scale={noise.scale!r} of {noise.family} noise needs a table of more than {LARGEST_TABLE} values; "
            f"the largest scale is {largest:.0f}, and a continuous mechanism has no such limit"
        )
    return math.ceil(reach) + 1


def padded_length(noise: Noise) -> int:
    """Rows of the noise's table: the next power of two, so that a search takes a fixed number of steps.

    >>> padded_length(Noise("discrete_gaussian", 40.0))
    2048
    """
    return 1 << (2 * support(noise)).bit_length()


def table(noise: Noise, length: int | None = None) -> Table:
    """The table of a discrete noise, padded to `length` rows (a power of two; by default the next one).

    Tables of several scales padded to one length can be stacked and searched under `vmap`.

    >>> law = table(Noise("discrete_gaussian", 1.0))
    >>> law.words.shape, law.lowest, law.size
    ((32, 4), -15, 31)
    """
    least = padded_length(noise)
    length = least if length is None else length
    if length < least or length & (length - 1):
        raise PateError(f"length={length} must be a power of two of at least {least} for {noise}")
    largest = support(noise)
    words = np.full((length, 4), 0xFFFFFFFF, np.uint32)
    words[: 2 * largest + 1] = _packed_ends(noise)
    return Table(words, -largest, 2 * largest + 1)


def distance(noise: Noise) -> float:
    """Total-variation distance of one drawn value from its law, at most.

    Discrete families: everything is counted (module docstring). Continuous families: the sampler inverts a
    uniform number of 62 bits or more, so the figure is the mass that the ideal law has beyond the largest value
    it can reach. NOT counted for them: the rounding of each value to float32, within a few units in the last
    place. A rounded value is not a function of the ideal one plus the count, so no exact figure is claimed for
    continuous noise; where one is wanted, use a discrete mechanism.

    >>> distance(Noise("discrete_gaussian", 40.0)) < 2.0**-117, distance(Noise("gaussian", 40.0)) == 2.0**-62
    (True, True)
    """
    if not is_discrete(noise):
        return CONTINUOUS_TAIL
    return (2 * support(noise) + 1) * 2.0**-WORD_BITS


def delta_slack(mechanism: Mechanism, queries: int, classes: int) -> float:
    """Total-variation distance of all the draws behind `queries` answers, at most.

    One draw for each class and one for the test; integer noise also draws one word to choose among tied
    classes, which favours one of `k` by at most `k 2^-128`. If a mechanism is (epsilon, delta)-DP for ideal
    noise, it is (epsilon, delta + (1 + e^epsilon) slack)-DP as drawn.

    >>> from pate_jax.mechanisms import ConfidentDiscreteGaussian
    >>> delta_slack(ConfidentDiscreteGaussian(200, 150, 40), queries=1000, classes=10) < 1e-30
    True
    """
    if queries < 0 or classes < 1:
        raise PateError(f"queries={queries} must be >= 0 and classes={classes} must be >= 1")
    per_query = classes * distance(mechanism.noise) + classes * 2.0**-WORD_BITS
    if mechanism.test is not None:
        per_query += distance(mechanism.test.noise)
    return queries * per_query * (1 + 2.0**-40)  # the factor covers the rounding of this function


def exact_scale(scale: float) -> Fraction:
    """The rational number that the float is.

    >>> exact_scale(0.5)
    Fraction(1, 2)
    """
    return Fraction(scale)


def exp_minus(exponent: Fraction, bits: int = _BITS) -> int:
    """`exp(-exponent)` times `2^bits`, rounded down or one less: `0 <= 2^bits exp(-y) - result < 2`.

    The exponent is halved `k` times below 1/2, the alternating series is summed with `bits + 64 + k` or more
    fractional bits until its terms vanish, and the sum is squared `k` times. Each of at most 100 terms is off by
    less than 1, the first omitted term is below 1, and each squaring doubles the error and adds 1, so the error
    stays below `2^k 103` units of `2^-(bits + 64 + k)`, far less than one unit of the result, which is lowered by
    that much before it is rounded down.

    >>> exp_minus(Fraction(1), 16), int(math.exp(-1) * 2**16)
    (24109, 24109)
    """
    if exponent > bits:  # below 2^-bits, for e > 2
        return 0
    halvings = max(0, exponent.numerator.bit_length() - exponent.denominator.bit_length() + 2)
    inner = bits + _GUARD + halvings
    small = (exponent.numerator << inner) // (exponent.denominator << halvings)
    total = term = 1 << inner
    for index in range(1, 1000):
        term = (term * small >> inner) // index
        if term == 0:
            break
        total += term if index % 2 == 0 else -term
    for _ in range(halvings):
        total = total * total >> inner
    return max(0, total - (1 << (halvings + 10))) >> (_GUARD + halvings)


def _weights(noise: Noise) -> list[int]:
    """Unnormalised chances of 0, 1, .., `support`, with 256 fractional bits.

    Gaussian: `w_{x+1} = w_x r_x`, `r_{x+1} = r_x e^{-1/sigma^2}`; Laplace: `w_{x+1} = w_x e^{-1/scale}`. Factors
    are at most 1 and each product is rounded down, so an error grows by less than 3 units a step in `r` and by
    the error of `r` plus 1 in `w`: after `x` steps less than `3 (x + 1)^2` units of 2^-256, which is below
    2^-208 for any table.
    """
    scale = exact_scale(noise.scale)
    if noise.family == "discrete_gaussian":
        ratio = exp_minus(1 / (2 * scale * scale))
        change = exp_minus(1 / (scale * scale))
    else:
        ratio = exp_minus(1 / scale)
        change = _ONE
    weights = [_ONE]
    weight = _ONE
    for _ in range(support(noise)):
        weight = weight * ratio >> _BITS
        ratio = ratio * change >> _BITS
        weights.append(weight)
    return weights


def _cumulative(noise: Noise) -> list[int]:
    """Words that draw one of the first i values, for each i: within one word of `2^128 F_i`.

    With weights within 2^-208, sums of at most 2^22 of them are within 2^-186, the normaliser (at least 1)
    likewise plus the tails that the table leaves out (2^-128 of it at most in all, which the definition of
    `support` makes 2^-129), so a quotient is within 2^-185 + 2^-129 + 2^-129 of `F_i`; rounding to the nearest
    integer adds half a word: less than 1.6 words... see `table` tests.
    """
    weights = _weights(noise)
    total = weights[0] + 2 * sum(weights[1:])
    ends, running = [], 0
    for weight in weights[:0:-1] + weights:
        running += weight
        ends.append(((running << (WORD_BITS + 1)) + total) // (2 * total))
    return ends


@lru_cache(maxsize=8)
def _packed_ends(noise: Noise) -> np.ndarray:
    ends = [max(end, 1) - 1 for end in _cumulative(noise)]
    ends[-1] = _FULL - 1
    raw = b"".join(end.to_bytes(16, "big") for end in ends)
    packed = np.frombuffer(raw, ">u4").astype(np.uint32).reshape(-1, 4)
    packed.flags.writeable = False
    return packed
