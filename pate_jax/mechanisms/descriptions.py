"""Frozen descriptions of aggregation mechanisms: what is drawn from is what is accounted for.

A mechanism says which noise joins the vote counts before the largest is taken (`noise`), and which test, if
any, a query must pass first (`test`). Samplers and accountants read these two properties and nothing else.
Standard library only.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pate_jax.errors import PateError

Family = Literal["gaussian", "laplace", "gumbel", "exponential", "discrete_gaussian", "discrete_laplace"]


class Noise(NamedTuple):
    """A family of noise and its scale: sigma for the Gaussians, b for all others."""

    family: Family
    scale: float


class ThresholdTest(NamedTuple):
    """A query is answered if and only if `max_j n_j + noise >= threshold`."""

    threshold: float
    noise: Noise


SMALLEST_SCALE, LARGEST_SCALE = 1e-3, 1e12  # in votes; where every curve is tested against 60 digits
LARGEST_WHOLE_SCALE = 1e6  # of discrete noise, whose laws are tables and sums


def largest_scale(family: Family) -> float:
    """The largest scale that a mechanism with this noise may have.

    >>> largest_scale("gaussian"), largest_scale("discrete_gaussian")
    (1000000000000.0, 1000000.0)
    """
    return LARGEST_WHOLE_SCALE if "discrete" in family else LARGEST_SCALE


def _positive(name: str, value: float, largest: float = LARGEST_SCALE) -> None:
    if not (isinstance(value, int | float) and SMALLEST_SCALE <= value <= largest):
        raise PateError(
            f"{name}={value!r} must be a number of votes from {SMALLEST_SCALE:g} to {largest:g}, where "
            "privacy figures are tested to be right: less noise hides nothing and more drowns all votes, so "
            "take a value in between"
        )


def _threshold(value: float) -> None:
    if not (isinstance(value, int | float) and 0 <= value <= LARGEST_SCALE):
        raise PateError(
            f"threshold={value!r} must be a number of votes from 0 to {LARGEST_SCALE:g}; about 0.8 times the "
            "number of teachers is usual"
        )


@dataclass(frozen=True)
class LNMax:
    """Largest count after Laplace noise (Papernot et al. 2017): `argmax_j n_j + Lap(scale)`.

    >>> LNMax(scale=20.0).noise
    Noise(family='laplace', scale=20.0)
    """

    scale: float  # b of the Laplace law; the 2017 paper's gamma is 1/b

    def __post_init__(self) -> None:
        _positive("scale", self.scale)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("laplace", self.scale)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class GNMax:
    """Largest count after Gaussian noise (Papernot et al. 2018): `argmax_j n_j + N(0, sigma^2)`.

    >>> GNMax(sigma=40.0).test is None
    True
    """

    sigma: float  # standard deviation of the noise on each count

    def __post_init__(self) -> None:
        _positive("sigma", self.sigma)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("gaussian", self.sigma)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class ConfidentGNMax:
    """GNMax on the queries whose noisy largest count reaches a threshold (Papernot et al. 2018).

    >>> ConfidentGNMax(threshold=200, sigma_threshold=150, sigma=40).test
    ThresholdTest(threshold=200, noise=Noise(family='gaussian', scale=150))
    """

    threshold: float  # votes that the noisy largest count must reach
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer

    def __post_init__(self) -> None:
        _threshold(self.threshold)
        _positive("sigma_threshold", self.sigma_threshold)
        _positive("sigma", self.sigma)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("gaussian", self.sigma)

    @property
    def test(self) -> ThresholdTest:
        """The test that a query must pass."""
        return ThresholdTest(self.threshold, Noise("gaussian", self.sigma_threshold))


@dataclass(frozen=True)
class InteractiveGNMax:
    """GNMax on the queries where the teachers contradict the student (Papernot et al. 2018).

    The test reads `max_j (n_j - T p_j)` with the student's own probabilities `p` in place of `max_j n_j`. A
    query that fails it takes the student's own label where the student's confidence reaches
    `student_confidence`.

    >>> InteractiveGNMax(threshold=100, sigma_threshold=70, sigma=20, student_confidence=0.9).noise.scale
    20
    """

    threshold: float  # votes by which the teachers must exceed the student's prediction
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer
    student_confidence: float  # from this probability on, the student's own label serves

    def __post_init__(self) -> None:
        _threshold(self.threshold)
        _positive("sigma_threshold", self.sigma_threshold)
        _positive("sigma", self.sigma)
        known = isinstance(self.student_confidence, int | float)
        if not (known and 0 <= self.student_confidence <= 1):
            raise PateError(f"student_confidence={self.student_confidence!r} must be between 0 and 1")

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("gaussian", self.sigma)

    @property
    def test(self) -> ThresholdTest:
        """The test that a query must pass (on the votes less the student's share of them)."""
        return ThresholdTest(self.threshold, Noise("gaussian", self.sigma_threshold))


@dataclass(frozen=True)
class GumbelMax:
    """Exponential mechanism: `P[j]` is proportional to `exp(n_j / scale)`.

    >>> GumbelMax(scale=4.0).noise.family
    'gumbel'
    """

    scale: float  # of the Gumbel noise

    def __post_init__(self) -> None:
        _positive("scale", self.scale)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("gumbel", self.scale)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class PermuteAndFlip:
    """Permute-and-flip (McKenna and Sheldon 2020), as the largest count after exponential noise.

    >>> PermuteAndFlip(scale=4.0).noise.family
    'exponential'
    """

    scale: float  # mean of the exponential noise

    def __post_init__(self) -> None:
        _positive("scale", self.scale)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("exponential", self.scale)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class DiscreteGaussianMax:
    """Largest count after discrete Gaussian noise (Canonne, Kamath, Steinke 2020), ties at random.

    >>> DiscreteGaussianMax(sigma=40.0).noise.family
    'discrete_gaussian'
    """

    sigma: float  # the law is proportional to exp(-x^2 / (2 sigma^2)) on the integers

    def __post_init__(self) -> None:
        _positive("sigma", self.sigma, LARGEST_WHOLE_SCALE)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("discrete_gaussian", self.sigma)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class DiscreteLaplaceMax:
    """Largest count after discrete Laplace noise, ties at random.

    >>> DiscreteLaplaceMax(scale=20.0).noise.family
    'discrete_laplace'
    """

    scale: float  # the law is proportional to exp(-|x| / scale) on the integers

    def __post_init__(self) -> None:
        _positive("scale", self.scale, LARGEST_WHOLE_SCALE)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("discrete_laplace", self.scale)

    @property
    def test(self) -> None:
        """Every query is answered."""
        return


@dataclass(frozen=True)
class ConfidentDiscreteGaussian:
    """Confident-GNMax with discrete Gaussian noise in the test and in the answer.

    >>> ConfidentDiscreteGaussian(threshold=200, sigma_threshold=150, sigma=40).test.noise.family
    'discrete_gaussian'
    """

    threshold: float  # votes that the noisy largest count must reach
    sigma_threshold: float  # noise of the test
    sigma: float  # noise of the answer

    def __post_init__(self) -> None:
        _threshold(self.threshold)
        _positive("sigma_threshold", self.sigma_threshold, LARGEST_WHOLE_SCALE)
        _positive("sigma", self.sigma, LARGEST_WHOLE_SCALE)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("discrete_gaussian", self.sigma)

    @property
    def test(self) -> ThresholdTest:
        """The test that a query must pass."""
        return ThresholdTest(self.threshold, Noise("discrete_gaussian", self.sigma_threshold))


@dataclass(frozen=True)
class ConfidentDiscreteLaplace:
    """Discrete Laplace noise in the test and in the answer.

    >>> ConfidentDiscreteLaplace(threshold=200, scale_threshold=100, scale=20).noise.scale
    20
    """

    threshold: float  # votes that the noisy largest count must reach
    scale_threshold: float  # noise of the test
    scale: float  # noise of the answer

    def __post_init__(self) -> None:
        _threshold(self.threshold)
        _positive("scale_threshold", self.scale_threshold, LARGEST_WHOLE_SCALE)
        _positive("scale", self.scale, LARGEST_WHOLE_SCALE)

    @property
    def noise(self) -> Noise:
        """The noise on each count."""
        return Noise("discrete_laplace", self.scale)

    @property
    def test(self) -> ThresholdTest:
        """The test that a query must pass."""
        return ThresholdTest(self.threshold, Noise("discrete_laplace", self.scale_threshold))


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
)

BY_NAME: dict[str, type] = {
    "lnmax": LNMax,
    "gnmax": GNMax,
    "confident-gnmax": ConfidentGNMax,
    "interactive-gnmax": InteractiveGNMax,
    "gumbel": GumbelMax,
    "permute-and-flip": PermuteAndFlip,
    "discrete-gaussian": DiscreteGaussianMax,
    "discrete-laplace": DiscreteLaplaceMax,
    "confident-discrete-gaussian": ConfidentDiscreteGaussian,
    "confident-discrete-laplace": ConfidentDiscreteLaplace,
}
_NAME_OF = {kind: name for name, kind in BY_NAME.items()}


def name_of(mechanism: Mechanism) -> str:
    """The mechanism's name on the command line and in files.

    >>> name_of(GNMax(sigma=40))
    'gnmax'
    """
    return _NAME_OF[type(mechanism)]


def to_dict(mechanism: Mechanism) -> dict[str, Any]:
    """A JSON-ready description; `from_dict` is its inverse.

    >>> to_dict(GNMax(sigma=40))
    {'name': 'gnmax', 'sigma': 40}
    """
    return {"name": name_of(mechanism), **dataclasses.asdict(mechanism)}


def from_dict(description: dict[str, Any]) -> Mechanism:
    """The mechanism that `to_dict` described.

    >>> from_dict({'name': 'lnmax', 'scale': 20.0})
    LNMax(scale=20.0)
    """
    if not isinstance(description, dict):
        raise PateError(f"mechanism={description!r} is no description of one")
    settings = dict(description)
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in BY_NAME:
        raise PateError(f"mechanism name {name!r} is unknown; the known ones are {', '.join(BY_NAME)}")
    wanted = {field.name for field in dataclasses.fields(BY_NAME[name])}
    if set(settings) != wanted:
        raise PateError(f"mechanism {name} takes {sorted(wanted)}, not {sorted(settings)}")
    return BY_NAME[name](**settings)
