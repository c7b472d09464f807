"""Compiled programs that are kept hold no private record, and a damaged or full folder harms nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import honest_runs
import pytest

from pate_jax.system import devices

ROOT = Path(__file__).parents[2]
ADD = "import jax\nprint(jax.jit(lambda x: x * 2 + 1)(20.5))"
KEPT = ["COMPILATION_CACHE_DIR", "ENABLE_COMPILATION_CACHE", "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"]
REPORT = {"JAX_CAPTURED_CONSTANTS_WARN_BYTES": "8", "JAX_CAPTURED_CONSTANTS_REPORT_FRAMES": "99"}


def child(*arguments, **changes):
    """Run Python with this package and changed variables of the environment; what it printed and said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **changes}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def constants(said):
    """What JAX says of each constant of the programs that it compiles: where it comes from, line by line."""
    return re.split(r"\n +Constant <", said)[1:]


RUNS = """import sys
from matplotlib.figure import Figure
from pate_jax import cli
Figure.savefig = lambda self, out, **_: out.write(b"<svg/>")  # drawing takes long
common, out = sys.argv[1:-1], sys.argv[-1]
few = "--teachers 6 --queries 18 --net table --epochs 1 --min-steps 3 --batch-size 8 --devices 1"
noise = "confident-discrete-gaussian --threshold 3 --sigma-threshold 3 --sigma 1.5"
teachers, neighbours, sums = f"{few} {noise}", "--epsilon 4 --queries 20", "--epsilon 4"
for voters, given in (("teachers", teachers), ("neighbours", neighbours), ("sums", sums)):
    cli.main(["run", *common, "--voters", voters, "--out", f"{out}/{voters}", *given.split()])
"""


def test_programs_hold_no_record(tmp_path):
    """Their constants are the public statistics of columns alone, whoever votes, in runs like honest ones."""
    data = honest_runs.table()
    flags = ["--private", data.private, "--public", data.public, "--test", data.test]
    flags += ["--student.method", "supervised", "--student.net", "table"]
    flags += ["--student.steps", 8, "--student.batch-size", 8]
    _, said = child("-c", RUNS, *flags, tmp_path, **REPORT)
    assert constants(said) and all("(Preprocessing.apply)" in constant for constant in constants(said)), said
    assert len(list(tmp_path.glob("*/release/student"))) == 3


def test_a_record_in_a_program_would_be_seen():
    closes = "import jax, numpy as np\nrecord = np.arange(4.0)\njax.jit(lambda x: x + record)(1.0)"
    _, said = child("-c", closes, **REPORT)
    assert ["32.00B" in constant or "16.00B" in constant for constant in constants(said)] == [True]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's home, and an environment that says nothing of compiled programs."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [f"JAX_{name}" for name in KEPT]:
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.long
def test_a_second_process_takes_the_programs_of_the_first(home):
    devices.keep_programs(["adult"])
    assert devices.programs_folder().stat().st_mode & 0o777 == 0o700
    assert child("-c", ADD) == ("42.0\n", "")
    first = {file: file.stat().st_mtime_ns for file in devices.programs_folder().iterdir()}
    assert child("-c", ADD) == ("42.0\n", "")
    assert first and first == {file: file.stat().st_mtime_ns for file in devices.programs_folder().iterdir()}


@pytest.mark.long
def test_a_program_cut_short_is_compiled_again(home):
    devices.keep_programs([])
    child("-c", ADD)
    for file in devices.programs_folder().glob("*-cache"):
        file.write_bytes(file.read_bytes()[:50])
    assert child("-c", ADD)[0] == "42.0\n"


def test_a_user_without_a_home_keeps_none(home, monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(devices.Path, "home", unknown)
    devices.keep_programs([])
    assert "JAX_COMPILATION_CACHE_DIR" not in devices.os.environ


def test_the_flag_and_the_users_own_folder_win(home, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    devices.keep_programs([])
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere" and not devices.programs_folder().exists()
    devices.keep_programs([devices.ANEW])
    assert os.environ["JAX_ENABLE_COMPILATION_CACHE"] == "false"


def test_a_full_folder_drops_its_oldest_programs(tmp_path):
    for age, name in enumerate(["new", "old", "oldest"]):
        (tmp_path / name).write_bytes(bytes(10))
        os.utime(tmp_path / name, (1000 - age, 1000 - age))
    devices.trim(tmp_path, 25)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new", "old"]
