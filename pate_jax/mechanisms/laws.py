"""The laws of the noises as integer tables, and the distance between draws and the ideal laws.

Discrete noise is drawn by inversion. `table` holds, for each value of the noise in ascending order, the
largest 128-bit word that draws it. A uniform word draws the first value whose entry is not below it. No
floating-point number is involved: the entries come from integers of 256 fractional bits and exact rational
scales, with every rounding error bounded. NumPy and the standard library only.

**The bound.** Let `F_i` be the law's exact distribution function at the i-th of `n` values, and `c_i` the
number of words that draw one of the first `i` values. Then `|c_i - 2^128 F_i| <= 1` (proof: `_ends`). This
also holds at the ends, where `c_0 = 0` and `c_n = 2^128`, and the law has less than 2^-139 beyond either. The
chance of the i-th value differs from the law's by a difference of two such errors, so by at most `2^-127`.
The total-variation distance is half the sum of these differences and of the missing tails, so it is at most
`n 2^-128 + 2^-139`, which is below `(n + 1) 2^-128`. At a scale of 40 that is 2^-117.8 for a Gaussian.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pate_jax.errors import PateError
from pate_jax.mechanisms.descriptions import Mechanism, Noise

WORD_BITS = 128  # bits of the uniform word that draws one value
LARGEST_TABLE = 1 << 22  # rows, 64 MiB: Gaussian scales to 149,471, Laplace scales to 21,306
CONTINUOUS_TAIL = 2.0**-62  # mass of a continuous law beyond the values that its sampler can draw
_TAIL_BITS = 142  # the law's mass beyond a table is below 2^-139 on either side
_BITS = 256  # fractional bits of the host's fixed-point numbers
_CELL_BITS = 192  # fractional bits of the factor that turns a density into the mass of a cell
_GUARD = 64  # additional bits during the computation of an exponential


class Table(NamedTuple):
    """A discrete law for sampling by inversion: `words[i]` is the largest word that draws `lowest + i`."""

    words: np.ndarray  # uint32[n, 4], most significant word first; entries past the support are all ones
    lowest: int  # the least value that can be drawn
    size: int  # how many values can be drawn; rows from here on are padding


def support(noise: Noise) -> int:
    """The largest value of the noise's table: the law has less than 2^-139 beyond it, on either side.

    `P[X > m] <= exp(-m^2 / (2 sigma^2))` for the discrete Gaussian, whose tail is no heavier than the
    continuous one's, and `P[X > m] <= exp(-m / scale)` for the discrete Laplace. Both are solved for 2^-142;
    the rest covers the rounding of this function. The rounded Gaussian exceeds m where the continuous one
    exceeds m + 1/2.

    >>> support(Noise("discrete_gaussian", 40.0)), support(Noise("discrete_laplace", 20.0))
    (563, 1970)
    """
    exponent = _TAIL_BITS * math.log(2)
    if noise.family == "rounded_gaussian" and noise.scale < 1:
        raise PateError(f"scale={noise.scale!r} of rounded Gaussian noise must be at least 1, one whole vote")
    if noise.family in ("discrete_gaussian", "rounded_gaussian"):
        reach = noise.scale * math.sqrt(2 * exponent)
    elif noise.family == "discrete_laplace":
        reach = noise.scale * exponent
    else:
        raise PateError(f"noise family {noise.family!r} has no table; the discrete families have one")
    if 2 * reach + 3 > LARGEST_TABLE:
        largest = noise.scale * (LARGEST_TABLE - 3) / (2 * reach)
        raise PateError(
            f"scale={noise.scale!r} of {noise.family} noise needs a table of over {LARGEST_TABLE} values; "
            f"take a scale up to {largest:.0f}, or a continuous mechanism"
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
    ((64, 4), -16, 33)
    """
    least = padded_length(noise)
    length = least if length is None else length
    if length < least or length & (length - 1):
        raise PateError(f"length={length} must be a power of two of at least {least} for {noise}")
    largest = support(noise)
    words = np.full((length, 4), 0xFFFFFFFF, np.uint32)
    words[: 2 * largest + 1] = _packed(noise)
    return Table(words, -largest, 2 * largest + 1)


def distance(noise: Noise) -> float:
    """An upper bound of the total-variation distance between one drawn value and its law.

    For discrete families, every error is counted (see the top of this module).

    For continuous families, the sampler turns a uniform number of 64 bits into the value, and the figure is
    the mass of the ideal law beyond the largest value that it can draw. The rounding of float32 is NOT
    counted: a drawn value is the ideal one moved by a few units in its last place, and adding the count
    rounds once more, so two neighbouring counts do not have exactly the same set of possible noisy values.
    The comparison of noisy counts hides nearly all of that, but no proof is offered here, and no exact figure
    is claimed for continuous noise. The discrete mechanisms have no such gap.

    >>> distance(Noise("discrete_gaussian", 40.0)) < 2.0**-117, distance(Noise("gaussian", 40.0)) == 2.0**-62
    (True, True)
    """
    if not noise.is_discrete:
        return CONTINUOUS_TAIL
    return (2 * support(noise) + 2) * 2.0**-WORD_BITS


def delta_slack(mechanism: Mechanism, queries: int, classes: int) -> float:
    """An upper bound of the total-variation distance of all draws for `queries` answers from their laws.

    Each answer takes one draw for each class, one for the test, and one word that chooses among tied classes,
    which favours some of `k` classes by `k 2^-128` in all. (Continuous noise ties only because of float32,
    which `distance` does not count; a word of 32 bits then chooses.) If a mechanism is (epsilon, delta)-DP
    with ideal noise, it is (epsilon, delta + (1 + e^epsilon) slack)-DP with the noise that is drawn.

    >>> from pate_jax.mechanisms import ConfidentDiscreteGaussian
    >>> delta_slack(ConfidentDiscreteGaussian(200, 150, 40), queries=1000, classes=10) < 1e-30
    True
    """
    if queries < 0 or classes < 1:
        raise PateError(f"queries={queries} must be >= 0 and classes={classes} must be >= 1")
    per_query = classes * (distance(mechanism.noise) + 2.0**-WORD_BITS)
    if mechanism.test is not None:
        per_query += distance(mechanism.test.noise)
    return queries * per_query * (1 + 2.0**-40)  # the factor covers the rounding of this function


def exp_minus(exponent: Fraction) -> int:
    """`2^256 exp(-exponent)` rounded down, or one less.

    The exponent is halved `k` times, to below 1/2, and the alternating series is summed with `256 + 64 + k`
    fractional bits until its terms vanish, which takes fewer than 120 terms. The rounding of the exponent, of
    each term and of the tail moves the sum by less than 250 units. Each of `k` squarings (values are at most
    1) multiplies the error by 2 and adds 1: in all less than `2^(k + 8)` units in the last place. The result
    is lowered by `2^(k + 10)`, so it never exceeds the truth, and `64 + k` bits are cut off.

    >>> exp_minus(Fraction(1)) >> 240, int(math.exp(-1) * 2**16)
    (24109, 24109)
    """
    if exponent > 2 * _BITS:
        return 0
    halvings = max(0, exponent.numerator.bit_length() - exponent.denominator.bit_length() + 2)
    bits = _BITS + _GUARD + halvings
    small = (exponent.numerator << bits) // (exponent.denominator << halvings)
    total = term = 1 << bits
    index = 0
    while term:
        index += 1
        term = (term * small >> bits) // index
        total += term if index % 2 == 0 else -term
    for _ in range(halvings):
        total = total * total >> bits
    return max(0, total - (1 << (halvings + 10))) >> (_GUARD + halvings)


def _weights(noise: Noise) -> list[int]:
    """Unnormalised chances of 0, 1, .., `support`, times 2^256, each at most `12 (x + 1)^2` too small.

    Gaussian: `w_{x+1} = w_x r_x` and `r_{x+1} = r_x e^{-1/sigma^2}`; Laplace: `w_{x+1} = w_x e^{-1/scale}`.
    All factors are at most 1 and known to within 2 units, and products are rounded down, so a product's error
    is at most the sum of its factors' errors plus 1. The error of `r_x` is at most `3 x + 2`, and that of
    `w_x` at most the sum of `3 y + 3` over `y < x`, which is below `12 (x + 1)^2`.

    The weights of the rounded Gaussian are those of the discrete one times `_cells`, which are at most 2^8
    and wrong by less than 2^-162. Apart from that a weight is at most `2^12 (x + 1)^2 + 1` units too small.
    In `_ends` the sums are within 2^77 units and a share of 2^-162, so the quotient is also within 2^-137.
    """
    scale = Fraction(noise.scale)
    if noise.family != "discrete_laplace":
        ratio, change = exp_minus(1 / (2 * scale * scale)), exp_minus(1 / (scale * scale))
    else:
        ratio, change = exp_minus(1 / scale), 1 << _BITS
    weight = 1 << _BITS
    weights = [weight]
    for _ in range(support(noise)):
        weight = weight * ratio >> _BITS
        ratio = ratio * change >> _BITS
        weights.append(weight)
    if noise.family == "rounded_gaussian":
        cells = _cells(scale, len(weights))
        return [weight * cell >> _CELL_BITS for weight, cell in zip(weights, cells, strict=True)]
    return weights


def _cells(scale: Fraction, count: int) -> list[int]:
    """A Gaussian's mass from `x - 1/2` to `x + 1/2`, over its density at `x`, times 2^192: for x from 0 up.

    With `b = x / (2 scale^2)` and `h = 1 / (8 scale^2)` the density at `x + v / 2` is that at `x` times
    `e^(-b v - h v^2)`. The mean over v from -1 to 1 leaves `cosh(b v)`, so it is the sum of `b^2k N_k /
    (2k)!`, where `N_k` (see `_moments`) does not depend on x. The sum is taken from the inside: `a_k = N_k +
    b^2 a_{k+1} / ((2k + 1) (2k + 2))`.

    For scales of at least 1 and values in the support, `b <= 8`, so no `a_k` exceeds `cosh(8)`, below 2^11.
    `b^2` is less than 2 units too small, and `N_k` wrong by less than 2^8. So a step adds less than `2^8 +
    2^11 + 2` units of error, below 2^12, and an error at step k reaches the end times `b^2k / (2k)!`, whose
    sum is at most `cosh(8)`: in all less than 2^23 units. The first term left out is below 2^3 units, and
    those after it fall by more than half from one to the next.
    """
    inverse = (scale.denominator**4 << (_CELL_BITS + _GUARD)) // (4 * scale.numerator**4)
    squares = [value * value * inverse >> _GUARD for value in range(count)]
    term, steps = 1 << _CELL_BITS, 0
    while term:
        term = (term * squares[-1] >> _CELL_BITS) // ((2 * steps + 1) * (2 * steps + 2))
        steps += 1
    moments = _moments(scale, steps)
    inner = [(moments[k], (2 * k + 1) * (2 * k + 2)) for k in range(steps - 1, -1, -1)]
    cells = []
    for square in squares:
        total = 0
        for moment, divisor in inner:
            total = moment + (square * total >> _CELL_BITS) // divisor
        cells.append(total)
    return cells


def _moments(scale: Fraction, count: int) -> list[int]:
    """The means of `v^2k e^(-h v^2)` over v from -1 to 1, times 2^192, for k below `count`; see `_cells`.

    It is the sum of `(-h)^j / j! / (2k + 2j + 1)`. As `h <= 1/8`, fewer than 60 terms are not 0, and each is
    wrong by less than 3 units.
    """
    spread = (scale.denominator**2 << _CELL_BITS) // (8 * scale.numerator**2)
    powers = [1 << _CELL_BITS]
    while powers[-1]:
        powers.append((powers[-1] * spread >> _CELL_BITS) // len(powers))
    signed = [power if j % 2 == 0 else -power for j, power in enumerate(powers)]
    return [sum(power // (2 * k + 2 * j + 1) for j, power in enumerate(signed)) for k in range(count)]


def _ends(noise: Noise) -> list[int]:
    """For each value the number of words that draw it or a smaller one: within 1 of `2^128 F`.

    A partial sum of at most 2^22 weights, each with at most `12 * 2^42` units of error, is within 2^68 units,
    or 2^-188, and so is the total, which is at least 1. Leaving out the tails changes a quotient by less than
    2^-138. So the quotient is within 2^-137 of `F`; rounded to the nearest whole word, it is within
    `1/2 + 2^-9` words. An entry of 0 is raised to 1, because a row holds the entry minus 1; `F` is then below
    2^-128, and the error below 1. The last entry is 2^128, where `F > 1 - 2^-139`.
    """
    weights = _weights(noise)
    total = weights[0] + 2 * sum(weights[1:])
    ends, running = [], 0
    for weight in weights[:0:-1] + weights:
        running += weight
        ends.append(max(1, ((running << (WORD_BITS + 1)) + total) // (2 * total)))
    ends[-1] = 1 << WORD_BITS
    return ends


@lru_cache(maxsize=16)
def _packed(noise: Noise) -> np.ndarray:
    """The largest word of each value as four big-endian uint32."""
    raw = b"".join((end - 1).to_bytes(16, "big") for end in _ends(noise))
    return np.frombuffer(raw, ">u4").astype(np.uint32).reshape(-1, 4)
