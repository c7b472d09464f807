"""Accuracy of crowds against publishable epsilon: `python -m experiments.crowds adult --epsilons 0.1 0.5`.

Every record votes, as `crowd.plan` plans it: from the public part, the rounded number of records and epsilon.
Labels of the public and the test part are read to judge with only. What is drawn has a seed and is not
private; the epsilon is the publishable one for changed contents at delta 1e-5. `doubts` is what the plan says
beforehand, and `doubts_after` is in how many draws the noisy table says it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices, headcount

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax import crowd, data  # noqa: E402
from pate_jax.accounting.exact import counts as cost  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.noise import noisy_table  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.crowd.plan import doubts  # noqa: E402
from pate_jax.data import Dataset  # noqa: E402
from pate_jax.models import spaces  # noqa: E402

DELTA, DIRECTIONS = 1e-5, 400
AT_ONCE = 2000  # records
Measure = Callable[[Dataset, list[float], int], Iterator[dict[str, Any]]]
EPSILONS = [0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]


class Prepared(NamedTuple):
    """A data set's labels, its space, and where all inputs lie in it."""

    name: str
    classes: int
    space: spaces.Space
    places: dict[str, np.ndarray]
    labels: dict[str, np.ndarray | None]
    voters: int  # rounded


def prepared(dataset: Dataset, kind: spaces.Kind | None = None, directions: int = DIRECTIONS) -> Prepared:
    """A space, that which suits the inputs if none is named, and the coordinates of all parts."""
    kind = kind or crowd.space_kind(dataset)
    space = spaces.learn(kind, dataset.public.inputs, dataset.preprocessing, directions=directions)
    parts = {"private": dataset.private, "pool": dataset.public, "test": dataset.test}
    there = {name: part for name, part in parts.items() if part is not None}
    places = {name: space.coordinates(part.inputs) for name, part in there.items()}
    labels = {name: part.labels for name, part in there.items()}
    voters = headcount.coarse(len(dataset.private.inputs))
    return Prepared(dataset.name, dataset.classes, space, places, labels, voters)


def by_sums(here: Prepared, epsilon: float, seeds: int) -> dict[str, Any]:
    """The classifier of noisy sums: mean accuracy on the pool and on the test part."""
    plan = planned("sums", here, epsilon)
    table = sums_of(plan, here)
    right: dict[str, list[float]] = {"pool": [], "test": []}
    said_after = []
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        for part, labels in here.labels.items():
            if part in right and labels is not None:
                found = shares.of_sums(noisy, plan, here.places["pool"], here.voters, here.places[part])
                right[part].append(accuracy(found.probabilities, labels))
        said_after.append(shares.doubt(found) is not None)
    settings = {"directions": plan.release.directions - 1, "length": plan.release.length}
    return {**means(right), **settings, **said(plan, here), "doubts_after": sum(said_after)}


def by_counts(here: Prepared, epsilon: float, seeds: int) -> dict[str, Any]:
    """The labels that neighbours give to medoids of the pool: how many are right."""
    plan, truth = planned("neighbours", here, epsilon), here.labels["pool"]
    settings = {"queries": plan.release.queries, "votes": plan.release.votes}
    if truth is None:
        return settings
    table = counts_of(plan, here)
    noisy = [noisy_table(plan.release, table, key=seeded_key(seed)).values for seed in range(seeds)]
    found = [shares.of_counts(one, plan.release) for one in noisy]
    right = [accuracy(one.probabilities, truth[plan.queries.rows]) for one in found]
    after = sum(shares.doubt(one) is not None for one in found)
    return {**means({"labels": right}), **settings, **said(plan, here), "doubts_after": after}


def sums_of(plan: crowd.Plan, here: Prepared) -> np.ndarray:
    """The table of `crowd.sums`, from coordinates that are known already."""
    seen, labels = here.places["private"][:, : len(plan.space.variances)], here.labels["private"]
    table = np.zeros((here.classes, plan.release.directions), np.int64)
    for start in range(0, len(seen), AT_ONCE):
        there = slice(start, start + AT_ONCE)
        np.add.at(table, labels[there], crowd.vectors(plan.scaling, seen[there]).astype(np.int64))
    return table[1:] - table[:1] if here.classes == 2 else table


def counts_of(plan: crowd.Plan, here: Prepared) -> np.ndarray:
    """The table of `crowd.counts`, from coordinates that are known already."""
    seen, labels = here.places["private"][:, : len(plan.space.variances)], here.labels["private"]
    table, queries = np.zeros(plan.release.shape, np.int64), plan.queries
    for start in range(0, len(seen), AT_ONCE):
        there = slice(start, start + AT_ONCE)
        rows = crowd.vectors(queries.scaling, seen[there]).astype(np.float64)
        gaps = queries.offsets - 2 * rows @ queries.vectors
        nearest = np.argsort(gaps, axis=1, kind="stable")[:, : plan.release.votes]
        np.add.at(table, (nearest, labels[there][:, None]), 1)
    return table


def planned(kind: crowd.Kind, here: Prepared, epsilon: float) -> crowd.Plan:
    """The plan at an epsilon; its cost is computed anew."""
    settings = {"voters": here.voters, "classes": here.classes, "mu": cost.mu_for(epsilon, DELTA)}
    plan = crowd.plan(kind, here.space, here.places["pool"], **settings)
    if cost.epsilon([plan.release], DELTA) > epsilon:
        raise SystemExit(f"{plan.release} costs more than {epsilon}")
    return plan


def said(plan: crowd.Plan, here: Prepared) -> dict[str, Any]:
    """The noise of a plan, and whether it is expected to drown the voters."""
    warned = doubts(plan, here.space, here.places["pool"], voters=here.voters) is not None
    return {"sigma": round(plan.release.sigma, 1), "doubts": warned}


def accuracy(scores: np.ndarray, labels: np.ndarray) -> float:
    """Of the class with the largest score."""
    return float((scores.argmax(1) == labels).mean())


def means(right: dict[str, list[float]]) -> dict[str, float]:
    """Means over seeds, in percent."""
    return {name: round(100 * float(np.mean(values)), 2) for name, values in right.items() if values}


def lines(dataset: Dataset, epsilons: list[float], seeds: int) -> Iterator[dict[str, Any]]:
    """One for each voter and epsilon."""
    began = time.perf_counter()
    here = prepared(dataset)
    for epsilon in epsilons:
        for voter, measure in (("sums", by_sums), ("neighbours", by_counts)):
            found = measure(here, epsilon, seeds)
            seconds = round(time.perf_counter() - began, 1)
            yield {"data": here.name, "voter": voter, "epsilon": epsilon, **found, "seconds": seconds}


def add_files(parser: argparse.ArgumentParser) -> None:
    """The options for files of one's own."""
    parser.add_argument("--files", type=Path, nargs=3, help="private, public and test part of one's own")
    parser.add_argument("--label-column")
    parser.add_argument("--id-column")
    parser.add_argument("--equal-rows-are-coincidences", action="store_true")


def of_files(chosen: argparse.Namespace) -> list[Dataset]:
    """The data set of one's own, if files are given; its name is that of their folder."""
    if not chosen.files:
        return []
    columns = ("label_column", "id_column", "equal_rows_are_coincidences")
    made = data.from_files(*chosen.files, **{name: getattr(chosen, name) for name in columns})
    return [dataclasses.replace(made, name=chosen.files[0].resolve().parent.name)]


def main(measure: Measure, epsilons: list[float], about: str | None) -> None:
    """Measure the named data sets, or the user's own files; each line is printed as it comes."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="data sets by name")
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    add_files(parser)
    parser.add_argument("--epsilons", type=float, nargs="+", default=epsilons)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    folders = [chosen.archives / name if chosen.archives else None for name in chosen.names]
    named = [data.load(name, manual_dir=at) for name, at in zip(chosen.names, folders, strict=True)]
    for dataset in of_files(chosen) + named:
        for line in measure(dataset, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(lines, EPSILONS, __doc__)
