"""A patch of what figures follow from lets them be forgotten, and no other patch does."""

import importlib
import math
import re
from pathlib import Path

import forgetting
import pytest

from pate_jax import accounting
from pate_jax.accounting import figures
from pate_jax.accounting.bounds import moved_vote, worst_case
from pate_jax.mechanisms import GNMax, Noise
from pate_jax.runs import stages
from pate_jax.system import progress, storage

statement = importlib.import_module("pate_jax.accounting.statement")  # there is a function of that name
BELOW, ABOVE = "pate_jax.accounting.bounds.threshold.TAIL", "pate_jax.runs.stages.TAIL"


def kept():
    figures.proved_for(GNMax(30.0), ((9, 2),), 2, (2.0, 3.0), 1e-5)
    return figures.proved_for.cache_info().currsize


@pytest.mark.parametrize("place", [worst_case, GNMax, math, progress, BELOW])
def test_a_patch_below_figures_forgets_them_twice(place):
    named = (place,) if isinstance(place, str) else (place, "TAIL")
    assert kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*named, 1, raising=False)
        assert figures.proved_for.cache_info().currsize == 0
        assert kept()
    assert figures.proved_for.cache_info().currsize == 0


@pytest.mark.parametrize("place", [stages, stages.RunDirectory, storage, ABOVE])
def test_a_patch_above_them_does_not(place):
    named = (place,) if isinstance(place, str) else (place, "TAIL")
    before = kept()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*named, 1, raising=False)
        assert kept() == before
    assert kept() == before


@pytest.mark.parametrize(("place", "left"), [(statement, 1), (moved_vote, 0), (Noise, 0)])
def test_only_what_needs_the_patched_module_is_forgotten(place, left):
    worst_case.shares.cache_clear()
    worst_case.shares(Noise("discrete_gaussian", 1.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, "TAIL", 1, raising=False)
        assert worst_case.shares.cache_info().currsize == left


def test_the_accountant_imports_from_these_rooms_alone():
    rooms = Path(accounting.__file__).parent, Path(accounting.__file__).parents[1] / "mechanisms"
    text = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    found = re.findall(r"^ *from pate_jax\.(\S+) import (\w+)", text, flags=re.MULTILINE)
    ours = {place if "." in place else f"{place}.{name}" for place, name in found}
    assert {one for one in ours if one.startswith("system.")} == {
        one for one in forgetting.BELOW if one.startswith("system.")
    }
    assert {one.partition(".")[0] for one in ours} == {one.partition(".")[0] for one in forgetting.BELOW}
