"""Figures that are kept are forgotten when a test patches code that they follow from, and when it ends."""

import ast
import functools
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
BELOW = ("accounting", "mechanisms", "errors", "system.headcount", "system.progress")  # figures follow from
# Libraries that these rooms do not compute with.
UNUSED = {"jax", "jaxlib", "matplotlib", "os", "sys", "io", "time", "shutil", "subprocess", "socket"}


def install() -> None:
    """Let every `MonkeyPatch` forget what follows from a patch, and again after it is undone."""
    patch, undo = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo

    def setattr(self, target, *rest, **more):
        patch(self, target, *rest, **more)
        if reaches(target):
            self.reaches = {*getattr(self, "reaches", ()), _place(target)}
            figures(_place(target))

    def undone(self):
        undo(self)
        for place in getattr(self, "reaches", ()):
            figures(place)

    pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo = setattr, undone


def figures(place: str) -> None:
    """Empty the caches of the accountant's modules that are loaded and need this module, or library."""
    loaded = [one for one in list(sys.modules.items()) if one[0].startswith("pate_jax.accounting")]
    ours = bool(loaded) and place in _imports()  # which takes half a second to find out, once
    for name, module in loaded:
        if not ours or place in _needed(name):
            for kept in list(vars(module).values()):
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def reaches(target: object) -> bool:
    """Whether figures may follow from what is patched: from our rooms below them, or from a library."""
    first, _, rest = _place(target).partition(".")
    if first != "pate_jax":
        return first not in UNUSED
    return not rest or any(f"{rest}.".startswith(f"{one}.") for one in BELOW)


def _place(target: object) -> str:
    """The module of what is patched; of the name of a thing, the longest part that is a module of ours."""
    if isinstance(target, str):
        while target not in _imports() and "." in target:
            target = target.rpartition(".")[0]
        return target
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", type(target).__module__))


@functools.cache
def _needed(name: str) -> frozenset[str]:
    """A module and all modules of ours that it needs, however indirectly."""
    found, new = set(), {name}
    while new:
        found |= new
        new = {one for each in new for one in _imports().get(each, ())} - found
    return frozenset(found)


@functools.cache
def _imports() -> dict[str, set[str]]:
    """The modules of the package, and which of them each imports, wherever in its text."""
    files = {_name(path): path for path in (ROOT / "pate_jax").rglob("*.py")}
    found = {}
    for name, path in files.items():
        nodes = ast.walk(ast.parse(path.read_text())) if _is_below(name) else ()
        pairs = [
            (node.module, one.name)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            for one in node.names
        ]
        found[name] = {f"{place}.{one}" if f"{place}.{one}" in files else place for place, one in pairs}
    return found


def _is_below(name: str) -> bool:
    return any(f"{name}.".startswith(f"pate_jax.{one}.") for one in BELOW)


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
