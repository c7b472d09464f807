"""`python -m experiments.students_figure`: accuracy by method and number of answers, from saved lines."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from pate_jax.accounting import plots
from pate_jax.errors import PateError
from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
METHODS = ("supervised", "vat", "gan", "fixmatch", "ridge", "tandem")


def main(
    results: Path = ROOT / "benchmarks/results/students.jsonl", out: Path = ROOT / "docs/students.svg"
) -> None:
    """Print the table of the lines of `experiments.students table` and draw it.

    Args:
        results: JSON lines.
        out: the figure.
    """
    found = means([json.loads(line) for line in results.read_text().splitlines()])
    if not found:
        raise PateError(f"{results} holds no line of the table: run `python -m experiments.students table`")
    print(table(found))
    storage.write_bytes(out, draw(found))


def means(lines: list[dict[str, Any]]) -> dict[tuple[str, int], float]:
    """Mean accuracy by method and answers."""
    heaps = defaultdict(list)
    for line in lines:
        if line["case"].startswith("table_") and line["told"] == "teachers":
            heaps[line["method"], line["answered"]].append(line["accuracy"])
    return {place: float(np.mean(heap)) for place, heap in heaps.items()}


def table(found: dict[tuple[str, int], float]) -> str:
    """The table as Markdown.

    >>> print(table({("vat", 50): 0.9}))
    | method | 50 |
    |---|---|
    | `vat` | 90.0% |
    """
    counts = sorted({count for _, count in found})
    lines = [f"| method | {' | '.join(map(str, counts))} |", "|---" * (len(counts) + 1) + "|"]
    for method in [name for name in METHODS if any((name, count) in found for count in counts)]:
        shown = [f"{found[method, n]:.1%}" if (method, n) in found else "" for n in counts]
        lines.append(f"| `{method}` | {' | '.join(shown)} |")
    return "\n".join(lines)


def draw(found: dict[tuple[str, int], float]) -> bytes:
    """The figure as SVG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    for method in METHODS:
        line = sorted((count, value) for (name, count), value in found.items() if name == method)
        if line:
            axes.plot(*zip(*line, strict=True), marker="o", label=method)
    axes.set_xscale("log")
    counts = sorted({count for _, count in found})
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_xlabel("answers")
    axes.set_ylabel("accuracy on 1,000 test images")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return plots.rendered(figure)


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.students_figure", description=__doc__)
