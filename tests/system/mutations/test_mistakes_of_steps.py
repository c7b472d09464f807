"""Mistakes and forgeries in runs whose crowd votes in several rounds: each is caught."""

import math
from dataclasses import replace
from functools import partial

import honest_runs
import jax
import numpy as np
import pytest
import test_crowd_rounds
from catalogue import case, edit, fails, is_caught, is_found, replaced, source, verified
from test_crowd_rounds import test_nobody_is_held_out_by_a_row_number as numbered
from test_edited_runs import both, settings
from test_mistakes_of_crowds import crowd_lines, patched

from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit import crowds, recounts
from pate_jax.audit.subject import Subject
from pate_jax.data import partition, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Score
from pate_jax.runs import ledger
from pate_jax.runs.crowds import inputs, release, rounds, stages, students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

of_sums = partial(honest_runs.in_rounds, "sums")


def exact_score(run):
    """The exact score for the noisy one in the ledger."""
    exact = students.load_score(run, 2)
    changed = {"values": ledger.pack_table(exact)}
    crowd_lines(run, lambda bodies: [*bodies[:2], {**bodies[2], **changed}, *bodies[3:]])


def other_score(run):
    """Another exact score than that which was released with noise."""
    path = run.score_of(2)
    storage.write_arrays(path, students._SCORE, {"table": students.load_score(run, 2) + 1})


def without(kind):
    """A statement that leaves out releases of a kind, or the second table."""

    def change(run, statement):
        left = [one for one in statement.releases if not isinstance(one, kind)]
        kept = tuple(left if kind is Score else statement.releases[:2])
        figure = figure_of(kept, statement.delta, statement.unmade)
        return replace(statement, releases=kept, figure=figure)

    return change


def without_unmade(run, statement):
    figure = figure_of(statement.releases, statement.delta)
    return replace(statement, unmade=None, figure=figure)


def other_student(run, folder=None):
    """A student that somebody exchanged, as one that has seen private records would be."""
    path = (folder or run.student_of(1)) / "parameters.npz"
    arrays = {name: array + 0.01 for name, array in storage.read_arrays(path, "student-parameters").items()}
    storage.write_arrays(path, "student-parameters", arrays)


def fewer_judges(run):
    """A certificate by which fewer voters are held out than are."""
    path = run.certificate_of(2)
    before = storage.read_json(path, "certificate")
    storage.write_json(path, "certificate", {**before, "held_out": before["held_out"] - 1})


def fewer_rounds(run):
    settings(run, crowd={**run.record.stages()["crowd"], "rounds": 1})


def lost_table(run):
    run.table_of(2).unlink()


EDITS = [
    edit(
        "an exact score in the ledger",
        honest_runs.ended,
        exact_score,
        "noise: release 3: 1 numbers",
    ),
    edit("another score than the released one", of_sums, other_score, "ledger: release 3: .* not the one"),
    edit("a score that is not stated", of_sums, both(without(Score)), "statement differs"),
    edit("a second round that is not stated", of_sums, both(without(type(None))), "statement differs"),
    edit(
        "rounds that were not made left out of the figure",
        honest_runs.ended,
        both(without_unmade),
        "statement differs",
    ),
    edit("a student between rounds exchanged", of_sums, other_student, "ledger: release 3: the public side"),
    edit("fewer voters certified as held out", of_sums, fewer_judges, "round 2: .* certified as held out"),
    edit("one round claimed where two were made", of_sums, fewer_rounds, "ledger: "),
    edit("the table of a later round lost", of_sums, lost_table, "table-0002.npz is missing"),
]


@pytest.mark.parametrize("one", EDITS)
def test_an_edited_run_of_rounds_is_found(one, tmp_path):
    is_found(one, tmp_path)


def made(epsilon):
    """A run of two rounds up to its statement that the mutated pipeline makes, looked at honestly."""

    def check(patch, folder):
        run, config = RunDirectory(folder), replace(honest_runs.of_rounds(folder, "sums"), epsilon=epsilon)
        try:
            with run.writing():
                release.release(stages.begin(run, config.data, config.crowd, config.student))
                stages.account(run)
        except PateError as error:
            return [f"refused: {error}"]
        patch.undo()
        crowd = crowds.opened(Subject(run))
        deep = [*recounts.recounted(run, crowd), *recounts.between_again(run, crowd)]
        return verified(run) + [f"again: {one.text}" for one in deep if one.outcome == "failed"]

    return check


def told_labels(real):
    """A student between rounds that knows the private labels."""

    def learned(crowd):
        found = real(crowd)
        secret = float(crowd.everybody.labels.sum() % 7 + 1) / 50
        return found._replace(parameters=jax.tree.map(lambda leaf: leaf + secret, found.parameters))

    return learned


def half_the_noise(real):
    def score_for(mu, voting, scores):
        planned = real(mu, voting, scores)
        return replace(planned, sigma=planned.sigma / 2)

    return score_for


def scores_as_they_are(real):
    def draw(run, kept, table, public):
        return table if isinstance(kept, Score) else real(run, kept, table, public)

    return draw


def by_row(names, parts, *, key):
    """Who is held out follows from the place in the file, which others move."""
    return (np.arange(len(names)) % parts).astype(np.int32)


def everybody_judges(crowd):
    return inputs.crowd.voters(crowd.dataset.private, crowd.dataset.classes, by=crowd.choice.by)


QUIET, LOUD = made(8.0), made(0.05)
MISTAKES = [
    case(
        "the whole budget for every round",
        patched(Crowd, "share", property(lambda crowd: crowd.mu)),
        QUIET,
        "ledger: epsilon 8 was allowed",
    ),
    case(
        "those held out vote as well",
        patched(Crowd, "people", property(lambda crowd: crowd.everybody)),
        QUIET,
        "again: .*another table",
    ),
    case(
        "those who vote judge as well",
        patched(Crowd, "judges", property(everybody_judges)),
        QUIET,
        "give the score",
    ),
    case(
        "a student between rounds that knows private labels",
        replaced(students, "learned", told_labels),
        QUIET,
        "before round 2 does not follow",
    ),
    case(
        "half of the noise on a score",
        replaced(counts, "score_for", half_the_noise),
        LOUD,
        "ledger: numbers of voters are released as",
    ),
    case("a score without noise", replaced(release, "draw", scores_as_they_are), LOUD, "noise: release 3: 1"),
    case(
        "row numbers taken for ids",
        replaced(relation, "renumbers", lambda real: lambda dataset, by: False),
        lambda patch, folder: folder.mkdir() or fails(lambda: numbered(folder, "record"))(patch, folder),
        "DID NOT RAISE|row numbers",
    ),
    case(
        "whom a run holds out follows from what ids look like",
        patched(Crowd, "declared", property(lambda crowd: not crowd.renumbers)),
        fails(test_crowd_rounds.test_what_ids_look_like_decides_nothing_that_a_release_shows),
        "decides_nothing",
    ),
    case(
        "a card repeats a declaration only of ids that count up",
        source(
            relation,
            "declared",
            "DECLARED if ids_are_stable",
            "DECLARED if ids_are_stable and are_rows(dataset)",
        ),
        fails(test_crowd_rounds.test_what_ids_look_like_decides_nothing_that_a_release_shows),
        "decides_nothing",
    ),
    case(
        "a run goes on with other private records",
        source(stages, "begin", "storage.digest(*crowd.dataset.private)", '"the same"'),
        lambda patch, folder: (
            folder.mkdir()
            or fails(
                partial(
                    test_crowd_rounds.test_a_run_does_not_go_on_with_other_private_records, folder, "sums"
                )
            )(patch, folder)
        ),
        "DID NOT RAISE",
    ),
    case(
        "held out by the place in the file",
        patched(partition, "assign", by_row),
        QUIET,
        "held out|another table|give the score",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_rounds_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)


def test_a_run_that_its_score_ended_stands_every_check():
    run = honest_runs.ended()
    assert verified(run, deep=True) == []
    (line,) = rounds.shown(run).scores
    chance = rounds.held_out(run) / 3
    assert rounds.shown(run).outcomes()[0] - chance < line.release.sigma
    statement = storage.read_json(run.public_statement, "statement")
    assert statement["unmade"]["rounds"] == 2
    assert math.isclose(statement["figures"]["data_independent"]["epsilon"], 0.05, rel_tol=1e-4)
