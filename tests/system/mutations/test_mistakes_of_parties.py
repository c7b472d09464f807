"""Votes of several owners that are joined or held although they must not be: a test fails for each."""

import secrets
import tempfile
from functools import partial
from pathlib import Path

import pytest
import test_joined_votes
import test_local_votes
import test_merge
import test_parties
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.data import fingerprints
from pate_jax.runs import registration
from pate_jax.runs.parties import ballot, join, ledger, meeting, merged_votes, terms
from pate_jax.runs.secret import Secret
from pate_jax.voting import merge


def refused(before, how, said):
    with tempfile.TemporaryDirectory() as folder:
        owners = test_merge.prepared(Path(folder))
        test_merge.test_bad_input_is_refused_and_nothing_is_written(before, how, said, owners)


def in_folder(test, *given):
    """A test that takes a folder of its own."""

    def run():
        with tempfile.TemporaryDirectory() as folder:
            test(*given, Path(folder))

    run.__name__ = test.__name__
    return run


def once(real):
    """A run that says that it was entered is not looked for again."""
    return lambda run, *rest: None if "register" in run.record.stages() else real(run, *rest)


def fresh_each_time(real):
    return lambda *given: f"{real(*given)} {secrets.token_hex(8)}"


def company(present, said):
    return fails(in_folder(test_parties.test_a_begun_vote_keeps_its_company_and_promises, present, said))


GONE = {name: test_parties.PROMISES[name] for name in ("east", "west")}
CHARGED = fails(in_folder(test_parties.test_a_charge_is_for_one_ballot_and_one_noise, "ballot"))
BUDGET = fails(in_folder(test_parties.test_a_budget_that_would_be_exceeded_is_refused))
SIGNED = fails(in_folder(test_parties.test_a_missing_signature_is_refused))
SAME = fails(in_folder(test_parties.test_a_repeated_party_brings_the_same_noise))
REGISTER = fails(in_folder(test_parties.test_a_register_adds_votes_up_and_refuses_one_too_many))
ROWS = fails(in_folder(test_parties.test_teachers_of_records_that_are_row_numbers_promise_no_record))
SECOND = fails(in_folder(test_parties.test_a_second_run_of_the_same_agreement_is_refused))
TEST = fails(in_folder(test_parties.test_a_begun_vote_with_a_threshold_is_not_repeated, "signature"))
RESTORED = fails(
    in_folder(test_local_votes.test_a_folder_that_was_restored_as_a_whole_draws_the_same_answers)
)
NUMBERS = fails(in_folder(test_parties.test_a_key_takes_each_number_among_the_same_parties_once))
SHARED = fails(partial(refused, test_merge.shared, {}, "share 1 record id"))
SALTS = fails(partial(refused, test_merge.other_salt, {}, "made with two salts"))
OTHERS = fails(partial(refused, None, {"ids": (1, 0, 2)}, "was made for other votes"))
MISFIT = {"ids": None, "digests": test_merge.IDS}
ONE_TEACHER = fails(test_joined_votes.test_what_is_stated_of_a_party_is_the_worst_change_of_one_owner)
TWICE = fails(partial(refused, None, {"files": (0, 0, 2), "ids": (0, 0, 2)}, "hold the same votes"))
QUERIES = fails(partial(test_merge.test_votes_that_do_not_fit_are_refused, MISFIT, "the inputs of 7 of 7"))


@pytest.mark.parametrize(
    "mutation",
    [
        case(
            "people with two owners are not noticed",
            replaced(fingerprints, "overlaps", lambda real: lambda owners: []),
            SHARED,
            "DID NOT RAISE",
        ),
        case(
            "digests of two salts are compared",
            source(merged_votes, "_checked", "one.salt != found[0].salt", "False"),
            SALTS,
            "DID NOT RAISE",
        ),
        case(
            "ids of other votes are taken",
            source(merged_votes, "_check_belongs", "one.votes != digest", "False"),
            OTHERS,
            "DID NOT RAISE",
        ),
        case(
            "votes on other inputs are added up",
            replaced(merge, "_check_same", lambda real: lambda *_: None),
            QUERIES,
            "DID NOT RAISE",
        ),
        case(
            "an owner of several teachers is charged for one vote",
            source(merged_votes, "check_teachers", "number != 1", "False"),
            ONE_TEACHER,
            "assert",
        ),
        case(
            "an owner's votes are counted twice",
            replaced(merge, "_check_given_once", lambda real: lambda *_: None),
            TWICE,
            "share 9 record ids",
        ),
        case(
            "a vote is repeated without a party that was there",
            source(ledger, "begin", "before != dict(present)", "False"),
            company(GONE, "and north is missing"),
            "DID NOT RAISE",
        ),
        case(
            "a party brings another ballot under the noise that it was charged for",
            source(ledger, "charge", "before != wanted", "False"),
            CHARGED,
            "DID NOT RAISE",
        ),
        case(
            "a vote that was entered goes on without its register",
            replaced(registration, "enter", once),
            REGISTER,
            "meets nobody",
        ),
        case(
            "teachers of records with row numbers promise something to one record",
            source(ballot, "_check_covered", "relation.are_rows(open_dataset(member))", "False"),
            ROWS,
            "DID NOT RAISE",
        ),
        case(
            "an agreement is voted on in two runs",
            source(ledger, "_check", "same[0].run != wanted.run", "False"),
            SECOND,
            "assert",
        ),
        case(
            "a vote number is taken by two agreements of the same parties",
            source(ledger, "_check", "taken and not same", "False"),
            NUMBERS,
            "DID NOT RAISE",
        ),
        case(
            "a repeated vote draws its noise anew",
            replaced(ballot, "_stream", fresh_each_time),
            SAME,
            "AssertionError",
        ),
        case(
            "a test of exact counts is repeated, with whatever numbers a party brings",
            replaced(join, "_check_repeatable", lambda real: lambda member: None),
            TEST,
            "assert",
        ),
        case(
            "a restored folder of local votes draws their noise anew",
            replaced(Secret, "derive", lambda real: lambda *_: secrets.token_bytes(32)),
            RESTORED,
            "Arrays are not equal",
        ),
        case(
            "a vote beyond the agreement's budget is held",
            source(terms, "audiences", "one.epsilon > most", "False"),
            BUDGET,
            "AssertionError|assert",
        ),
        case(
            "a transcript that one party did not sign is taken",
            replaced(meeting, "check_signatures", lambda real: lambda *_: None),
            SIGNED,
            "DID NOT RAISE",
        ),
    ],
)
def test_a_mistake_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
