"""Mistakes and forgeries in runs whose sums take several steps: each is caught."""

from dataclasses import replace
from functools import partial

import honest_runs
import numpy as np
import pytest
import test_crowd_steps
import test_steps
from catalogue import case, edit, fails, is_caught, is_found, replaced, source, verified
from test_edited_runs import both
from test_mistakes_of_crowds import patched

from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.audit import retraining
from pate_jax.audit.subject import Subject
from pate_jax.crowd import steps as of_steps
from pate_jax.data import relation
from pate_jax.errors import PateError
from pate_jax.runs import secret
from pate_jax.runs.crowds import answers, public_side, release, stages
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory


def one_less(run, statement):
    """A statement that leaves out the last table."""
    kept = statement.releases[:-1]
    return replace(statement, releases=kept, figures={"data_independent": figure_of(kept, statement.delta)})


def other_weights(run):
    """Weights of a step that follow from no released table."""
    path = run.public_side_of(3)
    made = public_side.read(path)
    public_side.write(path, {**made, "slope": made["slope"] + 1})


def lost_table(run):
    run.table_of(2).unlink()


def fewer_steps(run):
    """A public side that plans fewer steps than were made."""
    made = public_side.read(run.public_side)
    public_side.write(run.public_side, {**made, f"{public_side.STEPS}number": np.array(2)})


EDITS = [
    edit("a step that is not stated", honest_runs.in_steps, both(one_less), "statement differs"),
    edit("other weights", honest_runs.in_steps, other_weights, "step 3: the weights are not those"),
    edit("the table of a later step lost", honest_runs.in_steps, lost_table, "table-0002.npz is missing"),
    edit("a step too many", honest_runs.in_steps, fewer_steps, "ledger: "),
]


@pytest.mark.parametrize("one", EDITS)
def test_an_edited_run_of_steps_is_found(one, tmp_path):
    is_found(one, tmp_path)


def made(patch, folder):
    """A run in three steps up to its statement that the mutated pipeline makes, looked at honestly."""
    run, config = RunDirectory(folder), honest_runs.of_steps(folder)
    try:
        with run.writing():
            release.release(stages.begin(run, config.data, config.crowd, config.student))
            stages.account(run)
    except PateError as error:
        return [f"refused: {error}"]
    patch.undo()
    deep = retraining.recounted(Subject(run))
    return verified(run) + [f"again: {one.text}" for one in deep if one.outcome == "failed"]


def one_stream(real):
    """The noise of every step is that of the first."""
    return lambda number, event, exact, public="": real(1, event, "table", "public")


def secret_weights(real):
    """Weights that know how many private labels are of the first class."""
    return lambda crowd: real(crowd) + int((crowd.everybody.labels == 0).sum())


def a_step_more(real):
    return lambda *given, **more: real(*given, **{**more, "number": more["number"] + 1})


def by_the_mean(real):
    """Residuals are shortened by how long those of all records are in the mean."""

    def clipped(found, vectors, length):
        size = np.sqrt((found.astype(float) ** 2).sum(1) * (vectors.astype(float) ** 2).sum(1)).mean()
        factor = min(1.0, length / max(size * of_steps.ONE / 4096, 1e-9))
        return np.rint(found * of_steps.ONE / 4096 * factor).astype(np.int64)

    return clipped


LENGTHS = fails(test_steps.test_a_changed_voter_moves_the_sum_by_twice_the_bound_at_most)
MISTAKES = [
    case("noise of one step reused in the next", replaced(secret, "stream", one_stream), made, "noise"),
    case("weights that know private labels", replaced(answers, "after", secret_weights), made, "weights"),
    case("a step too many", replaced(of_steps, "made", a_step_more), made, "ledger: epsilon 8 was allowed"),
    case(
        "a clip that looks at the mean", replaced(of_steps, "clipped", by_the_mean), LENGTHS, "AssertionError"
    ),
    case(
        "those held out vote as well",
        patched(Crowd, "people", property(lambda crowd: crowd.everybody.take(np.arange(9)))),
        made,
        "another table",
    ),
    case(
        "whom a run holds out follows from what ids look like",
        patched(Crowd, "declared", property(lambda crowd: not crowd.renumbers)),
        fails(test_crowd_steps.test_what_ids_look_like_decides_nothing_that_a_release_shows),
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
        fails(test_crowd_steps.test_what_ids_look_like_decides_nothing_that_a_release_shows),
        "decides_nothing",
    ),
    case(
        "a run goes on with other private records",
        source(stages, "same_records", "storage.digest(*dataset.private)", '"the same"'),
        lambda patch, folder: (
            folder.mkdir()
            or fails(partial(test_crowd_steps.test_a_run_does_not_go_on_with_other_private_records, folder))(
                patch, folder
            )
        ),
        "DID NOT RAISE",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_steps_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
