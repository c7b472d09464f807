"""Every example on the accountant's pages runs as printed."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.long
def test_examples_of_the_pages():
    pages = [Path(__file__).parents[2] / "docs/proofs" / name for name in ("accounting.md", "mistakes.md")]
    found = [doctest.testfile(str(page), module_relative=False, encoding="utf-8") for page in pages]
    assert sum(one.attempted for one in found) > 20 and not any(one.failed for one in found)
    assert all(one.attempted > 3 for one in found)
