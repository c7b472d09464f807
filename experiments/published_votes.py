"""`python -m experiments.published_votes`: the 2017 and 2018 tables from the votes that the papers published.

For each list of votes that is at hand: what the papers' analysis gives, digit for digit, then what holds. And
the figure that says where the privacy goes, query by query.

The votes are those of the 2018 paper's repository (tensorflow/privacy, research/pate_2018/ICLR2018, whose
download.py fetches votes.gz from storage.googleapis.com/pate-votes). Unpack them into a folder and name it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from numpy.typing import NDArray

from experiments import partition_figure
from experiments.tutorial_svhn import tutorial_epsilon
from pate_jax import accounting, voting
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, LNMax, Mechanism
from pate_jax.system import exits, storage

Votes = NDArray[np.int64]


@dataclass(frozen=True)
class Row:
    """One row of a table: a data set of the papers, a mechanism, how many queries."""

    dataset: str
    files: tuple[str, ...]
    mechanism: Mechanism
    queries: int
    delta: float
    printed: str  # the epsilon of the paper's table, where it could be read; its rows need not be these

    def found(self, folder: Path) -> Path | None:
        """The votes file, if it is there."""
        return next((folder / name for name in self.files if (folder / name).is_file()), None)


_MNIST = ("published_mnist_250.npz", "mnist_250_teachers.npy")
_ADULT = ("published_adult_250.npz", "adult_250_teachers.npy")
_SVHN = ("svhn_250_teachers.npy",)
_GLYPH = ("glyph_5000_teachers.npy",)
TABLE_2017 = (
    Row("MNIST", _MNIST, LNMax(20.0), 100, 1e-5, "2.04"),
    Row("MNIST", _MNIST, LNMax(20.0), 1000, 1e-5, "8.03"),
    Row("Adult", _ADULT, LNMax(20.0), 500, 1e-5, "2.66"),
)
TABLE_2018 = (
    Row("MNIST", _MNIST, ConfidentGNMax(200.0, 150.0, 40.0), 640, 1e-5, ""),
    Row("Adult", _ADULT, ConfidentGNMax(300.0, 200.0, 40.0), 1500, 1e-5, ""),
    Row("SVHN", _SVHN, ConfidentGNMax(300.0, 200.0, 40.0), 8500, 1e-6, ""),
    Row("Glyph", _GLYPH, ConfidentGNMax(1000.0, 500.0, 100.0), 12000, 1e-8, ""),
)
_HEAD = (
    f"{'votes':<7}{'queries':>8}{'answers':>9}{'in print':>10}{'published':>11}{'tight':>9}"
    f"{'exact':>9}{'in place of':>13}{'data-indep.':>13}"
)

_LEGEND = """\
published: the papers' analysis, classic conversion; tight: the same sum, better conversion. Neither is a
guarantee (docs/proofs/accounting.md). exact: bounds what these votes reveal, jointly for all queries; in
place of: published / exact. data-indep.: holds for all votes, and alone may be published. in print: read in
the 2017 paper, whose rows are not known; here the first so many are taken."""


def main(votes_dir: Path | None = None, out: Path = Path("runs/published_votes")) -> None:
    """Print the tables, draw the figure, and end with one JSON line.

    Args:
        votes_dir: folder with the published votes; unset: $PATE_JAX_VOTES, votes/, or ../shared/data/votes.
        out: where the figure is written.
    """
    began, folder = time.monotonic(), _folder(votes_dir)
    rows = [
        *_table("2017: LNMax (Laplace), moments 1 to 8", TABLE_2017, folder),
        *_table("2018: Confident-GNMax, expected answers", TABLE_2018, folder),
    ]
    print(_LEGEND)
    figure = _figure(folder, out)
    line = {"experiment": "published_votes", "rows": rows, "figure": figure}
    print(json.dumps({**line, "seconds": round(time.monotonic() - began, 2)}))


def _folder(given: Path | None) -> Path:
    if given is not None:
        if not given.is_dir():
            raise PateError(f"votes-dir={given} is no folder; name the one with mnist_250_teachers.npy")
        return given
    tried = [os.environ.get("PATE_JAX_VOTES"), "votes", Path(__file__).parents[1] / "../shared/data/votes"]
    for name in tried:
        if name and any(row.found(Path(name)) for row in TABLE_2018):
            return Path(name)
    raise PateError(
        "the published votes are not here: fetch storage.googleapis.com/pate-votes/votes.gz (as the 2018 "
        "paper's download.py does), unpack it, and name the folder with --votes-dir"
    )


def _table(title: str, rows: Sequence[Row], folder: Path) -> list[dict[str, Any]]:
    print(f"\n{title}\n{_HEAD}")
    measured = []
    for row in rows:
        path = row.found(folder)
        if path is None:
            print(f"{row.dataset:<7}{row.queries:>8}  not here: {row.files[-1]} is not in {folder}")
            continue
        measured.append(figures(row, voting.load_votes(path).votes))
        print(_line(measured[-1]))
    print()
    return measured


def figures(row: Row, votes: Votes) -> dict[str, Any]:
    """What the papers say of these votes, and what holds."""
    asked = votes[: row.queries]
    paper = accounting.published(row.mechanism, asked, row.delta)
    published = paper.epsilon
    if isinstance(row.mechanism, LNMax):
        published = tutorial_epsilon(asked, np.arange(len(asked)), row.mechanism.scale, row.delta)
    orders = accounting.default_orders()
    exact = accounting.rdp(row.mechanism, asked, orders, method="exact").sum(axis=0)
    teachers, times = np.unique(asked.sum(axis=1), return_counts=True)
    worst = WorstCase(row.mechanism, teachers, asked.shape[1]).figure(times, row.delta)
    return {
        "votes": row.dataset,
        "queries": len(asked),
        "answers": paper.answered,
        "in_print": row.printed,
        "published": published,
        "tight": paper.epsilon_tight,
        "exact": accounting.epsilon(orders, exact, row.delta).epsilon,
        "data_independent": worst.epsilon.epsilon,
    }


def _line(row: dict[str, Any]) -> str:
    return (
        f"{row['votes']:<7}{row['queries']:>8}{row['answers']:>9.2f}{row['in_print'] or '-':>10}"
        f"{row['published']:>11.4f}{row['tight']:>9.4f}{row['exact']:>9.4f}"
        f"{row['published'] / row['exact']:>13.2f}{row['data_independent']:>13.4f}"
    )


def _figure(folder: Path, out: Path) -> str | None:
    row = TABLE_2018[0]
    path = row.found(folder)
    if path is None:
        return None
    votes = voting.load_votes(path).votes
    parts = partition_figure.partition(row.mechanism, votes, row.delta)
    target = out / "partition.svg"
    storage.write_bytes(target, partition_figure.draw(parts, row.delta))
    print(f"The partition of the privacy cost over {len(votes)} MNIST queries: {target}")
    return str(target)


if __name__ == "__main__":
    with exits.told("published_votes"):
        tyro.cli(main, prog="experiments.published_votes", description=__doc__)
