"""Votes among real processes over TLS, with and without faults."""

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import small_votes
from small_votes import agree, draw, write

from pate_jax.parties import agreement as agreements
from pate_jax.parties import presence
from pate_jax.parties.agreement import Noise
from pate_jax.parties.connections import Refusal

WAIT = 2.0  # seconds in which those who come find each other, also where all votes are held at once


def hold(forks, folder, agreement, faults=None, own=None):
    """Run a vote and return the exit codes, what was opened, what was said, and what each party brought."""
    own = draw(agreement) if own is None else own
    return (*forks.run(*prepared(folder, agreement, faults or {}, own)), own)


def prepared(folder, agreement, faults, own):
    """The folder of a vote with the files of all parties, and the faults of those who come."""
    write(folder, agreement, own)
    parties = {name: faults.get(name, {}) for name in agreement.names if faults.get(name, {}) is not None}
    return folder, parties


@pytest.fixture(scope="module")
def waited(forks, tmp_path_factory):
    """Votes in which somebody is waited for until the time is over, all held at the same time."""
    stranger, again = small_votes.identity("stranger"), {"present": ["north", "south", "west"]}
    votes = {
        "without south": ((5, 6, 8, 3), {"south": None}),
        "too few": ((5, 6, 8), {"west": None}),
        "repeated": ((5, 6, 8, 3), {"north": again, "west": again, "east": None, "south": None}),
        "wrong key": ((5, 6, 8), {"west": {"key": "wrong.pem"}}),
        "wrong certificate": ((5, 6, 8), {"north": {"agreement": "forged.toml", "key": "wrong.pem"}}),
    }
    jobs, own = [], {}
    for name, (number, faults) in votes.items():
        agreement = agree(votes=number, dropouts=len(number) - 3, seconds=WAIT)
        folder, own[name] = tmp_path_factory.mktemp("waited"), draw(agreement)
        (folder / "wrong.pem").write_text(stranger.key)
        first = dataclasses.replace(agreement.parties[0], certificate=stranger.certificate)
        other = dataclasses.replace(agreement, parties=(first, *agreement.parties[1:]))
        agreements.write(folder / "forged.toml", other)
        jobs.append(prepared(folder, agreement, faults, own[name]))
    found = zip(votes, forks.run_together(jobs), strict=True)
    return {name: (*of_vote, own[name]) for name, of_vote in found}


def refused(found, *, saying, alike=True):
    """Whether all parties that live ended with a sentence that says this, and with the same one."""
    ended, opened, said, _ = found
    by = [name for name, code in ended.items() if code != -9]
    assert [ended[name] for name in by] == [3] * len(by), found
    assert len({said[name] for name in by}) == 1 or not alike, said
    assert all(saying in said[name] for name in by), said
    assert not opened


@pytest.mark.parametrize("voters", ["teachers", "neighbours", "sums"])
def test_the_sum_of_all_is_opened(forks, tmp_path, voters):
    _, opened, _, own = hold(forks, tmp_path, agree(voters=voters, votes=(5, 300, 8)))
    assert opened.keys() == own.keys()
    for found in opened.values():
        np.testing.assert_array_equal(found, sum(counts + noise for counts, noise in own.values()))


def test_only_the_answer_is_opened(forks, tmp_path):
    agreement = agree(queries=60, opened="answers", noise=Noise(4.0, 9.0, 5.0))
    _, opened, _, own = hold(forks, tmp_path, agreement)
    counts, noise, test = (sum(one[i] for one in own.values()) for i in range(3))
    passed = counts.max(1) + test >= 9
    assert 10 < passed.sum() < 50
    for found in opened.values():
        np.testing.assert_array_equal(found, opened["north"])
        np.testing.assert_array_equal(found >= 0, passed)
        chosen = (counts + noise)[np.arange(60), found]
        np.testing.assert_array_equal(chosen[passed], (counts + noise).max(1)[passed])


def test_ties_are_broken_at_random(forks, tmp_path):
    agreement = agree(queries=300, votes=(3, 3, 3), opened="answers", classes=3)
    counts, nothing = np.ones((300, 3), int), np.zeros((300, 3), int)
    own = {name: [counts, nothing] for name in agreement.names}
    _, opened, _, _ = hold(forks, tmp_path, agreement, own=own)
    cells = np.bincount(opened["north"], minlength=3)
    assert cells.sum() == 300
    assert ((cells - 100) ** 2 / 100).sum() < 20.7  # a fair draw exceeds it once in 30,000 times
    _, again, _ = forks.run(tmp_path, {name: {} for name in agreement.names})
    np.testing.assert_array_equal(again["west"], opened["west"])  # or a repeated vote would show the ties


def test_a_vote_goes_on_without_those_who_may_drop_out(waited):
    ended, opened, _, own = waited["without south"]
    assert list(ended.values()) == [0] * 3
    stay = [counts + noise for name, (counts, noise) in own.items() if name != "south"]
    np.testing.assert_array_equal(opened["east"], sum(stay))


def test_too_few_parties_are_refused_when_the_time_is_over(waited):
    found = waited["too few"]
    refused(found, saying=f"west did not come within {WAIT:g} seconds")
    assert "(127.0.0.1:" in found[2]["north"] and ": Connection refused)" in found[2]["north"], found[2]


def test_a_repeated_vote_needs_the_same_parties(waited):
    found = waited["repeated"]
    refused(found, saying="and this repeated vote needs the same parties")
    assert found[2]["west"].startswith(f"south did not come within {WAIT:g} seconds"), found[2]


def test_a_party_that_was_not_there_is_named_where_a_vote_is_repeated():
    hub = SimpleNamespace(agreement=agree(votes=(5, 6, 8, 3), dropouts=1))
    with pytest.raises(Refusal, match="north came, and this vote was begun without"):
        presence._check_missing(hub, [], ("south", "west", "east"))


def test_votes_beyond_the_agreed_number_are_refused_by_name(forks, tmp_path):
    found = hold(forks, tmp_path, agree(), {"south": {"digits": [[0, 10**6]]}})
    refused(found, saying="south sent numbers out of the agreed range")


def test_a_negative_count_is_refused_by_name(forks, tmp_path):
    found = hold(forks, tmp_path, agree(voters="neighbours"), {"west": {"digits": [[3, -1]]}})
    refused(found, saying="west sent numbers out of the agreed range")


def test_counts_that_do_not_add_up_are_refused_by_name(forks, tmp_path):
    agreement = agree()
    own = draw(agreement)
    ones = [[place, 1] for place in range(28)]  # every count of the party becomes odd
    found = hold(forks, tmp_path, agreement, {"north": {"digits": ones}}, own)
    assert (own["north"][0] % 2 == 0).any()
    refused(found, saying="north sent numbers out of the agreed range")


def test_noise_out_of_range_is_refused_by_name(forks, tmp_path):
    found = hold(forks, tmp_path, agree(opened="answers"), {"north": {"digits": [[-1, 2]]}})
    refused(found, saying="north sent numbers out of the agreed range")


def test_what_the_check_cannot_find_is_what_the_page_says(forks, tmp_path):
    """The last of three parties, whose share has weight 1, takes away what it knows to be wrong."""
    agreement = agree()
    liar, own = agreement.parties[-1].name, draw(agreement)
    own[liar][0][0], beyond = [agreement.parties[-1].votes, 0, 0, 0], 10**6
    faults = {liar: {"digits": [[0, beyond]], "lies": liar}}
    ended, opened, said, _ = hold(forks, tmp_path, agreement, faults, own)
    assert set(ended.values()) == {0}, said
    wrong = opened["north"] - sum(counts + noise for counts, noise in own.values())
    assert wrong[0, 0] >= beyond - 1 and not wrong[1:].any()
    page = (Path(__file__).parents[2] / "docs/proofs/parties.md").read_text()
    assert "It does not find a party whose program was\nchanged to lie at the check too." in page


def test_too_few_numbers_are_refused_by_name(forks, tmp_path):
    found = hold(forks, tmp_path, agree(), {"west": {"short": 2}})
    refused(found, saying="west sent numbers out of the agreed range")


def test_what_is_wrong_with_own_numbers_is_told_to_their_owner_alone(forks, tmp_path):
    agreement = agree(seconds=5.0)
    own = draw(agreement)
    own["south"][0][2, 1] += 1
    ended, opened, said, _ = hold(forks, tmp_path, agreement, own=own)
    assert {*ended.values()} == {3}
    assert not opened
    assert str(own["south"][0][2].tolist()) in said["south"]
    for name in ("north", "west"):
        assert said[name].startswith("south left before the vote was over"), said


def test_an_agreement_forged_to_weaker_noise_is_refused_by_all(forks, tmp_path):
    """It is valid by itself, and its holder would add less noise than the others count on.

    Any other agreement is told from this one by its digest, which every field changes (`test_agreement`).
    """
    agreement = agree()
    forged = dataclasses.replace(agreement, noise=Noise(2.9), budget={"outsiders": 99.0})
    agreements.write(tmp_path / "weak.toml", forged)
    assert agreements.read(tmp_path / "weak.toml") == forged != agreement
    found = hold(forks, tmp_path, agreement, {"south": {"agreement": "weak.toml"}})
    refused(found, saying="hold different agreements", alike=False)


def test_a_wrong_key_is_refused(waited):
    ended, _, said, _ = waited["wrong key"]
    assert ended["west"] == 3
    assert "not that of the certificate of west" in said["west"]
    assert "west did not come" in said["north"]


def test_a_wrong_certificate_is_refused(waited):
    ended, _, said, _ = waited["wrong certificate"]
    assert list(ended.values()) == [3] * 3
    assert "hung up on the certificate of north" in said["north"], said
    assert f"north did not come within {WAIT:g} seconds" in said["south"], said


def test_a_second_process_of_a_name_is_refused(forks, tmp_path):
    agreement = agree(seconds=5.0)
    own = draw(agreement)
    write(tmp_path, agreement, own)
    parties = {name: {"pause": 0.4} for name in agreement.names} | {"twin": {"name": "west", "late": 0.2}}
    ended, _, said = forks.run(tmp_path, parties)
    assert ended == {"north": 0, "south": 0, "west": 0, "twin": 3}
    assert "another process of this name" in said["twin"]


@pytest.mark.parametrize("message", [4, 9, 12])
def test_a_killed_party_ends_the_vote_for_all(forks, tmp_path, message):
    found = hold(forks, tmp_path, agree(seconds=5.0), {"south": {"die": message}})
    assert found[0]["south"] == -9
    refused(found, saying="south left before the vote was over")


@pytest.mark.parametrize(("message", "busy", "who"), [(24, 27, "north"), (30, 27, "north"), (22, 22, "west")])
def test_a_busy_party_does_not_blame_one_that_left_for_a_reason(forks, tmp_path, message, busy, who):
    """What is sent to a party that ended fails, and its reason may not have been read by then."""
    agreement = agree(queries=2, classes=3, opened="answers", noise=Noise(4.0, 9.0, 5.0), seconds=5.0)
    found = hold(forks, tmp_path, agreement, {"south": {"die": message}, who: {"busy": busy}})
    refused(found, saying="south left before the vote was over")


@pytest.mark.long
def test_a_silent_party_ends_the_vote_for_all(forks, tmp_path):
    found = hold(forks, tmp_path, agree(seconds=1.5), {"south": {"stop": 9}})
    ended, opened, said, _ = found
    assert {*ended.values()} == {3}
    assert not opened
    assert all("south sent nothing for 1.5 seconds" in said[name] for name in ("north", "west")), said


@pytest.mark.long
@pytest.mark.parametrize("opened", ["counts", "answers"])
def test_a_party_killed_at_any_message(forks, tmp_path, opened):
    """A real SIGKILL at every message of a vote: the others are refused, or have the right numbers."""
    noise = Noise(4.0) if opened == "counts" else Noise(4.0, 9.0, 5.0)
    agreement = agree(queries=2, classes=3, opened=opened, noise=noise, seconds=1.0)
    _, whole, _, own = hold(forks, tmp_path, agreement)
    last = int(np.load(tmp_path / "south.opened.npz")["sealed"])
    outcomes = set()
    for message in range(1, last + 1):
        agreement = agree(queries=2, classes=3, opened=opened, noise=noise, seconds=1.0)
        ended, found, said, _ = hold(forks, tmp_path, agreement, {"south": {"die": message}}, own)
        assert ended.pop("south") == -9
        assert {*ended.values()} <= {0, 3}, (message, said)
        assert all("south" in text for text in said.values()), (message, said)
        if opened == "counts":
            assert all((one == whole["north"]).all() for one in found.values())
        outcomes |= {*ended.values()}
    assert outcomes >= {3}
    assert last > (15 if opened == "counts" else 60)
