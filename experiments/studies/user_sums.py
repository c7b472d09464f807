"""What users' sums gain over users' means, on made-up users: `python -m experiments.studies.user_sums`.

Users have one to thirty records with labels of their own, whose coordinates share none, half or most of their
variance. Percent of other users' records that the classifier of sums names right, at each epsilon: where a
user adds the mean of its records' tables, and where it adds their sum, cut to the length of one vector.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import NamedTuple

from pate_jax.system import devices

devices.prepare()

import numpy as np  # noqa: E402

from pate_jax import crowd  # noqa: E402
from pate_jax.accounting.exact import counts  # noqa: E402
from pate_jax.crowd import classifier, shares  # noqa: E402
from pate_jax.crowd.sums import shortened  # noqa: E402
from pate_jax.models import spaces  # noqa: E402

COLUMNS, USERS, PUBLIC, JUDGED, RECORDS = 20, 1500, 300, 500, 6  # records of a user, in the mean
EPSILONS = (0.1, 0.3, 1.0, 4.0)


class Records(NamedTuple):
    """Records of some users, row by row."""

    places: np.ndarray
    labels: np.ndarray
    users: np.ndarray


def drawn(users: int, shared: float, scores: np.ndarray, random: np.random.Generator) -> Records:
    """Records whose labels follow linear scores with noise; a share of their variance is their user's."""
    owners = np.repeat(np.arange(users), np.minimum(random.geometric(1 / RECORDS, users), 30))
    middle = random.normal(size=(users, COLUMNS))[owners] * shared**0.5
    places = middle + random.normal(size=middle.shape) * (1 - shared) ** 0.5
    places *= np.linspace(1.5, 0.5, COLUMNS)
    told = places @ scores
    return Records(places, (told + 0.7 * random.gumbel(size=told.shape)).argmax(1), owners)


def measured(classes: int, shared: float, seed: int, epsilon: float) -> Iterator[dict[str, float]]:
    """Accuracy with means and with sums, under three draws of one noise for both."""
    random = np.random.default_rng(seed)
    scores = random.normal(size=(COLUMNS, classes))
    private, public, judged = (drawn(some, shared, scores, random) for some in (USERS, PUBLIC, JUDGED))
    space = spaces.learn("identity", public.places)
    pool = space.coordinates(public.places)
    plan = crowd.plan("sums", space, pool, voters=USERS, classes=classes, mu=counts.mu_for(epsilon, 1e-5))
    release = plan.release

    def vectors(places: np.ndarray) -> np.ndarray:
        coordinates = space.coordinates(places)[:, : len(plan.space.variances)]
        return crowd.vectors(plan.scaling, coordinates).astype(np.int64)

    height, own = release.shape[0], vectors(private.places)
    rows, signs = (
        (private.labels, 1) if height > 1 else (0 * private.labels, (2 * private.labels - 1)[:, None])
    )
    pieces, place = np.unique(private.users * height + rows, return_inverse=True)
    sums = np.zeros((len(pieces), own.shape[1]), np.int64)
    np.add.at(sums, place, own * signs)
    of = pieces // height
    means = sums / np.bincount(private.users)[of][:, None]
    known, seen = classifier.measured(vectors(public.places), release.length), vectors(judged.places)
    for draw in range(3):
        noise = np.random.default_rng(draw).normal(size=release.shape) * release.sigma
        right = {}
        for name, each in (("means", means), ("sums", shortened(sums, of, release.length))):
            table = np.zeros(release.shape)
            np.add.at(table, pieces % height, each)
            noisy = np.rint(table + noise).astype(np.int64)
            weight = shares.weight(noisy, plan.scaling.constant, USERS)
            said = classifier.of_pool(noisy, release, known, weight).judged(seen)
            right[name] = 100 * float((said.argmax(1) == judged.labels).mean())
        yield right


def main() -> None:
    """Measure and print one line for each kind of users and epsilon."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--worlds", type=int, default=4, help="draws of records (default: 4)")
    worlds = parser.parse_args().worlds
    for classes in (2, 5):
        for shared in (0.0, 0.5, 0.9):
            for epsilon in EPSILONS:
                every = [one for seed in range(worlds) for one in measured(classes, shared, seed, epsilon)]
                means, sums = (np.array([one[name] for one in every]) for name in ("means", "sums"))
                line = {
                    "classes": classes,
                    "shared": shared,
                    "epsilon": epsilon,
                    "means": round(means.mean(), 1),
                    "sums": round(sums.mean(), 1),
                    "error": round((sums - means).std(ddof=1) / len(every) ** 0.5, 1),
                }
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
