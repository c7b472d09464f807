"""What products of columns are worth, on drawn tables: `python -m experiments.products`.

Labels are a linear function of the columns with noise, to which products of some pairs are added or none. One
line of JSON for each kind of table: the share of test rows that one table of noisy sums names right without
products, and what products add to it in points, mean and standard error of some draws of everything.
"""

from __future__ import annotations

import argparse
import json
from unittest.mock import patch

from pate_jax.system import devices, headcount

devices.prepare()

import numpy as np  # noqa: E402

from experiments import crowds  # noqa: E402
from pate_jax.models import spaces, table_features  # noqa: E402

TEST, CLASSES = 3_000, 3


def table(
    random: np.random.Generator, records: int, *, numbers: int, together: float
) -> tuple[np.ndarray, np.ndarray]:
    """Numbers that three hidden factors move, some of them marks; `together` is what pairs decide of a label.

    >>> seen, labels = table(np.random.default_rng(0), 50, numbers=4, together=0.5)
    >>> seen.shape, labels.max() < CLASSES
    ((50, 4), True)
    """
    hidden = random.normal(size=(records, 3)) @ random.normal(size=(3, numbers)) / 2
    seen = hidden + random.normal(size=hidden.shape)
    seen[:, ::4] = np.exp(0.5 * seen[:, ::4])  # heavy tails
    seen[:, 1::4] = seen[:, 1::4] > 0.5
    seen = (seen - seen.mean(0)) / seen.std(0)
    bent = np.tanh(seen)
    left, right = random.integers(0, numbers, (2, numbers))
    alone = bent @ random.normal(size=(numbers, CLASSES))
    pairs = (bent[:, left] * bent[:, right]) @ random.normal(size=(numbers, CLASSES))
    scores = (1 - together) * alone / alone.std(0) + together * pairs / pairs.std(0)
    scores = 3 * scores / scores.std(0)
    return seen.astype(np.float32), (scores + random.gumbel(size=scores.shape)).argmax(1)


def gains(sizes: tuple[int, int], numbers: int, together: float, epsilons: list[float], seed: int) -> dict:
    """Right with and without products in one draw, in percent."""
    records, pool = sizes
    inputs, labels = table(
        np.random.default_rng(seed), records + pool + TEST, numbers=numbers, together=together
    )
    cut = np.split(np.arange(len(inputs)), [records, records + pool])
    rows = dict(zip(("private", "pool", "test"), cut, strict=True))
    found: dict[str, dict[float, float]] = {}
    for name, most in (("without", 0), ("with", table_features._MOST_PRODUCTS)):
        with patch.object(table_features, "_MOST_PRODUCTS", most):
            space = spaces.learn("columns", inputs[rows["pool"]])
        places = {part: space.coordinates(inputs[there]) for part, there in rows.items()}
        truth = {part: labels[there] for part, there in rows.items()}
        here = crowds.Prepared(name, CLASSES, space, places, truth, headcount.coarse(records))
        found[name] = {each: crowds.by_sums(here, each, 3)["test"] for each in epsilons}
    return found


def main() -> None:
    """Measure all kinds of tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.3, 1.0, 3.0])
    parser.add_argument("--numbers", type=int, nargs="+", default=[8, 16])
    parser.add_argument("--pool", type=int, nargs="+", default=[400, 1_500, 6_000])
    parser.add_argument("--records", type=int, nargs="+", default=[3_000, 20_000])
    chosen = parser.parse_args()
    kinds = [
        (records, pool, numbers, together)
        for records in chosen.records
        for pool in chosen.pool
        for numbers in chosen.numbers
        for together in (0.0, 0.5)
    ]
    for records, pool, numbers, together in kinds:
        drawn = [
            gains((records, pool), numbers, together, chosen.epsilons, seed) for seed in range(chosen.draws)
        ]
        told: dict = {"records": records, "pool": pool, "numbers": numbers, "together": together}
        for epsilon in chosen.epsilons:
            more = np.array([each["with"][epsilon] - each["without"][epsilon] for each in drawn])
            told[f"without_at_{epsilon:g}"] = round(
                float(np.mean([each["without"][epsilon] for each in drawn])), 1
            )
            told[f"more_at_{epsilon:g}"] = round(float(more.mean()), 2)
            told[f"error_at_{epsilon:g}"] = round(float(more.std(ddof=1) / len(more) ** 0.5), 2)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
