"""What a sweep consists of: its sources of votes, and the cells of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.runs.settings import STROKES, DataChoice, PartitionChoice, to_settings
from pate_jax.sweep import cells, vote_sources
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.ensembles import NESTED, Ensemble
from pate_jax.sweep.grid import Grid
from pate_jax.sweep.settings import SweepConfig
from pate_jax.sweep.vote_sources import Source

_QUERIES = 500  # that teachers of a data set are asked, where the grid does not say


def of(config: SweepConfig) -> tuple[list[Source], list[Cell]]:
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
