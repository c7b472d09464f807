"""What devices and waves cost: 1, 2 and 4 devices of a CPU, pmap beside jit, and memory of 5,000 teachers.

    python benchmarks/hosts.py                      # everything
    python benchmarks/hosts.py --measure devices    # or pmap, waves, resumed

Each line is a process of its own. `devices` trains the same number of teachers on each of n devices, which
XLA makes of one CPU, in turns; a ratio of CPU seconds an image is taken within a round, and the median is
kept. `pmap` trains the teachers of one device by the program of `fit`, and by the same steps under `jax.jit`
alone. `waves` is the memory that a warm `fit` grows by, with records in a memory-mapped file and finished
teachers on disk or, as `fit` has it while they fit easily, in memory. `resumed` stops in the middle of a
wave, goes on, and compares every bit with a run that was not stopped. Lines go to
benchmarks/results/hosts.jsonl.
"""

from __future__ import annotations

from pate_jax.system import devices

devices.prepare()

import argparse  # noqa: E402
import hashlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402
import teachers  # noqa: E402
from teachers import BATCH, RECORDS, SCALE  # noqa: E402

from pate_jax import ensemble, models  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.ensemble import checkpoint, plan, programs, training  # noqa: E402
from pate_jax.ensemble.waves import Teachers  # noqa: E402

NETS, COUNTS, WAVES = ("cnn", "mlp"), (1, 2, 4), (500, 1000, 5000)
EACH, SIDE, HALT = 60, 12, 7  # records of a teacher, pixels of an image's side, the wave that is stopped
Train = Callable[[], int]


def seconds_of(run: Train, moment: float) -> dict[str, float]:
    """CPU seconds and seconds of a million images, of as many epochs as fill the moment."""
    clock, used, done = time.perf_counter(), time.process_time(), 0
    while time.process_time() - used < moment:
        done += run()
    million = 1e6 / done
    return {
        "cpu_s": (time.process_time() - used) * million,
        "wall_s": (time.perf_counter() - clock) * million,
    }


def by_fit(net: str, chosen: plan.Plan, places: list[Any]) -> Train:
    """An epoch of a round, by the programs that `fit` runs."""
    machine, resident, state = teachers.round_of(net, chosen, places)
    held = [state]

    def run() -> int:
        state = machine.programs.steps(held[0], resident, RECORDS // BATCH)
        held[0], news = machine.programs.turn(state, resident)
        jax.block_until_ready(news)
        return RECORDS * chosen.width * len(places)

    run()
    return run


def by_jit(net: str, chosen: plan.Plan) -> Train:
    """The same steps of the teachers of one device, without pmap."""
    machine, resident, state = teachers.round_of(net, chosen, jax.local_devices()[:1])
    shards, first = jax.tree.map(lambda leaf: np.asarray(leaf)[0], (resident, state))
    shards, held = jax.device_put(shards), [jax.device_put(first)]
    step = programs.inside(machine.teacher.step, chosen.width)
    several = chosen.steps_per_call or RECORDS // BATCH

    def steps(state: Any, shards: Any, times: Any) -> Any:
        if not chosen.steps_per_call:
            return jax.lax.fori_loop(0, times, lambda _, moving: step(moving, shards), state)
        for _ in range(several):
            state = step(state, shards)
        return state

    train = jax.jit(steps, donate_argnums=0)
    turn = jax.jit(programs.inside(machine.teacher.turn, chosen.width), donate_argnums=0)

    def run() -> int:
        for _ in range(-(-(RECORDS // BATCH) // several)):
            held[0] = train(held[0], shards, np.int32(several))
        held[0], news = turn(held[0], shards)
        jax.block_until_ready(news)
        return RECORDS * chosen.width

    run()
    return run


def interleaved(runs: dict[str, Train], first: str, rounds: int, moment: float) -> dict[str, Any]:
    """Medians over rounds, and those of the ratios to the first within each round."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    with devices.kept_memory():
        for _ in range(rounds):
            for name, run in runs.items():
                found[name].append(seconds_of(run, moment))

    def middle(name: str, which: str) -> float:
        return round(statistics.median(one[which] for one in found[name]), 2)

    pairs = {name: zip(found[name], found[first], strict=True) for name in runs}
    ratios = {name: statistics.median(a["cpu_s"] / b["cpu_s"] for a, b in pairs[name]) for name in runs}
    return {
        "rounds": rounds,
        "cpu_s_of_a_million_images": {name: middle(name, "cpu_s") for name in runs},
        "wall_s_of_a_million_images": {name: middle(name, "wall_s") for name in runs},
        f"cpu_ratio_to_{first}": {name: round(value, 3) for name, value in ratios.items()},
    }


def of_devices(net: str, rounds: int) -> dict[str, Any]:
    """The same width on 1, 2 and 4 devices."""
    chosen, places = plan.choose(net, "cpu", teachers.TEACHERS, 1, None), jax.local_devices()
    runs = {str(count): by_fit(net, chosen, places[:count]) for count in COUNTS}
    return {"net": net, "width": chosen.width, **interleaved(runs, "1", rounds, teachers.MOMENT[net])}


def of_pmap(net: str, rounds: int) -> dict[str, Any]:
    """One device by pmap and by jit."""
    chosen = plan.choose(net, "cpu", teachers.TEACHERS, 1, None)
    runs = {"jit": by_jit(net, chosen), "pmap": by_fit(net, chosen, jax.local_devices()[:1])}
    return {"net": net, "width": chosen.width, **interleaved(runs, "jit", rounds, teachers.MOMENT[net])}


def fitted(count: int, folder: Path, name: str) -> Teachers:
    """So many MLPs, trained for two epochs on records of a memory-mapped file."""
    path, random = folder / f"records-{count}.npy", np.random.default_rng(0)
    if not path.exists():
        shape = (count * EACH, SIDE, SIDE, 1)
        written = np.lib.format.open_memmap(path, "w+", np.uint8, shape)
        for start in range(0, len(written), 10_000):
            written[start : start + 10_000] = random.integers(0, 256, written[start : start + 10_000].shape)
        written.flush()
    inputs = np.load(path, mmap_mode="r", allow_pickle=False)
    rows = np.arange(len(inputs), dtype=np.int32).reshape(count, EACH)
    shards, labels = Shards(rows, np.full(count, EACH, np.int32)), np.arange(len(inputs)) % 10
    config = ensemble.TeacherConfig(net="mlp", epochs=2, min_steps=1, attempts=1, augment="none")
    net = models.build("mlp", input_shape=(SIDE, SIDE, 1), classes=10)
    key = jax.random.key(0)
    return ensemble.fit(net, SCALE, inputs, labels, shards, key=key, config=config, directory=folder / name)


class Stopped(BaseException):
    """What stops a run in the middle of a wave."""


def stopped(count: int, folder: Path, name: str) -> None:
    """Begin these teachers, and stop after an epoch of one of the waves, which is kept."""
    offer = checkpoint.Store.offer

    def stop(store: checkpoint.Store, index: int, fill: Any) -> None:
        if index == HALT:
            store._seconds = 0.0
            offer(store, index, fill)
            raise Stopped

    checkpoint.Store.offer = stop  # type: ignore[method-assign]
    try:
        fitted(count, folder, name)
    except Stopped:
        return
    finally:
        checkpoint.Store.offer = offer  # type: ignore[method-assign]


def of_waves(count: int) -> dict[str, Any]:
    """The memory that `fit` grows by once it is warm, with finished teachers on disk and in memory."""
    found: dict[str, Any] = {"teachers": count}
    with tempfile.TemporaryDirectory() as place:
        stopped(count, Path(place), "warm")
        for name, share in (("disk", 0.0), ("memory", training.IN_MEMORY)):
            training.IN_MEMORY = share
            used = time.process_time()
            with measurement.Memory() as memory:
                done = fitted(count, Path(place), name)
            found[f"mib_with_teachers_{'on' if not share else 'in'}_{name}"] = round(
                memory.most - memory.began
            )
            found[f"cpu_s_{name}"] = round(time.process_time() - used, 2)
        one = plan.tree_bytes(done.parts[0][1]()) / len(done.parts[0][0])
    return {**found, "mib_of_all_parameters": round(count * one / 2**20)}


def of_resumed(count: int) -> dict[str, Any]:
    """Whether a run that was stopped in the middle of a wave ends with the bits of one that was not."""
    with tempfile.TemporaryDirectory() as place:
        whole = digests(fitted(count, Path(place), "whole"))
        stopped(count, Path(place), "again")
        begun = len(list((Path(place) / "again").glob("wave-*.json")))
        again = digests(fitted(count, Path(place), "again"))
    return {
        "teachers": count,
        "waves": len(whole),
        "waves_begun_when_stopped": begun,
        "equal": whole == again,
    }


def digests(found: Teachers) -> list[str]:
    """The digest of each wave's parameters."""
    return [
        hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(load()))).hexdigest()
        for _, load in found.parts
    ]


def child(words: list[str], count: int | None = None) -> dict[str, Any]:
    """What a process of its own says, with a number of devices of its own."""
    environment = dict(os.environ)
    if count is not None:
        environment["XLA_FLAGS"] = devices.host_devices_flag(count)
    command = [sys.executable, __file__, "--one", *words]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def one(measure: str, what: str, rounds: int) -> dict[str, Any]:
    """One line, in this process."""
    if measure == "devices":
        return of_devices(what, rounds)
    if measure == "pmap":
        return of_pmap(what, rounds)
    return of_waves(int(what)) if measure == "waves" else of_resumed(int(what))


MEASURES: dict[str, tuple[int | None, tuple[str, ...]]] = {
    "devices": (max(COUNTS), NETS),
    "pmap": (1, NETS),
    "waves": (None, tuple(map(str, WAVES))),
    "resumed": (None, (str(WAVES[-1]),)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=list(MEASURES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    measurement.add_busy(parser)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(*given.one, given.rounds)))
        return
    load = measurement.load(given.busy)
    for measure in given.measure:
        count, parts = MEASURES[measure]
        for what in parts:
            found = child([measure, what, "--rounds", str(given.rounds)], count)
            measurement.add("hosts", {**measurement.machine(), "load": load, "measure": measure, **found})


if __name__ == "__main__":
    main()
