"""An append-only file of lines that reveals every later change, for ledgers and registers.

    ledger.jsonl              one JSON object in each line
    ledger.jsonl.head.json    the number of lines and the digest of the last one: written after each line

A symbolic link is followed first, so that a file has one head and one lock, whatever it is called by.

A line ends in `, "digest": "..."}`, the SHA-256 of all its bytes before that, and contains the digest of the
line before it as `previous`. So a changed byte, or a line that is dropped, moved or edited, breaks the chain.
Lines missing at the end do not break it, so the head counts lines. The order of events is line, fsync, head,
fsync, and only then are answers written. So a crash leaves one of three states, which can be distinguished:

- the head counts all lines: nothing was in progress;
- there is one whole line more than the head counts: it was recorded, and its answers may not have been
  written; the line is valid;
- after the lines that the head counts, there is a part of a line: it was being recorded, and none of its
  answers was written. The next writer cuts it off, says so, and notes it in the line that replaces it.

Anything else is damage and is refused. Readers hold one line at a time, so memory does not grow with the
file, and they may read while a writer appends. If a file and its head are both restored from the same older
copy, they alone do not show it, but files of answers that the ledger lacks do (`answers`).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast

from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.system import locks, progress, storage

Kind = TypeVar("Kind")

SCHEMA = 1
GENESIS = "0" * 64
OF_THE_CHAIN = ("artefact", "schema", "sequence", "previous", "digest", "torn")  # what it adds to each entry
LONGEST = 1 << 28  # the most bytes of a line
_TAIL = len(', "digest": ""}\n') + 64


class Torn(NamedTuple):
    """A part of a line at the end of the file."""

    bytes: int
    sha256: str


class State(NamedTuple):
    """A summary of the lines of a file."""

    entries: int  # number of whole lines
    digest: str  # digest of the last of them
    size: int  # bytes of the whole lines
    counted: int  # lines that the head counts: the same number, or one fewer after a crash
    torn: Torn | None  # the part of a line after the whole lines


class Head(NamedTuple):
    """The content of the head file."""

    entries: int
    digest: str


class Writer:
    """The only writer of a file; use it in a `with` statement.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger.jsonl"
    >>> with Writer(path) as book:
    ...     entry = book.append({"batch": 1, "answers": "3 - 7"})
    >>> [entry["batch"] for entry in entries(path)], check(path).entries
    ([1], 1)
    """

    def __init__(self, path: Path, *, wait: bool = False) -> None:
        self.path = path.resolve() if path.is_symlink() else path
        self._wait = wait  # for another writer to end; else it is named, and this one refused
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        lock = self.path.with_name(f".{self.path.name}.lock")
        self._stack.enter_context(locks.held(lock, self.path, wait=self._wait))
        try:
            self.state = check(self.path)
            self._settle()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def append(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Add an entry; it is on disk when this returns."""
        self._settle()
        state = self.state
        body = {"artefact": "ledger", "schema": SCHEMA, "sequence": state.entries, "previous": state.digest}
        body |= entry
        self._check_size()
        if state.torn is not None:
            progress.say(
                f"{self.path} ends in {state.torn.bytes} bytes of an unfinished line: a crash while a batch "
                "was being recorded, before any of its answers was written. The line is recorded again"
            )
            body["torn"] = state.torn._asdict()
        content = line(body)
        if len(content) >= LONGEST:
            raise PateError(
                f"a line of {len(content):,} bytes is longer than a ledger may hold, {LONGEST:,}: ask in "
                "smaller batches, with --budget-epsilon and --more"
            )
        storage.append_bytes(self.path, content, after=state.size)
        digest = _digest(content)
        self.state = State(state.entries + 1, digest, state.size + len(content), state.entries, None)
        self._settle()
        return {**body, "digest": digest}

    def add(self, kind: str, line: object) -> None:
        """Add what `record` reads as this kind."""
        self.append({"kind": kind, **codec.to_dict(line)})

    def _check_size(self) -> None:
        """Refuse to overwrite lines that another process added, which can happen if the lock was removed."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size != self.state.size + (self.state.torn.bytes if self.state.torn else 0):
            raise PateError(
                f"{self.path} was changed by another process while process {os.getpid()} held it: nothing "
                "was recorded or answered. Let only one process at a time write it, and repeat the command"
            )

    def _settle(self) -> None:
        """Write a head that counts all lines."""
        if self.state.counted < self.state.entries:
            head = {"entries": self.state.entries, "digest": self.state.digest}
            storage.write_json(head_path(self.path), "ledger-head", head)
            self.state = self.state._replace(counted=self.state.entries)


def append(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Add one entry to a file that no other process is writing."""
    with Writer(path) as book:
        return book.append(entry)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """The entries in order, each after a check of the chain up to it; an absent file has none."""
    yield from _walk(path)


def read(path: Path) -> list[dict[str, Any]]:
    """All entries at once."""
    return list(entries(path))


def check(path: Path) -> State:
    """Check the whole chain and the head, in the memory of one line."""
    walk = _walk(path)
    while True:
        try:
            next(walk)
        except StopIteration as end:
            state: State = end.value
            return state


def record(entry: Mapping[str, Any], kinds: Mapping[str, type[Kind]], path: Path) -> Kind:
    """What an entry holds, which is of one of these kinds and says of which."""
    where, kind = place(entry, path), entry.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise PateError(f"{where} has kind={kind!r}, and one of {', '.join(kinds)} is needed: {_RESTORE}")
    fields = {name: value for name, value in entry.items() if name not in (*OF_THE_CHAIN, "kind")}
    return cast(Kind, codec.from_dict(kinds[kind], fields, where))


def records(path: Path, kinds: Mapping[str, type[Kind]]) -> Iterator[Kind]:
    """What all entries of a file hold, in order."""
    return (record(entry, kinds, path) for entry in entries(path))


def place(entry: Mapping[str, Any], path: Path) -> str:
    """Where an entry stands.

    >>> place({"sequence": 2}, Path("ledger.jsonl"))
    'line 3 of ledger.jsonl'
    """
    return f"line {entry.get('sequence', 0) + 1} of {path}"


def line(body: Mapping[str, Any]) -> bytes:
    """The line of an entry, with its digest.

    >>> line({"batch": 1})[:40]
    b'{"batch": 1, "digest": "4e4fc74044eff621'
    """
    content = json.dumps(body, allow_nan=False)[:-1].encode()
    return content + f', "digest": "{hashlib.sha256(content).hexdigest()}"}}\n'.encode()


def head_path(path: Path) -> Path:
    """The path of the head file.

    >>> head_path(Path("people.2025")).name
    'people.2025.head.json'
    """
    real = path.resolve() if path.is_symlink() else path
    return real.with_name(f"{real.name}.head.json")


def _walk(path: Path) -> Generator[dict[str, Any], None, State]:
    head = _read_head(path)
    if not path.exists():
        if head.entries:
            raise PateError(_too_short(path, 0, head))
        return State(0, GENESIS, 0, 0, None)
    count, previous, size, torn = 0, GENESIS, 0, None
    with open(path, "rb") as stream:
        while content := stream.readline(LONGEST):
            try:
                entry = _entry(path, content, count, previous)
            except PateError as error:
                torn = _torn(path, content, stream.read(1), count, error)
                break
            count, previous, size = count + 1, entry["digest"], size + len(content)
            if count == head.entries and previous != head.digest:
                raise PateError(f"{path} line {count} is not the one that {head_path(path)} names: {_DAMAGE}")
            yield entry
    if count < head.entries:
        raise PateError(_too_short(path, count, head))
    if count > head.entries + 1 and count > _read_head(path).entries + 1:
        raise PateError(
            f"{path} has {count} lines and {head_path(path)} counts {head.entries}: it is from an older "
            f"copy, so lines may be missing. {_RESTORE}"
        )
    return State(count, previous, size, head.entries, torn)


_RESTORE = "Restore both files from a backup; a run whose ledger is lost must not answer again"
_DAMAGE = f"the ledger was changed after it was written. {_RESTORE}"


def _entry(path: Path, content: bytes, number: int, previous: str) -> dict[str, Any]:
    """The entry of a line; an error if it is not whole or does not follow the line before."""
    where = f"{path} line {number + 1}"
    entry = storage.parse_json(content, where)
    if entry.get("schema") != SCHEMA:
        raise PateError(
            f"{where} has schema version {entry.get('schema')!r}; this version of pate_jax reads {SCHEMA}. "
            "Use the version of pate_jax that wrote it"
        )
    whole = content[-_TAIL:] == f', "digest": "{_digest(content)}"}}\n'.encode()
    if not whole or entry.get("previous") != previous or entry.get("sequence") != number:
        raise PateError(f"{where} does not fit the chain: {_DAMAGE}")
    return entry


def _torn(path: Path, content: bytes, following: bytes, count: int, error: PateError) -> Torn:
    """A partial line, if a crash can have left it; anything else is damage."""
    if count != _read_head(path).entries or following or _is_whole(content):  # the head as it is by now
        raise error
    return Torn(len(content), hashlib.sha256(content).hexdigest())


def _is_whole(content: bytes) -> bool:
    """Whether this is a whole line of JSON: then someone changed it, or another version wrote it."""
    try:
        json.loads(content)
    except (ValueError, RecursionError):
        return False
    return content.endswith(b"\n")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content[:-_TAIL]).hexdigest()


def _too_short(path: Path, count: int, head: Head) -> str:
    head_says = f"{head_path(path)} counts {head.entries}"
    return f"{path} has {count} lines where {head_says}: its end is missing. {_RESTORE}"


def _read_head(path: Path) -> Head:
    file = head_path(path)
    if not file.exists():
        return Head(0, GENESIS)
    body = storage.read_json(file, "ledger-head")
    count, digest = body.get("entries"), body.get("digest")
    if not (isinstance(count, int) and count > 0 and isinstance(digest, str)):
        raise PateError(f"{file} has no number and digest of lines. {_RESTORE}")
    return Head(count, digest)
