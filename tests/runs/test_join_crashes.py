"""`pate party join` as processes over TLS: killed, interrupted, lying, and with a register of runs."""

import re
import shutil

import joins
import numpy as np
import party_files as files
import pytest
import small_votes
from commands import call

from pate_jax.runs import chain, register
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import join, ledger

LINES = ["charge", "begun", "opened"]


class Study:
    """Three parties whose voters have answered, in a folder that can be begun anew."""

    def __init__(self, folder, forks):
        self.folder, self.kept, self.forks = folder / "study", folder / "kept", forks
        self.folder.mkdir()
        files.prepare(self.folder, small_votes.ports(3))
        file = files.agree(self.folder, "neighbours", seconds=4.0)
        with pytest.MonkeyPatch.context() as patch:
            for name in files.NAMES:
                patch.setenv("XDG_STATE_HOME", joins.state_of(self.folder, name))
                join.prepare(files.member(self.folder, name, file)[0])
        shutil.copytree(self.folder, self.kept)

    def begin(self, kept=None):
        shutil.rmtree(self.folder)
        shutil.copytree(kept or self.kept, self.folder)

    def alone(self, fault):
        """The exit code of north, whom nobody else meets."""
        return self.forks.ended(self.folder, {"north": fault})["north"]

    def vote(self, patience=60.0, **faults):
        """The exit code of each party's command."""
        each = {name: {"patience": patience, **faults.get(name, {})} for name in files.NAMES}
        ended = self.forks.ended(self.folder, each)
        return [ended[name] for name in files.NAMES]

    def said(self, name):
        return (self.folder / f"{name}.txt").read_text()

    def lines(self, name):
        book = self.folder / f"run-{name}" / "private" / "ledger.jsonl"
        return [entry["kind"] for entry in chain.read(book)] if book.exists() else []

    def brought(self, name):
        """The different numbers that a party has brought to the sum."""
        file = self.folder / f"{name}.brought"
        return {*file.read_text().split()} if file.exists() else set()

    def table(self, name):
        return ledger.read(RunDirectory(self.folder / f"run-{name}").ledger).table


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    forks = small_votes.Forks(joins.__file__)
    yield Study(tmp_path_factory.mktemp("joins"), forks)
    forks.close()


@pytest.fixture(autouse=True)
def _anew(study, monkeypatch):
    """A folder as it was prepared, on the machine of north."""
    study.begin()
    monkeypatch.setenv("XDG_STATE_HOME", joins.state_of(study.folder, "north"))


def killed_and_repeated(study, fault, code=-9, patience=60.0):
    """North ends early, and all repeat the command: one charge, one ballot, one noise, one result."""
    first = study.vote(patience, north=fault)
    assert first[1] == code, study.said("north")
    opened = [study.table(name) for name in files.NAMES if "opened" in study.lines(name)]
    again = study.vote()
    if 0 in first or again != [0, 0, 0]:  # who has everybody's signature meets nobody again
        assert opened and {*again} <= {0, 2}
    assert_one_vote(study, opened)


def assert_one_vote(study, opened=()):
    """One charge, one ballot, one noise, and one result, which some have opened before."""
    for name in files.NAMES:
        assert len(study.brought(name)) <= 1 and study.lines(name).count("charge") == 1
        assert study.lines(name) == LINES[: len(study.lines(name))]
    tables = [*opened, *(study.table(name) for name in files.NAMES if study.lines(name) == LINES)]
    assert tables and all(np.array_equal(one, tables[0]) for one in tables)


@pytest.mark.parametrize("fault", [{"die": 9}, {"die": 20}, {"call": 40}, {"call": 60, "half": True}])
def test_killed_a_party_repeats_the_vote_with_the_same_numbers(fault, study):
    killed_and_repeated(study, fault, patience=1.0 if "call" in fault else 60.0)  # these die before they meet


@pytest.mark.long
def test_killed_at_any_message(study):
    assert study.vote() == [0, 0, 0]
    messages = int((study.folder / "north.calls").read_text().split()[1])
    assert messages > 15
    for at in range(1, messages):
        study.begin()
        killed_and_repeated(study, {"die": at})


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_killed_at_any_system_call(part, study):
    """In four parts, which processes share. Until north meets the others, these wait for it alike."""
    assert study.vote() == [0, 0, 0]
    calls = int((study.folder / "north.calls").read_text().split()[0])
    study.begin()
    assert study.vote(0.5, north={"call": 0}) == [2, -9, 2]
    waited = shutil.copytree(study.folder, study.folder.with_name(f"waited-{part}"))
    assert study.alone({"patience": 0.0}) == 2
    before = int((study.folder / "north.calls").read_text().split()[0])
    assert 50 < before < calls - 50
    for at in range(part, before, 4):
        study.begin(waited)
        assert study.alone({"patience": 0.0, "call": at, "half": at // 4 % 2 == 1}) == -9
        assert study.vote() == [0, 0, 0]
        assert_one_vote(study)
    for at in range(before - 8 + part, calls, 4):  # giving up, north wrote what it does not where it meets
        study.begin()
        killed_and_repeated(study, {"call": at, "half": at // 4 % 2 == 1})


@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", -15)])
@pytest.mark.parametrize("message", [4, 14])
def test_interrupted_a_party_repeats_the_vote_with_the_same_numbers(signal, code, message, study):
    killed_and_repeated(study, {"die": message, "signal": signal}, code)


LIES = [[[0, 10**6]], [[3, -1]], [[0, 2]], [[-1, 2]], [[0, 2**61 - 3]], [[place, 1] for place in range(36)]]


@pytest.mark.parametrize("digits", LIES, ids=["beyond", "negative", "two", "noise", "wraps", "too many"])
def test_a_party_that_lies_is_named_and_nothing_is_opened(digits, study):
    """Afterwards an honest repeat opens what was promised, which one of the lies shows for all."""
    assert study.vote(west={"digits": digits}) == [2, 2, 2]
    for name in files.NAMES:
        assert "west sent numbers out of the agreed range" in study.said(name)
        assert "nothing was opened" in study.said(name)
        assert study.lines(name) == ["charge", "begun"]
        run = study.folder / f"run-{name}"
        assert not (run / "transcript.json").exists() and not (run / "private" / "answers.npz").exists()
        assert not (run / "release").exists()
    if digits == LIES[0]:
        assert study.vote() == [0, 0, 0]


def begun(book, limit=10.0):
    """A register that may be shared; the one place that knows how it is begun."""
    register.begin(book)
    register.set_limit(book, limit, 1e-5)
    return book


def test_a_party_is_entered_before_it_votes_and_counted_once(study, capsys):
    book = begun(study.folder / "register.jsonl")
    words = {"words": ["--register", str(book)]}
    first = study.vote(1.0, north={**words, "die": 1})  # before anything is sent
    assert first[1] == -9 and study.lines("north") == ["charge"] and spent(book, capsys) > 0
    once = spent(book, capsys)
    assert study.vote(north=words) == [0, 0, 0] and spent(book, capsys) == once
    assert study.vote(north=words) == [0, 0, 0] and spent(book, capsys) == once


def spent(book, capsys):
    """What `pate budget` says that the runs of a register may spend together."""
    capsys.readouterr()
    assert call("budget", "--register", book) == 0
    return max(float(one) for one in re.findall(r"epsilon ([0-9]+\.[0-9]+)", capsys.readouterr().out))


def test_a_limit_stops_a_party_before_anything_is_sent(study):
    book = begun(study.folder / "register.jsonl", limit=0.5)
    assert study.vote(1.0, north={"words": ["--register", str(book)]}) == [2, 2, 2]
    assert "limit of epsilon 0.5" in study.said("north") and "north did not come" in study.said("east")
    assert study.lines("north") == [] and not study.brought("north")
    assert (study.folder / "north.calls").read_text().split()[1] == "0"  # messages


@pytest.mark.long
def test_teachers_of_parties_vote_from_end_to_end(tmp_path, monkeypatch):
    """Each party trains its teachers first, all vote as processes, and a student follows from that alone."""
    forks = small_votes.Forks(joins.__file__)
    monkeypatch.chdir(files.prepare(tmp_path, small_votes.ports(3), voters=6))
    files.agree(tmp_path, "teachers", seconds=20.0)
    for name in files.NAMES:
        own = "--private", f"{name}.npz", "--public", "pool.npz", "--test", "test.npz", "--show-public"
        words = "--key", f"{name}.key.pem", *own, "--out", f"run-{name}"
        assert call("party", "join", "vote.toml", *words, "--prepare") == 0
    votes = [(tmp_path / f"run-{name}/private/votes.npz").read_bytes() for name in files.NAMES]
    assert {*forks.ended(tmp_path, {name: {} for name in files.NAMES}).values()} == {0}
    forks.close()
    assert votes == [(tmp_path / f"run-{name}/private/votes.npz").read_bytes() for name in files.NAMES]
    assert call("party", "student", "run-west") == 0 and (tmp_path / "run-west/release/student").is_dir()
    for words in (["verify", "run-west"], ["verify", "run-west/release"]):
        assert call(*words) == 0
