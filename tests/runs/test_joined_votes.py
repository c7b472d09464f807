"""What joined votes may be said to cover: an owner's whole vote, or whom their certificate covers."""

import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from commands import call
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from test_merge import CLASSES, IDS, joined, prepared, votes_of

from pate_jax import accounting, voting
from pate_jax.accounting import curves
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.runs import batches
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import merged_votes
from pate_jax.system import storage


@pytest.fixture
def owners(tmp_path):
    return prepared(tmp_path)


ORDER, SCALE = 3.0, 1.5


def law(counts):
    """The chance of each class to have the largest noisy count."""
    grid = np.linspace(-12 * SCALE, counts.max() + 12 * SCALE, 40_001)
    below = stats.norm.cdf(grid[:, None], counts, SCALE)
    each = [stats.norm.pdf(grid, n, SCALE) * np.delete(below, j, 1).prod(1) for j, n in enumerate(counts)]
    return np.trapezoid(each, grid, axis=1)


def changes(parts):
    """The law of the answer before and after another vote of one owner's teachers, in both orders."""
    whole = np.sum(parts, axis=0)
    for part in parts:
        for others in itertools.combinations_with_replacement(range(CLASSES), int(part.sum())):
            other = whole - part + np.bincount(others, minlength=CLASSES)
            yield from itertools.permutations((law(whole), law(other)))


def divergence(p, q):
    return np.log((p**ORDER * q ** (1 - ORDER)).sum()) / (ORDER - 1)


SHARES = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=3)


@given(st.lists(SHARES, min_size=2, max_size=3))
@settings(max_examples=25, deadline=None)
def test_what_is_stated_of_a_party_is_the_worst_change_of_one_owner(owners):
    """The whole vote of any one of them; owners whose vote would cost more are refused."""
    parts = [np.bincount(owner, minlength=CLASSES) for owner in owners]
    assume(len({tuple(part) for part in parts}) == len(parts))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{place}.npz" for place in range(len(parts))]
        for file, part in zip(files, parts, strict=True):
            voting.save_votes(file, voting.Votes(part[None], ids=IDS[:1]))
        try:
            merged_votes.join(files, (), "party", Path(folder) / "joined")
        except PateError as refused:
            assert "covers an owner's whole vote" in str(refused) and max(map(len, owners)) > 1
            return
        votes = voting.load_votes(Path(folder) / "joined" / "votes.npz").votes
    made = accounting.statement(GNMax(SCALE), votes, None, 1e-5, private=True, orders=[ORDER], pld=False)
    laws = list(changes(parts))
    worst = curves.epsilon([ORDER], [max(divergence(p, q) for p, q in laws)], 1e-5).epsilon
    assert made.figures["exact"].epsilon == pytest.approx(worst, rel=1e-6)
    most = np.exp(made.headline.epsilon)
    assert all(np.maximum(p - most * q, 0).sum() <= 1e-5 * (1 + 1e-6) for p, q in laws)


def answered(folder, *given):
    source, out = str(folder / "joined" / "votes.npz"), str(folder / "run")
    return call("aggregate", source, "discrete-gaussian", "--sigma", "4", "--out", out, *given)


@pytest.mark.parametrize("relation", ["user", "contents", "party"])
def test_joined_votes_cover_whom_the_certificate_covers(relation, owners, capsys):
    joined(owners)
    assert answered(owners, "--relation", relation) == 2
    assert f"joined under --relation record, and the run declares {relation}" in capsys.readouterr().err
    assert not (owners / "run" / "private" / "answers.npz").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"salt": None}, "no ids of the owners were compared"),
        ({"relation": "party"}, "joined under --relation party"),
        ({"votes": "0" * 64}, "is of other votes"),
        ({"owners": [{"teachers": 5}]}, "have 5 teachers together, and 15 voted"),
        ({"owners": 3}, "damaged"),
    ],
)
def test_a_certificate_that_does_not_fit_is_refused(changed, said, owners, capsys):
    storage.write_json(owners / "joined" / "certificate.json", merged_votes.KIND, joined(owners) | changed)
    assert answered(owners, "--relation", "record") == 2
    assert said in capsys.readouterr().err


def test_a_further_list_of_joined_votes_is_checked_too(owners, capsys):
    joined(owners)
    with (run := RunDirectory(owners / "run")).writing():
        batches.adopt(run, votes_of(15, 9, ids=np.char.add("old ", IDS), digests=None), None, relation="user")
        batches.answer(run, DiscreteGaussianMax(4.0), epsilon=50.0, delta=1e-5)
    assert answered(owners, "--more") == 2
    assert "the run declares user" in capsys.readouterr().err


def test_verify_compares_the_relation_with_the_certificate(owners):
    joined(owners)
    assert answered(owners, "--relation", "record") == 0
    run = RunDirectory(owners / "run")
    assert verify.verify(run)["votes"] == []
    recorded = run.record.read().stages["votes"]
    run.record.revise({"votes": {**recorded, "owners": {**recorded["owners"], "salt": None}}})
    assert "no ids of the owners were compared" in verify.verify(run)["votes"][0]
