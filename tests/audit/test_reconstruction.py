"""A student follows from released things alone, and one that keeps private records is found."""

import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest

from pate_jax import data
from pate_jax.audit.attacks import attributes, every, reconstruction
from pate_jax.audit.attacks.roc import Promise
from pate_jax.data import Part, Preprocessing
from pate_jax.data.columns import Column
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Student

ALLOWED = 2 * Promise(1.0, 1e-5).right() - 1


@pytest.fixture(scope="module")
def found():
    return reconstruction.ATTACK.attacked(honest_runs.crowd("sums"), every.Flags())


def test_the_student_of_a_crowd_is_made_again_from_what_it_released(found):
    assert found.student.outcome == "passed" and "bit for bit" in found.student.text
    assert found.same_bytes and found.held is None and found.holds
    assert {*found.files} == {
        path.relative_to(honest_runs.crowd("sums").release).as_posix()
        for path in honest_runs.crowd("sums").release.rglob("*")
        if path.is_file()
    }
    assert reconstruction._UNKNOWN not in found.files.values()
    assert found.inferred.guesses == (80, 20) and "the test part" in found.text()
    assert not found._replace(files={"x": reconstruction._UNKNOWN}).holds


def test_a_student_that_knows_something_else_is_found(tmp_path):
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run"))
    kept = Student.load(run.student)
    flat = trees.flat(kept.parameters)
    name = max(flat, key=lambda one: flat[one].size)
    changed = {**flat, name: np.asarray(flat[name]) + 0.01 * np.std(flat[name]) + 0.01}
    kept._replace(parameters=trees.nested(changed)).save(run.student)
    found = reconstruction.ATTACK.attacked(run, every.Flags())
    assert not found.holds and not found.same_bytes
    assert "does not follow" in found.text()


def test_nothing_private_is_within_reach(tmp_path):
    (tmp_path / "private.npz").write_bytes(b"")
    with reconstruction.sealed([tmp_path]):
        with pytest.raises(PateError, match=r"private\.npz was opened, which is not public"):
            (tmp_path / "private.npz").open().close()
        with pytest.raises(PateError, match="not public"):
            (tmp_path / ".." / tmp_path.name / "private.npz").read_bytes()
    assert (tmp_path / "private.npz").read_bytes() == b""
    there = reconstruction.Released(tmp_path, b"key")
    assert there.secret.derive("student") == b"key"
    with pytest.raises(PateError, match="'noise', which is not public"):
        there.secret.derive("noise")
    erased = reconstruction.without_private(data.load("strokes", size=20, public_size=8, test_size=5))
    assert len(erased.private.inputs) == len(erased.private.ids) == len(erased.private.labels) == 0
    assert erased.test is None and len(erased.public.inputs) > 0


def source(count, seed):
    """Records of three classes, a third of whose features follow from the class and from themselves."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    inputs = np.eye(3, 9)[labels] + random.normal(size=(count, 9))
    return Part(inputs.astype(np.float32), labels, np.array([f"{seed}-{row}" for row in range(count)]))


def test_an_attribute_is_guessed_of_members_as_of_others_and_a_student_that_remembers_is_found():
    members, others, public = source(400, 1), source(400, 2), source(300, 3)
    hidden = attributes.Hidden("the first third", np.arange(9) < 3)

    def rule(inputs):
        scores = np.exp(2 * inputs[:, :3].astype(float))
        return scores / scores.sum(1, keepdims=True)

    honest = attributes.inferred(rule, members, others, public.inputs, hidden, ALLOWED)
    assert honest.holds and honest.low < 0 < honest.high
    assert min(honest.members, honest.others) > 0.15  # of the population: guessing would give one in eight
    twin = attributes.remembering(members.inputs, members.labels, 3)
    broken = attributes.inferred(twin, members, others, public.inputs, hidden, ALLOWED)
    assert not broken.holds and broken.members > 0.95 and broken.others < 0.5
    assert "TELLS MORE" in broken.sentence()


def test_ties_are_broken_at_random_and_equal_values_count_as_right():
    part = source(600, 4)
    hidden = attributes.Hidden("the first third", np.arange(9) < 3)
    blind = lambda inputs: np.full((len(inputs), 3), 1 / 3)  # noqa: E731
    found = attributes.inferred(blind, part, part, source(300, 3).inputs, hidden, ALLOWED)
    assert abs(found.members - 1 / attributes.CANDIDATES) < 0.06
    same = np.zeros_like(part.inputs)
    all_equal = attributes.inferred(
        blind, part._replace(inputs=same), part, same[:5], attributes.Hidden("all", np.full(9, True)), ALLOWED
    )
    assert all_equal.members == 1.0


def test_the_hidden_part_is_a_column_or_the_middle():
    columns = tuple(replace_width(width) for width in (1, 4, 2))
    hidden = attributes.hidden_part((7,), columns)
    assert hidden.where.tolist() == [False, True, True, True, True, False, False]
    assert attributes.hidden_part((8, 8, 3)).where.sum() == 16 * 3


def replace_width(width):
    return Column(f"column {width}", tuple(map(str, range(width))))


def test_inputs_that_a_student_holds_are_told_by_whose_they_are():
    made = data.load("strokes", size=20, public_size=8, test_size=5)
    made = replace(made, preprocessing=Preprocessing((1.0,), (2.0,)))
    held = made.preprocessing.apply(np.concatenate([made.public.inputs[:3], made.private.inputs[:2]]))
    for place in reconstruction._HELD:
        student = Student(trees.nested({place: held}), {}, made.preprocessing, ())
        assert reconstruction.held(student, made, made.public.inputs) == (5, 3, 2)
    assert reconstruction.held(Student({}, {}, made.preprocessing, ()), made, made.public.inputs) is None


@pytest.mark.long
def test_the_student_of_teachers_is_made_again():
    found = reconstruction.ATTACK.attacked(honest_runs.whole(), every.Flags())
    assert found.student.outcome == "passed" and found.same_bytes and found.holds
