"""DP-SGD: what is charged is what is drawn, and one record moves a step by the stated length at most."""

import math
from dataclasses import replace
from functools import cache

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as some
from jax.flatten_util import ravel_pytree
from scipy import stats

from pate_jax import models
from pate_jax.aggregate.noise import fresh_key, seeded_key
from pate_jax.baselines import dpsgd
from pate_jax.baselines.dpsgd import calibration, gradients, training
from pate_jax.errors import PateError

RECORDS, FEATURES, CLASSES = 23, 5, 3
CLIP = 0.3
SMALL = dpsgd.Settings(
    epsilon=4.0, steps=3, batch=11, clip=CLIP, learning_rate=0.7, microbatch=4, noise_multiplier=1.7
)


def init(key):
    return {"kernel": jax.random.normal(key, (FEATURES, CLASSES)), "bias": jnp.zeros(CLASSES)}


NET = models.Model(
    init, lambda params, x: x @ params["kernel"] + params["bias"], {"name": "own", "classes": CLASSES}
)


@cache
def records():
    random = np.random.default_rng(3)
    inputs = random.normal(size=(RECORDS, FEATURES)).astype(np.float32)
    inputs[0] *= 1e-3  # a gradient that clipping leaves alone
    return inputs, random.integers(0, CLASSES, RECORDS)


@cache
def compiled():
    flat, unflatten = ravel_pytree(NET.init(jax.random.key(1)))
    return gradients.sums(NET, lambda found: found, CLIP, len(flat)), unflatten(flat), len(flat)


def summed(rows, size=4):
    sums, params, _ = compiled()
    inputs, labels = records()
    return training._total(sums, params, inputs, labels.astype(np.int32), np.asarray(rows, int), size)


# What is charged


def excess(upper, lower, sigma, epsilon):
    """The hockey-stick divergence of two mixtures of normals on a line, by a fine sum."""
    at = np.linspace(-14 * sigma, 14 * sigma, 400_001)
    above, below = (
        sum(share * stats.norm.pdf(at, mean, sigma) for share, mean in one) for one in (upper, lower)
    )
    return float(np.trapezoid(np.maximum(above - math.exp(epsilon) * below, 0), at))


@pytest.mark.parametrize(("rate", "sigma"), [(0.25, 1.5), (0.5, 0.8)])
def test_one_step_costs_what_a_fine_sum_says_under_both_relations(rate, sigma):
    delta, inner = 1e-4, 1e-4 * (1 - calibration.RESERVED)
    joined, alone, opposite = ([(1 - rate, 0.0), (rate, mean)] for mean in (1.0, 0.0, -1.0))
    for relation, pairs in (
        (calibration.ADD_OR_REMOVE, [(joined, alone), (alone, joined)]),
        (calibration.REPLACE, [(joined, opposite)]),
    ):
        epsilon = calibration.cost(sigma, rate, 1, delta, relation, grid=5e-4)
        assert max(excess(*pair, sigma, epsilon) for pair in pairs) <= inner
        assert max(excess(*pair, sigma, epsilon - 1e-3) for pair in pairs) > inner


@settings(max_examples=15, deadline=None)
@given(some.floats(-1, 1), some.floats(-1, 1), some.floats(0, 1), some.floats(0.1, 2.0))
def test_no_two_gradients_of_length_one_differ_by_more_than_two_opposite_ones(along, across, far, epsilon):
    """The pair of docs/proofs/dpsgd.md: u and v in the plane against 1 and -1 on a line, by Monte Carlo."""
    rate, sigma = 0.3, 0.9
    u = np.array([1.0, 0.0])
    v = far * np.array([along, across]) / max(math.hypot(along, across), 1e-9)
    points = u + sigma * np.random.default_rng(0).normal(size=(20_000, 2))

    def ratio(points, mean):  # density of the mixture with this mean over that of the normal around u
        return np.exp((((points - u) ** 2).sum(1) - ((points - mean) ** 2).sum(1)) / (2 * sigma**2))

    def divergence(points, mine, other):
        nothing = ratio(points, np.zeros(2))
        upper = (1 - rate) * nothing + rate * ratio(points, mine)
        lower = (1 - rate) * nothing + rate * ratio(points, other)
        return np.maximum(upper - math.exp(epsilon) * lower, 0)

    gap = divergence(points, u, -u) - divergence(points, u, v)
    assert gap.mean() >= -4 * gap.std() / math.sqrt(len(gap)) - 1e-12


def test_a_plan_keeps_to_its_budget_and_dp_accounting_alone_says_the_same():
    made = dpsgd.plan(2.93, 1e-5, 60_000, dpsgd.Settings(steps=900, batch=1024))
    step = dp_accounting.PoissonSampledDpEvent(
        1024 / 60_000, dp_accounting.GaussianDpEvent(made.noise_multiplier)
    )
    alone = pld.PLDAccountant(value_discretization_interval=1e-4)
    alone.compose(dp_accounting.SelfComposedDpEvent(step, 900))
    assert abs(alone.get_epsilon(1e-5 * (1 - calibration.RESERVED)) - made.epsilon) < 1e-3
    renyi = dp_accounting.rdp.RdpAccountant()
    renyi.compose(dp_accounting.SelfComposedDpEvent(step, 900))
    assert made.epsilon < renyi.get_epsilon(1e-5)
    assert 2.93 * 0.995 < made.epsilon <= 2.93 < made.replaced < 2 * 2.93
    with pytest.raises(PateError, match="costs epsilon"):
        dpsgd.plan(2.9, 1e-5, 60_000, dpsgd.Settings(steps=900, batch=1024, noise_multiplier=1.0))


# What is drawn


def test_every_record_takes_part_with_its_own_chance_and_none_is_left_out():
    rate, steps = calibration.rate_of(11, RECORDS), 400
    taken = np.zeros((steps, RECORDS), int)
    for step in range(steps):
        taken[step, calibration.draw(seeded_key(step), RECORDS, rate)] = 1
    spread = math.sqrt(rate * (1 - rate) / taken.size)
    assert abs(taken.mean() - 11 / RECORDS) < 4 * spread  # and so not 2/3 or 3/2 of it
    together = np.corrcoef(taken.T)[np.triu_indices(RECORDS, 1)]
    assert abs(together).max() < 5 / math.sqrt(steps)
    assert taken.sum(1).max() > 13 and taken.sum(1).std() > 1.5  # no size is fixed
    parts = list(calibration.microbatches(np.arange(RECORDS), 4))
    shown = np.concatenate([part.rows[~part.is_padding] for part in parts])
    assert shown.tolist() == list(range(RECORDS)) and {len(part.rows) for part in parts} == {4}
    with pytest.raises(PateError, match="rate"):
        calibration.draw(seeded_key(0), 3, 0.1)


def test_a_sum_is_that_of_gradients_clipped_one_by_one():
    _, params, count = compiled()
    inputs, labels = records()
    wanted, lengths = np.zeros(count), []
    for one, label in zip(inputs.astype(float), labels, strict=True):
        logits = one @ np.asarray(params["kernel"], float)
        error = np.exp(logits - logits.max())
        error = error / error.sum() - np.eye(CLASSES)[label]
        gradient = np.concatenate([error, np.outer(one, error).ravel()])  # bias, kernel
        lengths.append(np.linalg.norm(gradient))
        wanted += gradient * min(1, CLIP / lengths[-1])
    assert max(lengths) > 3 * CLIP
    found = summed(range(RECORDS)) * CLIP / gradients.FINEST
    assert abs(found - wanted).max() < 3e-6 * RECORDS


def test_one_record_moves_the_sum_by_the_stated_length_at_most_in_any_microbatches():
    everybody = summed(range(RECORDS))
    assert everybody.dtype == np.int64
    assert np.array_equal(everybody, summed(range(RECORDS), size=7))  # no order, no rounding
    longest = 0.0
    for row in range(RECORDS):
        moved = everybody - summed([other for other in range(RECORDS) if other != row])
        assert np.array_equal(moved, summed([row]))
        longest = max(longest, math.sqrt((moved.astype(object) ** 2).sum()))
    assert 0.999 * gradients.FINEST < longest <= gradients.FINEST
    assert not summed([]).any()


def test_a_gradient_does_not_depend_on_its_slot_or_on_who_is_beside_it():
    """With the net and the microbatch that a user gets: else a record that leaves would move others too."""
    size, random = dpsgd.Settings().microbatch, np.random.default_rng(6)
    net = models.build("papernot2021", input_shape=(28, 28, 1), classes=CLASSES, activation="tanh")
    flat, unflatten = ravel_pytree(net.init(jax.random.key(2)))
    sums, params = gradients.sums(net, lambda found: found, CLIP, len(flat)), unflatten(flat)
    inputs = random.random((size, 28, 28, 1)).astype(np.float32)
    labels = random.integers(0, CLASSES, size).astype(np.int32)

    def total(rows):
        return training._total(sums, params, inputs, labels, np.asarray(rows), size)

    everybody = total(range(size))
    for leaving in (0, size // 2, size - 1):
        others = total([row for row in range(size) if row != leaving])  # the later ones move up
        assert np.array_equal(everybody - others, total([leaving]))


def test_noise_has_the_scale_of_the_plan_times_the_clip_and_lies_on_one_grid():
    drawn = gradients.noisy(np.zeros(20_000, np.int64), CLIP, 1.7, seeded_key(5))
    assert abs(drawn.std() / (1.7 * CLIP) - 1) < 4 / math.sqrt(2 * 20_000)
    shifted = gradients.noisy(np.full(20_000, 7 * gradients.FINEST), CLIP, 1.7, seeded_key(5))
    grid = np.abs(drawn[drawn != 0]).min()
    assert set(np.unique(np.mod(np.concatenate([drawn, shifted]) / grid, 1.0))) <= {0.0}
    assert abs(shifted - drawn - 7 * CLIP).max() <= grid
    with pytest.raises(PateError, match="too much noise"):
        gradients.check_reserve(calibration.Plan(0.1, 10**6, 1.0, 8.0, 12.0, 1e-9), 10**6)
    gradients.check_reserve(calibration.Plan(0.1, 2400, 1.0, 5.0, 5.0, 1e-6), 26_010)
    with pytest.raises(PateError, match=r"epsilon=8\.5"):  # the larger figure is stated too
        gradients.check_reserve(calibration.Plan(0.1, 2400, 1.0, 5.0, 8.5, 1e-6), 26_010)


def test_lengths_that_float32_cannot_tell_are_refused():
    for clip in (1e-33, 1e9):  # at the first one the sum of one record was 55,000 times too long
        with pytest.raises(PateError, match="clip="):
            dpsgd.Settings(clip=clip)
    with pytest.raises(PateError, match="too large for DP-SGD"):
        gradients.shrunk(1.0, 1 << 24)


def test_a_training_is_the_sums_and_fresh_noise_of_every_step(monkeypatch):
    """Every step adds noise of the plan's scale, and never the same; the key alone decides what comes out."""
    seen, real = [], gradients.noisy

    def watched(total, clip, multiplier, key):
        found = real(total, clip, multiplier, key)
        seen.append((found - total * clip / gradients.FINEST, clip, multiplier))
        return found

    monkeypatch.setattr(gradients, "noisy", watched)
    first = dpsgd.fit(*records(), CLASSES, SMALL, key=seeded_key(7), model=NET)
    drawn = np.array([one for one, _, _ in seen])
    assert drawn.shape == (3, FEATURES * CLASSES + CLASSES)
    assert {one[1:] for one in seen} == {(CLIP, 1.7)}
    assert abs(np.corrcoef(drawn)[np.triu_indices(3, 1)]).max() < 0.9
    assert 0.6 < drawn.std() / (1.7 * CLIP) < 1.5
    again = dpsgd.fit(*records(), CLASSES, SMALL, key=seeded_key(7), model=NET)
    assert np.array_equal(first.params["kernel"], again.params["kernel"])
    assert (first.noise_multiplier, first.steps, first.private) == (1.7, 3, False)
    assert first.epsilon == dpsgd.plan(4.0, 1e-5, RECORDS, SMALL).epsilon < first.replaced


@pytest.mark.long
def test_it_learns_what_is_easy_and_says_whether_its_key_is_private():
    random = np.random.default_rng(0)
    labels = np.arange(600) % 2
    inputs = random.normal(size=(600, 4)).astype(np.float32) + 2 * labels[:, None]
    chosen = dpsgd.Settings(
        steps=25, batch=200, net="table", clip=1.0, learning_rate=0.5, noise_multiplier=3.5
    )
    fitted = dpsgd.fit(inputs, labels, 2, chosen, key=seeded_key(5))
    assert not fitted.private and fitted.epsilon <= 3.0
    assert dpsgd.fit(inputs, labels, 2, replace(chosen, steps=1), key=fresh_key()).private
    assert fitted.accuracy(inputs, labels) > 0.9
    assert fitted.probabilities(inputs[:0]).shape == (0, 2)


# What is refused


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"delta": 1.0},
        {"steps": 0},
        {"batch": 2.0},
        {"clip": math.inf},
        {"momentum": 1.0},
        {"average": -0.1},
        {"noise_multiplier": 0.0},
        {"microbatch": 2048},
        {"temperature": -1.0},
        {"offset": math.nan},
        {"net": "patches"},
        {"net": "tandem"},
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(wrong):
    with pytest.raises(PateError, match=next(iter(wrong))):
        dpsgd.Settings(**wrong)


def test_records_that_do_not_fit_are_refused():
    inputs, labels = records()
    for wrong in ((inputs[:3], labels), (inputs, labels + 1), (inputs * np.nan, labels)):
        with pytest.raises(PateError):
            dpsgd.fit(*wrong, CLASSES, SMALL, key=seeded_key(1), model=NET)
    with pytest.raises(PateError, match="batch"):
        dpsgd.plan(3.0, 1e-5, 10, SMALL)
    with pytest.raises(PateError, match="raise epsilon"):
        dpsgd.plan(1e-7, 1e-9, 100, dpsgd.Settings(batch=100, steps=10**5))


def test_rules_read_counts_only_and_knobs_stand_over_them():
    chosen = dpsgd.choose(60_000, 10, image=True, epsilon=2.93, activation="relu")
    assert chosen == dpsgd.choose(60_000, 10, image=True, epsilon=2.93, activation="relu")
    assert (chosen.activation, chosen.batch, chosen.epsilon) == ("relu", 1024, 2.93)
    assert dpsgd.choose(40, 2, image=False).batch <= 40


COUNTS = 1000, 4000, 16_000


def test_few_records_and_a_small_epsilon_get_fewer_steps_and_many_get_those_of_forty_passes():
    usual = dpsgd.choose(60_000, 10, image=True, epsilon=2.93)
    assert dpsgd.choose(60_000, 10, image=True, epsilon=2.93, parameters=26_010) == usual
    found = [dpsgd.choose(count, 2, image=False, epsilon=1.0, parameters=3490) for count in COUNTS]
    assert [one.steps for one in found] == [100, 100, 187]
    assert [one.batch for one in found] == [50, 200, 585]
    for one, count in zip(found, COUNTS, strict=True):
        assert one.learning_rate * one.steps == pytest.approx(40 / 512 * count / 3)
    least = dpsgd.choose(4000, 2, image=False, epsilon=1e-9, parameters=3490)
    assert (least.steps, least.batch) == (100, 16) and least.learning_rate > 0
    head = dpsgd.choose(60_000, 10, image=True, epsilon=2.93, net="linear")
    assert head.learning_rate == 4 * usual.learning_rate
