"""The contact sheet of a run: some of the public inputs that were asked about, with the answers they got.

It holds public inputs, released answers and public labels, and nothing else. It is made when the student is,
while the data are open, and kept for the pages. The page in release/ shows inputs only where they may go out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from pate_jax.aggregate import Answers
from pate_jax.data import Dataset, Part, readable
from pate_jax.runs.report import thumbnails
from pate_jax.runs.report.seen import Seen, unsure

IMAGES, ROWS = 48, 12  # the most inputs that were asked about
UNSURE = {True: 12, False: 6}  # the most unsure inputs, of images and of tables; 60 pictures in all at most


def made(dataset: Dataset, asked: Part, answers: Answers, pool: Seen) -> dict[str, Any]:
    """Inputs that were asked about, spread over the answers, and those that the student is least sure of."""
    labels, image = np.asarray(answers.labels), dataset.public.inputs.ndim == 4
    rows = spread(labels, np.flatnonzero(np.asarray(answers.answered)), IMAGES if image else ROWS)
    given = answers.probabilities
    sure = None if given is None else np.asarray(given)[rows, labels[rows]]
    doubtful = unsure(pool, UNSURE[image])
    best = pool.probabilities[doubtful]
    return {
        "kind": "image" if image else "table",
        "shown": dataset.show_public,
        "answered": int(np.asarray(answers.answered).sum()),
        "counts": counts(labels[np.asarray(answers.answered)], dataset.class_names),
        "asked": _items(dataset, asked.take(rows), labels[rows], sure),
        "unsure": _items(dataset, pool.part.take(doubtful), best.argmax(1), best.max(1)),
    }


def counts(labels: Int[np.ndarray, " answers"], names: Sequence[str]) -> dict[str, int]:
    """How many inputs got each answer, of those that were given.

    >>> counts(np.array([1, 1]), ("no", "yes"))
    {'yes': 2}
    """
    return {names[int(label)]: int((labels == label).sum()) for label in np.unique(labels)}


def released(sheet: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What of a sheet the page in release/ shows: all, or no input where these may not go out.

    >>> released({"shown": False, "asked": [{"record": []}], "unsure": [], "answered": 1})["asked"]
    []
    """
    return sheet if sheet is None or sheet.get("shown") else {**sheet, "asked": [], "unsure": []}


def spread(
    labels: Int[np.ndarray, " answers"], rows: Int[np.ndarray, " answered"], count: int
) -> Int[np.ndarray, " chosen"]:
    """At most `count` of these rows, as many of each label as possible, in the order of the labels.

    Which of them follows from their number alone, at random: files are often sorted.

    >>> chosen = spread(np.array([0, 0, 0, 1, 2, 2]), np.arange(6), 4)
    >>> np.array([0, 0, 0, 1, 2, 2])[chosen].tolist()
    [0, 0, 1, 2]
    """
    groups = [rows[labels[rows] == label] for label in np.unique(labels[rows])]
    share = [0] * len(groups)
    while sum(share) < min(count, len(rows)):
        open_ones = [place for place, group in enumerate(groups) if share[place] < len(group)]
        share[min(open_ones, key=lambda place: (share[place], place))] += 1
    random = np.random.default_rng(0)
    chosen = [
        np.sort(random.permutation(group)[:number]) for group, number in zip(groups, share, strict=True)
    ]
    return np.concatenate(chosen) if chosen else rows[:0]


def _items(
    dataset: Dataset, part: Part, answers: np.ndarray, sure: np.ndarray | None
) -> list[dict[str, Any]]:
    names, shown = dataset.class_names, _shown(dataset, part.inputs)
    return [
        {
            "answer": names[int(answer)],
            "probability": None if sure is None else round(float(sure[row]), 4),
            "label": None if part.labels is None else names[int(part.labels[row])],
            **shown[row],
        }
        for row, answer in enumerate(answers)
    ]


def _shown(dataset: Dataset, inputs: np.ndarray) -> Sequence[dict[str, Any]]:
    """Each input as a picture, or as the names and values of its columns."""
    if inputs.ndim == 4:
        return [{"picture": thumbnails.address(thumbnails.small(image))} for image in inputs]
    return [{"record": record} for record in readable.records(dataset, inputs)]
