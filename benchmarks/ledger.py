"""A million queries through the ledger in batches: throughput, size, time to verify, memory.

    python benchmarks/ledger.py [--queries 1000000] [--batch 1000] [--folder DIR]

Each batch is one line, appended and synced, and the head with it, as in a run; answers are drawn by NumPy, so
that the ledger alone is measured. Adds one line to benchmarks/results/ledger.jsonl.
"""

import argparse
import json
import platform
import resource
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from pate_jax import ledger


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--queries", type=int, default=1_000_000)
    arguments.add_argument("--batch", type=int, default=1000)
    arguments.add_argument("--folder", type=Path)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        found = measure(Path(folder) / "ledger.jsonl", chosen.queries, chosen.batch)
    print(json.dumps(found, indent=1))
    with open(Path(__file__).parent / "results" / "ledger.jsonl", "a") as results:
        results.write(json.dumps(found) + "\n")


def measure(path, queries, batch):
    random, count = np.random.default_rng(0), queries // batch
    peaks, start = [peak()], time.perf_counter()
    with ledger.Writer(path) as book:
        for number in range(count):
            labels, answered = random.integers(0, 10, batch), random.random(batch) < 0.6
            book.append(entry(number, batch, labels, answered))
            if number in (count // 10, count - 1):
                peaks.append(peak())
    written, start = time.perf_counter() - start, time.perf_counter()
    state = ledger.check(path)
    verified, start = time.perf_counter() - start, time.perf_counter()
    ledger.append(path, entry(count, batch, labels, answered))
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "queries": queries,
        "batch": batch,
        "write_seconds": round(written, 3),
        "queries_per_second": round(queries / written),
        "bytes": state.size,
        "bytes_per_query": round(state.size / queries, 3),
        "verify_seconds": round(verified, 3),
        "open_and_append_one_more_seconds": round(time.perf_counter() - start, 3),
        "peak_mib_at_start_after_a_tenth_at_the_end_of_writing_after_verifying": [*peaks, peak()],
    }


def entry(number, batch, labels, answered):
    return {
        "batch": number + 1,
        "mechanism": {"name": "confident-discrete-gaussian", "threshold": 200.0, "sigma": 40.0},
        "teachers": 250,
        "classes": 10,
        "asked": batch,
        **dict.fromkeys(("votes", "queries", "inputs", "noise"), f"{number:064x}"),
        "cost": {"order": 10.0, "rdp": 0.1, "slack": 1e-30},
        "answers": ledger.pack(labels, answered),
    }


def peak():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main()
