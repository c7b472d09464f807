"""How cost grows with teachers, queries, classes and records: CPU seconds, memory, and each slope.

    python benchmarks/growth.py                       # measures what is missing, then draws docs/growth.svg
    python benchmarks/growth.py --lines classes       # one line only
    python benchmarks/growth.py --draw                # draws what was measured

Each point is a process of its own, warmed up on a smaller piece of the same work, so compiling is left out.
A slope of 1 in the doubly logarithmic picture means: ten times as much costs ten times as much. Points are
lines of benchmarks/results/growth.jsonl, and a point that is there is not measured again.
"""

from __future__ import annotations

from pate_jax.system import devices

devices.prepare()

import argparse  # noqa: E402
import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import jax  # noqa: E402
import measurement  # noqa: E402
import numpy as np  # noqa: E402

from pate_jax import accounting, aggregate, crowd, ensemble, models  # noqa: E402
from pate_jax.accounting import plots  # noqa: E402
from pate_jax.data import Preprocessing  # noqa: E402
from pate_jax.data.partition import Shards  # noqa: E402
from pate_jax.mechanisms import ConfidentDiscreteGaussian  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums  # noqa: E402
from pate_jax.models import spaces  # noqa: E402
from pate_jax.system import storage  # noqa: E402

Work = Callable[[int, Path], Callable[[], object]]
FIGURE = Path(__file__).parents[1] / "docs/growth.svg"
MECHANISM = ConfidentDiscreteGaussian(threshold=200, sigma_threshold=150, sigma=40)
COLUMNS, CLASSES, DIRECTIONS, EACH, TEACHERS = 32, 10, 200, 60, 250
BLOCK = 100_000


def of_teachers(teachers: int, folder: Path) -> Callable[[], object]:
    """Linear teachers in closed form, with 60 records each, which are in the space already."""
    random, count = np.random.default_rng(0), teachers * EACH
    pool = random.normal(size=(1000, DIRECTIONS)).astype(np.float32)
    space = spaces.learn("identity", pool, directions=DIRECTIONS)
    net = models.on_space(space, input_shape=(DIRECTIONS,), classes=CLASSES)._replace(front=None)
    inputs = random.normal(size=(count, DIRECTIONS + 1)).astype(np.float32)
    rows = np.arange(count, dtype=np.int32).reshape(teachers, EACH)
    shards = Shards(rows, np.full(teachers, EACH, np.int32))
    labels, config = random.integers(0, CLASSES, count), ensemble.TeacherConfig(net="linear")
    same = Preprocessing((0.0,), (1.0,))
    return lambda: ensemble.fit(net, same, inputs, labels, shards, key=jax.random.key(0), config=config)


def histograms(queries: int, classes: int) -> np.ndarray:
    """Votes of 250 teachers, of which at most 1,000 histograms differ."""
    random = np.random.default_rng(0)
    kinds = random.multinomial(TEACHERS, random.dirichlet(np.full(classes, 2 / classes), min(queries, 1000)))
    return kinds[random.integers(0, len(kinds), queries)]


def of_queries(queries: int, folder: Path) -> Callable[[], object]:
    """Answers to a list of queries."""
    votes = histograms(queries, CLASSES)
    return lambda: aggregate.answer(MECHANISM, votes, key=aggregate.seeded_key(1)).labels.block_until_ready()


def of_accounts(queries: int, folder: Path) -> Callable[[], object]:
    """The whole statement of as many queries, by Rényi curves."""
    votes = histograms(queries, CLASSES)
    return lambda: accounting.statement(MECHANISM, votes, None, 1e-5, pld=False, private=True)


def of_classes(classes: int, folder: Path) -> Callable[[], object]:
    """The whole statement of 1,000 queries with so many classes."""
    votes = histograms(1000, classes)
    return lambda: accounting.statement(MECHANISM, votes, None, 1e-5, pld=False, private=True)


def of_records(records: int, folder: Path) -> Callable[[], object]:
    """Exact class sums of records that lie in a memory-mapped file."""
    random = np.random.default_rng(0)
    path = folder / f"inputs-{records}.npy"
    mapped = np.lib.format.open_memmap(path, "w+", np.float32, (records, COLUMNS))
    for start in range(0, records, BLOCK):
        mapped[start : start + BLOCK] = random.normal(size=(min(BLOCK, records - start), COLUMNS))
    mapped.flush()
    del mapped
    pool = random.normal(size=(5000, COLUMNS)).astype(np.float32)
    space = spaces.learn("identity", pool, directions=COLUMNS)
    scaling = crowd.scaling(space, space.coordinates(pool), length=400, power=0.5)
    inputs = np.load(path, mmap_mode="r", allow_pickle=False)
    people = crowd.Voters(inputs, random.integers(0, CLASSES, records).astype(np.int32), None)
    release = ClassSums(CLASSES, len(space.variances), 400, sigma=3000.0)
    return lambda: crowd.sums(space, scaling, people, release)


class Line(NamedTuple):
    """A line of the picture."""

    make: Work
    said: str
    warm: int
    points: tuple[int, ...]
    compiled: bool = False


LINES = {
    "teachers": Line(of_teachers, "linear teachers trained", 10, (10, 50, 250, 1000, 5000), True),
    "queries": Line(of_queries, "queries answered", 100, (100, 1000, 10_000, 100_000, 1_000_000), True),
    "accounts": Line(of_accounts, "queries accounted for", 10, (100, 1000, 10_000, 100_000, 1_000_000)),
    "classes": Line(of_classes, "classes (1,000 queries accounted for)", 2, (2, 10, 30, 100, 300, 1000)),
    "records": Line(of_records, "records summed", 1000, (1000, 10_000, 100_000, 1_000_000, 10_000_000)),
}


def point(name: str, size: int) -> dict[str, Any]:
    """One measurement, in this process: CPU seconds of the second time, and the memory that it grew by."""
    line = LINES[name]
    with tempfile.TemporaryDirectory() as place:
        line.make(line.warm, Path(place))()
        run = line.make(size, Path(place))
        if line.compiled:
            run()  # compiles for this size
        with measurement.Memory() as memory:
            clock, used = time.perf_counter(), time.process_time()
            run()
            took = {"wall_s": time.perf_counter() - clock, "cpu_s": time.process_time() - used}
    grown = round(memory.most - memory.began)
    return {"line": name, "size": size, **{key: round(value, 5) for key, value in took.items()}, "mib": grown}


def saved() -> list[dict[str, Any]]:
    """The points that were measured."""
    path = measurement.RESULTS / "growth.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def slope(points: list[dict[str, Any]]) -> float:
    """Of the logarithms, over the larger half of the sizes."""
    largest = sorted(points, key=lambda one: one["size"])[len(points) // 2 :]
    sizes, seconds = ([np.log(one[key]) for one in largest] for key in ("size", "cpu_s"))
    return float(np.polyfit(sizes, seconds, 1)[0])


def draw() -> bytes:
    """CPU seconds against size, and a slope for each line."""
    figure, axes = plots.canvas("size", "CPU seconds", (7.0, 4.2))
    for name, line in LINES.items():
        points = sorted((one for one in saved() if one["line"] == name), key=lambda one: one["size"])
        if len(points) > 2:
            sizes, seconds = [one["size"] for one in points], [one["cpu_s"] for one in points]
            axes.loglog(sizes, seconds, "o-", ms=3, label=f"{line.said}: slope {slope(points):.2f}")
    axes.legend(frameon=False, fontsize=8)
    return plots.rendered(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lines", nargs="+", choices=LINES, default=list(LINES))
    parser.add_argument("--draw", action="store_true", help="measure nothing")
    parser.add_argument("--point", nargs=2, metavar=("LINE", "SIZE"), help=argparse.SUPPRESS)
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    if chosen.point:
        print(json.dumps(point(chosen.point[0], int(chosen.point[1]))))
        return
    if not chosen.draw:
        load, there = measurement.load(chosen.busy), {(one["line"], one["size"]) for one in saved()}
        for name in chosen.lines:
            for size in LINES[name].points:
                if (name, size) not in there:
                    command = [sys.executable, __file__, "--point", name, str(size)]
                    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                    found = json.loads(done.stdout.splitlines()[-1])
                    measurement.add("growth", {**measurement.machine(), "load": load, **found})
    storage.write_bytes(FIGURE, draw())


if __name__ == "__main__":
    main()
