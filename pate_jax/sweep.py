"""Many settings of a mechanism over one list of votes: what each would answer, and what it would cost.

Votes are made once; no setting trains a teacher again. Every row is a function of the votes it was judged on,
so a choice made from it on private votes is a cost that no statement covers: judge on public or synthetic
votes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import accounting, aggregate, progress
from pate_jax.mechanisms import Mechanism, to_dict
from pate_jax.voting import Votes


def sweep(
    mechanisms: Sequence[Mechanism], votes: Votes, delta: float, *, key: jax.Array
) -> list[dict[str, Any]]:
    """One row a setting: answers, how many are right, the published and the data-independent epsilon.

    >>> from pate_jax import noise
    >>> from pate_jax.mechanisms import GNMax
    >>> votes = Votes(np.array([[9, 1], [2, 8]]), None, None, np.array([0, 1]))
    >>> [row["answered"] for row in sweep([GNMax(1.0), GNMax(2.0)], votes, 1e-5, key=noise.seeded_key(0))]
    [2, 2]
    """
    rows = []
    for index, mechanism in enumerate(progress.track(mechanisms, "settings", total=len(mechanisms))):
        answers = aggregate.answer(mechanism, jnp.asarray(votes.votes), key=jax.random.fold_in(key, index))
        answered = np.asarray(answers.answered)
        right = None if votes.labels is None else np.asarray(answers.labels) == votes.labels
        statement = accounting.statement(mechanism, votes.votes, answered, delta)
        rows.append(
            {
                "mechanism": to_dict(mechanism),
                "answered": int(answered.sum()),
                "label_accuracy": None
                if right is None or not answered.any()
                else float(right[answered].mean()),
                "published": accounting.published(mechanism, votes.votes, delta).epsilon,
                "data_independent": statement.headline.epsilon,
            }
        )
    return rows
