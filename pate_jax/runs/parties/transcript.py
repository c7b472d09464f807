"""What a vote has opened, signed by every party over one digest, in a file that all parties have alike."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.errors import PateError
from pate_jax.parties import certificates
from pate_jax.parties.agreement import Agreement
from pate_jax.runs.ledger import pack_table, unpack_table
from pate_jax.system import storage

KIND = "transcript"
Table = Int[np.ndarray, "rows columns"]


class Transcript(NamedTuple):
    """Who voted under which agreement, with which promises, and what was opened."""

    agreement: str
    vote: int
    promises: Mapping[str, str]
    opened: Table

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it, which every party signs."""
        return hashlib.sha256(json.dumps(self._body(), sort_keys=True).encode()).hexdigest()

    def _body(self) -> dict[str, Any]:
        rows, columns = self.opened.shape
        told = {"agreement": self.agreement, "vote": self.vote, "promises": dict(self.promises)}
        return {**told, "rows": rows, "columns": columns, "opened": pack_table(self.opened)}


def save(path: Path, transcript: Transcript, signatures: Mapping[str, bytes]) -> None:
    """Write a transcript with its signatures."""
    signed = {name: signatures[name].hex() for name in sorted(signatures)}
    storage.write_json(path, KIND, {**transcript._body(), "digest": transcript.digest, "signatures": signed})


def load(path: Path, agreement: Agreement) -> Transcript:
    """Read a transcript; refused where it is of another agreement, or a party that voted did not sign it."""
    body = storage.read_json(path, KIND)
    try:
        signed = {str(name): bytes.fromhex(text) for name, text in body.pop("signatures").items()}
        said = body.pop("digest")
        opened = unpack_table(body["opened"], (body["rows"], body["columns"]))
        found = Transcript(body["agreement"], body["vote"], body["promises"], opened)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PateError(f"{path} is no transcript ({error!r}): copy it again from another party") from error
    if found.agreement != agreement.digest or said != found.digest:
        raise PateError(f"{path} is the transcript of another agreement, or was changed: copy it again")
    check_signatures(agreement, found, signed)
    return found


def check_signatures(agreement: Agreement, transcript: Transcript, signatures: Mapping[str, bytes]) -> None:
    """Refuse a transcript that one of the parties which voted has not signed."""
    for name in transcript.promises:
        certificate = agreement.party(name).certificate
        if not certificates.verify(certificate, transcript.digest.encode(), signatures.get(name, b"")):
            raise PateError(
                f"{name} has not signed this transcript: it saw other numbers than you, or its key was "
                "changed; nobody should use them before that is explained"
            )
