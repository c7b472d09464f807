"""`python -m experiments.publishable`: the figures to publish of the settings in the documentation.

Such a figure is a function of the setting alone: nothing is trained here, and no private vote is read.
With the votes that the 2018 paper published of MNIST (`--votes`) it draws the bars of docs/guide/epsilon.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from pate_jax import accounting, voting
from pate_jax.accounting import plots
from pate_jax.accounting.curves import Rule
from pate_jax.accounting.data_independent import Proved, WorstCase
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Mechanism,
)
from pate_jax.runs.thresholds import default_mechanism
from pate_jax.system import storage

ROOT = Path(__file__).parents[1]
DELTA = 1e-5
_SENSITIVE, _PUBLISHABLE, _OLDER = "#c8553d", "#1b6ca8", "#9aa0a6"


class Setting(NamedTuple):
    """What a figure to publish depends on, delta apart."""

    name: str
    mechanism: Mechanism
    queries: int
    teachers: int = 250
    classes: int = 10

    def figure(self, rule: Rule) -> Proved:
        """The figure that a statement prints: every query charged one index, or all noisy counts."""
        worst = WorstCase(self.mechanism, [self.teachers], self.classes, rule)
        return worst.figure(np.array([self.queries]), DELTA)


_INTERACTIVE = InteractiveGNMax(100.0, 100.0, 40.0, 0.95)
PICTURE = Setting("published MNIST votes", ConfidentGNMax(200.0, 150.0, 40.0), 640)
SETTINGS = (
    Setting("`pate run --teachers 125`, strokes", default_mechanism(125), 500, teachers=125),
    Setting("`pate run`, MNIST and Fashion-MNIST", ConfidentDiscreteGaussian(200.0, 150.0, 40.0), 640),
    Setting("`pate run`, Adult", ConfidentDiscreteGaussian(220.0, 150.0, 40.0), 1500, classes=2),
    PICTURE,
    Setting("published Adult votes", ConfidentGNMax(300.0, 200.0, 40.0), 1500, classes=2),
    Setting("published MNIST votes, 2017", LNMax(20.0), 100),
    Setting("published MNIST votes, 2017", LNMax(20.0), 1000),
    Setting("published Adult votes, 2017", LNMax(20.0), 500, classes=2),
    Setting("student `mnist_publishable`", GNMax(47.4), 80),
    Setting("student `mnist_exact`", GNMax(30.0), 120),
    Setting("student `adult`", GNMax(60.0), 700, classes=2),
    Setting("student `fashion_mnist`", GNMax(42.0), 1000),
    Setting("what to ask about", GNMax(40.0), 50),
    Setting("what to ask about", GNMax(40.0), 100),
    Setting("what to ask about", GNMax(40.0), 250),
    Setting("the same, interactive", _INTERACTIVE, 50),
    Setting("the same, interactive", _INTERACTIVE, 100),
    Setting("the same, interactive", _INTERACTIVE, 250),
)


class Bar(NamedTuple):
    """One bar of the picture."""

    name: str
    epsilon: float
    colour: str


def main(votes: Path | None = None, out: Path = ROOT / "docs/publishable.svg") -> None:
    """Print the figures as a table, and draw the picture where there are votes for it.

    Args:
        votes: the published MNIST votes, as `experiments.published_votes` reads them; unset: no picture.
        out: the picture.
    """
    print(table(SETTINGS))
    if votes is not None:
        chosen = bars(PICTURE, voting.load_votes(votes).votes[: PICTURE.queries])
        print("\n" + "\n".join(f"{bar.name.replace(chr(10), ', ')}: {bar.epsilon:.4f}" for bar in chosen))
        storage.write_bytes(out, draw(chosen))


def table(settings: tuple[Setting, ...]) -> str:
    """The figures as Markdown: charged as all noisy counts, and as the one index that leaves.

    >>> print(table((Setting("few", GNMax(100.0), 5),)))
    | setting | queries | noisy counts | one index | by |
    |---|---|---|---|---|
    | few | 5 | 0.0970 | 0.0882 | renyi, worst case |
    """
    lines = ["| setting | queries | noisy counts | one index | by |", "|---|---|---|---|---|"]
    for setting in settings:
        counts, index = setting.figure("counts"), setting.figure("index")
        lines.append(
            f"| {setting.name} | {setting.queries:,} | {counts.epsilon.epsilon:.4f} | "
            f"{index.epsilon.epsilon:.4f} | {index.basis} |"
        )
    return "\n".join(lines)


def bars(setting: Setting, votes: NDArray[np.int64]) -> list[Bar]:
    """The five figures of these votes. The noise of the sanitised one is set to 0, its median."""
    mechanism = setting.mechanism
    plan = accounting.plan(mechanism, len(votes), setting.teachers, setting.classes, DELTA)
    limit = accounting.sanitise(mechanism, votes, DELTA, plan, drawn=0)
    stated = accounting.statement(mechanism, votes, None, DELTA, sanitised=limit, pld=False, private=True)

    def epsilon(name: str) -> float:
        value = stated.figures[name].epsilon
        return np.inf if value is None else value

    older = float(setting.figure("counts").epsilon.epsilon)
    return [
        Bar("published analysis\n(no guarantee)", epsilon("published"), _SENSITIVE),
        Bar("exact", epsilon("exact"), _SENSITIVE),
        Bar("sanitised\nupper limit, 99%", epsilon("sanitised"), _PUBLISHABLE),
        Bar("data-independent,\nall noisy counts", older, _OLDER),
        Bar("data-independent,\none answer", epsilon("data_independent"), _PUBLISHABLE),
    ]


def draw(chosen: list[Bar]) -> bytes:
    """The bars as SVG, the first on top."""
    figure, axes = plots.canvas(f"epsilon at delta = {DELTA:g}", "", (6.4, 2.7))
    for place, bar in enumerate(chosen):
        axes.barh(place, bar.epsilon, 0.62, color=bar.colour)
        at = (bar.epsilon, place)
        axes.annotate(f"{bar.epsilon:.2f}", at, (4, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(chosen)), [bar.name for bar in chosen])
    axes.invert_yaxis()
    for colour, label in (
        (_SENSITIVE, "sensitive: stays inside"),
        (_PUBLISHABLE, "may be published"),
        (_OLDER, "may be published, and is larger than needed"),
    ):
        axes.barh(0, 0, color=colour, label=label)
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    return plots.rendered(figure)


if __name__ == "__main__":
    tyro.cli(main, prog="experiments.publishable", description=__doc__)
