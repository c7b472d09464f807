"""What is installed from a wheel: every file of the package, found where no checkout stands."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import quick_compiler

ROOT = Path(__file__).parents[2]
FILES = {
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "pate_jax").rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
TINY = ["--records", "60", "--teachers", "4", "--epochs", "1", "--min-steps", "2", "--queries", "12"]
NETS = ["--net", "mlp", "--student.method", "supervised", "--student.net", "mlp", "--student.steps", "3"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = out.glob("*.whl")
    return zipfile.ZipFile(built)


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    assert {name for name in wheel.namelist() if name.startswith("pate_jax/")} == FILES
    assert "pate_jax/system/topologies/cpu-8.toml" in FILES


@pytest.fixture
def installed(wheel, tmp_path):
    """Run Python in a folder of its own, with nothing of the project but what the wheel holds."""
    wheel.extractall(tmp_path / "installed")
    environment = quick_compiler.environment() | {
        "PYTHONPATH": str(tmp_path / "installed"),
        "PYTHONSAFEPATH": "1",
    }

    def python(script, *arguments):
        command = [sys.executable, "-c", script, *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()[-1]

    return python


@pytest.mark.long
def test_an_installed_copy_finds_its_topologies(installed, tmp_path):
    script = "from pate_jax.system import topology; topology.prepare(['--topology', 'cpu-8']); "
    script += "topology.enter('cpu-8'); print(topology.__file__)"
    assert Path(installed(script)).is_relative_to(tmp_path / "installed")


@pytest.mark.long
def test_an_installed_copy_runs_on_a_topology(installed, tmp_path):
    script = "import pate_jax; from pate_jax.cli import main; main(); print(pate_jax.__file__)"
    arguments = ["run", "strokes", *TINY, *NETS, "--seed", "3", "--topology", "cpu-8", "--out", "run"]
    arguments += ["gnmax", "--sigma", "3"]
    assert Path(installed(script, *arguments)).is_relative_to(tmp_path / "installed")
    assert (tmp_path / "run" / "release").is_dir()
