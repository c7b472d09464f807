"""The time that a progress bar says is left: true within a factor of two."""

import numpy as np
import pytest

from pate_jax.system.progress import Pace


def told(durations, total, found=0.0, extra=0.3):
    """At each step, some seconds after it: what the pace says is left, and what will be."""
    pace, now, rows = Pace(total, 0.0), 0.0, []
    if found:
        pace.moved(found, 0.01, found=True)
    for place, seconds in enumerate(durations):
        now += seconds
        pace.moved(1.0, now)
        rows.append((pace.left(now + extra * seconds), sum(durations[place + 1 :]) - extra * seconds))
    return rows


@pytest.mark.parametrize("found", [0.0, 40.0])
@pytest.mark.parametrize("compiling", [0.0, 50.0])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_the_time_left_is_true_within_a_factor_of_two(found, compiling, spread):
    durations = 2.0 * np.exp(np.random.default_rng(7).normal(0, spread, 60))
    durations[0] += compiling
    rows = told(durations.tolist(), 60 + found, found)[1:-3]  # at the ends a single step decides
    if spread:
        rows = rows[3:]  # one step alone may be far from the mean
    assert all(0.5 <= said / true <= 2 for said, true in rows)


def test_steps_slower_than_half_a_minute_have_an_estimate_too():
    for said, true in told([45.0] * 20, 20)[:-1]:
        assert said == pytest.approx(true)


def test_nothing_is_said_before_the_first_step_and_nothing_negative_ever():
    pace = Pace(10, 0.0)
    assert pace.left(5.0) is None and str(pace) == ""
    pace.moved(0.0, 5.0, found=True)
    assert pace.left(6.0) is None
    pace.moved(9.0, 10.0)
    assert pace.left(10.0) == pytest.approx(5 / 9) and pace.left(1e6) == 0.0
