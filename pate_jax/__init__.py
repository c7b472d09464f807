"""Private learning with teacher ensembles (PATE): the public names, each loaded when first used."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ConfidentDiscreteGaussian": "mechanisms",
    "ConfidentGNMax": "mechanisms",
    "GNMax": "mechanisms",
    "LNMax": "mechanisms",
    "PateError": "errors",
    "RunConfig": "runs.settings",
    "Student": "student",
    "answer": "aggregate",
    "fresh_key": "aggregate",
    "load_votes": "voting",
    "run": "runs.pipeline",
    "save_votes": "voting",
    "statement": "accounting",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pate_jax.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pate_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
