"""Linear teachers in closed form, ours beside scikit-learn's Ridge on each shard: teachers per second.

    python benchmarks/linear_teachers.py

Vectors in, matrices out, already compiled; scikit-learn gets its shards ready-made, in one process and in one
for each core. The ways take turns, a ratio is taken within a round, and the median over rounds is reported.
Where ours is less than ten times the loop, a line also says where our time goes: what devices compute, and
what one thread needs to cut the shards, which it does while they compute. The lines, one for each size, are
appended to benchmarks/results/linear_teachers_speed.jsonl.
"""

from __future__ import annotations

from pate_jax.system import devices

devices.prepare()

import argparse  # noqa: E402
import statistics  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import NamedTuple  # noqa: E402

import jax  # noqa: E402
import numpy as np  # noqa: E402
from joblib import Parallel, delayed  # noqa: E402
from measurement import add, add_busy, load, machine  # noqa: E402
from sklearn.linear_model import Ridge  # noqa: E402

from pate_jax import ensemble, models  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.ensemble import feeding, plan, programs, ridge, training, waves  # noqa: E402
from pate_jax.models import spaces  # noqa: E402

DIRECTIONS, CLASSES, ROUNDS, WANTED = 400, 10, 5, 10
SIZES = ((5000, 12), (1000, 60), (250, 240), (50, 1200))  # teachers, and records of each
CONFIG = ensemble.TeacherConfig(net="linear")
SAME = Preprocessing((0.0,), (1.0,))
LOOP, PROCESSES = "scikit_learn_loop", "scikit_learn_processes"
OTHERS = {
    "ratio_to_loop": [LOOP],
    "ratio_to_processes": [PROCESSES],
    "ratio_to_best_of_scikit_learn": [LOOP, PROCESSES],
}


class Records(NamedTuple):
    """Records as vectors, already in the space: teacher after teacher."""

    inputs: np.ndarray
    labels: np.ndarray
    shards: Shards


def drawn(teachers: int, each: int) -> Records:
    random, count = np.random.default_rng(0), teachers * each
    inputs = random.normal(size=(count, DIRECTIONS + 1)).astype(np.float32) / DIRECTIONS**0.5
    rows = np.arange(count, dtype=np.int32).reshape(teachers, each)
    return Records(
        inputs, random.integers(0, CLASSES, count), Shards(rows, np.full(teachers, each, np.int32))
    )


def model() -> models.Model:
    """A linear net whose inputs are in the space already."""
    pool = np.random.default_rng(1).normal(size=(1000, DIRECTIONS)).astype(np.float32)
    space = spaces.learn("identity", pool, directions=DIRECTIONS)
    return models.on_space(space, input_shape=(DIRECTIONS,), classes=CLASSES)._replace(front=None)


def one(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """scikit-learn's answer for a shard."""
    estimator = Ridge(alpha=CONFIG.resolved().weight_decay, fit_intercept=False)
    found: np.ndarray = estimator.fit(inputs, targets).coef_
    return found


def several(shards: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
    return [one(*shard) for shard in shards]


def ways(records: Records, net: models.Model) -> dict[str, Callable[[], object]]:
    """What is compared."""
    key, cores = jax.random.key(0), devices.cores()
    targets = np.eye(CLASSES, dtype=np.float32)[records.labels] - np.float32(1 / CLASSES)
    shards = [(records.inputs[rows], targets[rows]) for rows in records.shards.rows]
    parts, pool = [shards[core::cores] for core in range(cores)], Parallel(n_jobs=cores)
    return {
        "ours": lambda: ensemble.fit(net, SAME, *records, key=key, config=CONFIG),
        LOOP: lambda: several(shards),
        PROCESSES: lambda: pool(delayed(several)(part) for part in parts),
    }


def parts(records: Records, net: models.Model) -> dict[str, float]:
    """Milliseconds of the programs alone, and of cutting the shards alone, at one size."""
    chosen, config, teachers = devices.local(), CONFIG.resolved(), len(records.shards.counts)
    data = feeding.records(*records, jax.random.key(0), config)
    memory = plan.device_bytes(chosen)
    made = training.planned(net, SAME, data, config, chosen, len(chosen), teachers, memory)
    fit = training._machine(net, SAME, config, made, chosen)
    took = {"programs": 0.0, "cutting_shards": 0.0}
    began = time.perf_counter()
    for group, feed in ridge.feeds(fit, data, np.arange(teachers)):
        took["cutting_shards"] += time.perf_counter() - began
        attempts = waves.spread(np.zeros(len(group), np.int32), fit)
        resident = jax.block_until_ready(programs.place(feed, chosen, made.width))
        began = time.perf_counter()
        state = fit.programs.steps(fit.programs.start(resident, attempts), resident, 1)
        jax.block_until_ready(fit.programs.turn(state, resident))
        took["programs"] += time.perf_counter() - began
        began = time.perf_counter()
    return {name: round(1000 * of, 1) for name, of in took.items()}


def seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def compared(teachers: int, each: int) -> dict[str, object]:
    """Paces and ratios at one size."""
    records, net = drawn(teachers, each), model()
    tried = ways(records, net)
    for run in tried.values():
        run()
    rounds = [{name: seconds(run) for name, run in tried.items()} for _ in range(ROUNDS)]
    middle = {name: statistics.median(taken[name] for taken in rounds) for name in tried}
    ratios = {}
    for name, others in OTHERS.items():
        found = [min(taken[way] for way in others) / taken["ours"] for taken in rounds]
        ratios[name] = round(statistics.median(found), 2)
    line: dict[str, object] = {
        "teachers": teachers,
        "records_each": each,
        "directions": DIRECTIONS,
        "teachers_per_second": {name: round(teachers / took) for name, took in middle.items()},
        **ratios,
    }
    if ratios["ratio_to_loop"] < WANTED:
        with devices.kept_memory():
            line["milliseconds"] = {"fit": round(1000 * middle["ours"], 1), **parts(records, net)}
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add_busy(parser)
    before = load(parser.parse_args().busy)
    for teachers, each in SIZES:
        add("linear_teachers_speed", {**machine(), "load": before, **compared(teachers, each)})


if __name__ == "__main__":
    main()
