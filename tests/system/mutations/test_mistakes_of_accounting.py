"""Known mistakes of other accountants, put into ours: a named test fails for each."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import test_calibrate
import test_every_scale
import test_exact
import test_filter
import test_gnmax
import test_joint
import test_laplace
import test_limits
import test_smooth
import test_statement
import test_threshold
import test_trade_off
from catalogue import TRIED, case, fails, is_caught, replaced, source

from pate_jax import accounting
from pate_jax.accounting import composition, costs, curves, figures, filter, smooth, trade_off
from pate_jax.accounting.bounds import leading_counts, noisy_max, worst_case, worst_reading
from pate_jax.accounting.exact import argmax_law, counts, moves, nodes
from pate_jax.accounting.exact.groups import Groups
from pate_jax.mechanisms import ConfidentGNMax, GNMax, GumbelMax, LNMax, Noise

STATEMENT = sys.modules[accounting.Statement.__module__]  # the room has a function of that name


def of_the_statement(test):
    """A test of the statement that its module makes once."""

    def run():
        given = test_statement.MECHANISM, test_statement.VOTES, test_statement.ANSWERED, 1e-5
        test(accounting.statement(*given, private=True))

    run.func = test
    return run


def guard_of_one_half(real):
    """Theorem 3 as it was published: wherever q < 1/2, also where its fraction is negative."""

    def moments(log_q, epsilon, orders):
        q, steps, known = np.exp(log_q)[:, None], orders - 1, real(log_q, epsilon, orders)
        with np.errstate(invalid="ignore", over="ignore"):
            inner = (1 - q) * ((1 - q) / (1 - np.exp(epsilon) * q)) ** steps + q * np.exp(epsilon * steps)
            return np.where(q < 0.5, np.minimum(np.log(inner) / steps, known), known)

    return moments


def publishable(real):
    return lambda case: replace(real(case), status="publishable")


def not_smoothed(real):
    """The bound itself, whatever it would be on neighbours."""
    return lambda boxes, places, beta: real(boxes, places, 1e6)


def without_the_others(real):
    """Every race is one of two classes: the best of the others is left out."""
    return lambda self, envelope, rows: np.repeat(envelope[..., -1:], len(rows), axis=-1)


def half_the_noise(real):
    return property(lambda self: Noise("discrete_gaussian", self.noise * smooth.STEPS / 2))


def one_more(real):
    return lambda self, spent, each: real(self, spent, each) + 1


def no_figure_for_the_test(real):
    return lambda test, argmax, teachers, orders: argmax


def grid_search(real):
    """The worst reading as the largest of a grid that is refined around its best point."""

    def supremum(noise, argmax, room, orders):
        reach = 12 * noise.scale + orders + 1
        grid = np.linspace(-reach, np.minimum(reach, room), 801, axis=1)
        best = np.zeros(len(orders))
        for _ in range(6):
            values = worst_reading.cost(noise, grid, orders[:, None], argmax[:, None])
            best = np.maximum(best, values.max(axis=1))
            centre = grid[np.arange(len(orders)), values.argmax(axis=1)]
            width = np.diff(grid, axis=1).max(axis=1)
            grid = np.minimum(centre[:, None] + width[:, None] * np.linspace(-1, 1, 41), room)
        return best

    return supremum


def cancelling(real):
    """The formula as it stands, without the series for small ranges."""

    def bounded_range(eta, orders):
        top = eta + np.log(-np.expm1(-orders * eta))
        at = np.log1p(-1 / orders) + top - np.log(-np.expm1(-(orders - 1) * eta))
        mean = (orders - 1) * at + top - np.log(orders) - eta - np.log(-np.expm1(-eta))
        return np.minimum(mean / (orders - 1), np.minimum(orders * eta**2 / 8, eta))

    return bounded_range


def forgetful(inject):
    """A mistake in the search, whose honest results are not remembered, nor the mistaken ones later."""

    def both(patch):
        patch.setattr(worst_reading, "_remembered", worst_reading._remembered.__wrapped__)
        inject(patch)

    return both


NARROW = ConfidentGNMax(125.939, 0.4, 56.2341), 1.187281, 2.44832396
LAST = "gaussian", 40.0, 100.0, 0.01, 50.0
NEAR = "gaussian", 0.7, 1.001, 0.01, 50.0
TWO_CLASSES = fails(test_exact.test_two_classes_at_fifty_digits)
PRICES = [
    case(
        "the guard of Theorem 3 read as q < 1/2",
        replaced(noisy_max, "moments", guard_of_one_half),
        fails(partial(test_laplace.test_lnmax_moments_equal_mpmath, [11, 10], 0.5)),
        "lnmax_moments",
    ),
    case(
        "one direction of the divergence only",
        source(moves, "_block", "np.maximum(forward, backward)", "forward"),
        fails(partial(test_exact.test_brute_force_over_all_histograms, GNMax(3.0))),
        "brute_force",
    ),
    case(
        "no move between two classes of equal counts",
        source(Groups, "moves", "self.sizes >= 2", "False"),
        fails(test_exact.test_the_move_between_two_classes_of_equal_counts_is_tried),
        "equal_counts",
    ),
    case(
        "a floor under the probabilities",
        source(argmax_law, "log_sum", "peak[..., 0]", "np.maximum(peak[..., 0], -5.0)"),
        fails(test_exact.test_empty_class_cannot_give_a_vote),
        "empty_class",
    ),
    case(
        "a quadrature window around the winner only",
        source(
            nodes,
            "_lattice",
            "np.maximum(tail.start(), tail.mode - WIDTH * sigma - slack)",
            "groups.counts[:, 0] - 2 * sigma",
        ),
        TWO_CLASSES,
        "two_classes",
        long=True,
    ),
    case(
        "q where log q is meant, which underflows",
        source(
            noisy_max,
            "published",
            "theorem6(gaussian_log_q(votes, sigma)",
            "theorem6(np.log(np.exp(gaussian_log_q(votes, sigma)))",
        ),
        fails(partial(test_gnmax.test_unanimous_votes_give_a_figure_at_every_scale, 1e-3, 250)),
        "unanimous_votes",
    ),
    case(
        "a moved vote charged as one changed count",
        source(
            worst_case,
            "argmax_bound",
            "noisy_max.pure_curve(2 / scale, orders)",
            "noisy_max.pure_curve(1 / scale, orders)",
        ),
        fails(partial(test_laplace.test_worst_case_covers_every_histogram, LNMax(0.7), 7, 2)),
        "worst_case",
    ),
    case(
        "2 / lap_scale where 1 / lap_scale is meant",
        source(
            curves,
            "published_argmax",
            "log_q, 2 / scale",
            "noisy_max.laplace_log_q(votes, scale / 2), 1 / scale",
        ),
        fails(partial(test_laplace.test_lnmax_moments_equal_mpmath, [90, 80, 80], 20.0)),
        "lnmax_moments",
    ),
    case(
        "the threshold test free of charge",
        replaced(curves.threshold, "joint_bound", no_figure_for_the_test),
        fails(
            partial(
                test_threshold.test_joint_worst_case_covers_every_histogram,
                ConfidentGNMax(2.5, 0.4, 3.0),
                6,
                2,
            )
        ),
        "joint_worst_case",
    ),
    case(
        "the worst reading looked for on a grid",
        replaced(worst_reading, "supremum", grid_search),
        fails(partial(test_threshold.test_a_narrow_peak_between_the_points_of_a_grid_is_found, *NARROW)),
        "narrow_peak",
    ),
    case(
        "cells of readings judged by their ends alone",
        forgetful(source(worst_reading, "highest", "+ bend / 8 + rise**2 / (2 * bend)", "- bend")),
        fails(partial(test_every_scale.test_the_worst_reading_is_never_below_the_truth, *LAST)),
        "worst_reading",
    ),
    case(
        "no reading above the threshold",
        source(curves.threshold, "joint_bound", "max(float(teachers) - test.threshold, 0.0)", "0.0"),
        fails(partial(test_every_scale.test_the_worst_reading_is_never_below_the_truth, *NEAR)),
        "worst_reading",
    ),
    case(
        "far readings that nobody looked at",
        forgetful(
            source(
                worst_reading._Search,
                "run",
                "np.ceil(self.orders + REACH * self.noise.scale)",
                "self.noise.scale + 0 * self.orders",
            )
        ),
        fails(
            partial(
                test_every_scale.test_the_worst_reading_is_never_below_the_truth,
                *LAST[:1],
                0.7,
                300.0,
                0.0,
                np.inf,
            )
        ),
        "worst_reading",
    ),
    case(
        "the curve of bounded range from logarithms that cancel",
        replaced(noisy_max, "bounded_range", cancelling),
        fails(partial(test_every_scale.test_an_argmax_without_a_test_is_never_below_the_truth, GumbelMax)),
        "argmax_without",
    ),
    case(
        "a calibrator that ends on the far side of the target",
        source(
            accounting,
            "calibrate",
            "scaled(mechanism, factor, noise), spent(factor)",
            "scaled(mechanism, 0.99 * factor, noise), spent(0.99 * factor)",
        ),
        fails(partial(test_calibrate.test_only_the_named_noise_moves, "both")),
        "only_the_named",
        long=True,
    ),
    case(
        "the sampler's distance from its law not paid for",
        source(curves, "with_slack", "(1 + math.exp(epsilon.epsilon)) * slack", "0.0"),
        fails(test_statement.test_the_samplers_error_is_paid_for),
        "samplers_error",
    ),
]
PUBLISHED = [
    case(
        "only the answered queries in the headline",
        source(
            figures,
            "data_independent",
            "case.votes.sum(axis=1), case.asked)",
            "case.votes.sum(axis=1), np.r_[case.answered[:1] + 2, case.answered[1:]])",
        ),
        fails(of_the_statement(test_statement.test_headline_charges_the_argmax_for_every_query_asked)),
        "headline_charges",
    ),
    case(
        "only what beats the first term counts at one false accusation",
        source(trade_off, "caught", "growth * level + delta", "growth * level"),
        fails(test_trade_off.test_what_one_epsilon_allows_is_reached_by_its_worst_pair),
        "worst_pair",
    ),
    case(
        "whole-number noise taken for a Gaussian of its scale",
        source(composition, "unit_mu", "float(steps.max())", "1 / noise.scale"),
        fails(partial(test_trade_off.test_a_unit_of_discrete_noise_is_no_more_than_its_mu, 3.0)),
        "discrete_noise",
    ),
    case(
        "what strays counted on one side only",
        source(trade_off, "gaussian_variation", "2 * strays", "strays"),
        fails(test_trade_off.test_what_strays_counts_against_every_figure),
        "strays",
    ),
    case(
        "a mu for a voter who joins in place of one who changes",
        source(counts, "_joint_mu", "release.squared_shift(change)", 'release.squared_shift("joined")'),
        fails(partial(test_trade_off.test_the_figures_of_gaussians_are_those_of_sixty_digits, 1.0)),
        "sixty_digits",
    ),
    case(
        "a printed epsilon rounded down",
        source(
            STATEMENT,
            "rounded_up",
            "math.ceil(epsilon * 1e4)",
            "math.floor(epsilon * 1e4)",
        ),
        fails(of_the_statement(test_statement.test_a_printed_epsilon_is_rounded_up)),
        "rounded_up",
    ),
    case(
        "the exact figure, which reads the votes, published",
        replaced(figures, "exact", publishable),
        fails(of_the_statement(test_statement.test_nothing_sensitive_is_publishable)),
        "nothing_sensitive",
    ),
    case(
        "a sanitised sum that one voter may move further than the noise covers",
        replaced(smooth, "smooth_costs", not_smoothed),
        fails(
            partial(
                test_smooth.test_no_vote_moves_the_logarithm_by_more_than_beta, GNMax(1.5), 12, 3, 4.0, 0.02
            )
        ),
        "moves_the_logarithm",
    ),
    case(
        "a sanitised sum that takes every race for one of two classes",
        replaced(leading_counts._Others, "mean", without_the_others),
        fails(
            partial(
                test_smooth.test_bounds_the_exact_cost_of_every_histogram,
                ConfidentGNMax(9, 3.0, 2.0),
                9,
                4,
                2.0,
            ),
        ),
        "bounds_the_exact_cost",
    ),
    case(
        "each draw of a sanitised limit has the whole confidence",
        replaced(smooth, "spread", lambda real: lambda confidence, draw: confidence),
        fails(test_limits.test_whoever_draws_until_content_has_a_limit_that_holds_as_often_as_it_says),
        "assert",
    ),
    case(
        "a sanitised figure with half the noise that it pays for",
        replaced(smooth.Plan, "law", half_the_noise),
        fails(test_smooth.test_the_release_costs_what_the_plan_says),
        "costs_what_the_plan_says",
    ),
    case(
        "a sanitising plan tuned on private votes, published",
        source(
            smooth,
            "limit",
            '"sensitive" if from_private else "publishable"',
            '"publishable"',
        ),
        fails(test_smooth.test_a_plan_reads_no_private_votes_and_a_tuned_one_stays_sensitive),
        "tuned_one_stays_sensitive",
    ),
    case(
        "a filter that allows one query too many",
        replaced(filter.Filter, "affords", one_more),
        fails(partial(test_filter.test_the_most_that_fits_stays_within_the_budget, GNMax(20.0), 2.0, 1e-5)),
        "within_the_budget",
    ),
    case(
        "a filter that charges less than the curve of an index",
        source(filter, "cost", "rdp * (1 + _ROUNDING)", "rdp * 0.9"),
        fails(partial(test_filter.test_the_most_that_fits_stays_within_the_budget, GNMax(20.0), 2.0, 1e-5)),
        "within_the_budget",
    ),
    case(
        "of two lists of one mechanism the longer one is charged",
        source(costs, "_of_list", "asked[event.teachers] += ", "asked[event.teachers] = "),
        fails(partial(test_joint.test_answers_of_one_mechanism_are_one_list_whoever_asked_them, GNMax(40.0))),
        "assert",
    ),
    case(
        "of several Gaussian releases the largest is charged",
        source(costs, "_mu", "math.hypot(*known)", "max(known)"),
        fails(test_joint.test_gaussian_releases_of_several_kinds_compose_exactly),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", [*PRICES, *PUBLISHED])
def test_a_mistake_of_accounting_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)


def test_what_changes_nothing_is_not_caught(tmp_path):
    """The suite can fail."""
    equal = fails(test_exact.test_the_move_between_two_classes_of_equal_counts_is_tried)
    (harmless,) = case("nothing", lambda patch: None, equal, "").values
    with pytest.raises(AssertionError, match=r"found \[\]"):
        is_caught(harmless, tmp_path)
    assert TRIED.pop().finding is None
