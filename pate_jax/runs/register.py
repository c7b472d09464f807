"""What all runs on the same private records may spend together: a file of the owner's, private like these.

    register   the first line: a name for the register, and the key of the digests that it holds
    sample     digests by which people are found again (`people`), once for each set of records
    run        a run, whose records it reads, and the most that it may spend; before it spends anything
    answer     a digest of a line of a run's ledger, before that line is written and an answer leaves
    limit      what runs on the same people may spend together, once

A run is named after its secret, so it is the same run wherever its folder lies, and has one list of answers:
a copy that answers something else, or a folder that was restored from a backup, does not fit. The file is a
chain of lines like a ledger (`chain`). It has one writer at a time, and others wait. What this machine has
seen of it stands apart (`anchors`).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pate_jax.accounting import filter
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, codec
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import anchors, chain, people, plans
from pate_jax.runs.people import People
from pate_jax.runs.plans import Plan
from pate_jax.system import storage

_BEGINS = b'{"artefact": "ledger"'  # a register, or as much of it as a crash left
_CLOSER = 1e-9  # relative: what is spent is rounded up


@dataclass(frozen=True)
class Entry:
    """One run of a register."""

    run: str  # what names it and tells nothing of its secret
    place: str  # where it lay when it was entered
    time: str
    plans: tuple[Plan, ...]  # more than one where it answered under an earlier one
    samples: tuple[str, ...] = ()  # whose records it reads; none where nobody knows, as with votes alone
    answers: tuple[str, ...] = ()

    def planned(self, plan: Plan, place: str, time: str, sample: str | None) -> Entry:
        """The same run with another plan, which replaces one under which nothing was answered."""
        return Entry(
            self.run,
            place,
            time,
            (*plans.kept(self.plans, len(self.answers), plan), plan),
            tuple(dict.fromkeys([*self.samples, *([sample] if sample else [])])),
            self.answers,
        )


@dataclass(frozen=True)
class Book:
    """What a register says."""

    file: Path
    identity: str
    key: bytes
    entries: Mapping[str, Entry]
    samples: Mapping[str, People]
    limit: filter.Filter | None
    _same: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False, compare=False)

    def around(self, run: str) -> list[Entry]:
        """All runs that a person of this run may be in, itself among them.

        Those that share people, directly or through another one. A run of unknown records is with everybody;
        a person in it is in one group of the others at most, so the most expensive of these is with it.
        """
        mine = self.entries[run]
        if mine.samples:
            return [*self._connected(mine), *self._unknown]
        return max(self.groups, key=lambda group: sum(one.cost(2.0).rdp for one in spent(group)))

    @cached_property
    def groups(self) -> list[list[Entry]]:
        """All runs, by the people that they share; a run of unknown records is in every group."""
        found: list[list[Entry]] = []
        for entry in self.entries.values():
            if entry.samples and not any(entry in group for group in found):
                found.append(self._connected(entry))
        return [[*group, *self._unknown] for group in found] or [self._unknown] * bool(self._unknown)

    @property
    def _unknown(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if not entry.samples]

    def _connected(self, entry: Entry) -> list[Entry]:
        """The runs that share people with a run, in the order of the register."""
        left = [one for one in self.entries.values() if one.samples and one != entry]
        found, new = [entry], [entry]
        while new:
            new = [one for one in left if any(self._share(one, other) for other in new)]
            left = [one for one in left if one not in new]
            found += new
        return [one for one in self.entries.values() if one in found]

    def _share(self, one: Entry, other: Entry) -> bool:
        return any(self._are_same(mine, theirs) for mine in one.samples for theirs in other.samples)

    def _are_same(self, mine: str, theirs: str) -> bool:
        pair = (min(mine, theirs), max(mine, theirs))
        if pair not in self._same:
            self._same[pair] = mine == theirs or people.same(self.samples[mine], self.samples[theirs])
        return self._same[pair]

    def check_limit(self, run: str) -> None:
        """Refuse that a run spends anything where it and others on the same people may exceed the limit."""
        if self.limit is None:
            return
        # a run of unknown records may be on anybody's, so every group has to keep the limit with it
        groups = [self.around(run)] if self.entries[run].samples else self.groups
        for group in groups:
            if not self.limit.allows(plans.cost(spent(group), self.limit.order)):
                mine = plans.cost(self.entries[run].plans, self.limit.order).rdp / self.limit.rdp
                whole = plans.cost(spent(group), self.limit.order).rdp / self.limit.rdp
                raise PateError(
                    f"the limit of epsilon {self.limit.epsilon:g} at delta {self.limit.delta:g} in "
                    f"{self.file} would be exceeded: {whole - mine:.1%} of it is spent on these people by "
                    f"{len(group) - 1} other runs, and this run may cost {mine:.1%}; ask fewer queries or "
                    "add noise"
                )


def spent(entries: Sequence[Entry]) -> list[Plan]:
    """All that these runs may spend."""
    return [plan for entry in entries for plan in entry.plans]


def find(file: Path | None) -> Path:
    """The register that a run is entered in: the named one, or the default one, which begins by itself."""
    if file is None:
        path = anchors.default().resolve()
        if not path.exists() or b"\n" not in storage.read_bytes(path):  # a crash may leave a part of a line
            begin(path)
        return path
    return file.expanduser().resolve()


def begin(file: Path) -> None:
    """Write the first line of a new register; one that is there already is left as it is."""
    file = file.expanduser().resolve()
    _check_kind(file)
    _make_room(file)
    with chain.Writer(file, wait=True) as writer:
        if not writer.state.entries:
            anchors.check(anchors.known(), file, None, [])
            identity = secrets.token_hex(16)
            line = writer.append({"register": identity, "key": secrets.token_hex(32)})
            anchors.see(file, identity, 1, line["digest"])


def _make_room(file: Path) -> None:
    """The folder of the default register is made; that of another must be there."""
    anchors.prepare()
    if not file.parent.is_dir():
        raise PateError(f"{file.parent} is not here: mount or make it, or name another --register FILE")


def read(file: Path) -> Book:
    """The content of a register; refused where it is not here, or not as this machine has seen it last."""
    _check_kind(file)
    known = anchors.known()
    lines = chain.read(file) if file.exists() else []
    identity = lines[0].get("register") if lines else None
    if lines and not isinstance(identity, str):
        raise PateError(f"{file} is the ledger of a run and no register: name a file of its own")
    anchors.check(known, file, identity, [line["digest"] for line in lines])
    if identity is None:
        raise PateError(
            f"{file} does not exist, or has no first line: is it mounted, and spelled so? A new register is "
            f"begun by `pate budget --register {file} --begin`"
        )
    try:
        return _book(file, lines)
    except (KeyError, TypeError, ValueError) as error:
        raise PateError(
            f"{file} was written by another version of pate_jax, or was changed ({error!r}): go on with that "
            f"version, or restore the file. To count anew, `pate budget --register {file}.new --begin`, give "
            f"--register {file}.new to every run, and add what the old register counted by hand"
        ) from error


def _book(file: Path, lines: Sequence[Mapping[str, Any]]) -> Book:
    entries: dict[str, Entry] = {}
    samples: dict[str, People] = {}
    limit = None
    for line in lines[1:]:
        if "sample" in line:
            samples[line["name"]] = people.from_dict(line["sample"])
        elif "limit" in line:
            limit = codec.from_dict(filter.Filter, line["limit"], f"the limit in {file}")
        elif "plan" in line:
            run, place, time = (str(line[name]) for name in ("run", "place", "time"))
            known = entries.get(run, Entry(run, place, time, ()))
            entries[run] = known.planned(plans.from_json(line["plan"]), place, time, line["people"])
        else:
            known = entries[line["run"]]
            entries[known.run] = replace(known, answers=(*known.answers, str(line["answer"])))
    return Book(file, lines[0]["register"], bytes.fromhex(lines[0]["key"]), entries, samples, limit)


@contextmanager
def writing(file: Path) -> Iterator[Writer]:
    """Hold a register for its one writer; others wait."""
    anchors.prepare()
    read(file)  # refuses any other file, before its end is mistaken for a line that a crash cut short
    with Writer(file, wait=True) as writer:
        writer.book = read(file)
        yield writer


class Writer(chain.Writer):
    """The writer of a register, and what the register says."""

    book: Book

    def append(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Add a line, and remember that it was seen."""
        line = super().append(entry)
        anchors.see(self.path, self.book.identity, self.state.entries, line["digest"])
        self.book = read(self.path)
        return line


def set_limit(file: Path, epsilon: float, delta: float) -> None:
    """Set, once, what runs on the same people may spend together; that fixes the order of the sum."""
    wanted = _filter(epsilon, check_delta(delta))
    with writing(file) as writer:
        before = writer.book.limit
        if before is not None and (before.epsilon, before.delta) != (epsilon, delta):
            raise PateError(
                f"{file} has the limit epsilon={before.epsilon:g} at delta={before.delta:g}, which is set "
                "once: leave it as it is, or begin another register for other records"
            )
        if before is None:
            writer.append({"limit": to_dict(wanted)})


def _filter(epsilon: float, delta: float) -> filter.Filter:
    """The budget at the order that is best for costs that grow with the order, as those of Gaussian noise do.

    Any order gives a valid limit, so the quicker rule chooses it. A thousandth of delta is left for what
    samplers of continuous noise stray from their laws.
    """
    inner = delta * (1 - 1e-3)
    noise = DiscreteGaussianMax(max(100.0 / epsilon, 2.0) if epsilon > 0 else 2.0)
    found = filter.plan(noise, teachers=250, classes=10, epsilon=epsilon, delta=inner, rule="counts")
    strays = (delta - inner) / (1 + math.exp(min(epsilon, 700.0))) * (1 - _CLOSER)
    return replace(found, delta=delta, slack=found.slack + strays)


def summary(file: Path, delta: float | None) -> dict[str, Any]:
    """Every run's line, and what all on the same people may spend together."""
    book = read(file)
    limit = book.limit
    delta = delta or (limit.delta if limit else CUSTOMARY_DELTA)
    numbers = {entry.run: number for number, entry in enumerate(book.entries.values(), 1)}
    runs = [
        {
            "name": entry.place,
            "time": entry.time,
            "plan": to_dict(entry.plans[-1]),
            "epsilon": plans.together(entry.plans, delta),
            "answers": len(entry.answers),
            "known": bool(entry.samples),
        }
        for entry in book.entries.values()
    ]
    return {
        "register": str(file),
        "runs": runs,
        "delta": delta,
        "groups": [
            {
                "runs": [numbers[entry.run] for entry in group],
                "sums": [one._asdict() for one in plans.sums(spent(group), delta)],
                "share": limit and plans.cost(spent(group), limit.order).rdp / limit.rdp,
            }
            for group in book.groups
        ],
        "limit": limit and to_dict(limit),
    }


def _check_kind(file: Path) -> None:
    """Refuse any other kind of file, before its end is mistaken for a line that a crash cut short."""
    begins = storage.read_bytes(file)[: len(_BEGINS)] if file.exists() else b""
    if not _BEGINS.startswith(begins):
        raise PateError(f"{file} is no register: name one that was begun by `pate budget --begin`")
