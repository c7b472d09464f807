"""An accelerator: teachers and students beside PyTorch on the same device, and whether bits stay the same.

    python benchmarks/gpu.py                                    # all parts, each in a process of its own
    python benchmarks/gpu.py --parts teachers --nets cnn        # one of them
    python benchmarks/gpu.py --parts accuracy --manual-dir DIR  # where MNIST's four archives lie

`ceilings` measures matrix products and copies; `teachers` trains ensembles in several forms beside PyTorch's
ways, in turns; `accuracy` trains 250 teachers on MNIST and asks them; `glyphs` trains and asks 5,000 teachers
of half a million records; `students` compares methods with PyTorch; `bits` changes a shard, repeats and
resumes, and compares parameters bit for bit; `exact` compares kernels with those of the host's processor, bit
for bit, and NumPy's time with theirs. Lines are appended to benchmarks/results/gpu.jsonl. PyTorch is
optional; its teachers train in processes of their own.
"""

from __future__ import annotations

import os

from pate_jax.system import devices

devices.prepare()
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other processes share the device

import argparse  # noqa: E402
import contextlib  # noqa: E402
import dataclasses  # noqa: E402
import importlib.util  # noqa: E402
import itertools  # noqa: E402
import json  # noqa: E402
import statistics  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402
import teachers as training  # noqa: E402
import torch_gpu  # noqa: E402
import torch_teachers  # noqa: E402
from measurement import Way, way  # noqa: E402
from torch_teachers import BATCH, RECORDS  # noqa: E402

from pate_jax import aggregate, data, ensemble, models, voting  # noqa: E402
from pate_jax.aggregate import noise  # noqa: E402
from pate_jax.crowd import kernels  # noqa: E402
from pate_jax.data import partition  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.ensemble import plan  # noqa: E402
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts  # noqa: E402
from pate_jax.runs import inputs  # noqa: E402
from pate_jax.system import storage  # noqa: E402

PARTS = ("ceilings", "teachers", "accuracy", "students", "glyphs", "bits", "exact")
FORMS = (("planes", "bfloat16"), ("patches", "bfloat16"), ("lax", "bfloat16"))
METHODS = ("supervised", "vat", "gan", "fixmatch")
LARGE = 8192  # rows of the matrices whose product is the ceiling


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def ceilings(chosen: argparse.Namespace) -> dict[str, Any]:
    """Floating point operations a second of large products, and bytes a second of a copy."""
    size, found = chosen.large, {}
    for name in ("bfloat16", "float32"):
        a = jax.random.normal(jax.random.key(0), (size, size), jnp.dtype(name))
        for precision in ("default",) if name == "bfloat16" else ("default", "highest"):
            product = jax.jit(lambda a, p=precision: jnp.matmul(a, a, precision=p))
            seconds = least(lambda product=product, a=a: jax.block_until_ready(product(a)))
            found[f"{name}_{precision}"] = 2 * size**3 / seconds
    one = jax.random.normal(jax.random.key(1), (size * size,), jnp.float32)
    negated = jax.jit(lambda a: -a)
    moved = 2 * one.nbytes / least(lambda: jax.block_until_ready(negated(one)))
    return {"flops_per_second": found, "copied_bytes_per_second": moved}


def least(run: Callable[[], Any], times: int = 10) -> float:
    """The least seconds of some calls, after one."""
    run()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        run()
        found.append(time.perf_counter() - began)
    return min(found)


class Rivals:
    """PyTorch's ways to train teachers, each kind in a process of its own (`torch_gpu.py`)."""

    def __init__(self, net: str, kinds: Sequence[str]) -> None:
        program = str(Path(__file__).with_name("torch_gpu.py"))
        self._workers = [
            subprocess.Popen(
                [sys.executable, program, net, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for kind in kinds
        ]  # they prepare themselves side by side, while JAX compiles

    def ways(self) -> list[Way]:
        """All ways of all processes, once these are ready."""
        found = []
        for worker in self._workers:
            names = json.loads(self._line(worker))
            found += [Way(name, partial(self._pace, worker, place)) for place, name in enumerate(names)]
        return found

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def _pace(self, worker: subprocess.Popen[str], place: int, seconds: float) -> float:
        print(place, seconds, file=worker.stdin, flush=True)
        return float(self._line(worker))

    @staticmethod
    def _line(worker: subprocess.Popen[str]) -> str:
        if worker.stdout is None or not (line := worker.stdout.readline()):
            sys.exit(f"{worker.args} has ended: see above")
        return line


def forms(net: str, teachers: int) -> list[plan.Plan]:
    """The committed form first, then the others in which an ensemble of this size may be computed."""
    backend, places = jax.default_backend(), len(jax.local_devices())
    now = plan.choose(net, backend, teachers, places, None)
    kinds = FORMS if net != "mlp" else [("patches", "bfloat16")]
    others = [
        dataclasses.replace(now, steps_per_call=0, convolution=c, dtype=d, width=teachers) for c, d in kinds
    ]
    return [now, *(one for one in others if one.form != now.form)]


def of_teachers(net: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """All ways of one net, in turns."""
    with contextlib.closing(Rivals(net, chosen.rivals if has_torch() else ())) as rivals:
        places, committed, *wide = jax.local_devices(), *forms(net, chosen.teachers)
        named = {"ours": committed, **{f"ours_{one.convolution}_{one.dtype}": one for one in wide}}
        ways = [training.ours(net, name, one, places) for name, one in named.items()]
        others = rivals.ways()
        ways += others
        found = in_turns(ways, chosen)
    middle = {name: round(statistics.median(paces)) for name, paces in found.items()}
    line = {
        "net": net, "teachers": chosen.teachers, "plan": dataclasses.asdict(committed),
        "images_per_second": middle,
        "compile_seconds": {one.name: round(one.compile_seconds, 1) for one in ways if one.compile_seconds},
        **limits(net, committed, places, middle["ours"]),
    }  # fmt: skip
    for name, start in (("sequential", "torch_sequential"), ("recorded", "torch_graph"), ("torch", "torch")):
        names = [other.name for other in others if other.name.startswith(start)]
        if names:
            pairs = enumerate(found["ours"])
            ratios = [mine / max(found[name][turn] for name in names) for turn, mine in pairs]
            line[f"ratio_to_{name}"] = round(statistics.median(ratios), 2)
    return line


def in_turns(ways: Sequence[Way], chosen: argparse.Namespace) -> dict[str, list[float]]:
    """Images a second of each way, in every round once."""
    found: dict[str, list[float]] = {one.name: [] for one in ways}
    for _ in range(chosen.rounds):
        for one in ways:
            found[one.name].append(one.pace(chosen.seconds))
            print(f"{one.name}: {found[one.name][-1]:,.0f} images a second", file=sys.stderr, flush=True)
    return found


def limits(net: str, committed: plan.Plan, places: list[Any], pace: float) -> dict[str, Any]:
    """What a step must do by the compiler's own count, and how much of that a second the pace comes to."""
    one = dataclasses.replace(committed, steps_per_call=1)
    machine, resident, state = training.round_of(net, one, places)
    told = machine.programs.compiled(state, resident).cost_analysis() or {}
    told = told[0] if isinstance(told, list) else told
    steps = pace / (BATCH * committed.width * len(places))
    return {
        "layers_flops_per_second": round(training.flops_per_image(net) * pace),
        "compiled_flops_per_second": round(told.get("flops", 0) * steps),
        "compiled_bytes_per_second": round(told.get("bytes accessed", 0) * steps),
    }


def accuracy(chosen: argparse.Namespace) -> dict[str, Any]:
    """Teachers on MNIST as a run trains them, from the call to labels; the second call compiles nothing."""
    records = data.load("mnist", manual_dir=chosen.manual_dir)
    key = partition.fresh_key()
    given = partition.assign(records.private.ids, chosen.teachers, key=key)
    shards = partition.cut(given, records.private.ids, chosen.teachers, key=key)
    of_nets = {}
    for net in chosen.nets:
        model = models.build(net, input_shape=records.input_shape, classes=records.classes)
        config, turns = ensemble.TeacherConfig(net=net), []
        for turn in range(2):
            began = time.perf_counter()
            found = ensemble.fit(
                model, records.preprocessing, records.private.inputs, records.private.labels, shards,
                key=jax.random.key(turn), config=config,
            )  # fmt: skip
            trained = time.perf_counter()
            labels = ensemble.predict(model, records.preprocessing, found, records.test.inputs)
            asked = time.perf_counter()
            told = ensemble.score(labels, records.test.labels, records.classes)
            turns.append({
                "train_s": round(trained - began, 2), "predict_s": round(asked - trained, 2),
                **{name: round(told[name], 4) for name in ("mean", "min", "max", "plurality")},
            })  # fmt: skip
        of_nets[net] = {"epochs": config.resolved().epochs, "first": turns[0], "second": turns[1]}
    return {"data": "mnist", "teachers": chosen.teachers, "nets": of_nets}


def glyphs(chosen: argparse.Namespace) -> dict[str, Any]:
    """5,000 teachers of 100 records each, in closed form, 150 classes: from drawing the data to the votes."""
    clock = [time.perf_counter()]
    tick = lambda: clock.append(time.perf_counter())  # noqa: E731
    records = data.load("glyphs", size=chosen.records, public_size=9_000, test_size=1_000, classes=150)
    tick()
    number, key = chosen.records // 100, partition.fresh_key()
    given = partition.assign(records.private.ids, number, key=key)
    shards = partition.cut(given, records.private.ids, number, key=key)
    config = ensemble.TeacherConfig(net="linear")
    model = inputs.teachers_net(config, records)
    tick()
    found = ensemble.fit(
        model, records.preprocessing, records.private.inputs, records.private.labels, shards,
        key=jax.random.key(0), config=config,
    )  # fmt: skip
    tick()
    votes = ensemble.vote(model, records.preprocessing, found, records.public.inputs)
    tick()
    names = ("draw_s", "space_s", "train_s", "vote_s")
    return {
        "records": chosen.records, "teachers": number,
        **{name: round(b - a, 1) for name, (a, b) in zip(names, itertools.pairwise(clock), strict=True)},
        "plurality": round(float((votes.argmax(1) == records.public.labels).mean()), 4),
    }  # fmt: skip


def fitted(
    net: str,
    teachers: int,
    *,
    changed: bool = False,
    longer: bool = False,
    width: int | None = None,
    directory: str | None = None,
) -> Any:
    """Parameters of an ensemble on made-up images whose shard 5 may differ, or grow by a record."""
    pictures, labels = torch_teachers.images(RECORDS * teachers + 1)
    rows = np.arange(RECORDS * teachers, dtype=np.int32).reshape(teachers, RECORDS)[:, :40]
    if changed:
        pictures[rows[5]] = 255 - pictures[rows[5]]
    counts = np.full(teachers, rows.shape[1], np.int32)
    if longer:
        rows = np.concatenate([rows, np.zeros((teachers, 1), np.int32)], 1)
        rows[5, -1], counts[5] = len(pictures) - 1, rows.shape[1]
    config = ensemble.TeacherConfig(net=net, epochs=2, min_steps=20, attempts=1, width=width)
    model = models.build(net, input_shape=(28, 28, 1), classes=10)
    found = ensemble.fit(
        model, training.SCALE, pictures, labels, Shards(rows, counts),
        key=jax.random.key(3), config=config, directory=directory,
    )  # fmt: skip
    return jax.tree.map(np.asarray, found.params)


def same(one: Any, other: Any, but: int | None = None) -> bool:
    """Whether two ensembles have the same bits, apart from one teacher."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    kept = lambda leaf: leaf if but is None else np.delete(leaf, but, axis=0)  # noqa: E731
    return all(np.array_equal(kept(a), kept(b)) for a, b in pairs)


def bits(chosen: argparse.Namespace) -> dict[str, Any]:
    """Whether teachers depend on nothing but their own shards, on this device, bit for bit."""
    of_nets = {}
    for net in chosen.nets:
        plain = fitted(net, chosen.teachers)
        longer = fitted(net, chosen.teachers, longer=True)
        changed = fitted(net, chosen.teachers, changed=True)
        command = [sys.executable, __file__, "--digest-of", net, "--teachers", str(chosen.teachers)]
        elsewhere = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1]
        half = fitted(net, chosen.teachers, width=max(1, chosen.teachers // 2))
        gaps = jax.tree.leaves(jax.tree.map(lambda one, other: np.abs(one - other).max(), plain, half))
        with tempfile.TemporaryDirectory() as folder:
            stored = fitted(net, chosen.teachers, directory=folder)
            again = fitted(net, chosen.teachers, directory=folder)
        of_nets[net] = {
            "another_shard_changes_others": not same(plain, changed, but=5),
            "its_own_changes": not same(plain, changed),
            "a_longer_shard_changes_others": not same(plain, longer, but=5),
            "repeated_is_equal": same(plain, fitted(net, chosen.teachers)),
            "another_process_is_equal": elsewhere == storage.digest(*jax.tree.leaves(plain)),
            "stored_is_equal": same(plain, stored) and same(stored, again),
            "half_the_width_differs_by": float(max(gaps)),
        }
    return {"teachers": chosen.teachers, "nets": of_nets}


def exact(chosen: argparse.Namespace) -> dict[str, Any]:
    """Kernels here and on the host's processor: bits, and microseconds beside NumPy."""
    import kernels as races

    rng, key = np.random.default_rng(0), aggregate.seeded_key(5)
    votes, (vectors, labels) = races.votes_of(chosen.queries, 10), races.people(chosen.queries, 10)
    vectors *= 60  # so long that many are shortened
    asked = 60 * races.people(100, 10)[0] + 1
    given = rng.integers(0, 10, (250, 10_000)).astype(np.int16)
    sums, counts = ClassSums(10, 32, 400, sigma=3000.0), NeighbourCounts(100, 10, votes=2, sigma=40.0)
    made: dict[str, Callable[[], Any]] = {
        "answer": lambda: aggregate.answer(GNMax(40.0), votes, key=key).labels,
        "answer_discrete": lambda: aggregate.answer(DiscreteGaussianMax(40.0), votes, key=key).labels,
        "histogram": lambda: voting.histogram(jnp.asarray(given), 10),
        "class_sums": lambda: kernels.class_sums(sums, vectors, labels),
        "neighbour_counts": lambda: kernels.neighbour_counts(counts, vectors, labels, asked),
        "noise": lambda: noise.noise_on(sums, key=key),
        "random_bits": lambda: jax.random.bits(key, (100_000,), jnp.uint32),
    }
    equal = {}
    for name, make in made.items():
        here = np.asarray(make())
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            equal[name] = bool(np.array_equal(here, np.asarray(make())))
    paces = {}
    for name in races.KERNELS:
        race = races.KERNELS[name](chosen.queries, 10)
        arrays, jitted = [jnp.asarray(each) for each in race.arrays], jax.jit(race.kernel)
        run = lambda a=arrays, k=jitted: jax.block_until_ready(k(*a, key))  # noqa: E731
        paces[name] = {"numpy_us": round(1e6 * least(race.numpy, 3)), "here_us": round(1e6 * least(run))}
    return {"queries": chosen.queries, "equal_to_the_host": equal, "microseconds": paces}


def of_students(method: str, chosen: argparse.Namespace) -> dict[str, Any]:
    """Images a second of a method, ours and PyTorch's losses in turns."""
    import student

    ways, rivals = [student.ours(method), student.ours(method, models.Form("lax"))], []
    if has_torch():
        torch_gpu.on_the_device()
        for last, short in itertools.product((False, True), (False, True)):
            made = student.Torch(method, last)

            def run(made: Any = made) -> int:
                for _ in range(student.STEPS):
                    made.step()
                return student.STEPS * student.per_step(made.config)

            run()
            name = f"torch{'_channels_last' * last}{'_bf16' * short}"
            rivals.append(torch_gpu.on_device(way(name, run), name, short))
    found = in_turns([*ways, *rivals], chosen)
    best = [max(paces) for paces in zip(*(found[one.name] for one in rivals), strict=True)]
    ratios = [mine / rival for mine, rival in zip(found["ours"], best, strict=False)]
    return {
        "method": method, "compile_s": round(ways[0].compile_seconds, 1),
        "images_per_second": {name: round(statistics.median(paces)) for name, paces in found.items()},
        "ratio_to_torch": round(statistics.median(ratios), 2) if ratios else None,
    }  # fmt: skip


def lines(part: str, chosen: argparse.Namespace) -> Any:
    """What a part has to say, line by line."""
    if part == "teachers":
        return (of_teachers(net, chosen) for net in chosen.nets)
    if part == "students":
        return (of_students(method, chosen) for method in chosen.methods)
    whole = {"ceilings": ceilings, "accuracy": accuracy, "bits": bits, "exact": exact, "glyphs": glyphs}
    return iter([whole[part](chosen)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--nets", nargs="+", choices=training.NETS, default=list(training.NETS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rivals", nargs="*", choices=torch_gpu.KINDS, default=list(torch_gpu.KINDS))
    parser.add_argument("--teachers", type=int, default=250, help="at least 6")
    parser.add_argument("--queries", type=int, default=1_000_000, help="of the kernels of `exact`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--large", type=int, default=LARGE, help="rows of the matrices of `ceilings`")
    parser.add_argument("--manual-dir", type=Path, help="where MNIST's archives lie; unset: a download")
    parser.add_argument("--records", type=int, default=500_000, help="of `glyphs`")
    parser.add_argument("--digest-of", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.digest_of:
        print(storage.digest(*jax.tree.leaves(fitted(chosen.digest_of, chosen.teachers))))
        return
    if len(chosen.parts) > 1:
        command = [sys.executable, __file__, *sys.argv[1:], "--parts"]  # the last one counts
        failed = [part for part in chosen.parts if subprocess.run([*command, part], check=False).returncode]
        sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
    about = {**measurement.machine(), "device": jax.local_devices()[0].device_kind}
    for line in lines(chosen.parts[0], chosen):
        measurement.add("gpu", {**about, "part": chosen.parts[0], **line})


if __name__ == "__main__":
    main()
