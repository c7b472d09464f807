"""A run's settings as a file of flags, which `pate run --config FILE` reads: TOML, one line for each flag.

    dataset = "adult"
    epsilon = 0.5
    voters = "sums"

A mechanism is a table of that name. Flags that follow on the command line stand over those of the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs.settings import RunConfig, to_settings
from pate_jax.system import storage

_MECHANISMS = (*BY_NAME, StableAnswers.name)
_ALWAYS = ("dataset", "voters", "epsilon", "delta")  # written even if they are the defaults
_PARTS = ("data", "partition", "teacher")  # whose settings are flags without a prefix
_HEAD = "# What `pate run` did here. Repeat it with `pate run --config FILE`, and change what you like."


def write(path: Path, config: RunConfig, said: Sequence[str] = ()) -> None:
    """Write the settings that differ from the defaults, and those that everybody asks for; and why."""
    storage.write_bytes(path, text(config, said).encode())


def text(config: RunConfig, said: Sequence[str] = ()) -> str:
    """The content of such a file, with what was said of its choice as remarks.

    >>> from pate_jax.mechanisms import GNMax
    >>> print(text(RunConfig(voters="teachers", mechanism=GNMax(40.0))).partition("\\n")[2])
    dataset = "strokes"
    voters = "teachers"
    delta = 1e-05
    [mechanism]
    name = "gnmax"
    sigma = 40.0
    <BLANKLINE>
    """
    values, defaults = _flat(config), _flat(RunConfig())
    kept = {
        name: value
        for name, value in values.items()
        if value is not None and (value != defaults.get(name) or name in _ALWAYS)
    }
    ordered = {name: kept[name] for name in (*_ALWAYS, *kept) if name in kept}
    lines = [
        _HEAD,
        *(f"# {line}" for line in said),
        *(f"{json.dumps(name) if '.' in name else name} = {_toml(ordered[name])}" for name in ordered),
    ]
    if config.mechanism is not None:
        named = {name.replace("_", "-"): value for name, value in to_dict(config.mechanism).items()}
        lines += ["[mechanism]", *(f"{name} = {_toml(value)}" for name, value in named.items())]
    return "\n".join([*lines, ""])


def _flat(config: RunConfig) -> dict[str, Any]:
    """Every setting by the name of its flag, but for the mechanism."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in _PARTS:
            found |= to_settings(value)
        elif field.name == "student":
            found |= {f"student.{name}": one for name, one in to_settings(value).items()}
        elif field.name != "mechanism":
            found[field.name] = _placed(value) if isinstance(value, Path) else value
    return {name.replace("_", "-"): value for name, value in found.items()}


def _placed(path: Path) -> str:
    """A path from the root; `none`, in place of a register, is no path."""
    return str(path if path == Path("none") else path.resolve())


def _toml(value: Any) -> str:
    """A value as TOML writes it, which for these is as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def expanded(flags: Sequence[str]) -> list[str]:
    """The flags with those of the file that `--config` names in its place.

    >>> expanded(["adult", "--epsilon", "2"])
    ['adult', '--epsilon', '2']
    """
    given = list(flags)
    at = next((place for place, flag in enumerate(given) if flag.partition("=")[0] == "--config"), None)
    if at is None:
        return given
    _, joined, value = given[at].partition("=")
    if not joined and at + 1 >= len(given):
        raise PateError("--config names no file: give the config.toml of a run, or one of your own")
    path = Path(value if joined else given[at + 1])
    rest = given[:at] + given[at + (1 if joined else 2) :]
    settings = _read(path)
    own = {flag.partition("=")[0] for flag in rest if flag.startswith("-")}
    positional = bool(rest) and not rest[0].startswith("-") and rest[0] not in _MECHANISMS
    mechanism = None if {*rest} & {*_MECHANISMS} else settings.get("mechanism")
    kept = {
        name: value
        for name, value in settings.items()
        if f"--{name}" not in own and name != "mechanism" and not (positional and name == "dataset")
    }
    ends = [] if mechanism is None else _of_mechanism(mechanism, path)
    return [*_flags(kept), *rest, *ends]


def grid(path: Path) -> Iterator[list[str]]:
    """The flags of every run of a grid: those of the file, with each combination of its tables [[grid]]."""
    settings = _read(path)
    tables = settings.pop("grid", [])
    if not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise PateError(f"{path}: grid must be tables [[grid]], such as epsilon = [0.3, 1] below each")
    for table in tables or [{}]:
        lists = [value if isinstance(value, list) else [value] for value in table.values()]
        for values in itertools.product(*lists):
            one = {**settings, **dict(zip(table, values, strict=True))}
            mechanism = one.pop("mechanism", None)
            yield [*_flags(one), *([] if mechanism is None else _of_mechanism(mechanism, path))]


def _flags(settings: Mapping[str, Any]) -> list[str]:
    """The words of settings, the data set first."""
    first = [str(settings["dataset"])] if "dataset" in settings else []
    rest = (words_of(name, value) for name, value in settings.items() if name != "dataset")
    return [*first, *(word for words in rest for word in words)]


def _read(path: Path) -> dict[str, Any]:
    """The settings of a file, each by the name of its flag."""
    if not path.is_file():
        raise PateError(f"{path} does not exist: give the config.toml of a run, or a file of your own")
    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PateError(f"{path} is no TOML ({error}): write one `flag = value` a line") from error
    nested = [name for name, value in found.items() if isinstance(value, dict) and name != "mechanism"]
    if nested:
        raise PateError(
            f'{path} has a table [{nested[0]}]: flags stand by themselves, as in "student.steps" = 100, and '
            "only the mechanism is a table"
        )
    return found


def _of_mechanism(settings: Any, path: Path) -> list[str]:
    """The words that choose a mechanism."""
    if not isinstance(settings, Mapping) or settings.get("name") not in _MECHANISMS:
        raise PateError(f"{path}: a mechanism has a name, one of {', '.join(_MECHANISMS)}")
    rest = {name: value for name, value in settings.items() if name != "name"}
    return [str(settings["name"]), *(word for name, value in rest.items() for word in words_of(name, value))]


def words_of(name: str, value: Any) -> list[str]:
    """The words of one flag."""
    if isinstance(value, bool):
        return [f"--{name}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{name}", *(str(one) for one in values)]
