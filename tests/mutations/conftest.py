"""Prints what was caught, and lets the mutations call the tests of the other folders."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [place for place in map(str, (TESTS, TESTS / "accounting")) if place not in sys.path]

import catalogue  # noqa: E402


def pytest_terminal_summary(terminalreporter):
    if catalogue.TRIED:
        terminalreporter.section("mutations")
        terminalreporter.write_line(catalogue.table())
