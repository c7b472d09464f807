"""The whole sweep: list the cells, judge those that are left, and write rows, plots and page."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pate_jax import voting
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.many import exact_many
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.sweep import cells, charts, inventory, page, results
from pate_jax.sweep import rows as judged_rows
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.pareto import best, digests, told_apart, useful
from pate_jax.sweep.results import Row
from pate_jax.sweep.settings import SweepConfig
from pate_jax.sweep.vote_sources import Source
from pate_jax.system import progress, storage

Asked = list[tuple[Mechanism, int]]
Digests = dict[tuple[Mechanism, int], list[str]]
_PICTURE = "plots/accuracy.svg"


def sweep(config: SweepConfig) -> dict[str, Any]:
    """Do what is left of a sweep's shard, and return the results of all shards so far."""
    shard = cells.parse_shard(config.shard)
    _check_folder(config)
    path = results.file_of(config.folder, shard)
    with results.writing(path):
        sources, every = inventory.of(config)
        mine = cells.shard_of(every, shard)
        done = results.read(config.folder)
        _judge(sources, [cell for cell in mine if cell.digest not in done], path)
        mine += _taught(config, sources, mine, path)
        _declare(sources, mine, done, path)
        _add_exact(config, sources, mine, path)
    if config.merge:
        results.merge(config.folder)
    rows = told_apart(results.read(config.folder).values())
    if not rows:
        raise PateError(f"{config.folder} holds no rows of a sweep: --out must name the folder of one")
    _draw(config, rows)
    return {
        "folder": str(config.folder),
        "page": str(config.folder / "sweep.html"),
        "picture": str(config.folder / _PICTURE),
        "cells": len(mine),
        "done_before": sum(cell.digest in done for cell in mine),
        "students": sum(cell.student is not None for cell in mine),
        "rows": rows,
        "front": best(rows),
    }


def _judge(sources: Sequence[Source], left: Sequence[Cell], path: Path) -> None:
    """Answers and costs of the cells that are left, source after source."""
    for source in sources:
        these = [cell for cell in left if cell.source == source.digest]
        if these:
            judged_rows.judge(source, these, source.votes(), lambda rows: results.append(path, rows))


def _taught(config: SweepConfig, sources: Sequence[Source], mine: Sequence[Cell], path: Path) -> list[Cell]:
    """Train the students that are left of the useful settings among these, and return the cells of all."""
    if not config.students or not mine:
        return []
    rows = results.read(config.folder)
    settings = useful(rows[cell.digest] for cell in mine)
    chosen = _with_students(config, settings, {cell.digest: cell for cell in mine})
    left = [(student, rows[plain.digest]) for plain, student in chosen if student.digest not in rows]
    if not chosen:
        progress.warn(
            f"none of {len(mine)} settings gives answers that are worth a student, or --most-students allows "
            "for none: give more teachers, a larger epsilon or fewer queries"
        )
        return []
    progress.say(
        f"students: {len(chosen)} ({', '.join(config.students)}) for the most useful of {len(mine)} "
        f"settings; {len(chosen) - len(left)} were trained before"
    )
    with progress.bar("students", total=len(chosen)) as done:
        done.advance(len(chosen) - len(left), found=True)
        for source in sources:
            these = [(cell, row) for cell, row in left if cell.source == source.digest]
            if these:
                judged_rows.teach(
                    source, these, config.student, lambda lines: results.append(path, lines), done
                )
    return [student for _, student in chosen]


def _with_students(
    config: SweepConfig, settings: Sequence[Row], cell_of: Mapping[str, Cell]
) -> list[tuple[Cell, Cell]]:
    """Each setting's cells, and the same with each student, as long as the limit allows for all of them."""
    chosen: list[tuple[Cell, Cell]] = []
    lesson = inventory.lesson_of(config)
    for row in settings:
        plain = [cell_of[digest] for digest in digests(row)]
        pairs = [(cell, cell.taught(name, lesson)) for cell in plain for name in config.students]
        if config.most_students is not None and len(chosen) + len(pairs) > config.most_students:
            break
        chosen += pairs
    return chosen


def _check_folder(config: SweepConfig) -> None:
    """Before anything is written, refuse what is no folder, or no sweep to merge."""
    if config.folder.exists() and not config.folder.is_dir():
        raise PateError(f"{config.folder} is a file; --out must name a folder for the sweep")
    if config.merge and not config.sources and config.private is None and not config.folder.exists():
        raise PateError(f"there is no {config.folder}: with --merge, --out must name the folder of a sweep")


def _declare(sources: Sequence[Source], mine: Sequence[Cell], done: Mapping[str, Row], path: Path) -> None:
    """Record the present `judged_on` for cells that were judged before under another."""
    kinds = {source.digest: source.judged_on for source in sources}
    results.append(
        path,
        [
            {
                "cell": cell.digest,
                "judged_on": kinds[cell.source],
                "declared": done[cell.digest].get("declared", 0) + 1,
            }
            for cell in mine
            if cell.digest in done and done[cell.digest]["judged_on"] != kinds[cell.source]
        ],
    )


def _add_exact(config: SweepConfig, sources: Sequence[Source], mine: Sequence[Cell], path: Path) -> None:
    """Add the exact epsilon to the wanted cells of this shard that lack it, one by one."""
    if config.exact == "none":
        return
    rows = results.read(config.folder)
    chosen = best(rows.values()) if config.exact == "front" else rows.values()
    wanted = {digest for row in chosen for digest in digests(row)}
    alone = threading.Lock()
    for source in sources:
        left = [
            cell
            for cell in mine
            if cell.source == source.digest and cell.digest in wanted and "exact" not in rows[cell.digest]
        ]
        settings: Asked = list(dict.fromkeys((cell.mechanism, cell.queries) for cell in left))
        of_setting: Digests = {}
        for cell in left:
            of_setting.setdefault((cell.mechanism, cell.queries), []).append(cell.digest)

        def keep(
            place: int, cost: Epsilon, settings: Asked = settings, of_setting: Digests = of_setting
        ) -> None:
            exact = float(cost.epsilon) if math.isfinite(float(cost.epsilon)) else None
            order = None if cost.order is None else float(cost.order)
            new = [
                {"cell": digest, "exact": exact, "exact_order": order}
                for digest in of_setting[settings[place]]
            ]
            with alone:
                results.append(path, new)

        if settings:
            mechanisms, asked = [one for one, _ in settings], [number for _, number in settings]
            exact_many(mechanisms, source.votes().votes, config.delta, queries=asked, done=keep)


def _draw(config: SweepConfig, rows: Sequence[Row]) -> None:
    """Write the plots and the page of all rows."""
    chosen = best(rows)
    middle = chosen[len(chosen) // 2] if chosen else rows[0]
    cached = config.folder / "votes" / f"{middle['votes']}.npz"
    with_queries = None
    if cached.exists():
        votes = voting.load_votes(cached).votes
        with_queries = charts.queries(middle, votes, exact=config.exact != "none")
    figures = {
        _PICTURE: (charts.CAPTION, charts.accuracy(rows)),
        "plots/thresholds.svg": (
            "Answered, and answered and right, against the threshold (means over the other settings).",
            charts.thresholds(rows),
        ),
        "plots/queries.svg": (
            f"What {page.setting(middle)} costs, by queries and way of accounting.",
            with_queries,
        ),
    }
    for name, (_, svg) in figures.items():
        if svg is not None:
            storage.write_bytes(config.folder / name, svg, mode=0o600)
    told = page.page(rows, chosen, list(figures.values()))
    storage.write_bytes(config.folder / "sweep.html", told.encode(), mode=0o600)
