"""When training may end early: hardly any public input is given another label any more.

Steps are many so that hard classes are learned as well. Of easy classes the student is soon as good as it
gets, and public inputs show it: from a quarter of the steps on, their labels are compared with those of 400
steps before. Once so few have changed, the learning rate falls to zero within a third of the steps made so
far, and training ends. Until then nothing differs from training to the end. No answer is looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LOOKED_AT = 1000  # public inputs, evenly spaced over the pool
_EVERY = 400  # steps between two looks at them
_LEAST = 4  # one of so many steps is made in any case
_FALL = 3  # the rate falls while one step is made for so many before


class Settling:
    """The labels that students give as they are trained, and the step at which training ends.

    >>> labels = iter([[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1]])
    >>> training = Settling(6000, 0.1, lambda weights: np.array([next(labels)]))
    >>> [training.look(step, None) for step in (800, 1200, 1600, 2000)], training.fall, training.end
    ([False, False, False, True], (2000, 2667), 2667)
    """

    def __init__(self, steps: int, share: float, labels: Callable[[Any], np.ndarray] | None) -> None:
        """`labels` are those [student, input] that averaged weights give; without them no end is early."""
        self.end, self._share, self._labels = steps, share, labels
        self.fall = (steps, steps + 1)
        """The steps between which the learning rate falls to zero, beside its own schedule."""
        self._before: np.ndarray | None = None

    def look(self, step: int, weights: Any) -> bool:
        """Look at the labels where it is time; true once training is to end early."""
        end = step + -(-step // _FALL)
        if self._labels is None or step % _EVERY or step >= self.fall[0] or end >= self.end:
            return False
        now, before = self._labels(weights), self._before
        self._before = now
        if before is None or _LEAST * step < self.end:
            return False
        if (now != before).mean(-1).max() >= self._share:  # of several students the least settled one
            return False
        self.fall, self.end = (step, end), end
        return True
