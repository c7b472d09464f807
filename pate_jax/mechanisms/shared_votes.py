"""What several parties open together: a frozen description that parties, samplers and the accountant share.

The parties' own numbers and shares of noise (`noise_shares`) are added by a protocol that shows nothing but
what is opened: either all noisy numbers ("counts"), or only the class with the largest noisy count
("answers"), and no answer where a noisy largest count is below a threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import settle_numbers
from pate_jax.mechanisms.descriptions import ConfidentDiscreteGaussian, DiscreteGaussianMax
from pate_jax.mechanisms.noise_shares import NoiseShares

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
