"""What has been spent: one line a batch of queries or a crowd's release, durable before what it shows leaves.

The file is a chain (`chain`), so no line of it can be changed, dropped or moved unseen. Here is what a line
says, checked where it is read. Lines of both kinds stand in one chain, and their costs add up. A line of a
crowd has a schema of its own, so that a version that knows nothing of crowds refuses the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.filter import Cost, Filter, budget_from_dict, budget_to_dict
from pate_jax.errors import PateError
from pate_jax.mechanisms import crowds
from pate_jax.mechanisms.crowds import CrowdRelease
from pate_jax.mechanisms.stable import AnyMechanism, from_dict, to_dict
from pate_jax.runs import chain, streams
from pate_jax.system import storage
from pate_jax.voting import Votes

REFUSED = "-"
_COUNTS = {"batch": 1, "teachers": 0, "classes": 0, "asked": 0}  # and the least that each may be
_TEXTS = ("votes", "queries", "inputs", "noise", "answers")
_COST = ("order", "rdp", "slack")
CROWD = 5  # schema of a line of a crowd
TRAINING = 9  # and of a net trained on the records themselves (`baselines.training`)
TUNE = 8  # of a choice of settings, whose line `tune.candidates` reads
PARTY = 6  # and of a party, whose lines `parties.ledger` reads
_IS_WHOLE = re.compile("-?[0-9]{1,18}", re.ASCII).fullmatch
_CROWD_COUNTS, _CROWD_TEXTS = {"batch": 1}, ("table", "public", "noise", "values")


class Given(NamedTuple):
    """What a batch answered: a label for each query, -1 where refused, and noisy counts where given."""

    labels: NDArray[np.int32]
    answered: NDArray[np.bool_]
    counts: Int[np.ndarray, "query class"] | None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The parts that there are, by name."""
        return {name: part for name, part in self._asdict().items() if part is not None}


class Line(NamedTuple):
    """What a batch asked, by which mechanism and under which budget, what it cost and what was answered."""

    batch: int
    mechanism: AnyMechanism
    teachers: int
    classes: int
    asked: int  # the first queries of the batch, as many as the budget afforded
    votes: str  # digests: of their votes (stable answers: those of the whole batch), ids, inputs, and noise
    queries: str
    inputs: str
    noise: str
    budget: Filter | None
    order: float  # at which the cost is stated
    cost: Cost
    answers: str  # as `pack` writes them
    schema: int = chain.SCHEMA
    digest: str = ""  # of the line itself, once it is written

    @property
    def given(self) -> Given:
        """What was answered; of whole histograms the labels are those of the largest counts."""
        if not self.mechanism.releases_counts:
            return Given(*unpack(self.answers), None)
        counts = unpack_table(self.answers, (self.asked, self.classes))
        return Given(counts.argmax(1).astype(np.int32), np.ones(len(counts), bool), counts)

    @property
    def stream(self) -> str:
        """The name of the noise of its answers."""
        return streams.name(self.batch, to_dict(self.mechanism), self.votes, f"{self.queries} {self.inputs}")

    def to_dict(self) -> dict[str, Any]:
        """As JSON, without what the chain adds."""
        return {
            "batch": self.batch,
            "mechanism": to_dict(self.mechanism),
            "teachers": self.teachers,
            "classes": self.classes,
            "asked": self.asked,
            "votes": self.votes,
            "queries": self.queries,
            "inputs": self.inputs,
            "noise": self.noise,
            "budget": budget_to_dict(self.budget),
            "cost": cost_to_dict(self.order, self.cost),
            "answers": self.answers,
        }


class CrowdLine(NamedTuple):
    """What a crowd released, under which budget, what it cost, and the noisy table itself."""

    batch: int
    release: CrowdRelease
    table: str  # digests: of the exact table, of the public side that it was counted on, and of the noise
    public: str
    noise: str
    budget: Filter | None
    order: float  # at which the cost is stated
    cost: Cost
    values: str  # the noisy table as `pack_table` writes it
    schema: int = CROWD
    digest: str = ""  # of the line itself, once it is written

    @property
    def stream(self) -> str:
        """The name of the noise of its table."""
        return streams.name(self.batch, crowds.to_dict(self.release), self.table, self.public)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the schema of its kind, and without what else the chain adds."""
        return {
            "schema": CROWD,
            "batch": self.batch,
            "release": crowds.to_dict(self.release),
            "table": self.table,
            "public": self.public,
            "noise": self.noise,
            "budget": budget_to_dict(self.budget),
            "cost": cost_to_dict(self.order, self.cost),
            "values": self.values,
        }


def begun(
    batch: int,
    mechanism: AnyMechanism,
    size: tuple[int, int],
    votes: Votes,
    budget: Filter | None,
    paid: tuple[float, Cost],
) -> Line:
    """The line of a batch of these votes before its noise is drawn; `size` is teachers and classes."""
    order, cost = paid
    asked, queries, inputs = (storage.digest(part) for part in (votes.votes, votes.ids, votes.digests))
    return Line(
        batch, mechanism, *size, len(votes.votes), asked, queries, inputs, "", budget, order, cost, ""
    )


def entries(path: Path) -> Iterator[Line | CrowdLine]:
    """The lines of a ledger in order, each after the chain up to it was checked; an absent file has none."""
    for entry in chain.entries(path):
        if entry["schema"] == PARTY:
            raise PateError(
                f"{path} is the ledger of one party of a vote among several: `pate party` goes on with it, "
                "and `pate verify` checks it"
            )
        if entry["schema"] == TRAINING:
            raise PateError(f"{path} is the ledger of a training by DP-SGD: `pate verify` checks it")
        if entry["schema"] == TUNE:
            raise PateError(
                f"{path} is the ledger of a choice of settings: `pate tune` goes on with it, and "
                "`pate verify` checks it"
            )
        yield parse_crowd(entry, path) if entry["schema"] == CROWD else parse(entry, path)


def lines(path: Path) -> Iterator[Line]:
    """The lines of teachers alone, in order."""
    return (line for line in entries(path) if isinstance(line, Line))


def releases(path: Path) -> Iterator[CrowdLine]:
    """The lines of crowds alone, in order."""
    return (line for line in entries(path) if isinstance(line, CrowdLine))


def read(path: Path) -> list[Line]:
    """All lines of teachers at once."""
    return list(lines(path))


def append(book: chain.Writer, line: Line) -> Line:
    """Add a line; when this returns, its answers may leave."""
    return parse(book.append(line.to_dict()), book.path)


def append_crowd(book: chain.Writer, line: CrowdLine) -> CrowdLine:
    """Add the line of a crowd; when this returns, its noisy table may leave."""
    return parse_crowd(book.append(line.to_dict()), book.path)


def parse_crowd(entry: Mapping[str, Any], path: Path) -> CrowdLine:
    """The line of a crowd that an entry holds; refused where a field is not of the kind that was written."""
    cost = _checked(entry, path, _CROWD_COUNTS, _CROWD_TEXTS)
    line = CrowdLine(
        release=crowds.from_dict(entry.get("release")),
        budget=budget_from_dict(entry.get("budget", {})),
        order=cost["order"],
        cost=Cost(cost["rdp"], cost["slack"]),
        **{name: entry[name] for name in (*_CROWD_COUNTS, *_CROWD_TEXTS, "schema", "digest")},
    )
    unpack_table(line.values, line.release.shape)
    return line


def parse(entry: Mapping[str, Any], path: Path) -> Line:
    """The line that an entry holds; refused where a field is not of the kind that every version wrote."""
    cost = _checked(entry, path, _COUNTS, _TEXTS)
    return Line(
        mechanism=from_dict(entry.get("mechanism", {})),
        budget=budget_from_dict(entry.get("budget", {})),
        order=cost["order"],
        cost=Cost(cost["rdp"], cost["slack"]),
        **{name: entry[name] for name in (*_COUNTS, *_TEXTS, "schema", "digest")},
    )


def _checked(
    entry: Mapping[str, Any], path: Path, counts: Mapping[str, int], texts: Iterable[str]
) -> dict[str, float]:
    """The cost of a line whose fields are of the kinds that a ledger holds."""
    cost = entry.get("cost")
    cost = cost if isinstance(cost, dict) else {}
    wrong = [name for name, least in counts.items() if not _is_count(entry.get(name), least)]
    wrong += [name for name in texts if not isinstance(entry.get(name), str)]
    wrong += ["cost"] * (not all(_is_number(cost.get(name)) for name in _COST))
    if wrong:
        raise PateError(
            f"line {entry.get('sequence', 0) + 1} of {path} has {wrong[0]}={entry.get(wrong[0])!r}, which is "
            "no such thing as a ledger holds: restore the file from a backup"
        )
    return cost


def cost_to_dict(order: float, cost: Cost) -> dict[str, float]:
    """What a batch costs, as the ledger records it.

    >>> cost_to_dict(10.0, Cost(0.5, 0.0))
    {'order': 10.0, 'rdp': 0.5, 'slack': 0.0}
    """
    return {"order": order, "rdp": cost.rdp, "slack": cost.slack}


def pack(labels: Iterable[int], answered: Iterable[bool], counts: ArrayLike | None = None) -> str:
    """Answers as text: the label of each query, `-` where it was refused; or all noisy counts, row by row.

    >>> pack([3, -1, 12], [True, False, True]), pack([0], [True], [[81, -4]])
    ('3 - 12', '81 -4')
    """
    if counts is not None:
        return pack_table(np.asarray(counts))
    given = np.asarray(labels).tolist()
    tokens = {label: str(label) for label in set(given)}
    pairs = zip(given, np.asarray(answered).tolist(), strict=True)
    return " ".join([tokens[label] if told else REFUSED for label, told in pairs])


def unpack(answers: str) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Labels (-1 where refused) and which queries were answered.

    >>> unpack("3 - 12")
    (array([ 3, -1, 12], dtype=int32), array([ True, False,  True]))
    """
    tokens = answers.split()
    answered = np.array([token != REFUSED for token in tokens], bool)
    try:
        label = {token: -1 if token == REFUSED else int(token) for token in set(tokens)}
        labels = np.array([label[token] for token in tokens], np.int32)
    except (ValueError, OverflowError) as error:
        raise PateError(f"answers hold something that is no label: {error}") from error
    return labels, answered


def pack_table(values: Int[np.ndarray, "rows columns"]) -> str:
    """A table of whole numbers as text, row after row.

    >>> pack_table(np.array([[3, -1], [0, 12]]))
    '3 -1 0 12'
    """
    return " ".join(map(str, values.ravel().tolist()))


def unpack_table(values: str, shape: tuple[int, int]) -> Int[np.ndarray, "rows columns"]:
    """The table of this shape that `pack_table` wrote.

    >>> unpack_table("3 -1 0 12", (2, 2)).tolist()
    [[3, -1], [0, 12]]
    """
    tokens = values.split(" ") if values else []
    if len(tokens) != shape[0] * shape[1] or not all(map(_IS_WHOLE, tokens)):
        raise PateError(
            f"a noisy table of {len(tokens)} numbers is recorded, where a release has {shape[0]} x "
            f"{shape[1]} whole ones: restore the ledger from a backup"
        )
    return np.array(list(map(int, tokens)), np.int64).reshape(shape)


def _is_count(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
