"""What crowds are expected to bring on a public pool, before there is any run; no private record is read."""

from __future__ import annotations

from typing import get_args

import jax
import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.crowd import plan, rehearsal, space_kind
from pate_jax.crowd.rehearsal import Expected, Labels
from pate_jax.data import Dataset
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs.crowds.inputs import KEY
from pate_jax.student import PublicInputs
from pate_jax.student import spaces as trained
from pate_jax.system import headcount


def expected(
    dataset: Dataset, *, records: int, epsilon: float, delta: float, by_labels: bool = False
) -> dict[Voting, Expected]:
    """The accuracy of both kinds of voters on the public part: with made-up labels, or with its own.

    `records` is rounded down to two digits, as a run does with their noisy number.
    """
    public = PublicInputs.of(dataset)
    space = trained.learn(space_kind(dataset), public, key=jax.random.key(KEY))
    pool, voters = space.coordinates(dataset.public.inputs), headcount.coarse(records)
    labels = _own(dataset) if by_labels else rehearsal.labellings(space, pool, dataset.classes)
    mu = counts.mu_for(epsilon, delta)
    each: dict[Voting, Expected] = {}
    for kind in get_args(Voting):
        made = plan(kind, space, pool, voters=voters, classes=dataset.classes, mu=mu)
        each[kind] = rehearsal.rehearse(made, pool, labels, voters)
    return each


def best(found: dict[Voting, Expected]) -> Voting:
    """The voters that do best where labels are least kind to them.

    >>> best({"neighbours": Expected(0.9, 0.4, 1.0, 0.2), "sums": Expected(0.8, 0.5, 0.9, 0.2)})
    'sums'
    """
    return max(found, key=lambda one: (found[one].low, one))


def _own(dataset: Dataset) -> list[Labels]:
    """The labels of the public part, all of which have to be there."""
    if dataset.public.labels is None:
        raise PateError("the public inputs have no labels to judge by: leave out --public-labels")
    return [np.asarray(dataset.public.labels)]
