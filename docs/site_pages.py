"""Pages of the site that lie elsewhere in the repository: the experiments, and the examples.

Each example is a page, and a notebook to load down, made of the same cells.

MkDocs calls the two functions at the end, as `hooks` of mkdocs.yml says.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s:]+?)(#[^)\s]*)?\)")


def sources() -> dict[str, Path]:
    """Where each added page comes from, by its name on the site."""
    examples = {f"examples/{path.stem}.md": path for path in sorted(ROOT.glob("examples/*.py"))}
    return {"experiments.md": ROOT / "experiments" / "README.md", **examples}


def markdown(source: Path) -> str:
    """A page as it is, or a notebook in percent format as one: its text, and its code in blocks."""
    if source.suffix == ".md":
        return source.read_text()
    found = [body if kind == "markdown" else f"```python\n{body}\n```" for kind, body in cells(source)]
    return "\n\n".join([*found, f"[The same as a notebook]({source.stem}.ipynb)"])


def notebook(source: Path) -> str:
    """An example as a notebook of Jupyter."""
    made = [
        {"cell_type": kind, "metadata": {}, "source": body.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for kind, body in cells(source)
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(whole, indent=1)


def cells(source: Path) -> Iterator[tuple[str, str]]:
    """The cells of an example in percent format: `markdown` or `code`, and what is in each."""
    parts = _CELL.split(source.read_text())[1:]
    for kind, body in zip(parts[::2], parts[1::2], strict=True):
        if "[markdown]" in kind:
            lines = (line.removeprefix("#").removeprefix(" ") for line in body.strip("\n").splitlines())
            yield "markdown", "\n".join(lines)
        else:
            yield "code", body.strip("\n")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere."""
    for name, path in sources().items():
        files.append(File.generated(config, name, content=markdown(path)))
        if path.suffix == ".py":
            files.append(File.generated(config, f"{name.removesuffix('.md')}.ipynb", content=notebook(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between files of the repository become links between pages of the site."""
    pages = {source: name for name, source in sources().items()}
    here = sources().get(page.file.src_uri, ROOT / "docs" / page.file.src_uri).parent

    def link(match: re.Match[str]) -> str:
        target, anchor = (here / match[1]).resolve(), match[2] or ""
        name = pages.get(target)
        if name is None and target.is_relative_to(ROOT / "docs"):
            name = target.relative_to(ROOT / "docs").as_posix()
        if name is None or not target.is_file():
            return match[0]
        folder = posixpath.dirname(page.file.src_uri)
        return f"]({posixpath.relpath(name, folder or '.')}{anchor})"

    return _LINK.sub(link, markdown)
