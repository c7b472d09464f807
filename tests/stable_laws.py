"""The law of the pattern of stable answers, without any code of the package that draws or accounts."""

import math
from functools import lru_cache

import numpy as np


def noise_law(scale):
    """The values and chances of discrete Laplace noise."""
    reach = math.ceil(45 * scale)
    values = np.arange(-reach, reach + 1)
    law = np.exp(-np.abs(values) / scale)
    return values, law / law.sum()


@lru_cache(maxsize=100_000)
def patterns(threshold, scale, cutoff, readings):
    """The chance of each pattern of answered queries, by summing over every value of every threshold."""
    values, law = noise_law(scale)
    tail = law[::-1].cumsum()[::-1]
    found = {}

    def go(place, weights, pattern):
        if place == len(readings) or len(pattern) - sum(pattern) == cutoff:
            found[pattern] = found.get(pattern, 0.0) + weights.sum()
            return
        level = threshold + values - readings[place]
        stays = tail[np.clip(level - values[0], 0, len(law) - 1)] * (level <= values[-1])
        go(place + 1, weights * stays, (*pattern, True))
        go(place + 1, law * (weights * (1 - stays)).sum(), (*pattern, False))

    go(0, law, ())
    return found
