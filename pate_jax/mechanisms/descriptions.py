"""Frozen descriptions of aggregation mechanisms, which samplers and accountants share.

A mechanism says which noise is added to the vote counts before the largest is taken (`noise`), which test,
if any, a query must pass first (`test`), and whether the noisy counts themselves are the answer
(`releases_counts`). Samplers and accountants read only these three. Each mechanism is a shape (`Plain` or
`Tested`) with one family of noise, which its class names. Standard library only.

To add a mechanism, write a class here and add it to `Mechanism`. The command line, files, sweeps and samplers
find it there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, cast, get_args

from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.codec import settle_numbers

__all__ = [
    "BY_NAME",
    "ConfidentDiscreteGaussian",
    "ConfidentDiscreteLaplace",
    "ConfidentGNMax",
    "DiscreteGaussianMax",
    "DiscreteLaplaceMax",
    "GNMax",
    "GaussianHistogram",
    "GumbelMax",
    "InteractiveGNMax",
    "LNMax",
    "Mechanism",
    "Noise",
    "PermuteAndFlip",
    "ThresholdTest",
    "check_votes_suffice",
    "from_dict",
    "name_of",
]

Family = Literal[
    "gaussian",
    "laplace",
    "gumbel",
    "exponential",
    "discrete_gaussian",
    "discrete_laplace",
    "rounded_gaussian",
]

SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e12  # in votes; every curve is tested here against 60 digits
LARGEST_DISCRETE_SCALE = 1e6  # for discrete noise, whose laws are tables and sums
ROUNDED_SCALES = 1.0, 149_000.0  # for rounded Gaussian noise: one whole vote, and the widest table of its law


class Noise(NamedTuple):
    """A family of noise and its scale: sigma for the Gaussians, b for all others."""

    family: Family
    scale: float

    @property
    def is_discrete(self) -> bool:
        """Whether the noise is integer-valued, drawn from a table.

        >>> Noise("discrete_laplace", 3.0).is_discrete, Noise("laplace", 3.0).is_discrete
        (True, False)
        """
        return self.family.startswith(("discrete_", "rounded_"))


class ThresholdTest(NamedTuple):
    """A query is answered if and only if `max_j n_j + noise >= threshold`."""

    threshold: float
    noise: Noise


def scales(family: Family) -> tuple[float, float]:
    """The smallest and the largest scale that a mechanism with this noise may have.

    >>> scales("gaussian"), scales("rounded_gaussian")
    ((0.001, 1000000000000.0), (1.0, 149000.0))
    """
    if family == "rounded_gaussian":
        return ROUNDED_SCALES
    return SMALLEST_SCALE, LARGEST_DISCRETE_SCALE if Noise(family, 1.0).is_discrete else LARGEST_SCALE


class _Shape:
    """The common part of all mechanisms: a name, and a family of noise whose field is `sigma` or `scale`."""

    name: ClassVar[str]  # on the command line and in files
    family: ClassVar[Family]
    votes_suffice: ClassVar[bool]  # if false, the test reads a number that one vote moves by at most one
    releases_counts: ClassVar[bool]  # an answer is the whole row of noisy counts, and not their argmax alone

    def __init_subclass__(
        cls,
        *,
        name: str = "",
        family: Family = "gaussian",
        votes_suffice: bool = True,
        releases_counts: bool = False,
    ) -> None:
        cls.name, cls.family, cls.votes_suffice = name, family, votes_suffice
        cls.releases_counts = releases_counts

    def __post_init__(self) -> None:
        settle_numbers(self)  # type: ignore[arg-type]  # each mechanism is a dataclass
        self._check_scale("")

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return self._noise("")

    def _noise(self, suffix: str) -> Noise:
        return Noise(self.family, getattr(self, self._scale_name(suffix)))

    def _check_scale(self, suffix: str) -> None:
        value, (smallest, largest) = self._noise(suffix).scale, scales(self.family)
        if not (isinstance(value, float) and smallest <= value <= largest):
            raise PateError(
                f"{self._scale_name(suffix)}={value!r} must be a number of votes from {smallest:g} to "
                f"{largest:g}, the range in which privacy figures are tested: less noise hides nothing, and "
                "more noise hides all votes, so take a value in between"
            )

    def _scale_name(self, suffix: str) -> str:
        return ("sigma" if "gaussian" in self.family else "scale") + suffix


class Plain(_Shape):
    """The largest count after noise on each: every query is answered."""

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


class Tested(_Shape):
    """The largest noisy count of queries that pass a test of their largest count, with the same noise."""

    threshold: float

    def __post_init__(self) -> None:
        settle_numbers(self)  # type: ignore[arg-type]
        if not (isinstance(self.threshold, float) and 0 <= self.threshold <= LARGEST_SCALE):
            raise PateError(
                f"threshold={self.threshold!r} must be a number of votes from 0 to {LARGEST_SCALE:g}; about "
                "0.8 times the number of teachers is usual"
            )
        self._check_scale("_threshold")
        super().__post_init__()

    @property
    def test(self) -> ThresholdTest:
        """The test that a query must pass."""
        return ThresholdTest(self.threshold, self._noise("_threshold"))


@dataclass(frozen=True)
class LNMax(Plain, name="lnmax", family="laplace"):
    """Largest count after Laplace noise (Papernot et al. 2017): `argmax_j n_j + Lap(scale)`.

    >>> LNMax(scale=20.0).noise
    Noise(family='laplace', scale=20.0)
    """

    scale: float  # b of the Laplace law; the 2017 paper's gamma is 1/b


@dataclass(frozen=True)
class GNMax(Plain, name="gnmax", family="gaussian"):
    """Largest count after Gaussian noise (Papernot et al. 2018): `argmax_j n_j + N(0, sigma^2)`.

    >>> GNMax(sigma=40.0).test is None
    True
    """

    sigma: float  # standard deviation of the noise on each count


@dataclass(frozen=True)
class ConfidentGNMax(Tested, name="confident-gnmax", family="gaussian"):
    """GNMax on the queries whose noisy largest count reaches a threshold (Papernot et al. 2018).

    >>> ConfidentGNMax(threshold=200, sigma_threshold=150, sigma=40).test
    ThresholdTest(threshold=200.0, noise=Noise(family='gaussian', scale=150.0))
    """

    threshold: float  # votes that the noisy largest count must reach
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer


@dataclass(frozen=True)
class InteractiveGNMax(Tested, name="interactive-gnmax", family="gaussian", votes_suffice=False):
    """GNMax on the queries where the teachers contradict the student (Papernot et al. 2018).

    The test reads `max_j (n_j - T p_j)` in place of `max_j n_j`, where `p` are the student's probabilities. A
    query that fails the test gets the student's own label if the student's confidence reaches
    `student_confidence`. `pate_jax.aggregate.interactive` answers and accounts with a student; all other code
    uses the worst case, which needs no student.

    >>> InteractiveGNMax(threshold=100, sigma_threshold=70, sigma=20, student_confidence=0.9).noise.scale
    20.0
    """

    threshold: float  # votes by which the teachers must exceed the student's prediction
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer
    student_confidence: float  # from this probability on, the student's own label is used

    def __post_init__(self) -> None:
        super().__post_init__()
        known = isinstance(self.student_confidence, float)
        if not (known and 0 <= self.student_confidence <= 1):
            raise PateError(
                f"student_confidence={self.student_confidence!r} must be between 0 and 1; 0.9 is an example"
            )


@dataclass(frozen=True)
class GumbelMax(Plain, name="gumbel", family="gumbel"):
    """Exponential mechanism: `P[j]` is proportional to `exp(n_j / scale)`.

    >>> GumbelMax(scale=4.0).noise.family
    'gumbel'
    """

    scale: float  # of the Gumbel noise


@dataclass(frozen=True)
class PermuteAndFlip(Plain, name="permute-and-flip", family="exponential"):
    """Permute-and-flip (McKenna and Sheldon 2020), as the largest count after exponential noise.

    >>> PermuteAndFlip(scale=4.0).noise.family
    'exponential'
    """

    scale: float  # mean of the exponential noise


@dataclass(frozen=True)
class DiscreteGaussianMax(Plain, name="discrete-gaussian", family="discrete_gaussian"):
    """Largest count after discrete Gaussian noise (Canonne, Kamath, Steinke 2020), ties at random.

    >>> DiscreteGaussianMax(sigma=40.0).noise.family
    'discrete_gaussian'
    """

    sigma: float  # the law is proportional to exp(-x^2 / (2 sigma^2)) on the integers


@dataclass(frozen=True)
class DiscreteLaplaceMax(Plain, name="discrete-laplace", family="discrete_laplace"):
    """Largest count after discrete Laplace noise, ties at random.

    >>> DiscreteLaplaceMax(scale=20.0).noise.family
    'discrete_laplace'
    """

    scale: float  # the law is proportional to exp(-|x| / scale) on the integers


@dataclass(frozen=True)
class ConfidentDiscreteGaussian(Tested, name="confident-discrete-gaussian", family="discrete_gaussian"):
    """Confident-GNMax with discrete Gaussian noise in the test and in the answer.

    >>> ConfidentDiscreteGaussian(threshold=200, sigma_threshold=150, sigma=40).test.noise.family
    'discrete_gaussian'
    """

    threshold: float  # votes that the noisy largest count must reach
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer


@dataclass(frozen=True)
class ConfidentDiscreteLaplace(Tested, name="confident-discrete-laplace", family="discrete_laplace"):
    """Discrete Laplace noise in the test and in the answer.

    >>> ConfidentDiscreteLaplace(threshold=200, scale_threshold=100, scale=20).noise.scale
    20.0
    """

    threshold: float  # votes that the noisy largest count must reach
    scale_threshold: float  # noise of the test
    scale: float  # noise of the answer


@dataclass(frozen=True)
class GaussianHistogram(Plain, name="gaussian-histogram", family="rounded_gaussian", releases_counts=True):
    """The whole row of counts with a Gaussian, rounded to whole votes, on each: soft answers for a student.

    A neighbour changes what one teacher has learned from: its vote on every query may go to another class, so
    two counts of each row move by one vote. `Q` rows move by `sqrt(2 Q)` at most, in Euclidean length, and
    are one Gaussian release with `mu = sqrt(2 Q) / sigma`. docs/proofs/accounting.md has the proof.

    >>> GaussianHistogram(sigma=40.0).noise, GaussianHistogram(sigma=40.0).releases_counts
    (Noise(family='rounded_gaussian', scale=40.0), True)
    """

    sigma: float  # standard deviation of the Gaussian on each count, before rounding


Mechanism = (
    LNMax
    | GNMax
    | ConfidentGNMax
    | InteractiveGNMax
    | GumbelMax
    | PermuteAndFlip
    | DiscreteGaussianMax
    | DiscreteLaplaceMax
    | ConfidentDiscreteGaussian
    | ConfidentDiscreteLaplace
    | GaussianHistogram
)

BY_NAME: dict[str, type[Mechanism]] = {kind.name: kind for kind in get_args(Mechanism)}


def name_of(mechanism: Mechanism) -> str:
    """The mechanism's name on the command line and in files.

    >>> name_of(GNMax(sigma=40))
    'gnmax'
    """
    return mechanism.name


def check_votes_suffice(mechanism: Mechanism) -> None:
    """Refuse a mechanism whose test reads more than the votes.

    >>> check_votes_suffice(GNMax(sigma=40))
    """
    if not mechanism.votes_suffice:
        raise PateError(
            f"{name_of(mechanism)} is adaptive: its test also reads a student, and student_probabilities is "
            "missing; answer and account by pate_jax.aggregate.interactive"
        )


def from_dict(description: Mapping[str, object]) -> Mechanism:
    """The mechanism that `to_dict` described.

    >>> from_dict({'name': 'lnmax', 'scale': 20.0})
    LNMax(scale=20.0)
    """
    return cast(Mechanism, codec.from_dict(Mechanism, description, "mechanism"))
