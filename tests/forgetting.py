"""Figures that are kept are forgotten when a test patches code that they follow from, and when it ends."""

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

BELOW = ("accounting", "mechanisms", "errors", "system.headcount", "system.progress")  # figures follow from
UNUSED = ("jax", "jaxlib", "matplotlib")  # libraries that these rooms do not compute with


def install(forget: Callable[[], None]) -> None:
    """Let every `MonkeyPatch` call `forget` after such a patch, and after it is undone."""
    patch, undo = pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo

    def setattr(self, target, *rest, **more):
        patch(self, target, *rest, **more)
        if reaches(target):
            self.reaches_figures = True
            forget()

    def undone(self):
        undo(self)
        if getattr(self, "reaches_figures", False):
            forget()

    pytest.MonkeyPatch.setattr, pytest.MonkeyPatch.undo = setattr, undone


def all_figures() -> None:
    """Empty the caches of the accountant's modules that are loaded."""
    for name, module in list(sys.modules.items()):
        if name.startswith("pate_jax.accounting."):
            for kept in list(vars(module).values()):
                if hasattr(kept, "cache_clear"):
                    kept.cache_clear()


def reaches(target: object) -> bool:
    """Whether figures may follow from what is patched: from our rooms below them, or from a library."""
    first, _, rest = (target if isinstance(target, str) else _module(target)).partition(".")
    if first != "pate_jax":
        return first not in UNUSED
    return not rest or any(f"{rest}.".startswith(f"{one}.") for one in BELOW)


def _module(target: object) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    return str(getattr(target, "__module__", type(target).__module__))
