"""Steps beside one table of sums: `python -m benchmarks.steps fashion_mnist --archives FOLDER`.

For each data set and epsilon it plans sums as `pate run --voters sums` does, from the public inputs, the
rounded number of records and epsilon. Then it really counts all records, with one table and with the steps
that were chosen, once for each draw of the noise. Labels of the test part judge; nothing is chosen by them.
The figures are percent right on the test part before any student, as a mean with its standard error. Lines
are printed, and appended to results/steps.jsonl.

    python -m benchmarks.steps strokes glyphs --records 6000 --draws 2
    python -m benchmarks.steps --files a.csv b.csv c.csv --label-column died --id-column patient
    python -m benchmarks.steps --table  # of all lines, and DP-SGD's linear head by `pate compare`
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.crowds import DELTA, Prepared, add_files, of_files, prepared, sums_of
from pate_jax import crowd, data
from pate_jax.accounting.exact import counts as cost
from pate_jax.aggregate import seeded_key
from pate_jax.aggregate.noise import noisy_table
from pate_jax.crowd import classifier, step_choice, steps
from pate_jax.crowd.plan import Plan

RESULTS = Path(__file__).parent / "results" / "steps.jsonl"
COMPARED = RESULTS.with_name("compare.jsonl")
EPSILONS = [0.1, 0.3, 1.0, 3.0]


def right(plan: Plan, here: Prepared, draw: int) -> float:
    """Percent right on the test part, of the classifier after all steps of a plan."""
    first = {name: _seen(plan, places) for name, places in here.places.items() if name != "private"}
    noisy = noisy_table(plan.release, sums_of(plan, here), key=seeded_key(100 * draw)).values
    model = classifier.fit(noisy, plan.release, first["pool"], here.voters)
    if plan.steps is None:
        return _percent(model.judged(first["test"]), here)
    made = plan.steps
    seen = {name: _seen(made, places) for name, places in here.places.items()}

    def ask(step: int, weights: np.ndarray) -> np.ndarray:
        exact = steps.gradients(seen["private"], here.labels["private"], None, weights, made.release)
        return noisy_table(made.release, exact, key=seeded_key(100 * draw + step - 1)).values

    weights = steps.taken(made, model, first["pool"], seen["pool"], ask)
    return _percent(steps.probabilities(weights, seen["test"]), here)


def _seen(made: Plan | steps.Steps, places: np.ndarray) -> np.ndarray:
    return crowd.vectors(made.scaling, places[:, : len(made.scaling.weights)])


def _percent(told: np.ndarray, here: Prepared) -> float:
    return 100 * float((told.argmax(1) == here.labels["test"]).mean())


def lines(here: Prepared, epsilons: list[float], draws: int) -> Iterator[dict[str, Any]]:
    """One line for each epsilon."""
    pool = here.places["pool"]
    for epsilon in epsilons:
        asked = {"voters": here.voters, "classes": here.classes, "mu": cost.mu_for(epsilon, DELTA)}
        chosen = step_choice.stepped(here.space, pool, **asked)
        one = [
            right(step_choice.with_steps(None, here.space, pool, **asked), here, draw)
            for draw in range(draws)
        ]
        many = one if chosen.steps is None else [right(chosen, here, draw) for draw in range(draws)]
        taken = {"steps": 1} if chosen.steps is None else _said(chosen.steps)
        found = {
            "data": here.name,
            "records": here.voters,
            "epsilon": epsilon,
            "delta": DELTA,
            "draws": draws,
        }
        yield {**found, **taken, "one": _mean(one), "with_steps": _mean(many)}


def _said(made: steps.Steps) -> dict[str, Any]:
    wide, sigma = len(made.space.variances), round(made.release.sigma)
    return {"steps": made.number, "strength": made.strength, "directions": wide, "sigma": sigma}


def _mean(values: list[float]) -> list[float]:
    error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return [round(float(np.mean(values)), 2), round(float(error), 2)]


def table() -> Iterator[str]:
    """The last line of each data set and epsilon by the rule of today, in Markdown."""
    found = {
        (line["data"], line["epsilon"]): line
        for line in _read(RESULTS)
        if line["steps"] == 1 or "strength" in line
    }
    heads: dict[tuple[str, float], list[float]] = {}
    for line in _read(COMPARED):
        if line["method"] == "DP-SGD linear":
            heads.setdefault((line["data"], line["epsilon"]), []).append(100 * line["right"])
    yield "| data | epsilon | steps, directions | one table | with steps | draws | DP-SGD's linear head |"
    yield "|---|---|---|---|---|---|---|"
    for (name, epsilon), line in sorted(found.items()):
        taken = f"{line['steps']}, {line['directions']}" if line["steps"] > 1 else "one table"
        one, many = ("{:.1f} ± {:.1f}".format(*line[key]) for key in ("one", "with_steps"))
        head = heads.get((name, epsilon))
        beside = "" if head is None else f"{np.mean(head):.1f}"
        yield f"| {name} | {epsilon:g} | {taken} | {one} | {many} | {line['draws']} | {beside} |"


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def main() -> None:
    """Measure the named data sets, or the user's own files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--archives", type=Path)
    add_files(parser)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--pool", type=int, default=4000)
    parser.add_argument("--table", action="store_true", help="print what was measured, and measure nothing")
    chosen = parser.parse_args()
    if chosen.table:
        print(*table(), sep="\n")
        return
    drawn = {"size": chosen.records, "public_size": chosen.pool}
    named = (
        data.load(name, **({"manual_dir": chosen.archives / name} if chosen.archives else drawn))
        for name in chosen.names
    )
    for dataset in (*of_files(chosen), *named):
        for line in lines(prepared(dataset, directions=step_choice.WIDEST), chosen.epsilons, chosen.draws):
            print(json.dumps(line), flush=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
