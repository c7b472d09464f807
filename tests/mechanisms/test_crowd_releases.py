"""What a crowd releases, as JSON: it comes back, and nonsense is refused by name."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts, from_dict

COUNTS = NeighbourCounts(queries=80, classes=10, votes=2, sigma=40.0)
SUMS = ClassSums(classes=3, directions=16, length=100, sigma=4000.0, family="discrete_gaussian")


@pytest.mark.parametrize("release", [COUNTS, SUMS])
def test_a_release_survives_its_description(release):
    assert from_dict(to_dict(release)) == release


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "teachers"}, "teachers"),
        ({"votes": 2.0}, "votes=2.0"),
        ({"votes": True}, "votes=True"),
        ({"votes": 81}, "votes=81"),
        ({"classes": 1}, "classes=1"),
        ({"sigma": "40"}, "sigma='40'"),
        ({"sigma": True}, "sigma=True"),
        ({"sigma": float("nan")}, "sigma=nan"),
        ({"family": "gaussian"}, "family='gaussian'"),
        ({"more": 1}, "more"),
    ],
)
def test_nonsense_is_refused_by_name(change, named):
    with pytest.raises(PateError, match=named):
        from_dict({**to_dict(COUNTS), **change})


@given(st.none() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers()))
def test_anything_else_is_one_sentence(anything):
    with pytest.raises(PateError) as raised:
        from_dict(anything)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("sigma", [np.float64(40.5), np.float32(40.5), np.int64(40)])
def test_scales_of_other_libraries_are_floats(sigma):
    release = NeighbourCounts(queries=3, classes=2, votes=1, sigma=sigma)
    assert type(release.sigma) is float and release.sigma == sigma
    assert from_dict(json.loads(json.dumps(to_dict(release)))) == release


@pytest.mark.parametrize("sigma", [np.bool_(True), np.float64("nan"), np.complex128(40)])
def test_scales_that_are_no_numbers_are_refused(sigma):
    with pytest.raises(PateError, match="sigma="):
        ClassSums(classes=3, directions=2, length=10, sigma=sigma)
