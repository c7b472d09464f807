"""The page of public names: at most forty, each is there, and each has an example that runs."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "names.md"
NAMES = re.findall(r"^\| `(pate_jax[\w.]+)` \|", PAGE.read_text(), re.MULTILINE)


def test_they_are_at_most_forty_and_hold_those_of_the_package():
    package = importlib.import_module("pate_jax")
    assert len(NAMES) == len(set(NAMES)) <= 40
    assert {f"pate_jax.{name}" for name in package.__all__} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_is_explained_with_an_example(name):
    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert ">>>" in (inspect.getdoc(found) or ""), f"{name} has no example"
