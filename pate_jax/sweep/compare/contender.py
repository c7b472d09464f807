"""What a method is to a comparison: how it learns at an epsilon, and what it needs beside epsilon."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from pate_jax.sweep.compare.ground import Draw, Ground


class Needs(NamedTuple):
    """What a method costs beside epsilon, in words."""

    pool: str  # what it does with public inputs
    trust: str  # who sees private records, or what follows from them, without noise
    gives: str  # what may be published in the end


class Outcome(NamedTuple):
    """What a method has brought."""

    said: Float[np.ndarray, "test classes"]  # of the test rows: probabilities of their classes
    epsilon: float | None  # that it may publish; None: it has no guarantee
    settings: Mapping[str, float | str]  # by which it was trained


class Contender(NamedTuple):
    """A method that learns from the same records as all others."""

    name: str
    needs: Needs
    learn: Callable[[Ground, Draw], Outcome]
    """(ground, draw) -> what it brings; a PateError where it cannot learn at this epsilon"""
    private: bool = True  # whether it has a guarantee
