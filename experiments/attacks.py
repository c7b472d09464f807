"""Membership inference on class sums and linear teachers: `python -m experiments.attacks strokes`.

Shadow runs of the whole pipeline, each on another random half of the records, attack one another as the docs
tell (docs/guide/risk.md). Broken twins are attacked too: those that an attack does not detect show what it is
worth. One line of JSON for each case, with the curve of each attack; `--draw` draws the lines that are there.
Shadow runs are kept in a folder, so a command that was stopped goes on when it is repeated.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices, headcount

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import crowd, data  # noqa: E402
from pate_jax.accounting import plots  # noqa: E402
from pate_jax.accounting.exact import counts  # noqa: E402
from pate_jax.audit.attacks import membership, roc, shadows, twins  # noqa: E402
from pate_jax.audit.attacks.roc import Promise  # noqa: E402
from pate_jax.audit.attacks.shadows import Pipeline  # noqa: E402
from pate_jax.audit.attacks.sums_pipeline import Sums  # noqa: E402
from pate_jax.audit.attacks.teachers_pipeline import LinearTeachers  # noqa: E402
from pate_jax.crowd import classifier  # noqa: E402
from pate_jax.data import partition  # noqa: E402
from pate_jax.ensemble import TeacherConfig  # noqa: E402
from pate_jax.mechanisms import GNMax  # noqa: E402
from pate_jax.runs.inputs import teachers_net  # noqa: E402
from pate_jax.system import storage  # noqa: E402

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/attacks.jsonl"
SEED, REFERENCE, SMALL = 14, 2000, 400  # records that never are members; records of a small crowd
TEACHERS, ASKED = 250, 100  # linear teachers, and queries that they answer
SILENT = 0.05  # scale of next to no noise; the exact law of much less takes minutes
LEVELS = np.logspace(-4, 0, 41)
COLOURS = {
    "loss": "#9aa0a6", "lira": "#1b6ca8", "lira, offline": "#6aa9d6", "rmia": "#2f855a", "table": "#c8553d",
    "table, others known": "#7b3f00", "answers": "#c8553d", "answers, others known": "#7b3f00",
}  # fmt: skip
DRAWN = ("honest", "no noise, crowd of 200")  # at epsilon 1


class Case(NamedTuple):
    """A pipeline that is attacked, by name, at an epsilon that it promises."""

    name: str
    epsilon: float
    make: Callable[[crowds.Prepared], tuple[Pipeline, Promise]]


def cases(epsilons: list[float]) -> Iterator[Case]:
    """The honest pipeline at each epsilon, and its twins at epsilon 1."""
    for epsilon in epsilons:
        yield Case("honest", epsilon, partial(made, epsilon=epsilon))
    broken: dict[str, tuple[Callable[[Sums], Pipeline], int | None]] = {
        "noise ten times too small": (twins.too_little_noise, None),
        f"no noise, crowd of {SMALL // 2}": (twins.without_noise, SMALL),
        f"fitted to {SMALL // 2} private records": (twins.on_private_records, SMALL),
    }
    for name, (twin, records) in broken.items():
        yield Case(name, 1.0, partial(made, epsilon=1.0, twin=twin, records=records))


def made(
    here: crowds.Prepared,
    epsilon: float,
    twin: Callable[[Sums], Pipeline] | None = None,
    records: int | None = None,
) -> tuple[Pipeline, Promise]:
    """A pipeline, and what the honest one promises; a small crowd has the space of the large one."""
    mu = counts.mu_for(epsilon, crowds.DELTA)
    half = headcount.coarse((len(here.labels["private"]) - REFERENCE) // 2)
    plan = crowds.planned("sums", here._replace(voters=half), epsilon)
    some = len(here.labels["private"]) - REFERENCE if records is None else records
    rows = np.r_[:some, len(here.labels["private"]) - REFERENCE : len(here.labels["private"])]
    wide = len(plan.space.variances)
    vectors = crowd.vectors(plan.scaling, here.places["private"][rows, :wide])
    public = crowd.vectors(plan.scaling, here.places["pool"][:, :wide])
    pool = classifier.measured(public, plan.release.length)
    labels, number = np.asarray(here.labels["private"])[rows], counts.headcount_for(mu, "sums")
    honest = Sums(vectors, labels, pool, plan.release, number, REFERENCE)
    return (honest if twin is None else twin(honest)), honest.promise(crowds.DELTA)


def of_teachers(dataset: data.Dataset) -> Iterator[Case]:
    """Linear teachers at epsilon 1, and a twin of theirs with next to no noise."""
    honest, said = linear_teachers(dataset, SEED), f"{TEACHERS} linear teachers"
    silent = dataclasses.replace(honest, mechanism=GNMax(SILENT))
    yield Case(said, 1.0, lambda _: (honest, honest.promised))
    yield Case(f"{said}, no noise", 1.0, lambda _: (silent, honest.promised))


def linear_teachers(dataset: data.Dataset, seed: int) -> LinearTeachers:
    """Teachers who answer so many queries by the noise that Gaussian-DP asks for."""
    config, mu = TeacherConfig(net="linear").resolved(), counts.mu_for(1.0, crowds.DELTA)
    net, private, public = teachers_net(config, dataset), dataset.private, dataset.public.inputs
    if net.front is None:
        raise SystemExit("linear teachers have no space")
    asked = np.random.default_rng(seed).choice(len(public), ASKED, replace=False)
    return LinearTeachers(
        entries=net.front(private.inputs),
        labels=np.asarray(private.labels, np.int64),
        persons=np.arange(len(private.ids)),
        teacher_of=partition.assign(private.ids, TEACHERS, key=partition.seeded_key(seed)),
        asked=net.front(public[asked]),
        teachers=TEACHERS,
        classes=dataset.classes,
        penalty=config.weight_decay or 0.0,
        mechanism=GNMax(math.sqrt(2 * ASKED) / mu),
        promised=Promise(1.0, crowds.DELTA, mu),
        reference=REFERENCE,
    )


def line(here: crowds.Prepared, case: Case, runs: int, folder: Path) -> dict[str, Any]:
    """What all attacks achieve on one case."""
    began = time.perf_counter()
    pipeline, promise = case.make(here)
    place = folder / f"{here.name}-{case.name.replace(' ', '-')}-{case.epsilon:g}-{pipeline.records}"
    seen, found = shadows.played(pipeline, runs, SEED, place), []
    for name, scores in membership.each(seen, getattr(pipeline, "released", "table")):
        one = roc.measured(name, scores, seen.member, promise)
        curve = np.round(roc.curve(scores, seen.member, LEVELS), 6).tolist()
        found.append({**one.to_dict(), "curve": curve})
    return {
        "data": here.name, "case": case.name, "epsilon": case.epsilon, "shadows": runs,
        "records": pipeline.records, "attacks": found,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """The lines as Markdown."""
    rows = [
        "| data, pipeline | attack | AUC | right | at 0.1% | allowed | at 1% | allowed | epsilon at least |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in lines:
        for attack in one["attacks"]:
            strict, loose = attack["caught"]
            cells = [
                f"{one['data']}, {one['case']}, epsilon {one['epsilon']:g}",
                f"`{attack['attack']}`",
                f"{attack['auc']:.4f}",
                f"{attack['right']:.2%}",
                *(text for each in (strict, loose) for text in (shown(each), f"{each['most']:.2%}")),
                f"{attack['epsilon']:.3f}",
            ]
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def shown(caught: dict[str, float]) -> str:
    """A share with its interval.

    >>> shown({"share": 0.012, "low": 0.011, "high": 0.013})
    '1.20% (1.10 to 1.30)'
    """
    return f"{caught['share']:.2%} ({100 * caught['low']:.2f} to {100 * caught['high']:.2f})"


def draw(lines: list[dict[str, Any]]) -> bytes:
    """A column for each data set: curves at epsilon 1, honest and broken, and the epsilon shown."""
    import matplotlib
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(one["data"] for one in lines))
    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(2.4 * len(names), 2.3 * (len(DRAWN) + 1)), layout="constrained")
        panels = figure.subplots(len(DRAWN) + 1, len(names), squeeze=False)
        for column, name in enumerate(names):
            own = {(one["case"], one["epsilon"]): one for one in lines if one["data"] == name}
            for row, case in enumerate(DRAWN):
                if (case, 1.0) in own:
                    curves(panels[row][column], own[case, 1.0])
            bounds(panels[-1][column], [one for (case, _), one in own.items() if case == "honest"])
        for axes in panels.flatten():
            axes.spines[["top", "right"]].set_visible(False)
        for places in panels[:-1]:
            places[0].set_ylabel("true positives")
        handles = {one.get_label(): one for one in panels[0][0].lines}
        figure.legend(
            handles.values(), handles, frameon=False, fontsize=8, loc="outside lower center", ncols=2
        )
        return plots.rendered(figure)


def curves(axes: Any, line: dict[str, Any]) -> None:
    """The curves of one case on axes of logarithms."""
    for attack in line["attacks"]:
        axes.loglog(LEVELS, attack["curve"], color=COLOURS[attack["attack"]], label=attack["attack"])
    promise = roc.Promise(**line["attacks"][0]["promise"])
    axes.loglog(LEVELS, [promise.caught(at) for at in LEVELS], "k--", label="allowed")
    axes.loglog(LEVELS, LEVELS, "k:", linewidth=0.8, label="guessing")
    axes.set_ylim(1e-4, 1.1)
    axes.set_title(f"{line['data']}: {line['case']}", fontsize=9)
    axes.set_xlabel("false positives")


def bounds(axes: Any, lines: list[dict[str, Any]]) -> None:
    """What epsilon is at least, by attack, beside what is promised."""
    lines = sorted(lines, key=lambda one: one["epsilon"])
    for place in range(len(lines[0]["attacks"])):
        points = [(one["epsilon"], one["attacks"][place]["epsilon"]) for one in lines]
        colour = COLOURS[lines[0]["attacks"][place]["attack"]]
        axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3)
    axes.plot([0.1, 8], [0.1, 8], "k--")
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=0.01)
    axes.set_ylim(bottom=0)
    axes.set_title("epsilon shown, at least", fontsize=9)
    axes.set_xlabel("epsilon promised")


def kept(results: Path) -> list[dict[str, Any]]:
    """The lines that are there."""
    return [json.loads(one) for one in results.read_text().splitlines()] if results.exists() else []


def keep(results: Path, made: dict[str, Any]) -> None:
    """Add a line in place of an earlier one of the same case."""
    lines = {(one["data"], one["case"], one["epsilon"]): one for one in (*kept(results), made)}
    content = "".join(json.dumps(one) + "\n" for one in lines.values())
    storage.write_bytes(results, content.encode())


def main() -> None:
    """Attack the named data sets, and print the table of all lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="data sets by name")
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 0.1, 0.3, 2.0, 4.0, 8.0])
    parser.add_argument("--shadows", type=int, default=128)
    parser.add_argument("--records", type=int, default=20_000, help="private records at most")
    parser.add_argument("--folder", type=Path, default=Path("runs/attacks"), help="where shadows are kept")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--draw", type=Path, help="draw all lines here, as SVG")
    chosen = parser.parse_args()
    for name in chosen.names:
        here, dataset = prepared(name, chosen.archives, chosen.records)
        for case in (*cases(chosen.epsilons), *of_teachers(dataset)):
            keep(chosen.results, line(here, case, chosen.shadows, chosen.folder))
    lines = kept(chosen.results)
    print(table(lines))
    if chosen.draw:
        storage.write_bytes(chosen.draw, draw(lines))


def prepared(name: str, archives: Path | None, records: int) -> tuple[crowds.Prepared, data.Dataset]:
    """A data set with at most so many private records, and a pool of public ones, in its space."""
    if archives is None or not (archives / name).exists():
        made = data.load(name, size=records, public_size=2000, test_size=10)
    else:
        made = data.load(name, manual_dir=archives / name)
    some = dataclasses.replace(made, private=made.private.take(np.arange(records)))
    return crowds.prepared(some), some


if __name__ == "__main__":
    main()
