"""Accuracy of crowds against publishable epsilon: `python -m experiments.crowds adult --epsilons 0.1 0.5`.

Every record votes. The space, its directions and the queries are learned from the public part. The number of
queries and the length of vectors follow from epsilon, the rounded number of records and the pool, by rules
that are the same for all data sets. Labels of the public and the test part are read to judge with only. What
is drawn has a seed and is not private; the epsilon is the publishable one for changed contents at delta 1e-5.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices, headcount

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax import crowd, data  # noqa: E402
from pate_jax.accounting.exact import counts as cost  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.crowds import noisy_table  # noqa: E402
from pate_jax.crowd import classifier, queries  # noqa: E402
from pate_jax.data import Dataset  # noqa: E402
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts  # noqa: E402
from pate_jax.models import spaces  # noqa: E402

DELTA, POWER, DIRECTIONS, COMPARED = 1e-5, 0.5, 400, 200
VOTES, NOISES = 2, 8  # of a voter; and a query's votes, if all go to one class, over the scale of the noise


class Prepared(NamedTuple):
    """A data set, the space of its public part, and where all public inputs lie."""

    dataset: Dataset
    space: spaces.Space
    public: np.ndarray
    voters: int  # rounded


def prepared(dataset: Dataset) -> Prepared:
    """The space that suits the kind of the inputs."""
    kind: spaces.Kind = "patches" if dataset.kind == "image" else "columns"
    if dataset.kind == "table" and not dataset.columns and dataset.name != "adult":
        kind = "identity"
    space = spaces.learn(kind, dataset.public.inputs, dataset.preprocessing, directions=DIRECTIONS)
    public = space.coordinates(dataset.public.inputs)
    return Prepared(dataset, space, public, headcount.coarse(len(dataset.private.inputs)))


def by_sums(here: Prepared, epsilon: float, seeds: int) -> dict[str, Any]:
    """The classifier of noisy sums: mean accuracy on the pool and on the test part."""
    mu = cost.mu_for(epsilon, DELTA)
    length = int(np.clip(4000 * mu, 16, 1000))
    scaling = crowd.scaling(here.space, here.public, length=length, power=POWER, constant=True)
    entries = len(here.space.variances) + 1
    release = cost.least_noise(ClassSums(here.dataset.classes, entries, length, 1.0), epsilon, DELTA)
    people = crowd.voters(here.dataset.private, here.dataset.classes)
    table, public = crowd.sums(here.space, scaling, people, release), crowd.vectors(scaling, here.public)
    test = here.dataset.test
    tried = None if test is None else crowd.vectors(scaling, here.space.coordinates(test.inputs))
    right: dict[str, list[float]] = {"pool": [], "test": []}
    for seed in range(seeds):
        noisy = noisy_table(release, table, key=seeded_key(seed)).values
        model = classifier.fit(noisy, release, public, here.voters)
        for name, part, seen in (("pool", here.dataset.public, public), ("test", test, tried)):
            if part is not None and part.labels is not None and seen is not None:
                right[name].append(accuracy(model.probabilities(seen), part.labels))
    return {**means(right), "length": length, "sigma": round(release.sigma, 1), "directions": entries - 1}


def by_counts(here: Prepared, epsilon: float, seeds: int) -> dict[str, Any]:
    """The labels that neighbours give to medoids of the pool: how many are right."""
    mu = cost.mu_for(epsilon, DELTA)
    wanted = int(np.clip(VOTES**0.5 * here.voters * mu / (2**0.5 * NOISES), 10, len(here.public) // 10))
    space = here.space.narrowed(COMPARED)
    public = here.public[:, : len(space.variances)]
    chosen = queries.choose(
        crowd.scaling(space, public, length=queries.LENGTH, power=POWER / 2), public, wanted
    )
    release = cost.least_noise(NeighbourCounts(wanted, here.dataset.classes, VOTES, 1.0), epsilon, DELTA)
    people = crowd.voters(here.dataset.private, here.dataset.classes)
    table, truth = crowd.counts(space, chosen, people, release), here.dataset.public.labels
    if truth is None:
        return {"queries": wanted, "votes": VOTES}
    right = [
        accuracy(noisy_table(release, table, key=seeded_key(seed)).values, truth[chosen.rows])
        for seed in range(seeds)
    ]
    return {**means({"labels": right}), "queries": wanted, "votes": VOTES, "sigma": round(release.sigma, 1)}


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
            yield {"data": dataset.name, "voter": voter, "epsilon": epsilon, **found, "seconds": seconds}


def main() -> None:
    """Measure the named data sets, or the user's own files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="data sets by name")
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    parser.add_argument("--files", type=Path, nargs=3, help="private, public and test part of one's own")
    parser.add_argument("--label-column")
    parser.add_argument("--id-column")
    parser.add_argument("--equal-rows-are-coincidences", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.5, 1.0, 2.0])
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    columns = {
        "label_column": chosen.label_column,
        "id_column": chosen.id_column,
        "equal_rows_are_coincidences": chosen.equal_rows_are_coincidences,
    }
    own = [data.from_files(*chosen.files, **columns)] if chosen.files else []
    folders = [chosen.archives / name if chosen.archives else None for name in chosen.names]
    named = [data.load(name, manual_dir=at) for name, at in zip(chosen.names, folders, strict=True)]
    for dataset in own + named:
        for line in lines(dataset, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
