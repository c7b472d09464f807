"""Kernels against NumPy: answers under 1 and 1,000 settings, and vote histograms.

`python benchmarks/aggregate.py` measures everything, in turns, so that a busy machine slows all contestants,
and appends a JSON line for each comparison to results/aggregate.jsonl. Times are medians of rounds, the ratio
is the median of the rounds' ratios (above 1: ours is faster). The CPU time of the process stands beside the
wall time.

Who runs against whom:
- one setting: `answer` with the private generator's cipher (ChaCha20), noise and ties included, against
  NumPy that draws float32 normals in place and takes the argmax along rows;
- 1,000 settings, each with noise of its own, on two host devices and on one; and all with one shared draw,
  for both. NumPy draws into one buffer, on one thread and on two, from PCG64, which is not cryptographic, and
  breaks ties towards the lowest class; ours draws from ChaCha20;
- the histogram against one reading of the labels, by one thread, and against `numpy.bincount` of each query;
- the loop that was published with the papers: one query at a time, `numpy.bincount` and float64 noise.

XLA's CPU compiler uses registers of 256 bits unless XLA_FLAGS holds `--xla_cpu_prefer_vector_width=512`; the
flags are in the record.
"""

import os

os.environ["XLA_FLAGS"] = (
    f"--xla_force_host_platform_device_count=2 {os.environ.get('XLA_FLAGS', '')}".strip()
)

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from measurement import add, machine

from pate_jax import voting
from pate_jax.aggregate import answers as aggregate
from pate_jax.aggregate import noise
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GNMax, GumbelMax, LNMax
from pate_jax.voting import counting

SIZES = ((9_000, 10), (12_000, 150))
SIGMA = 40.0


def race(contestants: dict, rounds: int) -> dict:
    """Median wall and CPU seconds of each contestant, taken in turns after one warm-up each."""
    for run in contestants.values():
        run()
    wall: dict = {name: [] for name in contestants}
    cpu: dict = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            start, used = time.perf_counter(), time.process_time()
            run()
            wall[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - used)
    against = {
        f"times_faster_than_{rival}": {
            name: round(statistics.median(n / t for n, t in zip(wall[rival], times, strict=True)), 2)
            for name, times in wall.items()
            if name != rival
        }
        for rival in ("numpy", "numpy_two_threads", "numpy_bincount")
        if rival in wall
    }
    return {
        "seconds": {name: round(statistics.median(times), 6) for name, times in wall.items()},
        "cpu_seconds": {name: round(statistics.median(times), 6) for name, times in cpu.items()},
        **against,
    }


def record(what: str, result: dict, **more) -> None:
    setting = {"load": round(os.getloadavg()[0], 1), "xla_flags": os.environ["XLA_FLAGS"]}
    date = time.strftime("%Y-%m-%d")
    add("aggregate", {"what": what, **more, **result, **machine(), **setting, "date": date})


def votes_of(queries: int, classes: int) -> np.ndarray:
    chances = np.full(classes, 0.3 / (classes - 1))
    chances[0] = 0.7
    return np.random.default_rng(0).multinomial(250, chances, size=queries).astype(np.int32)


NUMPY_NOISE = {
    "gaussian": lambda g, shape: g.standard_normal(shape, dtype=np.float32),
    "laplace": lambda g, shape: g.laplace(size=shape),
    "gumbel": lambda g, shape: g.gumbel(size=shape),
}


def numpy_answer(generator, votes, family, scale):
    noisy = NUMPY_NOISE[family](generator, votes.shape)
    noisy *= scale
    noisy += votes
    return noisy.argmax(1)


def one_setting(rounds: int) -> None:
    generator = np.random.default_rng(1)
    for queries, classes in SIZES:
        host = votes_of(queries, classes)
        votes = jnp.asarray(host)
        for mechanism in (GNMax(SIGMA), LNMax(SIGMA), GumbelMax(SIGMA)):
            sampler = aggregate.prepare(mechanism)
            ours = lambda key, sampler=sampler, votes=votes: jax.block_until_ready(  # noqa: E731
                aggregate._answer(sampler, votes, key, None)
            )
            family = mechanism.noise.family
            contestants = {
                "numpy": partial(numpy_answer, generator, host, family, np.float32(SIGMA)),
                "pate_jax": lambda ours=ours: ours(noise.fresh_key()),
                "pate_jax_threefry": lambda ours=ours: ours(jax.random.key(time.perf_counter_ns() % 2**31)),
                "pate_jax_with_checks": lambda m=mechanism, v=host: jax.block_until_ready(
                    aggregate.answer(m, v, key=noise.fresh_key())
                ),
            }
            record("one setting", race(contestants, rounds), queries=queries, classes=classes, family=family)
        for mechanism in (DiscreteGaussianMax(SIGMA), ConfidentDiscreteGaussian(200, 150.0, SIGMA)):
            call = lambda m=mechanism, v=host: jax.block_until_ready(  # noqa: E731
                aggregate.answer(m, v, key=noise.fresh_key())
            )
            name = type(mechanism).__name__
            record(
                "one setting", race({name: call}, rounds), queries=queries, classes=classes, family="discrete"
            )


def many_settings(rounds: int, settings: int, sizes: list[int]) -> None:
    """Sharded over the host devices by settings: `jit` places one half on each."""
    mesh = jax.make_mesh((jax.device_count(),), ("settings",), axis_types=(jax.sharding.AxisType.Auto,))
    generator = np.random.default_rng(1)
    scales = np.geomspace(1.0, 200.0, settings).astype(np.float32)
    for queries, classes in SIZES:
        if classes not in sizes:
            continue
        host = votes_of(queries, classes)
        wide = host.astype(np.float32)
        votes = jnp.asarray(host)
        stacked = aggregate.prepare([GNMax(float(scale)) for scale in scales])
        placed = jax.device_put(stacked, NamedSharding(mesh, P("settings")))
        for same_noise in (False, True):
            contestants = {
                "numpy": partial(numpy_many, generator, wide, scales, same_noise),
                "numpy_two_threads": partial(numpy_on_two_threads, wide, scales, same_noise),
                "pate_jax": partial(sharded(mesh, votes, same_noise), placed),
                "pate_jax_one_device": lambda s=stacked, same=same_noise, v=votes: jax.block_until_ready(
                    aggregate.answer_many(s, v, key=noise.seeded_key(0), same_noise=same)
                ),
            }
            record(
                "many settings",
                race(contestants, rounds),
                queries=queries,
                classes=classes,
                settings=settings,
                same_noise=same_noise,
                devices=jax.device_count(),
            )


def sharded(mesh, votes, same_noise):
    def part(samplers, votes, key):
        if not same_noise:
            key = jax.random.fold_in(key, jax.lax.axis_index("settings"))
        return aggregate.answer_many(samplers, votes, key=key, same_noise=same_noise)

    program = jax.jit(
        jax.shard_map(
            part, mesh=mesh, in_specs=(P("settings"), P(), P()), out_specs=P("settings"), check_vma=False
        )
    )
    return lambda samplers: jax.block_until_ready(program(samplers, votes, noise.seeded_key(0)))


def numpy_many(generator, votes, scales, same_noise):
    labels = np.empty((len(scales), len(votes)), np.int32)
    shared = generator.standard_normal(votes.shape, dtype=np.float32) if same_noise else None
    noisy = np.empty(votes.shape, np.float32)
    for row, scale in zip(labels, scales, strict=True):
        if same_noise:
            np.multiply(shared, scale, out=noisy)
        else:
            generator.standard_normal(dtype=np.float32, out=noisy)
            noisy *= scale
        noisy += votes
        row[:] = noisy.argmax(1)
    return labels


def numpy_on_two_threads(votes, scales, same_noise):
    """Half of the settings each; with shared noise each thread draws it once."""
    with ThreadPoolExecutor(2) as pool:
        halves = [
            pool.submit(numpy_many, np.random.default_rng(seed), votes, scales[seed::2], same_noise)
            for seed in (0, 1)
        ]
        return [half.result() for half in halves]


def histograms(rounds: int) -> None:
    mesh = jax.make_mesh((jax.device_count(),), ("queries",), axis_types=(jax.sharding.AxisType.Auto,))
    for classes in (10, 150):
        host = np.random.default_rng(0).integers(0, classes, (5_000, 12_000)).astype(np.int16)
        labels = jnp.asarray(host)
        count = partial(counting.count, classes=classes)
        on_both = jax.jit(
            jax.shard_map(
                count, mesh=mesh, in_specs=P(None, "queries"), out_specs=P("queries"), check_vma=False
            )
        )
        placed = jax.device_put(labels, NamedSharding(mesh, P(None, "queries")))
        contestants = {
            "read_the_labels_once": lambda host=host: host.view(np.int64).max(),
            "numpy_bincount": partial(bincount, host, classes),
            "pate_jax": lambda on_both=on_both, placed=placed: jax.block_until_ready(on_both(placed)),
            "pate_jax_one_device": lambda count=count, labels=labels: jax.block_until_ready(count(labels)),
        }
        result = race(contestants, rounds)
        reading = result["seconds"]["read_the_labels_once"]
        ours = {name: result["seconds"][name] for name in ("pate_jax", "pate_jax_one_device")}
        record(
            "histogram of 5,000 x 12,000",
            result,
            classes=classes,
            gigabytes_a_second={
                name: round(host.nbytes / seconds / 1e9, 1) for name, seconds in ours.items()
            },
            fraction_of_read_bandwidth={name: round(reading / seconds, 2) for name, seconds in ours.items()},
        )


def bincount(labels, classes):
    counts = np.empty((labels.shape[1], classes), np.int32)
    for row, column in zip(counts, np.ascontiguousarray(labels.T), strict=True):
        row[:] = np.bincount(column, minlength=classes)
    return counts


def published_loop() -> None:
    """One query at a time over labels[teacher, query], as in the code that came with the papers."""
    generator = np.random.default_rng(1)
    labels = np.random.default_rng(0).integers(0, 10, (250, 9_000))

    def loop():
        answers = np.zeros(9_000, np.int32)
        for query in range(9_000):
            counts = np.bincount(labels[:, query], minlength=10).astype(float)
            for item in range(10):
                counts[item] += generator.laplace(0.0, SIGMA)
            answers[query] = counts.argmax()
        return answers

    def ours():
        votes = voting.histogram(labels, 10)
        return jax.block_until_ready(aggregate.answer(LNMax(SIGMA), votes, key=noise.fresh_key()))

    result = race({"numpy": loop, "pate_jax": ours}, 3)
    record("the published loop, votes included", result, queries=9_000, classes=10, family="laplace")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--settings", type=int, default=1000)
    parser.add_argument("--classes", type=int, nargs="*", default=[10, 150])
    parser.add_argument("--only", nargs="*", default=["one", "histogram", "loop", "many"])
    chosen = parser.parse_args()
    if "one" in chosen.only:
        one_setting(chosen.rounds)
    if "histogram" in chosen.only:
        histograms(min(5, chosen.rounds))
    if "loop" in chosen.only:
        published_loop()
    if "many" in chosen.only:
        many_settings(min(3, chosen.rounds), chosen.settings, chosen.classes)


if __name__ == "__main__":
    main()
