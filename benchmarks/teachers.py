"""Training teachers, ours beside PyTorch's ways and a plain JAX loop: images/s, memory, compile time.

    python benchmarks/teachers.py                    # small CNN, PATE-2017 CNN and MLP, ratios interleaved
    python benchmarks/teachers.py --nets mlp --rounds 3
    python benchmarks/teachers.py --memory           # peak memory at several numbers of teachers
    python benchmarks/teachers.py --forms            # measure forms, refresh the committed table

Each round times every way for a moment, one after the other; a ratio is taken within a round, and the median
over rounds is reported. `pinned` means one process on each core with one thread, the best that PyTorch does.
Lines are appended to benchmarks/results/teachers.jsonl. PyTorch is optional.
"""

from __future__ import annotations

from pate_jax.system import devices

devices.prepare()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import dataclasses  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402
import torch_teachers  # noqa: E402
from measurement import Way, add, machine, pinned, way  # noqa: E402
from torch_teachers import BATCH, RECORDS, images  # noqa: E402

from pate_jax import ensemble, models  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.ensemble import feeding as cutting  # noqa: E402
from pate_jax.ensemble import plan, programs, teacher  # noqa: E402
from pate_jax.ensemble import training as fitting  # noqa: E402
from pate_jax.system import storage  # noqa: E402

NETS = ("cnn", "pate2017", "mlp")
TEACHERS = 250
SCALE = Preprocessing((0.0,), (255.0,))
MOMENT = {"cnn": 1.5, "pate2017": 3.0, "mlp": 0.7}


def config_of(net: str, width: int | None = None) -> teacher.TeacherConfig:
    return ensemble.TeacherConfig(
        net=net, batch_size=BATCH, epochs=10**6, augment="none", width=width
    ).resolved()


def round_of(net: str, chosen: plan.Plan, places: list[Any]) -> tuple[Any, Any, Any]:
    """A machine, one round of its teachers on the devices, and their first states."""
    config, size = config_of(net), chosen.width * len(places)
    inputs, labels = images(RECORDS * size)
    rows = np.arange(RECORDS * size, dtype=np.int32).reshape(size, RECORDS)
    data = cutting.records(inputs, labels, Shards(rows, np.full(size, RECORDS)), jax.random.key(0), config)
    machine = fitting._machine(
        models.build(net, input_shape=(28, 28, 1), classes=10), SCALE, config, chosen, places
    )
    resident = programs.place(cutting.take(data, np.arange(size), config), places, chosen.width)
    state = machine.programs.start(resident, np.zeros((len(places), chosen.width), np.int32))
    return machine, resident, state


def ours(net: str, name: str, chosen: plan.Plan, places: list[Any]) -> Way:
    """The programs that `fit` runs, epoch after epoch."""
    machine, resident, state = round_of(net, chosen, places)
    held, steps = [state], RECORDS // BATCH

    def run() -> int:
        state = machine.programs.steps(held[0], resident, steps)
        held[0], news = machine.programs.turn(state, resident)
        jax.block_until_ready(news)
        return RECORDS * chosen.width * len(places)

    began = time.perf_counter()
    run()
    return way(name, run, time.perf_counter() - began)


def jax_loop(net: str) -> Way:
    """One teacher after another: a Python loop over a jitted step, as most JAX tutorials have it."""
    chosen = dataclasses.replace(plan.choose(net, "cpu", 1, 1, 1), steps_per_call=1, convolution="lax")
    machine, resident, _ = round_of(net, chosen, jax.local_devices()[:1])
    shard = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[0, 0]), resident)
    step, turn = jax.jit(machine.teacher.step, donate_argnums=0), jax.jit(machine.teacher.turn)
    held = [jax.jit(machine.teacher.start)(shard, jnp.int32(0))]

    def run() -> int:
        state = held[0]
        for _ in range(RECORDS // BATCH):
            state = step(state, shard)
        held[0], news = turn(state, shard)
        jax.block_until_ready(news)
        return RECORDS

    began = time.perf_counter()
    run()
    return way("jax_loop", run, time.perf_counter() - began)


def alone(net: str) -> None:
    """What one of several pinned processes does: our teachers on one core."""
    chosen = plan.choose(net, "cpu", TEACHERS, 1, None)
    with devices.kept_memory():
        measurement.serve(ours(net, "ours", chosen, jax.local_devices()[:1]).pace)


def matmul_peak(places: list[Any], size: int = 1024) -> float:
    """Floating point operations per second of float32 matrix products on all devices at once."""
    product = jax.pmap(lambda a: a @ a, devices=places)
    a = np.ones((len(places), size, size), np.float32)
    product(a).block_until_ready()
    times = []
    for _ in range(10):
        began = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - began)
    return 2 * size**3 * len(places) / min(times)


def flops_per_image(net: str) -> float:
    """Multiplications and additions of dense and convolutional layers, forward and backward."""
    maps = {"cnn": ((16, 32), 3, (1568, 64, 10)), "pate2017": ((64, 128), 5, (6272, 384, 192, 10))}
    if net == "mlp":
        return 6.0 * (784 * 128 + 128 * 64 + 64 * 10) - 2.0 * 784 * 128
    (first, second), size, dense = maps[net]
    one, two = 784 * size**2 * first, 196 * size**2 * first * second
    return 6.0 * (one + two + sum(a * b for a, b in itertools.pairwise(dense))) - 2.0 * one


def predicting(net: str) -> Way:
    """Votes of a few teachers on 10,000 images."""
    model = models.build(net, input_shape=(28, 28, 1), classes=10)
    few = {"cnn": 4, "pate2017": 2, "mlp": 16}[net]
    params = jax.vmap(model.init)(jax.random.split(jax.random.key(0), few))
    teachers, asked = (
        ensemble.Teachers.of(jax.tree.map(np.asarray, params)),
        images(10_000 if net != "pate2017" else 500)[0],
    )

    def run() -> int:
        ensemble.vote(model, SCALE, teachers, asked)
        return few * len(asked)

    began = time.perf_counter()
    run()
    return way("prediction", run, time.perf_counter() - began)


def compare(net: str, rounds: int) -> dict[str, Any]:
    """All ways of one net, interleaved."""
    places = jax.local_devices()
    committed = plan.choose(net, jax.default_backend(), TEACHERS, len(places), None)
    wide = plan.choose(net, jax.default_backend(), TEACHERS, len(places), 5)
    ways = [ours(net, "ours", committed, places), ours(net, "ours_width_5", wide, places), jax_loop(net)]
    ways += [pinned("ours", [__file__, "--alone", net]), *torch_teachers.ways(net), predicting(net)]
    found: dict[str, list[float]] = {one.name: [] for one in ways}
    for _ in range(rounds):
        for one in ways:
            # As `fit` does for its own programs; whether it helps PyTorch too is its users' business.
            with devices.kept_memory() if one.name.startswith("ours") else contextlib.nullcontext():
                found[one.name].append(one.pace(MOMENT[net]))
    predicted = [name for name in found if "torch_predict" in name]
    rivals = [name for name in found if "torch" in name and name not in predicted]
    others = ["ours_width_5", "jax_loop", "pinned_ours"]
    middle = {name: statistics.median(values) for name, values in found.items()}
    pinned_rivals = [name for name in rivals if name.startswith("pinned")]

    def ratio(ours: str, names: list[str]) -> float | None:
        pairs = enumerate(found[ours])
        return statistics.median([o / max(found[n][i] for n in names) for i, o in pairs]) if names else None

    return {
        "net": net, "rounds": rounds, "plan": dataclasses.asdict(committed), "images_per_second": middle,
        "ratio_to_best_torch": ratio("ours", rivals),
        "ratio_to_pinned_torch": ratio("ours", pinned_rivals),
        "ratio_to_best_other_jax": ratio("ours", others),
        "prediction_to_training": ratio("prediction", ["ours"]),
        "prediction_to_pinned_torch": ratio("prediction", predicted),
        "fraction_of_matmul_peak": middle["ours"] * flops_per_image(net) / matmul_peak(places),
        "compile_seconds": {one.name: round(one.compile_seconds, 2) for one in ways if one.compile_seconds},
    }  # fmt: skip


def peak_of(teachers: int) -> dict[str, Any]:
    """Peak memory of a whole `fit` of the small CNN, for this process."""
    inputs, labels = images(RECORDS * teachers)
    rows = np.arange(len(inputs), dtype=np.int32).reshape(teachers, RECORDS)
    config = ensemble.TeacherConfig(net="cnn", epochs=1, min_steps=1, attempts=1)
    model = models.build("cnn", input_shape=(28, 28, 1), classes=10)
    shards = Shards(rows, np.full(teachers, RECORDS, np.int32))
    found = ensemble.fit(model, SCALE, inputs, labels, shards, key=jax.random.key(0), config=config)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    held = plan.tree_bytes(found.params) + inputs.nbytes
    return {"teachers": teachers, "peak_bytes": peak, "parameters_and_data_bytes": held}


def memory() -> dict[str, Any]:
    """Peak memory at growing numbers of teachers, each in a process of its own."""
    runs = []
    for teachers in (10, 250, 500):
        command = [sys.executable, __file__, "--peak-of", str(teachers)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return {"measure": "memory", "net": "cnn", "runs": runs}


def refresh(nets: list[str], rounds: int) -> dict[str, Any]:
    """Measure forms on this backend; a row changes only where another form is 5% faster."""
    path = Path(plan.__file__).with_name("forms.json")
    content, backend = json.loads(path.read_text()), jax.default_backend()
    places, told = jax.local_devices(), {}
    for net in nets:
        now = plan.choose(net, backend, TEACHERS, len(places), None)
        forms = [now]
        for width, steps, form in (
            (1, 1, "lax"),
            (1, 2, "lax"),
            (1, 0, "patches"),
            (5, 0, "patches"),
            (25, 0, "patches"),
        ):
            forms.append(dataclasses.replace(now, width=width, steps_per_call=steps, convolution=form))
        ways = [ours(net, str(place), form, places) for place, form in enumerate(forms)]
        paces = np.median([[way.pace(MOMENT[net]) for way in ways] for _ in range(rounds)], axis=0)
        best = int(paces.argmax())
        told[net] = [
            {**dataclasses.asdict(form), "images_per_second": float(p)}
            for form, p in zip(forms, paces, strict=True)
        ]
        if paces[best] > 1.05 * paces[0]:
            row = content["forms"].setdefault(backend, {}).setdefault(net, dict(plan.row(net, backend)))
            chosen = forms[best]
            row.update(
                width=chosen.width, steps_per_call=chosen.steps_per_call, convolution=chosen.convolution
            )
            row["wide"] = chosen.steps_per_call == 0
            storage.write_bytes(path, (json.dumps(content, indent=1) + "\n").encode())
    return {"measure": "forms", "forms": told}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--forms", action="store_true")
    parser.add_argument("--peak-of", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--alone", help=argparse.SUPPRESS)
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    if chosen.alone:
        alone(chosen.alone)
        return
    if chosen.peak_of:
        print(json.dumps(peak_of(chosen.peak_of)))
        return
    load = measurement.load(chosen.busy)
    if chosen.memory:
        found = [memory()]
    elif chosen.forms:
        found = [refresh(chosen.nets, chosen.rounds)]
    else:
        found = (compare(net, chosen.rounds) for net in chosen.nets)
    kinds = [device.device_kind for device in jax.local_devices()]
    for line in found:
        add("teachers", {**machine(), "load": load, "devices": len(kinds), "device": kinds[0], **line})


if __name__ == "__main__":
    main()
