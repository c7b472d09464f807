"""Nets of a user's own by name: found as `package.module:Class`, and told apart by arguments and source.

Only a module that the user names is ever imported, from where Python finds modules: never from a run.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import inspect
import math
import re
import sys
from functools import lru_cache, partial
from typing import Any

import numpy as np
from flax import linen, nnx

from pate_jax.errors import PateError
from pate_jax.models.trees import flat


@lru_cache(maxsize=16)  # the same net is the same functions, so nothing is compiled again for it
def net_named(name: str, arguments: str | None, input_shape: tuple[int, ...], classes: int) -> Any:
    """The module of Flax that `package.module:Class` names, with these arguments, for this data.

    Arguments are written as in Python: `"hidden=64, rate=0.1"`. What the data say is given by itself to a
    class that takes it: `classes` or `num_classes`, `input_shape`, and `in_features` of inputs laid flat.

    >>> net_named("flax.linen:Dense", "features=3", (5,), 3).features
    3
    >>> net_named("flax.nnx:Linear", "out_features=3", (5,), 3).keywords
    {'in_features': 5, 'out_features': 3}
    """
    kind = class_named(name)
    said = {
        "classes": classes,
        "num_classes": classes,
        "input_shape": input_shape,
        "in_features": math.prod(input_shape),
    }
    taken = inspect.signature(kind.__init__).parameters
    given = {each: value for each, value in said.items() if each in taken} | parsed(arguments or "")
    if issubclass(kind, nnx.Module):
        return partial(kind, **given)
    try:
        return kind(**given)
    except TypeError as error:
        raise PateError(f"net={name!r} cannot be made ({error}): give its arguments by --net-args") from error


def class_named(name: str) -> type[Any]:
    """The class of a Flax module that `package.module:Class` names.

    >>> class_named("flax.nnx:Linear").__name__
    'Linear'
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise PateError(f"net={name!r} must be one of the names of nets, or your own as package.module:Class")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise PateError(
            f"net={name!r} cannot be loaded ({error}): install its package, or set PYTHONPATH to its folder"
        ) from error
    if not (isinstance(found, type) and issubclass(found, linen.Module | nnx.Module)):
        raise PateError(f"net={name!r} is no class of a module of flax.linen or flax.nnx")
    return found


def parsed(arguments: str) -> dict[str, Any]:
    """Arguments as Python writes them; their values are numbers, texts, tuples and the like, never code.

    >>> parsed("maps=(8, 16), rate=0.1, residual=True")
    {'maps': (8, 16), 'rate': 0.1, 'residual': True}
    """
    wanted = f"net_args={arguments!r} must be like 'hidden=64, rate=0.1'"
    try:
        call = ast.parse(f"_({arguments})", mode="eval").body
    except SyntaxError as error:
        raise PateError(f"{wanted}: {error.msg}") from error
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
        raise PateError(f"{wanted}: each needs its name")
    found = {}
    for each in call.keywords:
        try:
            found[each.arg or "**"] = ast.literal_eval(each.value)
        except ValueError as error:
            raise PateError(f"{wanted}: {each.arg} is no number, quoted text or tuple of these") from error
    return found


def named(net: Any) -> str:
    """What a net's class is called: `package.module:Class`.

    >>> named(partial(nnx.Linear, 3))
    'flax.nnx.nn.linear:Linear'
    """
    kind = _class_of(net)
    return f"{kind.__module__}:{kind.__qualname__}"


def arguments_of(net: Any) -> str:
    """The arguments of a module, as text: what a Linen module's fields say, or what a class is given.

    >>> arguments_of(partial(nnx.Linear, 3, out_features=2)), arguments_of(linen.Dropout(0.5))[:8]
    ('3, out_features=2', 'rate=0.5')
    """
    if isinstance(net, partial):
        given = [*map(repr, net.args), *(f"{name}={value!r}" for name, value in net.keywords.items())]
    elif isinstance(net, linen.Module):
        own = [one.name for one in dataclasses.fields(net) if one.init and one.name not in ("parent", "name")]
        given = [f"{name}={getattr(net, name)!r}" for name in own]
    else:
        given = []
    return re.sub(r" at 0x[0-9a-f]+", "", " ".join(", ".join(given).split()))


def source_of(net: Any) -> str:
    """The digest of the text that defines a net's class: of its module, or of itself in a script.

    What that module imports is not part of it.
    """
    kind = _class_of(net)
    module = sys.modules.get(kind.__module__)
    try:
        text = inspect.getsource(kind if module is None or kind.__module__ == "__main__" else module)
    except (OSError, TypeError):
        text = ""  # typed at a prompt
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(tree: Any) -> str:
    """The digest of all arrays of a tree and their paths."""
    found = hashlib.sha256()
    for path, leaf in flat(tree).items():
        array = np.asarray(leaf)
        found.update(f"{path} {array.dtype} {array.shape} ".encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _class_of(net: Any) -> Any:
    made = net.func if isinstance(net, partial) else net
    return made if isinstance(made, type) else type(made)
