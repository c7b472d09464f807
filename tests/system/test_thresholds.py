"""Thresholds above the number of teachers, as in the 2018 paper's Adult and SVHN settings: a warning."""

import json

import numpy as np
import pytest
from commands import call
from scipy import stats

from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteLaplace, ConfidentGNMax, InteractiveGNMax
from pate_jax.runs import stages
from pate_jax.runs.thresholds import check_threshold, threshold_warning
from pate_jax.sweep import Grid

PAPERS = ["confident-gnmax", "--threshold", "300", "--sigma-threshold", "200", "--sigma", "40"]
SAID = "warning: threshold=300 is above the number of teachers, 250: of unanimous votes 40% would pass"


@pytest.fixture(scope="module")
def votes(tmp_path_factory):
    path = tmp_path_factory.mktemp("votes") / "votes.npz"
    np.savez(path, votes=np.array([[250, 0], [240, 10], [130, 120]] * 4), ids=np.arange(12).astype(str))
    return path


def test_account_takes_the_papers_setting_and_says_what_it_means(votes, capsys):
    assert call("account", votes, *PAPERS, "--json") == 0
    said = capsys.readouterr()
    assert said.err.count("warning: threshold") == 1 and SAID in said.err
    assert json.loads(said.out)["figures"]["data_independent"]["epsilon"] > 0


def test_aggregate_takes_it_and_noise_lets_some_queries_pass(votes, tmp_path, capsys):
    assert (
        call(
            "aggregate",
            votes,
            "--relation",
            "record",
            "--out",
            tmp_path / "run",
            *PAPERS,
            "--seed",
            4,
            "--json",
        )
        == 0
    )
    said = capsys.readouterr()
    assert said.err.count("warning: threshold") == 1 and SAID in said.err
    assert 0 < json.loads(said.out)["answered"] < 12


def test_run_takes_it_and_says_so_before_it_trains(tmp_path, capsys, monkeypatch):
    def stop(*given):
        raise PateError("training begins")

    monkeypatch.setattr(stages, "begin", stop)
    assert call("run", "strokes", "--teachers", 250, "--out", tmp_path / "run", *PAPERS) == 2
    said = capsys.readouterr().err
    assert SAID in said and "training begins" in said


def test_a_sweep_says_it_once_for_the_whole_grid(capsys):
    grid = Grid(("confident-gnmax",), ("40",), ("200", "300", "320"), ("200",))
    assert len(grid.mechanisms_for(250)) == 3
    said = capsys.readouterr().err
    assert said.count("warning") == 1 and SAID in said and "2 of 3 settings" in said


@pytest.mark.parametrize(
    "mechanism",
    [
        ConfidentGNMax(300, 8.3, 40),
        ConfidentDiscreteLaplace(300, 8.3, 20),
        InteractiveGNMax(300, 8.3, 40, student_confidence=0.9),
    ],
)
def test_what_noise_does_not_reach_either_is_refused(mechanism, votes, tmp_path):
    with pytest.raises(PateError, match=r"threshold=300 is more than 6 scales .* 8\.3, .* teachers, 250"):
        check_threshold(mechanism, 250)
    check_threshold(mechanism, 251)
    with pytest.raises(PateError, match="threshold=300"):
        Grid(("confident-gnmax",), ("40",), ("300",), ("8.3",)).mechanisms_for(250)


def test_every_door_refuses_what_noise_does_not_reach(votes, tmp_path, capsys):
    beyond = [*PAPERS[:4], "8", *PAPERS[5:]]
    assert call("account", votes, *beyond) == 2
    assert call("aggregate", votes, "--relation", "record", "--out", tmp_path / "run", *beyond) == 2
    assert call("run", "strokes", "--teachers", 250, "--out", tmp_path / "other", *beyond) == 2
    assert capsys.readouterr().err.count("threshold=300 is more than 6 scales") == 3
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("gap", [1, 40, 250])
def test_the_share_that_is_told_is_that_of_the_law(gap):
    told = threshold_warning(ConfidentGNMax(250 + gap, 60.0, 40.0), 250)
    share = stats.norm.sf(gap / 60.0)
    assert f"of unanimous votes {100 * share:.2g}% would pass" in told
    assert threshold_warning(ConfidentGNMax(250, 60.0, 40.0), 250) is None
