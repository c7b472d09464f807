"""`python -m experiments.compare_figure`: the tables and pictures of docs/reference/comparison.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tyro

from pate_jax.accounting import plots
from pate_jax.errors import PateError
from pate_jax.sweep import results
from pate_jax.sweep.compare import CONTENDERS
from pate_jax.sweep.compare.comparison import standings
from pate_jax.sweep.results import Row
from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
NAMES = {
    "support2": "SUPPORT2",
    "reviews": "reviews",
    "adult": "Adult",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
}
BEGIN, END = "<!-- table: python -m experiments.compare_figure -->", "<!-- end of the table -->"
COSTS = 1.0  # the epsilon whose CPU seconds are told
STYLES = ("-", "--", "-.", ":")
_SECONDS = (
    f"CPU seconds of each method at epsilon {COSTS:g}, learning and predicting, by the same lines. Of images "
    "they are without the space that methods share; of tables the first method that needed it has it:"
)


def epsilons_of(rows: Sequence[Row]) -> list[float]:
    """All that were measured, the smallest first."""
    return sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})


def table(rows: Sequence[Row]) -> str:
    """Accuracy in percent as Markdown: a row for each data set and method, a column for each epsilon.

    >>> row = {"data": "adult", "method": "sums", "epsilon": 1.0, "right": 0.84, "test": 9, "spent": 1.0}
    >>> print(table([{**row, "seconds": 2.0}]).partition("Adult | sums")[2].splitlines()[0])
     | 84.0 |
    """
    epsilons = epsilons_of(rows)
    lines = [
        f"| data | method | {' | '.join(f'{one:g}' for one in epsilons)} |",
        "|---|---|" + "---|" * len(epsilons),
    ]
    for data in NAMES:
        own = [row for row in rows if row["data"] == data]
        lines += _lines(NAMES[data], own, epsilons) if own else []
    return "\n".join(lines)


def _lines(said: str, rows: Sequence[Row], epsilons: Sequence[float]) -> list[str]:
    """The rows of one data set; methods that were not run at all are one row together."""
    found, missing = [], []
    for method in (one.name for one in CONTENDERS):
        own = [row for row in rows if row["method"] == method]
        if own:
            cells = " | ".join(cell(own, epsilon) for epsilon in epsilons)
            found.append(f"| {said} | {method} | {cells} |")
        else:
            missing.append(method)
    nothing = " | ".join(["not run"] * len(epsilons))
    return [*found, *([f"| {said} | {', '.join(missing)} | {nothing} |"] if missing else [])]


def page(rows: Sequence[Row]) -> str:
    """Both tables, the data sets that were not run, and the pictures."""
    there = [name for name in NAMES if any(row["data"] == name for row in rows)]
    missing = [NAMES[name] for name in NAMES if name not in there]
    told = [f"Not run yet: {', '.join(missing)}."] if missing else []
    seconds = [_SECONDS, costs(rows), total(rows)]
    pictures = [f"![{NAMES[name]}: accuracy against epsilon](compare_{name}.svg)" for name in there]
    return "\n\n".join([table(rows), *told, *seconds, *pictures])


def costs(rows: Sequence[Row]) -> str:
    """CPU seconds of each method at one epsilon as Markdown: a column for each data set.

    >>> row = {"data": "adult", "method": "sums", "epsilon": 1.0, "right": 0.84, "seconds": 2.04}
    >>> costs([row]).splitlines()[2]
    '| sums | 2.0 |'
    """
    there = [name for name in NAMES if any(row["data"] == name for row in rows)]
    lines = [f"| method | {' | '.join(NAMES[name] for name in there)} |", "|---|" + "---|" * len(there)]
    for method in (one.name for one in CONTENDERS):
        own = {row["data"]: row for row in rows if row["method"] == method and _is_told(row)}
        if own:
            lines.append(f"| {method} | {' | '.join(_seconds(own.get(name)) for name in there)} |")
    return "\n".join(lines)


def _is_told(row: Row) -> bool:
    return row["epsilon"] in (COSTS, None) and "right" in row


def _seconds(row: Row | None) -> str:
    return "" if row is None else f"{row['seconds']:.1f}"


def total(rows: Sequence[Row]) -> str:
    """What all lines took together.

    >>> total([{"seconds": 3000, "shared": 600}, {"seconds": 0}])
    'The 2 lines took 1.0 CPU hours together, so 0.5 hours on 2 cores.'
    """
    hours = sum(row["seconds"] + row.get("shared", 0.0) for row in rows) / 3600
    return f"The {len(rows)} lines took {hours:.1f} CPU hours together, so {hours / 2:.1f} hours on 2 cores."


def cell(rows: Sequence[Row], epsilon: float) -> str:
    """The mean over draws, with their number where there are several; what is missing is named."""
    own = [row for row in rows if row["epsilon"] in (epsilon, None)]
    found = standings(own)
    if found:
        draws = f" ({found[0].draws})" if found[0].draws > 1 else ""
        return f"{100 * found[0].right:.1f}{draws}"
    late = any("CPU seconds" in row["refused"] for row in own)
    return "no time" if late else "none" if own else "not run"


def draw(rows: Sequence[Row], title: str) -> bytes:
    """Accuracy against epsilon as SVG, a line for each method."""
    figure, axes = plots.canvas("publishable epsilon", "test rows right, %", (6.0, 4.2))
    epsilons = epsilons_of(rows)
    for number, method in enumerate(one.name for one in CONTENDERS):
        found = {
            epsilon: standings([row for row in rows if (row["method"], row["epsilon"]) == (method, epsilon)])
            for epsilon in epsilons
        }
        points = [(epsilon, 100 * each[0].right) for epsilon, each in found.items() if each]
        if points:
            axes.plot(
                *zip(*points, strict=True), STYLES[number // 10], marker="o", markersize=3, label=method
            )
    for one in standings([row for row in rows if row["epsilon"] is None]):
        axes.axhline(100 * one.right, color="#9aa0a6", linewidth=1, linestyle="--", label=one.method)
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{one:g}" for one in epsilons])
    axes.minorticks_off()
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return plots.rendered(figure)


def write(file: Path, docs: Path) -> None:
    """Put the table into comparison.md, between its marks, and a picture of each data set beside it."""
    rows = list(results.of_file(file).values())
    if not rows:
        raise PateError(f"{file} holds no line: run `python -m experiments.compare`")
    path = docs / "comparison.md"
    before, begin, rest = path.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise PateError(f"{path} has no {BEGIN} and {END}: put them where the table goes")
    storage.write_bytes(path, f"{before}{begin}\n\n{page(rows)}\n\n{end}{after}".encode())
    for data, said in NAMES.items():
        own = [row for row in rows if row["data"] == data]
        if own:
            storage.write_bytes(docs / f"compare_{data}.svg", draw(own, said))


def main(
    results: Path = ROOT / "benchmarks/results/compare.jsonl", docs: Path = ROOT / "docs/reference"
) -> None:
    """Write both.

    Args:
        results: JSON lines of `experiments.compare`.
        docs: the folder of comparison.md.
    """
    write(results, docs)


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.compare_figure", description=__doc__)
