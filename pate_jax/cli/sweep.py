"""`pate sweep`: which setting to use, judged on votes and by students, or by whole runs."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from pate_jax.sweep import SweepConfig, page
from pate_jax.sweep import sweep as judge
from pate_jax.system import tasks


def sweep(config: Annotated[SweepConfig, arg(name="")], json: bool = False) -> None:
    """Cross teachers, nets, queries, noise and students: what each setting gives, and what it costs.

    Teachers are trained once and vote once on each list of queries; students learn where the answers are
    worth it. The picture shows accuracy against publishable epsilon, a line for each number of teachers.
    Repeat the same command to go on after a stop; a finished cell is never done again. What is written is
    as sensitive as the votes: keep the folder inside.

    Args:
        config: the sweep.
        json: print one JSON object in place of the table.
    """
    whole = config.runs is not None
    found = _of_runs(config, config.runs) if config.runs is not None else judge(config)
    if json:
        print(json_format.dumps({**found, "rows": len(found["rows"])}))
        return
    from rich.console import Console

    if whole:
        Console().print(page.of_runs(found["rows"]))
        print(f"{found['runs']} runs, of which {found['refused']} were refused.")
        print(f"Rows: {found['folder']}/results.jsonl   Runs: {found['folder']}/runs")
    else:
        told, _ = page.judged(found["rows"])
        Console().print(page.terminal(found["rows"], found["front"]))
        print(f"{told}\n\nRows: {found['folder']}/results.jsonl   Page: {found['page']}")
    print(f"Picture: {found['picture']}")


def _of_runs(config: SweepConfig, file: Path) -> dict[str, Any]:
    """Do the runs of a grid."""
    from pate_jax.cli.student_flags import run_of
    from pate_jax.runs import config_file
    from pate_jax.sweep import whole_runs

    configs = [run_of(flags, str(file)) for flags in config_file.grid(file)]
    with tasks.engine(config.where) as engine:
        return whole_runs.sweep(configs, config.folder, engine)
