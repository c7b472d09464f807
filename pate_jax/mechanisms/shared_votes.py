"""What several parties open together: a frozen description that parties, samplers and the accountant share.

The parties' own numbers and shares of noise are added by a protocol that shows nothing but what is opened:
either all noisy numbers ("counts"), or only the class with the largest noisy count ("answers"), and no answer
where a noisy largest count is below a threshold.

**The shares.** The noise is made by all parties together: each adds a share, and none knows the sum of all.
Each of `m` parties adds discrete Gaussian noise of variance `sigma^2 / (m - t - d)` to its own numbers. Up to
`t` parties may collude, that is, tell one another their shares and subtract them, and up to `d` may be
absent. The shares of the other `m - t - d` parties alone have the variance `sigma^2`.

**The law of a sum.** A sum of discrete Gaussians is not a discrete Gaussian, but nearly one. Let X and Y be
independent discrete Gaussians with the parameters `a` and `b` (the squares of their scales). Completing the
square, the chance of `X + Y = z` is proportional to

    exp(-z^2 / (2 (a + b))) S(c z),    S(s) = sum over whole x of exp(-(x - s)^2 / (2 v)),

with `v = a b / (a + b)` and `c = a / (a + b)`. By Poisson's summation `S(s)` is `sqrt(2 pi v)` times `1 + 2
sum_{k >= 1} exp(-2 pi^2 v k^2) cos(2 pi k s)`. So for every `s` it is within `1 - r` and `1 + r` times
`sqrt(2 pi v)`, where `r = 2 sum_{k >= 1} exp(-2 pi^2 v k^2)`. After normalisation, the chance of every single
`z` is within a factor `exp(g)` of that of the discrete Gaussian with parameter `a + b`, in both directions,
where `g = log((1 + r) / (1 - r))`. Shares are added one by one. A sum with an independent number keeps a
bound on the ratio, so the logarithms of the factors add up: `gap`. It holds in the tails too, so nothing is
left for a delta.

With `k` shares of scale `tau` added up, the next one has `v = tau^2 k / (k + 1)`, which is at least `tau^2 /
2`. From a scale of 2 on each step adds less than 3.0e-17. Smaller shares are refused, although the bound
holds for them: the gap of a share of scale 1 is 2e-4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Literal, get_args

from pate_jax.errors import PateError
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.codec import settle_numbers
from pate_jax.mechanisms.descriptions import ConfidentDiscreteGaussian, DiscreteGaussianMax, Noise

SMALLEST_SHARE = 2.0  # the least scale of one party's noise
_DOWN, _UP = 1 - 1e-12, 1 + 1e-9


@dataclass(frozen=True)
class NoiseShares:
    """Noise of scale `sigma` from the parties that neither collude nor are absent.

    >>> shares = NoiseShares(sigma=40.0, parties=5, colluding=2, absent=1)
    >>> shares.honest, round(shares.share.scale, 4), round(shares.together(2).scale, 6)
    (2, 28.2843, 40.0)
    """

    sigma: float  # of the sum of the shares that nobody can subtract, in the worst case
    parties: int
    colluding: int = 0  # the most parties that put together what they know
    absent: int = 0  # the most parties that drop out, and their noise with them

    def __post_init__(self) -> None:
        settle_numbers(self)
        check_parties(self.parties, self.colluding, self.absent)
        good = isinstance(self.sigma, Real) and not isinstance(self.sigma, bool) and self.sigma > 0
        if not (good and math.isfinite(self.sigma)):
            raise PateError(f"sigma={self.sigma!r} must be a number of votes above 0")
        if self.share.scale < SMALLEST_SHARE:
            raise PateError(
                f"sigma={self.sigma:g} leaves each of the {self.honest} honest parties a share of scale "
                f"{self.share.scale:.3g}, and a share must have at least {SMALLEST_SHARE:g}: raise sigma to "
                f"{SMALLEST_SHARE * math.sqrt(self.honest):.4g}, or let fewer parties take part"
            )
        laws.support(self.share)  # refuses a share that is too large for a table

    @property
    def honest(self) -> int:
        """How many parties neither collude nor are absent, at the least."""
        return self.parties - self.colluding - self.absent

    @property
    def share(self) -> Noise:
        """The noise that each party adds to each number: its variance is `sigma^2 / (m - t - d)`."""
        return Noise("discrete_gaussian", self.sigma / math.sqrt(self.honest) * (1 + 1e-15))

    def together(self, shares: int) -> Noise:
        """The discrete Gaussian from which the sum of this many shares differs by at most `gap(shares)`."""
        if not 1 <= shares <= self.parties:
            raise PateError(f"shares={shares} must be from 1 to the {self.parties} parties")
        return Noise("discrete_gaussian", self.share.scale * math.sqrt(shares) * _DOWN)

    def gap(self, shares: int) -> float:
        """The most by which the log-chance of any value differs, for the sum of this many shares.

        >>> NoiseShares(4.0, parties=4).gap(4) < 1e-16, NoiseShares(4.0, parties=4).gap(1)
        (True, 0.0)
        """
        return gap(self.share.scale, shares)


def gap(scale: float, shares: int) -> float:
    """The most by which log-chances of a sum of shares differ from those of one discrete Gaussian.

    >>> gap(1.0, 2) < 3e-4, gap(2.0, 100) < 2e-16
    (True, True)
    """
    return math.fsum(_step(scale * scale * k / (k + 1)) for k in range(1, shares)) * _UP


def distance(noise: NoiseShares, shares: int) -> float:
    """The total-variation distance of this many drawn shares from their laws, for one number.

    >>> distance(NoiseShares(40.0, parties=3), 3) < 2**-110
    True
    """
    return shares * laws.distance(noise.share)


def check_parties(parties: int, colluding: int, absent: int) -> None:
    """Refuse numbers of parties with which nobody's noise would be left against a single curious party.

    >>> check_parties(3, 1, 1)
    """
    numbers = {"parties": parties, "colluding": colluding, "absent": absent}
    for name, number in numbers.items():
        if type(number) is not int or number < (2 if name == "parties" else 0):
            raise PateError(f"{name}={number!r} must be a whole number of at least {2 * (name == 'parties')}")
    if parties - max(colluding, 1) - absent < 1:
        raise PateError(
            f"of parties={parties}, colluding={colluding} and absent={absent} leave nobody whose noise "
            "protects against a curious party: lower colluding or absent, or let more parties take part"
        )


def _step(v: float) -> float:
    """What one more share adds to the gap: `log((1 + r) / (1 - r))`, rounded up."""
    first = math.exp(-2 * math.pi**2 * v * (1 - 1e-12))
    r = 2 * first / (1 - first**3)  # the exponents are 1, 4, 9, ..; a geometric series bounds the sum
    return math.inf if r >= 1 else 2 * math.atanh(r) * _UP


Voters = Literal["teachers", "neighbours", "sums"]
Opened = Literal["counts", "answers"]
AnswerMechanism = DiscreteGaussianMax | ConfidentDiscreteGaussian


@dataclass(frozen=True)
class SharedVote:
    """A vote among parties. A `teachers` voter votes at every query, a `neighbours` voter at `votes` of them.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=100, classes=10)
    >>> vote.touched, vote.cells, round(vote.noise.share.scale, 2)
    (100, 1000, 28.28)
    """

    voters: Voters
    opened: Opened
    parties: int
    sigma: float  # of the noise on each number that nobody can subtract, in the worst case
    classes: int
    queries: int = 1
    colluding: int = 0
    absent: int = 0
    threshold: float | None = None  # votes that the noisy largest count must reach
    sigma_threshold: float | None = None  # of the noise of that test, made in shares too
    votes: int = 1  # neighbours: the most votes of one voter, each at another query
    directions: int = 1  # sums: the numbers of a voter's vector
    length: int = 1  # sums: the greatest length of a voter's vector
    voters_of_parties: tuple[int, ...] = ()  # how many voters each party has, where that is public

    def __post_init__(self) -> None:
        settle_numbers(self)
        _check_choice("voters", self.voters, get_args(Voters))
        _check_choice("opened", self.opened, get_args(Opened))
        self._check_numbers()
        if self.voters == "sums" and self.opened == "answers":
            raise PateError("voters='sums' open a table of sums, not answers: take opened='counts'")
        self._check_test()
        NoiseShares(self.sigma, self.parties, self.colluding, self.absent)

    def _check_numbers(self) -> None:
        least = {"classes": 2, "queries": 1, "votes": 1, "directions": 1, "length": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if type(value) is not int or value < smallest:
                raise PateError(f"{name}={value!r} must be a whole number of at least {smallest}")
        if self.voters == "neighbours" and self.votes > self.queries:
            raise PateError(f"votes={self.votes} of a voter must be from 1 to the {self.queries} queries")
        numbers = self.voters_of_parties
        if numbers and len(numbers) != self.parties:
            raise PateError(f"voters_of_parties={numbers} must name one number for each of {self.parties}")
        if any(type(number) is not int or number < 0 for number in numbers):
            raise PateError(f"voters_of_parties={numbers} must be whole numbers of at least 0")

    def _check_test(self) -> None:
        if (self.threshold is None) != (self.sigma_threshold is None):
            raise PateError(
                f"threshold={self.threshold} and sigma_threshold={self.sigma_threshold} go together: give "
                "both or none"
            )
        if self.threshold is not None and self.opened == "counts":
            raise PateError(
                f"threshold={self.threshold:g} is for opened='answers': where counts are opened, everybody "
                "can apply a threshold to them, free of cost"
            )
        if self.opened == "answers":
            _ = self.mechanism, self.test_noise  # both refuse what makes no sense

    @property
    def noise(self) -> NoiseShares:
        """The shares of noise on each number."""
        return NoiseShares(self.sigma, self.parties, self.colluding, self.absent)

    @property
    def test_noise(self) -> NoiseShares | None:
        """The shares of noise of the test, if there is one."""
        if self.sigma_threshold is None:
            return None
        return NoiseShares(self.sigma_threshold, self.parties, self.colluding, self.absent)

    @property
    def mechanism(self) -> AnswerMechanism:
        """How answers are drawn from the sum of votes."""
        return self._mechanism(self.sigma, self.sigma_threshold)

    def remaining(self, shares: int) -> AnswerMechanism:
        """The same with the noise of this many shares only."""
        scales = [noise.together(shares).scale for noise in self.noises]
        return self._mechanism(scales[0], scales[1] if len(scales) == 2 else None)

    def _mechanism(self, sigma: float, sigma_threshold: float | None) -> AnswerMechanism:
        if self.threshold is None or sigma_threshold is None:
            return DiscreteGaussianMax(sigma)
        return ConfidentDiscreteGaussian(self.threshold, sigma_threshold, sigma)

    @property
    def noises(self) -> tuple[NoiseShares, ...]:
        """All noises that the parties make in shares."""
        return (self.noise,) if self.test_noise is None else (self.noise, self.test_noise)

    @property
    def touched(self) -> int:
        """How many votes one voter casts, at the most."""
        return self.queries if self.voters == "teachers" else self.votes

    @property
    def cells(self) -> int:
        """How many numbers get noise of scale `sigma`."""
        if self.voters == "sums":
            return (1 if self.classes == 2 else self.classes) * self.directions
        return self.queries * self.classes

    @property
    def squared_shift(self) -> int:
        """The square of the length by which one changed voter moves all numbers."""
        return 4 * self.length**2 if self.voters == "sums" else 2 * self.touched


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise PateError(f"{name}={value!r} must be one of {', '.join(known)}")
