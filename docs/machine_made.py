"""The pages of docs/reference that a program writes: `python docs/machine_made.py`.

commands.md shows what `pate COMMAND --help-all` prints, for every command. settings.md lists the fields of
the settings' classes, with their defaults and docstrings. names.md lists the names to build on.
tests/test_docs.py compares all three with what is on disk.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SETTINGS = (
    "runs/settings.py",
    "ensemble/settings.py",
    "student/settings.py",
    "baselines/dpsgd/settings.py",
    "mechanisms/descriptions.py",
)
NAMES = {
    "": "run PateClassifier RunConfig PateError PateWarning load_votes save_votes GNMax "
    "ConfidentGNMax LNMax ConfidentDiscreteGaussian fresh_key answer statement Student",
    "data": "load from_files Dataset",
    "data.partition": "divide",
    "models": "build model_of Model",
    "ensemble": "TeacherConfig fit predict vote Teachers shards_of functions",
    "voting": "histogram Votes",
    "mechanisms": "DiscreteGaussianMax",
    "aggregate": "Answers",
    "accounting": "epsilon calibrate plan",
    "student": "PublicInputs fit fit_net Own",
}  # the names to build on, by module; forty at most
_COLUMNS = "100"  # of every help
_COMMANDS = """# Commands

For somebody who looks a flag up: what `pate COMMAND --help-all` prints. `pate COMMAND --help` shows the flags
that most people use. This page is written by `python docs/machine_made.py`.
"""
_SETTINGS = """# Settings

For somebody who looks a default up: the fields of the classes that flags are made from. `None` means that a
rule or a recipe decides. This page is written by `python docs/machine_made.py`, from the docstrings.
"""
_NAMES = """# The public names

For somebody who builds on the package: the names that stay, each with an example in its docstring that the
tests run. What a room exports beyond them may change between minor versions, and CHANGELOG.md says how. This
page is written by `python docs/machine_made.py`.
"""


def commands() -> str:
    """The page of all commands and flags."""
    from pate_jax import cli

    index = [
        f"- [`pate {name}`](#pate-{name.replace(' ', '-')}): {one.summary}"
        for name, one in cli.COMMANDS.items()
    ]
    pages = [f"## pate {name}\n\n```text\n{help_of(name)}\n```" for name in cli.COMMANDS]
    return "\n\n".join([_COMMANDS.rstrip(), "\n".join(index), *pages]) + "\n"


def help_of(name: str) -> str:
    """What the command prints with --help-all, at a fixed width and without paths of this machine."""
    from pate_jax import cli

    page, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _COLUMNS
    try:
        with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
            cli.main([*name.split(), "--help-all"])
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)
    return "\n".join(line.rstrip() for line in page.getvalue().strip().splitlines())


def settings() -> str:
    """The page of all settings, read from the source."""
    parts = [_SETTINGS.rstrip()]
    for file in SETTINGS:
        tree = ast.parse((ROOT / "pate_jax" / file).read_text())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        parts += [_section(file, node, rows) for node in classes if (rows := _rows(node))]
    return "\n\n".join(parts) + "\n"


def _section(file: str, node: ast.ClassDef, rows: list[str]) -> str:
    what = (ast.get_docstring(node) or "").partition("\n\n")[0].replace("\n", " ")
    return f"## {node.name}\n\n{what} (`{file}`)\n\n" + "\n".join(rows)


def _rows(node: ast.ClassDef) -> list[str]:
    """A table of the fields that have a docstring."""
    rows = []
    for field, after in zip(node.body, node.body[1:], strict=False):
        told = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and told:
            default = "required" if field.value is None else f"`{ast.unparse(field.value)}`"
            text = re.sub(r"\s+", " ", str(after.value.value)).replace("|", "\\|")
            rows.append(f"| `{ast.unparse(field.target)}` | {default.replace('|', chr(92) + '|')} | {text} |")
    return ["| field | unset | meaning |", "|---|---|---|", *rows] if rows else []


def names() -> str:
    """The page of the names to build on, each with the first line of its docstring."""
    rows = ["| Name | What it is |", "|---|---|"]
    for module, those in NAMES.items():
        home = importlib.import_module(f"pate_jax.{module}".rstrip("."))
        for name in those.split():
            told = (inspect.getdoc(getattr(home, name)) or "").partition("\n\n")[0].replace("\n", " ")
            rows.append(f"| `{home.__name__}.{name}` | {told.replace('|', chr(92) + '|')} |")
    return "\n\n".join([_NAMES.rstrip(), "\n".join(rows)]) + "\n"


PAGES = {"commands.md": commands, "settings.md": settings, "names.md": names}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
