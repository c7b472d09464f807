"""The notebooks of the gallery run from top to bottom, each in a fresh process."""

import importlib.util
import json
import runpy
import warnings
from pathlib import Path

import forked
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.py"))
# It trains convolutions so long that the quick code of tests takes three times as long as a reader's.
AS_FOR_READERS = {"own_flax_net": {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}}


def run(notebook):
    warnings.simplefilter("error")
    warnings.filterwarnings("default", message="no answer names class")  # secure noise may leave one out
    runpy.run_path(notebook)


@pytest.mark.long
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    said = tmp_path / "said.txt"
    how = {"log": said, "folder": tmp_path, "environment": AS_FOR_READERS.get(notebook.stem)}
    process = forked.function("test_examples:run", str(notebook), **how)
    assert forked.ended([process]) == [0], said.read_text()
    assert said.read_text()
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
