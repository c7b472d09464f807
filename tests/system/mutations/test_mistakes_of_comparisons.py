"""Mistakes and forgeries in runs whose held-out voters compare students: each is caught."""

from dataclasses import replace
from functools import partial

import honest_runs
import jax
import numpy as np
import pytest
from catalogue import case, edit, is_caught, is_found, replaced, verified
from test_edited_runs import both, settings
from test_mistakes_of_crowds import crowd_lines, patched

from pate_jax.accounting.crowd_statement import figure_of
from pate_jax.accounting.exact import counts
from pate_jax.audit import retraining
from pate_jax.audit.subject import Subject
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Comparison
from pate_jax.runs import driver, ledger
from pate_jax.runs.crowds import inputs, release, stages, students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Linear
from pate_jax.system import storage


def without(kind):
    """A statement that leaves out releases of a kind."""

    def change(run, statement):
        kept = tuple(one for one in statement.releases if not isinstance(one, kind))
        return replace(
            statement, releases=kept, figures={"data_independent": figure_of(kept, statement.delta)}
        )

    return change


def other_student(run, folder):
    """A student that somebody exchanged, as one that has seen private records would be."""
    path = folder / "parameters.npz"
    arrays = {name: array + 0.01 for name, array in storage.read_arrays(path, "student-parameters").items()}
    storage.write_arrays(path, "student-parameters", arrays)


def everybody_judges(crowd):
    return inputs.crowd.voters(crowd.dataset.private, crowd.dataset.classes, by=crowd.choice.by)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(students, "rivals", honest_runs.rivals)


def exact_cells(run):
    """The exact comparison for the noisy one in the ledger."""
    changed = {"values": ledger.pack_table(students.load_comparison(run))}
    crowd_lines(run, lambda bodies: [*bodies[:2], {**bodies[2], **changed}])


def other_cells(run):
    storage.write_arrays(run.comparison, students._COMPARISON, {"table": students.load_comparison(run) + 1})


def other_rival(run):
    """A student that somebody exchanged after the comparison."""
    other_student(run, run.compared("ridge"))


def fewer_judges(run):
    before = storage.read_json(run.certificate, "certificate")
    storage.write_json(run.certificate, "certificate", {**before, "held_out": before["held_out"] - 1})


def other_taken(run):
    results = storage.read_json(run.results, "results")
    other = next(method for method in results["compared"]["leads"] if method != results["method"])
    storage.write_json(run.results, "results", {**results, "method": other})


def one_rival(run):
    """Settings by which the classifier was compared with one student, so that a number is left out."""
    planned = run.record.stages()["compared"]
    settings(run, compared={"ridge": planned["ridge"]})


of_records, seeded = honest_runs.compared, partial(honest_runs.compared, "record", 5)
EDITS = [
    edit("an exact comparison in the ledger", seeded, exact_cells, "noise: release 3: [123] numbers"),
    edit("another comparison than the released one", of_records, other_cells, "release 3: .* not the one"),
    edit("a comparison that is not stated", of_records, both(without(Comparison)), "statement differs"),
    edit("a compared student exchanged", of_records, other_rival, "ledger: release 3: the public side"),
    edit("fewer voters certified as held out", of_records, fewer_judges, "certified as held out"),
    edit("another student than the best", of_records, other_taken, "the comparison favours"),
    edit("fewer students claimed than were compared", of_records, one_rival, "students are compared by"),
]


@pytest.mark.parametrize("one", EDITS)
def test_an_edited_run_of_a_comparison_is_found(one, tmp_path):
    is_found(one, tmp_path)


def made(patch, folder):
    """A run up to its statement that the mutated pipeline makes, looked at honestly."""
    run, config = RunDirectory(folder), honest_runs.comparing(folder, seed=5)
    try:
        with run.writing():
            release.release(stages.begin(run, config.data, config.crowd, config.student))
            release.release(
                stages.begin(run, config.data, config.crowd, Linear())
            )  # repeated by another method
            stages.account(run)
    except PateError as error:
        return [f"refused: {error}"]
    patch.undo()
    subject = Subject(run)
    deep = [*retraining.recounted(subject), *retraining.between_again(subject)]
    return verified(run) + [f"again: {one.text}" for one in deep if one.outcome == "failed"]


def cells_as_they_are(real):
    def draw(run, line, table):
        return table if isinstance(line.event, Comparison) else real(run, line, table)

    return draw


def half_the_noise(real):
    def comparison_for(mu, students):
        planned = real(mu, students)
        return replace(planned, sigma=planned.sigma / 2)

    return comparison_for


def of_one_student(release, change):
    """As if a voter could agree with one student only, and a change could only move that."""
    return release.students * (release.students - 1) * (2 if change == "changed" else 1)


def told_labels(real):
    """A compared student that knows the private labels."""

    def learned(crowd, method):
        found = real(crowd, method)
        secret = float(crowd.everybody.labels.sum() % 7 + 1) / 50
        return found._replace(parameters=jax.tree.map(lambda leaf: leaf + secret, found.parameters))

    return learned


def looks_again(real):
    """A repeated command releases another comparison."""
    looked = set()

    def ask(counting, released):
        again = len(released) == 3 and released[-1].noise not in looked
        looked.update(line.noise for line in released[2:3])
        return real(counting, released[:2])._replace(number=3) if again else real(counting, released)

    return ask


def nobody_named(run):
    """The noise of one comparison serves that of any other students too."""
    return "students"


MISTAKES = [
    case(
        "a comparison without noise", replaced(driver, "noisy", cells_as_they_are), made, "noise: release 3"
    ),
    case("half of its noise", replaced(counts, "comparison_for", half_the_noise), made, "compared by"),
    case(
        "a comparison that is charged too little",
        patched(Comparison, "squared_shift", of_one_student),
        made,
        "students are compared by",
    ),
    case(
        "a comparison that is free",
        patched(Comparison, "squared_shift", lambda release, change: 0),
        made,
        "students are compared by",
    ),
    case(
        "held-out voters vote as well",
        patched(Crowd, "people", property(lambda crowd: crowd.everybody)),
        made,
        "again: .*another table",
    ),
    case(
        "those who vote judge as well",
        patched(Crowd, "judges", property(everybody_judges)),
        made,
        "give the comparison",
    ),
    case(
        "a compared student that knows private labels",
        replaced(students, "by_method", told_labels),
        made,
        "the compared student .* does not follow",
    ),
    case("a second look", replaced(release.Counting, "ask", looks_again), made, "does not come there"),
    case(
        "one noise for any students",
        patched(students, "digest_of_all", nobody_named),
        made,
        "release 3: the public side",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_comparisons_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)


def test_the_bound_of_one_student_is_too_small():
    """What the mutation above claims is exceeded by a voter who agrees with two students, then the third."""
    cells = np.array([[1, 1, -2], [-1, -1, 2]])
    moved = int(((cells[0] - cells[1]) ** 2).sum())
    claimed = of_one_student(Comparison(3, 2.0), "changed")
    assert claimed < moved == Comparison(3, 2.0).squared_shift("changed")
