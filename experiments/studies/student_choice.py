"""Whether `auto` chooses well on made-up tables: `python -m experiments.studies.student_choice`.

Some rows of a table of `experiments.studies.crowd_families` are answered by their labels, of which a share is
replaced at random. One line of JSON for each table: what was compared, what was chosen in how many CPU
seconds, and how often a student of each method, trained whole, is right on test rows.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from experiments.studies.crowd_families import families  # noqa: E402
from pate_jax import student  # noqa: E402
from pate_jax.aggregate import Answers  # noqa: E402
from pate_jax.data.dataset import AS_STORED  # noqa: E402
from pate_jax.student import choice  # noqa: E402

TABLES = ["linear table", "bent table", "five classes", "clusters of 20 numbers", "many clusters"]
POOL, TEST = 1_500, 2_000
BEFORE = 10_000  # rows of the family that are not used


def line(name: str, count: int, wrong: float) -> dict[str, Any]:
    """What is chosen for one table, and how good every method is."""
    drawn, seed = families()[name].args[2:4]
    inputs, labels = drawn(np.random.default_rng(seed), BEFORE + POOL + TEST)
    inputs, classes = inputs.astype(np.float32), int(labels.max()) + 1
    pool, test = np.split(np.arange(BEFORE, len(inputs)), [POOL])
    random = np.random.default_rng(1)
    told = labels[pool[:count]].astype(np.int32)
    replaced = random.random(count) < wrong
    told[replaced] = random.integers(0, classes, int(replaced.sum()))
    answers, names = Answers(told, np.ones(count, bool)), tuple(map(str, range(classes)))
    public, key = student.PublicInputs(inputs[pool], AS_STORED, classes, names), jax.random.key(0)
    began = time.process_time()
    found = student.choose(key, public, answers)
    seconds = time.process_time() - began
    right = {
        method: percent(
            student.fit(key, public, answers, student.named(method)).accuracy(inputs[test], labels[test])
        )
        for method in choice.TABLES
    }
    return {
        "table": name,
        "answers": count,
        "wrong": wrong,
        "chosen": found.config.method,
        "seconds": round(seconds, 1),
        "comparison": found.comparison,
        "right": right,
    }


def percent(share: float) -> float:
    """A share in percent."""
    return round(100 * share, 1)


def main() -> None:
    """Judge the choice for some tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES)
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument("--wrong", type=float, default=0.15)
    chosen = parser.parse_args()
    for name in chosen.tables:
        print(json.dumps(line(name, chosen.answers, chosen.wrong)), flush=True)


if __name__ == "__main__":
    main()
