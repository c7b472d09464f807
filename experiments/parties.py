"""Parties against one owner, and hospitals with unlike patients: `python -m experiments.parties mnist`.

The records of a data set are divided among parties, which vote as `pate party join` does: a plan from public
inputs, the exact table of each party, and noise in shares, as little as keeps epsilon against the audience
that learns most (one party, which knows its own noise). The tables are added up here in the clear; the
protocol opens the same sums. Beside it stand one owner of all records and each party alone, at the same
epsilon. The student is the classifier that sums publish. Labels of the test part judge, and choose nothing.
Noise has a seed and is not private.

    python -m experiments.parties mnist --archives FOLDER --records 6000 --parties 3
    python -m experiments.parties --files PRIVATE PUBLIC TEST --label-column died --by-column dzclass
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import crowd, data  # noqa: E402
from pate_jax.accounting import parties as audiences  # noqa: E402
from pate_jax.accounting.exact import counts  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.noise import noisy_table, share  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.data import Dataset, tables  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums  # noqa: E402
from pate_jax.mechanisms.shared_votes import SharedVote  # noqa: E402
from pate_jax.system import headcount  # noqa: E402

Parts = Mapping[str, np.ndarray]  # rows of the private part, by the name of their party


class Judged(NamedTuple):
    """Mean accuracy on the test part, and on each group of it, in percent."""

    test: float
    groups: dict[str, float]


def divided(dataset: Dataset, parties: int) -> Parts:
    """Equal parts of the private records, in the order of the data set."""
    rows = np.array_split(np.arange(len(dataset.private.ids)), parties)
    return {f"party {number + 1}": part for number, part in enumerate(rows)}


def by_column(file: Path, column: str) -> Parts:
    """The rows of a table by the values of a column."""
    values = np.array(tables.read(file)[column], np.str_)
    return {str(value): np.flatnonzero(values == value) for value in np.unique(values)}


def joint_plan(here: crowds.Prepared, epsilon: float, parties: int) -> tuple[crowd.Plan, SharedVote]:
    """The plan of sums of all parties, and the vote with the least noise at this epsilon."""
    mu = counts.mu_for(epsilon, crowds.DELTA)
    settings = {"voters": here.voters, "classes": here.classes, "mu": mu}
    plan = crowd.plan("sums", here.space, here.places["pool"], **settings)
    if not isinstance(plan.release, ClassSums):
        raise SystemExit("a plan of sums has no sums")
    vote = SharedVote(
        *("sums", "counts"),
        parties=parties,
        colluding=1,
        sigma=plan.release.sigma,
        classes=here.classes,
        directions=plan.release.directions,
        length=plan.release.length,
    )
    vote = audiences.least_noise(vote, epsilon, crowds.DELTA)
    noise = vote.noise.together(parties).scale
    release = dataclasses.replace(plan.release, sigma=noise, family="discrete_gaussian")
    return plan._replace(release=release), vote


def only(here: crowds.Prepared, rows: np.ndarray) -> crowds.Prepared:
    """The same with the private records in these rows alone."""
    places, labels = dict(here.places), dict(here.labels)
    places["private"], labels["private"] = places["private"][rows], np.asarray(labels["private"])[rows]
    return here._replace(places=places, labels=labels, voters=headcount.coarse(len(rows)))


def together(
    here: crowds.Prepared, parts: Parts, epsilon: float, seeds: int, groups: Parts
) -> dict[str, Any]:
    """All parties in one vote."""
    plan, vote = joint_plan(here, epsilon, len(parts))
    tables_ = [crowds.sums_of(plan, only(here, rows)) for rows in parts.values()]
    judged = []
    for seed in range(seeds):
        noisy = [
            table + share(vote.noise.share, table.shape, key=seeded_key(1000 * seed + place))
            for place, table in enumerate(tables_)
        ]
        judged.append(judge(np.sum(noisy, axis=0), plan, here, groups))
    figures = {
        one.name: math.ceil(1e4 * one.epsilon) / 1e4 for one in audiences.audiences(vote, crowds.DELTA)
    }
    return {"who": f"{len(parts)} parties", "epsilon": figures, **mean(judged)}


def alone(name: str, here: crowds.Prepared, epsilon: float, seeds: int, groups: Parts) -> dict[str, Any]:
    """One owner of these records, who trusts itself."""
    plan = crowds.planned("sums", here, epsilon)
    table = crowds.sums_of(plan, here)
    drawn = [noisy_table(plan.release, table, key=seeded_key(seed)).values for seed in range(seeds)]
    judged = [judge(noisy, plan, here, groups) for noisy in drawn]
    figure = math.ceil(1e4 * counts.epsilon([plan.release], crowds.DELTA)) / 1e4
    return {"who": name, "epsilon": figure, "records": len(here.places["private"]), **mean(judged)}


def judge(noisy: np.ndarray, plan: crowd.Plan, here: crowds.Prepared, groups: Parts) -> Judged:
    """The classifier of noisy sums on the test part."""
    found = shares.of_sums(noisy, plan, here.places["pool"], here.voters, here.places["test"])
    right = found.probabilities.argmax(1) == here.labels["test"]
    return Judged(float(right.mean()), {name: float(right[rows].mean()) for name, rows in groups.items()})


def mean(judged: list[Judged]) -> dict[str, Any]:
    """Means over draws of the noise, and the spread of the accuracy, in percent."""
    tests = [100 * one.test for one in judged]
    groups = {
        name: round(100 * float(np.mean([one.groups[name] for one in judged])), 1)
        for name in judged[0].groups
    }
    spread = round(float(np.std(tests)), 2)
    return {
        "test": round(float(np.mean(tests)), 2),
        "spread": spread,
        **({"groups": groups} if groups else {}),
    }


def lines(
    dataset: Dataset, parts: Parts, groups: Parts, epsilons: list[float], seeds: int
) -> Iterator[dict[str, Any]]:
    """One for the parties together, for one owner of all records, and for each party alone."""
    here = crowds.prepared(dataset)
    for epsilon in epsilons:
        facts = {"data": here.name, "at": epsilon}
        yield {**facts, **together(here, parts, epsilon, seeds, groups)}
        yield {**facts, **alone("one owner of all", here, epsilon, seeds, groups)}
        for name, rows in parts.items():
            yield {**facts, **alone(name, only(here, rows), epsilon, seeds, groups)}


def main() -> None:
    """Measure one data set; each line is printed as it comes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", nargs="?", help="a data set by name")
    parser.add_argument("--archives", type=Path, help="the folder of its archives")
    crowds.add_files(parser)
    parser.add_argument("--by-column", help="one party for each value of this column of the private file")
    parser.add_argument("--parties", type=int, default=3)
    parser.add_argument("--records", type=int, help="the first so many private records")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0])
    parser.add_argument("--seeds", type=int, default=10)
    chosen = parser.parse_args()
    named = [data.load(chosen.name, manual_dir=chosen.archives)] if chosen.name else []
    for dataset in crowds.of_files(chosen) + named:
        if chosen.records is not None:
            dataset = dataclasses.replace(dataset, private=dataset.private.take(slice(chosen.records)))
        if chosen.by_column:
            parts = by_column(chosen.files[0], chosen.by_column)
            groups = by_column(chosen.files[2], chosen.by_column)
        else:
            parts, groups = divided(dataset, chosen.parties), {}
        for line in lines(dataset, parts, groups, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
