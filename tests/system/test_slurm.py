"""A sweep by jobs of a real Slurm on this machine: submitted, scaled, one worker killed, and finished."""

import gc
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from commands import call

from pate_jax.sweep import results
from pate_jax.system import clusters, tasks

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "scancel")
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}({address})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
NodeName={host} NodeAddr={address} CPUs={cores} RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason="needs Debian's slurm-wlm"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root"),
    # dask-jobqueue leaves the files of its key to the garbage collector
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ends_well(*words):
    try:
        return subprocess.run(words, capture_output=True, timeout=20).returncode == 0
    except subprocess.TimeoutExpired:  # it waits for a node that is not there yet
        return False


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """One controller and one node, with everything they write in the folder of the test."""
    pytest.importorskip("dask_jobqueue")
    host = platform.node().split(".")[0]
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    text = CONFIGURATION.format(
        host=host,
        address="127.0.0.1",
        user="root",
        ports=(free_port(), free_port()),
        folder=tmp_path,
        cores=os.cpu_count(),
    )
    (tmp_path / "slurm.conf").write_text(text)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    daemons = []
    for name in ("slurmctld", "slurmd"):
        with open(tmp_path / f"{name}.log", "w") as log:
            words = [shutil.which(name), "-D", "-f", str(tmp_path / "slurm.conf")]
            daemons.append(subprocess.Popen(words, stdout=log, stderr=log))
    try:
        until = time.monotonic() + 60
        while not ends_well("srun", "-n1", "true"):
            if time.monotonic() > until:
                logs = [(tmp_path / f"{name}.log").read_text()[-2000:] for name in ("slurmctld", "slurmd")]
                pytest.fail("Slurm has not done a job within a minute:\n" + "\n".join(logs))
            time.sleep(0.5)
        yield tmp_path
    finally:
        ends_well("scancel", "--me")
        for one in reversed(daemons):
            one.terminate()
        for one in daemons:
            try:
                one.wait(20)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait(20)


JOBS = """
jobqueue:
  slurm:
    cores: 1
    memory: 1GB
    walltime: '00:10:00'
    local-directory: {folder}
    log-directory: {folder}
    job-script-prologue: [export PATE_TEST_MARK=told]
"""


def one_worker(folder: Path) -> int | None:
    """The process of a worker that a job of Slurm runs."""
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            mine = f"SLURM_CONF={folder}/slurm.conf".encode() in (entry / "environ").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and mine and b"multiprocessing.spawn" in b" ".join(words):
            return int(entry.name)
    return None


def test_a_sweep_by_jobs_of_slurm_outlives_a_killed_worker(slurm, monkeypatch):
    random = np.random.default_rng(0)
    np.savez(slurm / "votes.npz", votes=random.multinomial(50, [0.2, 0.3, 0.5], 400))
    (slurm / "jobs.yaml").write_text(JOBS.format(folder=slurm))
    monkeypatch.chdir(slurm)
    flags = [
        "votes.npz",
        "--mechanisms",
        "gnmax",
        "--noises",
        "5:40:24",
        "--queries",
        "400",
        "--exact",
        "all",
    ]
    killed, ended = [], threading.Event()

    def kill():
        while not killed and not ended.wait(0.1):
            if (slurm / "out" / "results.jsonl").exists() and (worker := one_worker(slurm)):
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    words = ["sweep", *flags, "--out", "out", "--cluster", "jobs.yaml", "--workers", "2"]
    try:
        with open("sweep.log", "w") as log:
            command = [sys.executable, "-m", "pate_jax.cli", *words]
            done = subprocess.run(command, stdout=log, stderr=log, timeout=400)
    finally:
        ended.set()
        killer.join(30)
    assert done.returncode == 0, Path("sweep.log").read_text()
    assert killed and call("sweep", *flags, "--out", "here") == 0
    assert results.read(slurm / "out") == results.read(slurm / "here")
    assert len((slurm / "out" / "results.jsonl").read_text().splitlines()) == 2 * 24


def test_jobs_that_end_are_submitted_anew_and_write_no_result_to_disk(slurm, monkeypatch):
    """As at their walltime: all jobs end in the middle of the work, which ends all the same."""

    def told(dask_worker):
        mask = os.umask(0)
        os.umask(mask)
        return os.environ["PATE_TEST_MARK"], mask, type(dask_worker.data)

    (slurm / "jobs.yaml").write_text(JOBS.format(folder=slurm))
    monkeypatch.chdir(slurm)
    monkeypatch.setattr(clusters, "_SUBMIT", 2)
    monkeypatch.setattr(clusters, "_LOST", 4)
    with tasks.engine(tasks.Where(workers=2, cluster="jobs.yaml")) as engine:
        client, items = engine._client, engine.each(time.sleep, [0.5] * 20)
        done = [next(items)]
        assert {*client.run(told).values()} == {("told", 0o077, dict)}
        before = {*client.nthreads()}
        assert ends_well("scancel", "--me")
        done += items
        after = {*client.nthreads()}
    del engine, client, items
    gc.collect()  # the files of its key, whose warnings would else be another test's
    assert sorted(done) == [(place, None) for place in range(20)]
    assert before and after and not before & after
