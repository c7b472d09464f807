"""The command line: help that reads, stages that follow each other, bad input that costs one sentence."""

import contextlib
import dataclasses
import importlib.metadata
import inspect
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from commands import call

from pate_jax import cli
from pate_jax.cli import help
from pate_jax.ensemble import TeacherConfig
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.system import exits

ROOT = Path(__file__).parents[2]
TINY = ["strokes", "--records", "90", "--teachers", "5", "--net", "mlp", "--epochs", "1", "--min-steps", "4"]
STUDENT = ["--student.method", "supervised", "--student.net", "mlp", "--student.steps", "12"]
FLAG = re.compile(r"^  (--?\w[\w.-]*)", re.MULTILINE)
MECHANISM = ["confident-discrete-gaussian", "--threshold", "1", "--sigma-threshold", "3", "--sigma", "2"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("cli") / "run"
    command = ("run", *TINY, "--seed", 3, "--queries", 21, *STUDENT, "--out", out, "--json", *MECHANISM)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert call(*command) == 0
    out.with_name("printed").write_text(printed.getvalue())
    return out


@pytest.mark.long
def test_the_version_is_that_of_the_package(capsys):
    assert call("--version") == 0
    assert capsys.readouterr().out == f"pate {importlib.metadata.version('pate-jax')}\n"


@pytest.mark.parametrize(
    "command", ["", "run", "train", "vote", "aggregate", "account", "student", "report", "verify"]
)
def test_help_of_every_command(command, capsys):
    assert call(*command.split(), "--help") == 0
    out = capsys.readouterr().out
    assert "usage: pate" in out and len(out.splitlines()) > 8


@pytest.mark.parametrize("command", cli.COMMANDS)
@pytest.mark.long
def test_no_help_shows_a_doctest(command, capsys):
    """Nor do the helps of the mechanisms, which are commands below three of them."""
    assert call(command, "--help") == 0
    out = capsys.readouterr().out
    if of_mechanisms := re.search(r"lnmax,[\w,-]+", out):
        for mechanism in of_mechanisms[0].split(","):
            assert call(command, "x", mechanism, "--help") == 0
        out += capsys.readouterr().out
    assert "usage: pate" in out and ">>>" not in out


def help_of(command, flag, capsys):
    assert call(command, flag) == 0
    return capsys.readouterr().out


def test_the_help_lists_every_command_by_its_own_first_line(capsys):
    out = " ".join(help_of("--help", "--help", capsys).split())
    for name, command in cli.COMMANDS.items():
        assert f" {name} {inspect.getdoc(command.load()).splitlines()[0]}" in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_help_fits_two_screens(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = help_of(command, "--help", capsys).splitlines()
    assert sum(-(-len(line) // 80) or 1 for line in lines) <= 100
    assert all(len(line) <= 80 for line in lines if not line.startswith("usage"))


@pytest.mark.parametrize("command", help.COMMON)
@pytest.mark.long
def test_the_short_help_is_part_of_the_whole(command, capsys):
    brief, whole = (set(FLAG.findall(help_of(command, flag, capsys))) for flag in ("--help", "--help-all"))
    assert brief - {"-h"} == set(help.COMMON[command].split())
    assert brief < whole
    assert f"{len(whole - brief)} more flags: `pate {command} --help-all`." in help_of(command, "-h", capsys)


def test_the_whole_help_names_every_flag_and_its_group(capsys):
    out = help_of("run", "--help-all", capsys)
    for kind in (DataChoice, PartitionChoice, TeacherConfig, RunConfig):
        for field in dataclasses.fields(kind):
            group = dataclasses.is_dataclass(field.default_factory) or field.name == "mechanism"
            flag = "[STR]" if field.name == "dataset" else f"--{field.name.replace('_', '-')}"
            assert group or flag in out, field.name
    for group in ("data", "partition", "teacher", "student"):
        assert f"\n {group} options\n" in out


def test_an_unknown_command_is_told_its_neighbour(capsys):
    assert call("acount", "votes.npz") == 2
    assert "'acount' is no command; perhaps you meant `pate account`" in capsys.readouterr().err


HEAVY = (
    "jax",
    "flax",
    "optax",
    "chex",
    "scipy",
    "matplotlib",
    "rich",
    "dp_accounting",
    "tensorflow_datasets",
)
NO_JAX = tuple(name for name in HEAVY if name != "scipy")  # the accountant needs it
LIGHT = {
    "--help": (*HEAVY, "numpy", "tyro"),
    "--version": (*HEAVY, "numpy", "tyro"),
    **dict.fromkeys(("student --help", "predict --help", "report --help", "verify --help"), HEAVY),
    **dict.fromkeys(("run --help", "train --help", "vote --help", "plan --help", "budget --help"), NO_JAX),
    **dict.fromkeys(("inspect --help", "split --help"), HEAVY),
    "account {votes} gnmax --sigma 4": tuple(set(NO_JAX) - {"dp_accounting"}),
    "account {votes} gnmax --sigma 4 --no-pld": NO_JAX,
}


@pytest.mark.parametrize("command", LIGHT)
@pytest.mark.long
def test_a_command_loads_only_what_it_needs(command, tables):
    words = command.format(votes=tables / "votes.npz").split()
    script = (
        "import sys; from commands import call; assert call(*sys.argv[1:]) == 0; "
        f"print([name for name in {LIGHT[command]} if name in sys.modules], file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.long
def test_run_prints_one_json_object(finished):
    results = json.loads(finished.with_name("printed").read_text().splitlines()[-1])
    wanted = {"run_dir", "teachers", "queries", "answered", "label_accuracy", "student_accuracy", "statement"}
    assert set(results) == wanted
    assert results["teachers"] == 5 and results["queries"] == 21
    assert results["statement"]["figures"]["data_independent"]["status"] == "publishable"
    assert "sensitive" not in json.dumps(results)


@pytest.mark.long
def test_the_summary_says_what_may_leave(finished, capsys):
    assert call("report", finished) == 0
    out = capsys.readouterr().out
    for words in ("NOT PRIVATE", "synthetic", "5 teachers", "21 public inputs"):
        assert words in out
    assert "sensitive" not in out and "Publishable" not in out, "it is seeded"
    assert f"Hand over {finished}/release" in out


@pytest.mark.long
def test_stages_one_by_one_end_like_the_whole_run(finished, tmp_path, capsys):
    out = tmp_path / "run"
    assert call("train", *TINY, "--seed", 3, "--out", out) == 0
    assert call("vote", out, "--queries", 21) == 0
    assert call("aggregate", out, *MECHANISM) == 0
    assert call("account", out) == 0
    assert call("student", out, "--method", "supervised", "--net", "mlp", "--steps", 12) == 0
    assert call("report", out) == 0
    for file in ("private/votes.npz", "private/answers.npz", "release/student/parameters.npz"):
        first, second = (np.load(folder / file, allow_pickle=False) for folder in (finished, out))
        for name in first.files:
            np.testing.assert_array_equal(first[name], second[name])


def test_a_stage_out_of_turn_names_the_one_before(tmp_path, capsys):
    assert call("vote", tmp_path / "none") == 2
    assert "pate train" in capsys.readouterr().err


@pytest.mark.long
def test_verify_says_what_holds(finished, capsys):
    assert call("verify", finished) == 0
    assert "0 failed" in capsys.readouterr().out
    assert call("verify", finished, "--json") == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []
    (finished / "release" / "votes.npz").write_bytes(b"")
    assert call("verify", finished, "--json") == 1
    assert "votes.npz" in capsys.readouterr().out
    (finished / "release" / "votes.npz").unlink()


def save(folder, name, **arrays):
    np.savez(folder / name, **arrays)
    return folder / name


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Files of a user's own: a good pair, and one for each way to go wrong."""
    folder, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    inputs, labels = random.normal(size=(40, 3)).astype(np.float32), random.integers(0, 2, 40)
    ids = np.array([f"person-{row}" for row in range(40)])
    spoiled, outside = inputs.copy(), labels.copy()
    spoiled[7, 1], outside[5] = np.nan, 9
    save(folder, "public.npz", inputs=inputs + 1, labels=labels)
    save(folder, "good.npz", inputs=inputs, labels=labels, ids=ids)
    save(folder, "nan.npz", inputs=spoiled, labels=labels, ids=ids)
    save(folder, "labels.npz", inputs=inputs, labels=outside, ids=ids)
    save(folder, "shape.npz", inputs=inputs[:, :2], labels=labels, ids=ids)
    save(folder, "twice.npz", inputs=inputs, labels=labels, ids=np.where(ids == "person-3", "person-4", ids))
    save(folder, "votes.npz", votes=np.array([[4, 1], [2, 3], [0, 5]]))
    save(folder, "negative.npz", votes=np.array([[6, -1], [2, 3]]))
    save(folder, "half.npz", votes=np.array([[4.5, 0.5], [2, 3]]))
    save(folder, "totals.npz", votes=np.array([[4, 1], [2, 2]]))
    (folder / "text.npz").write_text("no archive")
    return folder


OWN = ["--public", "{}/public.npz", "--teachers", "5"]
BAD_INPUT = [
    (["run", "--private", "{}/none.npz", *OWN], ["none.npz"]),
    (["run", "--private", "{}/text.npz", *OWN], ["text.npz"]),
    (["run", "--private", "{}/shape.npz", *OWN], ["shape"]),
    (["run", "--private", "{}/nan.npz", *OWN], ["NaN", "row 7"]),
    (["run", "--private", "{}/labels.npz", *OWN], ["9"]),
    (["run", "--private", "{}/twice.npz", *OWN], ["person-4"]),
    (["run", "--private", "{}/good.npz", *OWN[:-1], "41"], ["41", "40"]),
    (["run", "--private", "{}/good.npz", "--teachers", "5"], ["--public"]),
    (["run", "mnst"], ["mnst", "mnist"]),
    (["run", "--teachers", "0"], ["teachers=0"]),
    (["run", "--queries", "0"], ["queries=0"]),
    (["run", "--records", "50", "--teachers", "51", "--queries", "5"], ["51", "50"]),
    (["run", "--private", "{}/good.npz", *OWN, "--queries", "1000000"], ["1000000"]),
    (["run", "--delta", "0"], ["delta=0"]),
    (["run", "--delta", "1"], ["delta=1"]),
    (["run", "gnmax", "--sigma", "0"], ["sigma=0"]),
    (["run", "lnmax", "--scale", "nan"], ["scale=nan"]),
    (["run", "--teachers", "9", *MECHANISM[:1], "--threshold", "30", *MECHANISM[3:]], ["threshold=30", "9"]),
    (
        ["account", "{}/votes.npz", "confident-gnmax", "--threshold", "24", *MECHANISM[3:]],
        ["threshold=24", "5"],
    ),
    (["account", "{}/votes.npz", "gnmax", "--sigma", "2", "--delta", "0"], ["delta=0"]),
    (["account", "{}/votes.npz", "gnmax", "--sigma", "2", "--queries", "4"], ["queries=4", "3"]),
    (["account", "{}/none.npz", "gnmax", "--sigma", "2"], ["none.npz"]),
    (["account", "{}/text.npz", "gnmax", "--sigma", "2"], ["text.npz"]),
    (["account", "{}/negative.npz", "gnmax", "--sigma", "2"], ["-1"]),
    (["account", "{}/half.npz", "gnmax", "--sigma", "2"], ["4.5"]),
    (["account", "{}/totals.npz", "gnmax", "--sigma", "2"], ["unequal totals"]),
    (["account", "{}/votes.npz"], ["name a mechanism"]),
    (["aggregate", "{}/votes.npz", "gnmax", "--sigma", "2"], ["--out"]),
    (["student", "{}/nowhere"], ["does not exist"]),
]


@pytest.mark.parametrize(
    ("arguments", "words"), BAD_INPUT, ids=[" ".join(line[0])[:60] for line in BAD_INPUT]
)
def test_bad_input_costs_one_clear_sentence(arguments, words, tables, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert call(*(argument.format(tables) for argument in arguments)) == 2
    printed = capsys.readouterr()
    text = " ".join(printed.err.replace("│", " ").split()) + " ".join(printed.out.replace("│", " ").split())
    assert "Traceback" not in text
    for word in words:
        assert word in text, text


@pytest.mark.long
def test_votes_from_elsewhere_become_a_student(tables, tmp_path, capsys):
    random = np.random.default_rng(1)
    labels = random.integers(0, 2, 60)
    inputs = (np.eye(2, 4)[labels] * 3 + random.normal(size=(60, 4))).astype(np.float32)
    votes = np.where(np.eye(2, dtype=bool)[labels], 90, 10)
    file, pool = (
        save(tmp_path, "votes.npz", votes=votes),
        save(tmp_path, "pool.npz", inputs=inputs, labels=labels),
    )
    out = tmp_path / "run"
    assert (
        call("aggregate", file, "discrete-gaussian", "--sigma", 10, "--out", out, "--relation", "record") == 0
    )
    assert call("account", out) == 0
    assert (
        call("student", out, "--public", pool, "--test", pool, "--method", "supervised", "--steps", 200) == 0
    )
    capsys.readouterr()
    assert call("report", out, "--json") == 0
    results = json.loads(capsys.readouterr().out)
    assert results["teachers"] == 100 and results["student_accuracy"] > 0.9
    assert call("verify", out) == 0


def test_ctrl_c_that_python_drops_in_a_destructor_comes_again(capsys):
    class Held:
        def __del__(self):
            raise KeyboardInterrupt

    with pytest.raises(SystemExit) as end, exits.told("pate"):
        Held()
        time.sleep(30)
        raise AssertionError("nothing stopped the command")
    assert end.value.code == 130 and "repeat the same command" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(
    ("net", "student"),
    [(["patches", "--epochs", "3"], ["tandem", "--student.steps", "20"]), (["linear"], ["ridge"])],
)
def test_a_run_on_typical_patches_stands_every_check(net, student, tmp_path, capsys, small_nets):
    out = tmp_path / "run"
    small = [*TINY[:5], "--net", *net, "--queries", "30", "--seed", 2, "--out", out]
    assert call("run", *small, "--student.method", *student, "--json", "discrete-gaussian", "--sigma", 1) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["answered"] == 30
    assert call("verify", out, "--deep", "--json") == 0
    assert json.loads(capsys.readouterr().out)["failed"] == []


@pytest.mark.long
def test_ctrl_c_loses_nothing_and_the_same_command_goes_on(tmp_path, capsys):
    command = [sys.executable, "-m", "pate_jax.cli", "run", *TINY[:-4], "--epochs", "150", "--queries", "21"]
    command += [*STUDENT, "--seed", "5", "--out", str(tmp_path / "run"), "--json", *MECHANISM]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "run" / "private" / "certificate.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "repeat the same command" in said and "Traceback" not in said
    assert call(*command[3:]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["answered"] > 0
