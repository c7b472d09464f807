"""What crowds are expected to bring on a public pool, no private record is read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.crowd import plan, rehearsal, space_kind
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels
from pate_jax.crowd.step_choice import FIRST, stepped
from pate_jax.data import Dataset
from pate_jax.mechanisms.crowds import Voting
from pate_jax.models.spaces import Learned
from pate_jax.runs.crowds.inputs import KEY
from pate_jax.student import PublicInputs
from pate_jax.student import spaces as trained
from pate_jax.system import headcount

Voters = Voting | Literal["teachers"]  # that may be chosen
CROWDS: tuple[Voting, ...] = get_args(Voting)
_POINT = 0.01  # of accuracy or another metric


def expected(
    dataset: Dataset,
    wide: Learned,
    labels: Sequence[Labels],
    *,
    records: int,
    epsilon: float,
    delta: float,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
) -> dict[Voters, Expected]:
    """The accuracy (or another metric) of every crowd on the public part, in its space.

    `records` is rounded down to two digits, as a run does with their noisy number.
    """
    voters, mu, classes = headcount.coarse(records), counts.mu_for(epsilon, delta), dataset.classes
    return of_crowds(CROWDS, wide, labels, voters=voters, classes=classes, mu=mu, metric=metric)


def learned(dataset: Dataset, directions: int = FIRST) -> Learned:
    """The space that a run would compare these public inputs in; sums in steps want `WIDEST` directions."""
    kind = "encoder" if dataset.public.features is not None else space_kind(dataset)
    seen = dataset.seen_in(kind)
    return trained.learned(kind, PublicInputs.of(seen), key=jax.random.key(KEY), directions=directions)


def judges(dataset: Dataset, wide: Learned, *, own: bool = True) -> list[Labels]:
    """The labels that judge: the public part's `own`, if it has any, else several that are made up."""
    if own and dataset.public.labels is not None:
        return [np.asarray(dataset.public.labels)]
    return rehearsal.labellings(*wide, dataset.classes)


def of_crowds(
    wanted: Sequence[Voters],
    wide: Learned,
    labels: Sequence[Labels],
    *,
    voters: int,
    classes: int,
    mu: float,
    queries: int | None = None,
    users: Labels | None = None,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
) -> dict[Voters, Expected]:
    """What these crowds are expected to bring; the number of queries can be chosen of neighbours only.

    Where users vote, `users` are those of public inputs, if they have any. Sums take the
    steps that a run would.
    """

    def rehearsed(one: Voters) -> Expected:
        if one == "sums":
            made = stepped(*wide, voters=voters, classes=classes, mu=mu, users=users)
        else:
            made = plan(
                "neighbours", *wide, voters=voters, classes=classes, mu=mu, queries=queries, users=users
            )
        return rehearsal.rehearse(made, wide.pool, labels, voters, users, metric)

    return {one: rehearsed(one) for one in wanted}


def best(found: Mapping[Voters, Expected]) -> Voters:
    """The voters that do best in their worst case, or simpler ones that are hardly behind.

    Sums take half the time of neighbours, and their student of a table holds no public input. So neighbours
    are taken where they are ahead by more than one standard deviation of such a difference.

    >>> kind, kinder = Expected(0.9, 0.4, 1.0, 0.2, 3000, 5), Expected(0.8, 0.5, 0.9, 0.2, 3000, 5)
    >>> best({"neighbours": kind, "sums": kinder})
    'sums'
    >>> nearly = kinder._replace(low=0.51)
    >>> best({"sums": kinder, "neighbours": nearly})
    'sums'
    """
    first = leader(found)
    return "sums" if "sums" in found and not surely(found[first], found["sums"]) else first


def leader(found: Mapping[Voters, Expected]) -> Voters:
    """The voters that do best in their worst case."""
    return max(found, key=lambda one: (found[one].least, one))


def surely(one: Expected, other: Expected) -> bool:
    """Whether one is ahead of another by more than few judged inputs and the noise's draws can make it."""
    return one.least > other.least + math.hypot(one.deviation, other.deviation)


def about_as_good(one: Expected, other: Expected) -> bool:
    """Whether one is expected to lose a point at most against another, on the same judged inputs.

    >>> about_as_good(Expected(0.852, 0.8, 0.9, 0.5), Expected(0.86, 0.8, 0.9, 0.5))
    True
    """
    return one.accuracy >= other.accuracy - _POINT


def less(rows: Sequence[Mapping[str, Any]], epsilon: float) -> str | None:
    """The least epsilon of a plan that is expected to bring about as much as the chosen one, in a sentence.

    Made-up labels give no forecast, so nothing is said then.

    >>> first = Expected(0.861, 0.84, 0.88, 0.5, 900)
    >>> rows = [{"epsilon": at, **first._replace(accuracy=right)._asdict()}
    ...         for at, right in ((0.25, 0.83), (0.5, 0.857), (1.0, 0.861), (2.0, 0.863))]
    >>> less(rows, 1.0)
    'Less would do: at epsilon 0.5 the plan expects 86%, and at 1 86%'
    >>> less(rows[2:], 1.0) is None
    True
    """
    each = {
        row["epsilon"]: Expected(**{name: row[name] for name in row if name != "epsilon"}) for row in rows
    }
    here = each.get(epsilon)
    if here is None or here.labels > 1:
        return None
    enough = [at for at, one in each.items() if at < epsilon and about_as_good(one, here)]
    if not enough:
        return None
    by, least = Metric(here.metric), min(enough)
    name = "" if here.metric == "accuracy" else f"{by.head} "
    expected = f"{name}{by.text(each[least].accuracy)}, and at {epsilon:g} {by.text(here.accuracy)}"
    return f"Less would do: at epsilon {least:g} the plan expects {expected}"
