"""Votes among parties: charged once, before anything is sent, and opened once, alike in all parties."""

import contextlib
import dataclasses
import json
import re
import shutil

import numpy as np
import party_files as files
import pytest
from commands import call

from pate_jax import student
from pate_jax.accounting import parties as accounting
from pate_jax.audit import verify
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.parties import agreement as agreements
from pate_jax.parties import certificates
from pate_jax.runs import chain, plans, register
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import ballot, join, ledger, meeting, terms
from pate_jax.runs.parties.meeting import Transcript


@pytest.fixture(scope="module")
def voted(tmp_path_factory):
    """Three parties have voted as neighbours."""
    folder = files.prepare(tmp_path_factory.mktemp("parties"))
    file = files.agree(folder, "neighbours")
    found = files.vote(folder, file)
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    return folder, file, found


def lines(folder, name):
    return chain.read(folder / f"run-{name}" / "private" / "ledger.jsonl")


def refused(found):
    return " ".join(repr(one) for one in found.values() if isinstance(one, BaseException))


def test_all_parties_end_with_the_same(voted):
    folder, _, found = voted
    shown = [(folder / f"run-{name}" / "transcript.json").read_bytes() for name in files.NAMES]
    assert len({*shown}) == 1
    tables = [ledger.read(RunDirectory(folder / f"run-{name}").ledger).table for name in files.NAMES]
    assert all(np.array_equal(table, tables[0]) for table in tables)
    assert len({one.model_card_line() for one in found.values()}) == 1
    assert [entry["kind"] for entry in lines(folder, "east")] == ["charge", "begun", "opened"]


def test_what_is_opened_is_everybodys_votes_and_noise(voted):
    folder, file, _ = voted
    total = 0
    for name in files.NAMES:
        party, _ = files.member(folder, name, file)
        votes = ballot.cast(party)
        assert votes.sum() <= files.RECORDS * party.vote.votes
        total = total + votes + ballot.shares(party, votes).counts
    assert np.array_equal(total, ledger.read(RunDirectory(folder / "run-west").ledger).table)


def test_the_figures_are_the_accountants(voted):
    folder, file, found = voted
    party, _ = files.member(folder, "east", file)
    wanted = accounting.audiences(party.vote, party.agreement.delta)
    assert found["east"].audiences == wanted and found["east"].worst.name == "one party"
    assert max(one.epsilon for one in wanted) <= 8.0
    assert lines(folder, "east")[0]["audiences"] == {one.name: one.epsilon for one in wanted}


def test_a_repeated_command_sends_nothing_and_charges_nothing(voted):
    folder, file, found = voted
    before = lines(folder, "north")

    def nobody(*_):
        raise AssertionError("a finished vote meets nobody")

    again = files.vote(folder, file, ["north"], opener=nobody)
    assert again["north"] == found["north"] and lines(folder, "north") == before


def test_the_student_learns_from_what_was_opened(tmp_path, monkeypatch):
    """The noise is named by the agreement, whose certificates are new each time: a fixed name fixes it."""
    monkeypatch.setattr(agreements.Agreement, "digest", "5" * 64)
    folder = files.prepare(tmp_path)
    files.vote(folder, files.agree(folder, "neighbours"), seed=5)
    run = RunDirectory(folder / "run-west")
    with run.writing():
        results = join.teach(run, student.Ridge())
        assert join.teach(run, student.Ridge()) == results
    assert results["student_accuracy"] > 0.8 and results["answered"] == results["queries"] == 9
    card = (run.student / "MODEL_CARD.md").read_text()
    assert "against one party" in card and "what 3 parties opened together" in card


def test_an_honest_party_is_verified(voted):
    folder, *_ = voted
    found = verify.verify(RunDirectory(folder / "run-east"))
    assert {*found} >= {"ledger", "transcript", "noise", "statement"}
    assert not any(found.values()), found


# ---- a party that is stopped, and comes back


class Stopped(BaseException):
    """What SIGKILL is to a process."""


def stopping(table, victim, at):
    """The opener of a party, which is stopped at a step of the protocol: of two exchanges, before which."""

    @contextlib.contextmanager
    def opened(agreement, name, key, present=None):
        with files.RoundTable.seat(table, agreement, name, key, present) as seat:
            if name == victim:
                steps, exchange = (
                    iter([*["people"] * len(files.NAMES), "promise", "signature"]),
                    seat.exchange,
                )
                seat.exchange = lambda content: stop(at == next(steps)) or exchange(content)
                seat.sum = seat.sum if at != "sum" else lambda *_: stop(True)
                stop(at == "met")
            yield seat

    return opened


def stop(here):
    if here:
        raise Stopped


@pytest.mark.parametrize(
    ("at", "kinds"),
    [
        ("met", ["charge"]),
        ("promise", ["charge"]),
        ("sum", ["charge", "begun"]),
        ("signature", ["charge", "begun", "opened"]),
    ],
)
def test_a_stopped_vote_goes_on_with_the_same_noise_and_is_charged_once(at, kinds, tmp_path):
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours")
    first = files.vote(folder, file, table_opener=lambda table: stopping(table, "north", at))
    assert all(isinstance(one, BaseException) for one in first.values())
    before = lines(folder, "north")
    assert [entry["kind"] for entry in before] == kinds
    again = files.vote(folder, file)
    assert not refused(again), again
    assert lines(folder, "north")[: len(before)] == before and len(lines(folder, "north")) == 3
    total = 0
    for name in files.NAMES:
        party, _ = files.member(folder, name, file)
        total = total + (votes := ballot.cast(party)) + ballot.shares(party, votes).counts
    assert np.array_equal(total, ledger.read(RunDirectory(folder / "run-east").ledger).table)
    shown = [(folder / f"run-{name}" / "transcript.json").read_bytes() for name in files.NAMES]
    assert len({*shown}) == 1


def test_fresh_noise_in_a_begun_vote_is_refused_by_all(tmp_path):
    """One who lost its files would bring new noise: whoever saw both sums could average it away."""
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours")
    found = files.vote(folder, file)
    for name in files.NAMES:
        book = RunDirectory(folder / f"run-{name}").ledger
        kept = chain.read(book)[:2]
        book.unlink()
        chain.head_path(book).unlink()
        with chain.Writer(book) as writer:
            for entry in kept:
                writer.append({k: v for k, v in entry.items() if k not in chain.OF_THE_CHAIN})
    for name in files.NAMES:  # nothing was published by then
        shutil.rmtree(folder / f"run-{name}" / "release")
    own = {"run-north": "lost", "north.key.votes": "lost.votes"}
    for name, moved in own.items():
        (folder / name).rename(folder / moved)
    again = files.vote(folder, file)
    assert "north brings another ballot or other noise" in refused(again)
    assert all(isinstance(one, BaseException) for one in again.values())
    for name, moved in own.items():
        if (folder / name).exists():  # whether north came so far depends on who was refused first
            (folder / name).rename(folder / f"new-{name}")
        (folder / moved).rename(folder / name)
    assert files.vote(folder, file)["west"] == found["west"]


def test_a_second_run_of_the_same_agreement_is_refused(tmp_path):
    """All parties begin anew in another folder: no ledger there knows of the first sum, but each key does."""
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours")
    assert not refused(files.vote(folder, file))
    for name in files.NAMES:
        (folder / f"run-{name}").rename(folder / f"first-{name}")
    again = files.vote(folder, file)
    assert "this key has voted on this agreement in" in refused(again)
    assert all(isinstance(one, BaseException) for one in again.values())
    assert not any(lines(folder, name) for name in files.NAMES)  # refused before anything is charged
    another = files.agree(folder, "neighbours", "second.toml", vote=2)
    assert not refused(files.vote(folder, another, run="second-{}"))


def test_a_second_agreement_under_a_number_that_is_taken_is_refused(tmp_path, capsys):
    """Two agreements that differ in the time limit alone would open the same votes with other noise."""
    folder = files.prepare(tmp_path)
    assert not refused(files.vote(folder, files.agree(folder, "neighbours")))
    assert "other vote" not in capsys.readouterr().err
    same = files.agree(folder, "neighbours", "longer.toml", seconds=21.0)
    again = files.vote(folder, same, run="second-{}")
    assert all(isinstance(one, PateError) for one in again.values())
    assert "vote=1 among these parties was taken by another agreement, in" in refused(again)
    assert "with --vote 2 and add both costs" in refused(again)
    assert not any((folder / f"second-{name}" / "private" / "ledger.jsonl").exists() for name in files.NAMES)
    with pytest.raises(PateError, match="was taken by another agreement"):
        join.prepare(files.member(folder, "west", same, run="third")[0])
    capsys.readouterr()
    second = files.agree(folder, "neighbours", "second.toml", vote=2)
    assert not refused(files.vote(folder, second, run="second-{}"))
    said = capsys.readouterr().err
    assert "this key has taken part in 1 other vote (" in said and "run-east), and the costs add up" in said
    assert not refused(files.vote(folder, folder / "vote.toml"))  # the first goes on, or is read again


def claimed(tmp_path, *, name="vote.toml", kind="neighbours", **chosen):
    """What east is about to claim, by an agreement of the same cards."""
    folder = tmp_path if (tmp_path / "pool.npz").exists() else files.prepare(tmp_path)
    party, _ = files.member(folder, "east", files.agree(folder, kind, name, **chosen))
    party.run.secret.draw(None)
    return ledger.claim_of(party)


def test_a_key_takes_each_number_among_the_same_parties_once(tmp_path):
    book, first = tmp_path / "votes" / "ledger.jsonl", claimed(tmp_path)
    for _ in range(2):
        ledger.enter(book, first)
    assert ledger.claims(book) == [first] and ledger.others(book, first) == []
    for other in (
        claimed(tmp_path, name="b.toml", seconds=21.0),
        claimed(tmp_path, name="c.toml", epsilon=4.0),
    ):
        with pytest.raises(PateError, match=r"vote=1 among these parties was taken .* with --vote 2 and add"):
            ledger.enter(book, other)
        assert ledger.others(book, other._replace(parties=other.parties[1:])) == [first]
    with pytest.raises(PateError, match="this key has voted on this agreement in"):
        ledger.enter(book, first._replace(run="0" * 64))
    second = claimed(tmp_path, name="d.toml", vote=2)
    ledger.enter(book, second)
    ledger.enter(book, first)
    assert ledger.claims(book) == [first, second] and ledger.others(book, first) == [second]
    with pytest.raises(PateError, match="with --vote 3 and add"):
        ledger.enter(book, claimed(tmp_path, name="e.toml", vote=2, seconds=21.0))


def test_what_a_keys_votes_cost_together_is_said(tmp_path):
    first, user = claimed(tmp_path), claimed(tmp_path, name="c.toml", vote=3, unit="party")
    second = claimed(tmp_path, name="b.toml", vote=2)
    one, both = (plans.together([first.plan] * votes, 1e-5) for votes in (1, 2))
    assert ledger.warning([], second, 1e-5) is None and one < both < 2 * one
    said = ledger.warning([first], second, 1e-5)
    told = [float(figure) for figure in re.findall(r"epsilon ([0-9.]*[0-9])", said)]
    assert told == pytest.approx([one, both], abs=1e-4)
    assert "1 of these protect another unit" in ledger.warning([first, user], second, 1e-5)
    assert "epsilon" not in ledger.warning([user], second, 1e-5)


@pytest.mark.parametrize("claim", [{"kind": None}, {"agreement": "0" * 64}, {"name": "east"}])
def test_a_line_that_is_no_claim_is_refused(claim, tmp_path):
    with chain.Writer(tmp_path / "ledger.jsonl") as writer:
        writer.append({"kind": "claim", **claim})
    with pytest.raises(PateError, match=r"line 1 of .*ledger.jsonl (has kind|takes)"):
        ledger.claims(tmp_path / "ledger.jsonl")


def test_another_ballot_under_the_same_noise_is_refused(voted):
    folder, file, _ = voted
    party, _ = files.member(folder, "east", file)
    shown = ledger.read(party.run.ledger)
    with pytest.raises(PateError, match="shows a charge with another ballot"):
        ledger.charge(chain.Writer(party.run.ledger), shown.charge._replace(ballot="0" * 64))
    with pytest.raises(PateError, match="has opened other numbers"):
        ledger.opened(party.run.ledger, shown.opened.transcript, shown.table + 1)
    with pytest.raises(PateError, match="north is missing"):
        ledger.begin(chain.Writer(party.run.ledger), {name: shown.begun[name] for name in ("east", "west")})


CHARGE = ledger.Charge("a" * 64, "east", 1, "b" * 64, "c" * 64, "record", 1e-5, {"outsiders": 1.0})
PROMISES = {name: letter * 64 for name, letter in zip(files.NAMES, "def", strict=True)}


@pytest.mark.parametrize(
    ("present", "said"),
    [
        (PROMISES | {"north": "0" * 64}, "north brings another ballot or other noise"),
        ({name: PROMISES[name] for name in ("east", "west")}, "and north is missing"),
        (PROMISES | {"south": "0" * 64}, "and south was not there"),
    ],
)
def test_a_begun_vote_keeps_its_company_and_promises(present, said, tmp_path):
    book = tmp_path / "ledger.jsonl"
    for _ in range(2):
        ledger.charge(chain.Writer(book), CHARGE)
        ledger.begin(chain.Writer(book), PROMISES)
    with pytest.raises(PateError, match=said):
        ledger.begin(chain.Writer(book), present)
    assert len(chain.read(book)) == 2


@pytest.mark.parametrize("field", ["ballot", "promise", "agreement"])
def test_a_charge_is_for_one_ballot_and_one_noise(field, tmp_path):
    book = tmp_path / "ledger.jsonl"
    ledger.charge(chain.Writer(book), CHARGE)
    with pytest.raises(PateError, match=f"a charge with another {field}"):
        ledger.charge(chain.Writer(book), CHARGE._replace(**{field: "0" * 64}))
    with pytest.raises(PateError, match="shows no vote that was begun"):
        ledger.opened(book, "0" * 64, np.zeros((1, 2), np.int64))


def test_a_repeated_party_brings_the_same_noise(tmp_path):
    folder = files.prepare(tmp_path)
    party, _ = files.member(folder, "east", files.agree(folder, "neighbours"))
    party.run.secret.draw(None)
    table = np.arange(27).reshape(9, 3)
    first, second = (ballot.shares(party, table).counts for _ in range(2))
    assert np.array_equal(first, second) and ballot.promise(party, table) == ballot.promise(party, table)


def test_noise_differs_between_agreements_and_ballots(voted):
    folder, file, _ = voted
    party, _ = files.member(folder, "east", file)
    votes = ballot.cast(party)
    other = files.agree(folder, "neighbours", file="second.toml", vote=2)
    second, _ = files.member(folder, "east", other)
    first, moved = ballot.shares(party, votes).counts, ballot.shares(party, votes + 1).counts
    assert np.array_equal(first, ballot.shares(party, votes).counts)
    assert not np.array_equal(first, moved)
    assert not np.array_equal(first, ballot.shares(second, votes).counts)


FOUR = (*files.NAMES, "zenith")


def test_a_vote_goes_on_without_a_party_that_may_be_absent_and_stays_without_it(tmp_path):
    folder = files.prepare(tmp_path, names=FOUR)
    file = files.agree(folder, "neighbours", names=FOUR, absent=1)
    found = files.vote(folder, file, files.NAMES)
    assert not refused(found), found
    party, _ = files.member(folder, "east", file)
    total = 0
    for name in files.NAMES:
        one, _ = files.member(folder, name, file)
        total = total + (votes := ballot.cast(one)) + ballot.shares(one, votes).counts
    assert np.array_equal(total, ledger.read(party.run.ledger).table)
    assert party.vote.noise.honest == 2 and [one.shares for one in found["east"].audiences] == [3, 2]
    book = RunDirectory(folder / "run-west").ledger
    promises = {**ledger.read(book).begun, "zenith": "0" * 64}
    with pytest.raises(PateError, match="zenith was not there"):
        ledger.begin(chain.Writer(book), promises)
    assert join._released(party).sigma == pytest.approx(party.vote.noise.share.scale * 3**0.5)


def test_a_prepared_party_is_not_charged_and_votes_as_it_would_have(tmp_path):
    folder = files.prepare(tmp_path)
    party, _ = files.member(folder, "east", files.agree(folder, "neighbours"))
    assert join.prepare(party) == 9 and not party.run.ledger.exists()
    kept = party.run.table.read_bytes()
    ballot.cast(party)
    assert party.run.table.read_bytes() == kept


# ---- refusals before anything is sent


def test_a_budget_that_would_be_exceeded_is_refused(tmp_path):
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours")
    text = file.read_text().replace('"one party" = 8', '"one party" = 1')
    assert text != file.read_text()
    file.write_text(text)
    found = files.vote(folder, file, ["east"], opener=pytest.fail)
    assert "one party may learn epsilon" in refused(found)
    assert not (folder / "run-east").exists()


def test_a_register_adds_votes_up_and_refuses_one_too_many(tmp_path):
    folder, book, met = files.prepare(tmp_path), tmp_path / "register.jsonl", []

    def unexpected(*_):
        raise AssertionError("a vote that no register shows meets nobody")

    register.begin(book)
    register.set_limit(book, 2.5, 1e-5)

    def opener(*_):
        met.append(1)
        raise Stopped

    for number, ends in ((1, Stopped), (2, PateError)):  # each may cost 2.17
        file = files.agree(folder, "neighbours", file=f"vote-{number}.toml", vote=number)
        party, key = files.member(folder, "east", file, run=f"out-{number}")
        with pytest.raises(ends):
            join.join(party, key, opener, book)
    assert met == [1] and not (folder / "out-2" / "private" / "ledger.jsonl").exists()
    (entered,) = register.summary(book, None)["runs"]
    assert entered["plan"]["relation"] == "record" and 2 < entered["epsilon"] < 2.5
    for path in (book, chain.head_path(book)):
        path.unlink()
    party, key = files.member(folder, "east", folder / "vote-1.toml", run="out-1")
    with pytest.raises(PateError, match="is not here: this machine has seen one of 5 lines"):
        join.join(party, key, unexpected)


def test_teachers_of_records_that_are_row_numbers_promise_no_record(tmp_path):
    """Removing the first record would renumber all others, and move votes of many teachers."""
    folder = files.prepare(tmp_path, voters=4)
    with np.load(folder / "east.npz") as file:
        arrays = dict(file)
    numbered = np.array([str(row) for row in range(len(arrays["ids"]))])
    np.savez(folder / "east.npz", **(arrays | {"ids": numbered}))
    file = files.agree(folder, "teachers")
    with pytest.raises(PateError, match="ids of your records are row numbers"):
        join.prepare(files.member(folder, "east", file)[0])
    whole = files.agree(folder, "teachers", "whole.toml", unit="party")
    assert join.prepare(files.member(folder, "east", whole, run="whole")[0]) == 12


def other_pool(folder):
    with np.load(folder / "pool.npz") as pool:
        arrays = {name: pool[name] for name in pool}
    np.savez(folder / "pool.npz", **{**arrays, "inputs": arrays["inputs"] + 1})


def other_questions(folder):
    files.agree(folder, "neighbours", file="other.toml", epsilon=4.0, asked=files.Asked(queries=5))
    (folder / "vote.npz").write_bytes((folder / "other.npz").read_bytes())


def no_questions(folder):
    (folder / "vote.npz").unlink()


def other_key(folder):
    terms.make(folder / "new", "east", "localhost", 7009, 60)[0].replace(folder / "east.key.pem")


def more_records(folder):
    with np.load(folder / "east.npz") as own:
        arrays = {name: np.concatenate([own[name]] * 2) for name in own}
    arrays["ids"] = np.array([f"east-{7 * row % 120:03d}y" for row in range(120)])
    np.savez(folder / "east.npz", **arrays)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (other_pool, "your public pool is not that of the agreement"),
        (other_questions, "holds other questions than the agreement names"),
        (no_questions, "vote.npz does not exist"),
        (other_key, "the key belongs to none of the parties"),
        (more_records, "has more voters than the 60 of its card"),
    ],
)
def test_what_does_not_fit_the_agreement_is_refused(change, said, tmp_path):
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours")
    change(folder)
    found = files.vote(folder, file, ["east"], opener=pytest.fail)
    assert said in refused(found), found


def test_a_party_has_records_of_its_own(tmp_path):
    with pytest.raises(PateError, match="a party has records of its own"):
        join.check_own(files.DataChoice("mnist"))


def test_cards_and_keys_are_not_overwritten(tmp_path):
    key, card = terms.make(tmp_path, "north", "localhost", 7001, 80)
    assert key.stat().st_mode & 0o077 == 0 and "PRIVATE" not in card.read_text()
    with pytest.raises(PateError, match="a party keeps its key"):
        terms.make(tmp_path, "north", "localhost", 7001, 80)
    with pytest.raises(PateError, match="port of south"):
        terms.make(tmp_path, "south", "localhost", 0, 80)
    assert not (tmp_path / "south.key.pem").exists()


def test_the_commands_make_cards_and_an_agreement(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(files.prepare(tmp_path))
    for place, name in enumerate(files.NAMES):
        card = "--voters", files.RECORDS, "--port", 7101 + place, "--out", "new"
        assert call("party", "certificate", name, *card) == 0
    assert "keep it; whoever has it can take part as west" in capsys.readouterr().out
    shown = "--cards", *(f"new/{name}.card.json" for name in files.NAMES)
    own = "--private", "east.npz", "--public", "pool.npz"
    given = *shown, *own, "--voters", "neighbours", "--queries", 9, "--epsilon", 8
    assert call("party", "init", "vote.toml", *given) == 0
    out = capsys.readouterr().out
    assert "outsiders" in out and "one party" in out and "vote.toml and vote.npz: give both" in out
    assert call("party", "init", "vote.toml", *given) == 2
    assert "others may have it already" in capsys.readouterr().err
    joined = "--key", "east.key.pem", *own, "--out", "run"  # the key of another card
    assert call("party", "join", "vote.toml", *joined) == 2
    assert "the key belongs to none of the parties" in capsys.readouterr().err
    assert call("party", "student", "run") == 2 and not (tmp_path / "run" / "release").exists()


# ---- transcripts


def signed(folder, agreement, **changes):
    table = np.arange(6).reshape(2, 3)
    found = Transcript(agreement.digest, 1, dict.fromkeys(files.NAMES, "ab" * 32), table)
    found = found._replace(**changes)
    keys = {name: (folder / f"{name}.key.pem").read_text() for name in found.promises}
    return found, {name: certificates.sign(keys[name], found.digest.encode()) for name in keys}


def test_a_missing_signature_is_refused(tmp_path):
    folder = files.prepare(tmp_path)
    agreement = agreements.read(files.agree(folder, "neighbours"))
    found, signatures = signed(folder, agreement)
    meeting.save(tmp_path / "t.json", found, signatures | {"west": b""})
    with pytest.raises(PateError, match="west has not signed"):
        meeting.load(tmp_path / "t.json", agreement)


def test_a_transcript_is_read_as_it_was_signed(voted, tmp_path):
    folder, file, _ = voted
    agreement = agreements.read(file)
    found, signatures = signed(folder, agreement)
    meeting.save(tmp_path / "t.json", found, signatures)
    again = meeting.load(tmp_path / "t.json", agreement)
    assert again.digest == found.digest and np.array_equal(again.opened, found.opened)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda body: body.update(opened="1 1 2 3 4 5"), "or was changed"),
        (lambda body: body["signatures"].update(north=body["signatures"]["east"]), "north has not signed"),
        (lambda body: body["signatures"].pop("west"), "west has not signed"),
        (lambda body: body.update(agreement="0" * 64), "of another agreement"),
        (lambda body: body.update(rows=7), "7 x 3"),
        (lambda body: body.pop("promises"), "is no transcript"),
    ],
)
def test_a_changed_transcript_is_refused(edit, said, voted, tmp_path):
    folder, file, _ = voted
    meeting.save(tmp_path / "t.json", *signed(folder, agreements.read(file)))
    body = json.loads((tmp_path / "t.json").read_text())
    edit(body)
    (tmp_path / "t.json").write_text(json.dumps(body))
    with pytest.raises(PateError) as refused:
        meeting.load(tmp_path / "t.json", agreements.read(file))
    assert said in str(refused.value)


def test_a_party_that_missed_the_end_takes_the_result_from_another(voted):
    folder, file, found = voted
    run = RunDirectory(folder / "run-north")
    book, kept = run.ledger, chain.read(run.ledger)[:2]
    book.unlink()
    chain.head_path(book).unlink()
    with chain.Writer(book) as writer:
        for entry in kept:
            writer.append({k: v for k, v in entry.items() if k not in chain.OF_THE_CHAIN})
    (run.root / "transcript.json").unlink()
    party, _ = files.member(folder, "north", file)
    assert join.receive(party, folder / "run-east" / "transcript.json") == found["north"]
    assert not any(verify.verify(run).values())


# ---- the other voters, and answers alone


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [("teachers", {"opened": "answers", "threshold": 9.0}), ("teachers", {}), ("sums", {})],
)
@pytest.mark.long
def test_other_voters_vote_too(kind, chosen, tmp_path):
    folder = files.prepare(tmp_path, voters=6 if kind == "teachers" else files.RECORDS)
    file = files.agree(folder, kind, **chosen)
    found = files.vote(folder, file)
    assert not refused(found), found
    run = RunDirectory(folder / "run-west")
    with run.writing():
        results = join.teach(run, student.Linear() if kind == "sums" else student.Auto())
    assert results["student_accuracy"] > 0.6
    assert not any(verify.verify(run).values())


def test_answers_alone_are_kept_with_their_refusals(tmp_path):
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours", opened="answers", threshold=10.0, epsilon=16.0)
    found = files.vote(folder, file)
    assert not refused(found), found
    party, _ = files.member(folder, "east", file)
    table = ledger.read(party.run.ledger).table
    assert table.shape == (9, 1) and found["east"].answered == (table >= 0).sum()
    given = join.lesson(party, ballot.open_dataset(party))
    assert isinstance(given.asked, Part) and np.asarray(given.answers.answered).sum() == (table >= 0).sum()


@pytest.mark.parametrize("at", ["met", "promise", "signature"])
def test_a_begun_vote_with_a_threshold_is_not_repeated(at, tmp_path):
    """Its test has no noise between classes, so repeats with other own numbers would show exact counts."""
    folder = files.prepare(tmp_path)
    file = files.agree(folder, "neighbours", opened="answers", threshold=10.0, epsilon=16.0)
    files.vote(folder, file, table_opener=lambda table: stopping(table, "north", at))
    before = {name: lines(folder, name) for name in files.NAMES}
    again = files.vote(folder, file)
    if at == "signature":
        assert all("one with a threshold is not repeated" in str(one) for one in again.values())
        assert {name: lines(folder, name) for name in files.NAMES} == before
    else:
        assert not refused(again), again


def test_what_is_said_of_training_changes_no_figure(tmp_path):
    """Of two classes the worst case of an answer costs less, and the table has three."""
    folder = files.prepare(tmp_path)
    party, _ = files.member(folder, "east", files.agree(folder, "neighbours", opened="answers"))
    other = dataclasses.replace(party.agreement, training={**party.agreement.training, "classes": 2})
    assert terms.vote_of(other, party.questions) == terms.vote_of(party.agreement, party.questions)
    assert terms.vote_of(other, party.questions).classes == 3


def test_an_agreement_is_as_loud_as_its_epsilon_allows(tmp_path):
    folder = files.prepare(tmp_path)
    for epsilon in (1.0, 4.0):
        file = files.agree(folder, "neighbours", file=f"e{epsilon:g}.toml", epsilon=epsilon)
        party, _ = files.member(folder, "east", file)
        audiences = terms.audiences(party.agreement, party.questions)
        assert max(one.epsilon for one in audiences) <= epsilon * (1 + 1e-9)
