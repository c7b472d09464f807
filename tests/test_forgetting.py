"""A patch of what figures follow from lets them be forgotten, and no other patch does."""

import math

import pytest

from pate_jax.accounting import figures
from pate_jax.accounting.bounds import argmax_worst_case
from pate_jax.mechanisms import GNMax
from pate_jax.runs import stages

BELOW, ABOVE = "pate_jax.accounting.bounds.threshold.TAIL", "pate_jax.runs.stages.TAIL"


def kept():
    figures.proved_for(GNMax(30.0), ((9, 2),), 2, "counts", (2.0, 3.0), 1e-5)
    return figures.proved_for.cache_info().currsize


@pytest.mark.parametrize("place", [argmax_worst_case, GNMax, math, BELOW])
def test_a_patch_below_figures_forgets_them_twice(place):
    named = (place,) if isinstance(place, str) else (place, "TAIL")
    assert kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*named, 1, raising=False)
        assert figures.proved_for.cache_info().currsize == 0
        assert kept()
    assert figures.proved_for.cache_info().currsize == 0


@pytest.mark.parametrize("place", [stages, stages.RunDirectory, ABOVE])
def test_a_patch_above_them_does_not(place):
    named = (place,) if isinstance(place, str) else (place, "TAIL")
    before = kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*named, 1, raising=False)
        assert kept() == before
    assert kept() == before
