"""How fast a crowd votes, beside scikit-learn at the same work: one line of JSON for each measurement.

    python benchmarks/crowd.py --records 1000000
    python benchmarks/crowd.py --records 60000 --columns 4900  # as many as images have features
    python benchmarks/crowd.py --images 60000

Records lie in a memory-mapped .npy; they become noisy counts at 100 queries (1 vote each) and noisy sums of
10 classes in 200 directions. scikit-learn does the same work from the same file, block by block: principal
components and brute-force nearest neighbours, or the normal equations of ridge regression. `memory` is what
the process grew by while it worked, pages of the mapped file left out. On a machine that does other work,
compare seconds of CPU time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402
from measurement import Memory  # noqa: E402

from pate_jax import crowd  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.noise import noisy_table  # noqa: E402
from pate_jax.crowd import neighbours as queries  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts  # noqa: E402
from pate_jax.models import spaces  # noqa: E402
from pate_jax.models.spaces import Space  # noqa: E402

CLASSES, QUERIES, DIRECTIONS, LENGTH = 10, 100, 200, 400
BLOCK = 4000  # records that scikit-learn reads at a time


def timed(name: str, work: Callable[[], Any]) -> dict[str, float]:
    """Seconds by the clock and of CPU time."""
    began, used = time.perf_counter(), time.process_time()
    work()
    taken = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    return {f"{name}_{what}": round(value, 2) for what, value in taken.items()}


def drawn(folder: Path, records: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Records on disk, mapped, and their labels."""
    random = np.random.default_rng(0)
    mapped = np.lib.format.open_memmap(folder / "inputs.npy", "w+", np.float32, (records, columns))
    for start in range(0, records, BLOCK):
        mapped[start : start + BLOCK] = random.normal(size=(min(BLOCK, records - start), columns))
    mapped.flush()
    there = np.load(folder / "inputs.npy", mmap_mode="r", allow_pickle=False)
    return there, random.integers(0, CLASSES, records).astype(np.int32)


def rivals(inputs: np.ndarray, labels: np.ndarray, pool: np.ndarray, rows: np.ndarray) -> dict[str, float]:
    """scikit-learn's nearest neighbours and ridge regression."""
    from sklearn.decomposition import PCA
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import NearestNeighbors

    axes = PCA(DIRECTIONS, svd_solver="randomized", random_state=0).fit(pool)
    finder = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(axes.transform(pool[rows]))
    starts = range(0, len(inputs), BLOCK)

    def vectors() -> Iterator[np.ndarray]:
        return (axes.transform(inputs[start : start + BLOCK]) for start in starts)

    def neighbours() -> None:
        for block in vectors():
            finder.kneighbors(block, return_distance=False)

    def ridge() -> None:
        Ridge(solver="cholesky").fit(
            np.concatenate(list(vectors())), np.eye(CLASSES, dtype=np.float32)[labels]
        )

    return {**timed("scikit_learn_neighbours", neighbours), **timed("scikit_learn_ridge", ridge)}


def measured(
    space: Space, pool: np.ndarray, inputs: np.ndarray, labels: np.ndarray
) -> tuple[dict[str, Any], np.ndarray]:
    """Counts and sums, once compiled; and the rows of the pool that were the queries."""
    public = space.coordinates(pool)
    chosen = queries.choose(crowd.scaling(space, public, length=queries.LENGTH, power=0.3), public, QUERIES)
    scaling = crowd.scaling(space, public, length=LENGTH, power=0.5)
    counts = NeighbourCounts(QUERIES, CLASSES, votes=1, sigma=40.0)
    sums = ClassSums(CLASSES, len(space.variances), LENGTH, sigma=3000.0)

    def votes(people: crowd.Voters) -> Any:
        return noisy_table(counts, crowd.counts(space, chosen, people, counts), key=seeded_key(1))

    def vectors(people: crowd.Voters) -> Any:
        return noisy_table(sums, crowd.sums(space, scaling, people, sums), key=seeded_key(2))

    warm = crowd.Voters(inputs[:5000], labels[:5000], None)
    _ = votes(warm), vectors(warm)
    people = crowd.Voters(inputs, labels, None)
    with Memory() as memory:
        took = {**timed("neighbours", lambda: votes(people)), **timed("sums", lambda: vectors(people))}
    told = {"records": len(inputs), "cores": devices.cores(), **took}
    return {**told, "memory_mib": round(memory.most - memory.began)}, chosen.rows


def of_vectors(folder: Path, records: int, columns: int) -> dict[str, Any]:
    """Records that are vectors, beside scikit-learn."""
    inputs, labels = drawn(folder, records, columns)
    pool = np.random.default_rng(1).normal(size=(5000, columns)).astype(np.float32)
    told, rows = measured(spaces.learn("identity", pool, directions=DIRECTIONS), pool, inputs, labels)
    return {**told, **rivals(inputs, labels, pool, rows)}


def of_images(records: int) -> dict[str, Any]:
    """Images of the size of MNIST, with their features; what is in them takes no part in the time."""
    random = np.random.default_rng(2)
    images = random.integers(0, 256, (records, 28, 28, 1)).astype(np.uint8)
    pool = random.integers(0, 256, (3000, 28, 28, 1)).astype(np.uint8)
    space = spaces.learn("patches", pool, Preprocessing((0.0,), (255.0,)), directions=DIRECTIONS)
    return measured(space, pool, images, random.integers(0, CLASSES, records).astype(np.int32))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--images", type=int, help="so many images in place of vectors")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images is not None
        found = (
            of_images(chosen.images) if images else of_vectors(Path(folder), chosen.records, chosen.columns)
        )
        print(json.dumps(found))


if __name__ == "__main__":
    main()
