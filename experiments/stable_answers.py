"""`python -m experiments.stable_answers`: stable answers beside noisy counts, on real votes at one epsilon.

The lists are chosen from the images alone: the densest images (by the distances to their 20 nearest
neighbours) of each of a few clusters, the densest of all clusters first. Both mechanisms are asked the same
list at the same publishable epsilon. The votes are a file with `votes` [image, class], or `teacher_labels`
[teacher, image], and `labels`, for the images of the archive in their order, as
`pate vote mnist --teachers 250 --queries 10000` makes them.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from numpy.typing import NDArray

from pate_jax import accounting, aggregate
from pate_jax.accounting import planning, stable
from pate_jax.aggregate.stable import answer
from pate_jax.mechanisms import DiscreteGaussianMax, Mechanism
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.models.clusters import cover

LISTS = ((20, 20), (30, 10), (50, 5), (100, 4))  # clusters, and images of each
QUERIES = (100, 200, 300, 400)  # first queries of the list that noisy counts are asked
DIRECTIONS, NEIGHBOURS, DRAWS = 50, 20, 100

Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


class Rival(NamedTuple):
    """Noisy counts on the first queries of a list."""

    queries: int
    right: float
    worth: float


def main(
    images: Path,
    votes: Path,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    seeds: int = 3,
    lists: Path | None = None,
) -> None:
    """Print a table: answers, how many are right, and what they are worth to a student.

    Args:
        images: the archive of MNIST's test images.
        votes: the teachers' votes on them.
        epsilon: the publishable epsilon of each mechanism.
        delta: its delta.
        seeds: how many divisions into clusters to try.
        lists: a folder for all lists, as votes files that `pate aggregate` takes.
    """
    points = directions(np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16))
    dense = density(points)
    counts, labels = _votes(votes)
    teachers, classes = int(counts[0].sum()), counts.shape[1]
    mechanism = stable.calibrate(epsilon, delta, cutoff=1)
    rivals = {
        queries: accounting.calibrate(
            DiscreteGaussianMax(40.0), epsilon, delta, queries=queries, teachers=teachers, classes=classes
        ).mechanism
        for queries in QUERIES
    }
    print(f"{mechanism}, epsilon {stable.epsilon(mechanism, delta):.4f} at delta {delta:g}\n")
    print("| clusters x images | seed | stable: answers | right | noisy counts: best of | right | worth |")
    print("|---|---|---|---|---|---|---|")
    for clusters, each in LISTS:
        for seed in range(1, seeds + 1):
            rows = chosen(points, dense, clusters, each, seed)
            asked, truth = counts[rows], labels[rows]
            if lists is not None:
                _write(lists / f"{clusters}x{each}-{seed}.npz", rows, asked, truth)
            answers, right = _stable(mechanism, asked, truth)
            best = max(
                (_noisy(rivals[one], one, asked, truth) for one in QUERIES if one <= len(rows)),
                key=lambda one: one.worth,
            )
            print(
                f"| {clusters} x {each} | {seed} | {answers:.1f} | {right:.2%} | {best.queries} | "
                f"{best.right:.2%} | {best.worth:.1f} |"
            )


def _write(path: Path, rows: Whole, votes: Whole, labels: Whole) -> None:
    """A list as a votes file; its images are named after their places in the archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    names = np.array([f"test image {row}" for row in rows.tolist()])
    np.savez(path, votes=votes, ids=names, labels=labels)


def directions(pixels: NDArray[np.uint8]) -> Floats:
    """The images in their own principal directions."""
    centred = pixels.reshape(-1, 784).astype(np.float32) / 255
    centred -= centred.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    found: Floats = (centred @ vectors[:, -DIRECTIONS:]).astype(np.float32)
    return found


def density(points: Floats) -> Floats:
    """The mean distance of each point to its nearest neighbours: small where points are dense."""
    norms = (points**2).sum(axis=1)
    found = []
    for start in range(0, len(points), 1000):
        block = points[start : start + 1000]
        squares = norms - 2 * block @ points.T + (block**2).sum(axis=1)[:, None]
        nearest = np.partition(squares, NEIGHBOURS, axis=1)[:, : NEIGHBOURS + 1]
        found.append(np.sqrt(np.maximum(nearest, 0)).sum(axis=1) / NEIGHBOURS)
    return np.concatenate(found)


def chosen(points: Floats, dense: Floats, clusters: int, each: int, seed: int) -> Whole:
    """The densest points of each cluster: the first of all clusters, then the second ones, and so on."""
    centres = points[cover(points, clusters, np.random.default_rng(seed))]
    cluster = ((centres**2).sum(axis=1) - 2 * points @ centres.T).argmin(axis=1)
    ranked = []
    for one in range(clusters):
        mine = np.flatnonzero(cluster == one)
        best = mine[dense[mine].argsort()][:each]
        ranked += [(rank, float(dense[at]), int(at)) for rank, at in enumerate(best)]
    return np.array([at for _, _, at in sorted(ranked)])


def _votes(path: Path) -> tuple[Whole, Whole]:
    held = np.load(path)
    if "votes" in held:
        return held["votes"].astype(np.int64), held["labels"].astype(np.int64)
    names = range(10)
    counts = np.stack([(held["teacher_labels"] == name).sum(axis=0) for name in names], axis=1)
    return counts.astype(np.int64), held["labels"].astype(np.int64)


def _stable(mechanism: StableAnswers, votes: Whole, truth: Whole) -> tuple[float, float]:
    """The mean number of answers, and the share that is right; seeded, so not private."""
    given = right = 0
    for seed in range(DRAWS):
        _, found = answer(mechanism, votes, key=aggregate.seeded_key(seed))
        given += int(found.answered.sum())
        right += int((found.labels == truth[: len(found.labels)]).sum())
    return given / DRAWS, right / max(given, 1)


def _noisy(mechanism: Mechanism, queries: int, votes: Whole, truth: Whole) -> Rival:
    draws = [
        aggregate.answer(mechanism, votes[:queries], key=aggregate.seeded_key(seed)).labels
        for seed in range(DRAWS)
    ]
    right = float((np.stack(draws) == truth[:queries]).mean())
    return Rival(queries, right, planning.value(queries, right, votes.shape[1]))


if __name__ == "__main__":
    tyro.cli(main)
