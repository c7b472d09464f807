"""`pate account` and its neighbours at the border: what they refuse, and what they warn of."""

import json

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax import ensemble
from pate_jax.audit import shards
from pate_jax.audit.subject import Subject
from pate_jax.errors import PateError
from pate_jax.runs import budget
from pate_jax.runs.directory import RunDirectory

NOISE = ["gnmax", "--sigma", "4"]
VOTES = np.random.default_rng(2).multinomial(20, [0.7, 0.2, 0.1], size=12)


def save(folder, name, **arrays):
    path = folder / name
    np.savez(path, **arrays)
    return path


def huge(kind, value):
    votes = VOTES.astype(kind)
    votes[3, 1] = value
    return votes


REFUSED = [
    ({"votes": VOTES[:0]}, "holds votes on no query"),
    ({"teacher_labels": np.zeros((5, 0), int)}, "holds votes on no query"),
    ({"votes": huge(float, 1e18)}, "votes[3, 1]=1e+18 is too large for a count or a class"),
    ({"votes": huge(float, np.inf)}, "votes[3, 1]=inf is too large"),
    ({"votes": huge(np.uint64, 2**63 + 5)}, "votes[3, 1]=9223372036854775813 must be below 2^24"),
    ({"votes": huge(np.int64, 2**40)}, "votes[3, 1]=1099511627776 must be below 2^24"),
    ({"votes": -huge(np.int64, 2**40)}, "must be >= 0"),
    ({"teacher_labels": np.array([[0, 1e18], [1, 0]])}, "teacher_labels[0, 1]=1e+18 is too large"),
    ({"teacher_labels": np.array([[0, 2**40], [1, 0]])}, "holds 1099511627776, out of range"),
]


@pytest.mark.parametrize(("arrays", "words"), REFUSED, ids=[line[1][:40] for line in REFUSED])
def test_one_sentence_says_what_is_wrong_with_a_file(arrays, words, tmp_path, capsys):
    file = save(tmp_path, "votes.npz", **arrays)
    assert call("account", file, *NOISE) == 2
    said = capsys.readouterr().err
    assert words in said and "not a whole number" not in said, said


def test_an_empty_file_begins_no_run(tmp_path, capsys):
    file, out = save(tmp_path, "votes.npz", votes=VOTES[:0]), tmp_path / "run"
    assert call("aggregate", file, *NOISE, "--out", out) == 2
    assert "holds votes on no query" in capsys.readouterr().err and not (out / "private/votes.npz").exists()


@pytest.mark.parametrize("name", ["nope.npz", "nope"])
def test_a_missing_file_is_called_missing(name, tmp_path, capsys):
    assert call("account", tmp_path / name) == 2
    said = capsys.readouterr().err
    assert "does not exist" in said and "is a votes file:" not in said


@pytest.mark.long
def test_a_first_list_without_names_is_warned_about(tmp_path, capsys):
    names = [f"query-{row}" for row in range(len(VOTES))]
    for arrays, warned in (({}, True), ({"ids": names}, False)):
        file = save(tmp_path, f"{warned}.npz", votes=VOTES, **arrays)
        command = ["aggregate", file, *NOISE, "--relation", "record", "--out", tmp_path / f"run-{warned}"]
        assert call(*command) == 0
        assert ("--more" in capsys.readouterr().err) == warned
        assert call(*command) == 0  # the same again is no first list
        assert "--more" not in capsys.readouterr().err


@pytest.mark.long
def test_a_delta_above_one_over_the_records_is_warned_about(tmp_path, capsys):
    out = tmp_path / "run"
    small = ["strokes", "--records", "90", "--teachers", "5", "--net", "mlp", "--epochs", "1"]
    train = ["train", *small, "--min-steps", "4", "--seed", "3", "--out", out]
    assert call(*train) == 0
    assert "delta" not in capsys.readouterr().err
    assert call("vote", out, "--queries", 5) == 0 and call("aggregate", out, *NOISE) == 0
    assert call("account", out, "--delta", "0.012") == 0
    assert "delta=0.012 is above one over the 90 private records" in capsys.readouterr().err
    assert "private records" not in (out / "release/statement.json").read_text()


def test_a_run_says_so_before_it_trains(tmp_path, capsys, monkeypatch):
    def stopped(*_, **__):
        raise PateError("stopped here")

    monkeypatch.setattr(ensemble, "fit", stopped)
    table = honest_runs.table()
    small = ["--private", table.private, "--public", table.public, "--teachers", 5, "--net", "table"]
    named = ["--delta", "0.02", "--out", tmp_path / "run", "gnmax", "--sigma", "3"]
    assert call("run", *small, "--queries", "5", *named) == 2
    assert "delta=0.02 is above one over the 80 private records" in capsys.readouterr().err


@pytest.mark.parametrize(("records", "remedy"), [(90, "0.001"), (50_000, "1e-06"), (100, "0.001")])
def test_the_remedy_is_a_delta_that_needs_no_warning(records, remedy, capsys):
    budget.warn_of_delta(1.1 / records, records)
    assert f"a --delta of {remedy} or less" in capsys.readouterr().err
    for delta in (1 / records, float(remedy)):
        budget.warn_of_delta(delta, records)
    assert capsys.readouterr().err == ""


def test_what_is_said_of_the_secret_is_what_was_checked(tmp_path):
    """Eight different values would be refused; more prove no entropy, and the finding says so."""
    run = RunDirectory(tmp_path / "run")
    with run.writing():
        run.secret.draw(None)
        run.record.agree("data", {})
    said = [finding.text for finding in shards.keys(Subject(run))]
    assert any("more than 8 different values; where they came from cannot be checked" in one for one in said)
    assert not any("bits of entropy" in one for one in said)


def test_composed_losses_can_be_left_out_and_nothing_is_realised_yet(tmp_path, capsys):
    file = save(tmp_path, "votes.npz", votes=VOTES)
    mask = tmp_path / "mask.npy"
    np.save(mask, np.arange(len(VOTES)) % 2 > 0)
    assert call("account", file, *NOISE, "--no-pld", "--published") == 0
    said = capsys.readouterr().out
    assert "exact, PLD" not in said and "realised" not in said
    assert call("account", file, *NOISE, "--answered", mask, "--published") == 0
    said = capsys.readouterr().out
    assert "exact, PLD" in said and "realised" in said


def test_a_sanitised_limit_is_printed_with_its_confidence(tmp_path, capsys):
    file = save(tmp_path, "votes.npz", votes=VOTES)
    assert call("account", file, *NOISE, "--sanitise", "--confidence", "0.95", "--no-pld", "--json") == 0
    figure = json.loads(capsys.readouterr().out)["figures"]["sanitised"]
    assert figure["status"] == "publishable" and figure["epsilon"] > 0
    assert "at most this with confidence 95%" in figure["note"]


def test_a_confidence_that_is_no_share_is_refused(tmp_path, capsys):
    file = save(tmp_path, "votes.npz", votes=VOTES)
    assert call("account", file, *NOISE, "--sanitise", "--confidence", "95") == 2
    assert "confidence=95.0 must be from 0.5 to 0.999999999" in capsys.readouterr().err
