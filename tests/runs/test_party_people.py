"""Whoever is with two parties is noticed before a vote, and nobody sees who it is."""

import threading

import numpy as np
import party_files as files
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_session import Room

from pate_jax.errors import PateError
from pate_jax.parties import agreement as agreements
from pate_jax.parties import hidden_ids
from pate_jax.runs.parties import ballot, meeting


def with_ids(folder, name, change):
    """The file of a party whose ids are changed."""
    with np.load(folder / f"{name}.npz") as own:
        arrays = {key: own[key] for key in own}
    np.savez(folder / f"{name}.npz", **arrays | {"ids": change(arrays["ids"].astype("<U20"))})


def share(ids):
    ids[:3] = ["one", "two", "three"]
    return ids


def test_people_of_two_parties_stop_the_vote_before_it_is_begun(tmp_path):
    folder = files.prepare(tmp_path)
    for name in ("east", "west"):
        with_ids(folder, name, share)
    found = files.vote(folder, files.agree(folder, "neighbours"))
    assert all(isinstance(one, BaseException) for one in found.values())
    assert any("east and west have 3 record ids in common" in str(one) for one in found.values()), found
    for name in files.NAMES:
        assert '"begun"' not in (folder / f"run-{name}" / "private" / "ledger.jsonl").read_text()
    found = files.vote(
        folder, files.agree(folder, "neighbours", file="b.toml", people="unchecked"), run="b-{}"
    )
    assert all("if nobody is with two parties" in one.model_card_line() for one in found.values())


def test_row_numbers_are_not_compared_and_all_are_told(tmp_path, capsys):
    folder = files.prepare(tmp_path)
    for name in ("east", "west"):
        with_ids(folder, name, lambda ids: np.arange(len(ids)).astype(str))
    found = files.vote(folder, files.agree(folder, "neighbours"))
    assert not [one for one in found.values() if isinstance(one, BaseException)], found
    assert capsys.readouterr().err.count("the ids of east, west are row numbers") == 3


def all_lists(held):
    """What each of three parties has in the end, by their ids, and everything that was shown."""
    agreement = type("Terms", (), {"seconds": 60.0, "names": files.NAMES, "digest": "0" * 64})()
    table, found, shown = Room(agreement), {}, []

    def one(name):
        with table.open(name) as met:
            exchange = met.exchange
            met.exchange = lambda content: shown.append(content) or exchange(content)
            points = hidden_ids.padded(hidden_ids.points(sorted(held[name]), b"here"), 8)
            found[name] = meeting._around(met, name, points, dict.fromkeys(files.NAMES, 8))

    threads = [threading.Thread(target=one, args=[name]) for name in files.NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, shown


@given(st.lists(st.sets(st.sampled_from("abcdefgh")), min_size=3, max_size=3))
@settings(max_examples=25, deadline=None)
def test_the_numbers_in_common_are_right_and_the_only_thing_to_see(sets):
    held = dict(zip(files.NAMES, sets, strict=True))
    found, shown = all_lists(held)
    assert found["east"] == found["north"] == found["west"]
    lists = found["east"]
    for first in files.NAMES:
        assert len(lists[first]) == len({*lists[first]}) == 8 and lists[first] == sorted(lists[first])
        for second in files.NAMES:
            if first != second:
                assert len({*lists[first]} & {*lists[second]}) == len(held[first] & held[second])
    assert {len(one) for one in shown} == {8 * hidden_ids.SIZE}
    plain = {point for ids in sets for point in hidden_ids.points(ids, b"here")}
    assert not any(point in one for point in plain for one in shown)


def test_a_number_of_voters_is_not_shown(tmp_path):
    folder = files.prepare(tmp_path, voters=70)
    member, _ = files.member(folder, "east", files.agree(folder, "neighbours"))
    assert len(ballot.open_dataset(member).private.ids) == 60 and len(meeting.own_ids(member)) == 70


class Guesser:
    """A meeting in which east sends this many hidden ids."""

    present = files.NAMES

    def __init__(self, number):
        self.number, self.turns = number, 0

    def exchange(self, content):
        self.turns += 1
        guesses = b"".join(hidden_ids.points(map(str, range(self.number)), b""))
        return dict.fromkeys(self.present, content) | {"east": guesses}


@pytest.mark.parametrize("number", [69, 71, 500])
def test_nobody_tries_more_ids_than_it_has_people(tmp_path, number):
    """Before its list is hidden by others: afterwards it would know which of its guesses are with whom."""
    folder = files.prepare(tmp_path, voters=70)
    member, _ = files.member(folder, "west", files.agree(folder, "neighbours"))
    guesser = Guesser(number)
    with pytest.raises(PateError, match=f"east sends {number} hidden ids, and by its card it has 70"):
        meeting.compare_people(guesser, member)
    assert guesser.turns == 1


def test_points_that_hide_nothing_are_refused():
    with pytest.raises(PateError, match="points that hide nothing"):
        hidden_ids.Blinder().raised([bytes(32)])


def test_the_agreement_says_whether_people_are_compared(tmp_path):
    file = files.agree(files.prepare(tmp_path), "neighbours")
    agreement = agreements.read(file)
    assert agreement.people == "compared"
    with pytest.raises(PateError, match="people='some' must be one of compared, unchecked"):
        agreements.parse(agreements.text(agreement).replace('"compared"', '"some"'))
