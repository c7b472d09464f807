"""A run of which only epsilon is given: who votes follows from public inputs, and the figure holds."""

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import accounting
from pate_jax.accounting import after_count
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.exact import counts
from pate_jax.audit import verify
from pate_jax.crowd import rehearsal
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.roles import assigned
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.runs import config_file, ledger, pipeline, register, teacher_plan
from pate_jax.runs.crowds import choice, forecast, release, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import CROWD, PLANNED
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Vat
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")


def config(out, **changes):
    return RunConfig(
        **{
            "data": honest_runs.table(),
            "voters": "auto",
            "epsilon": 4.0,
            "student": honest_runs.STUDENT,
            "out": out,
        }
        | changes
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole run with nothing chosen by the user."""
    out = tmp_path_factory.mktemp("alone") / "run"
    pipeline.run(config(out))
    return RunDirectory(out)


def stopped_at(monkeypatch, place, name, wished):
    """Begin a run, and stop it by Ctrl-C where it calls this function."""

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, name, stop)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run(wished)


def copy(run, folder):
    shutil.copytree(run.root, folder / "run")
    return RunDirectory(folder / "run")


def test_it_costs_at_most_what_was_wished_and_stands_every_check(run):
    statement = accounting.Statement.from_dict(storage.read_json(run.public_statement, "statement"))
    assert 3.99 < statement.headline.epsilon <= 4.0
    assert verify.of_run(run, deep=True).of("failed") == []


def test_who_votes_is_chosen_after_the_number_of_voters_and_recorded(run):
    settings = run.record.read()
    first, table = ledger.releases(run.ledger)
    assert isinstance(first.event, HeadCount)
    assert settings.crowd.voters == settings.of(PLANNED)["voters"] == table.event.name
    assert set(settings.of(PLANNED)["expected"]) == {"neighbours", "sums"}
    assert [one["epsilon"] for one in settings.of(PLANNED)["at"]][-3:] == [2.0, 4.0, 8.0]


@pytest.mark.long
def test_the_least_epsilon_that_is_taken_is_planned_for_as_well(tmp_path, capsys):
    pipeline.run(config(tmp_path / "run", epsilon=7e-4))
    planned = RunDirectory(tmp_path / "run").record.read().of(PLANNED)
    assert [one["epsilon"] for one in planned["at"]] == [7e-4, 14e-4]
    assert capsys.readouterr().err.count("Chosen by public inputs alone") == 1


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 9.0])
@pytest.mark.parametrize("voters", ["neighbours", "sums"])
def test_the_number_of_voters_leaves_room_for_either_table(epsilon, voters):
    """By hand: what somebody who is added or removed moves, in squares of mu."""
    mu, joined = counts.mu_for(epsilon, 1e-5), {"neighbours": 1 / 2, "sums": 1 / 4}[voters]
    number = after_count.headcount(epsilon, 1e-5)
    assert 1 / number.sigma**2 + joined * mu**2 <= mu**2


@pytest.mark.parametrize("ahead, voters", [(0.02, "sums"), (0.04, "neighbours")])
def test_neighbours_are_chosen_where_they_are_more_than_a_deviation_ahead(
    tmp_path, monkeypatch, capsys, ahead, voters
):
    """Of 450 inputs, of which half are right: a deviation of the difference is 0.033."""
    sums = rehearsal.Expected(0.55, 0.5, 0.6, 0.4, 450)
    neighbours = sums._replace(accuracy=0.55 + ahead, low=0.5 + ahead, high=0.6 + ahead)
    found = {"neighbours": neighbours, "sums": sums}
    monkeypatch.setattr(choice, "_rehearsed", lambda *_: found)
    stopped_at(monkeypatch, release, "count", config(tmp_path / "run"))
    assert RunDirectory(tmp_path / "run").record.read().crowd.voters == voters
    said = capsys.readouterr().err
    assert ("which are the simplest of those that do about best" in said) == (voters == "sums")
    assert ("which do best" in said) == (voters == "neighbours")
    assert "; the most frequent class alone 40%." in said


def test_two_public_inputs_with_labels_choose_nothing():
    """One is judged: all or nothing of it is right, which says next to nothing."""
    roles = assigned(2, 50)
    truth = np.array([0, 1])
    right = np.eye(2)[truth[roles.judged]]
    found = {
        "neighbours": rehearsal.judged([[right]], [truth], roles, Metric()),
        "sums": rehearsal.judged([[1 - right]], [truth], roles, Metric()),
    }
    assert [(round(one.low, 1), round(one.high, 1)) for one in found.values()] == [(0.2, 1.0), (0.0, 0.8)]
    assert forecast.best(found) == "sums"


def test_labels_of_the_users_public_file_judge_and_those_of_a_data_set_by_name_do_not(tmp_path):
    """Both pools have labels; those of a data set by name are there to measure with."""
    own = stages.begin(RunDirectory(tmp_path / "a"), honest_runs.table(), CrowdChoice(choice.FIRST))
    by_name = replace(own.inputs, choice=DataChoice("strokes"))
    vars(by_name)["dataset"] = own.dataset
    assert len(choice.judges(own)) == 1
    assert len(choice.judges(replace(own, inputs=by_name))) == 5


def test_contents_of_private_records_change_no_choice(tmp_path, monkeypatch):
    """As many records with other inputs and labels: the choice, and what is said of it, stay."""
    with np.load(honest_runs.table().private) as file:
        arrays = dict(file)
    arrays |= {"labels": arrays["labels"][::-1], "inputs": -arrays["inputs"]}
    np.savez(tmp_path / "private.npz", **arrays)
    monkeypatch.setattr("pate_jax.runs.crowds.inputs.told", lambda run: 80)  # the same noisy number
    parts = [honest_runs.table(), replace(honest_runs.table(), private=tmp_path / "private.npz")]
    said = []
    for place, data in enumerate(parts):
        other = RunDirectory(tmp_path / f"run-{place}")
        begun = stages.begin(other, data, CrowdChoice(choice.FIRST, epsilon=4.0))
        choice.decided(begun)
        said.append(other.record.read().of(PLANNED))
    assert said[0] == said[1]


def test_a_choice_that_reads_private_labels_would_be_noticed(tmp_path, monkeypatch):
    real = choice._rehearsed

    def leaking(crowd, labels):
        told = float(crowd.everybody.labels[:9].mean()) / 10
        return {kind: one._replace(low=told) for kind, one in real(crowd, labels).items()}

    monkeypatch.setattr(choice, "_rehearsed", leaking)
    with pytest.raises(AssertionError):
        test_contents_of_private_records_change_no_choice(tmp_path, monkeypatch)


def test_a_stop_after_the_number_of_voters_goes_on_with_the_same_number(tmp_path, monkeypatch):
    stopped_at(monkeypatch, choice, "_rehearsed", config(tmp_path / "run"))
    run = RunDirectory(tmp_path / "run")
    (before,) = ledger.releases(run.ledger)
    with pytest.raises(PateError, match=r"epsilon=4\.0, not 5\.0"):
        pipeline.run(config(tmp_path / "run", epsilon=5.0))
    pipeline.run(config(tmp_path / "run"))
    assert next(iter(ledger.releases(run.ledger))) == before
    assert verify.of_run(run).of("failed") == []


@pytest.mark.parametrize("voters", ["neighbours", "sums"])
@pytest.mark.parametrize("stopped", [False, True])
def test_voters_that_were_named_once_are_not_chosen_anew(tmp_path, monkeypatch, voters, stopped):
    """Sums tell their number with less noise than neighbours need, so they stay sums."""
    monkeypatch.setattr(choice, "_rehearsed", lambda *_: pytest.fail("a choice was made"))
    named = config(tmp_path / "run", voters=voters)
    with monkeypatch.context() as patch:
        if stopped:  # after the number of voters, before the table
            patch.setattr(release, "count", lambda crowd: release._asked_on(crowd) and 1 / 0)
        with pytest.raises(ZeroDivisionError) if stopped else nullcontext():
            pipeline.run(named)
    pipeline.run(replace(named, voters="auto"))
    run = RunDirectory(tmp_path / "run")
    first, table = ledger.releases(run.ledger)
    assert table.event.name == voters
    assert first.event == counts.headcount_for(counts.mu_for(4.0, 1e-5), voters)
    assert verify.of_run(run).of("failed") == []


def test_sums_that_stopped_before_anything_public_stay_sums(tmp_path, monkeypatch):
    stopped_at(monkeypatch, release, "count", config(tmp_path / "run", voters="sums"))
    run = RunDirectory(tmp_path / "run")
    run.public_side.unlink(missing_ok=True)
    pipeline.run(config(tmp_path / "run"))
    assert [line.event.name for line in ledger.releases(run.ledger)][1:] == ["sums"]


def test_the_same_command_again_says_the_same_and_charges_nothing(run, tmp_path):
    again = copy(run, tmp_path)
    lines = run.ledger.read_bytes()
    pipeline.run(config(again.root))
    assert again.ledger.read_bytes() == lines
    assert again.results.read_bytes() == run.results.read_bytes()


def test_a_register_holds_a_run_whose_voters_are_still_to_be_chosen(tmp_path):
    file = tmp_path / "register.jsonl"
    register.begin(file)
    pipeline.run(config(tmp_path / "run", register=file))
    (entry,) = register.read(file).entries.values()
    (plan,) = entry.plans
    mu = counts.mu_for(4.0, 1e-5)
    assert plan.events[0].voters == choice.FIRST and plan.covers(Plan((Tables(mu, "sums"),), ""))
    assert not Plan((Tables(mu, "sums"),), "").covers(Plan((Tables(mu, "neighbours"),), ""))


def test_queries_are_asked_of_neighbours_alone(tmp_path):
    pipeline.run(config(tmp_path / "run", queries=6))
    settings = RunDirectory(tmp_path / "run").record.read()
    assert settings.of(CROWD)["voters"] == "neighbours" and set(settings.of(PLANNED)["expected"]) == {
        "neighbours"
    }


TEACHERS = {
    "a number": {"partition": PartitionChoice(teachers=9)},
    "a mechanism": {"mechanism": GNMax(4.0)},
    "nothing": {"voters": "teachers"},
}


@pytest.mark.parametrize("given", TEACHERS.values(), ids=TEACHERS)
def test_what_only_teachers_take_makes_it_a_run_of_teachers(given):
    assert RunConfig(**{"voters": "auto"} | given).who == "teachers"
    assert RunConfig().who == "teachers" and RunConfig(voters="auto").who == "auto"


def test_teachers_may_spend_an_epsilon_of_1_unless_told_otherwise():
    assert RunConfig(voters="teachers").budget == RunConfig(**TEACHERS["a number"]).budget == 1.0
    assert RunConfig(voters="teachers", epsilon=2.0, mechanism=GNMax(4.0)).budget == 2.0
    assert RunConfig(voters="teachers", budget_epsilon=3.0).budget == 3.0
    assert RunConfig(mechanism=GNMax(4.0)).budget is None


@pytest.mark.long
@pytest.mark.parametrize(("epsilon", "said"), [(2.0, "2"), (None, "1")])
def test_teachers_get_their_number_noise_and_queries_from_epsilon(epsilon, said, tmp_path, capsys):
    wished = RunConfig(
        DataChoice("strokes", records=12000), voters="teachers", epsilon=epsilon, out=tmp_path / "run"
    )
    run = RunDirectory(tmp_path / "run")
    made = teacher_plan.settled(run, wished).config
    assert made.mechanism is not None and made.queries
    assert made.budget == (
        None if made.mechanism.releases_counts else float(said)
    )  # counts: one exact figure
    assert teacher_plan.settled(run, wished).config == made  # from the record
    assert f"Chosen by public inputs alone, for epsilon {said} at delta 1e-05" in capsys.readouterr().err


CONFIGS = {
    "a crowd": RunConfig(
        DataChoice("adult", ids_are_stable=True, classes=2),
        PartitionChoice(by="user"),
        voters="sums",
        epsilon=0.5,
    ),
    "teachers": RunConfig(
        partition=PartitionChoice(7), mechanism=GNMax(4.5), student=Vat(steps=30, maps=(4, 8)), queries=40
    ),
}


@pytest.mark.parametrize("wished", CONFIGS.values(), ids=CONFIGS)
def test_a_file_of_flags_makes_the_same_run(wished, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config, *_: seen.append(config) or {})
    config_file.write(tmp_path / "config.toml", wished)
    assert call("run", "--config", tmp_path / "config.toml") == 0
    assert call("run", "--out", tmp_path, f"--config={tmp_path / 'config.toml'}", "--delta", "1e-6") == 0
    assert config_file.text(seen[0]) == config_file.text(wished)
    assert (seen[1].out, seen[1].delta, seen[1].student) == (tmp_path, 1e-6, wished.student)


def test_a_flag_that_says_the_usual_number_of_teachers_makes_it_a_run_of_teachers(monkeypatch):
    seen = []
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config, *_: seen.append(config) or {})
    for flags in (("--teachers", "125"), ()):
        assert call("run", "--voters", "auto", *flags) == 0
    assert [(one.who, one.partition.teachers) for one in seen] == [("teachers", 125), ("auto", None)]


BAD_FILES = {
    "no file": (None, "does not exist"),
    "no TOML": ("epsilon: 3", "is no TOML"),
    "a table": ("[student]\nsteps = 3", "has a table \\[student\\]"),
    "no mechanism": ('[mechanism]\nname = "gauss"', "a mechanism has a name, one of"),
    "no flag": ("epsilom = 3", "epsilom"),
}


@pytest.mark.parametrize(("text", "said"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_of_flags_is_one_sentence(text, said, tmp_path, capsys):
    path = tmp_path / "flags.toml"
    if text is not None:
        path.write_text(text)
    assert call("run", "--config", path) == 2
    assert re.search(said, capsys.readouterr().err)
