"""`pate baseline dpsgd`: charged before it trains, the same after a stop, served and verified."""

import dataclasses
import json
import shutil
import sys

import numpy as np
import pytest

from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.runs import batches, chain
from pate_jax.runs.baselines import training
from pate_jax.runs.baselines.training import BaselineConfig
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.record import Record
from pate_jax.runs.settings import DataChoice
from pate_jax.student import Student
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


def config(data, out):
    return BaselineConfig(data=data, out=out, epsilon=4.0, steps=3, batch=40, clip=1.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A training that was stopped when it had been charged, and then repeated."""
    folder = tmp_path_factory.mktemp("baseline")
    chosen = config(records(folder), folder / "run")
    run = RunDirectory(folder / "run")
    with pytest.MonkeyPatch.context() as patch:

        def killed(run, dataset, settings):
            assert len(chain.read(run.ledger)) == 1  # charged already
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


def edited(run, name, value):
    """A ledger that was written anew with another training."""
    (line,) = chain.read(run.ledger)
    line = {key: line[key] for key in ("schema", "batch", "training", "delta", "records", "noise")}
    line["training"] = {**line["training"], name: value}
    for path in (run.ledger, chain.head_path(run.ledger)):
        path.unlink()
    chain.append(run.ledger, line)


def cheaper(run):
    """A statement whose figure is half of what it costs."""
    (run.student / "statement.json").unlink()
    for path in (run.statement, run.public_statement):
        body = json.loads(path.read_text())
        found = TrainingStatement.from_dict(body)
        lower = TrainingStatement(found.training, found.changed / 2, found.added / 2, found.delta, True)
        storage.write_json(path, "statement", lower.publishable())


def scaled(dataset):
    """The same records beside another public part, which scales them in another way."""
    preprocessing = dataclasses.replace(dataset.preprocessing, scale=(2.0,) * 4)
    return dataclasses.replace(dataset, preprocessing=preprocessing)


def test_noise_is_named_after_all_that_gradients_follow_from(tmp_path):
    dataset = open_data(records(tmp_path))
    settings = config(None, None).settings(dataset)
    others = scaled(dataset), dataclasses.replace(dataset, classes=3)
    names = {training.stream(one, settings) for one in (dataset, *others)}
    names.add(training.stream(dataset, dataclasses.replace(settings, clip=2.0)))
    assert len(names) == 4


def test_a_training_of_other_records_or_settings_is_refused(made, copy, tmp_path):
    chosen, _, _ = made
    with pytest.raises(PateError, match="steps"):
        training.run(
            BaselineConfig(data=chosen.data, out=copy.root, epsilon=4.0, steps=4, batch=40, clip=1.0)
        )
    dataset, settings = training.opened(copy)
    other = training.stream(dataset, settings)
    with pytest.raises(PateError, match="public scales"):
        training.charge(copy, scaled(dataset), settings)
    dataset.private.inputs[0] += 1
    assert training.stream(dataset, settings) != other
    with pytest.raises(PateError, match="other records"):
        training.charge(copy, dataset, settings)
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
    again = training.run(config(made[0].data, copy.root))
    assert again["student_accuracy"] == made[2]["student_accuracy"]
    assert (copy.student / "parameters.npz").read_bytes() == before


def test_a_net_without_its_ledger_is_not_trained_anew_with_other_noise(made, copy):
    shutil.rmtree(copy.private)  # or restored as it was before the run
    with pytest.raises(PateError, match="does not show"):
        training.run(config(made[0].data, copy.root))
    assert not copy.ledger.exists() and copy.student.exists()


def test_no_two_runs_share_their_noise(made, copy):
    _, run, _ = made
    dataset, settings = training.opened(run)
    stream = training.stream(dataset, settings)
    copy.keys.unlink()
    copy.ledger.unlink()
    copy.secret.draw(None)
    assert batches.commitment(run, stream) != batches.commitment(copy, stream)


def test_the_released_program_says_what_the_library_says(made):
    _, run, _ = made
    folder, inputs = run.student, records_of(made)
    np.savez(folder.parent.parent / "asked.npz", inputs=inputs)
    sys.path.insert(0, str(folder))
    try:
        import predict

        probabilities = predict.predict(inputs, folder)[1]
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("predict", None)
    assert abs(probabilities - Student.load(run.root)(inputs)).max() < 1e-5


def records_of(made):
    return np.load(made[0].data.test)["inputs"]
