"""How far `--voters auto` is from the best kind of voters in hindsight: `python -m benchmarks.planner`.

For every data set and epsilon all kinds of voters are rehearsed on public inputs, as a run does, and each is
really run with default settings, `--seeds` times: `pate run --voters KIND --epsilon E`. Labels of the test
part judge; nothing is chosen by them. What is drawn has a seed and is not private. A line says, kind by kind,
what was expected, what came out and in how many seconds; what auto would have taken; and its regret, the
points by which that is behind the best. How often ranges hold is measured by `python -m benchmarks.ranges`.

    python -m benchmarks.planner strokes adult --archives FOLDER > benchmarks/results/kinds.jsonl
    python -m benchmarks.planner --files a.csv b.csv c.csv --label-column died --id-column patient
    python -m benchmarks.planner --mean benchmarks/results/kinds.jsonl
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax.crowd.rehearsal import Expected  # noqa: E402
from pate_jax.errors import PateError  # noqa: E402
from pate_jax.runs import pipeline, voters_comparison  # noqa: E402
from pate_jax.runs.inputs import open_data  # noqa: E402
from pate_jax.runs.settings import STROKES, DataChoice, PartitionChoice, RunConfig  # noqa: E402

DELTA, EPSILONS = 1e-5, (0.1, 0.3, 1.0, 3.0)
KINDS = ("teachers", "neighbours", "sums")


def lines(data: DataChoice, name: str, epsilons: Sequence[float], seeds: int) -> Iterator[dict[str, Any]]:
    """One line for each epsilon."""
    dataset, own = open_data(data), data.private is not None
    for epsilon in epsilons:
        began = time.perf_counter()
        found = voters_comparison.rehearsed(
            dataset, records=len(dataset.private.ids), epsilon=epsilon, delta=DELTA, own=own
        )
        seconds = time.perf_counter() - began
        reached = {kind: _reached(data, kind, epsilon, seeds) for kind in KINDS}
        chosen = "teachers" if found.of_teachers else found.crowd.voters
        best = max(one["mean"] for one in reached.values())
        yield {
            "data": name,
            "epsilon": epsilon,
            "labels": "own" if own and dataset.public.labels is not None else "made up",
            "expected": {_kind(kind): _percent(one) for kind, one in found.expected.items()},
            "reached": reached,
            "chosen": chosen,
            "regret": round(best - reached[chosen]["mean"], 2),
            "seconds": round(seconds, 1),
        }


def _reached(data: DataChoice, kind: str, epsilon: float, seeds: int) -> dict[str, Any]:
    """The students' accuracy on the test part; 0 where a run refuses, which says why."""
    right, began, refused = [], time.perf_counter(), None
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            config = RunConfig(
                data, PartitionChoice(seed=seed), Path(folder) / "run", kind, epsilon, delta=DELTA
            )
            try:
                right.append(100 * float(pipeline.run(config)["student_accuracy"]))
            except PateError as error:
                right, refused = [0.0], str(error)
                break
    seconds = round((time.perf_counter() - began) / len(right), 1)
    each = {"mean": round(float(np.mean(right)), 2), "each": [round(one, 2) for one in right]}
    return {**each, "seconds": seconds, **({"refused": refused} if refused else {})}


def _kind(name: str) -> str:
    return "teachers" if name == voters_comparison.TEACHERS else name


def _percent(expected: Expected) -> list[float]:
    return [round(100 * each, 1) for each in expected[:3]]


def mean(path: Path) -> dict[str, Any]:
    """The mean regret of a file of lines, and that of taking one kind always."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    best = [max(one["mean"] for one in line["reached"].values()) for line in found]
    always = {
        kind: float(
            np.mean([top - line["reached"][kind]["mean"] for top, line in zip(best, found, strict=True)])
        )
        for kind in KINDS
    }
    regret = float(np.mean([line["regret"] for line in found]))
    return {
        "lines": len(found),
        "regret": round(regret, 2),
        "always": {k: round(v, 2) for k, v in always.items()},
    }


def main() -> None:
    """Print a line for each data set and epsilon, or the mean of such lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="data sets by name")
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    parser.add_argument("--files", type=Path, nargs=3, help="private, public and test part of one's own")
    parser.add_argument("--label-column")
    parser.add_argument("--id-column")
    parser.add_argument("--equal-rows-are-coincidences", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--mean", type=Path, help="lines that were printed before: print their mean regret")
    chosen = parser.parse_args()
    if chosen.mean:
        print(json.dumps(mean(chosen.mean)))
        return
    each = [
        (DataChoice(name, manual_dir=chosen.archives and chosen.archives / name).drawn(STROKES), name)
        for name in chosen.names
    ]
    if chosen.files:
        private, public, test = chosen.files
        columns = ("label_column", "id_column", "equal_rows_are_coincidences")
        own = {column: getattr(chosen, column) for column in columns}
        each.append(
            (DataChoice(private=private, public=public, test=test, **own), private.resolve().parent.name)
        )
    for data, name in each:
        for line in lines(data, name, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
