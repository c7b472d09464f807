"""Pages of the site that lie elsewhere in the repository: the experiments, and the examples as notebooks.

MkDocs calls the two functions at the end, as `hooks` of mkdocs.yml says.
"""

from __future__ import annotations

import posixpath
import re
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
    text = source.read_text()
    if source.suffix == ".md":
        return text
    cells = _CELL.split(text)[1:]
    return "\n\n".join(
        _cell(kind, body.strip("\n")) for kind, body in zip(cells[::2], cells[1::2], strict=True)
    )


def _cell(kind: str, body: str) -> str:
    if "[markdown]" in kind:
        return "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines())
    return f"```python\n{body}\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from elsewhere."""
    for name, path in sources().items():
        files.append(File.generated(config, name, content=markdown(path)))
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
