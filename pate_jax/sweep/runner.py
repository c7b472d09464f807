"""The whole sweep: list the cells, judge those that are left, and write rows, plots and page."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pate_jax import voting
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.many import exact_many
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.runs.settings import STROKES, DataChoice, PartitionChoice, to_settings
from pate_jax.sweep import cells, charts, page, results, vote_sources
from pate_jax.sweep import rows as judged_rows
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.grid import Grid
from pate_jax.sweep.pareto import best, digests, told_apart, useful
from pate_jax.sweep.results import Row
from pate_jax.sweep.settings import SweepConfig
from pate_jax.sweep.vote_sources import NESTED, Ensemble, Source
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
        sources, every = inventory(config)
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
    lesson = lesson_of(config)
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


_QUERIES = 500  # that teachers of a data set are asked, where the grid does not say


def inventory(config: SweepConfig) -> tuple[list[Source], list[Cell]]:
    """The sources, and the cells of all of them; students are added to those that turn out useful."""
    grids = config.grids
    sources = list(_sources(config, grids))
    if not sources and not config.merge:
        raise PateError(
            "no source of votes: name a votes file, a run directory or a data set; or use --merge, which "
            "puts the rows of a folder together and draws its page again"
        )
    return sources, [
        cell
        for source in sources
        for seed in (config.seeds if source.seed is None else (source.seed,))
        for cell in _cells(source, grids, config.delta, seed)
    ]


def lesson_of(config: SweepConfig) -> str:
    """The digest of the students' settings, apart from their method."""
    told = to_settings(config.student).items()
    return cells.digest({name: value for name, value in told if name != "method"})


def _cells(source: Source, grids: Sequence[Grid], delta: float, seed: int) -> list[Cell]:
    asked = [
        pair
        for grid in grids
        for pair in grid.asked(source.teachers, source.classes, _sizes(grid, source), delta)
    ]
    return cells.cells_of(source.digest, source.teachers, asked, delta=delta, seed=seed)


def _sizes(grid: Grid, source: Source) -> list[int]:
    """The numbers of queries of a grid that a source has a list for."""
    if not source.whole:
        return grid.queries_for(source.available)
    named = grid.numbers_of_queries()
    return [source.available] if not named or source.available in named else []


def _sources(config: SweepConfig, grids: Sequence[Grid]) -> Iterator[Source]:
    for text in config.sources:
        path = Path(text)
        if path.exists() or path.suffix in (".npz", ".npy"):
            yield vote_sources.of_file(
                path,
                config.folder,
                config.judged_on,
                labels_are_teacher_labels=config.labels_are_teacher_labels,
                public=config.public,
                test=config.test,
            )
        else:
            yield from _of_data(config, _choice(config, text), grids)
    if config.private is not None:
        yield from _of_data(config, _choice(config, None), grids)


def _choice(config: SweepConfig, name: str | None) -> DataChoice:
    """A data set by name, or the user's own files."""
    choice = DataChoice(
        classes=config.classes,
        records=config.records,
        label_column=config.label_column,
        id_column=config.id_column,
        data_dir=config.data_dir,
        manual_dir=config.manual_dir,
        equal_rows_are_coincidences=config.equal_rows_are_coincidences,
        equal_ids_are_coincidences=config.equal_ids_are_coincidences,
    )
    if name is not None:  # all numbers of teachers divide the same records
        return dataclasses.replace(choice, dataset=name).drawn(STROKES)
    return dataclasses.replace(choice, private=config.private, public=config.public, test=config.test)


def _of_data(config: SweepConfig, choice: DataChoice, grids: Sequence[Grid]) -> Iterator[Source]:
    """Every ensemble with every list of queries; the lists of one ensemble follow each other."""
    numbers = sorted({number for grid in grids for number in grid.numbers_of_queries()}) or [_QUERIES]
    for ensemble in _ensembles(config, choice):
        for selection in dict.fromkeys(config.selections):
            for size in numbers[-1:] if selection in NESTED else numbers:
                yield vote_sources.of_ensemble(ensemble, selection, size, config.judged_on)


def _ensembles(config: SweepConfig, choice: DataChoice) -> Iterator[Ensemble]:
    for seed in dict.fromkeys(config.seeds):
        for teachers in dict.fromkeys(config.teachers):
            for told in _teachers(config):
                cut = PartitionChoice(teachers=teachers, seed=seed)
                yield Ensemble(choice, cut, told, config.folder)


def _teachers(config: SweepConfig) -> list[TeacherConfig]:
    """The teachers' settings with each net."""
    nets = dict.fromkeys(config.nets or (config.teacher.net,))
    return [dataclasses.replace(config.teacher, net=net) for net in nets]
