"""What single persons risk in a finished run: the exact privacy of the run with and without each of them.

The figures are of these records and of one person. They are far below the run's guarantee for most people,
and they reveal something about them. So they are sensitive: they are written into private/ only, nothing of
them is ever published, and the guarantee stays what the statement says. docs/guide/risk.md explains each
figure.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax import accounting
from pate_jax.accounting import figures
from pate_jax.accounting.exact import counts, pair
from pate_jax.accounting.exact.pair import Exposure
from pate_jax.audit.attacks import removals
from pate_jax.audit.attacks.attack import answering, no_way
from pate_jax.audit.attacks.removals import Removals
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.runs import inputs, ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import Kind, RunDirectory, kind_of
from pate_jax.system import storage
from pate_jax.system.tasks import HERE, Engine

SENSITIVE = (
    "SENSITIVE: about single persons, from private records. Keep it in private/ and publish none of it"
)
SAMPLE = 20  # people whose teachers learn step by step, where no number is given
NAMED = 10  # of the most exposed
_BINS, _ROOM = 20, 1e-2  # room for the grids of two figures that both round up
_COLUMNS = ("id", "epsilon", "epsilon_if_changed", "total_variation", "best_guess", "caught", "moved_votes")
_LEVELS = {"median": 0.5, "90%": 0.9, "99%": 0.99, "most": 1.0}


@dataclass(frozen=True)
class Risk:
    """What some people of a run risk; everything in it is sensitive."""

    run: RunDirectory
    names: np.ndarray
    exposure: Exposure
    changed: Float[np.ndarray, " person"]  # epsilon if the contents change; nan where no figure is one's own
    moved: Float[np.ndarray, " person"]  # votes of the person's teacher that move; nan of a crowd's voter
    everybody: int
    by: str
    delta: float
    promised: dict[str, float]  # epsilons that hold for everybody

    def levels(self) -> dict[str, dict[str, float]]:
        """Quantiles of each figure over the people who were asked for."""
        each = {
            "epsilon": self.exposure.epsilon,
            "total_variation": self.exposure.variation,
            "best_guess": self.exposure.guess,
            "caught": self.exposure.caught,
        }
        return {
            name: {level: float(np.quantile(values, at, method="higher")) for level, at in _LEVELS.items()}
            for name, values in each.items()
        }

    def histogram(self) -> tuple[list[int], list[float]]:
        """How many people have an epsilon between two of the edges; infinite ones are left out."""
        finite = self.exposure.epsilon[np.isfinite(self.exposure.epsilon)]
        least, most = float(finite.min(initial=math.inf)), float(finite.max(initial=0.0))
        if not least < most:
            return [len(finite)], [most, most]
        people, edges = np.histogram(finite, _BINS)
        return people.tolist(), edges.tolist()

    def rows(self) -> list[dict[str, Any]]:
        """One object for each person, the most exposed first."""
        found = self.exposure
        columns = (
            self.names,
            found.epsilon,
            self.changed,
            found.variation,
            found.guess,
            found.caught,
            self.moved,
        )
        order = np.lexsort((self.names, -found.caught, -found.epsilon))
        return [dict(zip(_COLUMNS, (column[row].item() for column in columns), strict=True)) for row in order]

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON, with the most exposed by name."""
        people, edges = self.histogram()
        named = [
            {name: _plain(value) for name, value in row.items() if value == value}
            for row in self.rows()[:NAMED]
        ]
        levels = {name: {at: _plain(one) for at, one in each.items()} for name, each in self.levels().items()}
        return {
            "warning": SENSITIVE,
            "delta": self.delta,
            "by": self.by,
            "people": len(self.names),
            "of": self.everybody,
            "promised_to_everybody": {name: _plain(epsilon) for name, epsilon in self.promised.items()},
            "false_positives": pair.FALSE_POSITIVES,
            **levels,
            "histogram": {"epsilon": edges, "people": people},
            "most_exposed": named,
        }

    def table(self) -> str:
        """All people as CSV, the most exposed first."""
        page = io.StringIO()
        writer = csv.DictWriter(page, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(
            {name: "" if value != value else value for name, value in row.items()} for row in self.rows()
        )
        return page.getvalue()


def _plain(value: Any) -> Any:
    """A value as JSON has it: no number where there is no finite one."""
    return None if value == math.inf else value


def assess(run: RunDirectory, people: str | None = None, engine: Engine = HERE) -> Risk:
    """The risk of people in a finished run: `all`, a number of them, or a file that lists their ids.

    Left open, it is everybody where no teacher learns step by step, and else a sample of 20. The result is
    not written; `keep` does that. Figures above what the run promises are refused: they would be a mistake.
    """
    kind = kind_of(run)
    if kind not in _WAYS:
        raise PateError(no_way(run, "risk of single persons"))
    if "data" not in run.record.read():
        raise PateError(
            f"{run.root} was made from votes alone, so nobody's records are known: ask about a run "
            "from records"
        )
    run.existing(run.public_statement, "account")
    found = _WAYS[kind](run, people, engine)
    refuse_more_than_promised(found)
    return found


def keep(risk: Risk) -> None:
    """Write the summary and the table of everybody into private/, for the owner's eyes alone."""
    body = risk.to_dict()
    storage.write_bytes(risk.run.risk / "people.csv", risk.table().encode(), mode=0o600)
    storage.write_json(risk.run.risk / "risk.json", "risk", body, mode=0o600)


def refuse_more_than_promised(risk: Risk) -> None:
    """Stop where somebody risks more than the run promises to everybody, which cannot be."""
    worst, least = float(risk.exposure.epsilon.max()), min(risk.promised.values())
    if not worst <= least * (1 + _ROOM):
        raise PateError(
            f"somebody in {risk.run.root} risks epsilon {worst:.6g}, and it promises {least:.6g} to all: "
            "one of the two figures is a mistake of this package. Publish nothing of this run, and report it"
        )


def _of_crowd(run: RunDirectory, people: str | None, engine: Engine) -> Risk:
    """The risk of a crowd's voters: one Gaussian shift each."""
    del engine  # which would take longer to start
    crowd = crowd_inputs.opened(run, tolerant=True)
    found, delta = removals.shifts_of(crowd), _delta(run)
    wanted = chosen_people(found.names.tolist(), people or EVERYBODY, key=_sampling(run))
    rows = np.searchsorted(found.names, wanted)
    slack = counts.slack_of([line.event for line in ledger.releases(run.ledger)])
    exposure = pair.of_shifts(found.removed[rows], delta, slack)
    changed = pair.of_shifts(found.changed[rows], delta, slack).epsilon
    none = np.full(len(rows), np.nan)
    promised = _promised(run)
    everybody, by = len(found.names), crowd.choice.by
    return Risk(run, found.names[rows], exposure, changed, none, everybody, by, delta, promised)


def _of_teachers(run: RunDirectory, people: str | None, engine: Engine) -> Risk:
    """The risk of people whose records lie with one teacher each: the votes that move without them."""
    mechanism, _ = answering(run)
    opened = inputs.open(run, tolerant=True)
    of_teachers = Removals(opened, run.risk)
    names = np.unique(units_of(opened.dataset.private, opened.cut.by))
    usual = EVERYBODY if of_teachers.config.closed_form else str(min(SAMPLE, len(names)))
    wanted = chosen_people(names.tolist(), people or usual, key=_sampling(run))
    delta, moved = _delta(run), of_teachers.moves(wanted, engine)
    exposure = pair.of_votes(mechanism, of_teachers.votes.votes, moved, delta)
    number = np.array([len(one.queries) for one in moved], np.float64)
    unknown = np.full(len(wanted), np.nan)
    by, promised = opened.cut.by, _promised(run)
    return Risk(run, np.array(wanted), exposure, unknown, number, len(names), by, delta, promised)


_WAYS: Mapping[Kind, Callable[[RunDirectory, str | None, Engine], Risk]] = {
    "teachers": _of_teachers,
    "crowd": _of_crowd,
}


def _sampling(run: RunDirectory) -> bytes:
    return run.secret.derive("people whose risk is computed")


def _delta(run: RunDirectory) -> float:
    found = storage.read_json(run.statement, "statement")["delta"]
    return float(found)


def _promised(run: RunDirectory) -> dict[str, float]:
    """The epsilon that is published, and the smallest that holds for these data, by what they are."""
    statement = accounting.Statement.from_dict(storage.read_json(run.statement, "statement"))
    found = {"published": statement.headline.epsilon}
    smallest = statement.figures[statement.smallest]
    if smallest.note != figures.HISTORY:
        found["of these data"] = smallest.epsilon
    return {name: float("inf") if epsilon is None else epsilon for name, epsilon in found.items()}


EVERYBODY = "all"


def chosen_people(names: Sequence[str], wanted: str, *, key: bytes) -> list[str]:
    """The names of the wanted people: all, as many as a number says, or those that a file lists.

    A sample is the people whose keyed hashes come first. So the same command names the same ones again, and a
    larger sample holds the smaller one.

    >>> names = ["ann", "bob", "eve"]
    >>> chosen_people(names, "all", key=b"k"), len(chosen_people(names, "2", key=b"k"))
    (['ann', 'bob', 'eve'], 2)
    >>> set(chosen_people(names, "1", key=b"k")) < set(chosen_people(names, "2", key=b"k"))
    True
    """
    if wanted == EVERYBODY:
        return list(names)
    if not wanted.isdecimal():
        return _listed(names, Path(wanted))
    number = int(wanted)
    if not 1 <= number <= len(names):
        raise PateError(f"people={wanted} must be from 1 to the {len(names):,} people of this run, or `all`")
    return sorted(names, key=lambda name: _keyed_hash(name, key))[:number]


def _keyed_hash(name: str, key: bytes) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogatepass"), key=key, digest_size=16).digest()


def _listed(names: Sequence[str], path: Path) -> list[str]:
    """The people in the first column of a file, whose first line may be a heading."""
    if not path.exists():
        raise PateError(
            f"people={str(path)!r} is no file: give `all`, a number, or a file with one id a line"
        )
    lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    listed = [line.split(",")[0].strip().strip('"') for line in lines if line.strip()]
    known = set(names)
    if listed and listed[0] not in known:
        listed = listed[1:]
    unknown = [name for name in listed if name not in known]
    if unknown or not listed:
        what = f"{unknown[0]!r}, which is" if unknown else "nobody who is"
        raise PateError(f"{path} names {what} in this run: give ids as the private records have them")
    return list(dict.fromkeys(listed))


_WIDTH = 40
_TOLD = {
    "epsilon": "epsilon",
    "best_guess": "best guess",
    "caught": "caught at 0.1%",
}


def terminal_page(risk: Risk) -> str:
    """The page of a terminal."""
    asked = "all" if len(risk.names) == risk.everybody else f"a sample or list of {risk.everybody:,}"
    lines = [
        SENSITIVE + ".",
        f"{len(risk.names):,} people ({asked}) by {risk.by}, each taken out alone, at delta {risk.delta:g}:",
        "",
        *_levels(risk),
        "",
        *_bars(risk),
        "",
        "Nobody's epsilon may exceed "
        + ", ".join(f"epsilon {epsilon:.4g} ({name})" for name, epsilon in risk.promised.items())
        + ".",
        f"The most exposed by id: {risk.run.risk / 'risk.json'}",
        f"Everybody: {risk.run.risk / 'people.csv'}",
    ]
    return "\n".join(lines)


def _levels(risk: Risk) -> list[str]:
    """A row for each figure, a column for each quantile."""
    found = risk.levels()
    lines = [f"{'':<16}" + "".join(f"{level:>10}" for level in found["epsilon"])]
    for name, told in _TOLD.items():
        lines.append(f"{told:<16}" + "".join(f"{value:>10.4f}" for value in found[name].values()))
    return lines


def _bars(risk: Risk) -> list[str]:
    """A bar for the people between two epsilons."""
    people, edges = risk.histogram()
    most = max(1, *people)
    return [
        f"{low:>8.4f} to {high:<8.4f} {'#' * -(-_WIDTH * number // most):<{_WIDTH}} {number:,}"
        for number, low, high in zip(people, edges[:-1], edges[1:], strict=True)
    ]
