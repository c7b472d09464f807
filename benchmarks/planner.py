"""How far the planner's choice of voters is from the better one in hindsight: `python -m benchmarks.planner`.

For every data set and epsilon it rehearses crowds on the public inputs, as `pate run --epsilon` does, with
made-up labels and with the public part's own. Then it really counts all records with sums and neighbours,
once for each seed. The student of sums is their own classifier, and that of neighbours is `ridge`; rounds are
rehearsed only. Labels of the test part judge; nothing is chosen by them. `inside` says for which voters what
they really bring lies in the expected range.

    python -m benchmarks.planner adult mnist --archives FOLDER
    python -m benchmarks.planner --files a.csv b.csv c.csv --label-column died --id-column patient
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from experiments.crowds import DELTA, accuracy, counts_of, main, planned, prepared, sums_of
from pate_jax.accounting.exact import counts as cost
from pate_jax.aggregate import seeded_key, soft_answers
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.crowd import rehearsal, shares
from pate_jax.crowd.plan import doubts
from pate_jax.crowd.rehearsal import Expected, Labels
from pate_jax.crowd.vectors import vectors
from pate_jax.data import Dataset
from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs.crowds import forecast
from pate_jax.runs.crowds.inputs import Learned
from pate_jax.student import PublicInputs, Ridge, fit

EPSILONS = [0.1, 0.3, 1.0, 3.0]
KINDS: tuple[Voting, ...] = ("sums", "neighbours")


def lines(dataset: Dataset, epsilons: list[float], seeds: int) -> Iterator[dict[str, Any]]:
    """One line for each epsilon: what was expected and chosen, and what both voters really bring."""
    here = prepared(dataset)
    pool = here.places["pool"]
    made_up, own = rehearsal.labellings(here.space, pool, here.classes), here.labels["pool"]
    usual = np.bincount(here.labels["test"]).max() / len(here.labels["test"])
    for epsilon in epsilons:
        plans = {kind: planned(kind, here, epsilon) for kind in KINDS}
        right = {kind: _right(plan, here, dataset, seeds) for kind, plan in plans.items()}
        said = _judged(here, epsilon, made_up, right)
        if own is not None:
            said["by_public_labels"] = _judged(here, epsilon, [own], right)
        chosen = said["chosen"].partition(" ")[0]
        warned = doubts(plans[chosen], here.space, pool, voters=here.voters)
        yield {
            "data": here.name,
            "epsilon": epsilon,
            **said,
            "test": {kind: round(100 * one, 2) for kind, one in right.items()},
            "majority": round(100 * usual, 2),
            "doubts": warned is not None,
        }


def _judged(here: Any, epsilon: float, labels: list[Labels], right: dict[Voting, float]) -> dict[str, Any]:
    """What is expected and chosen with these labels, and how far it is from what is really reached."""
    mu = cost.mu_for(epsilon, DELTA)
    began = time.process_time()
    found = forecast.contenders(
        forecast.candidates(here.voters, mu),
        Learned(here.space, here.places["pool"]),
        labels,
        voters=here.voters,
        classes=here.classes,
        mu=mu,
    )
    seconds, chosen = time.process_time() - began, forecast.best(found)
    reached = right[chosen.voters] if chosen.rounds == 1 else None
    return {
        "chosen": chosen.name,
        "expected": {one.name: _percent(expected) for one, expected in found.items()},
        "behind": None if reached is None else round(100 * (max(right.values()) - reached), 2),
        "inside": [kind for kind in KINDS if _inside(found[forecast.Candidate(kind)], right[kind])],
        "seconds": round(seconds, 1),
    }


def _percent(expected: Expected) -> list[float]:
    return [round(100 * each, 1) for each in expected[:3]]


def _inside(expected: Expected, right: float) -> bool:
    return expected.low <= right <= expected.high


def _right(plan: Any, here: Any, dataset: Dataset, seeds: int) -> float:
    """The student's accuracy on the test part, mean over draws of the noise."""
    table = (sums_of if plan.queries is None else counts_of)(plan, here)
    found = []
    for seed in range(seeds):
        noisy = noisy_table(plan.release, table, key=seeded_key(seed)).values
        if plan.queries is None:
            model = shares.classifier_of(noisy, plan, here.places["pool"], here.voters)
            width = len(plan.space.variances)
            seen = vectors(plan.scaling, here.places["test"][:, :width])
            found.append(accuracy(model.judged(seen), here.labels["test"]))
        else:
            told = shares.of_counts(noisy, plan.release)
            asked = dataset.public.take(plan.queries.rows).inputs
            public = PublicInputs(asked, dataset.preprocessing, dataset.classes, dataset.class_names)
            answers = soft_answers(told.probabilities, told.deviation, told.linear)
            taught = fit(jax.random.key(seed), public, answers, Ridge())
            found.append(taught.accuracy(dataset.test.inputs, here.labels["test"]))
    return float(np.mean(found))


if __name__ == "__main__":
    main(lines, EPSILONS, __doc__)
