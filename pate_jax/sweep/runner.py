"""The whole sweep: list the cells, judge those that are left, and write rows, plots and page."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional

from pate_jax import voting
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.many import exact_many
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.runs.settings import DataChoice, StudentFlags, to_settings
from pate_jax.student import Auto
from pate_jax.sweep import cells, charts, page, results, vote_sources
from pate_jax.sweep import rows as judged_rows
from pate_jax.sweep import students as student_trials
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.grid import Grid, from_file
from pate_jax.sweep.pareto import front, told_apart
from pate_jax.sweep.results import Row
from pate_jax.sweep.vote_sources import JudgedOn, Source
from pate_jax.system import storage

Asked = list[tuple[Mechanism, int]]
Digests = dict[tuple[Mechanism, int], list[str]]
_QUERIES = 500  # that teachers of a data set are asked, where the grid does not say


@dataclass(frozen=True)
class SweepConfig:
    """Judge a grid of settings on votes: what each answers, how right it is, what it costs."""

    sources: Positional[tuple[str, ...]] = ()
    """Votes files (.npz, .npy), run directories, or data sets by name, whose teachers are trained here."""
    out: Path | None = None
    """The sweep's folder; unset: sweeps/ and the name of the first source. Repeat a command to go on."""
    grid: Path | None = None
    """JSON file with the grid, in place of the flags below."""
    values: Annotated[Grid, OmitArgPrefixes] = field(default_factory=Grid)
    teachers: tuple[int, ...] = (125,)
    """Numbers of teachers, for data sets; a votes file has its own."""
    students: tuple[str, ...] = ()
    """Train a student for each setting: supervised, and whatever else students can be. Takes minutes each."""
    delta: float = 1e-5
    """The delta that every epsilon is stated at."""
    seed: int = 0
    """Decides teachers and noise: a sweep is reproducible, and none of its answers may leave."""
    judged_on: JudgedOn | None = None
    """Whose records the teachers learned from (not what they were asked); unset: private, or synthetic."""
    exact: Literal["none", "front", "all"] = "none"
    """Compute the exact (data-dependent) epsilon of the Pareto front, or of every cell."""
    shard: str = "1/1"
    """Do part I of N of the cells, as in 2/4; parts may share a folder or be put together later."""
    merge: bool = False
    """Put the rows of all shards into results.jsonl."""
    labels_are_teacher_labels: bool = False
    """The votes files hold labels[teacher, query] and not histograms."""
    private: Path | None = None
    """Your own private records (.npz or .csv), as a data set to train teachers on; needs --public."""
    public: Path | None = None
    """Your own public inputs; for a votes file and --students, the inputs that were voted on."""
    test: Path | None = None
    """A labelled public test part, to judge students."""
    equal_rows_are_coincidences: bool = False
    """Declare that inputs of --public and --test that are private ones too are of other records."""
    equal_ids_are_coincidences: bool = False
    """Declare that ids and users of --public and --test that are private ones too are of other people."""
    records: int | None = None
    """Number of private records to draw of strokes or glyphs."""
    classes: int | None = None
    """Number of classes, where nothing else tells."""
    data_dir: Path | None = None
    """Where prepared data sets are kept."""
    manual_dir: Path | None = None
    """Folder with the original archives, for use without a network."""
    teacher: Annotated[TeacherConfig, OmitArgPrefixes] = field(default_factory=TeacherConfig)
    student: StudentFlags = field(default_factory=Auto)

    def __post_init__(self) -> None:
        check_delta(self.delta)
        cells.parse_shard(self.shard)
        student_trials.check_methods(self.students)
        if not 0 <= self.seed < 1 << 32:
            raise PateError(f"seed={self.seed} must be from 0 to 2^32 - 1")
        if self.grid is not None and self.values != Grid():
            raise PateError(f"--grid {self.grid} and flags for the grid were both given: use one of them")
        if any(number < 1 for number in self.teachers) or not self.teachers:
            raise PateError(f"teachers={self.teachers} must be numbers of at least 1")

    @property
    def folder(self) -> Path:
        """Where the sweep lies."""
        first = self.sources[0] if self.sources else "own"
        return self.out or Path("sweeps") / (Path(first).stem or "own")

    @property
    def grids(self) -> list[Grid]:
        """The grids of the file, or the one of the flags."""
        return [self.values] if self.grid is None else from_file(self.grid)


def sweep(config: SweepConfig) -> dict[str, Any]:
    """Do what is left of a sweep's shard, and return the results of all shards so far."""
    shard = cells.parse_shard(config.shard)
    _check_folder(config)
    path = results.file_of(config.folder, shard)
    with results.writing(path):
        sources, every = _open(config)
        mine = cells.shard_of(every, shard)
        done = results.read(config.folder)
        for source in sources:
            left = [cell for cell in mine if cell.source == source.digest and cell.digest not in done]
            if left:
                judged_rows.judge(
                    source, left, source.votes(), config.student, lambda rows: results.append(path, rows)
                )
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
        "cells": len(mine),
        "done_before": sum(cell.digest in done for cell in mine),
        "rows": rows,
        "front": front(rows),
    }


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
    wanted = {row["cell"] for row in (front(rows.values()) if config.exact == "front" else rows.values())}
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
    best = front(rows)
    middle = best[len(best) // 2] if best else rows[0]
    cached = config.folder / "votes" / f"{middle['votes']}.npz"
    with_queries = None
    if cached.exists():
        votes = voting.load_votes(cached).votes
        with_queries = charts.queries(middle, votes, exact=config.exact != "none")
    figures = [
        ("Accuracy against epsilon, by number of teachers; lines join the best.", charts.accuracy(rows)),
        (
            "Answered, and answered and right, against the threshold (means over the other settings).",
            charts.thresholds(rows),
        ),
        (f"What {page.setting(middle)} costs, by queries and way of accounting.", with_queries),
    ]
    for name, (_, svg) in zip(("accuracy", "thresholds", "queries"), figures, strict=True):
        if svg is not None:
            storage.write_bytes(config.folder / "plots" / f"{name}.svg", svg, mode=0o600)
    storage.write_bytes(config.folder / "sweep.html", page.page(rows, best, figures).encode(), mode=0o600)


def _open(config: SweepConfig) -> tuple[list[Source], list[Cell]]:
    """The sources, and the cells of all of them."""
    grids = config.grids
    sources = _sources(config, grids)
    lesson = cells.digest(
        {name: value for name, value in to_settings(config.student).items() if name != "method"}
    )
    students: Sequence[str | None] = config.students or (None,)
    every = [
        cell
        for source in sources
        for cell in cells.cells_of(
            source.digest,
            source.teachers,
            source.available,
            grids,
            delta=config.delta,
            seed=config.seed,
            students=students,
            lesson=lesson,
        )
    ]
    return sources, every


def _sources(config: SweepConfig, grids: list[Grid]) -> list[Source]:
    sources: list[Source] = []
    named = [most for most in (one.most_queries() for one in grids) if most is not None]
    queries = max(named, default=_QUERIES)
    for text in config.sources:
        path = Path(text)
        if path.exists() or path.suffix in (".npz", ".npy"):
            sources.append(
                vote_sources.of_file(
                    path,
                    config.folder,
                    config.judged_on,
                    labels_are_teacher_labels=config.labels_are_teacher_labels,
                    public=config.public,
                    test=config.test,
                )
            )
        else:
            sources += _of_data(config, text, queries)
    if config.private is not None:
        sources += _of_data(config, None, queries)
    if not sources and not config.merge:
        raise PateError(
            "no source of votes: name a votes file, a run directory or a data set; or use --merge, which "
            "puts the rows of a folder together and draws its page again"
        )
    return sources


def _of_data(config: SweepConfig, name: str | None, queries: int) -> list[Source]:
    files: dict[str, Any] = {"dataset": name}
    if name is None:
        files = {"private": config.private, "public": config.public, "test": config.test}
    choice = DataChoice(
        **files,
        classes=config.classes,
        records=config.records,
        data_dir=config.data_dir,
        manual_dir=config.manual_dir,
        equal_rows_are_coincidences=config.equal_rows_are_coincidences,
        equal_ids_are_coincidences=config.equal_ids_are_coincidences,
    )
    return [
        vote_sources.of_data(
            choice,
            teachers,
            config.teacher,
            config.folder,
            config.judged_on,
            queries=queries,
            seed=config.seed,
        )
        for teachers in dict.fromkeys(config.teachers)
    ]
