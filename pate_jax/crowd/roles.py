"""Who is who in a rehearsal: public inputs that stand for voters, and others that are judged.

Where users vote and the public inputs have users too, it is these who stand for voters, each with all of its
inputs: how many records a user has, and how alike they are, decides how much its part of a table can say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from scipy import sparse

from pate_jax.crowd.neighbours import votes_by_user
from pate_jax.crowd.sums import shortened
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

Labels = Int[np.ndarray, " pool"]
Rows = Int[np.ndarray, " row"]
Table = Int[np.ndarray, "rows columns"]
_JUDGED = 3000  # public inputs, at most


class Roles(NamedTuple):
    """The parts of a pool, row by row."""

    times: Int[np.ndarray, " pool"]  # how many voters each public input stands for, with its user's others
    judged: Rows
    users: Int[np.ndarray, " pool"] | None = None  # numbered; None where every input is by itself

    @property
    def voting(self) -> Rows:
        """The inputs that stand for voters."""
        return np.flatnonzero(self.times)

    @property
    def voters(self) -> int:
        """How many voters there are."""
        if self.users is None:
            return int(self.times.sum())
        return int(self.times[np.unique(self.users, return_index=True)[1]].sum())

    @property
    def judges(self) -> int:
        """How many inputs are judged that are surely independent: one of each user."""
        return len(self.judged) if self.users is None else len(np.unique(self.users[self.judged]))

    def sums(self, vectors: Int[np.ndarray, "voting entries"], labels: Labels, release: ClassSums) -> Table:
        """The exact sums of the voters, whose inputs have these vectors."""
        times, own = self.times[self.voting], labels[self.voting]
        height = release.shape[0]
        rows, signs = (own, np.ones_like(own)) if height > 1 else (0 * own, 2 * own - 1)
        if self.users is None:
            return np.asarray(_added(rows, signs * times, height) @ vectors.astype(np.int64))
        pieces, place = np.unique(self.users[self.voting] * height + rows, return_inverse=True)
        each = np.asarray(_added(place, signs, len(pieces)) @ vectors.astype(np.int64))
        cut = shortened(each, pieces // height, release.length)
        often = times[np.unique(place, return_index=True)[1]]  # the same for all inputs of a user
        return np.asarray(_added(pieces % height, often, height) @ cut)

    def votes(
        self,
        nearest: Int[np.ndarray, "voting votes"],
        gaps: Int[np.ndarray, "voting votes"],
        release: NeighbourCounts,
    ) -> tuple[Int[np.ndarray, " vote"], Rows]:
        """The query of each vote, and the input that casts it; each counts as often as that input."""
        if self.users is None:
            return nearest.ravel(), np.repeat(self.voting, release.votes)
        made = votes_by_user(nearest, gaps, self.users[self.voting], self.voting, release.votes)
        return made.queries, made.labels


def assigned(pool: int, voters: int, users: Int[np.ndarray, " pool"] | None = None) -> Roles:
    """Half of a pool at most is judged, and the other inputs stand for this number of voters.

    No input is both, since a voter next to itself knows its own label; nor has a user inputs of both kinds.

    >>> made = assigned(pool=6, voters=40)
    >>> int(made.times.sum()), len(made.judged), made.times[made.judged].tolist()
    (40, 3, [0, 0, 0])
    >>> made = assigned(pool=6, voters=40, users=np.array([7, 7, 2, 2, 2, 7]))
    >>> int(made.times[[0, 2]].sum()), made.times[made.judged].tolist(), made.judges
    (40, [0, 0, 0], 1)
    """
    random = np.random.default_rng(1)
    most = min(_JUDGED, pool // 2)
    if users is None or len(np.unique(users)) < 2:
        judged, others = np.split(random.permutation(pool), [most])
        times = np.zeros(pool, np.int64)
        times[others] = random.multinomial(voters, np.full(len(others), 1 / len(others)))
        return Roles(times, judged)
    own = np.unique(users, return_inverse=True)[1]
    order, inputs = random.permutation(own.max() + 1), np.bincount(own)
    some = max(1, int((np.cumsum(inputs[order]) <= most).sum()))
    often = np.zeros(len(inputs), np.int64)
    often[order[some:]] = random.multinomial(voters, np.full(len(order) - some, 1 / (len(order) - some)))
    return Roles(often[own], np.flatnonzero(np.isin(own, order[:some])), own)


def _added(rows: Rows, weights: Int[np.ndarray, " row"], height: int) -> sparse.csr_array:
    """What adds up weighted vectors in some rows of a table."""
    return sparse.csr_array((weights.astype(np.int64), (rows, np.arange(len(rows)))), (height, len(rows)))
