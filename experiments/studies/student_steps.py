"""May students end early where inputs keep their labels: `python -m experiments.studies.student_steps`

Some drawn characters are answered by their labels, of which a share is replaced at random, and students
learn by `fixmatch`: with all their steps, and until the labels of public inputs have settled. A line of JSON
for each case: how often both are right on test images, and how many CPU seconds training took. With
`--choice` instead: the method that `auto` chooses for these answers, what it compared, and its CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from typing import Any, NamedTuple

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from pate_jax import data, student  # noqa: E402
from pate_jax.aggregate import Answers  # noqa: E402

POOL, TEST = 9_000, 4_000
RARE = 8  # the digit that is to be told from all others


class Case(NamedTuple):
    """What is drawn, how difficult it is, and how many images are answered, a share of them at random."""

    drawn: str
    difficulty: float
    answers: int
    wrong: float
    seed: int


CASES = [
    Case("strokes", 1.0, 100, 0.02, 3),
    Case("strokes", 1.0, 100, 0.02, 7),
    Case("strokes", 1.0, 250, 0.04, 6),
    Case("strokes", 1.0, 500, 0.04, 1),
    Case("strokes", 1.0, 1000, 0.06, 5),
    Case("rare", 1.0, 100, 0.04, 2),
    Case("rare", 1.0, 500, 0.04, 1),
    Case("rare", 1.3, 500, 0.04, 4),
    Case("glyphs", 1.0, 600, 0.04, 1),
    Case("glyphs", 1.0, 600, 0.04, 6),
    Case("strokes", 1.3, 250, 0.04, 2),
    Case("strokes", 1.3, 500, 0.04, 1),
    Case("strokes", 1.3, 1000, 0.06, 4),
    Case("strokes", 1.6, 1000, 0.06, 3),
]


def inputs_of(case: Case) -> data.Dataset:
    """The drawn characters; `rare` are strokes of two classes, one of a tenth of them."""
    classes = {"classes": 30} if case.drawn == "glyphs" else {}
    name = "glyphs" if case.drawn == "glyphs" else "strokes"
    found = data.load(name, size=100, public_size=POOL, test_size=TEST, difficulty=case.difficulty, **classes)
    if case.drawn != "rare":
        return found
    public, test = (
        part._replace(labels=(part.labels == RARE).astype(np.int32)) for part in (found.public, found.test)
    )
    return replace(found, public=public, test=test, classes=2, class_names=("other", "eight"))


def asked(case: Case) -> tuple[data.Dataset, student.PublicInputs, Answers]:
    """What is drawn, the pool with the images that were asked about first, and their answers."""
    random = np.random.default_rng(case.seed)
    drawn = inputs_of(case)
    order = random.permutation(POOL)
    public = student.PublicInputs.of(drawn)._replace(inputs=drawn.public.inputs[order])
    told = np.asarray(drawn.public.labels)[order][: case.answers].astype(np.int32)
    replaced = random.random(case.answers) < case.wrong
    told[replaced] = random.integers(0, public.classes, int(replaced.sum()))
    return drawn, public, Answers(told, np.ones(case.answers, bool))


def choice(case: Case) -> dict[str, Any]:
    """What `auto` chooses."""
    _, public, answers = asked(case)
    began = time.process_time()
    found = student.choose(jax.random.key(case.seed), public, answers)
    seconds = round(time.process_time() - began, 1)
    return {
        **case._asdict(),
        "chosen": found.config.method,
        "comparison": found.comparison,
        "cpu_seconds": seconds,
    }


def line(case: Case) -> dict[str, Any]:
    """Two students of one case that differ in nothing but when their training ends."""
    drawn, public, answers = asked(case)
    key = jax.random.key(case.seed)

    def trained(**settled: float) -> dict[str, float]:
        began = time.process_time()
        learned = student.fit(key, public, answers, student.named("fixmatch", devices=1, **settled))
        seconds = time.process_time() - began
        labels = np.asarray(drawn.test.labels)
        right = np.asarray(learned(drawn.test.inputs)).argmax(1) == labels
        worst = min(right[labels == label].mean() for label in range(public.classes))
        return {
            "right": round(100 * float(right.mean()), 2),
            "right in the worst class": round(100 * float(worst), 1),
            "cpu_seconds": round(seconds, 1),
        }

    return {**case._asdict(), "whole": trained(settled=0.0), "early": trained()}


def main() -> None:
    """Train the pairs of students, or choose their method."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="numbers, from 0")
    parser.add_argument("--choice", action="store_true", help="choose the method; train no student")
    chosen = parser.parse_args()
    for number in chosen.cases:
        print(json.dumps((choice if chosen.choice else line)(CASES[number])), flush=True)


if __name__ == "__main__":
    main()
