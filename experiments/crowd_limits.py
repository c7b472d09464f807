"""Where crowds of sums fail, each limit measured: `python -m experiments.crowd_limits --archives DIR`.

Pixels of MNIST are the space, so that it takes minutes: a pool of other images or of half of the classes, a
space that hardly separates, and a class of which the private part has few records.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import data  # noqa: E402
from pate_jax.aggregate import seeded_key  # noqa: E402
from pate_jax.aggregate.crowds import noisy_table  # noqa: E402
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
    for one_in in (3, 10, 30):
        kept = ~there | (np.cumsum(there) % one_in == 0)
        few = dataclasses.replace(plain, private=mnist.private.take(kept))
        yield f"one in {one_in} of digit {RARE}", few


def judged(dataset: Dataset, seeds: int) -> dict[str, float]:
    """Accuracy, and the share of the rare digit that is recognised, in percent."""
    here = crowds.prepared(dataset, "identity")
    plan = crowds.planned("sums", here, EPSILON)
    table, truth = crowds.sums_of(plan, here), here.labels["test"]
    right, rare = [], []
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        found = shares.of_sums(noisy, plan, here.places["pool"], here.voters, here.places["test"])
        hits = found.probabilities.argmax(1) == truth
        right.append(hits.mean())
        rare.append(hits[truth == RARE].mean() if here.classes > 2 else np.nan)
    return {"right": round(100 * float(np.mean(right)), 1), "rare": round(100 * float(np.mean(rare)), 1)}


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
