"""`python -m experiments.sweep mnist`: student accuracy against publishable epsilon, by number of teachers.

Closed-form teachers and ridge students, in minutes on two cores; `presets.SWEEPS` says what is swept. Every
setting is a flag of `pate sweep`. Repeat a command to continue it; the last line is one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

from pate_jax.system import devices

devices.prepare()

import tyro  # noqa: E402
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes, arg  # noqa: E402

from experiments.presets import SWEEPS, SweepPreset  # noqa: E402
from pate_jax.cli.student import REGISTRY  # noqa: E402
from pate_jax.errors import PateError  # noqa: E402
from pate_jax.sweep import SweepConfig, sweep  # noqa: E402
from pate_jax.system import exits  # noqa: E402

_SETTINGS = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sweep of a data set."""
    name, *flags = (sys.argv[1:] if arguments is None else arguments) or [""]
    with exits.told("sweep"):
        if name not in SWEEPS:
            raise PateError(f"sweep {name!r} is unknown; choose one of {', '.join(SWEEPS)}")
        began = time.monotonic()
        found = sweep(_parse(name, SWEEPS[name], flags))
        minutes = round((time.monotonic() - began) / 60, 2)
        print(f"Picture: {found['picture']}   Page: {found['page']}")
        print(json.dumps({"experiment": f"sweep {name}", **_line(found), "minutes": minutes}))


def _parse(name: str, preset: SweepPreset, flags: Sequence[str]) -> SweepConfig:
    def command(config: Annotated[SweepConfig, arg(name="")] = preset.config) -> SweepConfig:
        return config

    return tyro.cli(
        command,
        prog=f"experiments.sweep {name}",
        args=flags,
        description=f"{(__doc__ or '').partition(chr(10))[0]} A GPU adds {preset.gpu}.",
        config=_SETTINGS,
        registry=REGISTRY,
    )


def _line(found: dict[str, Any]) -> dict[str, Any]:
    """The counts, where the picture lies, and the front: epsilon, teachers, queries, accuracy in percent."""
    names = ("cells", "done_before", "students", "page", "picture")
    front = [
        {
            "epsilon": round(row["data_independent"], 4),
            "teachers": row["teachers"],
            "queries": row["queries"],
            "student": row["student"],
            "accuracy": round(100 * (row["student_accuracy"] or row["label_accuracy"]), 2),
        }
        for row in found["front"]
    ]
    versions = {name: metadata.version(name) for name in ("jax", "numpy")}
    return {**{name: found[name] for name in names}, "front": front, "versions": versions}


if __name__ == "__main__":
    main()
