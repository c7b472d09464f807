"""Runs a preset from the command line: every setting is a flag, and the last line is one JSON object."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Annotated, Any

from pate_jax.system import devices

devices.prepare()

import tyro  # noqa: E402
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes, arg  # noqa: E402

from experiments.presets import Preset, small  # noqa: E402
from pate_jax import accounting  # noqa: E402
from pate_jax.cli.student import REGISTRY  # noqa: E402
from pate_jax.runs import pipeline  # noqa: E402
from pate_jax.runs.directory import RunDirectory  # noqa: E402
from pate_jax.runs.report.run_pages import summary  # noqa: E402
from pate_jax.runs.settings import RunConfig  # noqa: E402
from pate_jax.system import exits, topology  # noqa: E402

After = Callable[[RunDirectory], dict[str, Any]]
_SETTINGS = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)


def main(preset: Preset, after: After | None = None, arguments: Sequence[str] | None = None) -> None:
    """Run a preset; `after` adds to its JSON line from the finished run."""
    given = sys.argv[1:] if arguments is None else arguments
    with exits.told(preset.name):
        topology.prepare(given)
        config, machines = _parse(preset, given)
        topology.enter(**machines)
        began = time.monotonic()
        results = pipeline.run(config)
        if not results:
            return  # one of several processes, and not the first
        statement = accounting.Statement.from_dict(results["statement"])
        print(summary(results, statement))
        more = after(RunDirectory(config.directory)) if after else {}
        print(json.dumps({**_line(preset, config, results), **more, **_took(began)}))


def _parse(preset: Preset, arguments: Sequence[str]) -> tuple[RunConfig, dict[str, Any]]:
    preset_or_small = small(preset.config) if "--try-out" in arguments else preset.config

    def command(
        config: Annotated[RunConfig, arg(name="")] = preset_or_small,
        try_out: bool = False,
        topology: str | None = None,
        processes: int | None = None,
        process: int | None = None,
        coordinator: str | None = None,
    ) -> tuple[RunConfig, dict[str, Any]]:
        """A preset.

        Args:
            config: the run.
            try_out: six teachers, a few steps, synthetic images: does it run? Its figures mean nothing.
            topology: the machines, by name or .toml file: cpu-8, ... (docs/start/gpus_and_clusters.md).
            processes: how many processes run this command together.
            process: which of them this is, from 0; unset: Slurm or the TPU pod tells.
            coordinator: HOST:PORT of the first one; goes with --process.
        """
        machines = {"name": topology, "coordinator": coordinator}
        return config, {**machines, "processes": processes, "process": process}

    about = f"{preset.about} Needs: {preset.needs}. In print: {preset.paper}."
    return tyro.cli(
        command,
        prog=f"experiments.{preset.name}",
        args=arguments,
        description=about,
        config=_SETTINGS,
        registry=REGISTRY,
    )


def _line(preset: Preset, config: RunConfig, results: dict[str, Any]) -> dict[str, Any]:
    figures = results["statement"]["figures"]
    names = ("dataset", "teachers", "queries", "answered", "label_accuracy", "student_accuracy", "private")
    return {
        "experiment": preset.name,
        "data": results["data"],
        **{name: results[name] for name in names},
        "teacher_accuracy": results["inside"].get("accuracy", {}).get("mean"),
        "vote_accuracy": results["inside"].get("accuracy", {}).get("plurality"),
        "delta": config.delta,
        **{f"epsilon_{name}": figure["epsilon"] for name, figure in figures.items()},
        "settings": _digest(RunDirectory(config.directory).record.stages()),
        "versions": {name: metadata.version(name) for name in ("jax", "numpy")},
    }


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _took(began: float) -> dict[str, float]:
    return {"minutes": round((time.monotonic() - began) / 60, 2)}
