"""Where crowds fail, each limit measured: `python -m experiments.studies.crowd_limits --archives DIR`.

Pixels of MNIST are the space, so that it takes minutes: a pool of other images or of half of the classes, a
space that hardly separates, and a class of which the private part has few records. Sums are judged by their
classifier, and neighbours by the label of the query that is nearest to an image.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import crowd, data  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.noise import noisy_table  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.data import Dataset  # noqa: E402

EPSILON, RARE = 1.0, 3


def cases(mnist: Dataset, fashion: Dataset) -> Iterator[tuple[str, Dataset]]:
    """Each case is a data set whose test part is the usual public part of MNIST."""
    plain = dataclasses.replace(mnist, test=mnist.public)
    yield "as it is", plain
    labels = np.asarray(mnist.public.labels)
    yield "pool of digits 0 to 4", dataclasses.replace(plain, public=mnist.public.take(labels < 5))
    yield "pool of clothes", dataclasses.replace(plain, public=fashion.public)
    noise = np.random.default_rng(0).integers(0, 256, mnist.public.inputs.shape, np.uint8)
    yield "pool of noise", dataclasses.replace(plain, public=mnist.public._replace(inputs=noise))
    parity = [part._replace(labels=np.asarray(part.labels) % 2) for part in (mnist.private, mnist.public)]
    names = ("even", "odd")
    halves = {
        "private": parity[0],
        "public": parity[1],
        "test": parity[1],
        "classes": 2,
        "class_names": names,
    }
    yield "even or odd", dataclasses.replace(mnist, **halves)
    there = np.asarray(mnist.private.labels) == RARE
    for one_in in (10, 100):
        kept = ~there | (np.cumsum(there) % one_in == 0)
        few = dataclasses.replace(plain, private=mnist.private.take(kept))
        yield f"one in {one_in} of digit {RARE}", few


def judged(dataset: Dataset, seeds: int) -> dict[str, dict[str, float]]:
    """Accuracy of either voter, and the share of the rare digit that is recognised, in percent."""
    here = crowds.prepared(dataset, "identity")
    return {
        "sums": means(here, by_sums(here, seeds)),
        "neighbours": means(here, by_neighbours(here, seeds)),
    }


def by_sums(here: crowds.Prepared, seeds: int) -> Iterator[np.ndarray]:
    """The labels of the test part that the classifier of noisy sums gives."""
    plan = crowds.planned("sums", here, EPSILON)
    table = crowds.sums_of(plan, here)
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        found = shares.of_sums(noisy, plan, here.places["pool"], here.voters, here.places["test"])
        yield found.probabilities.argmax(1)


def by_neighbours(here: crowds.Prepared, seeds: int) -> Iterator[np.ndarray]:
    """The labels of the test part: of each input that of the nearest query, by the noisy counts there."""
    plan = crowds.planned("neighbours", here, EPSILON)
    table, queries = crowds.counts_of(plan, here), plan.queries
    if queries is None:
        raise TypeError("a plan of neighbours has queries")
    seen = here.places["test"][:, : len(plan.space.variances)]
    rows = crowd.vectors(queries.scaling, seen).astype(np.float64)
    nearest = (queries.offsets - 2 * rows @ queries.vectors).argmin(1)
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        yield noisy.argmax(1)[nearest]


def means(here: crowds.Prepared, drawn: Iterable[np.ndarray]) -> dict[str, float]:
    """Means over draws of the noise."""
    truth = here.labels["test"]
    hits = np.array([labels == truth for labels in drawn])
    told = {"right": round(100 * float(hits.mean()), 1)}
    return told | ({"rare": round(100 * float(hits[:, truth == RARE].mean()), 1)} if here.classes > 2 else {})


def main() -> None:
    """Measure all cases, one JSON line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--archives", type=Path, help="a folder with one folder of archives for each name")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    mnist, fashion = (
        data.load(name, manual_dir=chosen.archives / name if chosen.archives else None)
        for name in ("mnist", "fashion_mnist")
    )
    for name, dataset in cases(mnist, fashion):
        print(json.dumps({"case": name, "epsilon": EPSILON, **judged(dataset, chosen.seeds)}), flush=True)


if __name__ == "__main__":
    main()
