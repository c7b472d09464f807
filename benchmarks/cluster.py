"""What workers cost and bring: the same sweep and the same shadow runs in process and on 1, 2 and 4 workers.

    python benchmarks/cluster.py [--only sweep] [--busy]

Whole commands are timed, start of Python, of the workers and of JAX included. A setting has 9,000 queries of
250 teachers, a shadow run of sums has 20,000 records. The rows of the sweep and the figures of the attack
must be the same everywhere, or the benchmark ends with an error. On one core 2 and 4 workers gain nothing.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import measurement
import sweep as settings

from pate_jax.sweep import results

WORKERS = (None, 1, 2, 4)
SHADOWS, RECORDS = 64, 20_000


def pate(*words: object) -> tuple[float, str]:
    """The seconds of a command, and what it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pate_jax.cli", *map(str, words)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return round(time.perf_counter() - began, 1), done.stdout


def where(workers: int | None) -> list[object]:
    """The flags for so many workers."""
    return [] if workers is None else ["--workers", workers]


def swept(votes: Path, folder: Path, workers: int | None) -> tuple[float, Any]:
    """A sweep of 1,000 settings: its seconds, and its rows."""
    out = folder / f"sweep-{workers}"
    grid = [*["--mechanisms", "confident-gnmax"], *settings.GRIDS["figures"].split()]
    seconds, _ = pate("sweep", votes, "--out", out, *grid, *where(workers))
    return seconds, results.read(out)


def attacked(run: Path, workers: int | None) -> tuple[float, Any]:
    """The shadow runs of an attack: their seconds, and what came of them."""
    words = ["attack", run, "--only", "membership", "--shadows", SHADOWS, "--json"]
    seconds, said = pate(*words, *where(workers))
    return seconds, json.loads(said)


def compared(name: str, each: Sequence[tuple[float, Any]]) -> dict[str, Any]:
    """One line: seconds by workers, after a check that all gave the same."""
    if any(found != each[0][1] for _, found in each):
        sys.exit(f"{name}: workers gave something else than one process")
    seconds = {
        "in process" if one is None else str(one): took for one, (took, _) in zip(WORKERS, each, strict=True)
    }
    return {
        "name": name,
        "seconds by workers": seconds,
        "overhead at 1": round(each[1][0] / each[0][0] - 1, 3),
    }


def main() -> None:
    """Measure, and print a line of JSON for each kind of work."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=["sweep", "shadows"])
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    load = measurement.load(chosen.busy)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        votes = settings.synthetic(folder / "all.npz")
        told = {"load": load, **measurement.machine()}
        if chosen.only != "shadows":
            each = [swept(votes, folder, one) for one in WORKERS]
            measurement.add("cluster", {**compared("sweep of 1,000 settings", each), **told})
        if chosen.only != "sweep":
            run = folder / "run"
            given = ["--voters", "sums", "--steps", 1, "--records", RECORDS, "--register", "none"]
            pate("run", "strokes", *given, "--student.method", "ridge", "--out", run)
            each = [attacked(run, one) for one in WORKERS]
            measurement.add("cluster", {**compared(f"{SHADOWS} shadow runs", each), **told})


if __name__ == "__main__":
    main()
