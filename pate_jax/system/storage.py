"""Files that a run leaves behind: written whole or not at all, and stamped with what they are.

Every file of the package is written by `write_bytes` or `append_bytes`. Every JSON and NPZ file carries its
kind and a schema version; a reader refuses any other. No file is ever unpickled.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.errors import PateError

SCHEMA = 1
_STAMP = "artefact"
_LEVEL = 3  # of compression: takes a third of the time of level 6, and a sixth more space for votes
_ROOM, _RATIO = 1 << 30, 250  # an archive may unpack to this many bytes, or to this many times its own
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
# What zipfile and NumPy raise for bytes that are not an archive of arrays.
UNREADABLE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, EOFError, OSError),
    *(MemoryError, RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error, struct.error),
    *(lzma.LZMAError, tokenize.TokenError),
)


def write_bytes(path: Path | str, content: bytes | memoryview, *, mode: int = 0o666) -> None:
    """Write a whole file durably: after a crash the old content or the new is there, never a part of it."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        make_folder(path.parent)
        try:
            _fill(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), content)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        _sync_folder(path.parent)
    except OSError as error:
        raise PateError(cannot_write(path, error)) from error


def append_bytes(path: Path | str, content: bytes, *, after: int) -> None:
    """Append to a file durably; what lies past its first `after` bytes is cut off before.

    If the disk refuses, the file is cut back to `after` bytes; after a crash it may end in a part of
    `content`.
    """
    path = Path(path)
    try:
        stream = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.ftruncate(stream, after)
            _fill_and_sync(stream, content)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(stream, after)
            raise
        finally:
            os.close(stream)
        if after == 0:
            _sync_folder(path.parent)
    except OSError as error:
        raise PateError(cannot_write(path, error)) from error


def make_folder(folder: Path | str, *, mode: int = 0o777) -> None:
    """Make a folder, and those above it that are missing, durably: a file that is synced there stays there.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "runs" / "mine"
    >>> make_folder(folder)
    >>> folder.is_dir()
    True
    """
    folder = Path(folder)
    if folder.is_dir():
        return
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    os.makedirs(folder, mode=mode, exist_ok=True)
    for one in missing:
        with contextlib.suppress(PermissionError):  # who may write in a folder may perhaps not list it
            _sync_folder(one.parent)


def remove_leftovers(folder: Path | str) -> None:
    """Remove what a killed process left half-written; only the folder's one writer may call this."""
    for path in Path(folder).rglob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def files(folder: Path) -> list[Path]:
    """All files below a folder, whatever they are; none where it does not exist.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> make_folder(folder / "student", mode=0o700)
    >>> _ = (folder / "student" / "predict.py").write_text("")
    >>> [path.name for path in files(folder)]
    ['predict.py']
    """
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())


def cannot_write(path: Path | str, error: OSError) -> str:
    """Why a file could not be written, and what to do."""
    remedies = {
        errno.ENOSPC: "free some space there",
        errno.EDQUOT: "free some space there",
        errno.EFBIG: "raise the limit on the size of files",
        errno.EROFS: "choose a folder that can be written to",
        errno.EACCES: "choose a folder that you may write to",
        errno.EPERM: "choose a folder that you may write to",
        errno.EINVAL: "choose a folder on a local disk, since this file system keeps nothing for certain",
        errno.EOPNOTSUPP: "choose a folder on a local disk, since this file system keeps nothing for certain",
    }
    remedy = remedies.get(error.errno or 0, "see to it")
    return f"{path} could not be written ({error.strerror or error}): {remedy}, and repeat the command"


def _fill(stream: int, content: bytes | memoryview) -> None:
    try:
        _fill_and_sync(stream, content)
    finally:
        os.close(stream)


def _fill_and_sync(stream: int, content: bytes | memoryview) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(stream, left) :]
    os.fsync(stream)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_bytes(path: Path | str) -> bytes:
    """The content of a file, or a PateError that says why it cannot be read."""
    path = Path(path)
    if not path.exists():
        raise PateError(f"{path} does not exist")
    if path.is_dir():
        raise PateError(f"{path} is a folder where a file is wanted")
    try:
        return path.read_bytes()
    except OSError as error:
        raise PateError(f"{path} could not be read ({error.strerror}): see to it, and repeat") from error


def write_json(path: Path | str, kind: str, body: Mapping[str, Any], *, mode: int = 0o666) -> None:
    """Write a JSON file of this kind."""
    stamped = {_STAMP: kind, "schema": SCHEMA, **body}
    write_bytes(path, (json.dumps(stamped, indent=1, allow_nan=False) + "\n").encode(), mode=mode)


def read_json(path: Path | str, kind: str) -> dict[str, Any]:
    """Read a JSON file, refusing another kind or an unknown schema."""
    body = parse_json(read_bytes(path), path)
    _check_stamp(path, kind, body.pop(_STAMP, None), body.pop("schema", None))
    return body


def parse_json(content: bytes | str, source: Path | str) -> dict[str, Any]:
    """A JSON object from text that may be hostile: NaN, a name given twice and deep nesting are refused.

    >>> parse_json('{"a": 1, "a": 2}', "demo")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: demo is not JSON: 'a' is given twice
    """
    try:
        body = json.loads(content, object_pairs_hook=_once, parse_constant=_number, parse_float=_number)
    except (ValueError, RecursionError) as error:  # of JSON, of UTF-8, of a number with too many digits
        raise PateError(f"{source} is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise PateError(f"{source} does not hold a JSON object")
    return body


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    body: dict[str, Any] = {}
    for name, value in pairs:
        if name in body:
            raise ValueError(f"{name!r} is given twice")
        body[name] = value
    return body


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a number that JSON and float64 share")
    return value


def write_arrays(
    path: Path | str,
    kind: str,
    arrays: Mapping[str, np.ndarray],
    *,
    mode: int = 0o666,
    compressed: bool = True,
) -> None:
    """Write an NPZ file of this kind; not `compressed` where that takes long and saves little."""
    write_bytes(path, pack_arrays(kind, arrays, compressed=compressed), mode=mode)


def pack_arrays(kind: str, arrays: Mapping[str, np.ndarray], *, compressed: bool = True) -> memoryview:
    """The content of an NPZ file of this kind."""
    stamp = np.array(json.dumps({_STAMP: kind, "schema": SCHEMA}))
    buffer, method = io.BytesIO(), zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method, compresslevel=_LEVEL) as archive:
        for name, array in {_STAMP: stamp, **arrays}.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(array), allow_pickle=False)
    return buffer.getbuffer()


def read_arrays(path: Path | str, kind: str) -> dict[str, np.ndarray]:
    """Read an NPZ file, refusing another kind or an unknown schema."""
    return parse_arrays(read_bytes(path), path, kind)


def parse_arrays(content: bytes, source: Path | str, kind: str) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file of this kind, from its content.

    >>> parse_arrays(bytes(pack_arrays("demo", {"one": np.ones(2)})), "demo", "demo")
    {'one': array([1., 1.])}
    """
    arrays = _foreign_arrays(content, source)
    stamp = arrays.pop(_STAMP, None)
    stamp_text = "" if stamp is None or stamp.dtype.kind != "U" or stamp.ndim else str(stamp)
    stamped = parse_json(stamp_text or "{}", f"the stamp of {source}")
    _check_stamp(source, kind, stamped.get(_STAMP), stamped.get("schema"))
    return arrays


def read_foreign_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """The arrays of somebody else's NPZ file, which need not carry a stamp."""
    return _foreign_arrays(read_bytes(path), path)


def _foreign_arrays(content: bytes, source: Path | str) -> dict[str, np.ndarray]:
    if content.startswith(b"\x93NUMPY"):
        raise PateError(f"{source} is a single .npy array where an .npz archive is wanted")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check_sizes(archive, len(content))
            names = [one.filename for one in archive.infolist()]
            if len(set(names)) != len(names):
                raise ValueError("it names an array twice")
            return {name.removesuffix(".npy"): read_npy(archive.read(name)) for name in names}
    except UNREADABLE as error:
        raise PateError(f"{source} is not a readable .npz archive: {error or 'it is damaged'}") from error


def read_npy(content: bytes) -> np.ndarray:
    """One array from the bytes of a .npy file; ValueError where they are not exactly that.

    The size is checked against the announced shape first, so that no small file asks for much memory.

    >>> buffer = io.BytesIO()
    >>> np.save(buffer, np.arange(3))
    >>> read_npy(buffer.getvalue())
    array([0, 1, 2])
    """
    version = np.lib.format.read_magic(io.BytesIO(content))
    if version not in _HEADERS:
        raise ValueError(f"it has a header of the unknown version {version}")
    length = 10 if version == (1, 0) else 12  # of what stands before the header's text, its length included
    start = length + int.from_bytes(content[8:length], "little")
    shape, by_column, dtype = _header(content[8:start], version)
    announced = math.prod(shape) * dtype.itemsize
    if dtype.hasobject:
        raise ValueError("Object arrays are pickles, which are never read")
    if announced != len(content) - start:
        raise ValueError(f"it announces {dtype}{shape} and holds {len(content) - start} bytes")
    if not announced:
        return np.zeros(shape, dtype)
    flat = np.frombuffer(content, dtype, offset=start)
    return flat.reshape(shape, order="F" if by_column else "C").copy(order="K")


@lru_cache(maxsize=256)  # NumPy parses each as a text of Python, and many files have the same
def _header(text: bytes, version: tuple[int, int]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type."""
    return _HEADERS[version](io.BytesIO(text))


def _check_sizes(archive: zipfile.ZipFile, stored: int) -> None:
    total = sum(one.file_size for one in archive.infolist())
    if total > max(_ROOM, _RATIO * stored) or total > 2 * os.sysconf("SC_PAGE_SIZE") * os.sysconf(
        "SC_PHYS_PAGES"
    ):
        raise ValueError(f"its {stored:,} bytes would unpack to {total:,}")


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
        if array.nbytes:
            total.update(array.reshape(-1).view(np.uint8).data)  # in place: in memory or in a mapped file
    return total.hexdigest()


def _check_stamp(path: Path | str, kind: str, found_kind: Any, found_schema: Any) -> None:
    if found_kind != kind:
        raise PateError(f"{path} is not a {kind} file: it says it is {found_kind!r}")
    if found_schema != SCHEMA:
        raise PateError(
            f"{path} has schema version {found_schema!r}; this version of pate_jax reads {SCHEMA}. "
            "Use the version of pate_jax that wrote it"
        )
