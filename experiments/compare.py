"""Accuracy of every method against publishable epsilon: `python -m experiments.compare --data-folder DATA`.

The same records, public pool, test rows, relation and delta serve every method (`pate_jax.sweep.compare`,
which `pate compare` uses too). Each cell is a line of JSON that is never measured again, and may take some
CPU minutes; a repeated command goes on. In the end the table and the pictures of
docs/reference/comparison.md are drawn.

DATA has a folder for each data set: the original archives in `mnist`, `fashion_mnist` and `adult`, three
tables in `support2` (private.csv, public.csv, test.csv), and three archives in `reviews` (private.npz,
public.npz, test.npz). Without `--data-folder` the first three are downloaded; nobody publishes the other two
in this form. What is missing is named, and left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from pate_jax.system import devices

devices.prepare()

import tyro  # noqa: E402

from experiments import compare_figure  # noqa: E402
from pate_jax import data  # noqa: E402
from pate_jax.data import Dataset  # noqa: E402
from pate_jax.errors import PateError  # noqa: E402
from pate_jax.sweep.compare import Ground, named  # noqa: E402
from pate_jax.sweep.compare.cells import cells_of, measure  # noqa: E402
from pate_jax.system import exits, locks, progress  # noqa: E402

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/compare.jsonl"
EPSILONS = (1.0, 3.0, 0.3, 8.0, 0.1)  # what most readers ask for first
DELTA = 1e-5
PARTS = ("private", "public", "test")


def opened(name: str, folder: Path | None) -> Dataset:
    """A data set, from its folder if there is one."""
    here = None if folder is None else folder / name
    if here is not None and not here.is_dir():
        raise PateError(f"{here} does not exist: put the data set there, or leave {name} out")
    found = OWN[name](here) if name in OWN else data.load(name, manual_dir=here)
    return dataclasses.replace(found, name=name)


def _support2(folder: Path | None) -> Dataset:
    """Patients; equal columns would be a coincidence."""
    return data.from_files(
        *_parts("support2", folder, ".csv"),
        label_column="died",
        id_column="patient",
        equal_rows_are_coincidences=True,
    )


def _reviews(folder: Path | None) -> Dataset:
    """Vectors of product reviews, of which some short ones have equal texts."""
    return data.from_files(*_parts("reviews", folder, ".npz"), equal_rows_are_coincidences=True)


OWN: dict[str, Callable[[Path | None], Dataset]] = {"support2": _support2, "reviews": _reviews}


def _parts(name: str, folder: Path | None, suffix: str) -> list[Path]:
    if folder is None:
        raise PateError(f"{name} cannot be downloaded: name a folder that has it by --data-folder")
    paths = [folder / f"{part}{suffix}" for part in PARTS]
    for path in paths:
        if not path.exists():
            raise PateError(f"{path} does not exist: {name} needs {', '.join(each.name for each in paths)}")
    return paths


def main(
    names: tyro.conf.Positional[tuple[str, ...]] = tuple(compare_figure.NAMES),
    data_folder: Path | None = None,
    epsilons: tuple[float, ...] = EPSILONS,
    methods: tuple[str, ...] = (),
    draws: int = 1,
    minutes: float = 12.0,
    results: Path = RESULTS,
    docs: Path = ROOT / "docs/reference",
) -> None:
    """Measure what is left of the grid, then write the table and the pictures.

    Args:
        names: the data sets.
        data_folder: a folder with one folder for each data set.
        epsilons: what each method may cost.
        methods: which methods; unset: all.
        draws: how often shards, noise and nets are drawn.
        minutes: CPU minutes that one cell may take, after which it is left out.
        results: the file of lines.
        docs: the folder of comparison.md and its pictures.
    """
    cells = cells_of(named(methods), epsilons, draws)
    results.parent.mkdir(parents=True, exist_ok=True)
    with locks.held(results.with_name(f".{results.name}.lock"), results):
        for name in names:
            try:
                ground = Ground(opened(name, data_folder), DELTA)
            except PateError as error:  # the other data sets are measured without it
                progress.warn(f"{name} is not run: {error}")
                continue
            measure(ground, cells, results, 60 * minutes)
    compare_figure.write(results, docs)


if __name__ == "__main__":
    with exits.told("experiments.compare"):
        tyro.cli(main, prog="experiments.compare", description=__doc__)
