"""The mechanism that teachers have unless told otherwise, and thresholds that their votes cannot reach."""

from __future__ import annotations

import math

import numpy as np

from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian
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
