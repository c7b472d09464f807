"""Mistakes and forgeries in runs whose records or users vote by themselves: each is caught."""

import shutil
from dataclasses import replace
from functools import partial
from importlib import import_module

import honest_runs
import numpy as np
import pytest
import test_numbers
import test_teachers_of_labels as of_labels
from catalogue import case, edit, fails, in_a_folder, is_caught, is_found, replaced, source, verified
from test_edited_runs import both, by_hand, rewrite, settings

from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit import retraining
from pate_jax.audit.subject import Subject
from pate_jax.crowd import numbers, tables
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import TeacherSums, TeacherVotes
from pate_jax.models import integers
from pate_jax.runs import budget, driver, ledger, secret
from pate_jax.runs import labels as runs_labels
from pate_jax.runs import numbers as runs_numbers
from pate_jax.runs.crowds import inputs, public_side, release, stages
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

by_records = partial(honest_runs.crowd, "neighbours")
by_users = partial(honest_runs.crowd, "neighbours", "user")
of_sums = partial(honest_runs.crowd, "sums")
seeded = partial(honest_runs.crowd, "neighbours", "record", 5)


def crowd_lines(run, change):
    """The whole ledger anew, chain and head and all."""
    rewrite(run, change)


def claimed(**changes):
    """Another release in every file, with a ledger and a certificate to suit, and the table as it is."""

    def apply(run):
        made = public_side.read(run.public_side)
        kept = replace(public_side.plan_of(made, run.public_side).release, **changes)
        made["release"] = np.array(storage.json.dumps(to_dict(kept), sort_keys=True))
        public_side.write(run.public_side, made)
        public, table = public_side.digest(made), release.load_table(run)
        order, cost = budget.cost_of(None, kept)

        def line(body):
            named = secret.stream(2, to_dict(kept), body["exact"], public)
            return {
                **body,
                "event": to_dict(kept),
                "public": public,
                "noise": run.secret.commitment(named),
                "order": order,
                "cost": to_dict(cost),
            }

        crowd_lines(run, lambda bodies: [bodies[0], line(bodies[1])])
        before = storage.read_json(run.certificate, "certificate")
        said = release._said(kept, table, public)
        storage.write_json(run.certificate, "certificate", {**before, **said})
        restated(run)

    return apply


def restated(run):
    """The statement that the files give by now, with its sentences wherever they stand."""
    both(lambda run, statement: stages.state(run, statement.delta))(run)


def other_table(run):
    table = release.load_table(run)
    table[0, 0] += 1
    storage.write_arrays(run.table, "crowd-table", {"table": table})


def other_table_everywhere(run):
    """A table with three votes moved, its digest in the certificate and the ledger, the noise to suit."""
    table = release.load_table(run)
    table[0] = table[0][::-1]
    storage.write_arrays(run.table, "crowd-table", {"table": table})
    proof = storage.read_json(run.certificate, "certificate")
    storage.write_json(run.certificate, "certificate", {**proof, "table": storage.digest(table)})

    number, line = ledger.releases(run.ledger)
    noisy = driver.noisy(run, line, table)
    line = line._replace(exact=storage.digest(table), values=ledger.pack_table(noisy))
    line = line._replace(noise=run.secret.commitment(line.stream))
    storage.write_arrays(run.answers, "noisy-table", {"values": noisy})
    crowd_lines(run, lambda bodies: [{"kind": "release", **to_dict(one)} for one in (number, line)])


def headline(run, statement, epsilon):
    return replace(statement, figures={"data_independent": replace(statement.headline, epsilon=epsilon)})


def half_the_cost(bodies):
    body = bodies[1]
    return [bodies[0], {**body, "cost": {**body["cost"], "rdp": body["cost"]["rdp"] / 2}}]


def without_the_number(run, statement):
    table = statement.releases[1:]
    return replace(statement, releases=table, figures={"data_independent": figure_of(table, statement.delta)})


def wished(epsilon):
    return lambda run: settings(run, crowd={**run.record.stages()["crowd"], "epsilon": epsilon})


def no_noise(run):
    """The exact table for the noisy one, in the ledger and in its file."""
    table = release.load_table(run)
    storage.write_arrays(run.answers, "noisy-table", {"values": table})
    crowd_lines(run, lambda bodies: [bodies[0], {**bodies[1], "values": ledger.pack_table(table)}])


def other_noisy(run):
    values = storage.read_arrays(run.answers, "noisy-table")["values"]
    storage.write_arrays(run.answers, "noisy-table", {"values": values + 1})


FIGURE = r'("data_independent": \{\s*"epsilon": )[\d.]+'
EDITS = [
    edit("a crowd's noise claimed larger", by_records, claimed(sigma=50.0), "noise: .*do not follow"),
    edit(
        "a crowd's noise claimed larger than planned",
        of_sums,
        claimed(sigma=4e3),
        "public: .*give the release",
    ),
    edit("votes of a voter understated", by_records, claimed(votes=1), "voters: .*votes at most"),
    edit("votes of a user understated", by_users, claimed(votes=1), "voters: .*votes at most"),
    edit("a vector's length understated", of_sums, claimed(length=1), "voters: .*longer"),
    edit("a crowd's table changed", by_records, other_table, "ledger: .*not the one that was released"),
    edit("a crowd's noisy table changed", of_sums, other_noisy, "differs from the ledger"),
    edit("a crowd's table without noise", of_sums, no_noise, "noise: .*do not follow"),
    edit(
        "a crowd's ledger of half the cost",
        of_sums,
        partial(crowd_lines, change=half_the_cost),
        "it was charged",
    ),
    edit(
        "the number of voters not charged",
        of_sums,
        partial(crowd_lines, change=lambda bodies: bodies[1:]),
        "ledger: line 1 of .* shows release 2",
    ),
    edit("the number of voters not stated", by_records, both(without_the_number), "statement differs"),
    edit("more spent than was wished", by_records, wished(1.0), "ledger: epsilon 1 was allowed"),
    edit(
        "half of a crowd's epsilon in every file of the release",
        of_sums,
        both(lambda run, statement: headline(run, statement, statement.headline.epsilon / 2)),
        "release: epsilon .* is published for",
    ),
    edit(
        "a crowd's statement edited by hand",
        by_users,
        by_hand(lambda run: run.public_statement, FIGURE, r"\g<1>0.5"),
        "statement: the published statement differs",
    ),
    edit(
        "users claimed where records voted",
        by_records,
        both(lambda run, statement: replace(statement, relation="user")),
        "statement: .*relation is 'user'",
    ),
    edit(
        "a seeded crowd passed off as private",
        seeded,
        both(lambda run, statement: replace(statement, private=True)),
        "statement: .*private is True",
    ),
]


@pytest.mark.parametrize("one", EDITS)
def test_an_edited_run_of_a_crowd_is_found(one, tmp_path):
    is_found(one, tmp_path)


def made(voters, by="record"):
    """A run up to its statement that the mutated pipeline makes, looked at by the honest verifier."""

    def check(patch, folder):
        run = RunDirectory(folder)
        try:
            _make(run, inputs.CrowdChoice(voters, by, epsilon=4.0, **honest_runs.NEAR[voters]))
        except PateError as error:
            return [f"refused: {error}"]
        patch.undo()
        again = retraining.recounted(Subject(run))
        return verified(run) + [f"table: {one.text}" for one in again if one.outcome == "failed"]

    return check


def _make(run, choice):
    with run.writing():
        release.release(stages.begin(run, honest_runs.table(), choice))
        stages.account(run)


def patched(place, name, value):
    return lambda patch: patch.setattr(place, name, value)


def a_half_of_the_table(real):
    return lambda releases, delta: real(releases[1:], delta) / 2


def one_more_vote(real):
    return lambda space, queries, people, kept, **more: real(
        space, queries, people, replace(kept, votes=kept.votes + 1), **more
    )


def as_records(crowd):
    return inputs.crowd.voters(crowd.seen.private, crowd.dataset.classes, by="record")


def never_shortened(real):
    return lambda rows, length: rows


def as_given(real):
    return lambda sums, users, length: sums


def all_alike(*given):
    return "noise"


def without_table(real):
    return lambda number, event, exact, public="": real(number, event, "", public)


def drawn_anew(real):
    def draw(run, line, table):
        return real(run, line, table) + np.random.default_rng().integers(0, 2, table.shape)

    return draw


def by_label(real):
    """The public side knows the private labels: the noise follows their count."""

    def planned(crowd, *mu):
        plan = real(crowd, *mu)
        quieter = replace(
            plan.release, sigma=plan.release.sigma + float(crowd.people.labels.sum() % 7) / 8 + 0.1
        )
        return plan._replace(release=quieter)

    return planned


NEIGHBOURS, USERS, SUMS = made("neighbours"), made("neighbours", "user"), made("sums")
MISTAKES = [
    case(
        "a voter casts a vote more than it may",
        replaced(tables, "counts", one_more_vote),
        NEIGHBOURS,
        "votes at most",
    ),
    case(
        "a user's records counted as records",
        patched(Crowd, "people", property(as_records)),
        USERS,
        "votes at most",
    ),
    case(
        "a user's records added one by one",
        patched(Crowd, "people", property(as_records)),
        made("sums", "user"),
        "table: the records give another table",
    ),
    case(
        "a user's sums that are not shortened",
        replaced(import_module("pate_jax.crowd.sums"), "shortened", as_given),
        made("sums", "user"),
        "table: (the records give another table|one voter cast a vector longer)",
    ),
    case(
        "a vector that is not shortened",
        replaced(integers, "shortened", never_shortened),
        SUMS,
        "table: (the records give another table|one voter cast a vector longer)",
        traced=True,
    ),
    case("one noise for all releases", patched(secret, "stream", all_alike), SUMS, "another noise"),
    case("one noise for all tables", replaced(secret, "stream", without_table), SUMS, "another noise"),
    case("noise that nobody can draw again", replaced(driver, "noisy", drawn_anew), SUMS, "do not follow"),
    case(
        "noise that follows private labels",
        replaced(Crowd, "planned", by_label),
        NEIGHBOURS,
        "give the release",
    ),
    case(
        "the number of voters without noise",
        source(driver.Method, "draw", "noisy(self.run, cast(CrowdLine, line), exact)", "exact"),
        SUMS,
        "do not follow",
    ),
    case(
        "the number of voters charged to nobody",
        replaced(counts, "worst", a_half_of_the_table),
        SUMS,
        "statement differs",
    ),
    case(
        "a user's numbers added up",
        source(
            numbers,
            "weighed",
            "np.diff(np.append(starts, len(own)))",
            "np.ones(len(starts), int)",
        ),
        fails(
            test_numbers.test_all_records_of_a_user_move_the_sums_by_what_is_charged_and_their_order_by_nothing
        ),
        "what_is_charged",
    ),
    case(
        "a user's mean rounded up beyond one vector",
        source(numbers, "weighed", "np.where(fits, nearest,", "np.where(fits | True, nearest,"),
        fails(test_numbers.test_no_user_is_longer_than_one_vector_and_adds_the_mean_of_its_records),
        "no_user_is_longer",
    ),
    case(
        "a teacher that says more than its vector may hold",
        source(numbers, "answer", "<= length**2", "<= 9 * length**2"),
        fails(
            test_numbers.test_no_teacher_says_more_than_its_vector_may_hold_and_what_it_holds_is_its_prediction
        ),
        "no_teacher_says_more",
    ),
    case(
        "a teacher charged as if it came or went",
        source(TeacherSums, "squared_shift", "4 * self.length**2", "self.length**2"),
        fails(test_numbers.test_what_teachers_cost_is_that_of_the_two_farthest_tables_they_can_say),
        "what_teachers_cost",
    ),
    case(
        "a user's records dealt to several teachers of numbers",
        source(
            runs_numbers.Taught,
            "count",
            "partition_key, by=by",
            'partition_key, by="record"',
        ),
        in_a_folder(test_numbers.test_one_teacher_has_all_records_of_a_user),
        "one_teacher_has_all",
    ),
    case(
        "teachers of several labels charged as of one",
        source(TeacherVotes, "squared_shift", "min(self.labels, 2 * self.most)", "1"),
        fails(partial(of_labels.test_no_teacher_moves_a_table_further_than_is_charged, 5, 5)),
        "no_teacher_moves",
    ),
    case(
        "a teacher charged for the labels that it names, and not for those it no longer does",
        source(TeacherVotes, "squared_shift", "2 * self.most", "self.most"),
        fails(partial(of_labels.test_no_teacher_moves_a_table_further_than_is_charged, 5, 2)),
        "no_teacher_moves",
    ),
    case(
        "teachers of several labels charged for one input",
        source(TeacherVotes, "squared_shift", "self.queries * ", ""),
        fails(partial(of_labels.test_no_teacher_moves_a_table_further_than_is_charged, 5, 5)),
        "no_teacher_moves",
    ),
    case(
        "teachers that name more labels than they are charged for",
        source(numbers, "named", "[:, :most]", ""),
        fails(of_labels.test_one_record_or_user_moves_the_table_by_no_more_than_is_charged),
        "one_record_or_user",
    ),
    case(
        "noise of several labels as of one label's run",
        source(counts, "teacher_votes_for", "queries, labels, most, 1.0", "queries, 1, 1, 1.0"),
        fails(partial(of_labels.test_what_it_costs_is_that_of_the_two_farthest_tables, 2)),
        "what_it_costs",
    ),
    case(
        "a user's records dealt to several teachers of labels",
        source(runs_labels.Taught, "count", "partition_key, by=by", 'partition_key, by="record"'),
        in_a_folder(of_labels.test_all_records_of_a_user_are_with_one_teacher),
        "all_records_of_a_user",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_crowds_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)


def test_a_table_that_was_changed_in_every_file_is_found_by_counting_again(tmp_path):
    shutil.copytree(by_records().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    other_table_everywhere(run)
    assert verified(run) == []  # every file fits every other one
    (fault, *_) = [one for one in retraining.recounted(Subject(run)) if one.outcome == "failed"]
    assert "the records give another table" in fault.text
