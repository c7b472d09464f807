"""Trees laid flat and nested again."""

from typing import NamedTuple

import numpy as np
import pytest

from pate_jax.errors import PateError
from pate_jax.models import trees


class Layer(NamedTuple):
    kernel: np.ndarray
    bias: np.ndarray


def test_dicts_come_back_as_they_were():
    tree = {"a": {"b": {"c": 1, "d": 2}, "e": 3}, "f": 4}
    for separator in ("/", "."):
        assert trees.nested(trees.flat(tree, separator), separator) == tree


def test_every_container_gives_its_leaves_a_name():
    layers = [Layer(1, 2), (3, {"scale": 4})]
    assert trees.flat({"layers": layers}) == {
        "layers/0/kernel": 1,
        "layers/0/bias": 2,
        "layers/1/0": 3,
        "layers/1/1/scale": 4,
    }


def test_an_array_below_an_array_is_refused():
    with pytest.raises(PateError, match="'a/b' lies below another array"):
        trees.nested({"a": np.ones(2), "a/b": np.ones(2)})
