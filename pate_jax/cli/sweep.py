"""`pate sweep`: which setting to use, judged on votes and by students."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from tyro.conf import arg

from pate_jax.sweep import SweepConfig, page
from pate_jax.sweep import sweep as judge


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
    found = judge(config)
    if json:
        print(json_format.dumps({**found, "rows": len(found["rows"])}))
        return
    from rich.console import Console

    told, _ = page.judged(found["rows"])
    Console().print(page.terminal(found["rows"], found["front"]))
    print(f"{told}\n\nRows: {found['folder']}/results.jsonl   Page: {found['page']}")
    print(f"Picture: {found['picture']}")
