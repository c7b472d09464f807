"""What has been spent: one line a batch of queries or a crowd's release, durable before what it shows leaves.

The file is a chain (`chain`), so no line of it can be changed, dropped or moved unseen. Here is what a line
says, checked where it is read. Lines of both kinds stand in one chain, and their costs add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.costs import BestOf, Trained
from pate_jax.accounting.filter import Cost, Filter
from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import CrowdRelease
from pate_jax.mechanisms.events import Answers, Event
from pate_jax.runs import chain, secret
from pate_jax.system import storage
from pate_jax.voting import Votes

REFUSED = "-"
_IS_WHOLE = re.compile("-?[0-9]{1,18}", re.ASCII).fullmatch
_ELSEWHERE = {  # kinds of lines, and of events, that other readers know
    "training": "of a training by DP-SGD: only its own command goes on with it",
    "best-of": "of a choice of settings: `pate tune` goes on with it",
    "charge": "of one party of a vote among several: `pate party` goes on with it",
    "begun": "of one party of a vote among several: `pate party` goes on with it",
    "opened": "of one party of a vote among several: `pate party` goes on with it",
}


class Given(NamedTuple):
    """What a batch answered: a label for each query, -1 where refused, and noisy counts where given."""

    labels: NDArray[np.int32]
    answered: NDArray[np.bool_]
    counts: Int[np.ndarray, "query class"] | None

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The parts that there are, by name."""
        return {name: part for name, part in self._asdict().items() if part is not None}


Released = Event | Trained | BestOf  # what a line may be of
E = TypeVar("E", bound=Released)


class Line(NamedTuple, Generic[E]):
    """One release: what it is, of which exact value, on what, under which budget, its cost and its value."""

    batch: int
    event: E
    exact: str  # the digest of the exact table, or of the votes (stable answers: those of the whole batch)
    public: str  # what was asked: the digest of a public side, or those of the queries' ids and inputs
    noise: str  # a digest that commits to it
    budget: Filter | None
    order: float  # at which the cost is stated
    cost: Cost
    values: str  # as `pack` or `pack_table` writes them

    @property
    def stream(self) -> str:
        """The name of its noise, which is there before it is known how many queries are asked."""
        event = self.event.mechanism if isinstance(self.event, Answers) else self.event
        return secret.stream(self.batch, to_dict(event), self.exact, self.public)


AnswerLine = Line[Answers]
CrowdLine = Line[CrowdRelease]
AnyLine = AnswerLine | CrowdLine | Line[Trained] | Line[BestOf]


def given(line: AnswerLine) -> Given:
    """What was answered; of whole histograms the labels are those of the largest counts."""
    event = line.event
    if not event.mechanism.releases_counts:
        return Given(*unpack(line.values), None)
    counts = unpack_table(line.values, (event.asked, event.classes))
    return Given(counts.argmax(1).astype(np.int32), np.ones(len(counts), bool), counts)


def asked(votes: Votes) -> str:
    """The name of a list of queries: the digests of their ids and of their inputs."""
    return f"{storage.digest(votes.ids)} {storage.digest(votes.digests)}"


def entries(path: Path) -> Iterator[AnyLine]:
    """The lines of a ledger in order, each after the chain up to it was checked; an absent file has none."""
    return (parse(entry, path) for entry in chain.entries(path))


def lines(path: Path) -> Iterator[AnswerLine]:
    """The lines of teachers alone, in order."""
    return (cast(AnswerLine, line) for line in _of_voters(path) if isinstance(line.event, Answers))


def releases(path: Path) -> Iterator[CrowdLine]:
    """The lines of crowds alone, in order."""
    return (cast(CrowdLine, line) for line in _of_voters(path) if isinstance(line.event, CrowdRelease))


def _of_voters(path: Path) -> Iterator[AnyLine]:
    """The lines of a ledger; refused where they are of a run that has no voters."""
    for line in entries(path):
        if isinstance(line.event, Trained | BestOf):
            raise PateError(f"{path} is the ledger {_ELSEWHERE[line.event.name]}")
        yield line


def charge(path: Path, kind: type[E]) -> Line[E]:
    """The one line of a run that is charged before it begins."""
    lines = list(entries(path))
    if len(lines) != 1 or not isinstance(lines[0].event, kind):
        raise PateError(
            f"{path} shows {[line.event.name for line in lines]}, where this run has one line, "
            f"{codec.name_of(kind)}: repeat the command of the run, or restore the ledger from a backup"
        )
    return cast("Line[E]", lines[0])


def read(path: Path) -> list[AnswerLine]:
    """All lines of teachers at once."""
    return list(lines(path))


def append(book: chain.Writer, line: Line[E]) -> Line[E]:
    """Add a line; when this returns, what it holds may leave."""
    book.add("release", line)
    return line


def parse(entry: Mapping[str, Any], path: Path) -> AnyLine:
    """The line that an entry holds; refused where a field is not of the kind that was written."""
    kind = str(entry.get("kind"))
    if kind in _ELSEWHERE:
        raise PateError(f"{path} is the ledger {_ELSEWHERE[kind]}, and `pate verify` checks it")
    line: AnyLine = chain.record(entry, {"release": Line}, path)
    if line.batch < 1:
        raise PateError(f"{chain.place(entry, path)} has batch={line.batch}, which cannot be")
    if isinstance(line.event, CrowdRelease):
        unpack_table(line.values, line.event.shape)
    return line


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
