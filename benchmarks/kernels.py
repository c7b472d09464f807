"""What one call of each kernel costs, in microseconds, beside the same work in NumPy.

    python benchmarks/kernels.py                                 # all; wants a quiet machine
    python benchmarks/kernels.py --busy --kernels answer --queries 100 10000

Each kernel is measured as a plain call with its checks (`call`), within a jitted program (`one_device`), and
within a jitted `shard_map` over eight devices that the cores of the host share (`eight_devices`). They run in
turns with `numpy`, after one call of each. `cpu_us` is the CPU time of all threads, which other programs
disturb little, and `wall_us` the time by the clock; both are the median of rounds. NumPy draws from PCG64,
which is not cryptographic, and breaks ties towards the first class; its discrete noise is rounded normals.
Votes are those of 250 teachers, labels those of 50, vectors have 32 directions, crowds have 100 queries, and
`answer_many` takes three settings. Lines are appended to benchmarks/results/kernels.jsonl.
"""

from __future__ import annotations

import os

os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count=8 {os.environ.get('XLA_FLAGS', '')}".strip()
)

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import measurement
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from pate_jax import aggregate, voting
from pate_jax.crowd import kernels
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

DEVICES = 8
SIGMA, TEACHERS, DIRECTIONS, ASKED, LENGTH, SETTINGS = 40.0, 50, 32, 100, 400, (20.0, 40.0, 80.0)
LEAST = 0.02  # seconds that a measurement takes, in as many calls as that needs


class Race(NamedTuple):
    """A kernel as a function of arrays and a key, where its queries or voters are, and NumPy's way."""

    arrays: list[np.ndarray]
    kernel: Callable[..., Any]
    numpy: Callable[[], Any]
    axes: tuple[P, ...]  # of the arrays
    out: P
    summed: bool = False  # over the devices, in place of one part on each


def votes_of(queries: int, classes: int) -> np.ndarray:
    chances = np.full(classes, 0.3 / (classes - 1))
    chances[0] = 0.7
    return np.random.default_rng(0).multinomial(250, chances, size=queries).astype(np.int32)


def answering(mechanism: Any, queries: int, classes: int) -> Race:
    votes, rng = votes_of(queries, classes), np.random.default_rng(1)
    whole = isinstance(mechanism, DiscreteGaussianMax)

    def by_numpy() -> np.ndarray:
        noisy = rng.standard_normal(votes.shape, dtype=np.float32)
        noisy *= np.float32(SIGMA)
        if whole:
            np.rint(noisy, out=noisy)
        noisy += votes
        return noisy.argmax(1)

    def kernel(votes: Any, key: jax.Array) -> Any:
        return aggregate.answer(mechanism, votes, key=key).labels

    return Race([votes], kernel, by_numpy, (P("d"),), P("d"))


def answering_many(queries: int, classes: int) -> Race:
    settings = aggregate.prepare([GNMax(sigma) for sigma in SETTINGS])
    once, votes = answering(GNMax(SIGMA), queries, classes), votes_of(queries, classes)

    def kernel(votes: Any, key: jax.Array) -> Any:
        return aggregate.answer_many(settings, votes, key=key).labels

    return Race([votes], kernel, lambda: [once.numpy() for _ in SETTINGS], (P("d"),), P(None, "d"))


def counting(queries: int, classes: int) -> Race:
    labels = np.random.default_rng(0).integers(0, classes, (TEACHERS, queries)).astype(np.int16)
    first = np.arange(queries) * classes

    def by_numpy() -> np.ndarray:
        counts = np.zeros(queries * classes, np.int32)
        for row in labels:  # a bincount of all rows at once takes longer, and eight times the memory
            counts[first + row] += 1
        return counts.reshape(queries, classes)

    def kernel(labels: Any, _: jax.Array) -> Any:
        return voting.histogram(labels, classes)

    return Race([labels], kernel, by_numpy, (P(None, "d"),), P("d"))


def people(voters: int, classes: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    vectors = rng.integers(-60, 60, (voters, DIRECTIONS)).astype(np.float32)
    return [vectors, rng.integers(0, classes, voters).astype(np.int32)]


def summing(voters: int, classes: int) -> Race:
    release = ClassSums(classes, DIRECTIONS, LENGTH, sigma=3000.0)
    vectors, labels = people(voters, classes)

    def by_numpy() -> np.ndarray:
        size = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        rows = np.trunc(vectors * np.minimum(1, LENGTH / np.maximum(size, 1))[:, None])
        return np.stack([np.bincount(labels, row, classes) for row in np.ascontiguousarray(rows.T)], 1)

    def kernel(vectors: Any, labels: Any, _: jax.Array) -> Any:
        return kernels.class_sums(release, vectors, labels)

    return Race([vectors, labels], kernel, by_numpy, (P("d"), P("d")), P(), summed=True)


def voting_nearby(voters: int, classes: int) -> Race:
    release = NeighbourCounts(ASKED, classes, votes=1, sigma=40.0)
    vectors, labels = people(voters, classes)
    asked = people(ASKED, classes)[0] + 1
    squares = (asked**2).sum(1)

    def by_numpy() -> np.ndarray:
        places = (squares - 2 * vectors @ asked.T).argmin(1)
        return np.bincount(places * classes + labels, minlength=ASKED * classes).reshape(ASKED, classes)

    def kernel(vectors: Any, labels: Any, _: jax.Array) -> Any:
        return kernels.neighbour_counts(release, vectors, labels, asked)

    return Race([vectors, labels], kernel, by_numpy, (P("d"), P("d")), P(), summed=True)


KERNELS: dict[str, Callable[[int, int], Race]] = {
    "histogram": counting,
    "answer": lambda queries, classes: answering(GNMax(SIGMA), queries, classes),
    "answer_discrete": lambda queries, classes: answering(DiscreteGaussianMax(SIGMA), queries, classes),
    "answer_many": answering_many,
    "neighbour_counts": voting_nearby,
    "class_sums": summing,
}


def ways(race: Race) -> dict[str, Callable[[], Any]]:
    """The contestants; of eight devices each has an equal part, so a few rows may be left out."""
    here = [jnp.asarray(each) for each in race.arrays]
    key = aggregate.fresh_key()
    jitted = jax.jit(race.kernel)
    mesh = jax.make_mesh((DEVICES,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def part(*given: Any) -> Any:
        *arrays, key = given
        found = race.kernel(*arrays, jax.random.fold_in(key, jax.lax.axis_index("d")))
        return jax.lax.psum(found, "d") if race.summed else found

    mapped = jax.jit(jax.shard_map(part, mesh=mesh, in_specs=(*race.axes, P()), out_specs=race.out))
    spread = [
        jax.device_put(even(array, axes), NamedSharding(mesh, axes))
        for array, axes in zip(race.arrays, race.axes, strict=True)
    ]
    return {
        "numpy": race.numpy,
        "call": lambda: jax.block_until_ready(race.kernel(*here, key)),
        "one_device": lambda: jax.block_until_ready(jitted(*here, key)),
        "eight_devices": lambda: jax.block_until_ready(mapped(*spread, key)),
    }


def even(array: np.ndarray, axes: P) -> np.ndarray:
    """The array without the rows that eight devices cannot share evenly."""
    axis = tuple(axes).index("d")
    return (
        array.take(range(array.shape[axis] // DEVICES * DEVICES), axis)
        if array.shape[axis] % DEVICES
        else array
    )


def timed(run: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Microseconds of CPU time, and by the clock, of one of some calls."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(calls):
        run()
    return (time.process_time() - cpu) / calls * 1e6, (time.perf_counter() - wall) / calls * 1e6


def compared(race: Race, rounds: int) -> dict[str, Any]:
    """All contestants in turns."""
    runs, calls = ways(race), {}
    for name, run in runs.items():
        run()
        calls[name] = max(1, min(1000, int(LEAST * 1e6 / timed(run, 1)[1])))
    turns = [{name: timed(run, calls[name]) for name, run in runs.items()} for _ in range(rounds)]
    middle = {name: [statistics.median(turn[name][way] for turn in turns) for way in (0, 1)] for name in runs}
    ratios = {
        name: statistics.median(turn["numpy"][0] / turn[name][0] for turn in turns)
        for name in runs
        if name != "numpy"
    }
    return {
        "cpu_us": {name: round(cpu) for name, (cpu, _) in middle.items()},
        "wall_us": {name: round(wall) for name, (_, wall) in middle.items()},
        "cpu_times_less_than_numpy": {name: round(ratio, 2) for name, ratio in ratios.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--queries", nargs="+", type=int, default=[100, 10_000, 1_000_000])
    parser.add_argument("--classes", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=3)
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    load = measurement.load(chosen.busy)
    for name in chosen.kernels:
        for queries in chosen.queries:
            for classes in chosen.classes:
                found = compared(KERNELS[name](queries, classes), chosen.rounds)
                line = {"kernel": name, "queries": queries, "classes": classes, **found}
                measurement.add("kernels", {**line, **measurement.machine(), "load": load})


if __name__ == "__main__":
    main()
