"""Students compared with a classifier of sums: `python -m experiments.studies.sum_students ridge fixmatch`.

Images are made up: drawn characters, whose class small distortions keep, and stripes, whose class is how they
lean, so that a turn changes it. One line of JSON for each family has the accuracy in percent of the
classifier of all voters, of that of nine in ten, and of each named student of the latter's answers; and what
a run is expected to end with if a tenth of the voters compare the classifier with each student, or with all.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax import data, student  # noqa: E402
from pate_jax.accounting.exact import counts as cost  # noqa: E402
from pate_jax.aggregate import seeded_key, soft_answers  # noqa: E402
from pate_jax.aggregate.noise import noisy_table  # noqa: E402
from pate_jax.crowd import shares  # noqa: E402
from pate_jax.data import Dataset, Part  # noqa: E402
from pate_jax.data.dataset import Preprocessing  # noqa: E402

RECORDS, POOL, TEST = 20_000, 3_000, 2_000
HELD_OUT = 10  # of so many voters one compares


def stripes() -> Dataset:
    """Images of 28x28 pixels with stripes of any width and place; classes differ by how much they lean."""
    random, number = np.random.default_rng(5), RECORDS + POOL + TEST
    labels = random.integers(0, 10, number)
    lean = np.pi * (labels + random.uniform(-0.4, 0.4, number)) / 10
    width, phase = random.uniform(0.6, 1.2, number), random.uniform(0, 2 * np.pi, number)
    across, down = np.meshgrid(np.arange(28.0), np.arange(28.0))
    along = np.cos(lean)[:, None, None] * across + np.sin(lean)[:, None, None] * down
    waves = np.sin(width[:, None, None] * along + phase[:, None, None])
    seen = 128 + 50 * waves + 60 * random.normal(size=waves.shape)
    inputs = np.clip(seen, 0, 255).astype(np.uint8)[..., None]
    ids = np.array([f"stripes-{row}" for row in range(number)])
    ends = np.cumsum([0, RECORDS, POOL, TEST])
    parts = [
        Part(*(each[one:end] for each in (inputs, labels, ids))) for one, end in itertools.pairwise(ends)
    ]
    names, scale = tuple(map(str, range(10))), Preprocessing((0.0,), (255.0,))
    return Dataset("stripes", "image", *parts, 10, names, scale, True, "made-up stripes")


def drawn(name: str, **more: Any) -> Dataset:
    """Characters that the package draws."""
    return data.load(name, size=RECORDS, public_size=POOL, test_size=TEST, **more)


FAMILIES: dict[str, Callable[[], Dataset]] = {
    "strokes": partial(drawn, "strokes", difficulty=1.0),
    "hard strokes": partial(drawn, "strokes", difficulty=1.6),
    "glyphs": partial(drawn, "glyphs", classes=30),
    "stripes": stripes,
}


def classifier(here: crowds.Prepared, epsilon: float, voters: int) -> tuple[shares.Shares, float]:
    """What so many voters say of the pool, and how often they are right on the test part."""
    places, labels = {**here.places}, {**here.labels}
    places["private"], labels["private"] = places["private"][:voters], labels["private"][:voters]
    some = here._replace(places=places, labels=labels, voters=voters)
    plan = crowds.planned("sums", some, epsilon)
    noisy = noisy_table(plan.release, crowds.sums_of(plan, some), key=seeded_key(0)).values
    told = shares.of_sums(noisy, plan, places["pool"], voters)
    test = shares.of_sums(noisy, plan, places["pool"], voters, places["test"])
    return told, crowds.accuracy(test.probabilities, labels["test"])


def line(dataset: Dataset, epsilon: float, methods: list[str]) -> dict[str, Any]:
    """All that is measured of one family."""
    here = crowds.prepared(dataset)
    found = {"linear, all voters": classifier(here, epsilon, RECORDS)[1]}
    told, linear = classifier(here, epsilon, RECORDS - RECORDS // HELD_OUT)
    found["linear"] = linear
    public = student.PublicInputs.of(dataset)
    answers = soft_answers(told.probabilities, told.deviation, told.linear)
    for method in methods:
        config = student.named(method).resolved(image=True, whole=True)
        learned = student.fit(jax.random.key(0), public, answers, config)
        found[method] = crowds.accuracy(learned(dataset.test.inputs), dataset.test.labels)
    right = {name: round(100 * value, 2) for name, value in found.items()}
    pairs = {name: [name] for name in methods} | {"all": methods}
    ends = {name: ending([linear, *(found[one] for one in each)], epsilon) for name, each in pairs.items()}
    return {"data": dataset.name, "epsilon": epsilon, **right, "compared with": ends}


def ending(right: list[float], epsilon: float, draws: int = 4000) -> float:
    """Mean accuracy in percent of the student that a noisy comparison takes, if errors are independent."""
    random, judges = np.random.default_rng(0), RECORDS // HELD_OUT
    noise = cost.comparison_for(cost.mu_for(epsilon, crowds.DELTA), len(right)).sigma / len(right)
    agree = random.binomial(judges, right, (draws, len(right)))
    taken = (agree + random.normal(size=agree.shape) * noise).argmax(1)
    return round(100 * float(np.mean(np.array(right)[taken])), 2)


def main() -> None:
    """Measure the named students on all families."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--epsilon", type=float, default=0.3)
    chosen = parser.parse_args()
    for name in chosen.families:
        print(
            json.dumps({"family": name, **line(FAMILIES[name](), chosen.epsilon, chosen.methods)}), flush=True
        )


if __name__ == "__main__":
    main()
