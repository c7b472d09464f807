"""Crowds in a register: entered with all they may spend before they release, added to runs of teachers."""

import math

import commands
import honest_runs
import pytest
from test_register import MECHANISM, begin, names

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.runs import chain, ledger, pipeline, plans, register
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import CrowdPlan
from pate_jax.runs.settings import PartitionChoice, RunConfig


def crowd(folder, name, file, epsilon=0.5, **changes):
    """A whole run of sums that is kept in a register."""
    partition = PartitionChoice(seed=changes.pop("seed", None))
    common = {"voters": "sums", "student": honest_runs.STUDENT, "register": file, **changes}
    config = RunConfig(honest_runs.table(), partition, epsilon=epsilon, out=folder / name, **common)
    pipeline.run(config)
    return RunDirectory(folder / name)


def test_two_crowds_add_up_in_squares_of_mu(tmp_path):
    file = tmp_path / "register.jsonl"
    runs = [crowd(tmp_path, name, file) for name in "ab"]
    found = register.summary(file, 1e-5)
    assert [one["epsilon"] for one in found["runs"]] == pytest.approx([0.5, 0.5], rel=1e-5)
    mu = counts.mu_for(0.5, 1e-5)
    assert found["epsilon"]["record"] == pytest.approx(
        composition.gaussian_epsilon(2**0.5 * mu, 1e-5), rel=1e-5
    )
    assert found["epsilon"]["record"] >= composition.gaussian_epsilon(2**0.5 * mu, 1e-5)
    spent = [line.release for run in runs for line in ledger.releases(run.ledger)]
    assert counts.worst(spent, 1e-5) <= found["epsilon"]["record"]  # what they really released
    for run in runs:
        assert "register: the register shows" in " ".join(verify.of_run(run).of("passed"))
    assert register.digest_of(honest_runs.np.load(honest_runs.table().private)["ids"]) in file.read_text()


def test_a_crowd_and_teachers_add_up_under_one_limit(tmp_path):
    file = tmp_path / "register.jsonl"
    register.limit(file, 3.0, 1e-5)
    crowd(tmp_path, "a", file)
    begin(tmp_path, "b", file)
    entered = register.read(file).plans
    share = register.summary(file, None)["limit"]["share"]
    order = register.read(file).limit.order
    by_hand = sum(one.cost(order).rdp for one in entered) / register.read(file).limit.rdp
    assert share == pytest.approx(by_hand) and isinstance(entered[0], CrowdPlan)
    together = register.together(entered, 1e-5)
    assert max(register.together([one], 1e-5) for one in entered) < together <= 3.0
    with pytest.raises(PateError, match="would be exceeded"):
        crowd(tmp_path, "c", file, epsilon=2.9)
    assert not (tmp_path / "c" / "private" / "ledger.jsonl").exists()
    assert len(names(file)) == 2


def test_a_crowd_is_entered_once_and_refused_where_the_register_forgot_it(tmp_path):
    file = tmp_path / "register.jsonl"
    run = crowd(tmp_path, "a", file)
    crowd(tmp_path, "a", file)
    assert len(names(file)) == 1
    for one in (file, chain.head_path(file)):
        one.unlink()
    assert any("does not show" in one or "not here" in one for one in verify.of_run(run).of("unchecked"))
    run.ledger.unlink()
    chain.head_path(run.ledger).unlink()
    with run.writing(), pytest.raises(PateError, match="is about to spend"):
        register.confirm_crowd(run)
    with pytest.raises(PateError, match="seed"):
        crowd(tmp_path, "seeded", tmp_path / "other.jsonl", seed=3)


def test_the_lines_of_a_register_with_crowds_are_shown(tmp_path, capsys):
    file = tmp_path / "register.jsonl"
    crowd(tmp_path, "a", file)
    begin(tmp_path, "b", file, mechanism=MECHANISM)
    capsys.readouterr()
    assert commands.call("budget", "--register", file) == 0
    said = capsys.readouterr().out
    assert "for the noisy tables of a crowd" in said and "answers of 100 teachers" in said


MADE = CrowdPlan(0.25, "sums", "record", None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"crowd": None},
        {"crowd": {**MADE._asdict(), "mu": "1"}},
        {"crowd": {**MADE._asdict(), "mu": math.inf}},
        {"crowd": {**MADE._asdict(), "mu": 0.0}},
        {"crowd": {**MADE._asdict(), "more": 1}},
        {"crowd": {**MADE._asdict(), "relation": 3}},
        {**MADE.to_dict(), "teachers": 3},
    ],
)
def test_a_plan_that_none_was_entered_with_is_refused(wrong):
    assert plans.from_json(MADE.to_dict()) == MADE
    with pytest.raises(PateError, match="none that a run was ever entered with"):
        plans.from_json(wrong)
