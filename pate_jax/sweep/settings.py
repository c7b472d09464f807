"""What a sweep may be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional

from pate_jax.accounting.inputs import check_delta
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models.names import Metric
from pate_jax.runs.settings import StudentFlags
from pate_jax.student import Auto
from pate_jax.student.settings import Selection
from pate_jax.sweep import students as student_trials
from pate_jax.sweep.grid import Grid, from_file
from pate_jax.sweep.vote_sources import JudgedOn
from pate_jax.system.tasks import Where


@dataclass(frozen=True)
class SweepConfig:
    """Teachers, nets, queries, noise and students in every combination: what each gives, what it costs."""

    sources: Positional[tuple[str, ...]] = ()
    """Votes files (.npz, .npy), run directories, or data sets by name, whose teachers are trained here."""
    out: Path | None = None
    """The sweep's folder; unset: sweeps/ and the name of the first source. Repeat a command to go on."""
    grid: Path | None = None
    """JSON file with the grid, in place of the flags below."""
    runs: Path | None = None
    """TOML file with a grid of whole runs, in place of sources: flags of `pate run`, and in tables [[grid]]
    lists of them, such as epsilon = [0.3, 1], that are crossed. Needs no other flags but --out."""
    values: Annotated[Grid, OmitArgPrefixes] = field(default_factory=Grid)
    teachers: tuple[int, ...] = (125,)
    """Numbers of teachers, for data sets; a votes file has its own."""
    nets: tuple[str, ...] = ()
    """Nets of the teachers, for data sets; unset: the one of --net. linear takes seconds."""
    selections: tuple[Selection, ...] = ("kmeans",)
    """How the queries are chosen, for data sets: first, random, kmeans, learned or space. Free."""
    students: tuple[str, ...] = ()
    """Train a student of each kind for the useful settings, those that no other beats: ridge takes seconds,
    supervised, fixmatch, vat and others minutes."""
    most_students: int | None = None
    """Train at most this many students, for the most promising settings."""
    metric: Metric = "accuracy"
    """What students are compared by; balanced, auroc or auprc where an outcome is rare."""
    positive: str | None = None
    """Of two classes, the outcome that auprc is of; unset: the rarer one of the test part."""
    delta: float = 1e-5
    """The delta that every epsilon is stated at."""
    seeds: tuple[int, ...] = (0,)
    """Each decides shards, teachers and noise; with several, pictures and tables show means over them. A
    sweep is reproducible, and none of its answers may leave."""
    judged_on: JudgedOn | None = None
    """Whose records the teachers learned from (not what they were asked); unset: private, or synthetic."""
    exact: Literal["none", "front", "all"] = "none"
    """Compute the exact (data-dependent) epsilon of the Pareto front, or of every cell."""
    labels_are_teacher_labels: bool = False
    """The votes files hold labels[teacher, query] and not histograms."""
    private: Path | None = None
    """Your own private records (.npz or .csv), as a data set to train teachers on; needs --public."""
    public: Path | None = None
    """Your own public inputs; for a votes file and --students, the inputs that were voted on."""
    test: Path | None = None
    """A labelled public test part, to judge students."""
    label_column: str | None = None
    """Column of your own tables that holds the label."""
    id_column: str | None = None
    """Column of your own tables that holds the id of a record."""
    equal_rows_are_coincidences: bool = False
    """Declare that inputs of --public and --test that are private ones too are of other records."""
    equal_ids_are_coincidences: bool = False
    """Declare that ids and users of --public and --test that are private ones too are of other people."""
    records: int | None = None
    """Number of private records to draw of strokes (unset: 30,000) or glyphs."""
    classes: int | None = None
    """Number of classes, where nothing else tells."""
    data_dir: Path | None = None
    """Where prepared data sets are kept."""
    manual_dir: Path | None = None
    """Folder with the original archives, for use without a network."""
    teacher: Annotated[TeacherConfig, OmitArgPrefixes] = field(default_factory=TeacherConfig)
    student: StudentFlags = field(default_factory=Auto)
    where: Annotated[Where, OmitArgPrefixes] = field(default_factory=Where)

    def __post_init__(self) -> None:
        check_delta(self.delta)
        student_trials.check_methods(self.students)
        if not self.seeds or any(not 0 <= seed < 1 << 32 for seed in self.seeds):
            raise PateError(f"seeds={self.seeds} must be numbers from 0 to 2^32 - 1")
        if self.most_students is not None and self.most_students < 1:
            raise PateError(f"most_students={self.most_students} must be at least 1")
        if self.nets and self.teacher.net is not None:
            raise PateError(f"--net {self.teacher.net} and --nets were both given: name all nets with --nets")
        if self.runs is not None and (self.sources or self.private is not None):
            raise PateError(f"--runs {self.runs} names the data of its runs itself: leave other sources out")
        if self.grid is not None and self.values != Grid():
            raise PateError(f"--grid {self.grid} and flags for the grid were both given: use one of them")
        if any(number < 1 for number in self.teachers) or not self.teachers:
            raise PateError(f"teachers={self.teachers} must be numbers of at least 1")

    @property
    def folder(self) -> Path:
        """Where the sweep lies."""
        first = self.sources[0] if self.sources else str(self.runs or "own")
        return self.out or Path("sweeps") / (Path(first).stem or "own")

    @property
    def grids(self) -> list[Grid]:
        """The grids of the file, or the one of the flags."""
        return [self.values] if self.grid is None else from_file(self.grid)
