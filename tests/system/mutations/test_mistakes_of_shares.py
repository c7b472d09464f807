"""Known mistakes with noise that parties share, and with local noise: a named test fails for each."""

import math
from functools import partial

import pytest
import test_audiences
import test_local_figures
import test_local_laws
import test_local_votes
import test_noise_shares
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.accounting import local as figures
from pate_jax.accounting import parties, party_curves
from pate_jax.accounting.bounds.worst_case import index_curve
from pate_jax.mechanisms import Noise, local, shared_votes
from pate_jax.runs.local import ballot, terms
from pate_jax.system import storage

RESPONSE = local.RandomisedResponse


def of_files(test, *arguments):
    """A test that needs a folder."""

    def check(patch, folder):
        folder.mkdir(parents=True)
        return fails(partial(test, folder, *arguments))(patch, folder)

    return check


def of_all_parties(real):
    return property(lambda self: Noise("discrete_gaussian", self.sigma / math.sqrt(self.parties)))


def as_if_nothing_were_known(real):
    """An outsider's bound, which uses that the counts add up to the number of teachers."""

    def moved(vote, shares, orders):
        return index_curve(vote.remaining(shares), sum(vote.voters_of_parties), vote.classes, orders)

    return moved


def twice_as_loud(real):
    return lambda mechanism: real(local.make(mechanism.name, mechanism.classes, 2 * mechanism.epsilon))


def plan_of(folder):
    agreed = terms.Terms(RESPONSE(3, 2.0), 12, 4, 8.0, 0.0, "v", 90)
    path = folder / "plan.json"
    storage.write_json(path, terms.KIND, terms.to_dict(agreed))
    return path


def restores(folder):
    test_local_votes.test_an_older_ledger_gets_the_same_answers_and_shows_them_again(folder, plan_of(folder))


def repeats(folder):
    test_local_votes.test_repeating_the_command_gives_the_same_answers_and_charges_once(
        folder, plan_of(folder)
    )


SHARES = [
    case(
        "each share has the variance s^2/m, so colluders or absent parties leave too little noise",
        replaced(shared_votes.NoiseShares, "share", of_all_parties),
        fails(
            partial(
                test_noise_shares.test_the_shares_of_the_honest_parties_alone_have_the_agreed_variance,
                5,
                2,
                1,
            )
        ),
        "agreed_variance",
    ),
    case(
        "the noise of colluding parties is counted against them",
        source(parties, "_observers", "vote.noise.honest", "present"),
        fails(
            partial(test_audiences.test_opened_counts_cost_each_audience_what_its_unknown_shares_leave, 2, 1)
        ),
        "unknown_shares",
    ),
    case(
        "a party's own noise is counted against it",
        source(parties, "_observers", "present - 1", "present"),
        fails(test_audiences.test_a_party_that_cannot_collude_is_still_charged_for_the_share_it_knows),
        "share_it_knows",
    ),
    case(
        "the noise of absent parties is counted",
        source(parties, "_observers", "vote.parties - vote.absent", "vote.parties"),
        fails(
            partial(test_audiences.test_opened_counts_cost_each_audience_what_its_unknown_shares_leave, 1, 2)
        ),
        "unknown_shares",
    ),
    case(
        "outsiders' figure holds only if as many parties stay away as may",
        source(party_curves, "_least_to_all", "vote.parties + 1", "shares + 1"),
        fails(test_audiences.test_outsiders_figure_holds_too_where_nobody_stays_away),
        "nobody_stays_away",
    ),
    case(
        "a mask that all parties make counts in full against those who know most of it",
        source(parties, "masked", "math.comb(vote.parties, max(vote.colluding, 1))", "0.5"),
        fails(partial(test_audiences.test_a_masked_comparison_shows_no_more_than_is_charged_for, 5, 2)),
        "masked_comparison",
    ),
    case(
        "a party who knows its share of the noise is accounted for as an outsider",
        replaced(party_curves, "moved_vote", as_if_nothing_were_known),
        fails(test_audiences.test_a_party_who_knows_its_noise_can_learn_more_than_the_figure_of_an_outsider),
        "figure_of_an_outsider",
    ),
    case(
        "a sum of shares is taken for a discrete Gaussian",
        replaced(shared_votes, "_step", lambda real: lambda v: 0.0),
        fails(partial(test_noise_shares.test_the_gap_bounds_the_exact_law_of_a_sum_and_is_not_idle, 0.7, 2)),
        "gap_bounds",
    ),
    case(
        "a whole party counts as one voter",
        replaced(parties, "group_size", lambda real: lambda vote, unit: 1),
        fails(test_audiences.test_a_whole_party_as_the_unit_covers_all_its_voters_at_once),
        "whole_party",
    ),
    case(
        "a vote that leaves one query for another is charged once",
        source(party_curves, "_neighbour", "2 * single", "single"),
        fails(
            partial(
                test_audiences.test_neighbours_answers_cover_a_vote_that_leaves_one_query_for_another,
                {"threshold": 10.0, "sigma_threshold": 4.0},
            )
        ),
        "leaves_one_query",
    ),
]

LOCAL = [
    case(
        "the epsilon of local noise is half of what is drawn",
        replaced(local, "log_ratio", lambda real: lambda mechanism: real(mechanism) / 2),
        fails(partial(test_local_laws.test_the_drawn_law_keeps_its_pure_epsilon_exactly, RESPONSE, 5, 1.0)),
        "pure_epsilon",
    ),
    case(
        "local noise is drawn twice as loud as it is charged",
        replaced(local, "channel", twice_as_loud),
        fails(
            partial(
                test_local_laws.test_the_drawn_law_keeps_its_pure_epsilon_exactly, local.OneHotNoise, 5, 1.0
            )
        ),
        "pure_epsilon",
    ),
    case(
        "a later vote is compared with the smallest of several bounds",
        source(figures, "accumulated", "delta == 0 or len(votes) < 2", "True"),
        fails(test_local_figures.test_votes_that_are_planned_after_seeing_answers_stay_within_the_budget),
        "stay_within_the_budget",
    ),
    case(
        "a party's ledger forgets earlier votes",
        source(ballot, "_affordable", "for one in charges]", "for one in ()]"),
        of_files(test_local_votes.test_a_ledger_adds_up_all_votes_and_refuses_what_exceeds_its_budget),
        "adds_up_all_votes",
    ),
    case(
        "repeating a local vote draws fresh noise",
        source(ballot, "vote", "if mine is None:", "if True:"),
        of_files(repeats),
        "repeats",
    ),
    case(
        "answers that have left are drawn again where an older ledger does not show them",
        source(ballot, "vote", "if not stored.exists():", "if True:"),
        of_files(restores),
        "restores",
    ),
]


@pytest.mark.parametrize("mutation", [*SHARES, *LOCAL])
def test_a_mistake_of_shares_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
