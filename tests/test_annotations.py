"""Annotations are names that exist: tools, notebooks and shape checkers resolve them."""

import importlib
import inspect
import pkgutil
import typing

import pytest

import pate_jax

MODULES = [
    found.name
    for found in pkgutil.walk_packages(pate_jax.__path__, "pate_jax.")
    if not found.name.endswith("__main__")
]


def later():
    """Names that only a type checker imports, since their packages are large or may be missing."""
    import pyarrow.parquet
    from distributed import Client
    from distributed.deploy import Cluster
    from distributed.security import Security

    return {"pa": pyarrow, "Client": Client, "Cluster": Cluster, "Security": Security}


def annotated(module):
    """Each function, class and method that a module defines."""
    for value in vars(module).values():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            yield value
            yield from (member for member in vars(value).values() if inspect.isfunction(member))
        elif inspect.isfunction(inspect.unwrap(value)) and callable(value):
            yield inspect.unwrap(value)


@pytest.mark.parametrize("name", MODULES)
def test_every_annotation_resolves(name):
    for value in annotated(importlib.import_module(name)):
        typing.get_type_hints(value, localns=later())
