"""`python -m experiments.crowds_figure`: accuracy against publishable epsilon, from saved lines."""

from __future__ import annotations

import json
import statistics
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
    "mnist": [(2.04, 98.0, "2017, data-dependent"), (0.833, 98.7, "250 trained nets")],
    "fashion_mnist": [(3.70, 86.5, "250 trained nets")],
    "adult": [(2.66, 83.0, "2017, data-dependent"), (2.02, 84.6, "250 trained nets")],
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
    rounds: Path = RESULTS / "crowd_rounds.jsonl",
    out: Path = ROOT / "docs/voters.svg",
) -> None:
    """Print the table of the lines of `experiments.crowds`, and draw them beside linear teachers.

    Args:
        results: JSON lines of `experiments.crowds`.
        teachers: JSON lines of `experiments.linear_teachers`.
        rounds: JSON lines of the second rounds that there were before steps.
        out: the figure.
    """
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    if not lines:
        raise PateError(f"{results} holds no line: run `python -m experiments.crowds`")
    print(table(lines))
    beside = [
        [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        for file in (teachers, rounds)
    ]
    storage.write_bytes(out, draw(lines, *beside))


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


def draw(
    lines: list[dict[str, Any]],
    teachers: Sequence[dict[str, Any]] = (),
    rounds: Sequence[dict[str, Any]] = (),
) -> bytes:
    """The figure as SVG, a panel for each data set."""
    from matplotlib.figure import Figure

    there = [name for name in NAMES if any(line["data"] == name for line in lines)]
    figure = Figure(figsize=(3.1 * len(there), 4.0), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(there), squeeze=False)[0], there, strict=True):
        for curve in [*of_crowds(lines, name), *of_rounds(rounds, name), *of_teachers(teachers, name)]:
            axes.plot(
                *zip(*curve.points, strict=True), curve.style, marker="o", markersize=3, label=curve.said
            )
        for epsilon, right, said in POINTS.get(name, []):
            axes.plot([epsilon], [right], linestyle="", marker="s", markersize=4, label=said)
        axes.set_ylim(bottom=LOWEST[name])
        axes.set_xscale("log")
        axes.set_title(NAMES[name], fontsize=10)
        axes.set_xlabel("publishable epsilon")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=6, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    figure.axes[0].set_ylabel("right, %")
    return plots.rendered(figure)


def of_crowds(lines: list[dict[str, Any]], name: str) -> Iterator[Curve]:
    """Sums on the test part, and the labels of neighbours."""
    for voter, part in (("sums", "test"), ("neighbours", "labels")):
        found = sorted(
            (one["epsilon"], one[part]) for one in lines if (one["data"], one["voter"]) == (name, voter)
        )
        yield Curve(f"{voter}, {'test part' if part == 'test' else part}", found, "-")


def of_rounds(lines: Sequence[dict[str, Any]], name: str) -> Iterator[Curve]:
    """What the mean of all rounds' sums says of the test part, mean over draws, for each number of rounds.

    >>> line = {"data": "adult", "epsilon": 1.0, "of": 2, "round": 2, "mean": [80.0, 81.0]}
    >>> list(of_rounds([line, {**line, "mean": [80.0, 82.0]}], "adult"))
    [Curve(said='sums, 2 rounds, test part', points=[(1.0, 81.5)], style=':')]
    """
    last = [one for one in lines if one["data"] == name and one["round"] == one["of"] > 1]
    for number in sorted({one["of"] for one in last}):
        own = [one for one in last if one["of"] == number]
        points = [
            (epsilon, statistics.fmean(one["mean"][1] for one in own if one["epsilon"] == epsilon))
            for epsilon in sorted({one["epsilon"] for one in own})
        ]
        yield Curve(f"sums, {number} rounds, test part", points, ":")


def of_teachers(lines: Sequence[dict[str, Any]], name: str) -> Iterator[Curve]:
    """The labels of linear teachers, fewest teachers first.

    >>> line = {"data": "adult", "voters": "9 teachers", "epsilon": 1, "accuracy": 80.0}
    >>> [curve.said for curve in of_teachers([line], "adult")]
    ['9 teachers, 80 labels']
    """
    own = [line for line in lines if line["data"] == name]
    for voters in sorted({line["voters"] for line in own}, key=lambda said: int(said.split()[0])):
        points = sorted((line["epsilon"], line["accuracy"]) for line in own if line["voters"] == voters)
        yield Curve(f"{voters}, 80 labels", points, "--")


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.crowds_figure", description=__doc__)
