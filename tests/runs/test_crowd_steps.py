"""Sums in several steps: each step's gradients, their noise and their cost, and runs that are stopped."""

import math
import shutil
import tomllib
from dataclasses import replace
from types import SimpleNamespace

import commands
import honest_runs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pate_jax import accounting, crowd
from pate_jax.accounting.exact import counts
from pate_jax.audit import verify
from pate_jax.crowd import step_choice
from pate_jax.crowd import steps as crowd_steps
from pate_jax.data import load, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.runs import chain, ledger, pipeline, register
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import public_side, release, stages, steps
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import CrowdChoice
from pate_jax.student import Student
from pate_jax.system import storage

BY = pytest.mark.parametrize("by", ["record", "user"])


@BY
def test_a_run_in_steps_stands_every_check(by):
    run = honest_runs.in_steps(by)
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert verify.of_release(run.release).of("failed") == []
    assert [line.event.name for line in ledger.releases(run.ledger)] == ["headcount", *["sums"] * 3]
    weights = [public_side.read(run.public_side_of(step))["slope"] for step in (2, 3)]
    assert not np.array_equal(*weights)


@BY
def test_all_steps_together_cost_what_was_wished_and_equal_parts_of_it(by):
    run = honest_runs.in_steps(by)
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 7.999 < statement.headline.epsilon <= 8.0
    mus = [counts.gaussian_mu(line.event) for line in steps.shown(run).tables]
    assert mus == pytest.approx([mus[0]] * 3, rel=1e-6)
    assert math.hypot(*mus) <= counts.mu_for(8.0, 1e-5)
    assert statement.releases == tuple(line.event for line in ledger.releases(run.ledger))


def test_the_figure_is_that_of_normal_numbers_which_move_by_all_steps():
    """By the two normal laws themselves, for the voter who moves every table as far as one may."""
    run = honest_runs.in_steps()
    lines = [line.event for line in steps.shown(run).tables]
    mu = math.sqrt(sum((2 * one.length / one.sigma) ** 2 for one in lines))
    epsilon = counts.worst([line.event for line in ledger.releases(run.ledger)], 1e-5)
    delta = norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
    assert delta == pytest.approx(1e-5, rel=1e-3)


@given(st.sampled_from(["changed", "joined"]), st.integers(1, 20), st.floats(0.02, 6.0))
def test_any_number_of_steps_costs_no_more_than_one(change, number, epsilon):
    mu = counts.mu_for(epsilon, 1e-5)
    table = ClassSums(3, 4, 100, max(1.0, 2 * 100 / mu * math.sqrt(number) * (1 + 1e-6)))
    released = [counts.headcount_for(mu, "sums"), *[table] * number]
    assert counts.worst(released, 1e-5) <= epsilon
    squared = sum(one.squared_shift(change) / one.sigma**2 for one in released)
    assert squared <= mu**2 * (1 + 1e-9)


def noise_of(run):
    return [line.noise for line in ledger.releases(run.ledger)]


def test_every_step_has_noise_of_its_own():
    run = honest_runs.in_steps()
    assert len(set(noise_of(run))) == 4
    drawn = []
    for step, line in enumerate(steps.shown(run).tables[1:], 2):
        noisy = ledger.unpack_table(line.values, line.event.shape)
        drawn.append((noisy - release.load_table(run, step)).ravel() / line.event.sigma)
    assert abs(np.corrcoef(drawn)[0, 1]) < 6 / math.sqrt(len(drawn[0]))
    assert 0.6 < np.std(drawn) < 1.5


def other_voter(path, out, row, **columns):
    """The private records with another content in one row."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name].copy() for name in file.files}
    for name, value in columns.items():
        arrays[name][row] = value
    np.savez(out, **arrays)
    return out


def opened_with(run, folder, private):
    """The crowd of a run on other private records, whose noisy tables stay what they were."""
    shutil.copytree(run.root, folder)
    found = crowd_inputs.opened(RunDirectory(folder))
    return replace(
        found,
        kept={},
        learned={},
        steps={},
        inputs=replace(found.inputs, choice=replace(found.inputs.choice, private=private)),
    )


@BY
def test_a_changed_voter_moves_every_step_by_no_more_than_its_bound(tmp_path, by):
    run, path = honest_runs.in_steps(by), honest_runs.many().private
    row = 7
    inputs = np.full(4, 9.0, np.float32)
    label = (crowd_inputs.opened(run).everybody.labels[row] + 1) % 3
    changed = other_voter(path, tmp_path / "changed.npz", row, inputs=inputs, labels=label)
    before, after = (opened_with(run, tmp_path / one.stem, one) for one in (path, changed))
    for step in (1, 2, 3):
        tables = [release.counted(one.at(step)) for one in (before, after)]
        np.testing.assert_array_equal(tables[0], release.load_table(run, step))
        moved = int(((tables[0] - tables[1]) ** 2).sum())
        assert moved <= before.at(step).plan.release.squared_shift("changed")
        assert moved > 0 or step > 1  # one that is surely right, before and after, corrects nothing


def test_the_plan_of_all_steps_reads_no_private_record(tmp_path):
    """Other records, as many: the same plan, bit for bit, and the same weights after the same tables."""
    run, path = honest_runs.in_steps("record", 5), honest_runs.many().private
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    order = np.random.default_rng(0).permutation(len(arrays["ids"]))
    other = {"labels": arrays["labels"][order], "inputs": -arrays["inputs"]}
    np.savez(tmp_path / "other.npz", **{**arrays, **other})
    honest, swapped = (opened_with(run, tmp_path / one.stem, one) for one in (path, tmp_path / "other.npz"))
    for number in (None, 3):
        made = [
            replace(one, choice=replace(one.choice, steps=number), kept={}, learned={}, steps={})
            for one in (honest, swapped)
        ]
        first, second = (one.arrays(one.planned()) for one in made)
        assert public_side.digest(first) == public_side.digest(second)
    for step in (2, 3):
        found = [public_side.digest(release.public(one.at(step))) for one in (honest, swapped)]
        assert found[0] == found[1] == public_side.digest(public_side.read(run.public_side_of(step)))


@pytest.mark.parametrize("kill", [*range(11, 27, 2)])
def test_a_run_that_is_stopped_between_its_steps_goes_on_with_the_same_noise(tmp_path, monkeypatch, kill):
    honest = honest_runs.in_steps("record", 5)
    wanted, run = honest_runs.of_steps(tmp_path, seed=5), RunDirectory(tmp_path)

    def released():
        with run.writing():
            release.release(stages.begin(run, wanted.data, wanted.crowd, wanted.student))
            stages.account(run, 1e-5)

    with monkeypatch.context() as patch:
        written = honest_runs.stop_at_write(patch, kill)
        try:
            released()
        except KeyboardInterrupt:
            with pytest.raises(PateError):
                stages.account(run, 1e-5)  # nothing is stated of steps that are not finished
    assert written[0] >= kill
    released()
    assert noise_of(run) == noise_of(honest)
    for mine, theirs in zip(ledger.releases(run.ledger), ledger.releases(honest.ledger), strict=True):
        assert mine.values == theirs.values


def test_a_run_of_one_table_says_nothing_of_steps():
    run = honest_runs.crowd("sums")
    assert not [name for name in public_side.read(run.public_side) if name.startswith(public_side.STEPS)]
    assert "steps" not in storage.read_json(run.results, "results")
    assert len(list(ledger.releases(run.ledger))) == 2


def test_other_steps_than_those_of_the_run_are_refused(tmp_path):
    shutil.copytree(honest_runs.in_steps().root, tmp_path / "run")
    with pytest.raises(PateError, match="steps=3, not 2"):
        pipeline.run(honest_runs.of_steps(tmp_path / "run", steps=2))


def test_the_released_student_is_that_of_the_last_weights():
    run = honest_runs.in_steps()
    crowd_ = crowd_inputs.opened(run).at(3)
    seen = crowd.vectors(crowd_.plan.scaling, crowd_.pool)
    weights = stages.answers.after(crowd_)
    wanted = crowd_steps.probabilities(weights, seen)
    found = Student.load(run.student)(crowd_.dataset.public.inputs)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_a_run_names_the_steps_it_chose_in_its_register_its_release_and_its_settings(tmp_path, monkeypatch):
    """Of so few records the rule takes one table, so it is given more room."""
    for bound in ("_ADDED", "_DRAWN"):
        monkeypatch.setattr(step_choice, bound, 1.5)
    file = tmp_path / "register.jsonl"
    register.begin(file)
    wanted = replace(honest_runs.of_steps(tmp_path / "run"), register=file, steps=None)
    pipeline.run(wanted)
    run = RunDirectory(tmp_path / "run")
    assert "register: the register shows" in " ".join(verify.of_run(run).of("passed"))
    told, number = storage.read_json(run.results, "results"), steps.planned(run)
    assert told["steps"] == number > 3 and told["method"] == "linear"
    assert f"Their sums were released in {number} steps" in run.public_report.read_text()
    assert run.statement.read_text() == run.public_statement.read_text()
    assert commands.call("budget", run.root) == 0
    plan = crowd_inputs.opened(run).plan.steps
    assert run.record.stages()["steps"] == {"number": number, "strength": plan.strength}
    assert tomllib.loads(run.config.read_text())["steps"] == number
    before = run.ledger.read_bytes()
    for named in (None, number):  # by the first command, and by the file that it left
        assert pipeline.run(replace(wanted, steps=named))["steps"] == number
    assert run.ledger.read_bytes() == before
    with pytest.raises(PateError, match=f"steps=None, not {number + 1}"):
        pipeline.run(replace(wanted, steps=number + 1))


def test_lines_that_do_not_follow_each_other_are_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with chain.Writer(run.ledger) as book:
        for line in list(ledger.releases(honest_runs.in_steps().ledger))[:2][::-1]:
            ledger.append(book, line)
    with pytest.raises(PateError, match="does not come there"):
        steps.shown(run)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_one_user_moves_a_score_by_one_at_most(records):
    """A user with whom half of its records agree counts once; whatever it holds instead moves it by one."""
    users, right, other = (np.array(column) for column in zip(*records, strict=True))
    people = crowd.Voters(right[:, None].astype(float), np.ones(len(users), np.int32), users)
    rule = lambda inputs: inputs[:, 0].astype(int)  # noqa: E731
    before = crowd.agreeing(people, rule)
    by_hand = [2 * right[users == user].sum() >= (users == user).sum() for user in set(users.tolist())]
    assert before == sum(by_hand)
    mine = users == users[0]
    changed = people._replace(inputs=np.where(mine, other, right)[:, None].astype(float))
    assert abs(crowd.agreeing(changed, rule) - before) <= 1
    assert before - 1 <= crowd.agreeing(people.take(~mine), rule) <= before


def test_what_ids_look_like_decides_nothing_that_a_release_shows():
    """Whether ids count up changes with one record, so only a declaration lets anybody be held out."""
    shown = {}
    for left in (60, 17):
        names = np.array([f"{row}" for row in range(60) if row != left])
        drawn = load("strokes", size=len(names), public_size=2, test_size=2)
        private = drawn.private._replace(ids=names)
        given = replace(drawn, private=private, ids_are="given", description="")
        assert relation.are_rows(given) == (left == 60)
        for stable in (True, False):
            data = relation.declared(given, stable)
            made = crowd_inputs.Crowd(SimpleNamespace(dataset=data), CrowdChoice("sums"))
            shown[left, stable] = made.declared, relation.without_warning(data.description)
    assert shown[60, True] == shown[17, True] == (True, relation.DECLARED)
    assert shown[60, False] == shown[17, False] == (False, "")


def test_a_run_does_not_go_on_with_other_private_records(tmp_path):
    """Whose gradients were added already would add them again."""
    shutil.copytree(honest_runs.many().private.parent, tmp_path / "data")
    names = ("private", "public", "test")
    data = replace(honest_runs.many(), **{name: tmp_path / "data" / f"{name}.npz" for name in names})
    run, choice = RunDirectory(tmp_path / "run"), CrowdChoice("sums", steps=3)
    with run.writing():
        stages.begin(run, data, choice)
        with np.load(data.private, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        np.savez(data.private, **{**arrays, "ids": arrays["ids"][::-1]})
        with pytest.raises(PateError, match=r"private records were changed since .* was begun: restore them"):
            stages.begin(run, data, choice)
        np.savez(data.private, **arrays)
        stages.begin(run, data, choice)
