"""The notebooks of the gallery run from top to bottom, each in a fresh name space."""

import importlib.util
import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, capsys):
    runpy.run_path(str(notebook))
    assert capsys.readouterr().out
    text = notebook.read_text()
    assert text.startswith("# %% [markdown]\n# # ") and text.count("# %%\n") >= 2


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_site_has_it_as_a_page_and_as_a_notebook(notebook):
    pytest.importorskip("mkdocs")
    place = importlib.util.spec_from_file_location("site_pages", ROOT / "docs/site_pages.py")
    site = importlib.util.module_from_spec(place)
    place.loader.exec_module(site)
    assert f"examples/{notebook.stem}.md" in (ROOT / "mkdocs.yml").read_text()
    made = json.loads(site.notebook(notebook))
    assert made["nbformat"] == 4 and {cell["cell_type"] for cell in made["cells"]} == {"code", "markdown"}
    said = ["".join(cell["source"]) for cell in made["cells"]]
    code = [text for text, cell in zip(said, made["cells"], strict=True) if cell["cell_type"] == "code"]
    lines = [line for line in notebook.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for text in code for line in text.splitlines() if line and not line.startswith("#")] == lines
    page = site.markdown(notebook)
    assert all(text in page for text in said) and f"({notebook.stem}.ipynb)" in page
