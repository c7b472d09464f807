"""The plan: its epsilon is the accountant's, it reads no private vote, and it refuses what cannot be had."""

import contextlib
import inspect
import io
import json

import numpy as np
import pytest
from commands import call
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting.planning import Option, counted, plan, value
from pate_jax.accounting.vote_models import MODELS, VotesOf
from pate_jax.errors import PateError
from pate_jax.mechanisms import from_dict

SMALL = {"teachers": (100, 250), "models": MODELS[:2], "most_queries": 200}


def shares(votes):
    return votes / votes.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Votes of 100 teachers on 3 classes with true labels."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 60)
    votes = np.stack([random.multinomial(100, 0.2 + 0.4 * np.eye(3)[one]) for one in labels])
    path = tmp_path_factory.mktemp("plan") / "votes.npz"
    np.savez(path, votes=votes, labels=labels)
    return path


@pytest.mark.parametrize(
    ("records", "classes", "epsilon", "answers"), [(60_000, 10, 6.0, None), (30_000, 2, 3.0, 50)]
)
def test_the_promised_epsilon_is_the_accountants_for_any_votes(records, classes, epsilon, answers):
    small = {**SMALL, "teachers": (250,) if classes == 2 else (100,), "most_queries": 100}
    found = plan(records, classes, epsilon, 1e-6, answers=answers, **small)
    for option in (found.best, *found.others):
        assert isinstance(option, Option) and 0.95 * epsilon < option.epsilon <= epsilon
        assert option.teachers * option.shard <= records
        for first in (option.teachers, option.teachers // classes):
            votes = np.full((option.queries, classes), (option.teachers - first) // (classes - 1))
            votes[:, 0] = option.teachers - votes[:, 1:].sum(axis=1)
            headline = accounting.statement(
                option.mechanism, votes, None, 1e-6, private=True, pld=False
            ).headline
            assert 0.9 * option.epsilon < headline.epsilon <= option.epsilon
            assert headline.status == "publishable"


@pytest.mark.long
def test_more_records_or_more_epsilon_make_no_worse_plan():
    sure = [plan(n, 10, 1.0, 1e-6, answers=50, **SMALL).best.right for n in (12_000, 24_000, 96_000)]
    assert sure[0] < sure[1] < sure[2]
    worth = [
        plan(48_000, 10, epsilon, 1e-6, teachers=(250,), models=MODELS[:2], most_queries=200).best.worth
        for epsilon in (1.0, 2.0, 8.0)
    ]
    assert worth[0] < worth[1] < worth[2]


@pytest.mark.long
def test_expectations_are_what_the_kernels_do():
    import jax

    from pate_jax import aggregate

    option = plan(60_000, 10, 8.0, 1e-5, teachers=(100,), models=MODELS[:1], most_queries=100).best
    chances = MODELS[0].shares(option.shard, 10)
    rows = np.random.default_rng(5).choice(len(chances), 8000)
    votes = np.random.default_rng(6).multinomial(option.teachers, chances[rows])
    found = aggregate.answer(option.mechanism, votes, key=jax.random.key(0, impl="threefry2x32"))
    answered = np.asarray(found.answered)
    assert answered.mean() * option.queries == pytest.approx(option.answers, rel=0.05)
    assert (np.asarray(found.labels)[answered] == 0).mean() == pytest.approx(option.right, abs=0.02)


@given(first=st.integers(10, 99), zeros=st.integers(1, 7), rest=st.floats(0, 1, exclude_max=True))
def test_a_count_is_its_first_two_digits(first, zeros, rest):
    assert counted(first * 10**zeros + int(rest * 10**zeros)) == first * 10**zeros


@pytest.mark.parametrize(
    ("counts", "more"),
    [
        ((1_200, 1_299), ()),
        ((57_003, 57_940), ("--dataset", "strokes", "--json", "--classes", 3, "--answers", 10)),
        ((120, 129), ()),
    ],
)
def test_what_a_plan_says_follows_from_two_digits_of_the_count(counts, more):
    """Words, JSON, the command and the refusals, byte for byte: all of it may be published."""
    small = ["--epsilon", 8, "--delta", 1e-6, "--teachers", 50, "--queries", 20, "--like", "mnist"]
    one, other = (said("plan", "--records", count, *small, *more) for count in counts)
    assert one == other and one[0] in (0, 2)


def said(*command):
    """Exit code and all that is printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = call(*command)
    return code, out.getvalue(), err.getvalue()


def test_models_of_votes_have_the_accuracy_they_say():
    for model in MODELS:
        assert model.shares(model.at, 10)[:, 0].mean() == pytest.approx(model.accuracy, abs=0.01)
        curve = [model.shares(shard, 10)[:, 0].mean() for shard in (40, 120, 480)]
        assert 0.1 < curve[0] < curve[1] < curve[2] < 1


def test_votes_of_a_file_stand_for_themselves_at_their_own_shards(file):
    saved = np.load(file, allow_pickle=False)
    model = VotesOf("mine", saved["votes"], saved["labels"], 200)
    own = model.shares(200, 3)
    right = shares(saved["votes"])[np.arange(60), saved["labels"]]
    np.testing.assert_allclose(np.sort(own[:, 0]), np.sort(right), atol=0.03)
    assert model.shares(50, 3)[:, 0].mean() < own[:, 0].mean() < model.shares(800, 3)[:, 0].mean()
    with pytest.raises(PateError, match="classes=4"):
        model.shares(200, 4)


def test_a_plan_cannot_be_made_on_private_votes(file, capsys):
    wish = ["plan", "--records", 20_000, "--epsilon", 8, "--teachers", 50, "--queries", 50, "--votes", file]
    assert call(*wish) == 2
    assert "needs --judged-on public or synthetic" in capsys.readouterr().err
    assert call(*wish, "--judged-on", "private") == 2
    assert "private" in capsys.readouterr().err
    assert call(*wish, "--judged-on", "public", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judged_by"] == ["votes"] and found["best"]["epsilon"] <= 8
    assert "private" not in inspect.signature(plan).parameters


def test_votes_on_no_query_make_no_plan(tmp_path, capsys):
    np.savez(tmp_path / "empty.npz", votes=np.zeros((0, 5), int))
    wish = ["plan", "--records", 5000, "--epsilon", 1, "--judged-on", "public"]
    assert call(*wish, "--votes", tmp_path / "empty.npz") == 2
    assert "empty.npz holds votes on no query: write one row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"epsilon": 0.0}, "epsilon=0.0 must be"),
        ({"epsilon": float("inf")}, "epsilon=inf must be"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1e-3}, "above one over some 60,000 records.* take 2e-06"),
        ({"classes": 1}, "classes=1"),
        ({"records": 399}, r"390 records \(.*two digits\).*gather more records or name fewer teachers"),
        ({"records": 57}, "fewer than 100 records are too few"),
        ({"records": 0}, "fewer than 100 records are too few"),
        ({"answers": 500}, "answers=500 must be from 1 to the 200"),
        ({"epsilon": 1e-3}, "buys no useful answers.*raise epsilon"),
        ({"models": ()}, "models is empty"),
    ],
)
def test_a_wish_that_cannot_be_met_is_refused_with_the_remedy(wish, message):
    with pytest.raises(PateError, match=message):
        plan(**{"records": 60_000, "classes": 10, "epsilon": 1.0, "delta": 1e-6, **SMALL, **wish})


def test_wrong_labels_are_worth_less_than_none():
    assert value(100, 1.0, 3) == 100
    assert value(100, 0.95, 3) > 2 * value(100, 0.65, 3) > 0
    assert value(100, 1 / 3, 3) == pytest.approx(0, abs=1e-9)


@pytest.mark.long
def test_the_plan_in_words_and_the_run_it_stands_for(capsys):
    wish = ["--records", 30_000, "--classes", 10, "--epsilon", 2, "--teachers", 125, "--queries", 300]
    assert call("plan", *wish, "--like", "mnist", "--dataset", "strokes") == 0
    out = capsys.readouterr().out
    for words in ("Take 125 teachers of about 240 records", "none of your records was read", "for any data"):
        assert words in out
    command = out.splitlines()[-1]
    assert command.startswith("pate run strokes --records 30000 --teachers 125")
    assert call("plan", *wish, "--like", "mnist", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    sigma = from_dict(found["best"]["mechanism"]).noise.scale
    assert f"--sigma {sigma:g}" in command and found["command"].startswith("pate run --private")
