"""Labels of linear teachers against publishable epsilon: `python -m experiments.linear_teachers mnist`.

Random queries of the public part, one noise for all of them, which the accountant chooses for the epsilon
whatever the votes are. The labels of the public part are read to judge with only. Shards, queries and noise
have seeds, so nothing here is private; relation and delta are those of a run (one record, 1e-5).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.system import devices

devices.prepare()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from pate_jax import accounting, aggregate, data, ensemble, voting  # noqa: E402
from pate_jax.data import partition  # noqa: E402
from pate_jax.data.dataset import AS_STORED  # noqa: E402
from pate_jax.mechanisms import DiscreteGaussianMax, Mechanism, to_dict  # noqa: E402
from pate_jax.models import Model  # noqa: E402
from pate_jax.runs.inputs import teachers_net  # noqa: E402

DELTA, DRAWS = 1e-5, 20  # draws of the noise for each seed
CONFIG = ensemble.TeacherConfig(net="linear")


class Seen(NamedTuple):
    """A data set whose records are measured in the space of its public part once, for all seeds."""

    dataset: data.Dataset
    model: Model
    private: np.ndarray
    public: np.ndarray


def seen(dataset: data.Dataset) -> Seen:
    """The entries of all records, and a net that takes them."""
    model = teachers_net(CONFIG, dataset)
    if model.front is None:
        raise TypeError("linear teachers look through a space")
    entries = (model.front(part.inputs) for part in (dataset.private, dataset.public))
    return Seen(dataset, model._replace(front=None), *entries)


def votes_of(here: Seen, teachers: int, queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Histograms of random queries, their true labels, and the mean accuracy of a teacher."""
    private, truth = here.dataset.private, here.dataset.public.labels
    shards = partition.divide(private, teachers, key=partition.seeded_key(seed))
    made = ensemble.fit(
        here.model, AS_STORED, here.private, np.asarray(private.labels), shards,
        key=jax.random.key(seed), config=CONFIG,
    )  # fmt: skip
    rows = np.random.default_rng(seed).permutation(len(here.public))[:queries]
    labels = ensemble.predict(here.model, AS_STORED, made, here.public[rows])
    right = np.asarray(truth)[rows]
    return np.asarray(voting.histogram(labels, here.dataset.classes)), right, float((labels == right).mean())


def measured(
    here: Seen, teachers: int, queries: int, epsilons: list[float], seeds: int
) -> list[dict[str, Any]]:
    """Labels that are right at each epsilon, and without noise: means over seeds and draws."""
    began, classes = time.perf_counter(), here.dataset.classes
    found = [votes_of(here, teachers, queries, seed) for seed in range(seeds)]
    common = {
        "data": here.dataset.name, "teachers": teachers, "queries": queries, "seeds": seeds,
        "teacher_accuracy": round(100 * float(np.mean([accuracy for _, _, accuracy in found])), 1),
        "plurality": round(100 * float(np.mean([(v.argmax(1) == right).mean() for v, right, _ in found])), 1),
    }  # fmt: skip
    lines = []
    for epsilon in epsilons:
        fitted = accounting.calibrate(
            DiscreteGaussianMax(1.0), epsilon, DELTA, queries=queries, teachers=teachers, classes=classes
        )
        labels = [
            labels_right(fitted.mechanism, votes, right, seed) for seed, (votes, right, _) in enumerate(found)
        ]
        told = {
            "epsilon": epsilon,
            **to_dict(fitted.mechanism),
            "right": round(float(np.mean(labels)), 2),
        }
        lines.append({**common, **told, "each_seed": [round(one, 1) for one in labels]})
    seconds = round(time.perf_counter() - began, 1)
    return [{**line, "seconds": seconds} for line in lines]


def labels_right(mechanism: Mechanism, votes: np.ndarray, right: np.ndarray, seed: int) -> float:
    """The share of labels that are right, in percent: the mean of `DRAWS` draws."""
    keys = (aggregate.seeded_key(1000 * seed + draw) for draw in range(DRAWS))
    drawn = (np.asarray(aggregate.answer(mechanism, votes, key=key).labels) for key in keys)
    return 100 * float(np.mean([(labels == right).mean() for labels in drawn]))


def main() -> None:
    """Measure a named data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--manual-dir", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--records", type=int, help="of a synthetic data set")
    parser.add_argument("--teachers", type=int, nargs="+", default=[250, 1000, 5000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.2, 0.5, 1.0])
    parser.add_argument("--queries", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    here = seen(
        data.load(chosen.data, data_dir=chosen.data_dir, manual_dir=chosen.manual_dir, size=chosen.records)
    )
    for teachers in chosen.teachers:
        for line in measured(here, teachers, chosen.queries, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
