"""Dask clusters for `tasks`: workers of this machine, jobs of a batch system, or a running scheduler.

What workers compute may be as sensitive as the records, and whoever reaches a scheduler can run programs on
its workers. So workers of one machine and jobs talk by TLS, with a key that is made for them and lives as
long as they do, and there is no dashboard. For a scheduler of your own, Dask's configuration names the
certificate and key.
"""

from __future__ import annotations

import asyncio
import glob
import json
import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pate_jax.errors import PateError
from pate_jax.system import devices, progress

if TYPE_CHECKING:
    from distributed import Client
    from distributed.deploy import Cluster
    from distributed.security import Security

_ANSWER = 15  # seconds that a scheduler has for its first answer
_START = 60  # seconds until the first worker of a running scheduler must be there
_SUBMIT = 60  # seconds between two looks at the jobs of a batch system
_LOST = 120  # seconds that a killed worker has to start anew in its job
_LOOK = 0.5  # seconds between two looks at the workers of this machine
_PATIENCE = 300  # seconds that items wait for a worker of this machine, when there is none
_WORK = "from pate_jax.system import clusters; clusters.work()"
_UNSPILT = "DASK_DISTRIBUTED__WORKER__MEMORY__"  # whose TARGET and SPILL have results written to disk
_PROLOGUE = ("umask 077", f"export {_UNSPILT}TARGET=False", f"export {_UNSPILT}SPILL=False")
_BLAS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_USUAL: Mapping[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.allowed-failures": 20,  # a worker that is killed takes its item down with it
    "distributed.scheduler.http.routes": [],  # else anybody on this machine may read what is going on
    "distributed.worker.http.routes": [],
    "distributed.scheduler.worker-ttl": None,  # compiling may hold a worker up for minutes
}


def _be_silent() -> None:
    """What goes wrong is said in one sentence, and not by Dask."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


_be_silent()


@contextmanager
def local(workers: int) -> Iterator[Client]:
    """Workers of this machine, which start anew when they are killed, and end with this process."""
    import dask.config
    from distributed import Client, Scheduler, SpecCluster
    from distributed.security import Security

    security = Security.temporary()
    patience = {"distributed.scheduler.no-workers-timeout": f"{_PATIENCE}s"}
    usual = {"protocol": "tls", "host": "127.0.0.1", "security": security, "dashboard": False}
    scheduler = {"cls": Scheduler, "options": {**usual, "dashboard_address": "127.0.0.1:0"}}
    with (
        dask.config.set({**_USUAL, **patience}),
        SpecCluster({}, scheduler, security=security, silence_logs=logging.CRITICAL) as cluster,
        Client(cluster, security=security, set_as_default=False) as client,
        _Crew(cluster.scheduler_address, security, workers) as crew,
    ):
        crew.wait(client)
        yield client


class _Crew:
    """Worker processes of this machine; where one ends, another takes its place.

    Dask's own nannies do not: they give a worker up that is killed again and again while it starts.
    """

    def __init__(self, address: str, security: Security, workers: int) -> None:
        names = ("tls_ca_file", "tls_worker_cert", "tls_worker_key", "require_encryption")
        told = {"address": address, "security": {name: getattr(security, name) for name in names}}
        self._told, self._deaths = json.dumps(told).encode() + b"\n", 0
        self._ended = threading.Event()
        self._processes = [self._started(place, workers) for place in range(workers)]
        self._keeper = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> _Crew:
        self._keeper.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._keeper.join()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            _close(process)

    def wait(self, client: Client) -> None:
        """Wait until all workers are there."""
        number, until = len(self._processes), time.monotonic() + _PATIENCE
        while True:
            try:
                client.wait_for_workers(number, timeout=2)
                return
            except TimeoutError as error:
                if self._deaths > 3 * number or time.monotonic() > until:
                    raise PateError(
                        f"--workers {number}: the workers do not start ({self._deaths} ended before all were "
                        "ready); use fewer, or leave --workers out to work in this process"
                    ) from error

    def _keep(self) -> None:
        while not self._ended.wait(_LOOK):
            for place, process in enumerate(self._processes):
                if process.poll() is not None:
                    self._deaths += 1
                    _close(process)
                    self._processes[place] = self._started(place, len(self._processes))

    def _started(self, place: int, workers: int) -> subprocess.Popen[bytes]:
        """A new process, which is told by its input whom to work for, and ends when that is closed."""
        found = [*map(os.path.abspath, filter(None, sys.path))]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(found), **_environment(place, workers)}
        process = subprocess.Popen([sys.executable, "-c", _WORK], stdin=subprocess.PIPE, env=environment)
        if process.stdin is not None:
            with suppress(BrokenPipeError):  # it was killed already, and is replaced at the next look
                process.stdin.write(self._told)
                process.stdin.flush()
        return process


def _close(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with suppress(BrokenPipeError):
            process.stdin.close()


def work() -> None:
    """Be a worker of whoever started this process, as long as that lives."""
    told = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    asyncio.run(_worked(told["address"], told["security"]))


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


async def _worked(address: str, security: Mapping[str, Any]) -> None:
    import dask.config
    from distributed import Worker
    from distributed.security import Security

    _be_silent()  # anew, since Dask sets levels of its own when it is imported
    usual: dict[str, Any] = {"host": "127.0.0.1", "dashboard": False}
    usual["memory_limit"] = 0  # without a limit, no result is ever written to disk
    with dask.config.set(_USUAL):
        async with Worker(address, nthreads=1, security=Security(**security), **usual) as worker:
            await worker.finished()


def _environment(place: int, workers: int) -> dict[str, str]:
    """What a worker's JAX finds: its share of the cores, and one GPU where there are some."""
    share = max(1, devices.cores() // workers)
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if "host_platform_device" not in flag]
    found = {
        **dict.fromkeys(_BLAS, str(share)),
        "XLA_FLAGS": " ".join([*flags, devices.host_devices_flag(share)]),
    }
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = visible.split(",") if visible else [str(one) for one in range(len(glob.glob("/dev/nvidia[0-9]*")))]
    if gpus:
        found["CUDA_VISIBLE_DEVICES"] = gpus[place % len(gpus)]
        found["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{0.75 / -(-workers // len(gpus)):.2f}"
    return found


@contextmanager
def existing(address: str, private: bool) -> Iterator[Client]:
    """A scheduler that runs already, with its own workers."""
    from distributed import Client

    if not address.startswith(("tls://", "tcp://")):
        raise PateError(
            f"--cluster {address} is neither an address, as tls://HOST:8786, nor a .yaml file for "
            "dask-jobqueue"
        )
    check_secret(address, private)
    try:
        with warnings.catch_warnings(action="ignore"):  # of other versions, which are refused below
            client = Client(address, timeout=_ANSWER, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        tls = " with the certificate and key that it has (distributed.comm.tls of Dask)"
        raise PateError(
            f"no scheduler answers at {address}: start one by `dask scheduler`"
            f"{tls * address.startswith('tls')}, or leave out --cluster ({_short(error)})"
        ) from error
    with client:
        check_versions(client)
        try:
            client.wait_for_workers(1, timeout=_START)
        except TimeoutError as error:
            raise PateError(
                f"the scheduler at {address} has no workers: start some by "
                f"`dask worker {address} --nthreads 1`"
            ) from error
        yield client


def check_secret(address: str, private: bool) -> None:
    """Refuse to send what comes from private records over a network where others could read or change it.

    >>> check_secret("tcp://127.0.0.1:8786", private=True)
    """
    host = address.partition("://")[2].rpartition(":")[0].strip("[]")
    within = address.startswith(("tls://", "inproc://")) or host in ("127.0.0.1", "localhost", "::1")
    if private and not within:
        raise PateError(
            f"{address} is not encrypted, and what comes from private records would travel to {host}: start "
            "scheduler and workers with TLS, and name tls://HOST:PORT (docs/start/cluster.md)"
        )


def check_versions(client: Client) -> None:
    """Refuse a scheduler whose Dask is another one than here."""
    from distributed import __version__

    told: Any = client.get_versions()
    theirs = (told["scheduler"] or {}).get("packages", {}).get("distributed")
    if theirs != __version__:
        raise PateError(
            f"the scheduler at {address_of(client)} has distributed {theirs}, and here is {__version__}: "
            "install the same version in both places"
        )


def address_of(client: Client) -> str:
    """Where the scheduler of a client is."""
    scheduler: Any = client.scheduler
    return str(scheduler.address)


@contextmanager
def of_jobs(file: str, jobs: int | None) -> Iterator[Client]:
    """Jobs of a batch system, described as dask-jobqueue's own configuration describes them."""
    import dask.config
    from distributed import Client

    if jobs is None:
        raise PateError(f"--cluster {file} says what a job is; say with --workers how many workers to start")
    kind, options = _described(Path(file))
    try:
        import dask_jobqueue  # noqa: F401 (which adds what jobs usually are to the configuration)
    except ImportError as error:
        raise PateError("--cluster FILE.yaml needs dask-jobqueue: pip install dask-jobqueue") from error
    own = {f"jobqueue.{kind}.{name}": value for name, value in options.items()}
    own["distributed.deploy.lost-worker-timeout"] = f"{_LOST}s"
    with dask.config.set({**_USUAL, **own}), _jobs(kind, options) as cluster, _submitted(cluster, jobs):
        progress.say(f"waiting for the first of {jobs} workers, by jobs of {kind}")
        with Client(cluster, security=cluster.security, set_as_default=False) as client:
            client.wait_for_workers(1)
            yield client


@contextmanager
def _submitted(cluster: Cluster, jobs: int) -> Iterator[None]:
    """So many jobs, and others in place of those that end, as by their walltime."""
    ended = threading.Event()

    def keep() -> None:
        cluster.scale(jobs)
        while not ended.wait(_SUBMIT):
            cluster.scale(jobs)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join()


def _jobs(kind: str, options: Mapping[str, Any]) -> Cluster:
    """The cluster of this kind, with TLS by a key that its jobs read from a folder of the user's alone."""
    import dask.config
    import dask_jobqueue
    from distributed.security import Security

    made = getattr(dask_jobqueue, f"{kind.upper()}Cluster", None) or dask_jobqueue.HTCondorCluster
    place = Path(options.get("shared-temp-directory") or Path.home() / ".cache" / "pate_jax" / "jobs")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    told = dask.config.get(f"jobqueue.{kind}.job-script-prologue") or ()
    try:
        cluster: Cluster = made(
            protocol="tls://",
            security=Security.temporary(),
            shared_temp_directory=str(place),
            job_script_prologue=[*told, *_PROLOGUE],
            worker_extra_args=["--nthreads", "1", "--no-dashboard"],  # further threads are JAX's
            scheduler_options={"dashboard": False, "dashboard_address": ":0"},
            silence_logs=logging.CRITICAL,
        )
    except (ValueError, TypeError) as error:
        raise PateError(f"jobqueue.{kind} does not describe a job: {_short(error)}") from error
    return cluster


def _described(path: Path) -> tuple[str, dict[str, Any]]:
    """The kind of the batch system and the options of its jobs."""
    import yaml

    kinds = ("slurm", "pbs", "sge", "lsf", "oar", "moab", "htcondor")
    try:
        body = yaml.safe_load(path.read_text())
    except OSError as error:
        raise PateError(f"--cluster {path} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise PateError(f"{path} is no YAML: {_short(error)}") from error
    told = body.get("jobqueue") if isinstance(body, dict) else None
    if not isinstance(told, dict) or len(told) != 1 or not {*told} <= {*kinds}:
        raise PateError(f"{path} must hold jobqueue, and below it one of {', '.join(kinds)}, with options")
    kind, options = next(iter(told.items()))
    if not isinstance(options, dict):
        raise PateError(f"{path}: jobqueue.{kind} has no options; give cores, memory and so on")
    return kind, options


def _short(error: BaseException) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]
