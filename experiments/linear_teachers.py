"""Labels of linear teachers against publishable epsilon: `python -m experiments.linear_teachers mnist`.

The accountant chooses the noise for so many queries and an epsilon, whatever the votes are. All public inputs
are labelled with that noise: the share that is right is what as many random queries can expect, without the
luck of their draw. The labels of the public part are read to judge with only. Shards and noise have seeds, so
nothing here is private; relation and delta are those of a run (one record, 1e-5).
"""

from __future__ import annotations

import argparse
import dataclasses
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

DELTA = 1e-5
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


def votes_of(here: Seen, teachers: int, seed: int) -> tuple[np.ndarray, float]:
    """Histograms of all public inputs, and the mean accuracy of a teacher."""
    private, truth = here.dataset.private, here.dataset.public.labels
    shards = partition.divide(private, teachers, key=partition.seeded_key(seed))
    made = ensemble.fit(
        here.model, AS_STORED, here.private, np.asarray(private.labels), shards,
        key=jax.random.key(seed), config=CONFIG,
    )  # fmt: skip
    labels = ensemble.predict(here.model, AS_STORED, made, here.public)
    return np.asarray(voting.histogram(labels, here.dataset.classes)), float((labels == truth).mean())


def measured(
    here: Seen, teachers: int, queries: int, epsilons: list[float], seeds: int
) -> list[dict[str, Any]]:
    """Labels that are right at each epsilon, and without noise: means over seeds."""
    began, classes = time.perf_counter(), here.dataset.classes
    truth = np.asarray(here.dataset.public.labels)
    found = [votes_of(here, teachers, seed) for seed in range(seeds)]
    common = {
        "data": here.dataset.name, "voters": f"{teachers} teachers", "queries": queries, "seeds": seeds,
        "teacher_accuracy": round(100 * float(np.mean([accuracy for _, accuracy in found])), 1),
        "plurality": round(100 * float(np.mean([(v.argmax(1) == truth).mean() for v, _ in found])), 2),
    }  # fmt: skip
    lines = []
    for epsilon in epsilons:
        fitted = accounting.calibrate(
            DiscreteGaussianMax(1.0), epsilon, DELTA, queries=queries, teachers=teachers, classes=classes
        )
        labels = [labels_right(fitted.mechanism, votes, truth, seed) for seed, (votes, _) in enumerate(found)]
        told = {
            "epsilon": epsilon,
            **to_dict(fitted.mechanism),
            "accuracy": round(float(np.mean(labels)), 2),
        }
        lines.append({**common, **told, "each_seed": [round(one, 2) for one in labels]})
    seconds = round(time.perf_counter() - began, 1)
    return [{**line, "seconds": seconds} for line in lines]


def labels_right(mechanism: Mechanism, votes: np.ndarray, truth: np.ndarray, seed: int) -> float:
    """The share of labels that are right with a run's noise, in percent: what random queries can expect."""
    labels = np.asarray(aggregate.answer(mechanism, votes, key=aggregate.seeded_key(seed)).labels)
    return 100 * float((labels == truth).mean())


def opened(chosen: argparse.Namespace) -> data.Dataset:
    """The named data set, or the user's own files, called by their folder."""
    if not chosen.files:
        return data.load(
            chosen.data, data_dir=chosen.data_dir, manual_dir=chosen.manual_dir, size=chosen.records
        )
    made = data.from_files(
        *chosen.files,
        label_column=chosen.label_column,
        id_column=chosen.id_column,
        equal_rows_are_coincidences=chosen.equal_rows_are_coincidences,
    )
    return dataclasses.replace(made, name=chosen.files[0].resolve().parent.name)


def main() -> None:
    """Measure a named data set."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="?", help="a data set by name")
    parser.add_argument("--files", type=Path, nargs=3, help="private, public and test part of one's own")
    parser.add_argument("--label-column")
    parser.add_argument("--id-column")
    parser.add_argument("--equal-rows-are-coincidences", action="store_true")
    parser.add_argument("--manual-dir", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--records", type=int, help="of a synthetic data set")
    parser.add_argument("--teachers", type=int, nargs="+", default=[250, 1000, 5000])
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.1, 0.2, 0.5, 1.0, 2.0, 5.0])
    parser.add_argument("--queries", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    here = seen(opened(chosen))
    for teachers in chosen.teachers:
        for line in measured(here, teachers, chosen.queries, chosen.epsilons, chosen.seeds):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
