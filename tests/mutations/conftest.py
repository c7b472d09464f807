"""Tells what was tried, and lets the mutations call the tests of the other folders."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [place for place in map(str, (TESTS, TESTS / "accounting")) if place not in sys.path]

import catalogue  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture(autouse=True)
def _tell_what_was_tried(record_property):
    """What came of a mutation travels with the test's report, out of the process that tried it."""
    before = len(catalogue.TRIED)
    yield
    for tried in catalogue.TRIED[before:]:
        record_property("mutation", list(tried))
