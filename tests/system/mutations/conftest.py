"""Tells what was tried, and lets the mutations call the tests of the other folders."""

import catalogue
import pytest


@pytest.fixture(autouse=True)
def _tell_what_was_tried(record_property):
    """What came of a mutation travels with the test's report, out of the process that tried it."""
    before = len(catalogue.TRIED)
    yield
    for tried in catalogue.TRIED[before:]:
        record_property("mutation", list(tried))
