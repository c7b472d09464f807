"""How many voters have the label that a rule gives their records: what a score is the noisy form of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Int

from pate_jax.crowd.voters import Voters, own_rows
from pate_jax.models.spaces.space import BLOCK
from pate_jax.system import devices

Rule = Callable[[np.ndarray], Int[np.ndarray, " record"]]  # of inputs, to their labels


def agreeing(people: Voters, rule: Rule) -> int:
    """The number of voters who agree with a rule; a user does with whom half of its records do.

    The rule must say the same of a record whatever other records it is shown with, so that one voter moves
    the number by 1 at most. The number is private until noise is added to it. Several processes read a part
    of the voters each, and all return the number of all voters.

    >>> people = Voters(np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 1]), None)
    >>> agreeing(people, lambda inputs: np.ones(len(inputs), int))
    2
    >>> agreeing(people._replace(users=np.array([4, 4, 9])), lambda inputs: np.ones(len(inputs), int))
    2
    """
    return int(devices.sum_over_processes(np.array([agreed(people, rule).sum()]))[0])


def agreed(people: Voters, rule: Rule) -> Bool[np.ndarray, " voter"]:
    """Which voters of this process agree with a rule: by record, or by the number of the user.

    >>> people = Voters(np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 1]), None)
    >>> agreed(people, lambda inputs: np.ones(len(inputs), int)).tolist()
    [True, False, True]
    """
    rows = np.asarray(own_rows(people), np.int64)
    starts = range(0, len(rows), BLOCK)
    right = [_right(people, rows[start : start + BLOCK], rule) for start in starts]
    each = np.concatenate([np.zeros(0, bool), *right])
    if people.users is None:
        return each
    users = people.users[rows]
    most = int(users.max(initial=0)) + 1
    both = np.bincount(users, each, most), np.bincount(users, minlength=most)
    found: np.ndarray = (2 * both[0] >= both[1]) & (both[1] > 0)
    return found


def _right(people: Voters, rows: np.ndarray, rule: Rule) -> np.ndarray:
    found: np.ndarray = rule(np.asarray(people.inputs[rows])) == people.labels[rows]
    return found
