"""The folder of prepared data: where it is, one process at a time in it, and silence around it."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError


def folder(data_dir: Path | str | None) -> Path:
    """Where prepared data lie: the given folder, $PATE_JAX_DATA, or ~/.cache/pate_jax.

    >>> folder("data").as_posix()
    'data'
    """
    chosen = data_dir or os.environ.get("PATE_JAX_DATA") or Path.home() / ".cache" / "pate_jax"
    return Path(chosen).expanduser()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time; the system frees the lock when its holder ends, however it ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "w")  # noqa: SIM115
    except OSError as error:
        raise PateError(
            f"--data-dir {path.parent} cannot be written ({error.strerror}); choose another"
        ) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def quiet(tfds: Any) -> Iterator[None]:
    """tensorflow-datasets' messages go to standard error, and nowhere when that is no terminal."""
    terminal = sys.stderr.isatty()
    (tfds.enable_progress_bar if terminal else tfds.disable_progress_bar)()
    with contextlib.redirect_stdout(sys.stderr if terminal else io.StringIO()):
        yield
