"""The shapes in signatures, checked while tests run: beartype on those annotations alone.

All others are mypy's matter: a wrong type at the border has to end in a PateError, which tests look for.
"""

import functools
import inspect
import re
from collections import Counter
from pathlib import Path

import jaxtyping
from beartype import beartype

PACKAGE = Path(__file__).parents[1] / "pate_jax"
OFTEN = 20  # calls with arguments alike that are checked; a check takes longer than many functions


def install() -> None:
    """Hold the modules that name shapes; a wrapper around every function would slow all others down."""
    named = [path for path in PACKAGE.rglob("*.py") if "jaxtyping" in path.read_text()]
    parts = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in named]
    modules = [".".join(each).removesuffix(".__init__") for each in parts]
    jaxtyping.install_import_hook(modules, "shapes.check")
    jaxtyping.jaxtyped = _where_named(jaxtyping.jaxtyped)  # which the hook puts on every function there


def _where_named(jaxtyped):
    """What leaves functions alone that name no shape: each call of a wrapped one binds all its arguments."""

    @functools.wraps(jaxtyped)
    def decorate(*function, **how):
        if not function:
            return functools.partial(decorate, **how)
        if _names_no_shape(*function):
            return function[0]
        checked = jaxtyped(*function, **how)
        return _often(*function, checked) if inspect.isfunction(*function) else checked

    return decorate


def _often(function, checked):
    """The checked function, and after many calls with arguments alike the function as it is written."""
    calls = Counter()

    @functools.wraps(function)
    def call(*given, **named):
        alike = (*map(_form, given), *((name, _form(each)) for name, each in named.items()))
        if calls[alike] >= OFTEN:
            return function(*given, **named)
        result = checked(*given, **named)
        calls[alike] += 1
        return result

    return call


def _form(given):
    """What decides whether shapes fit: those of arrays, and whole numbers, which may name a length."""
    if isinstance(given, tuple | list):
        return type(given), *map(_form, given)
    if isinstance(given, int):
        return given
    shape = getattr(given, "shape", None)
    return (type(given), shape, getattr(given, "dtype", None)) if isinstance(shape, tuple) else type(given)


def _names_no_shape(function):
    if not inspect.isfunction(function):
        return False
    known = function.__globals__
    words = re.findall(r"\w+", " ".join(map(str, function.__annotations__.values())))
    return not any("jaxtyping" in repr(known.get(word, "")) for word in words)


def check(function):
    """What jaxtyping's import hook calls with a function that has the signature of one of ours."""
    hints = {name: hint for name, hint in function.__annotations__.items() if "jaxtyping." in repr(hint)}
    function.__annotations__ = hints
    return beartype(function) if hints else function
