"""What the parties of a vote agree on before any of them sends a vote: one file, with one digest.

The file is TOML. The digest is of the content, not of the file's bytes, so comments and the order of lines
are free, and any other change makes another agreement, which a session refuses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from pate_jax.errors import PateError
from pate_jax.parties import certificates
from pate_jax.system import storage

Kind = Literal["teachers", "neighbours", "sums"]
Opened = Literal["counts", "answers"]
Unit = Literal["record", "user", "party"]
People = Literal["compared", "unchecked"]
LARGEST_SCALE = 2.0**40  # of noise, so that sums of all parties stay far below the modulus
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Party:
    """One owner of records: where it listens, how it is known, and the most votes that it may cast.

    `votes` is public. Teachers: their number, and each query's counts of this party add up to exactly that.
    Neighbours: the most votes that this party may cast on one query. Sums: the largest size of one cell.
    """

    name: str
    host: str
    port: int
    certificate: str  # PEM
    votes: int

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and NAME.fullmatch(self.name)):
            raise PateError(f"name={self.name!r} of a party must be of letters, digits and . _ -, 64 at most")
        if not (isinstance(self.host, str) and self.host and not set(self.host) & set(" \n\t")):
            raise PateError(f"host={self.host!r} of {self.name} must be a host name or an address")
        _check_whole(f"port of {self.name}", self.port, 1, 65535)
        _check_whole(f"votes of {self.name}", self.votes, 1, 2**40)
        certificates.fingerprint(self.certificate, self.name)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the party's certificate, in hexadecimal digits."""
        return certificates.fingerprint(self.certificate, self.name)


@dataclass(frozen=True)
class Noise:
    """The noise that all parties make together, in votes.

    `scale` is the standard deviation that stays on each count after `colluders` have subtracted theirs and
    `dropouts` stayed away. A threshold is of answers only: a query is answered if its largest count plus
    noise of `test_scale` reaches it. `per_voter` is the most votes of one neighbour in the whole list, or the
    largest Euclidean norm of one voter's table of sums; teachers leave it at 1.
    """

    scale: float
    threshold: float | None = None
    test_scale: float | None = None
    per_voter: float = 1.0

    def __post_init__(self) -> None:
        _check_number("scale of [noise]", self.scale, 0, LARGEST_SCALE)
        _check_number("per_voter of [noise]", self.per_voter, 0, LARGEST_SCALE)
        if (self.threshold is None) != (self.test_scale is None):
            raise PateError(
                f"threshold={self.threshold} and test_scale={self.test_scale} of [noise] go together: "
                "give both, or neither"
            )
        if self.threshold is not None and self.test_scale is not None:
            _check_number("threshold of [noise]", self.threshold, -1, LARGEST_SCALE)
            _check_number("test_scale of [noise]", self.test_scale, 0, LARGEST_SCALE)


@dataclass(frozen=True)
class Agreement:
    """Who votes on what, with which noise, and what everybody is shown.

    Sums have one row for each direction of the space in place of a query: `queries` counts the rows.
    `training` is for whoever trains the voters and is part of the digest. `vote` numbers the votes that the
    same parties hold; a party refuses a number that its key's record shows already (`runs.parties.ledger`).

    >>> from pate_jax.parties import certificates
    >>> names = ["north", "south", "west"]
    >>> parties = tuple(Party(n, "localhost", 7000 + i, certificates.make(n).certificate, 80)
    ...                 for i, n in enumerate(names))
    >>> one = Agreement("hospitals", "0" * 64, "1" * 64, 100, 10, "teachers", "counts", Noise(40.0), 1e-5,
    ...                 {"outsiders": 1.0}, parties)
    >>> one == parse(text(one)), len(one.digest), one.names
    (True, 64, ('north', 'south', 'west'))
    """

    name: str
    pool: str  # SHA-256 of the public pool
    query_list: str  # SHA-256 of the list of queries
    queries: int
    classes: int
    voters: Kind
    opened: Opened
    noise: Noise
    delta: float
    budget: Mapping[str, float]  # the largest epsilon of each audience
    parties: tuple[Party, ...]
    colluders: int = 1
    dropouts: int = 0
    unit: Unit = "record"
    seconds: float = 60.0  # for every wait: for the parties to come, and for each message
    vote: int = 1
    people: People = "compared"  # whether it is counted, before the vote, how many are with two parties
    training: Mapping[str, str | int | float | bool] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for field in ("budget", "training"):  # a frozen value does not change when the caller's table does
            object.__setattr__(self, field, MappingProxyType(dict(getattr(self, field))))
        _check_words(self)
        _check_numbers(self)
        _check_parties(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all parties, in the agreement's order."""
        return tuple(party.name for party in self.parties)

    @property
    def digest(self) -> str:
        """The SHA-256 of the content: equal in all parties, or the vote does not begin."""
        return hashlib.sha256(json.dumps(_tables(self), sort_keys=True).encode()).hexdigest()

    def party(self, name: str) -> Party:
        """The party of this name."""
        for party in self.parties:
            if party.name == name:
                return party
        raise PateError(f"{name!r} is none of the parties of {self.name!r}: {', '.join(self.names)}")


def read(path: Path | str) -> Agreement:
    """Read an agreement from its file."""
    try:
        return parse(storage.read_bytes(path).decode())
    except UnicodeDecodeError as error:
        raise PateError(f"{path} is no text: give the agreement's TOML file") from error
    except PateError as error:
        raise PateError(f"{path}: {error}") from error


def write(path: Path | str, agreement: Agreement) -> None:
    """Write an agreement as TOML."""
    storage.write_bytes(path, text(agreement).encode())


def parse(content: str) -> Agreement:
    """The agreement that a TOML text states."""
    try:
        found = tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise PateError(f"the agreement is no TOML ({error}): take the file that `init` wrote") from error
    if not isinstance(found.get("parties"), list) or not isinstance(found.get("noise"), dict):
        raise PateError("an agreement has a table [noise] and one [[parties]] for each party")
    found["noise"] = _made(Noise, found["noise"], "[noise]")
    found["parties"] = tuple(_made(Party, one, "[[parties]]") for one in found["parties"])
    agreement: Agreement = _made(Agreement, found, "the agreement")
    return agreement


def text(agreement: Agreement) -> str:
    """The TOML text of an agreement, which `parse` reads."""
    tables = _tables(agreement)
    nested = ("noise", "budget", "training")
    plain = [_line(key, value) for key, value in tables.items() if key not in (*nested, "parties")]
    parts = ["\n".join(plain)]
    parts += [_table(f"[{key}]", tables[key]) for key in nested if key != "training" or tables[key]]
    parts += [_table("[[parties]]", party) for party in tables["parties"]]
    return "\n\n".join(parts) + "\n"


def _tables(agreement: Agreement) -> dict[str, Any]:
    """The content as plain tables, without what is not given."""
    found = {field.name: getattr(agreement, field.name) for field in dataclasses.fields(agreement)}
    noise = dataclasses.asdict(agreement.noise).items()
    found["noise"] = {key: float(value) for key, value in noise if value is not None}
    found["budget"] = {key: float(value) for key, value in agreement.budget.items()}
    found["training"] = dict(agreement.training)
    found["parties"] = [dataclasses.asdict(party) for party in agreement.parties]
    return {**found, "delta": float(agreement.delta), "seconds": float(agreement.seconds)}


def _table(head: str, values: Mapping[str, Any]) -> str:
    return "\n".join([head, *(_line(key, value) for key, value in values.items())])


def _line(key: str, value: Any) -> str:
    """One line of TOML: a string of JSON is a basic string of TOML."""
    return f"{json.dumps(key)} = {json.dumps(value)}"


def _made(kind: Callable[..., Any], values: Any, where: str) -> Any:
    """A frozen value from a table, whose every key is one of its fields and which lacks none."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    known = [field.name for field in fields]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise PateError(f"{where} has no {unknown[0]!r}: it has {', '.join(known)}")
    free = (dataclasses.MISSING, dataclasses.MISSING)
    needed = [field.name for field in fields if (field.default, field.default_factory) == free]
    missing = [key for key in needed if key not in values]
    if missing:
        raise PateError(f"{where} lacks {missing[0]!r}: every party must see it stated")
    return kind(**values)


def _check_words(agreement: Agreement) -> None:
    if not (isinstance(agreement.name, str) and agreement.name.isprintable() and agreement.name):
        raise PateError(f"name={agreement.name!r} must be a printable name")
    for field in ("pool", "query_list"):
        value = getattr(agreement, field)
        if not (isinstance(value, str) and _DIGEST.fullmatch(value)):
            raise PateError(f"{field}={value!r} must be a SHA-256 digest, of 64 hexadecimal digits")
    for field, words in (("voters", Kind), ("opened", Opened), ("unit", Unit), ("people", People)):
        if getattr(agreement, field) not in get_args(words):
            raise PateError(
                f"{field}={getattr(agreement, field)!r} must be one of {', '.join(get_args(words))}"
            )
    if agreement.voters == "sums" and agreement.opened == "answers":
        raise PateError("voters='sums' have no answers to open: their tables are opened, so opened='counts'")
    if agreement.noise.threshold is not None and agreement.opened == "counts":
        raise PateError("a threshold is of opened='answers': whoever sees noisy counts can test them freely")
    for key, value in agreement.training.items():
        if not isinstance(value, str | int | float | bool):
            raise PateError(f"{key}={value!r} of [training] must be a word or a number")


def _check_numbers(agreement: Agreement) -> None:
    _check_whole("queries", agreement.queries, 1, 10**7)
    _check_whole("classes", agreement.classes, 1 if agreement.voters == "sums" else 2, 10**5)
    _check_whole("vote", agreement.vote, 1, 10**9)
    _check_number("delta", agreement.delta, 0, 1)
    _check_number("seconds", agreement.seconds, 0, 86400)
    for audience, epsilon in agreement.budget.items():
        _check_number(f"{audience} of [budget]", epsilon, 0, 1e6)


def _check_parties(agreement: Agreement) -> None:
    parties, colluders = len(agreement.parties), agreement.colluders
    _check_whole("dropouts", agreement.dropouts, 0, max(parties, 1))
    if parties - agreement.dropouts < 3:
        raise PateError(
            f"{parties} parties of which {agreement.dropouts} may drop out leave fewer than three, and no "
            "sharing hides a vote from one party among two: find more parties, or let two of them trust "
            "one aggregator (`pate merge`)"
        )
    _check_whole("colluders", colluders, 1, 2**20)
    if 2 * colluders >= parties - agreement.dropouts:
        raise PateError(
            f"colluders={colluders} must be fewer than half of the {parties - agreement.dropouts} parties "
            "that stay: more could put the shares together and read every vote"
        )
    for field in ("name", "fingerprint"):
        values = [getattr(party, field) for party in agreement.parties]
        twice = [value for value in values if values.count(value) > 1]
        if twice:
            raise PateError(f"two parties have the {field} {twice[0]!r}: each must have one of its own")
    places = [(party.host, party.port) for party in agreement.parties]
    if len({*places}) < parties:
        raise PateError("two parties listen at the same host and port: give each a port of its own")


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PateError(f"{name}={value!r} must be a whole number from {least} to {most}")


def _check_number(name: str, value: object, least: float, most: float) -> None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not (good and least < value <= most):  # type: ignore[operator]
        raise PateError(f"{name}={value!r} must be above {least:g} and at most {most:g}")
