"""Descriptions that are equal have one text, because noise is named after it."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.mechanisms import crowds, descriptions, stable, to_dict
from pate_jax.mechanisms.local import BY_NAME as LOCAL
from pate_jax.mechanisms.shared_votes import NoiseShares, SharedVote
from pate_jax.runs import secret

TYPES = (float, int, np.float64, np.float32, np.int64, np.uint16, Fraction)
SIZES = {"queries": 30, "classes": 3, "votes": 2, "directions": 4, "length": 5, "students": 3, "cutoff": 2}
SIZES |= {"parties": 3, "colluding": 0, "absent": 0, "student_confidence": 1}
NAMED = [*descriptions.BY_NAME.values(), *crowds.BY_NAME.values(), stable.StableAnswers, *LOCAL.values()]
NAMED += [NoiseShares, SharedVote]


def made(kind, number, types):
    """A description whose numbers are `number`, or of its sizes, each of the type that comes next."""
    chosen = {}
    for field in dataclasses.fields(kind):
        if str(field.type).split(" ")[0] in ("float", "int") and not field.name.startswith("epsilon"):
            value = SIZES.get(field.name, number)
            chosen[field.name] = next(types)(value) if str(field.type) != "int" else np.int32(value)
        elif field.name == "epsilon":
            chosen[field.name] = next(types)(8)
    more = {"voters": "teachers", "opened": "answers"} if kind is SharedVote else {}
    return kind(**chosen, **more)


@given(st.sampled_from(NAMED), st.integers(20, 200), st.data())
def test_equal_numbers_of_any_type_give_one_text(kind, number, data):
    drawn = (data.draw(st.sampled_from(TYPES)) for _ in iter(int, 1))
    plain, odd = made(kind, number, iter(lambda: float, None)), made(kind, number, drawn)
    assert odd == plain and repr(odd) == repr(plain)
    assert json.dumps(dataclasses.asdict(odd)) == json.dumps(dataclasses.asdict(plain))


def test_a_stream_of_noise_has_one_name_for_equal_mechanisms():
    names = {
        secret.stream(1, to_dict(descriptions.DiscreteGaussianMax(sigma)), "votes")
        for sigma in (40, 40.0, np.float64(40))
    }
    read = descriptions.from_dict({"name": "discrete-gaussian", "sigma": 40})
    assert names == {secret.stream(1, to_dict(read), "votes")}
    assert names == {'release 1 {"name": "discrete-gaussian", "sigma": 40.0} votes '}
    zeros = [descriptions.ConfidentGNMax(zero, 2.0, 2.0) for zero in (0, 0.0, -0.0)]
    assert len({repr(one) for one in zeros}) == 1


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("odd", [float, np.float64, Fraction, bool, str])
def test_a_size_that_is_no_whole_number_is_refused(kind, odd):
    """Equal to the whole number it may be, and its noise would have another name."""
    for size in (field.name for field in dataclasses.fields(kind) if str(field.type) == "int"):
        plain = dataclasses.asdict(made(kind, 40, iter(lambda: float, None)))
        with pytest.raises(PateError, match=f"{size}="):
            kind(**plain | {size: odd(plain[size])})


@pytest.mark.parametrize(
    "sigma", [True, "40", None, 10**400, Fraction(10) ** 400, float("nan"), np.float16("inf")]
)
def test_what_is_no_number_of_votes_is_refused(sigma):
    with pytest.raises(PateError, match="sigma="):
        descriptions.GNMax(sigma)
