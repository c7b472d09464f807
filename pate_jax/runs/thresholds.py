"""The mechanism that teachers have unless told otherwise, and thresholds that their votes cannot reach.

Stable answers are chosen by a cutoff and, where threshold and scale are left out, a rule that chooses these.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Union

import numpy as np
from tyro.conf import subcommand

from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME, ConfidentDiscreteGaussian
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers

_REACH = 6  # scales of the test's noise by which a threshold may exceed the number of teachers


def default_mechanism(teachers: int) -> ConfidentDiscreteGaussian:
    """The proportions of the 2018 paper's MNIST setting (200, 150 and 40 for 250 teachers).

    >>> default_mechanism(250)
    ConfidentDiscreteGaussian(threshold=200.0, sigma_threshold=150.0, sigma=40.0)
    """
    return ConfidentDiscreteGaussian(0.8 * teachers, 0.6 * teachers, 0.16 * teachers)


def check_threshold(mechanism: AnyMechanism, teachers: int) -> None:
    """Refuse a threshold that votes cannot reach, not even with the noise of the test."""
    if isinstance(mechanism, StableAnswers):
        _check_distance(mechanism, teachers)
        return
    test = mechanism.test
    if test is not None and test.threshold > teachers + _REACH * test.noise.scale:
        raise PateError(
            f"threshold={test.threshold:g} is more than {_REACH} scales of the test's noise, "
            f"{test.noise.scale:g}, above the number of teachers, {teachers}: no query would be answered; "
            "lower the threshold or raise the noise of the test"
        )


def _check_distance(mechanism: StableAnswers, teachers: int) -> None:
    """Refuse stable answers whose threshold is beyond the distance of unanimous votes and its noise."""
    largest = max(0, (teachers + 1) // 2 - 1)
    if mechanism.threshold > largest + _REACH * mechanism.scale:
        raise PateError(
            f"threshold={mechanism.threshold} is more than {_REACH} scales of the noise, "
            f"{mechanism.scale:g}, above {largest}, the distance of unanimous votes of {teachers} teachers: "
            "no query would be answered; take more teachers, a smaller cutoff or a larger epsilon"
        )


def threshold_warning(mechanism: AnyMechanism, teachers: int) -> str | None:
    """The warning for a threshold that votes reach only by noise; None for any other.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> print(threshold_warning(ConfidentGNMax(300, 200, 40), 250))
    threshold=300 is above the number of teachers, 250: of unanimous votes 40% would pass, by noise alone
    >>> threshold_warning(ConfidentGNMax(200, 150, 40), 250)
    """
    if isinstance(mechanism, StableAnswers):
        return _distance_warning(mechanism, teachers)
    test = mechanism.test
    if test is None or test.threshold <= teachers:
        return None
    from pate_jax.accounting.exact import noise_law

    share = math.exp(noise_law.log_tail(test.noise, np.array([test.threshold - teachers]))[0][0])
    return (
        f"threshold={test.threshold:g} is above the number of teachers, {teachers}: of unanimous votes "
        f"{100 * share:.2g}% would pass, by noise alone"
    )


def _distance_warning(mechanism: StableAnswers, teachers: int) -> str | None:
    """The warning for stable answers whose threshold unanimous votes reach only by noise."""
    largest = max(0, (teachers + 1) // 2 - 1)
    if mechanism.threshold <= largest:
        return None
    return (
        f"threshold={mechanism.threshold} is above {largest}, the distance of unanimous votes of {teachers} "
        "teachers: queries are answered by noise alone, and the list ends soon"
    )


@dataclass(frozen=True)
class StableChoice:
    """Exact answers; only unstable ones cost (docs/proofs/stable.md).

    >>> StableChoice(cutoff=2).settled(1.0, 1e-5)
    StableAnswers(threshold=82, scale=6.0000000006, cutoff=2)
    """

    cutoff: int = 1
    """The list ends with this many unanswered queries."""
    threshold: int | None = None
    """Votes more than one that must be able to change without changing the answer, noise included."""
    scale: float | None = None
    """Of the noise, in votes."""

    def settled(self, epsilon: float | None, delta: float) -> StableAnswers:
        """The mechanism; threshold and scale follow from epsilon and delta where both are left out."""
        if self.threshold is not None and self.scale is not None:
            return StableAnswers(self.threshold, self.scale, self.cutoff)
        if epsilon is None or self.threshold is not None or self.scale is not None:
            raise PateError(
                f"stable-answers --cutoff {self.cutoff} lacks a threshold or a scale: give both, or neither "
                "of them and the epsilon that they follow from"
            )
        from pate_jax.accounting import stable  # which help pages do without

        return stable.calibrate(epsilon, delta, self.cutoff)


# The mechanisms as subcommands, except those that need more than votes.
_BY_COMMAND = [
    Annotated[kind, subcommand(name, prefix_name=False, description=(kind.__doc__ or "").partition("\n")[0])]
    for name, kind in BY_NAME.items()
    if kind.votes_suffice
]
_STABLE = (StableChoice.__doc__ or "").partition("\n")[0]
_BY_COMMAND.append(
    Annotated[StableChoice, subcommand("stable-answers", prefix_name=False, description=_STABLE)]
)
_AUTO = Annotated[
    None, subcommand("auto", description="A confident discrete Gaussian that follows the number of teachers.")
]
MechanismOrAuto = Union[(_AUTO, *_BY_COMMAND)]  # type: ignore[valid-type]
_OF_RUN = Annotated[None, subcommand("of-run", description="The mechanism that the run recorded.")]
MechanismOrRun = Union[(_OF_RUN, *_BY_COMMAND)]  # type: ignore[valid-type]
