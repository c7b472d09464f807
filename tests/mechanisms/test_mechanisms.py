"""Descriptions of mechanisms: validated, frozen, serialisable, and one object for noise and account."""

import dataclasses
import json
import math
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME, from_dict, name_of, to_dict
from pate_jax.mechanisms.descriptions import scales

EXAMPLES = {
    name: kind(*(0.5 if field.name == "student_confidence" else 7.5 for field in dataclasses.fields(kind)))
    for name, kind in BY_NAME.items()
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_description_survives_json(name):
    mechanism = EXAMPLES[name]
    assert name_of(mechanism) == name
    assert from_dict(json.loads(json.dumps(to_dict(mechanism)))) == mechanism


@given(st.sampled_from(list(BY_NAME)), st.floats(min_value=1e-3, max_value=1e6))
def test_any_positive_setting_survives_json(name, value):
    kind = BY_NAME[name]
    value = min(max(value, scales(kind.family)[0]), scales(kind.family)[1])
    mechanism = kind(*(0.25 if f.name == "student_confidence" else value for f in dataclasses.fields(kind)))
    assert from_dict(json.loads(json.dumps(to_dict(mechanism)))) == mechanism


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, None, "4"])
def test_every_field_is_validated_and_named(name, bad):
    for field in dataclasses.fields(BY_NAME[name]):
        with pytest.raises(PateError, match=f"{field.name}="):
            dataclasses.replace(EXAMPLES[name], **{field.name: bad})


@pytest.mark.parametrize("name", BY_NAME)
def test_scales_are_above_zero_and_nothing_can_be_changed(name):
    for field in dataclasses.fields(BY_NAME[name]):
        if "scale" in field.name or "sigma" in field.name:
            with pytest.raises(PateError, match=f"{field.name}=0"):
                dataclasses.replace(EXAMPLES[name], **{field.name: 0})
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(EXAMPLES[name], field.name, 1.0)
    assert hash(EXAMPLES[name]) == hash(from_dict(to_dict(EXAMPLES[name])))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("bad", [1e-300, 9e-4, 1.1e12, 1e300])
def test_a_scale_that_no_figure_is_tested_at_is_refused_in_one_sentence(name, bad):
    for field in dataclasses.fields(BY_NAME[name]):
        if "scale" in field.name or "sigma" in field.name:
            least = rf"from {scales(BY_NAME[name].family)[0]:g} to"
            with pytest.raises(
                PateError, match=rf"{field.name}={re.escape(repr(bad))} .* {least} .*take a value"
            ):
                dataclasses.replace(EXAMPLES[name], **{field.name: bad})
    if "threshold" in {field.name for field in dataclasses.fields(BY_NAME[name])}:
        with pytest.raises(PateError, match=r"threshold=1e.300 .* number of votes from 0"):
            dataclasses.replace(EXAMPLES[name], threshold=1e300)


@pytest.mark.parametrize("name", BY_NAME)
def test_noise_and_test_say_what_the_fields_say(name):
    mechanism = EXAMPLES[name]
    fields = {field.name for field in dataclasses.fields(mechanism)}
    assert mechanism.noise.scale == 7.5
    assert ("threshold" in fields) == (mechanism.test is not None)
    if mechanism.test is not None:
        assert mechanism.test.noise.family == mechanism.noise.family
        own = dataclasses.replace(mechanism, **{next(f for f in fields if f.endswith("_threshold")): 3.0})
        assert own.test.noise.scale == 3.0 and own.noise.scale == 7.5


def test_names_and_fields_are_those_that_files_and_scripts_have():
    tested = {"threshold", "sigma_threshold", "sigma"}
    assert {name: {field.name for field in dataclasses.fields(kind)} for name, kind in BY_NAME.items()} == {
        "lnmax": {"scale"},
        "gnmax": {"sigma"},
        "confident-gnmax": tested,
        "interactive-gnmax": {*tested, "student_confidence"},
        "gumbel": {"scale"},
        "permute-and-flip": {"scale"},
        "discrete-gaussian": {"sigma"},
        "discrete-laplace": {"scale"},
        "confident-discrete-gaussian": tested,
        "confident-discrete-laplace": {"threshold", "scale_threshold", "scale"},
        "gaussian-histogram": {"sigma"},
    }
    assert repr(EXAMPLES["discrete-gaussian"]) == "DiscreteGaussianMax(sigma=7.5)"
    assert BY_NAME["gnmax"](7.5) != BY_NAME["discrete-gaussian"](7.5)


@pytest.mark.parametrize("description", [None, ["gnmax"], "gnmax", 3])
def test_what_is_no_description_is_refused(description):
    with pytest.raises(PateError, match="does not describe one"):
        from_dict(description)


def test_unknown_descriptions_are_refused():
    with pytest.raises(PateError, match="'newmax' is unknown"):
        from_dict({"name": "newmax"})
    with pytest.raises(PateError, match="takes"):
        from_dict({"name": "gnmax", "scale": 3.0})


def test_the_module_needs_nothing_but_the_standard_library():
    code = "import sys, pate_jax.mechanisms; sys.exit(int('numpy' in sys.modules or 'jax' in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
