"""Writes docs/api.md from the docstrings of pate_jax, by reading the source: `python docs/build_api.py`.

With `--check` it writes nothing, and fails where the page is not what it would write.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "api.md"
_HEAD = """# API

The public functions and classes of `pate_jax`, from their docstrings; `help()` tells the rest, with examples.
Of a package only what it exports is listed. Written by `python docs/build_api.py`; do not edit.
"""
_Definition = ast.FunctionDef | ast.ClassDef


def build() -> str:
    """The whole page."""
    package = ROOT / "pate_jax"
    files = [*package.glob("*.py"), *package.glob("*/__init__.py")]
    files = [path for path in files if path.parent.name != "cli"]
    named = sorted(files, key=lambda path: path.parts)
    return "\n".join([_HEAD, *(section for path in named if (section := _module(path)))])


def _module(path: Path) -> str:
    tree = ast.parse(path.read_text())
    public = [*_defined(tree), *(_exported(tree) if path.parent != ROOT / "pate_jax" else [])]
    if not public:
        return ""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    rows = [line for node in public for line in _entry(node)]
    return "\n".join([f"## {name}", "", _first(tree), "", *rows, ""])


def _defined(tree: ast.Module) -> list[_Definition]:
    return [node for node in tree.body if isinstance(node, _Definition) and not node.name.startswith("_")]


def _exported(tree: ast.Module) -> Iterator[_Definition]:
    """What a package takes from its own modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pate_jax."):
            wanted = {alias.name for alias in node.names}
            source = (ROOT / str(node.module).replace(".", "/")).with_suffix(".py")
            if source.is_file():
                tree = ast.parse(source.read_text())
                wanted = _public_names(tree) if wanted == {"*"} else wanted
                yield from (one for one in _defined(tree) if one.name in wanted)


def _public_names(tree: ast.Module) -> set[str]:
    """What a module lists in `__all__`."""
    lists = [node.value for node in tree.body if isinstance(node, ast.Assign) and "__all__" in _targets(node)]
    return {name for listed in lists for name in ast.literal_eval(listed)}


def _targets(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _entry(node: _Definition, indent: str = "") -> Iterator[str]:
    about = _first(node)
    yield f"{indent}- `{_signature(node)}`" + (f": {about}" if about else "")
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("_"):
                yield from _entry(inner, indent + "  ")


def _signature(node: _Definition) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})" if bases else f"class {node.name}"
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){returned}".replace("\n", " ")


def _first(node: _Definition | ast.Module) -> str:
    """The first paragraph of a docstring, on one line."""
    text = (ast.get_docstring(node) or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is up to date; the exit code."""
    if arguments != ["--check"]:
        TARGET.write_text(build())
        return 0
    if TARGET.read_text() == build():
        return 0
    print(f"{TARGET.relative_to(ROOT)} is not up to date: run `python docs/build_api.py`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
