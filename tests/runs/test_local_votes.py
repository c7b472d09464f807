"""Votes with local noise by the commands: files, ledgers, late parties, crashes and bad input."""

import json
import shutil

import numpy as np
import pytest
from commands import call
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import voting
from pate_jax.accounting import local as figures
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import chain
from pate_jax.runs.local import ballot, terms
from pate_jax.system import storage

QUESTIONS, CLASSES = 12, 3


def votes_file(path, voters, seed=0, questions=QUESTIONS, accuracy=0.9, ids=True):
    true = np.random.default_rng(99).integers(0, CLASSES, questions)
    random = np.random.default_rng(seed)
    labels = np.where(
        random.random((voters, questions)) < accuracy,
        true,
        random.integers(0, CLASSES, (voters, questions)),
    )
    counts = np.stack([(labels == each).sum(axis=0) for each in range(CLASSES)], axis=1)
    named = np.array([f"q{i}" for i in range(questions)]) if ids else None
    voting.save_votes(path, voting.Votes(counts.astype(np.int32), labels.astype(np.int16), named))
    return path, true


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.json"
    flags = ["--classes", CLASSES, "--questions", QUESTIONS, "--voters", 90, "--budget", 8]
    assert call("local", "plan", path, *flags) == 0
    return path


def cast(tmp_path, plan, party="a", voters=30, seed=0, **settings):
    votes, true = votes_file(tmp_path / f"{party}.votes.npz", voters, seed)
    out = tmp_path / f"{party}.npz"
    made = ballot.vote(plan, votes, party=party, folder=tmp_path / party, out=out, **settings)
    return out, made, true


@pytest.mark.parametrize("mechanism", ["randomised-response", "one-hot"])
def test_parties_vote_by_commands_and_anybody_counts(tmp_path, capsys, mechanism):
    plan = tmp_path / "plan.json"
    flags = ["--classes", CLASSES, "--questions", QUESTIONS, "--voters", 90, "--budget", 8]
    assert call("local", "plan", plan, *flags, "--mechanism", mechanism) == 0
    files = []
    for seed, party in enumerate(("a", "b", "late")):
        votes, true = votes_file(tmp_path / f"{party}.votes.npz", 30, seed)
        files.append(tmp_path / f"{party}.npz")
        where = ["--party", party, "--ledger", tmp_path / party, "--out", files[-1]]
        assert call("local", "vote", plan, votes, *where) == 0
    capsys.readouterr()
    for part in (files[:2], files):  # a party that comes later changes nothing for the others
        assert call("local", "count", plan, *part, "--out", tmp_path / "counted.npz", "--json") == 0
        assert json.loads(capsys.readouterr().out)["parties"] == {path.stem: 30 for path in part}
    found = storage.read_arrays(tmp_path / "counted.npz", ballot.COUNTED)
    agreed = terms.read(plan)
    assert found["voters"].sum() == 90 * agreed.answers_each
    assert np.ptp(found["voters"]) <= 3  # one for each party: its voters are spread evenly
    assert (found["answers"] == true).mean() > 0.9
    assert abs(found["estimates"].sum() - found["voters"].sum()) < 60


def test_what_leaves_a_party_is_noisy_and_its_private_votes_do_not_leave(tmp_path, plan):
    out, made, _ = cast(tmp_path, plan, voters=300)
    labels = voting.load_votes(tmp_path / "a.votes.npz").teacher_labels
    arrays = storage.read_arrays(out, ballot.SENT)
    assert set(arrays) == {"plan", "party", "queries", "sent"}
    asked = terms.asked(terms.read(plan), "a", 300, made.answers)
    same = (np.take_along_axis(labels.astype(int), asked, axis=1) == arrays["sent"]).mean()
    keep = np.exp(terms.read(plan).mechanism.epsilon)
    keep /= keep + CLASSES - 1
    assert abs(same - keep) < 4.5 * np.sqrt(keep * (1 - keep) / asked.size)


def test_repeating_the_command_gives_the_same_answers_and_charges_once(tmp_path, plan):
    out, first, _ = cast(tmp_path, plan)
    content = out.read_bytes()
    out.unlink()
    out, second, _ = cast(tmp_path, plan)
    assert out.read_bytes() == content
    assert second.repeated and not first.repeated and second.spent == first.spent <= 8.0
    assert len(chain.read(tmp_path / "a" / "ledger.jsonl")) == 1


def test_an_older_ledger_gets_the_same_answers_and_shows_them_again(tmp_path, plan):
    """A ledger that was restored from a backup does not know what has left: the folder does."""
    out, first, _ = cast(tmp_path, plan)
    content, ledger = out.read_bytes(), tmp_path / "a" / "ledger.jsonl"
    for path in (ledger, chain.head_path(ledger)):
        path.unlink()
    other = tmp_path / "other.json"
    terms.write(
        other,
        figures.plan("one-hot", classes=3, questions=12, voters=90, budget=2.0),
        questions=12,
        voters=90,
        budget=2.0,
        delta=0.0,
    )
    with pytest.raises(PateError, match="no charge for"):  # or the budget would be spent twice
        cast(tmp_path, other)
    with pytest.raises(PateError, match="30 voters of 'a'"):
        cast(tmp_path, plan, voters=29)
    assert not ledger.exists()
    out, again, _ = cast(tmp_path, plan)
    assert out.read_bytes() == content and again.spent == first.spent
    assert len(chain.read(ledger)) == 1


def test_a_folder_that_was_restored_as_a_whole_draws_the_same_answers(tmp_path):
    """A backup that is older than a vote knows nothing of its answers, which have left."""
    agreed = [
        terms.Terms(local.RandomisedResponse(CLASSES, epsilon), QUESTIONS, 2, 2 * epsilon, 0.0, "v", 90)
        for epsilon in (1.0, 2.0)
    ]
    plans = [tmp_path / f"{one.budget:g}.json" for one in agreed]
    for path, one in zip(plans, agreed, strict=True):
        storage.write_json(path, terms.KIND, to_dict(one))
    cast(tmp_path, plans[0], voters=300, budget=6.0)
    shutil.copytree(tmp_path / "a", tmp_path / "backup")
    out, made, _ = cast(tmp_path, plans[1], voters=300)
    assert made.spent == made.budget == 6.0
    before = storage.read_arrays(out, ballot.SENT)["sent"]

    def restored(seed):
        shutil.rmtree(tmp_path / "a")
        shutil.copytree(tmp_path / "backup", tmp_path / "a")
        out, _, _ = cast(tmp_path, plans[1], voters=300, seed=seed)
        return storage.read_arrays(out, ballot.SENT)["sent"]

    np.testing.assert_array_equal(restored(0), before)
    assert (restored(1) != before).any()  # no noise serves two answers


FEW = st.lists(st.tuples(st.integers(0, 24), st.integers(0, QUESTIONS - 1)), min_size=1, max_size=4)


@pytest.mark.parametrize("kind", [local.RandomisedResponse, local.OneHotNoise])
@given(changed=FEW)
def test_in_a_restored_folder_only_a_changed_answer_draws_other_noise(tmp_path_factory, kind, changed):
    """Or an observer of both files would have two draws of each answer that did not change."""
    folder = tmp_path_factory.mktemp("restored")
    agreed = terms.Terms(kind(CLASSES, 0.5), QUESTIONS, QUESTIONS, 6.0, 0.0, "v", 25)
    storage.write_json(folder / "plan.json", terms.KIND, to_dict(agreed))
    cast(folder, folder / "plan.json", voters=25)  # makes the secret
    labels = np.random.default_rng(3).integers(0, CLASSES, (25, QUESTIONS))
    other = labels.copy()
    for voter, question in changed:
        other[voter, question] = (labels[voter, question] + 1) % CLASSES

    def sent(labels):
        for path in (folder / "a").glob("*"):  # all but the secret, as if it were restored
            if path.name != "keys.json":
                path.unlink()
        counts = np.stack([(labels == each).sum(axis=0) for each in range(CLASSES)], axis=1)
        votes = voting.Votes(counts.astype(np.int32), labels.astype(np.int16))
        voting.save_votes(folder / "v.npz", votes)
        given = {"party": "a", "folder": folder / "a", "out": folder / "a.npz"}
        made = ballot.vote(folder / "plan.json", folder / "v.npz", **given)
        asked = terms.asked(agreed, "a", 25, made.answers)
        return storage.read_arrays(folder / "a.npz", ballot.SENT)["sent"], asked

    (first, asked), (again, _) = sent(labels), sent(other)
    same = np.take_along_axis(labels == other, asked, axis=1)
    np.testing.assert_array_equal(first[same], again[same])


def test_a_voter_that_answers_as_another_has_noise_of_its_own(tmp_path):
    agreed = terms.Terms(local.RandomisedResponse(CLASSES, 0.5), 1, 1, 1.0, 0.0, "v", 300)
    storage.write_json(tmp_path / "plan.json", terms.KIND, to_dict(agreed))
    labels = np.zeros((300, 1), np.int16)
    voting.save_votes(tmp_path / "v.npz", voting.Votes(np.array([[300, 0, 0]], np.int32), labels))
    given = {"party": "a", "folder": tmp_path / "a", "out": tmp_path / "a.npz"}
    ballot.vote(tmp_path / "plan.json", tmp_path / "v.npz", **given)
    assert len(np.unique(storage.read_arrays(tmp_path / "a.npz", ballot.SENT)["sent"])) == CLASSES


def test_delta_stands_beside_epsilon_and_is_at_most_one_over_the_voters(tmp_path, capsys):
    flags = ["--classes", CLASSES, "--questions", QUESTIONS, "--voters", 90, "--budget", 0.5]
    for delta in (0.9999, 0.012):
        assert call("local", "plan", tmp_path / "no.json", *flags, "--delta", delta) == 2
        said = capsys.readouterr().err
        assert f"delta={delta:g}" in said and "90 voters" in said and "--delta 0.001 or less" in said
    plan = tmp_path / "plan.json"
    assert call("local", "plan", plan, *flags, "--delta", 0.01) == 0
    assert "epsilon 0.5 at delta 0.01" in capsys.readouterr().out
    votes, _ = votes_file(tmp_path / "v.npz", 90)
    where = ["--party", "a", "--ledger", tmp_path / "a", "--out", tmp_path / "a.npz"]
    assert call("local", "vote", plan, votes, *where) == 0
    assert capsys.readouterr().out.count("at delta 0.01") == 2
    assert call("local", "vote", plan, votes, *where, "--json") == 0
    assert json.loads(capsys.readouterr().out)["delta"] == 0.01


def test_a_party_of_more_voters_than_one_over_delta_is_refused(tmp_path):
    agreed = terms.Terms(local.RandomisedResponse(CLASSES, 1.0), QUESTIONS, 1, 1.0, 0.05, "v", 20)
    storage.write_json(tmp_path / "plan.json", terms.KIND, to_dict(agreed))
    assert cast(tmp_path, tmp_path / "plan.json", voters=20)[1].delta == 0.05
    with pytest.raises(PateError, match=r"delta=0.05 of .* over its 21 voters"):
        cast(tmp_path, tmp_path / "plan.json", party="b", voters=21)
    assert not (tmp_path / "b.npz").exists()
    body = to_dict(agreed)
    for change in ({"delta": 0.9999}, {"voters": 21}, {"voters": 0}):
        storage.write_json(tmp_path / "other.json", terms.KIND, body | change)
        with pytest.raises(PateError, match=r"delta=|voters=0"):
            terms.read(tmp_path / "other.json")


@pytest.mark.parametrize("step", ["charge", "out"])
def test_a_crash_between_drawing_charging_and_giving_never_charges_twice(tmp_path, plan, monkeypatch, step):
    class Killed(Exception):
        pass

    def killed(*_, **__):
        raise Killed

    votes, _ = votes_file(tmp_path / "a.votes.npz", 30)
    settings = {"party": "a", "folder": tmp_path / "a", "out": tmp_path / "a.npz"}
    with monkeypatch.context() as patch:
        if step == "charge":
            patch.setattr(chain.Writer, "append", killed)
        else:
            write = storage.write_bytes
            patch.setattr(
                storage,
                "write_bytes",
                lambda path, *more, **flags: (killed if path == settings["out"] else write)(
                    path, *more, **flags
                ),
            )
        with pytest.raises(Killed):
            ballot.vote(plan, votes, **settings)
    assert not (tmp_path / "a.npz").exists()  # what is not charged has not left
    made = ballot.vote(plan, votes, **settings)
    assert made.repeated == (step == "out") and made.spent == 8.0
    assert len(chain.read(tmp_path / "a" / "ledger.jsonl")) == 1


def test_a_smaller_budget_takes_fewer_questions_and_is_just_as_loud(tmp_path):
    plan = tmp_path / "plan.json"
    agreed = terms.Terms(local.RandomisedResponse(CLASSES, 2.0), QUESTIONS, 4, 8.0, 0.0, "v", 90)
    storage.write_json(plan, terms.KIND, to_dict(agreed))
    whole, small = (cast(tmp_path, plan, party, budget=budget) for party, budget in (("a", 8.0), ("b", 5.0)))
    assert whole[1].answers == 4 and small[1].answers == 2
    assert small[1].spent == 4.0  # two answers of the same epsilon
    found = ballot.count(plan, [whole[0], small[0]])
    assert found.voters.sum() == 30 * 4 + 30 * 2
    with pytest.raises(PateError, match="does not afford one answer of epsilon 2"):
        cast(tmp_path, plan, "c", budget=1.5)
    assert not (tmp_path / "c" / "ledger.jsonl").exists() and not (tmp_path / "c.npz").exists()


def test_a_ledger_adds_up_all_votes_and_refuses_what_exceeds_its_budget(tmp_path):
    agreed = terms.Terms(local.RandomisedResponse(CLASSES, 2.0), QUESTIONS, 2, 5.0, 0.0, "v0", 90)
    plans = []
    for number in range(3):
        plans.append(tmp_path / f"plan{number}.json")
        storage.write_json(plans[-1], terms.KIND, to_dict(agreed._replace(vote=f"v{number}")))
    first, second = (cast(tmp_path, plans[at], budget=7.0)[1] for at in (0, 1))
    assert (first.answers, first.spent, second.answers, second.spent) == (2, 4.0, 1, 6.0)
    assert second.budget == 7.0 and second.plain == 6.0 and second.whole_party == 30 * 6.0  # of thirty voters
    with pytest.raises(PateError, match="of which 6 is spent, does not afford"):
        cast(tmp_path, plans[2])
    with pytest.raises(PateError, match="not the one that this ledger fixed, 7"):
        cast(tmp_path, plans[2], budget=70.0)
    assert len(chain.read(tmp_path / "a" / "ledger.jsonl")) == 2


def test_with_a_delta_many_answers_cost_less_than_their_plain_sum(tmp_path):
    agreed = terms.Terms(local.OneHotNoise(CLASSES, 0.05), QUESTIONS, 12, 1.0, 1e-5, "v", 90)
    storage.write_json(tmp_path / "plan.json", terms.KIND, to_dict(agreed))
    made = cast(tmp_path, tmp_path / "plan.json", voters=40)[1]
    assert made.answers == 12 and made.spent <= made.plain == pytest.approx(0.6)
    assert made.plain < made.whole_party < 40 * made.plain / 3


def test_the_questions_of_voters_are_fixed_by_public_names_and_spread_evenly(plan):
    agreed = terms.read(plan)
    for answers in (1, 5, QUESTIONS):
        asked = terms.asked(agreed, "a", 24, answers)
        assert all(len(set(row)) == answers for row in asked.tolist())
        assert np.ptp(np.bincount(asked.ravel(), minlength=QUESTIONS)) <= 1
        assert np.array_equal(asked[:5], terms.asked(agreed, "a", 5, answers))
    starts = {int(terms.asked(agreed, f"party {i}", 1, 1)[0, 0]) for i in range(40)}
    assert len(starts) > 6


def test_bad_ballots_are_refused_by_name(tmp_path, plan):
    def refused(message, *files):
        with pytest.raises(PateError, match=message):
            ballot.count(plan, files)

    good, _, _ = cast(tmp_path, plan)
    arrays = storage.read_arrays(good, ballot.SENT)
    bad = tmp_path / "bad.npz"
    cases = {
        "belongs to another plan": {"plan": np.array("0" * 64)},
        "holds 0 to 1000000 where 0 to 2": {"sent": np.where(arrays["sent"] > 0, 10**6, 0)},
        "where 0 to 2 can be sent": {"sent": arrays["sent"].astype(int) - 5},
        "questions of this plan": {"sent": np.zeros((30, QUESTIONS), int)},
        "sent has shape": {"sent": np.zeros((0, 1), int)},
        "answers other questions": {"queries": np.array("x"), "party": np.array("b")},
        "plan, party, queries and sent are wanted": {"more": np.zeros(3)},
    }
    for message, change in cases.items():
        storage.write_arrays(bad, ballot.SENT, {**arrays, **change})
        refused(message, good, bad)
    refused("second file of 'a'", good, good)
    refused("is not a local-answers file", tmp_path / "a.votes.npz")


def test_bad_votes_and_names_are_refused_before_anything_is_charged(tmp_path, plan):
    few, _ = votes_file(tmp_path / "few.npz", 5, questions=4)
    counts = tmp_path / "counts.npz"
    voting.save_votes(counts, voting.Votes(np.full((QUESTIONS, CLASSES), 2, np.int32)))
    folder = tmp_path / "ledger"
    for votes, party, message in (
        (few, "a", "answers 4 questions"),
        (counts, "a", "teacher_labels"),
        (few, "", "party=''"),
        (few, "x" * 101, "1 to 100 printable"),
    ):
        with pytest.raises(PateError, match=message):
            ballot.vote(plan, votes, party=party, folder=folder, out=tmp_path / "o", budget=None)
    assert not folder.exists()
    votes, _ = votes_file(tmp_path / "v.npz", 6)
    ballot.vote(plan, votes, party="a", folder=folder, out=tmp_path / "o")
    with pytest.raises(PateError, match="cannot answer it again"):
        ballot.vote(plan, votes, party="b", folder=folder, out=tmp_path / "o2")
    stored = next(folder.glob("sent-*.npz"))
    stored.write_bytes(stored.read_bytes() + b"x")
    with pytest.raises(PateError, match="changed after it was charged"):
        ballot.vote(plan, votes, party="a", folder=folder, out=tmp_path / "o2")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answers_each": 40}, "answers_each=40"),
        ({"answers_each": 11}, "more than its budget"),
        ({"mechanism": {"name": "one-hot", "classes": 3, "epsilon": 1000.0}}, "epsilon=1000"),
        ({"mechanism": {"name": "coin"}}, "'coin' is unknown"),
        ({"questions": "many"}, "questions='many'"),
        ({"questions": 10**30}, "must be from 1 to 16,777,216"),
        ({"budget": -1}, "budget=-1"),
        ({"budget": 10**400}, "has budget=1000"),
        ({"more": 1}, "takes .*, not .*more"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(tmp_path, plan, change, message):
    body = storage.read_json(plan, terms.KIND) | change
    storage.write_json(tmp_path / "other.json", terms.KIND, body)
    with pytest.raises(PateError, match=message):
        terms.read(tmp_path / "other.json")
    assert call("local", "plan", plan, "--classes", 3, "--questions", 5, "--voters", 9, "--budget", 1) == 2
