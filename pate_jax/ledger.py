"""What has been spent: an append-only chain of entries, durable before an answer leaves the process.

One JSON object a line. Each line carries the SHA-256 of the line before it, so that an entry which is
changed, dropped or moved breaks the chain. The file is rewritten whole and renamed into place, so a crash
leaves the old chain or the new one.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from pate_jax import artefact
from pate_jax.errors import PateError

_GENESIS = "0" * 64


def append(path: Path, entry: dict[str, Any]) -> None:
    """Add an entry and return once it is on the disk."""
    entries = read(path)
    previous = entries[-1]["digest"] if entries else _GENESIS
    line = {
        "artefact": "ledger",
        "schema": artefact.SCHEMA,
        "sequence": len(entries),
        "previous": previous,
        **entry,
    }
    line["digest"] = _digest(line)
    content = path.read_bytes() if path.exists() else b""
    artefact.write_bytes(path, content + json.dumps(line, allow_nan=False).encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All entries in order, after checking the chain; an absent file is an empty ledger."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines()
    entries = [_parse(path, number, line) for number, line in enumerate(lines)]
    previous = _GENESIS
    for number, entry in enumerate(entries):
        if entry.get("schema") != artefact.SCHEMA:
            raise PateError(
                f"{path} line {number + 1} has schema version {entry.get('schema')!r}; "
                f"this version of pate_jax reads {artefact.SCHEMA}"
            )
        unsigned = {name: value for name, value in entry.items() if name != "digest"}
        whole = entry.get("digest") == _digest(unsigned)
        if not whole or entry.get("previous") != previous or entry.get("sequence") != number:
            raise PateError(
                f"{path} line {number + 1} does not fit the chain: the ledger was changed after it was "
                "written. Restore it from a backup; a run whose ledger is lost must not answer again"
            )
        previous = entry["digest"]
    return entries


def find(path: Path, **wanted: Any) -> dict[str, Any] | None:
    """The first entry whose named fields have these values, if there is one."""
    for entry in read(path):
        if all(entry.get(name) == value for name, value in wanted.items()):
            return entry
    return None


def _digest(line: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(line, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _parse(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise PateError(f"{path} line {number + 1} is not JSON: {error}") from error
    if not isinstance(entry, dict):
        raise PateError(f"{path} line {number + 1} holds no JSON object")
    return entry
