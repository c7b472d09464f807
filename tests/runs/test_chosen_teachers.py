"""Teachers that a run of any voters chose after one noisy number: what they cost, and that the run holds."""

import json
from dataclasses import replace
from pathlib import Path

import forked
import honest_runs
import numpy as np
import process_threads
import pytest
import quick_compiler
from commands import call
from test_multihost import free_address

from pate_jax import accounting
from pate_jax.accounting import after_count
from pate_jax.accounting.exact import counts
from pate_jax.audit import spending, verify
from pate_jax.crowd.rehearsal import Expected
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.runs import batches, crowds, driver, ledger, limits, pipeline, register, stages
from pate_jax.runs.crowds import choice, forecast, release, teachers
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import Question
from pate_jax.runs.record import CROWD, HEADCOUNT, PLANNED
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice, RunConfig
from pate_jax.system import devices, storage

pytestmark = pytest.mark.usefixtures("without_pictures")
EPSILON = 4.0


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table with enough records for teachers."""
    folder = tmp_path_factory.mktemp("table")
    honest_runs._write_table(folder, private=400)
    return DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")})


BEST = forecast.best


def favouring(found):
    """The choice of rehearsals that teachers win."""
    return "teachers" if "teachers" in found else BEST(found)


@pytest.fixture(autouse=True, scope="module")
def same_number():
    """About as many voters in every run, so that all have the same plan, which is calibrated once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teachers, "told", lambda run: 390)
        yield


@pytest.fixture
def favoured(monkeypatch):
    monkeypatch.setattr(forecast, "best", favouring)


def config(table, out, **changes):
    made = {"data": table, "voters": "auto", "epsilon": EPSILON, "student": honest_runs.STUDENT, "out": out}
    return RunConfig(**{**made, **changes})


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    """A whole run that chose teachers, entered in a register of its own."""
    folder = tmp_path_factory.mktemp("chosen")
    register.begin(folder / "register.jsonl")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forecast, "best", favouring)
        pipeline.run(config(table, folder / "run", register=folder / "register.jsonl"))
    return RunDirectory(folder / "run")


def stopped(monkeypatch, place, name, wished):
    """Begin a run, and stop it by Ctrl-C where it calls this function."""

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, stop)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(wished)
    return RunDirectory(wished.out)


def failures(run, **how):
    return " ".join(map(str, verify.of_run(run, **how).of("failed")))


def test_it_publishes_what_was_wished_and_stands_every_check(run):
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert statement.headline.epsilon == EPSILON and statement.headcount == pytest.approx(
        after_count.headcount(EPSILON, 1e-5).sigma
    )
    assert failures(run, deep=True) == ""
    assert verify.of_release(run.release).of("failed") == []


def test_the_number_comes_first_and_the_answers_after_it(run):
    first, *rest = ledger.entries(run.ledger)
    assert first.event == after_count.headcount(EPSILON, 1e-5) and len(rest) == 1
    planned = run.record.read().of(PLANNED)
    assert rest[0].event.teachers == planned["teachers"] and CROWD not in run.record.read()
    assert {*planned["kinds"]} == {"neighbours", "sums"}
    assert 'voters = "teachers"' in run.config.read_text() and "sums" in run.config.read_text()


def test_the_register_counts_number_and_answers_once(run):
    (entry,) = register.read(run.record.read().register).entries.values()
    (plan,) = entry.plans
    assert plan.events[0] == after_count.headcount(EPSILON, 1e-5)
    assert [event.name for event in plan.events] == ["headcount", "answers"] and len(entry.answers) == 2


def test_the_run_is_closed(run, capsys):
    assert call("budget", run.root) == 0
    said = capsys.readouterr().out
    assert "epsilon 4.0000" in said and "Nothing more can be asked" in said
    with pytest.raises(PateError, match="without a budget"):
        batches.next_batch(run)
    with pytest.raises(PateError, match="a noisy number of voters chose"):
        limits.release(run, run.record.read().mechanism, 1e-5, 0.99)
    with pytest.raises(PateError, match="delta=1e-06 is not that of the budget"):
        stages.account(run, 1e-6)


def test_contents_of_private_records_change_no_plan_of_teachers(table, tmp_path, monkeypatch, favoured):
    """As many records with other inputs and labels, and the same noisy number: the same plan, bit for bit."""
    with np.load(table.private) as file:
        arrays = dict(file)
    arrays |= {"labels": arrays["labels"][::-1], "inputs": -arrays["inputs"]}
    np.savez(tmp_path / "private.npz", **arrays)
    monkeypatch.setattr(crowd_inputs, "told", lambda run: 390)
    said = []
    for place, private in enumerate([table.private, tmp_path / "private.npz"]):
        run = RunDirectory(tmp_path / str(place))
        data = DataChoice(private=private, public=table.public, test=table.test)
        found = choice.decided(crowd_stages.begin(run, data, CrowdChoice(choice.FIRST, epsilon=EPSILON)))
        assert isinstance(found, teachers.Chosen)
        said.append(json.dumps(run.record.read().of(PLANNED)))
    assert said[0] == said[1]


def test_a_stop_between_number_and_choice_goes_on_with_the_same_number(
    table, tmp_path, monkeypatch, favoured
):
    wished = config(table, tmp_path / "run")
    run = stopped(monkeypatch, choice, "_rehearsed", wished)
    before = run.ledger.read_bytes()
    with pytest.raises(PateError, match="is the run of a crowd"):
        pipeline.run(config(table, run.root, voters="teachers"))
    stopped(monkeypatch, stages, "train", wished)  # chosen, and nothing trained
    assert run.ledger.read_bytes() == before and HEADCOUNT in run.record.read()
    assert failures(run) == ""
    planned = run.record.read().of(PLANNED)
    with pytest.raises(PateError, match="choose another --out for neighbours or sums"):
        pipeline.run(config(table, run.root, voters="sums"))
    monkeypatch.setattr(choice, "_rehearsed", lambda *_: pytest.fail("a second choice was made"))
    pipeline.run(wished)
    assert run.record.read().of(PLANNED) == planned and run.ledger.read_bytes().startswith(before)
    assert failures(run) == ""


def test_all_processes_hear_of_the_teachers_that_the_first_one_chose(table, tmp_path, monkeypatch, favoured):
    with monkeypatch.context() as patch:
        group = process_threads.group(patch, 3)
        ends = group.ends(lambda _: crowds.run(config(table, tmp_path / "run")))
    (planned,) = {json.dumps(end.planned, sort_keys=True) for end in ends}
    assert json.loads(planned) == RunDirectory(tmp_path / "run").record.read().of(PLANNED)


def one_of_several(address, count, index, out, private):
    """What each of several processes does: a whole run, which teachers win."""
    devices.join(address, count, index)
    forecast.best, teachers.told = favouring, lambda run: 390
    parts = {name: Path(private).with_name(f"{name}.npz") for name in ("private", "public", "test")}
    pipeline.run(config(DataChoice(**parts), Path(out), partition=PartitionChoice(seed=5)))


@pytest.mark.long
def test_several_processes_answer_as_one_does(table, tmp_path, monkeypatch, favoured):
    wished = config(table, tmp_path / "alone", partition=PartitionChoice(seed=5))
    alone, run = stopped(monkeypatch, stages, "teach", wished), RunDirectory(tmp_path / "run")
    name, address = "test_chosen_teachers:one_of_several", free_address()
    environment = {"XLA_FLAGS": quick_compiler.environment(devices=1)["XLA_FLAGS"]}
    running = [
        forked.function(name, address, 2, index, str(run.root), str(table.private), environment=environment)
        for index in range(2)
    ]
    assert forked.ended(running) == [0, 0]
    (number, answers), (before, given) = ledger.entries(alone.ledger), ledger.entries(run.ledger)
    assert (before.values, given.values) == (number.values, answers.values)
    assert failures(run) == ""


def test_other_records_after_the_number_are_refused(table, tmp_path, monkeypatch, favoured):
    run = stopped(monkeypatch, stages, "train", config(table, tmp_path / "run"))
    with np.load(table.private) as file:
        arrays = dict(file)
    np.savez(tmp_path / "private.npz", **{name: one[:-1] for name, one in arrays.items()})
    table.private.rename(tmp_path / "kept.npz")
    (tmp_path / "private.npz").rename(table.private)
    with pytest.raises(PateError, match="private records were changed"):
        pipeline.run(config(table, run.root))
    (tmp_path / "kept.npz").rename(table.private)


def little_noise(_, released):
    """The number of voters, with less noise than is planned."""
    return None if released else Question(1, HeadCount(1.0), release.NOTHING)


ALTERED = {
    "another number": (release.Crowd, "number", property(lambda crowd: 395), "not the noisy form"),
    "little noise": (release.Counting, "ask", little_noise, "is planned for"),
    "other noise": (driver, "noisy", lambda run, line, table: table + 99, "does not follow from"),
}


@pytest.mark.parametrize(("place", "name", "other", "said"), ALTERED.values(), ids=ALTERED)
def test_an_altered_number_is_found(place, name, other, said, table, tmp_path, monkeypatch, favoured):
    with monkeypatch.context() as patch:
        patch.setattr(place, name, other)
        run = RunDirectory(tmp_path / "run")
        begun = crowd_stages.begin(run, table, CrowdChoice(choice.FIRST, epsilon=EPSILON))
        release.count_voters(begun)
    stopped(monkeypatch, stages, "teach", config(table, run.root, register=honest_runs.UNCOUNTED))
    assert said in failures(run)


def test_answers_or_a_number_with_too_little_noise_are_found(run, monkeypatch):
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert [one.outcome for one in spending.published(statement, statement.model_card_line())] == ["passed"]
    less = dict(statement.mechanism, sigma=0.9 * statement.mechanism["sigma"])
    for changed, said in (({"mechanism": less}, "cost more than"), ({"headcount": 5.0}, "is not enough")):
        other = replace(statement, **changed)
        (found,) = spending.published(other, other.model_card_line())
        assert found.outcome == "failed" and said in found.text
    monkeypatch.setattr(after_count, "fits", lambda *_, **__: False)
    assert "cost more than may follow" in failures(run) and "does not allow" in failures(run)


def test_teachers_are_taken_where_they_are_a_deviation_ahead():
    sums = Expected(0.55, 0.5, 0.6, 0.4, 450)
    for ahead, taken in ((0.02, "sums"), (0.05, "teachers")):
        better = sums._replace(accuracy=0.55 + ahead, low=0.5 + ahead, high=0.6 + ahead)
        found = {"neighbours": sums, "sums": sums}
        assert forecast.best(found | {"teachers": better}) == taken


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 9.0])
def test_the_number_has_room_for_every_kind_of_voters(epsilon):
    mu, sigma = counts.mu_for(epsilon, 1e-5), after_count.headcount(epsilon, 1e-5).sigma
    assert 1 / sigma**2 + mu**2 / 2 <= mu**2  # of neighbours, who move a table the most when they come or go
