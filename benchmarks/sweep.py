"""How long a sweep takes from the command to the page, start of Python and compiling included.

    python benchmarks/sweep.py [--votes cnn_mnist_250.npz] [--only figures]

`figures` is 1,000 settings of Confident-GNMax on 9,000 queries: each answered, judged by its labels, and
given its published and its data-independent epsilon. `exact` is 200 settings with the exact epsilon, too.
Without --votes the votes are synthetic, about as consensual as those of 250 MNIST teachers.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measurement import add, machine

from pate_jax.sweep import results

TEACHERS, CLASSES, QUERIES = 250, 10, 9000
GRIDS = {
    "figures": "--noises 20:100:10 --thresholds 100:235:10 --test-noises 50:200:10",
    "exact": "--noises 20:100:5 --thresholds 100:235:10 --test-noises 50:200:4 --exact all",
}


def synthetic(path: Path) -> Path:
    """Votes of 250 teachers on 10 classes with the true label of each query."""
    random = np.random.default_rng(0)
    labels = random.integers(CLASSES, size=QUERIES)
    votes = np.empty((QUERIES, CLASSES), np.int64)
    for row, share in enumerate(random.beta(8, 0.6, QUERIES)):
        chances = (1 - share) * random.dirichlet(np.full(CLASSES, 0.5))
        chances[labels[row]] += share
        votes[row] = random.multinomial(TEACHERS, chances / chances.sum())
    np.savez(path, votes=votes, labels=labels)
    return path


def measure(name: str, votes: Path, flags: list[str], folder: Path) -> dict[str, object]:
    """One command, timed from outside."""
    command = [sys.executable, "-m", "pate_jax.cli", "sweep", str(votes), "--out", str(folder), *flags]
    command += ["--mechanisms", "confident-gnmax", *GRIDS[name].split(), "--queries", str(QUERIES)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = results.read(folder)
    return {
        "name": name,
        "settings": len(rows),
        "exact": sum("exact" in row for row in rows.values()),
        "queries": QUERIES,
        "votes": votes.stem,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_gib": round(after.ru_maxrss / 2**20, 2),
        "command": f"pate sweep {votes.name} --mechanisms confident-gnmax {GRIDS[name]} --queries {QUERIES}",
        **machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--votes", type=Path, help="a votes file of 250 teachers with at least 9,000 queries")
    parser.add_argument("--only", choices=sorted(GRIDS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        votes = options.votes or synthetic(Path(folder) / "synthetic.npz")
        flags = ["--judged-on", "public" if options.votes else "synthetic"]
        if options.votes and "teacher_labels" in np.load(votes, allow_pickle=False).files:
            flags.append("--labels-are-teacher-labels")
        for name in [options.only] if options.only else GRIDS:
            add("sweep", measure(name, votes, flags, Path(folder) / name))


if __name__ == "__main__":
    main()
