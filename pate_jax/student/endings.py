"""When training may end before its last step: labels of public inputs show that more would change little.

Steps are many so that hard classes are learned as well. Of easy classes a student is soon as good as it gets,
and public inputs show it: from a quarter of the steps on, their labels are compared with those of 400
steps before. Once so few have changed, the learning rate falls to zero within a third of the steps made so
far, and training ends. Until then nothing differs from training to the end. No answer is looked at.

A net that is only tried (`pate_jax.student.choice`) ends at once when the answers that it has not seen leave
no doubt of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

LOOKED_AT = 1000  # public inputs, evenly spaced over the pool
_EVERY = 400  # steps between two looks at them
_LEAST = 4  # one of so many steps is made in any case
_FALL = 3  # the rate falls while one step is made for so many before
Labels = Callable[[Any], np.ndarray]  # averaged weights -> labels [student, input]


class Ending:
    """The step at which training ends: the last one.

    >>> Ending(3000).look(400, None), Ending(3000).end
    (False, 3000)
    """

    why = ""
    """Why an end before the last step is early enough, for the user."""

    def __init__(self, steps: int) -> None:
        self.end = steps
        self.fall = (steps, steps + 1)
        """The steps between which the learning rate falls to zero, beside its own schedule."""

    def look(self, step: int, weights: Any) -> bool:
        """Look at the labels where it is time; true once training is to end early."""
        return False


class Settling(Ending):
    """The labels that students give as they are trained end it once hardly any changes.

    >>> labels = iter([[0, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 1], [1, 1, 0, 1]])
    >>> training = Settling(6000, lambda weights: np.array([next(labels)]), 0.1)
    >>> [training.look(step, None) for step in (800, 1200, 1600, 2000)], training.fall, training.end
    ([False, False, False, True], (2000, 2667), 2667)
    """

    why = "labels of public inputs have settled"

    def __init__(self, steps: int, labels: Labels, share: float) -> None:
        super().__init__(steps)
        self._labels, self._share = labels, share
        self._before: np.ndarray | None = None

    def look(self, step: int, weights: Any) -> bool:
        """Compare the labels with those of the look before."""
        end = step + -(-step // _FALL)
        if step % _EVERY or step >= self.fall[0] or end >= self.end:
            return False
        now, before = self._labels(weights), self._before
        self._before = now
        if before is None or _LEAST * step < self.end:
            return False
        if (now != before).mean(-1).max() >= self._share:  # of several students the least settled one
            return False
        self.fall, self.end = (step, end), end
        return True


class Clear(Ending):
    """What is asked of a net that is only tried is clear from its labels.

    >>> trial = Clear(1500, lambda weights: np.array([[weights, 1]]), lambda labels: labels.all())
    >>> [trial.look(step, step == 800) for step in (400, 500, 800)], trial.end
    ([False, False, True], 800)
    """

    why = "this trial leaves no doubt"

    def __init__(self, steps: int, labels: Labels, is_clear: Callable[[np.ndarray], bool]) -> None:
        super().__init__(steps)
        self._labels, self._is_clear = labels, is_clear

    def look(self, step: int, weights: Any) -> bool:
        """Ask whether it is clear."""
        if step % _EVERY or step >= self.end or not self._is_clear(self._labels(weights)[0]):
            return False
        self.end = step
        return True
