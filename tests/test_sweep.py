"""The sweep: every row is what the setting answers and costs by itself; nothing is done twice or lost."""

import json

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting.many import many
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, GNMax, LNMax
from pate_jax.sweep import Grid, SweepConfig, cells, results, sweep

SETTINGS = [GNMax(20.0), ConfidentGNMax(60, 30.0, 15.0), LNMax(20.0), ConfidentGNMax(90, 50.0, 15.0)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 40)
    votes = [np.bincount(np.append(random.integers(0, 3, 30), [one] * 70), minlength=3) for one in labels]
    path = tmp_path_factory.mktemp("sweep") / "votes.npz"
    np.savez(path, votes=np.array(votes), labels=labels)
    return path


def test_figures_of_many_settings_are_those_of_each(file):
    votes, asked = np.load(file, allow_pickle=False)["votes"], [40, 25, 40, 10]
    found = many(SETTINGS, votes, 1e-5, queries=asked)
    for place, (setting, number) in enumerate(zip(SETTINGS, asked, strict=True)):
        papers = accounting.published(setting, votes[:number], 1e-5)
        headline = accounting.statement(setting, votes[:number], None, 1e-5).headline
        np.testing.assert_allclose(found.published[place], papers.epsilon, rtol=1e-12)
        np.testing.assert_allclose(found.answered[place], papers.answered, rtol=1e-12)
        np.testing.assert_allclose(found.data_independent[place], headline.epsilon, rtol=1e-12)


def test_shards_cover_every_cell_once_and_agree_with_the_whole(file, tmp_path):
    grid = Grid(("gnmax", "confident-gnmax"), ("10", "20"), ("0.5T",), ("30",), ("20", "40"))
    whole = sweep(SweepConfig((str(file),), out=tmp_path / "whole", values=grid))
    for part in ("1/3", "2/3", "3/3"):
        sharded = sweep(SweepConfig((str(file),), out=tmp_path / "parts", values=grid, shard=part))
    assert len(whole["rows"]) == 8
    assert {row["cell"]: row for row in whole["rows"]} == {row["cell"]: row for row in sharded["rows"]}
    again = sweep(SweepConfig((str(file),), out=tmp_path / "whole", values=grid))
    assert again["done_before"] == 8


def test_a_torn_line_is_done_again(tmp_path):
    path = tmp_path / "results.jsonl"
    results.append(path, [{"cell": "a", "n": 1}])
    with open(path, "ab") as stream:
        stream.write(b'{"cell": "b", "n"')
    assert list(results.read(tmp_path)) == ["a"]
    results.append(path, [{"cell": "b", "n": 2}])
    assert [json.loads(line)["cell"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_a_shard_must_be_one_of_its_number():
    with pytest.raises(PateError, match="I/N"):
        cells.parse_shard("4/3")
