"""What workers cost and bring: the same sweep and the same shadow runs in process and on 1, 2 and 4 workers.

    python benchmarks/cluster.py [--queries 9000] [--shadows 64] [--busy]

Whole commands are timed, start of Python, of the workers and of JAX included. The rows of the sweep and the
figures of the attack must be the same everywhere, or the benchmark ends with an error.
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
import numpy as np
import sweep as settings

from pate_jax.sweep import results

WORKERS = (None, 1, 2, 4)


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


def attacked(run: Path, shadows: int, workers: int | None) -> tuple[float, Any]:
    """The shadow runs of an attack: their seconds, and what came of them."""
    words = ["attack", run, "--only", "membership", "--shadows", shadows, "--json"]
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
    parser.add_argument("--queries", type=int, default=settings.QUERIES)
    parser.add_argument("--shadows", type=int, default=64)
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    load = measurement.load(chosen.busy)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        votes = settings.synthetic(folder / "all.npz")
        with np.load(votes, allow_pickle=False) as arrays:
            np.savez(folder / "votes.npz", **{one: arrays[one][: chosen.queries] for one in arrays})
        run = folder / "run"
        pate(
            "run",
            "strokes",
            "--voters",
            "sums",
            "--records",
            2000,
            "--out",
            run,
            "--register",
            "none",
        )
        kinds = {
            f"sweep of 1,000 settings, {chosen.queries:,} queries": [
                swept(folder / "votes.npz", folder, one) for one in WORKERS
            ],
            f"{chosen.shadows} shadow runs": [attacked(run, chosen.shadows, one) for one in WORKERS],
        }
        for what, each in kinds.items():
            print(json.dumps({**measurement.machine(), "load": load, **compared(what, each)}), flush=True)


if __name__ == "__main__":
    main()
