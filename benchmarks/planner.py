"""How far the planner's choice of voters is from the better one in hindsight: `python -m benchmarks.planner`.

For every data set and epsilon it rehearses sums and neighbours on the public inputs, as `pate run --epsilon`
does, and then really counts all records with both, once for each seed. The student of sums is their own
classifier, and that of neighbours is `ridge`. Labels of the test part judge; nothing is chosen by them.

    python -m benchmarks.planner adult mnist --archives FOLDER
    python -m benchmarks.planner --files a.csv b.csv c.csv --label-column died --id-column patient
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.crowds import accuracy, counts_of, main, planned, prepared, sums_of
from pate_jax.aggregate import seeded_key, soft_answers
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.crowd import rehearsal, shares
from pate_jax.crowd.plan import doubts
from pate_jax.data import Dataset
from pate_jax.runs.crowds import forecast
from pate_jax.student import PublicInputs, Ridge, fit

EPSILONS = [0.1, 0.3, 1.0, 3.0]
KINDS = ("sums", "neighbours")


def lines(dataset: Dataset, epsilons: list[float], seeds: int) -> Iterator[dict[str, Any]]:
    """One line for each epsilon: what was expected and chosen, and what both voters really bring."""
    here = prepared(dataset)
    pool = here.places["pool"]
    labels = rehearsal.labellings(here.space, pool, here.classes)
    usual = np.bincount(here.labels["test"]).max() / len(here.labels["test"])
    for epsilon in epsilons:
        plans = {kind: planned(kind, here, epsilon) for kind in KINDS}
        found = {kind: rehearsal.rehearse(plan, pool, labels, here.voters) for kind, plan in plans.items()}
        chosen = forecast.best(found)
        right = {kind: _right(plan, here, dataset, seeds) for kind, plan in plans.items()}
        said = doubts(plans[chosen], here.space, pool, voters=here.voters)
        yield {
            "data": here.name,
            "epsilon": epsilon,
            "chosen": chosen,
            "expected": {kind: [round(100 * each, 1) for each in one[:3]] for kind, one in found.items()},
            "test": {kind: round(100 * one, 2) for kind, one in right.items()},
            "behind": round(100 * (max(right.values()) - right[chosen]), 2),
            "majority": round(100 * usual, 2),
            "doubts": said is not None,
        }


def _right(plan: Any, here: Any, dataset: Dataset, seeds: int) -> float:
    """The student's accuracy on the test part, mean over draws of the noise."""
    table = (sums_of if plan.queries is None else counts_of)(plan, here)
    found = []
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        if plan.queries is None:
            seen = shares.of_sums(noisy, plan, here.places["pool"], here.voters, here.places["test"])
            found.append(accuracy(seen.probabilities, here.labels["test"]))
        else:
            told = shares.of_counts(noisy, plan.release)
            asked = dataset.public.take(plan.queries.rows).inputs
            public = PublicInputs(asked, dataset.preprocessing, dataset.classes, dataset.class_names)
            answers = soft_answers(told.probabilities, told.deviation)
            taught = fit(jax.random.key(seed), public, answers, Ridge())
            found.append(taught.accuracy(dataset.test.inputs, here.labels["test"]))
    return float(np.mean(found))


if __name__ == "__main__":
    main(lines, EPSILONS, __doc__)
