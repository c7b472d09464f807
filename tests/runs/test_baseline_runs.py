"""`pate baseline dpsgd`: charged before it trains, the same after a stop, served and verified."""

import dataclasses
import html
import json
import math
import shutil
from types import SimpleNamespace

import commands
import numpy as np
import pytest

from pate_jax.accounting import curves
from pate_jax.accounting.costs import Tables, Trained
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.training_statement import TrainingStatement, training_statement
from pate_jax.audit import verify
from pate_jax.baselines.dpsgd import calibration
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import chain, driver, ledger, plans, register
from pate_jax.runs.baselines import tasks, training
from pate_jax.runs.baselines.tasks import Task, opened
from pate_jax.runs.baselines.training import BaselineConfig
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import Record
from pate_jax.runs.settings import DataChoice
from pate_jax.student import Student
from pate_jax.student.released import predict
from pate_jax.system import storage


def records(folder, users=False):
    random = np.random.default_rng(0)
    for name, rows in (("private", 200), ("public", 30), ("test", 40)):
        labels = np.arange(rows) % 2
        inputs = random.normal(size=(rows, 4)).astype(np.float32) + 2 * labels[:, None]
        more = {"users": np.array([f"u{row // 2}" for row in range(rows)])} if users else {}
        ids = np.array([f"{name}-{7 * row + 13}" for row in range(rows)])
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels, ids=ids, **more)
    return DataChoice(private=folder / "private.npz", public=folder / "public.npz", test=folder / "test.npz")


def config(data, out, **more):
    return BaselineConfig(data=data, out=out, epsilon=4.0, steps=3, batch=40, clip=1.0, **more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A training that was stopped when it had been charged, and then repeated."""
    folder = tmp_path_factory.mktemp("baseline")
    chosen = config(records(folder), folder / "run", register=folder / "register.jsonl")
    register.begin(chosen.register)
    run = RunDirectory(folder / "run")
    with pytest.MonkeyPatch.context() as patch:

        def killed(*_):
            assert len(chain.read(run.ledger)) == 1  # charged already
            assert len(register.read(chosen.register).entries) == 1  # and entered
            raise KeyboardInterrupt

        patch.setattr(training, "train", killed)
        with pytest.raises(KeyboardInterrupt):
            training.run(chosen)
    assert not run.student.exists()
    charged = run.ledger.read_bytes()
    results = training.run(chosen)
    assert run.ledger.read_bytes() == charged
    return chosen, run, results


@pytest.fixture
def copy(made, tmp_path):
    """The same run, to be changed."""
    shutil.copytree(made[1].root, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def test_the_statement_shows_both_relations_and_its_headline_is_the_larger(made):
    chosen, run, results = made
    body = storage.read_json(run.public_statement, "statement")
    statement = TrainingStatement.from_dict(body)
    assert statement.added < statement.changed <= chosen.epsilon
    assert statement.headline.epsilon == statement.changed and statement.private
    assert set(body["figures"]) == {"data_independent", "added_or_removed"}
    card = (run.student / "MODEL_CARD.md").read_text()
    assert statement.model_card_line() in card and "public inputs that" not in card
    assert results["student_accuracy"] is not None
    assert statement.model_card_line() in training.told(results)
    with pytest.raises(PateError, match="no statement"):
        TrainingStatement.from_dict({**body, "relation": "user"})


def test_a_run_is_verified_and_comes_out_again(made):
    _, run, _ = made
    found = verify.of_run(run, deep=True)
    assert "register: the register shows this run" in " ".join(found.of("passed"))
    assert "release: report.html carries the guarantee of statement.json word for word" in found.of("passed")
    assert found.of("failed") == []
    assert "student: the net comes out again, bit for bit" in found.of("passed")
    assert verify.at(run.release).of("failed") == []


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda run: edited(run, "noise_multiplier", 9.0), "noise_multiplier"),
        (lambda run: cheaper(run), "is published for a training that costs"),
    ],
)
def test_what_somebody_changed_is_found(copy, change, because):
    change(copy)
    failed = verify.of_run(copy).of("failed")
    assert any(because in one for one in failed), failed


def test_both_pages_are_written_again_and_the_budget_is_shown(made, copy, capsys):
    before = [page.read_bytes() for page in (copy.report, copy.public_report)]
    for page in (copy.report, copy.public_report):
        page.unlink()
    assert commands.call("report", copy.root) == 0
    assert [page.read_bytes() for page in (copy.report, copy.public_report)] == before
    statement = TrainingStatement.from_dict(made[2]["statement"])
    for page in before:
        assert statement.model_card_line() in html.unescape(page.decode())
    assert b"register.jsonl" in before[0] and b"register.jsonl" not in before[1]
    assert commands.call("budget", copy.root) == 0
    said = capsys.readouterr().out
    assert f"Spent: epsilon {statement.changed:.4f} at delta 1e-05" in said


def test_the_budget_shows_what_the_ledger_charged_whatever_the_settings_say_by_now(made, copy):
    before = training.summary(copy)
    assert before["spent"]["epsilon"] == made[2]["statement"]["figures"]["data_independent"]["epsilon"]
    settings = copy.record.read().of("baseline")
    copy.record.revise({"baseline": {**settings, "epsilon": settings["epsilon"] / 2}})
    assert training.summary(copy) == before


def test_trainings_are_added_up_with_each_other_and_with_other_runs(made, tmp_path, capsys):
    file = made[0].register
    (entered,) = next(iter(register.read(file).entries.values())).plans
    assert entered.events[0].draws == 3 * sum(
        math.prod(shape) for shape in Student.load(made[1].root).shapes().values()
    )
    one, two = (plans.together([entered] * count, 1e-5) for count in (1, 2))
    spent = made[2]["statement"]["figures"]["data_independent"]["epsilon"]
    assert spent * 0.99 < one <= spent < two < 2 * spent  # a hundredth of delta is kept in the statement
    by_curves = curves.epsilon(orders := curves.default_orders(), 2 * entered.curve(orders), 1e-5)
    assert two < by_curves.epsilon
    crowd = Plan((Tables(0.3, "sums"),), "record")
    assert max(one, plans.together([crowd], 1e-5)) < plans.together([entered, crowd], 1e-5)
    assert commands.call("budget", "--register", file) == 0
    assert "by record, for a net trained by DP-SGD in 3 steps" in capsys.readouterr().out
    assert commands.call("budget", file) == 2
    assert f"a register by --register {file}" in " ".join(capsys.readouterr().err.split())


def test_what_a_register_adds_is_no_less_than_the_losses_of_all_steps():
    plan = Plan((Trained(Training(0.2, 3, 1.0), 3),), "record")
    orders = curves.default_orders()
    by_curve = curves.epsilon(orders, plan.curve(orders), 1e-5).epsilon
    by_losses = calibration.composed((plan.events[0].training,), 1e-5, calibration.REPLACE)
    assert by_losses < by_curve < 1.3 * by_losses
    assert plan.cost(8.0).rdp == pytest.approx(float(plan.curve(np.array([8.0]))[0]))
    assert plan.cost(8.0).slack == plan.strays() > 0


def test_a_training_beyond_the_limit_is_refused_before_it_is_charged(made, tmp_path):
    file = tmp_path / "register.jsonl"
    register.begin(file)
    register.set_limit(file, 3.0, 1e-5)
    with pytest.raises(PateError, match="would be exceeded"):
        training.run(config(made[0].data, tmp_path / "run", register=file))
    assert not RunDirectory(tmp_path / "run").ledger.exists()


def test_a_run_that_its_register_has_forgotten_goes_no_further(made, copy):
    before = len(register.read(made[0].register).entries)
    shutil.copytree(copy.root, other := copy.root.parent / "unfinished")
    shutil.rmtree(other / "release")
    with pytest.raises(
        PateError, match="and a training by DP-SGD or a choice of settings goes on in one place alone"
    ):
        training.run(dataclasses.replace(made[0], out=other))
    training.run(dataclasses.replace(made[0], out=copy.root))
    assert len(register.read(made[0].register).entries) == before  # a finished copy costs nothing more
    other = copy.root.parent / "empty.jsonl"
    register.begin(other)
    copy.record.revise({"register": {"file": str(other)}})
    assert any("does not show this run" in one for one in verify.of_run(copy).of("failed"))
    copy.record.revise({"register": {"file": str(other.parent / "gone.jsonl")}})
    assert any("is not here" in one for one in verify.of_run(copy).of("unchecked"))


def test_a_plan_of_a_training_is_read_as_it_was_written(made):
    (entered,) = next(iter(register.read(made[0].register).entries.values())).plans
    assert plans.from_json(to_dict(entered)) == entered
    whole = to_dict(entered)
    (body,) = whole["events"]
    for wrong in (
        {**whole, "events": [{**body, "name": "trained"}]},
        {**whole, "events": [{**body, "draws": 0}]},
        {**whole, "events": [{**body, "training": {**body["training"], "rate": 1.5}}]},
        {**whole, "events": [{**body, "training": {**body["training"], "steps": 2.0}}]},
        {**whole, "relation": 3},
        {**whole, "more": 1},
    ):
        with pytest.raises(PateError, match="none that a run was ever entered with"):
            plans.from_json(wrong)


def edited(run, name, value):
    """A ledger that was written anew with another training."""
    (line,) = chain.read(run.ledger)
    line = {key: part for key, part in line.items() if key not in chain.OF_THE_CHAIN}
    line["event"] = {**line["event"], "training": {**line["event"]["training"], name: value}}
    for path in (run.ledger, chain.head_path(run.ledger)):
        path.unlink()
    chain.append(run.ledger, line)


def cheaper(run):
    """A statement whose figure is half of what it costs."""
    (run.student / "statement.json").unlink()
    for path in (run.statement, run.public_statement):
        body = json.loads(path.read_text())
        found = TrainingStatement.from_dict(body)
        half = found.changed / 2, found.added / 2
        lower = training_statement(found.training, *half, found.delta, private=True)
        storage.write_json(path, "statement", lower.publishable())


def scaled(dataset):
    """The same records beside another public part, which scales them in another way."""
    preprocessing = dataclasses.replace(dataset.preprocessing, scale=(2.0,) * 4)
    return dataclasses.replace(dataset, preprocessing=preprocessing)


def test_noise_is_named_after_all_that_gradients_follow_from(tmp_path):
    dataset = open_data(records(tmp_path))
    settings = config(None, None).settings(dataset)
    others = scaled(dataset), dataclasses.replace(dataset, classes=3)
    names = {tasks.asked_on(Task(one, settings)) for one in (dataset, *others)}
    names.add(tasks.asked_on(Task(dataset, dataclasses.replace(settings, clip=2.0))))
    names |= {tasks.asked_on(Task(dataset, settings, SimpleNamespace(digest=one))) for one in "ab"}
    assert len(names) == 6


def test_a_training_of_other_records_or_settings_is_refused(made, copy, tmp_path):
    chosen, _, _ = made
    with pytest.raises(PateError, match="steps"):
        training.run(
            BaselineConfig(data=chosen.data, out=copy.root, epsilon=4.0, steps=4, batch=40, clip=1.0)
        )
    task = opened(copy)
    other = tasks.Steps(copy, task).due().stream
    with pytest.raises(PateError, match="public things"):
        driver.release(tasks.Steps(copy, Task(scaled(task.dataset), task.settings)))
    task.dataset.private.inputs[0] += 1
    assert tasks.Steps(copy, task).due().stream != other
    with pytest.raises(PateError, match="other records"):
        driver.release(tasks.Steps(copy, task))
    with pytest.raises(PateError, match="users"):
        training.run(config(records(tmp_path, users=True), tmp_path / "users"))
    assert not (tmp_path / "users" / "private" / "ledger.jsonl").exists()


@pytest.mark.parametrize("stage", ["baseline", "data", "relation"])
def test_a_run_that_is_killed_while_it_begins_can_be_repeated_and_is_no_other_kind(
    made, tmp_path, monkeypatch, stage
):
    chosen, run, real = made[0], RunDirectory(tmp_path / "run"), Record.agree

    def killed(record, name, *arguments, **named):
        if name == stage:
            raise KeyboardInterrupt
        real(record, name, *arguments, **named)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Record, "agree", killed)
        training.begin(run, config(chosen.data, run.root))
    training.begin(run, config(chosen.data, run.root))
    with pytest.raises(PateError, match="DP-SGD"):
        crowd_inputs.refuse_others(run)


def test_what_cannot_be_trained_is_refused_before_it_is_charged(made, tmp_path):
    for changed, because in (({"net": "cnn"}, "takes images"), ({"delta": 1e-13}, "too much noise")):
        chosen = dataclasses.replace(config(made[0].data, tmp_path / "run"), **changed)
        with pytest.raises(PateError, match=because):
            training.run(chosen)
    assert not [path for path in (tmp_path / "run").rglob("*") if path.suffix in (".json", ".jsonl")]


def test_a_net_that_is_released_is_not_made_again(made, copy, monkeypatch):
    before = (copy.student / "parameters.npz").read_bytes()
    copy.results.unlink()  # as if it was killed before them
    monkeypatch.setattr(training, "train", None)
    again = training.run(dataclasses.replace(made[0], out=copy.root))
    assert again["student_accuracy"] == made[2]["student_accuracy"]
    assert (copy.student / "parameters.npz").read_bytes() == before


def test_a_net_without_its_ledger_is_not_trained_anew_with_other_noise(made, copy):
    shutil.rmtree(copy.private)  # or restored as it was before the run
    with pytest.raises(PateError, match="does not show"):
        training.run(config(made[0].data, copy.root))
    assert not copy.ledger.exists() and copy.student.exists()


def test_no_two_runs_share_their_noise(made, copy):
    _, run, _ = made
    name = ledger.charge(run.ledger, Trained).stream
    copy.secret.make(None)
    assert run.secret.commitment(name) != copy.secret.commitment(name)


def test_the_released_program_says_what_the_library_says(made):
    _, run, _ = made
    inputs = records_of(made)
    assert abs(predict.load(run.student)(inputs) - Student.load(run.root)(inputs)).max() < 1e-5


def records_of(made):
    return np.load(made[0].data.test)["inputs"]


@pytest.fixture(scope="module")
def headed(tmp_path_factory):
    """A linear head on the columns of a table, trained and released."""
    folder = tmp_path_factory.mktemp("head")
    chosen = dataclasses.replace(config(records(folder), folder / "run"), net="linear", space="columns")
    return chosen, RunDirectory(folder / "run"), training.run(chosen)


def test_a_linear_head_is_released_verified_and_served_by_numpy(headed):
    chosen, run, results = headed
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == []
    assert "student: the net comes out again, bit for bit" in found.of("passed")
    assert (
        "space: space and weights of the head follow from public inputs and settings, bit for bit"
        in found.of("passed")
    )
    assert results["student_accuracy"] > 0.6
    inputs = np.load(chosen.data.test)["inputs"]
    student, head = Student.load(run.root), opened(run).head
    assert student.description["name"] == "head"
    assert abs(predict.load(run.student)(inputs) - student(inputs)).max() < 1e-5
    seen = head.front(inputs)
    assert seen.shape == (40, 21) and np.linalg.norm(seen, axis=1).max() <= 1
    with pytest.raises(PateError, match=r"space='encoder' cannot be released"):
        tasks.learned(opened(run).dataset, dataclasses.replace(opened(run).settings, space="encoder"))


def test_the_noise_of_a_head_is_named_after_its_space_and_the_space_is_kept(headed, tmp_path):
    _, run, _ = headed
    task = opened(run)
    other = task.head._replace(scaling=task.head.scaling._replace(constant=100))
    assert (
        len(
            {
                tasks.asked_on(task),
                tasks.asked_on(task._replace(head=other)),
                tasks.asked_on(task._replace(head=None)),
            }
        )
        == 3
    )
    assert tasks.read(run.public_side, task.dataset).digest == task.head.digest
    shutil.copytree(run.root, tmp_path / "copy")
    copy = RunDirectory(tmp_path / "copy")
    copy.public_side.unlink()
    tasks.keep(copy, other)
    assert any(
        "bounds of space and weights of the head are not" in one for one in verify.of_run(copy).of("failed")
    )
    assert any("another noise" in one for one in verify.of_run(copy).of("failed"))
    with pytest.raises(PateError, match="public things"):
        driver.release(tasks.Steps(copy, opened(copy)))
