"""The mark that parts of a trial carry, so that every run on them knows that its public part was private.

`pate split` writes it as a column of a table, or an array of an .npz, so that it goes wherever the rows go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

NAME = "pate_trial"  # of the column or array
VALUE = "do not publish"  # in each row
SENTENCE = "trial: the public part was private; do not publish"


def marked(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Columns of a table of so many rows, with the mark behind them.

    >>> marked({"age": ["30"]}, 1)
    {'age': ['30'], 'pate_trial': ['do not publish']}
    """
    return {**columns, NAME: [VALUE] * rows}


def marked_arrays(arrays: Mapping[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """The same for the arrays of an .npz."""
    return {**arrays, NAME: np.full(rows, VALUE)}
