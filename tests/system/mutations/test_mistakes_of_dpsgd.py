"""Known mistakes of DP-SGD: a named test fails for each."""

import contextlib
from functools import partial
from itertools import cycle

import pytest
import test_baseline_runs
import test_dpsgd
import test_sampled_noise
from catalogue import Patch, case, fails, is_caught, replaced, source

from pate_jax.accounting import costs, sampled_noise, training_losses
from pate_jax.baselines.dpsgd import calibration, gradients, training
from pate_jax.runs.baselines import tasks

scale = test_dpsgd.test_noise_has_the_scale_of_the_plan_times_the_clip_and_lies_on_one_grid
apart = test_dpsgd.test_one_record_moves_the_sum_by_the_stated_length_at_most_in_any_microbatches
chances = test_dpsgd.test_every_record_takes_part_with_its_own_chance_and_none_is_left_out
planned = test_dpsgd.test_a_plan_keeps_to_its_budget_and_dp_accounting_alone_says_the_same
charged = test_dpsgd.test_one_step_costs_what_a_fine_sum_says_under_both_relations


registered = test_baseline_runs.test_what_a_register_adds_is_no_less_than_the_losses_of_all_steps
curve = test_sampled_noise.test_a_step_has_the_curve_of_its_worst_pair_and_never_less
named = test_baseline_runs.test_noise_is_named_after_all_that_gradients_follow_from


def unnamed(patch, folder):
    folder.mkdir(parents=True, exist_ok=True)
    return fails(partial(named, folder))(patch, folder)


@contextlib.contextmanager
def two_devices():
    """Microbatches go to two devices, since each compiles the sum anew and no mistake is one of devices."""
    with Patch.context() as patch:
        patch.setattr(training, "cycle", lambda copies: cycle(copies[:2]))
        yield patch


def steps():
    with two_devices() as patch:
        test_dpsgd.test_a_training_is_the_sums_and_fresh_noise_of_every_step(patch)


def bounded():
    """The length of one record's part again, where the compiled sum may have changed."""
    test_dpsgd.compiled.cache_clear()
    try:
        with two_devices():
            apart()
    finally:
        test_dpsgd.compiled.cache_clear()


def by_the_batch(real):
    """A batch that is cut to its expected size."""
    return lambda key, records, rate: real(key, records, rate)[: round(records * rate)]


CASES = [
    case(
        "there is no noise",
        source(gradients, "noisy", "+ drawn * scale", "+ 0 * drawn"),
        fails(scale),
        "assert|Error",
    ),
    case(
        "the noise is not scaled by the longest gradient",
        source(gradients, "noisy", "scale = multiplier * clip", "scale = multiplier"),
        fails(scale),
        "assert",
    ),
    case(
        "gradients are not clipped",
        replaced(gradients, "clip_pytree", lambda real: lambda found, bound, return_zero: (found, None)),
        fails(bounded),
        "assert",
    ),
    case(
        "gradients are clipped to a little more than is stated",
        replaced(gradients, "shrunk", lambda real: lambda clip, parameters: clip * (1 + 1e-4)),
        fails(bounded),
        "assert",
    ),
    case(
        "padding counts",
        replaced(gradients, "clip_pytree", lambda real: lambda found, bound, return_zero: real(found, bound)),
        fails(bounded),
        "assert",
    ),
    case(
        "half of the sampling rate is charged",
        source(
            training_losses, "_accountant", "PoissonSampledDpEvent(rate,", "PoissonSampledDpEvent(rate / 2,"
        ),
        fails(partial(charged, 0.25, 1.5)),
        "assert",
    ),
    case(
        "a changed record is charged as one that is added or removed",
        source(
            calibration,
            "plan",
            "max(added, cost(multiplier, rate, settings.steps, delta, REPLACE))",
            "added",
        ),
        fails(planned),
        "assert",
        long=True,
    ),
    case(
        "records take part twice as often as is charged",
        source(calibration, "draw", "words < np.uint64(chances)", "words < np.uint64(2 * chances)"),
        fails(chances),
        "assert",
    ),
    case(
        "large batches are cut short", replaced(calibration, "draw", by_the_batch), fails(chances), "assert"
    ),
    case(
        "all steps draw the same noise",
        source(training, "_keys", "fold_in(steps, step)", "fold_in(steps, 0)"),
        fails(steps),
        "assert",
    ),
    case(
        "fewer steps are charged than made",
        source(training, "_trained", "range(made.steps)", "range(made.steps + 1)"),
        fails(steps),
        "assert",
    ),
    case(
        "the reserve covers the smaller figure alone",
        source(gradients, "check_reserve", "max(plan.epsilon, plan.replaced)", "plan.epsilon"),
        fails(scale),
        "RAISE",
    ),
    case(
        "another public part's scales get the same noise",
        source(tasks, "asked_on", '"preprocessing": asdict(dataset.preprocessing)', ""),
        unnamed,
        "assert",
    ),
    case(
        "a register adds the cost of one step alone",
        source(costs, "curve", "steps * sampled_noise", "sampled_noise"),
        fails(registered),
        "assert",
    ),
    case(
        "a register takes a changed record for one that is added",
        source(sampled_noise, "_one", "(points + 1) ** 2", "points**2"),
        fails(partial(curve, 0.2, 0.6, 3.5)),
        "assert",
    ),
    case(
        "a curve at high orders without its rounding",
        source(sampled_noise, "_one", "_ROUNDING *", "0.0 *"),
        fails(partial(curve, 0.01, 21.13, 4096.0)),
        "assert",
    ),
    case(
        "a head on another space gets the same noise",
        source(tasks, "asked_on", '{"head": task.head.digest}', '{"head": 1}'),
        unnamed,
        "assert",
    ),
    case(
        "the sum is a float's",
        source(training, "_total", "np.int64", "np.float32"),
        fails(bounded),
        "assert|Error",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
