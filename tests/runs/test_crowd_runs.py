"""Runs whose records or users vote by themselves: one voter moves what it may, and nothing is drawn twice."""

import json
import shutil
from dataclasses import replace

import commands
import honest_runs
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting.exact import counts
from pate_jax.accounting.filter import Cost
from pate_jax.audit import verify
from pate_jax.crowd.plan import plan
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.models import spaces
from pate_jax.runs import chain, driver, ledger, stages
from pate_jax.runs.crowds import public_side, release
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice, RunConfig
from pate_jax.student import spaces as contrast
from pate_jax.system import storage

KINDS = [("neighbours", "record"), ("neighbours", "user"), ("sums", "record"), ("sums", "user")]


def config(voters, by, out, **changes):
    """A whole run of a crowd; the student is small."""
    common = {"epsilon": 4.0, "student": honest_runs.STUDENT, "out": out, "data": honest_runs.table()}
    common |= {"voters": voters, **honest_runs.NEAR[voters]}
    return RunConfig(partition=PartitionChoice(by=by), **{**common, **changes})


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_a_whole_run_stands_every_check(voters, by):
    run = honest_runs.crowd(voters, by)
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert check.audit(run.release) == []
    assert verify.of_release(run.release).of("failed") == []


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_the_published_figure_is_the_exact_one_of_the_release_and_within_what_was_wished(voters, by):
    run = honest_runs.crowd(voters, by)
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    _, line = ledger.releases(run.ledger)
    exact = counts.epsilon([line.event], 1e-5)  # the number of voters comes free, but for rounding
    assert 3.999 < exact <= statement.headline.epsilon <= 4.0
    assert statement.relation == by and statement.figures.keys() == {"data_independent"}
    assert json.loads(run.public_statement.read_text()) == json.loads(run.statement.read_text())
    assert storage.read_json(run.statement, "statement") == statement.publishable()


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.7, 1.0, 4.0, 9.0, 30.0])
@pytest.mark.parametrize("voters", ["neighbours", "sums"])
def test_a_table_and_the_number_of_voters_cost_what_was_wished_for_either_change(voters, epsilon):
    pool = np.random.default_rng(0).normal(size=(60, 3))
    space = spaces.learn("identity", pool)
    mu = counts.mu_for(epsilon, 1e-5)
    made = plan(voters, space, space.coordinates(pool), voters=900, classes=3, mu=mu)
    number = counts.headcount_for(mu, voters)
    assert counts.worst([number, made.release], 1e-5) <= epsilon
    moved = made.release.squared_shift("joined") / made.release.sigma**2 + 1 / number.sigma**2
    assert moved <= mu**2 * (1 - 1e-6)  # somebody who is added or removed, by hand


def without(path, out, rows, **columns):
    """A copy of a file of records, without some rows, or with other columns."""
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: np.delete(file[name], rows, axis=0) for name in file.files}
    np.savez(out, **{**arrays, **columns})
    return out


NUMBER = ledger.Line(1, HeadCount(2.0), "", "", "", None, 2.0, Cost(0.1, 0.0), values="77")


def counted(folder, private, voters, by):
    """The run's own path to the exact table: data opened, public side planned, voters counted."""
    run = RunDirectory(folder)
    with run.writing():
        choice = CrowdChoice(voters, by, seed=3, epsilon=4.0, **honest_runs.NEAR[voters])
        crowd = crowd_stages.begin(run, replace(honest_runs.table(), private=private), choice)
        with chain.Writer(run.ledger) as book:  # a noisy number of voters, the same for both neighbours
            ledger.append(book, NUMBER)
        table = release.count(crowd)
    return crowd, table, public_side.digest(public_side.read(run.public_side))


@pytest.mark.parametrize(("voters", "by"), KINDS)
def test_one_voter_moves_what_theory_says_and_nothing_else(tmp_path, voters, by):
    path = honest_runs.table().private
    with np.load(path, allow_pickle=False) as file:
        inputs_, labels, users = (file[name] for name in ("inputs", "labels", "users"))
    mine = np.flatnonzero(users == users[6]) if by == "user" else np.array([6])
    other_inputs, other_labels = inputs_.copy(), labels.copy()
    other_inputs[mine], other_labels[mine] = -3 * inputs_[mine], (labels[mine] + 1) % 3
    changed = without(path, tmp_path / "changed.npz", [], inputs=other_inputs, labels=other_labels)
    joined = without(path, tmp_path / "joined.npz", mine)
    crowd, before, public = counted(tmp_path / "before", path, voters, by)
    for name, private in (("changed", changed), ("joined", joined)):
        other, after, public_after = counted(tmp_path / name, private, voters, by)
        assert public_after == public and other.plan.release == crowd.plan.release
        moved = int(((after - before) ** 2).sum())
        assert 0 < moved <= crowd.plan.release.squared_shift(name)
        rest = np.setdiff1d(np.arange(len(users)), mine)
        people = crowd.people._replace(inputs=inputs_[rest], labels=crowd.people.labels[rest])
        people = people._replace(users=None if people.users is None else people.users[rest])
        if name == "joined":  # what is left was there before, bit for bit
            np.testing.assert_array_equal(after, release.counted(crowd, people))


@pytest.mark.parametrize("voters", ["neighbours", "sums"])
def test_a_run_that_is_repeated_after_any_loss_ends_with_the_same_release(tmp_path, voters):
    shutil.copytree(honest_runs.crowd(voters).root, tmp_path / "run")
    run, wanted = RunDirectory(tmp_path / "run"), config(voters, "record", tmp_path / "run")
    book, noisy, student = (
        path.read_bytes() for path in (run.ledger, run.answers, run.student / "parameters.npz")
    )
    losses = [
        [run.results],
        [run.answers, run.statement],
        [run.table, run.certificate],
        [run.public_statement],
    ]
    for lost in losses:
        for path in lost:
            path.unlink()
        crowd_stages.run(wanted)
        assert (run.ledger.read_bytes(), run.answers.read_bytes()) == (book, noisy)
        assert (run.student / "parameters.npz").read_bytes() == student
    assert (
        verify.of_run(run)
        .of("failed")[0]
        .endswith("table.npz is missing, and what was made after it is there")
    )


@pytest.mark.parametrize("kill", range(1, 19))
def test_a_run_that_is_stopped_at_any_write_goes_on_and_releases_once(tmp_path, monkeypatch, kill):
    honest = honest_runs.crowd("neighbours", "record", 5)
    recorded = [(line.values, line.noise) for line in ledger.releases(honest.ledger)]
    wanted = replace(config("neighbours", "record", tmp_path), partition=PartitionChoice(seed=5))
    run = RunDirectory(tmp_path)
    with monkeypatch.context() as patch, run.writing():
        honest_runs.stop_at_write(patch, kill)
        with pytest.raises(KeyboardInterrupt):
            crowd = crowd_stages.begin(run, wanted.data, wanted.crowd)
            release.release(crowd)
            crowd_stages.account(run, 1e-5)
            raise KeyboardInterrupt
    with run.writing():
        release.release(crowd_stages.begin(run, wanted.data, wanted.crowd))
        crowd_stages.account(run, 1e-5)
    again = [(line.values, line.noise) for line in ledger.releases(run.ledger)]
    assert again == recorded  # a seeded run: the same numbers


def test_noise_is_another_for_another_table_release_number_or_public_side():
    run = honest_runs.crowd("sums")
    _, line = ledger.releases(run.ledger)
    louder = line._replace(event=replace(line.event, sigma=2 * line.event.sigma))
    table = release.load_table(run)
    noise = driver.noisy(run, line, table) - table
    others = [
        driver.noisy(run, louder, table) / 2 - table / 2,
        driver.noisy(run, line._replace(batch=3), table) - table,
        driver.noisy(run, line._replace(public="another"), table) - table,
        driver.noisy(run, line, table + 1) - table - 1,
        driver.noisy(honest_runs.crowd("sums", "user"), line, table) - table,
    ]
    flat = [(each - each.mean()).ravel() / each.std() for each in (noise, *others)]
    correlation = np.abs(np.corrcoef(flat) - np.eye(len(flat)))
    assert correlation.max() < 6 / np.sqrt(noise.size)
    np.testing.assert_array_equal(noise, driver.noisy(run, line, table) - table)


REFUSED = [
    ({"voters": "sums", "partition": PartitionChoice(teachers=7)}, "--teachers belongs to teachers"),
    ({"voters": "sums", "budget_epsilon": 2.0}, "--budget-epsilon belongs to teachers"),
    ({"voters": "neighbours", "mechanism": GNMax(4.0)}, "a mechanism belongs to teachers"),
    ({"voters": "neighbours", "selection": "random"}, "--selection belongs to teachers"),
    ({"voters": "neighbours", "teacher": TeacherConfig(epochs=3)}, "--epochs belongs to teachers"),
    ({"voters": "sums", "queries": 9}, "--queries 9 does not go with --voters sums"),
    ({"voters": "neighbours", "queries": 0}, "queries=0"),
    ({"voters": "sums", "epsilon": 0.0}, "epsilon=0.0"),
    ({"voters": "sums", "epsilon": float("inf")}, "epsilon=inf"),
    ({"epsilon": 1.0, "budget_epsilon": 2.0}, "--epsilon 1 and --budget-epsilon 2 are one thing to teachers"),
    (
        {"voters": "teachers", "data": DataChoice(encoder="numpy:ravel")},
        "--encoder numpy:ravel makes the space of a crowd",
    ),
    ({"voters": "teachers", "space": "columns"}, "--space columns makes the space of a crowd"),
    ({"voters": "auto", "steps": 2}, "--steps 2 goes with voters that you choose"),
    ({"voters": "teachers", "steps": 2}, "--steps 2 is for sums"),
    ({"voters": "neighbours", "steps": 2}, "--steps 2 is for --voters sums"),
    ({"voters": "sums", "steps": 21}, "steps=21 must be a whole number from 1 to 20"),
    (
        {"voters": "sums", "data": DataChoice(encoder="numpy:ravel"), "space": "columns"},
        "--space columns is another",
    ),
    ({"voters": "sums", "space": "pixels"}, "space='pixels' must be one of"),
]


@pytest.mark.parametrize(("flags", "sentence"), REFUSED)
def test_flags_of_the_other_kind_of_voters_are_refused(flags, sentence):
    with pytest.raises(PateError, match=sentence):
        RunConfig(**flags)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-4])
def test_less_than_any_noise_can_keep_is_refused_before_anything_is_recorded(tmp_path, epsilon):
    with pytest.raises(PateError, match=rf"epsilon={epsilon:g} at delta=1e-05 needs more noise"):
        crowd_stages.run(config("sums", "record", tmp_path / "run", epsilon=epsilon))
    assert not (tmp_path / "run" / "private" / "settings.json").exists()


@pytest.mark.long
def test_a_directory_holds_one_kind_of_run(tmp_path):
    for honest in (honest_runs.whole(), honest_runs.elsewhere()):
        shutil.copytree(honest.root, tmp_path / honest.root.name)
        with pytest.raises(PateError, match="choose another --out"):
            crowd_stages.run(config("sums", "record", tmp_path / honest.root.name))
    shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "crowd")
    run = RunDirectory(tmp_path / "crowd")
    with pytest.raises(PateError, match="choose another --out"):
        stages.begin(run, honest_runs.table(), PartitionChoice(teachers=6), TeacherConfig())
    with pytest.raises(PateError, match=r"epsilon=4\.0, not 2\.0"):
        crowd_stages.run(config("sums", "record", run.root, epsilon=2.0))
    with pytest.raises(PateError, match="seed=None, not 3"):
        crowd_stages.run(replace(config("sums", "record", run.root), partition=PartitionChoice(seed=3)))


def test_mistyped_data_leave_no_trace_so_that_the_command_can_be_given_again(tmp_path):
    path = honest_runs.table().private
    with np.load(path, allow_pickle=False) as file:
        wrong = without(
            path, tmp_path / "wrong.npz", [], labels=np.where(file["labels"] == 2, 5, file["labels"])
        )
    choice = replace(honest_runs.table(), private=wrong)
    with pytest.raises(PateError, match="label 5"):
        crowd_stages.run(config("sums", "record", tmp_path / "run", data=choice))
    crowd_stages.run(config("sums", "record", tmp_path / "run"))


def test_a_seeded_run_promises_nothing():
    run = honest_runs.crowd("neighbours", "record", 5)
    statement = storage.read_json(run.public_statement, "statement")
    assert statement["private"] is False and statement["model_card_line"].startswith("NOT PRIVATE")
    assert check.audit(run.release) == [] and verify.of_run(run).of("failed") == []


def test_a_budget_shows_what_the_release_cost():
    run = honest_runs.crowd("neighbours")
    found, (_, line) = crowd_stages.summary(run), ledger.releases(run.ledger)
    assert found["spent"]["epsilon"] <= 4.0
    assert found["releases"][1]["event"]["votes"] == line.event.votes


@pytest.mark.long
def test_commands_of_teachers_are_refused_for_a_crowd(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run")
    for arguments in (["vote"], ["aggregate"], ["account", "--sanitise"], ["sweep"]):
        assert commands.call(arguments[0], tmp_path / "run", *arguments[1:]) == 2
        assert "crowd" in capsys.readouterr().err


def test_commands_after_the_release_work_on_a_crowd(tmp_path, capsys):
    shutil.copytree(honest_runs.crowd("neighbours").root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    for name in ("account", "budget", "report", "student", "verify"):
        more = {"student": ["--method", "supervised", "--net", "table", "--steps", 8, "--batch-size", 8]}
        assert commands.call(name, run.root, "--json", *more.get(name, [])) == 0, capsys.readouterr().err
        assert json.loads(capsys.readouterr().out)
    assert commands.call("account", run.root, "--delta", "1e-6") == 2
    assert "1e-06" in capsys.readouterr().err


def pictures(folder):
    """Small pictures as files of the user's own; means of their quarters are the features."""
    random, parts = np.random.default_rng(1), {"private": 300, "public": 80, "test": 20}
    for name, count in parts.items():
        labels = random.integers(0, 2, count)
        inputs = random.integers(0, 99, (count, 12, 12)).astype(np.uint8)
        inputs[labels == 1, :6] += 120
        told = inputs.reshape(count, 4, -1).mean(2).astype(np.float32)
        ids = np.array([f"{name}-{number * 7}" for number in range(count)])
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels, ids=ids, features=told)
    return DataChoice(**{name: folder / f"{name}.npz" for name in parts})


def kept_space(run):
    return public_side.plan_of(public_side.read(run.public_side), run.public_side).space


def stands(run):
    found = verify.of_run(run, deep=True)
    return not found.of("failed") and not found.of("unchecked")


@pytest.mark.long
def test_features_beside_pictures_are_what_voters_are_compared_by(tmp_path):
    crowd_stages.run(config("sums", "record", tmp_path / "run", data=pictures(tmp_path)))
    run = RunDirectory(tmp_path / "run")
    assert kept_space(run).description()[:2] == ("encoder", 4) and stands(run)
    told = storage.read_json(run.results, "results")["space"]
    assert told == kept_space(run).description()._asdict()
    said = f"encoder makes of them ({told['directions']} directions of 4 features)"
    assert said in run.public_report.read_text()


@pytest.mark.long
def test_a_crowd_votes_in_the_space_of_a_net_that_was_taught_by_contrast(tmp_path, monkeypatch):
    """The run keeps the net, and whoever checks it learns the same one from the public pictures."""
    monkeypatch.setattr(contrast, "_SETTINGS", replace(contrast._SETTINGS, steps=3))
    crowd_stages.run(config("sums", "record", tmp_path / "run", data=pictures(tmp_path), space="contrast"))
    run = RunDirectory(tmp_path / "run")
    assert kept_space(run).description()[:2] == ("contrast", 64) and stands(run)


def test_a_run_whose_table_shows_no_more_than_the_classes_says_so_everywhere(tmp_path, capsys):
    results = crowd_stages.run(config("neighbours", "record", tmp_path / "run", epsilon=0.02))
    assert "no more than how frequent the classes are" in results["doubt"]
    assert results["doubt"] in capsys.readouterr().err
    run = RunDirectory(tmp_path / "run")
    assert all(results["doubt"] in page.read_text() for page in (run.report, run.public_report))
    assert check.audit(run.release) == []
