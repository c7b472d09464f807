"""The whole sweep: list the cells, judge those that are left, and write rows, plots and page."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pate_jax import voting
from pate_jax.accounting.many import exact_many
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.runs.settings import STROKES, DataChoice, PartitionChoice, to_settings
from pate_jax.sweep import cells, charts, page, results, vote_sources
from pate_jax.sweep import rows as judged_rows
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.grid import Grid
from pate_jax.sweep.pareto import best, compared, digests, told_apart, useful
from pate_jax.sweep.results import Row, Rows
from pate_jax.sweep.rows import Judged, Taught
from pate_jax.sweep.settings import SweepConfig
from pate_jax.sweep.vote_sources import NESTED, Ensemble, ListVotes, Source
from pate_jax.system import progress, storage, tasks
from pate_jax.system.tasks import Engine

if TYPE_CHECKING:
    from distributed import Client

_TOGETHER, _EXACT = 125, 8  # settings that are judged, and whose exact epsilon is found, at a time
_PICTURE = "plots/accuracy.svg"


def sweep(config: SweepConfig, client: Client | None = None) -> dict[str, Any]:
    """Do what is left of a sweep and return its results; a Dask `client` of yours may share the work."""
    if config.folder.exists() and not config.folder.is_dir():
        raise PateError(f"{config.folder} is a file; --out must name a folder for the sweep")
    path = results.file_of(config.folder)
    with results.writing(path):
        sources, mine = inventory(config)
        done = results.read(config.folder)
        private = any(source.judged_on == "private" for source in sources)
        with tasks.engine(config.where, client, private=private) as engine:
            _judge(engine, sources, mine, done, path)
            mine += _taught(engine, config, sources, mine, path)
            _declare(sources, mine, done, path)
            _add_exact(engine, config, sources, mine, path)
    rows = compared(told_apart(_in_order(results.read(config.folder), mine)), config.metric)
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


def _in_order(rows: Rows, mine: Sequence[Cell]) -> list[dict[str, Any]]:
    """The rows of this grid in its order, whoever was first, and those of earlier grids behind them."""
    first = dict.fromkeys(cell.digest for cell in mine)
    return [rows[digest] for digest in first] + [row for cell, row in rows.items() if cell not in first]


def _judge(
    engine: Engine, sources: Sequence[Source], mine: Sequence[Cell], done: Mapping[str, Row], path: Path
) -> None:
    """Answers and costs of the cells that are left: all lists of an ensemble together, a file in parts.

    The last bit of a cost may depend on the settings that it is computed with. So parts follow from the grid
    alone, and a part of which something is left is judged as a whole.
    """
    together: dict[object, list[Judged]] = {}
    for source in sources:
        every = [cell for cell in mine if cell.source == source.digest]
        listed = source.origin if isinstance(source.origin, ListVotes) else None
        for place, some in enumerate(tasks.parts(every, _TOGETHER)):
            if any(cell.digest not in done for cell in some):
                alone = listed.ensemble.digest if listed else (source.digest, place)
                together.setdefault(alone, []).append(Judged(source, some))
    items = list(together.values())
    with progress.bar("settings", total=len(mine)) as steps:
        steps.advance(len(mine) - sum(len(some) for item in items for _, some in item), found=True)
        for place, rows in engine.each(judged_rows.judge, items):
            results.append(path, [row for row in rows if row["cell"] not in done])
            one = items[place][0].source
            steps.advance(len(rows), note=f"{one.name}, {one.teachers} teachers")


def _taught(
    engine: Engine, config: SweepConfig, sources: Sequence[Source], mine: Sequence[Cell], path: Path
) -> list[Cell]:
    """Train the students that are left of the useful settings among these, and return the cells of all."""
    if not config.students or not mine:
        return []
    rows = results.read(config.folder)
    settings = useful(rows[cell.digest] for cell in mine)
    chosen = _with_students(config, settings, {cell.digest: cell for cell in mine})
    if not chosen:
        progress.warn(
            f"none of {len(mine)} settings gives answers that are worth a student, or --most-students allows "
            "for none: give more teachers, a larger epsilon or fewer queries"
        )
        return []
    left = [
        Taught(source, student, rows[plain.digest], config.student, config.positive)
        for source in sources  # one after another, since their inputs are opened once for all of them
        for plain, student in chosen
        if student.source == source.digest and student.digest not in rows
    ]
    progress.say(
        f"students: {len(chosen)} ({', '.join(config.students)}) for the most useful of {len(mine)} "
        f"settings; {len(chosen) - len(left)} were trained before"
    )
    with progress.bar("students", total=len(chosen)) as steps:
        steps.advance(len(chosen) - len(left), found=True)
        for place, row in engine.each(judged_rows.teach, left):
            results.append(path, [row])
            one = left[place]
            steps.advance(note=f"{one.source.name}, {one.source.teachers} teachers, {one.cell.student}")
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


def _declare(sources: Sequence[Source], mine: Sequence[Cell], done: Mapping[str, Row], path: Path) -> None:
    """Record the present `judged_on` for cells that were judged before under another."""
    kinds = {source.digest: source.judged_on for source in sources}
    results.append(
        path,
        [
            {"cell": cell.digest, "judged_on": kinds[cell.source]}
            for cell in mine
            if cell.digest in done and done[cell.digest]["judged_on"] != kinds[cell.source]
        ],
    )


class Exact(NamedTuple):
    """Settings of one source, whose exact epsilon is wanted."""

    source: Source
    settings: list[tuple[Mechanism, int]]
    delta: float


def exact(one: Exact) -> list[tuple[float | None, float | None]]:
    """The exact epsilon of each setting, and its order."""
    mechanisms, asked = [each for each, _ in one.settings], [number for _, number in one.settings]
    costs = exact_many(mechanisms, one.source.votes().votes, one.delta, queries=asked)
    return [
        (
            float(cost.epsilon) if math.isfinite(float(cost.epsilon)) else None,
            None if cost.order is None else float(cost.order),
        )
        for cost in costs
    ]


def _add_exact(
    engine: Engine, config: SweepConfig, sources: Sequence[Source], mine: Sequence[Cell], path: Path
) -> None:
    """Add the exact epsilon to the wanted cells that lack it; those of one setting share it."""
    if config.exact == "none":
        return
    rows = results.read(config.folder)
    chosen = best(rows.values()) if config.exact == "front" else rows.values()
    wanted = {digest for row in chosen for digest in digests(row)}
    of_setting: dict[tuple[Source, Mechanism, int], list[str]] = {}
    for source in sources:
        for cell in mine:
            left = cell.digest in wanted and "exact" not in rows[cell.digest]
            if cell.source == source.digest and left:
                of_setting.setdefault((source, cell.mechanism, cell.queries), []).append(cell.digest)
    items = [
        Exact(source, some, config.delta)
        for source in sources
        for some in tasks.parts([key[1:] for key in of_setting if key[0] == source], _EXACT)
    ]
    with progress.bar("exact privacy", total=len(of_setting)) as steps:
        for place, costs in engine.each(exact, items):
            for setting, (epsilon, order) in zip(items[place].settings, costs, strict=True):
                cells_of = of_setting[items[place].source, *setting]
                found = {"exact": epsilon, "exact_order": order}
                results.append(path, [{"cell": digest, **found} for digest in cells_of])
            steps.advance(len(costs))


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
    if not sources:
        raise PateError("no source of votes: name a votes file, a run directory or a data set")
    return sources, [
        cell
        for source in sources
        for seed in (config.seeds if source.seed is None else (source.seed,))
        for cell in _cells(source, grids, config.delta, seed)
    ]


def lesson_of(config: SweepConfig) -> str:
    """The digest of the students' settings, apart from their method."""
    told = {name: value for name, value in to_settings(config.student).items() if name != "method"}
    judged = {"metric": config.metric, "positive": config.positive}
    usual = judged == {"metric": "accuracy", "positive": None}  # which older rows may know alone
    return cells.digest(told if usual else {**told, "judged": judged})


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
    nets, told = dict.fromkeys(config.nets or (config.teacher.net,)), config.teacher.net_args
    return [
        dataclasses.replace(config.teacher, net=net, net_args=told if net is None or ":" in net else None)
        for net in nets
    ]
