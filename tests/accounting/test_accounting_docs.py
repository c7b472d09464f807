"""Every example on the accountant's page runs as printed."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.long
def test_examples_of_the_page():
    page = Path(__file__).parents[2] / "docs/accounting.md"
    failed, tried = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert tried > 20 and failed == 0
