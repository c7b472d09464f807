"""`pate tune`: settings chosen on private data, and paid for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes

from pate_jax.cli.output import finish
from pate_jax.errors import PateError
from pate_jax.runs.settings import CUSTOMARY_EPSILON, DataChoice
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.system import tasks
from pate_jax.system.tasks import HERE_ALONE, Where

_OWN = ("voters", "space", "encoder", "queries")  # and the settings of a student


def tune(
    data: Annotated[DataChoice, OmitArgPrefixes],
    settings: Path,
    epsilon: float = CUSTOMARY_EPSILON,
    delta: float = 1e-5,
    by: Literal["record", "user"] = "record",
    candidates: float = 10.0,
    each_once: bool = False,
    out: Path | None = None,
    seed: int | None = None,
    register: Path | None = None,
    json: bool = False,
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Choose settings on private data and pay for the choice: the best of a random number of candidates.

    Take what is free first: students are chosen from noisy answers (`pate run`), voters by a rehearsal on
    public inputs (`pate plan`). Here candidates are drawn at random from a list, a secret number of times.
    Each is a whole crowd's run with a noisy score: how many held-out voters, one in ten, agree with its
    student. Only the best is published, as it is. How long the command takes would tell how many were tried:
    start it where nobody who reads the result sees when it ends. Repeat it to go on after a stop.

    Args:
        data: which records.
        settings: a TOML file with a table [[candidate]] for each setting on the list: voters (sums or
            neighbours), and if you like space, encoder, queries and "student.method" = .. as in `pate run`.
        epsilon: what the whole choice may cost; it is the figure to publish.
        delta: the delta of the privacy statement.
        by: whom the guarantee covers: one record, or all records of one user.
        candidates: how many are tried on average; more find better settings, with more noise and time.
        each_once: try each setting once, and pay for all of them: for a list of two.
        out: the run directory; unset: runs/ and the data set's name.
        seed: make the choice reproducible and therefore NOT private.
        register: the file in which all runs on these records are entered before they spend; unset: this
            user's own; none: somebody else counts (`pate budget`).
        json: end with one JSON object in place of the summary.
        where: who makes candidates; whoever sees the workers' tasks sees how many there are.
    """
    from pate_jax.runs.tune.candidates import run

    listed = tuple(read(settings))
    config = TuneConfig(data, listed, by, seed, epsilon, delta, candidates, each_once, out, register)
    with tasks.engine(where) as engine:
        found = run(config, engine)
    finish(found, json)


def read(path: Path) -> list[Setting]:
    """The settings of a list, in its order."""
    if not path.is_file():
        raise PateError(f"--settings {path} does not exist: write a table [[candidate]] for each setting")
    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PateError(f"{path} is no TOML ({error}): write tables [[candidate]]") from error
    tables = found.pop("candidate", None)
    if found or not isinstance(tables, list) or not all(isinstance(one, dict) for one in tables):
        raise PateError(f"{path} must hold tables [[candidate]] and nothing else; it has {sorted(found)}")
    return [_setting(table, path) for table in tables]


def _setting(table: Mapping[str, Any], path: Path) -> Setting:
    """The setting of a table, by the flags of `pate run`."""
    from pate_jax.cli.student import run_of
    from pate_jax.runs.config_file import words_of

    strange = [name for name in table if name not in _OWN and not name.startswith("student.")]
    if strange or "voters" not in table:
        raise PateError(
            f"{path}: a candidate has voters, and may have {', '.join(_OWN[1:])} and settings of "
            f'"student." in quotes; this one has {", ".join(table) or "nothing"}. What holds for all, '
            "such as the data and epsilon, is given on the command line"
        )
    flags = [word for name, value in table.items() for word in words_of(name, value)]
    return Setting.of(run_of(flags, str(path)))
