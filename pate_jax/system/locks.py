"""A lock file: one process holds it, and a second one waits or is refused with the holder's name."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pate_jax.errors import PateError
from pate_jax.system import storage

_ELSEWHERE = (
    "two processes could write it at once and draw noise twice; choose a folder on a local disk, or on a "
    "network file system that is mounted with locks"
)


@contextmanager
def held(
    path: Path,
    subject: Path,
    *,
    shared: bool = False,
    wait: bool = False,
    remedy: str = "wait for it to end",
) -> Iterator[None]:
    """Hold the lock file `path` while `subject` is written; the system frees it when its holder ends.

    Several processes may hold it `shared`, while nobody holds it alone. A process that finds it taken is
    refused with the `remedy`, or waits for it where `wait` is true.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder / ".lock", folder):
    ...     print("one writer")
    one writer
    """
    try:
        storage.make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PateError(storage.cannot_write(path, error)) from error
    try:
        mode = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB)
        _take(lock, subject, mode, remedy)
        _check_holds(path, subject)
        yield
    finally:
        os.close(lock)


def _check_holds(path: Path, subject: Path) -> None:
    """Refuse a file system that grants every lock: a second one on the same file must fail."""
    second = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    except OSError as error:
        raise PateError(f"{subject} cannot be locked ({error.strerror or error}): {_ELSEWHERE}") from error
    finally:
        os.close(second)
    raise PateError(f"{subject} lies where a lock keeps nobody out: {_ELSEWHERE}")


def _take(lock: int, subject: Path, mode: int, remedy: str) -> None:
    try:
        fcntl.flock(lock, mode)
    except BlockingIOError as error:
        holder = os.pread(lock, 200, 0).decode(errors="replace") or "another process"
        raise PateError(f"{subject} is being written by {holder}; {remedy}") from error
    except OSError as error:
        raise PateError(f"{subject} cannot be locked ({error.strerror or error}): {_ELSEWHERE}") from error
    name = f"process {os.getpid()} on {socket.gethostname()}"
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, name.encode(), 0)
    except OSError:  # a full disk: the lock holds all the same, without its holder's name
        return
