"""Crowds in a register: entered with all they may spend before they release, added to runs of teachers."""

import math
import shutil

import commands
import honest_runs
import pytest
from test_register import MECHANISM, begin, begun, places

from pate_jax.accounting import composition
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.exact import counts
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import anchors, chain, ledger, pipeline, plans, register
from pate_jax.runs.crowds import inputs, release
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import Plan
from pate_jax.runs.settings import PartitionChoice, RunConfig


@pytest.fixture(name="file")
def _file(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return begun(tmp_path / "register.jsonl")


def crowd(folder, name, file, epsilon=0.5, **changes):
    """A whole run of sums that is kept in a register."""
    partition = PartitionChoice(seed=changes.pop("seed", None))
    common = {"voters": "sums", "student": honest_runs.STUDENT, "register": file, **changes}
    config = RunConfig(honest_runs.table(), partition, epsilon=epsilon, out=folder / name, **common)
    pipeline.run(config)
    return RunDirectory(folder / name)


def sum_of(file):
    """What all runs cost together, who are on the same people."""
    (group,) = register.summary(file, 1e-5)["groups"]
    return group["sums"][0]["epsilon"]


def test_two_crowds_add_up_in_squares_of_mu(tmp_path, file):
    runs = [crowd(tmp_path, name, file) for name in "ab"]
    found = register.summary(file, 1e-5)
    assert [one["epsilon"] for one in found["runs"]] == pytest.approx([0.5, 0.5], rel=1e-5)
    mu = counts.mu_for(0.5, 1e-5)
    by_hand = composition.gaussian_epsilon(2**0.5 * mu, 1e-5)
    assert by_hand <= sum_of(file) == pytest.approx(by_hand, rel=1e-5)
    spent = [line.event for run in runs for line in ledger.releases(run.ledger)]
    assert counts.worst(spent, 1e-5) <= sum_of(file)  # what they really released
    for run in runs:
        passed = " ".join(verify.of_run(run).of("passed"))
        assert "register: the register shows" in passed and "have been used by 2 runs in" in passed
    cards = [(run.student / "MODEL_CARD.md").read_text() for run in runs]
    assert "Other runs: none stood in" in cards[0]
    assert "2 runs stood in the owner's register, on the same or on other records" in cards[1]
    assert f"epsilon {plans.rounded(sum_of(file)):.2f} at delta 1e-05" in cards[1]


def test_a_crowd_and_teachers_add_up_under_one_limit(tmp_path, file):
    register.set_limit(file, 3.0, 1e-5)
    crowd(tmp_path, "a", file)
    begin(tmp_path, "b", file)  # of votes, whose records nobody knows
    entered = [entry.plans[0] for entry in register.read(file).entries.values()]
    (group,) = register.summary(file, None)["groups"]
    limit = register.read(file).limit
    by_hand = sum(one.cost(limit.order).rdp for one in entered) / limit.rdp
    assert group["share"] == pytest.approx(by_hand) and isinstance(entered[0].events[0], Tables)
    together = plans.together(entered, 1e-5)
    assert max(plans.together([one], 1e-5) for one in entered) < together <= 3.0
    with pytest.raises(PateError, match="would be exceeded"):
        crowd(tmp_path, "c", file, epsilon=2.9)
    assert not (tmp_path / "c" / "private" / "ledger.jsonl").exists()
    assert len(places(file)) == 2


def test_a_crowd_is_entered_once_and_refused_where_the_register_forgot_it(tmp_path, file):
    kept = [(path, path.read_bytes()) for path in (file, chain.head_path(file))]
    run = crowd(tmp_path, "a", file)
    crowd(tmp_path, "a", file)
    (entry,) = register.read(file).entries.values()
    assert len(entry.answers) == len(chain.read(run.ledger)) > 1
    for path, content in kept:  # an older copy, on a machine that has not seen more
        path.write_bytes(content)
    shutil.rmtree(anchors.home())
    assert any("does not show this run" in one for one in verify.of_run(run).of("failed"))
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    shutil.rmtree(run.release)  # no noise is drawn beside what was published or told
    for path in (run.statement, run.results, run.report):
        path.unlink()
    with run.writing(), pytest.raises(PateError, match="is about to spend"):
        release.release(inputs.opened(run))
    with pytest.raises(PateError, match="seed"):
        crowd(tmp_path, "seeded", begun(tmp_path / "other.jsonl"), seed=3)


def test_the_lines_of_a_register_with_crowds_are_shown(tmp_path, capsys, file):
    crowd(tmp_path, "a", file)
    begin(tmp_path, "b", file, mechanism=MECHANISM)
    capsys.readouterr()
    assert commands.call("budget", "--register", file) == 0
    said = capsys.readouterr().out
    assert "for the noisy tables of a crowd" in said and "answers of 100 teachers" in said
    assert "nobody knows whose records its votes are of" in said and "On the same people: 1, 2." in said


MADE = Plan((Tables(0.25, "sums"),), "record")
TABLES = to_dict(MADE)["events"][0]


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {**to_dict(MADE), "events": []},
        {**to_dict(MADE), "events": [{**TABLES, "name": "crowd"}]},
        {**to_dict(MADE), "events": [{**TABLES, "mu": "1"}]},
        {**to_dict(MADE), "events": [{**TABLES, "mu": math.inf}]},
        {**to_dict(MADE), "events": [{**TABLES, "mu": 0.0}]},
        {**to_dict(MADE), "events": [{**TABLES, "more": 1}]},
        {**to_dict(MADE), "relation": 3},
        {**to_dict(MADE), "teachers": 3},
    ],
)
def test_a_plan_that_none_was_entered_with_is_refused(wrong):
    assert plans.from_json(to_dict(MADE)) == MADE
    with pytest.raises(PateError, match="none that a run was ever entered with"):
        plans.from_json(wrong)
