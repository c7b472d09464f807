"""Records survive JSON, and whatever is not what was written is refused with the place where it stands."""

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax, LNMax
from pate_jax.mechanisms.codec import from_dict, to_dict


class Inner(NamedTuple):
    share: float
    name: str


class Outer(NamedTuple):
    count: int
    sure: bool
    which: Literal["one", "two"]
    law: GNMax | LNMax
    parts: tuple[Inner, ...]
    pair: tuple[int, str]
    more: Mapping[str, float]
    perhaps: Inner | None


INNER = st.builds(Inner, st.floats(allow_nan=False, allow_infinity=False), st.text())
LAWS = st.floats(1, 1e6).flatmap(lambda scale: st.sampled_from([GNMax(scale), LNMax(scale)]))
MORE = st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False))
OUTER = st.builds(
    Outer,
    st.integers(),
    st.booleans(),
    st.sampled_from(["one", "two"]),
    LAWS,
    st.lists(INNER, max_size=3).map(tuple),
    st.tuples(st.integers(), st.text()),
    MORE,
    st.none() | INNER,
)
SAMPLE = Outer(3, True, "one", GNMax(4.0), (Inner(0.5, "a"),), (1, "b"), {"x": 1.0}, None)


@given(OUTER)
def test_a_record_survives_json(record):
    assert from_dict(Outer, json.loads(json.dumps(to_dict(record))), "file") == record


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"count": True}, "line 3 of file has count=True"),
        ({"count": 2.0}, "count=2.0"),
        ({"sure": 1}, "sure=1"),
        ({"which": "three"}, "which='three'"),
        (
            {"law": {"name": "other"}},
            "file has law=.*: name 'other' is unknown; .* gnmax, lnmax",
        ),
        ({"law": {"name": "gnmax", "scale": 1.0}}, r"law=.*: gnmax takes \['sigma'\], not \['scale'\]"),
        ({"law": {"name": "gnmax", "sigma": -1.0}}, "sigma=-1.0"),
        ({"parts": [{"share": float("nan"), "name": "a"}]}, r"has parts\[0\].share=nan"),
        ({"pair": [1]}, r"pair=\[1\]"),
        ({"more": {"x": "y"}}, "more.x='y'"),
        ({"perhaps": 3}, "file has perhaps=3: does not describe one"),
        ({"further": 3}, "line 3 of file takes .* not .*'further'"),
    ],
)
def test_what_was_not_written_is_refused_where_it_stands(change, said):
    with pytest.raises(PateError, match=said):
        from_dict(Outer, {**to_dict(SAMPLE), **change}, "line 3 of file")


def test_a_whole_number_in_place_of_a_float_is_one():
    found = from_dict(Inner, {"share": 2, "name": ""}, "file")
    assert type(found.share) is float and found.share == 2
    with pytest.raises(PateError, match="share=1000"):
        from_dict(Inner, {"share": 10**400, "name": ""}, "file")
