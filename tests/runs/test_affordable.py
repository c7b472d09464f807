"""`pate account VOTES --epsilon E`: as many answers as noise allows, by the command that it prints."""

import shlex

import commands
import numpy as np
import pytest

from pate_jax.accounting import planning
from pate_jax.cli.account import affordable
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig

DELTA = 1e-5


@pytest.mark.parametrize("queries, teachers, epsilon", [(9000, 250, 1.0), (20, 250, 4.0), (30, 20, 0.2)])
def test_the_answers_cost_no_more_than_was_wished_and_one_more_would(queries, teachers, epsilon):
    found = affordable((queries, 10), teachers, epsilon, DELTA)
    mechanism = DiscreteGaussianMax(found.sigma)
    assert found.spent == planning.spends(mechanism, found.answers, teachers, 10, DELTA) <= epsilon
    assert 1 <= found.answers <= queries
    if found.answers < queries:
        assert planning.spends(mechanism, found.answers + 1, teachers, 10, DELTA) > epsilon
        assert found.answers == 1 or teachers / 6 * 0.9 < found.sigma < teachers / 6 * 1.1
    else:
        assert found.sigma < teachers / 6 * 1.1


def test_the_printed_command_draws_as_many_answers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    votes = np.random.default_rng(0).multinomial(100, [0.7, 0.2, 0.1], size=60)
    np.savez("my votes.npz", votes=votes, ids=np.array([f"query-{row}" for row in range(60)]))
    assert commands.call("account", "my votes.npz", "--epsilon", 2) == 0
    said = capsys.readouterr().out
    shuffled = np.random.default_rng(1).permuted(votes, axis=1)
    np.savez("other.npz", votes=shuffled)
    assert commands.call("account", "other.npz", "--epsilon", 2) == 0
    assert capsys.readouterr().out.replace("other", "my votes").replace("'", "") == said.replace("'", "")
    (command,) = (line.removeprefix("next: ") for line in said.splitlines() if line.startswith("next: "))
    assert commands.call(*shlex.split(command)[1:], "--register", "none") == 0
    told = capsys.readouterr().out
    (line,) = ledger.read(RunDirectory(tmp_path / "runs" / "my votes").ledger)
    assert f"answers to the first {line.event.asked} of 60 queries" in said
    assert '"epsilon": 2.0' in told and f'"queries": {line.event.asked}' in told


def test_a_votes_file_needs_an_epsilon_or_a_mechanism_and_not_both(tmp_path, capsys):
    np.savez(tmp_path / "votes.npz", votes=np.tile([40, 20], (50, 1)))
    assert commands.call("account", tmp_path / "votes.npz") == 2
    assert (
        commands.call("account", tmp_path / "votes.npz", "discrete-gaussian", "--sigma", 9, "--epsilon", 1)
        == 2
    )
    told = capsys.readouterr().err
    assert "votes.npz --epsilon 1`" in told and "leave one of them out" in told
    with pytest.raises(PateError, match="epsilon=0"):
        affordable((50, 2), 60, 0, DELTA)


def test_delta_follows_from_about_how_many_people_there_are():
    assert RunConfig(people_about=15_666).delta == 1e-6 and RunConfig(people_about=9_000).delta == 1e-5
    assert RunConfig(people_about=15_666, delta=1e-6).delta == 1e-6
    for about, delta in ((15_666, 1e-7), (0, 1e-5)):
        with pytest.raises(PateError, match=r"leave one of them out|must be at least 1"):
            RunConfig(people_about=about, delta=delta)
