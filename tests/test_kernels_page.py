"""The examples of docs/start/own_jax_code.md and docs/guide/kernels.md run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = [
    (name, example)
    for name in ("start/own_jax_code.md", "guide/kernels.md")
    for example in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
]


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number):
    name, example = EXAMPLES[number]
    exec(compile(example, f"{name}:{number + 1}", "exec"), {})
