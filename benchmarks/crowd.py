"""How fast a crowd votes, beside scikit-learn at the same work: one line of JSON for each measurement.

    python benchmarks/crowd.py --records 1000000

Records of 256 numbers lie in a memory-mapped .npy; they become noisy counts at 100 queries (1 vote each) and
noisy sums of 10 classes in 200 directions. scikit-learn gets the same vectors, already made and in memory:
brute-force nearest neighbours, and the normal equations of ridge regression. `memory` is what the process
grew by while it worked.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax import crowd  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.crowds import noisy_table  # noqa: E402
from pate_jax.crowd import queries  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts  # noqa: E402
from pate_jax.models import spaces  # noqa: E402

COLUMNS, CLASSES, QUERIES, DIRECTIONS, LENGTH = 256, 10, 100, 200, 400


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds, and what came of it."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


def drawn(folder: Path, records: int) -> tuple[np.ndarray, np.ndarray]:
    """Records on disk, mapped, and their labels."""
    random = np.random.default_rng(0)
    mapped = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.float32, (records, COLUMNS))
    for start in range(0, records, 50_000):
        mapped[start : start + 50_000] = random.normal(size=(min(50_000, records - start), COLUMNS))
    mapped.flush()
    there = np.load(folder / "inputs.npy", mmap_mode="r", allow_pickle=False)
    return there, random.integers(0, CLASSES, records).astype(np.int32)


def rivals(inputs: np.ndarray, labels: np.ndarray, chosen: np.ndarray) -> dict[str, float]:
    """Seconds of scikit-learn for nearest neighbours and for ridge regression."""
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import NearestNeighbors

    held, targets = np.ascontiguousarray(inputs[:, :DIRECTIONS]), np.eye(CLASSES, dtype=np.float32)[labels]
    finder = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(chosen)
    neighbours = timed(lambda: finder.kneighbors(held, return_distance=False))[0]
    return {"neighbours": neighbours, "ridge": timed(lambda: Ridge(solver="cholesky").fit(held, targets))[0]}


def measured(folder: Path, records: int) -> dict[str, Any]:
    """All of it, once compiled."""
    inputs, labels = drawn(folder, records)
    pool = np.random.default_rng(1).normal(size=(5000, COLUMNS)).astype(np.float32)
    space = spaces.learn("identity", pool, directions=DIRECTIONS)
    public = space.coordinates(pool)
    chosen = queries.choose(crowd.scaling(space, public, length=queries.LENGTH, power=0.3), public, QUERIES)
    scaling = crowd.scaling(space, public, length=LENGTH, power=0.5)
    counts = NeighbourCounts(QUERIES, CLASSES, votes=1, sigma=40.0)
    sums = ClassSums(CLASSES, DIRECTIONS, LENGTH, sigma=3000.0)

    def votes(people: crowd.Voters) -> Any:
        return noisy_table(counts, crowd.counts(space, chosen, people, counts), key=seeded_key(1))

    def vectors(people: crowd.Voters) -> Any:
        return noisy_table(sums, crowd.sums(space, scaling, people, sums), key=seeded_key(2))

    warm = crowd.Voters(inputs[:5000], labels[:5000], None)
    _ = votes(warm), vectors(warm)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    people = crowd.Voters(inputs, labels, None)
    took = {"neighbours": timed(lambda: votes(people))[0], "sums": timed(lambda: vectors(people))[0]}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    theirs = rivals(inputs, labels, pool[chosen.rows][:, :DIRECTIONS])
    return {
        "records": records,
        "cores": devices.cores(),
        **{f"{name}_seconds": round(seconds, 2) for name, seconds in took.items()},
        **{f"{name}_records_per_second": round(records / seconds) for name, seconds in took.items()},
        **{f"scikit_learn_{name}_seconds": round(seconds, 2) for name, seconds in theirs.items()},
        "memory_mib": round(grown),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measured(Path(folder), chosen.records)))


if __name__ == "__main__":
    main()
