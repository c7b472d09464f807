"""A million queries through the ledger in batches: throughput, size, time to verify, memory.

    python benchmarks/ledger.py [--queries 1000000] [--batch 1000] [--folder DIR]

Each batch is one line, appended and synced, and the head with it, as in a run; answers are drawn by NumPy, so
that the ledger alone is measured. Adds one line to benchmarks/results/ledger.jsonl.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
from measurement import add, machine

from pate_jax.runs import chain, ledger


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--queries", type=int, default=1_000_000)
    arguments.add_argument("--batch", type=int, default=1000)
    arguments.add_argument("--folder", type=Path)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        figures = measure(Path(folder) / "ledger.jsonl", chosen.queries, chosen.batch)
    add("ledger", {**machine(), **figures})


def measure(path, queries, batch):
    random, count = np.random.default_rng(0), queries // batch
    peaks, start = [peak()], time.perf_counter()
    with chain.Writer(path) as book:
        for number in range(count):
            labels, answered = random.integers(0, 10, batch), random.random(batch) < 0.6
            book.append(entry(number, batch, labels, answered))
            if number in (count // 10, count - 1):
                peaks.append(peak())
    written, start = time.perf_counter() - start, time.perf_counter()
    state = chain.check(path)
    verified, start = time.perf_counter() - start, time.perf_counter()
    peaks.append(peak())
    chain.append(path, entry(count, batch, labels, answered))
    return {
        "what": "ledger",
        "queries": queries,
        "batch": batch,
        "write_seconds": round(written, 3),
        "queries_per_second": round(queries / written),
        "bytes": state.size,
        "bytes_per_query": round(state.size / queries, 3),
        "verify_seconds": round(verified, 3),
        "open_and_append_one_more_seconds": round(time.perf_counter() - start, 3),
        "peak_mib": dict(zip(("start", "a tenth written", "all written", "verified"), peaks, strict=True)),
    }


def entry(number, batch, labels, answered):
    return {
        "kind": "release",
        "batch": number + 1,
        "event": {"name": "answers", "teachers": 250, "classes": 10, "asked": batch},
        **dict.fromkeys(("exact", "public", "noise"), f"{number:064x}"),
        "budget": {"epsilon": 8.0, "delta": 1e-5, "order": 10.0, "rdp": 6.5, "slack": 1e-12},
        "order": 10.0,
        "cost": {"rdp": 0.1, "slack": 1e-30},
        "values": ledger.pack(labels, answered),
    }


def peak():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    main()
