"""The Renyi curve of noise on a sample, against quadrature of its own, and against composed losses."""

import mpmath
import numpy as np
import pytest

from pate_jax.accounting import curves, sampled_noise
from pate_jax.baselines.dpsgd import calibration
from pate_jax.errors import PateError


def exact(rate, scale, order):
    """The divergence by tanh-sinh quadrature in 30 digits, its range cut at the peaks."""
    q, s = mpmath.mpf(rate), mpmath.mpf(scale)

    def ratio(x):
        base = mpmath.npdf(x, 0, s)
        first = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))
        second = 1 - q + q * mpmath.exp((-2 * x - 1) / (2 * s * s))
        return base * first**order * second ** (1 - order)

    with mpmath.workdps(20):
        ends = [-12 * s - 2, -1, 0, 1, order / 2, order, 2 * order + 12 * s, 3 * order + 30 * s]
        return float(mpmath.log(mpmath.quad(ratio, sorted({*map(float, ends)}))) / (order - 1))


@pytest.mark.parametrize(
    ("rate", "scale", "order"),
    [
        *((0.01, 1.0, 8.0), (0.2, 0.6, 3.5), (0.7, 3.0, 12.0), (2.0**-20, 0.5, 1.5)),
        (0.01, 21.13, 4096.0),  # two large logs nearly cancel, so that rounding shows
    ],
)
def test_a_step_has_the_curve_of_its_worst_pair_and_never_less(rate, scale, order):
    found, wanted = (
        float(sampled_noise.changed(rate, scale, np.array([order]))[0]),
        exact(rate, scale, order),
    )
    assert wanted * (1 - 1e-12) <= found <= wanted * (1 + 1e-6) + 3e-9 / (order - 1)


def test_the_curve_is_above_composed_losses_and_not_far():
    rate, scale, steps = 64 / 4096, 1.1, 200
    orders = curves.default_orders()
    by_curve = curves.epsilon(orders, steps * sampled_noise.changed(rate, scale, orders), 1e-5).epsilon
    by_losses = calibration.cost(scale, rate, steps, 1e-5, calibration.REPLACE, grid=2e-3)
    assert by_losses - 0.02 < by_curve < 1.35 * by_losses


def test_noise_without_a_sample_bounds_it_at_every_order():
    orders = curves.default_orders()
    found = sampled_noise.changed(0.3, 0.4, orders)
    assert (found <= 2 * orders / 0.4**2).all() and (np.diff(found) > 0).all()
    for rate, scale in ((0.0, 1.0), (1.5, 1.0), (0.5, 0.0), (0.5, np.inf)):
        with pytest.raises(PateError, match="rate="):
            sampled_noise.changed(rate, scale, orders)
