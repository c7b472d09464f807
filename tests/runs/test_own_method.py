"""A method in one file gets everything that a run has: this is what shows it."""

import importlib.metadata
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import commands
import honest_runs
import numpy as np
import pytest

from pate_jax.accounting.exact import counts
from pate_jax.aggregate import noise
from pate_jax.audit import methods as audit_methods
from pate_jax.audit import verify
from pate_jax.audit.attacks import every, mechanism, risk
from pate_jax.audit.attacks.attack import Flags
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import NeighbourCounts, Score
from pate_jax.runs import chain, ledger, methods, register, registration
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.methods import Promise
from pate_jax.student import Student
from pate_jax.sweep.compare import contenders
from pate_jax.sweep.compare.ground import Draw, Ground
from pate_jax.system import storage

PROMISE = Promise(2.0, 1e-5, "record")
methods.add("majority", "majority:Majority")


def data():
    return honest_runs.table()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    register.begin(folder / "register.jsonl")
    found = methods.run("majority", data(), PROMISE, folder / "run", register=folder / "register.jsonl")
    return RunDirectory(folder / "run"), found


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made[0].root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def test_it_is_stated_verified_registered_reported_and_served(made, capsys):
    run, found = made
    deep = verify.of_run(run, deep=True)
    assert deep.of("failed") == [] and "student: the student follows" in " ".join(deep.of("passed"))
    assert verify.at(run.release).of("failed") == []
    lines = list(ledger.releases(run.ledger))
    assert [line.event.name for line in lines] == ["headcount", "neighbours"]
    stated = found["statement"]["figures"]["data_independent"]["epsilon"]
    assert stated == counts.worst([line.event for line in lines], 1e-5) <= 2.0
    assert "first run on these records" in found["register"]["text"]
    for page in (run.report, run.public_report):
        assert "Each record voted for its own label" in page.read_text()
    student, dataset = Student.load(run.root), open_data(data())
    noisy = np.maximum(methods.values(lines[1])[0], 1)
    inputs = dataset.test.inputs
    np.testing.assert_allclose(student(inputs), np.tile(noisy / noisy.sum(), (len(inputs), 1)), rtol=1e-4)
    for command in ("verify", "report", "budget", "account"):
        assert commands.call(command, run.root) == 0
    assert f"epsilon {stated:.4f}" in capsys.readouterr().out
    again = methods.run("majority", data(), PROMISE, run.root, register=registration._recorded(run))
    assert again["statement"] == found["statement"] and list(ledger.releases(run.ledger)) == lines


def test_its_noise_is_attacked_and_other_attacks_say_what_it_is(made):
    run, seeds = made[0], itertools.count()
    found = mechanism.of_tables(run, Flags(draws=20_000), key=lambda: noise.seeded_key(next(seeds)))
    assert len(found.audits) == 2 and found.holds and every.ATTACKS["mechanism"].unfit(run) is None
    for name in ("canaries", "membership", "twin"):
        said = f"the run of a method in one file, for which there is no attack {name}"
        assert said in every.ATTACKS[name].unfit(run)
    with pytest.raises(PateError, match="no risk of single persons"):
        risk.assess(run)


def test_stopped_at_any_write_it_ends_as_if_nothing_had_been(tmp_path, monkeypatch):
    whole = methods.run("majority", data(), PROMISE, tmp_path / "whole", seed=7)
    writes = [0]

    def dying(real):
        def write(*arguments, **named):
            writes[0] -= 1
            if writes[0] == 0:
                raise KeyboardInterrupt
            return real(*arguments, **named)

        return write

    for name in ("write_json", "write_arrays", "write_bytes", "append_bytes"):
        monkeypatch.setattr(storage, name, dying(getattr(storage, name)))
    for stop in (2, 5, 8, 9, 10, 11, 13):
        writes[0] = stop
        with pytest.raises(KeyboardInterrupt):
            methods.run("majority", data(), PROMISE, tmp_path / "run", seed=7)
    writes[0] = 0
    found = methods.run("majority", data(), PROMISE, tmp_path / "run", seed=7)
    assert found["statement"] == whole["statement"]
    drawn = [
        [line.values for line in ledger.releases(RunDirectory(tmp_path / place).ledger)]
        for place in ("run", "whole")
    ]
    assert drawn[0] == drawn[1]


def edited(run, **changed):
    """A ledger whose table was written anew with other contents."""
    lines = chain.read(run.ledger)
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    for line in (lines[0], {**lines[1], **changed}):
        chain.append(run.ledger, {name: one for name, one in line.items() if name not in chain.OF_THE_CHAIN})


def quieter(run):
    line = chain.read(run.ledger)[1]
    edited(run, event={**line["event"], "sigma": line["event"]["sigma"] / 2})


def stated_lower(run):
    for path in (run.statement, run.public_statement):
        body = json.loads(path.read_text())
        body["figures"]["data_independent"]["epsilon"] /= 2
        storage.write_json(path, "statement", body)


def promised_less(run):
    stages = run.record.stages()
    run.record.revise({"method": {**stages["method"], "promise": {**PROMISE._asdict(), "epsilon": 1.0}}})


EDITS = {
    "other numbers": (lambda run: edited(run, values="1 2 3"), "does not follow from the noise|whole ones"),
    "another table": (lambda run: edited(run, exact="0" * 64), "the records give another table"),
    "less noise": (quieter, "and the method asks"),
    "another question": (lambda run: edited(run, public="elsewhere"), "other public things"),
    "a lower figure": (stated_lower, "statement differs"),
    "a lost line": (lambda run: run.ledger.unlink(), "ledger"),
    "a smaller promise": (promised_less, "and the method asks"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_somebody_changed_is_found(edit, copy):
    change, because = EDITS[edit]
    change(copy)
    failed = verify.of_run(copy).of("failed")
    assert any(re.search(because, one) for one in failed), failed


class Greedy(methods._class("majority")):
    """It asks for less noise than was promised, or counts what has no bound."""

    name = "greedy"
    noise, shape = 1.0, None

    def question(self, public, released):
        return NeighbourCounts(1, public.classes, 1, self.noise)

    def count(self, private: Part, event, released):
        return np.zeros((2, 2)) if self.shape is None else super().count(private, event, released)


@pytest.mark.parametrize(("noise", "said"), [(1.0, "was promised"), (9.0, "wants whole numbers")])
def test_what_would_break_the_promise_is_never_released(noise, said, tmp_path, monkeypatch):
    monkeypatch.setitem(methods._KNOWN, "greedy", f"{__name__}:Greedy")
    monkeypatch.setattr(Greedy, "noise", noise)
    with pytest.raises(PateError, match=said):
        methods.run("greedy", data(), PROMISE, tmp_path / "run", seed=1)
    assert not (tmp_path / "run" / "private" / "ledger.jsonl").exists()


class Peeking(methods._class("majority")):
    """It asks by the number of private records, or counts others than it is given."""

    name, where = "peeking", "question"

    def question(self, public, released):
        if self.where == "question" and len(self.dataset.private.labels) > 10:
            return None
        return super().question(public, released)

    def count(self, private, event, released):
        return super().count(self.dataset.private if self.where == "count" else private, event, released)

    def lesson(self, public, released):
        chosen = self.dataset.private.inputs[:1] if self.where == "lesson" else None
        return super().lesson(public if chosen is None else public._replace(inputs=chosen), released)


@pytest.mark.parametrize("where", ["question", "count", "lesson"])
def test_records_are_given_to_the_count_alone(where, tmp_path, monkeypatch):
    monkeypatch.setitem(methods._KNOWN, "peeking", f"{__name__}:Peeking")
    monkeypatch.setattr(Peeking, "where", where)
    with pytest.raises(PateError, match="private records are read here"):
        methods.run("peeking", data(), PROMISE, tmp_path / "run", seed=1)


@pytest.mark.parametrize("few", [200, 20])
@pytest.mark.parametrize("most", [0, 70])
def test_voters_who_move_a_table_further_than_is_charged_are_found(copy, few, most, monkeypatch):
    """Among all records or a few of them, also where voters do so only beside more than `most` others."""
    real, counted = methods._class("majority").count, []

    def wrong(method, private, *given):
        counted.append(len(private.labels))
        return (1 + (len(private.labels) > most)) * real(method, private, *given)

    monkeypatch.setattr(methods._class("majority"), "count", wrong)
    monkeypatch.setattr(audit_methods, "_FEW", few)
    failed = " ".join(verify.of_run(copy).of("failed"))
    assert "a voter moves it by the square 4, and 1 is charged" in failed  # who is left out
    assert "a voter moves it by the square 8, and 2 is charged" in failed  # and who is another
    assert (sum(each <= 20 for each in counted) > 40) == (few == 20 and most == 0)


def test_an_installed_package_brings_a_method_to_all_commands(made, monkeypatch):
    monkeypatch.delitem(methods._KNOWN, "majority")
    with pytest.raises(PateError, match="is not known here"):
        methods.opened(made[0])
    brought = importlib.metadata.EntryPoint("majority", "majority:Majority", "pate_jax.methods")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [brought])
    assert commands.call("verify", made[0].root) == 0


def test_a_score_which_is_charged_as_of_other_voters_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(methods._KNOWN, "greedy", f"{__name__}:Greedy")
    monkeypatch.setattr(Greedy, "question", lambda *_: Score(50.0))
    with pytest.raises(PateError, match="may ask for a HeadCount"):
        methods.run("greedy", data(), PROMISE, tmp_path / "run", seed=1)


def test_it_is_swept_and_compared(tmp_path):
    promises = [Promise(0.5), Promise(2.0)]
    found = list(methods.over("majority", data(), promises, tmp_path, seed=3))
    figures = [one["statement"]["figures"]["data_independent"]["epsilon"] for one in found]
    assert figures[0] <= 0.5 < figures[1] <= 2.0
    (one,) = contenders.named(["majority"])
    outcome = one.learn(Ground(open_data(data())), Draw(1.0))
    assert len(set(outcome.said.argmax(1).tolist())) == 1 and 0.5 < outcome.epsilon <= 1.0


def test_an_unknown_method_and_another_run_are_refused(made, tmp_path):
    with pytest.raises(PateError, match="is not known here"):
        methods.run("minority", data(), PROMISE, tmp_path / "run")
    with pytest.raises(PateError, match="another kind"):
        methods.run("majority", data(), PROMISE, honest_runs.crowd("sums", "user").root)
    with pytest.raises(PateError, match="promise"):
        methods.run("majority", data(), PROMISE._replace(epsilon=3.0), made[0].root)


KILLED = """
import os, signal, sys
from pathlib import Path
from pate_jax.runs import methods
from pate_jax.runs.settings import DataChoice
from pate_jax.system import storage
methods.add("majority", "majority:Majority")
left = int(sys.argv[1])
def dying(real):
    def write(*arguments, **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **named)
    return write
for name in ("write_json", "write_arrays", "write_bytes", "append_bytes"):
    setattr(storage, name, dying(getattr(storage, name)))
parts = dict(zip(("private", "public", "test"), map(Path, sys.argv[3:6])))
methods.run("majority", DataChoice(**parts), methods.Promise(2.0), Path(sys.argv[2]), register=Path("none"))
"""


@pytest.mark.long
def test_killed_it_goes_on_with_the_same_numbers(tmp_path):
    parts = [str(getattr(data(), name)) for name in ("private", "public", "test")]
    place = os.path.dirname(__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([place, *sys.path])}
    values = []
    for left in (6, 9, 10, 12):
        words = [sys.executable, "-c", KILLED, str(left), str(tmp_path / "run"), *parts]
        assert subprocess.run(words, env=environment, check=False).returncode == -signal.SIGKILL
        now = [line.values for line in ledger.releases(RunDirectory(tmp_path / "run").ledger)]
        assert now[: len(values)] == values
        values = now
    methods.run("majority", data(), Promise(2.0), tmp_path / "run", register=registration.Path("none"))
    run = RunDirectory(tmp_path / "run")
    assert [line.values for line in ledger.releases(run.ledger)][: len(values)] == values
    assert verify.of_run(run, deep=True).of("failed") == []
