"""The flags of a student: `--student.method NAME`, and a flag for each setting of any method.

tyro would make a subcommand of each method. Here one flag chooses it, and a setting that it does not take is
refused with the methods that do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal

import tyro
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes
from tyro.constructors import (
    MISSING_NONPROP,
    ConstructorRegistry,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from pate_jax.runs.settings import RunConfig
from pate_jax.student.settings import KINDS, Settings, StudentConfig, named, names, with_method

REGISTRY = ConstructorRegistry()


@REGISTRY.struct_rule
def rule(info: StructTypeInfo) -> StructConstructorSpec | None:
    """How tyro reads a student's settings: flags over those of a default."""
    default = info.default
    if not isinstance(default, Settings):
        return None
    flags = {flag.name: flag for kind in KINDS.values() for flag in _flags(kind, default)}
    methods: Any = Literal[tuple(KINDS)]
    help_text = "; ".join(f"{name}: {_first_line(kind)}" for name, kind in KINDS.items())
    method = StructFieldSpec("method", methods, default.method, help_text)
    shown = {name: flag.default for name, flag in flags.items()}

    def choose(method: str, **values: Any) -> StudentConfig:
        return chosen(default, method, {name: v for name, v in values.items() if v != shown[name]})

    return StructConstructorSpec(choose, (method, *flags.values()))


def chosen(default: Settings, method: str, given: dict[str, Any]) -> StudentConfig:
    """The settings of a method: those that were given, over those of the default that it takes too.

    >>> from pate_jax.student import Auto
    >>> chosen(Auto(steps=9), "vat", {"radius": 0.1}).steps
    9
    """
    base = with_method(default, method)
    kept = {name: getattr(base, name) for name in names(type(base))}
    return named(method, **{**kept, **given})


def _flags(kind: type[Settings], default: Settings) -> list[StructFieldSpec]:
    """One for each setting of a method, as tyro makes them, with the default's value where it has one."""
    spec = ConstructorRegistry.get_struct_spec(StructTypeInfo.make(kind, MISSING_NONPROP, False))
    if not isinstance(spec, StructConstructorSpec):
        raise TypeError(f"{kind.__name__} is no dataclass")
    known = {name: getattr(default, name) for name in names(type(default))}
    return [dataclasses.replace(flag, default=known.get(flag.name, flag.default)) for flag in spec.fields]


def _first_line(kind: type[Settings]) -> str:
    return (kind.__doc__ or "").partition("\n")[0].rstrip(".")


def run_of(flags: Sequence[str], file: str) -> RunConfig:
    """The run that the flags of a file ask for."""
    config = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)
    return tyro.cli(RunConfig, prog=file, args=list(flags), config=config, registry=REGISTRY)
