"""How many directions sums of many classes take: `python -m benchmarks.directions`.

Each world is drawn: classes around means whose variance falls along the directions as a power of their
number, and records around these. Sums are counted and noise is drawn as in a run. Shown are the directions
that the plan takes, and how right its classifier is in as many, and in other numbers of them; drawn inputs
judge. Lines are printed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from pate_jax import crowd
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import seeded_key
from pate_jax.aggregate.noise import noisy_table
from pate_jax.crowd import shares
from pate_jax.data import Part
from pate_jax.models import spaces

_TIMES = (0.5, 0.75, 1, 1.5, 2, 3)  # of the directions that the plan takes
_WIDE, _POOL, _TEST, _DRAWS = 120, 6000, 1500, 2


class World(NamedTuple):
    """How many classes, how fast variances fall, and how wide a class is beside all of them."""

    classes: int
    fall: float
    inside: float
    records: int
    epsilon: float = 0.1

    def draw(
        self, random: np.random.Generator, means: np.ndarray, rows: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and their classes."""
        labels = random.integers(0, self.classes, rows)
        around = self.inside * self.scale * random.normal(size=(rows, _WIDE))
        rest = 0.02 * random.normal(size=(rows, _WIDE))
        return (means[labels] + around + rest).astype(np.float32), labels.astype(np.int32)

    @property
    def scale(self) -> np.ndarray:
        """The deviation along each direction."""
        return np.arange(1, _WIDE + 1) ** (-self.fall / 2)


WORLDS = (
    World(150, 0.7, 0.7, 30_000),
    World(150, 1.0, 0.7, 30_000),
    World(150, 1.5, 0.7, 30_000),
    World(150, 2.0, 0.5, 30_000),
    World(50, 1.0, 0.9, 10_000),
)


def measured(world: World) -> str:
    """A line about a world."""
    random = np.random.default_rng(1)
    means = random.normal(size=(world.classes, _WIDE)) * world.scale
    (inputs, labels), (pool, _) = (world.draw(random, means, rows) for rows in (world.records, _POOL))
    test, truth = world.draw(random, means, _TEST)
    space = spaces.learn("identity", pool)
    public, asked = space.coordinates(pool), space.coordinates(test)
    people = crowd.voters(Part(inputs, labels, np.arange(len(labels)).astype(str)), world.classes)
    wish = {"voters": world.records, "classes": world.classes, "mu": counts.mu_for(world.epsilon, 1e-5)}
    taken = len(crowd.plan("sums", space, public, **wish).space.variances)
    found = []
    for directions in sorted({min(_WIDE, round(times * taken)) for times in _TIMES}):
        made = crowd.plan("sums", space, public, **wish, directions=directions)
        exact = crowd.sums(made.space, made.scaling, people, made.release)
        rights = []
        for draw in range(_DRAWS):
            noisy = noisy_table(made.release, exact, key=jax.random.fold_in(seeded_key(1), draw)).values
            said = shares.of_sums(noisy, made, public, world.records, asked).probabilities
            rights.append(float((said.argmax(1) == truth).mean()))
        found.append(f"{directions}: {np.mean(rights):.1%}")
    return f"{world}: takes {taken}; right in {', '.join(found)}"


if __name__ == "__main__":
    for one in WORLDS:
        print(measured(one), flush=True)
