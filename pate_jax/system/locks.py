"""A file that one process holds at a time; who comes second is told who holds it."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pate_jax.errors import PateError
from pate_jax.system import storage


@contextmanager
def held(path: Path, subject: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold `path` while `subject` is written; the system lets go of it when the process ends.

    Several processes may hold it `shared`, while nobody holds it alone.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with held(folder / ".lock", folder):
    ...     print("one writer")
    one writer
    """
    try:
        os.makedirs(path.parent, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise PateError(storage.cannot_write(path, error)) from error
    try:
        _take(lock, subject, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _take(lock: int, subject: Path, kind: int) -> None:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(lock, 200, 0).decode(errors="replace") or "another process"
        raise PateError(f"{subject} is being written by {holder}; wait for it to end") from error
    name = f"process {os.getpid()} on {socket.gethostname()}"
    try:
        os.truncate(lock, 0)
        os.pwrite(lock, name.encode(), 0)
    except OSError:  # a full disk: the lock holds all the same, without its holder's name
        return
