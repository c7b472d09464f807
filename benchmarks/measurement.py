"""What the benchmarks share: the machine and its load, processes that each have a core, files of results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices

RESULTS = Path(__file__).parent / "results"
QUIET = 0.3  # the load above which other programs disturb a measurement
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def add_busy(parser: argparse.ArgumentParser) -> None:
    """The flag that measures beside other programs."""
    words = f"measure although the machine's load is above {QUIET}; the load is recorded"
    parser.add_argument("--busy", action="store_true", help=words)


def load(busy: bool) -> float:
    """The load of the last minute, before a measurement; a busy machine ends the program unless told."""
    now = round(os.getloadavg()[0], 2)
    if now > QUIET and not busy:
        sys.exit(f"the load is {now}, above {QUIET}: wait until nothing else runs, or give --busy")
    return now


class Pinned:
    """The same command on every core, each process with one core and one thread, measured at the same moment.

    Each process reads a number of seconds, works that long, and prints how much it did a second (`serve`).
    """

    def __init__(self, command: Sequence[str]) -> None:
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
        self._workers = [
            subprocess.Popen(
                ["taskset", "-c", str(core), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for core in sorted(os.sched_getaffinity(0))
        ]
        self.pace(0.01)  # all have compiled

    def pace(self, seconds: float) -> float:
        """What all of them do in a second."""
        for worker in self._workers:
            print(seconds, file=worker.stdin, flush=True)
        return sum(float(worker.stdout.readline()) for worker in self._workers if worker.stdout)


def pinned(name: str, command: Sequence[str]) -> Way:
    """A way that Python programs follow on all cores at once."""
    return Way(f"pinned_{name}", Pinned([sys.executable, *command]).pace)


def serve(work: Callable[[float], float]) -> None:
    """What a pinned process does: `work(seconds)` for each line of its input."""
    for line in sys.stdin:
        print(work(float(line)), flush=True)


class Way(NamedTuple):
    """A way to do something: how much of it a second, measured for some seconds."""

    name: str
    pace: Callable[[float], float]
    compile_seconds: float = 0.0


def way(name: str, run: Callable[[], int], compile_seconds: float = 0.0) -> Way:
    """A way in this process; `run()` says how much it did."""
    return Way(name, lambda seconds: pace(run, seconds), compile_seconds)


def pace(run: Callable[[], int], seconds: float) -> float:
    """How much `run`, which says how much it did, does in a second."""
    began, done = time.perf_counter(), 0
    while (passed := time.perf_counter() - began) < seconds:
        done += run()
    return done / passed


class Memory(threading.Thread):
    """MiB that this process holds at most, without files that it has mapped, while the block runs."""

    def __enter__(self) -> Memory:
        self.began = self.most = self.now()
        self.done = threading.Event()
        self.start()
        return self

    def run(self) -> None:
        while not self.done.wait(0.05):
            self.most = max(self.most, self.now())

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.join()

    @staticmethod
    def now() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def machine() -> dict[str, Any]:
    """Processor, cores, and the versions of Python, JAX and NumPy."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(": ")[1] for line in lines if line.startswith("model name"))
    return {
        "machine": next(names, platform.processor()),
        "cores": devices.cores(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }


def add(benchmark: str, line: Mapping[str, Any]) -> None:
    """Print a line and append it to the results of a benchmark."""
    text = json.dumps(line)
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{benchmark}.jsonl").open("a") as stream:
        stream.write(text + "\n")
