"""The examples of docs/kernels.md run as they stand."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_there_are_six_examples():
    assert len(EXAMPLES) == 6


@pytest.mark.long
@pytest.mark.parametrize("number", range(6))
def test_an_example_runs(number):
    exec(compile(EXAMPLES[number], f"{PAGE.name}:{number + 1}", "exec"), {})
