"""The notebooks of the gallery run from top to bottom, each in a fresh name space."""

import runpy
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, capsys):
    runpy.run_path(str(notebook))
    assert capsys.readouterr().out
    text = notebook.read_text()
    assert text.startswith("# %% [markdown]\n# # ") and text.count("# %%\n") >= 2
