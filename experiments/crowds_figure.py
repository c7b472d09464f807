"""`python -m experiments.crowds_figure`: accuracy against publishable epsilon, from saved lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tyro

from pate_jax.accounting import plots
from pate_jax.errors import PateError
from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results"
LOWEST = {"mnist": 80.0, "fashion_mnist": 70.0, "adult": 76.0, "support2": 50.0, "reviews": 50.0}  # drawn
# Epsilon, accuracy and name of what papers and our teachers reach; the papers' epsilons are of their votes.
POINTS = {
    "mnist": [(2.04, 98.0, "paper of 2017"), (0.833, 98.7, "250 trained nets")],
    "fashion_mnist": [(3.70, 86.5, "250 trained nets")],
    "adult": [(2.66, 83.0, "paper of 2017"), (2.02, 84.6, "250 trained nets")],
}
COLOURS = {
    "sums": "#1b6ca8",
    "neighbours": "#2f855a",
    "50 teachers": "#f2c6b8",
    "100 teachers": "#eba48f",
    "250 teachers": "#e07a5f",
    "500 teachers": "#c8553d",
    "1000 teachers": "#9c3b27",
    "5000 teachers": "#5e2115",
}
POINT = {
    "paper of 2017": {"marker": "s", "color": "#6a4c93", "markersize": 4},
    "250 trained nets": {"marker": "D", "color": "#e3b23c", "markersize": 4},
}
NAMES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "adult": "Adult",
    "support2": "SUPPORT2",
    "reviews": "reviews",
}


class Curve(NamedTuple):
    """What one kind of voters reaches on a data set."""

    said: str
    points: list[tuple[float, float]]  # epsilon, and percent that are right
    style: str


def main(
    results: Path = RESULTS / "crowds.jsonl",
    teachers: Path = RESULTS / "linear_teachers.jsonl",
    out: Path = ROOT / "docs/voters.svg",
) -> None:
    """Print the table of the lines of `experiments.crowds`, and draw them beside linear teachers.

    Args:
        results: JSON lines of `experiments.crowds`.
        teachers: JSON lines of `experiments.linear_teachers`.
        out: the figure.
    """
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    if not lines:
        raise PateError(f"{results} holds no line: run `python -m experiments.crowds`")
    print(table(lines))
    beside = [json.loads(line) for line in teachers.read_text().splitlines()] if teachers.exists() else []
    storage.write_bytes(out, draw(lines, beside))


def table(lines: list[dict[str, Any]]) -> str:
    """The table as Markdown: accuracy on the pool and the test part, or the labels that are right.

    >>> print(table([{"data": "adult", "voter": "sums", "epsilon": 0.1, "pool": 84.6, "test": 84.75}]))
    | data | voters | 0.1 |
    |---|---|---|
    | Adult | sums: pool / test | 84.6 / 84.8 |
    """
    epsilons = sorted({line["epsilon"] for line in lines})
    rows = [
        f"| data | voters | {' | '.join(f'{one:g}' for one in epsilons)} |",
        "|---|" + "---|" * (1 + len(epsilons)),
    ]
    for name in NAMES:
        for voter, said in (
            ("sums", "sums: pool / test"),
            ("neighbours", "neighbours: labels right (asked)"),
        ):
            found = {
                line["epsilon"]: line for line in lines if (line["data"], line["voter"]) == (name, voter)
            }
            cells = " | ".join(cell(found[one]) if one in found else "" for one in epsilons)
            rows += [f"| {NAMES[name]} | {said} | {cells} |"] if found else []
    return "\n".join(rows)


def cell(line: dict[str, Any]) -> str:
    """One line's figures; a star where the plan doubted them beforehand, a dagger where most tables did."""
    star = ("\\*" if line.get("doubts") else "") + ("†" if line.get("doubts_after", 0) >= 2 else "")
    if line["voter"] == "sums":
        return f"{line['pool']:.1f} / {line['test']:.1f}{star}"
    return f"{line['labels']:.1f} ({line['queries']}){star}"


def draw(lines: list[dict[str, Any]], teachers: Sequence[dict[str, Any]] = ()) -> bytes:
    """The figure as SVG, a panel for each data set in two columns, to be read where it is 370 pixels wide."""
    import matplotlib
    from matplotlib.figure import Figure

    there = [name for name in NAMES if any(line["data"] == name for line in lines)]
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(4.8, 2.3 * math.ceil((len(there) + 1) / 2)), layout="constrained")
        panels = figure.subplots(math.ceil((len(there) + 1) / 2), 2, squeeze=False).flatten()
        named: dict[str, Any] = {}
        for axes, name in zip(panels, there, strict=False):
            for curve in [*of_crowds(lines, name), *of_teachers(teachers, name)]:
                colour = COLOURS[curve.said]
                (one,) = axes.plot(*zip(*curve.points, strict=True), curve.style, color=colour, marker=".")
                named.setdefault(curve.said, one)
            for epsilon, right, said in POINTS.get(name, []):
                named.setdefault(said, axes.plot(epsilon, right, linestyle="", **POINT[said])[0])
            axes.set_ylim(bottom=LOWEST[name])
            axes.set_xscale("log")
            axes.set_title(NAMES[name], fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in panels[len(there) :]:
            axes.set_axis_off()
        named = {said: named[said] for said in (*COLOURS, *POINT) if said in named}
        panels[len(there)].legend(named.values(), named, frameon=False, fontsize=8, loc="center")
        figure.supxlabel("publishable epsilon", fontsize=9)
        figure.supylabel("right, %", fontsize=9)
        return plots.rendered(figure)


def of_crowds(lines: list[dict[str, Any]], name: str) -> Iterator[Curve]:
    """Sums on the test part, and the labels of neighbours."""
    for voter, part in (("sums", "test"), ("neighbours", "labels")):
        found = sorted(
            (one["epsilon"], one[part]) for one in lines if (one["data"], one["voter"]) == (name, voter)
        )
        yield Curve(voter, found, "-")


def of_teachers(lines: Sequence[dict[str, Any]], name: str) -> Iterator[Curve]:
    """The labels of linear teachers, fewest teachers first.

    >>> line = {"data": "adult", "voters": "9 teachers", "epsilon": 1, "accuracy": 80.0}
    >>> [curve.said for curve in of_teachers([line], "adult")]
    ['9 teachers']
    """
    own = [line for line in lines if line["data"] == name]
    for voters in sorted({line["voters"] for line in own}, key=lambda said: int(said.split()[0])):
        points = sorted((line["epsilon"], line["accuracy"]) for line in own if line["voters"] == voters)
        yield Curve(voters, points, "--")


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.crowds_figure", description=__doc__)
