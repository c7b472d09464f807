"""Files that a run leaves behind: written whole or not at all, and stamped with what they are.

Every write of the package passes `write_bytes`. Every JSON and NPZ artefact carries its kind and a schema
version; a reader refuses any other. No file is ever unpickled.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.errors import PateError

SCHEMA = 1
_STAMP = "artefact"


def write_bytes(path: Path | str, content: bytes) -> None:
    """Write a whole file durably: after a crash the old content or the new is there, never a part of it."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def read_bytes(path: Path | str) -> bytes:
    """The content of a file, or one sentence that says why there is none."""
    path = Path(path)
    if not path.exists():
        raise PateError(f"{path} does not exist")
    if path.is_dir():
        raise PateError(f"{path} is a folder where a file is wanted")
    return path.read_bytes()


def write_json(path: Path | str, kind: str, body: Mapping[str, Any]) -> None:
    """Write a JSON artefact of this kind."""
    stamped = {_STAMP: kind, "schema": SCHEMA, **body}
    write_bytes(path, (json.dumps(stamped, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path | str, kind: str) -> dict[str, Any]:
    """Read a JSON artefact, refusing another kind or an unknown schema."""
    try:
        body = json.loads(read_bytes(path))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise PateError(f"{path} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise PateError(f"{path} holds no JSON object")
    _check_stamp(path, kind, body.pop(_STAMP, None), body.pop("schema", None))
    return body


def write_arrays(path: Path | str, kind: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an NPZ artefact of this kind."""
    stamp = np.array(json.dumps({_STAMP: kind, "schema": SCHEMA}))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **{_STAMP: stamp, **arrays})
    write_bytes(path, buffer.getvalue())


def read_arrays(path: Path | str, kind: str) -> dict[str, np.ndarray]:
    """Read an NPZ artefact, refusing another kind or an unknown schema."""
    arrays = read_foreign_arrays(path)
    stamp = arrays.pop(_STAMP, None)
    stamp_text = "" if stamp is None or stamp.dtype.kind != "U" or stamp.ndim else str(stamp)
    try:
        stamped = json.loads(stamp_text or "{}")
    except json.JSONDecodeError as error:
        raise PateError(f"{path} has an unreadable stamp: {error}") from error
    _check_stamp(path, kind, stamped.get(_STAMP), stamped.get("schema"))
    return arrays


def read_foreign_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of somebody else's NPZ file, which need not carry a stamp."""
    content = read_bytes(path)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if isinstance(archive, np.ndarray):
                raise PateError(f"{path} is a single .npy array where an .npz archive is wanted")
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile, EOFError, OSError, KeyError) as error:
        if isinstance(error, PateError):
            raise
        raise PateError(f"{path} is not a readable .npz archive: {error}") from error


def digest(*arrays: np.ndarray | None) -> str:
    """SHA-256 over dtype, shape and content of arrays, in order.

    >>> import numpy as np
    >>> digest(np.zeros(2)) == digest(np.zeros(2)), digest(np.zeros(2)) == digest(np.zeros((2, 1)))
    (True, False)
    """
    total = hashlib.sha256()
    for array in arrays:
        if array is None:
            total.update(b"none;")
            continue
        array = np.ascontiguousarray(array)
        total.update(f"{array.dtype.str}{array.shape};".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _check_stamp(path: Path | str, kind: str, found_kind: Any, found_schema: Any) -> None:
    if found_kind != kind:
        raise PateError(f"{path} is not a {kind} file: it says it is {found_kind!r}")
    if found_schema != SCHEMA:
        raise PateError(
            f"{path} has schema version {found_schema!r}; this version of pate_jax reads {SCHEMA}. "
            "Use the version of pate_jax that wrote it"
        )
