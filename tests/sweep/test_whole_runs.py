"""A sweep of whole runs: a grid file, the same rows on workers, and a repeated command that goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import call

from pate_jax.errors import PateError
from pate_jax.runs import config_file, pipeline
from pate_jax.sweep import results, whole_runs
from pate_jax.sweep.pareto import averaged

GRID = """
private = "private.npz"
public = "public.npz"
test = "test.npz"
ids-are-stable = true
[[grid]]
voters = "sums"
epsilon = [0.5, 2]
seed = 0
[[grid]]
net = "linear"
teachers = 5
seed = [0, 1]
queries = 20
"student.method" = "ridge"
mechanism = {name = "discrete-gaussian", sigma = 2.0}
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with records and a grid of four runs, in which the test works."""
    random = np.random.default_rng(0)
    for name, rows in (("private", 300), ("public", 80), ("test", 90)):
        inputs = random.normal(size=(rows, 3)).astype(np.float32)
        ids = np.array([f"{name}-{row}" for row in range(rows)])
        np.savez(tmp_path / f"{name}.npz", inputs=inputs, labels=(inputs[:, 0] > 0).astype(int), ids=ids)
    (tmp_path / "grid.toml").write_text(GRID)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def charged(folder):
    """The lines of every run's ledger."""
    return {path: path.read_text() for path in folder.glob("runs/*/private/ledger.jsonl")}


def test_a_grid_is_crossed_table_by_table(place):
    words = list(config_file.grid(Path("grid.toml")))
    assert len(words) == 4 and all(one[:2] == ["--private", "private.npz"] for one in words)
    assert [one[one.index("--epsilon") + 1] for one in words[:2]] == ["0.5", "2"]
    assert words[-1][-3:] == ["discrete-gaussian", "--sigma", "2.0"] and "1" in words[-1]
    Path("one.toml").write_text('dataset = "glyphs"\nepsilon = 1\n')
    assert list(config_file.grid(Path("one.toml"))) == [["glyphs", "--epsilon", "1"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid = 3", "grid must be tables"),
        ("a = [", "is no TOML"),
        ('out = "there"', "--out there: every run of a grid has its own folder"),
    ],
)
def test_a_grid_that_is_none_is_refused_before_anything_runs(place, text, said, capsys):
    Path("bad.toml").write_text(text)
    assert call("sweep", "--runs", "bad.toml", "--out", "swept") == 2
    assert said in capsys.readouterr().err and not Path("swept/runs").exists()
    assert call("sweep", "strokes", "--runs", "grid.toml") == 2
    assert "leave other sources out" in capsys.readouterr().err


def test_a_stopped_sweep_of_runs_goes_on_and_charges_nothing_twice(place, monkeypatch, capsys):
    command, made, run = ("sweep", "--runs", "grid.toml", "--out", "swept"), [], pipeline.run

    def stopped_in_the_third(config):
        made.append(config.directory.name)
        found = run(config)
        if len(made) == 3:
            raise KeyboardInterrupt  # after everything was charged and written, before its row is
        return found

    monkeypatch.setattr(pipeline, "run", stopped_in_the_third)
    assert call(*command) not in (0, 2)
    before = charged(Path("swept"))
    assert len(results.read(Path("swept"))) == 2 and len(before) == 3
    assert call(*command, "--json") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert made[3:] == made[2:3] + made[4:] and len(made) == 5 and len(set(made)) == 4
    assert told["runs"] == 4 and told["done_before"] == 2 and told["refused"] == 0
    assert before.items() <= charged(Path("swept")).items()
    assert call(*command) == 0 and len(made) == 5
    assert "5 teachers" in capsys.readouterr().out and Path("swept/plots/accuracy.svg").exists()
    rows = list(results.read(Path("swept")).values())
    assert sorted(len(row.get("cells", [0])) for row in averaged(rows)) == [1, 1, 2]
    assert all(row["student_accuracy"] > 0.6 for row in rows)
    assert [row["data_independent"] <= row["epsilon"] for row in rows if row["epsilon"]] == [True] * 2


def test_a_refused_run_is_named_and_tried_again(place, capsys):
    Path("few.toml").write_text(GRID.partition("[[grid]]")[0] + 'net = "linear"\nteachers = 5000\nseed = 0\n')
    for _ in range(2):
        assert call("sweep", "--runs", "few.toml", "--out", "swept") == 0
        said = capsys.readouterr()
        assert "warning: teachers, epsilon" in said.err and "1 runs, of which 1 were refused" in said.out


@pytest.mark.long
def test_runs_on_workers_are_those_of_one_process(place):
    pytest.importorskip("distributed")
    assert call("sweep", "--runs", "grid.toml", "--out", "here") == 0
    rows = results.read(Path("here"))
    for number in (1, 2, 4):
        out = Path(f"by-{number}")
        assert call("sweep", "--runs", "grid.toml", "--out", out, "--workers", number) == 0
        assert results.read(out) == rows
        for cell in rows:
            ends = [one / "runs" / cell / "release" / "student" for one in (Path("here"), out)]
            each = [{path.name: path.read_bytes() for path in end.iterdir()} for end in ends]
            assert each[0] == each[1]


def test_cells_are_told_apart_by_all_that_decides_them(place):
    from pate_jax.cli.student import run_of

    configs = [run_of(words, "grid.toml") for words in config_file.grid(Path("grid.toml"))]
    assert len({cell.digest for cell in whole_runs.cells_of(configs * 2, Path("a"))}) == 4
    with pytest.raises(PateError, match="its own folder; leave it out"):
        whole_runs.cells_of([run_of(["--out", "b"], "x")], Path("a"))
