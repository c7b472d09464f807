"""The folder of prepared data: its place, its lock, and the destination of tensorflow-datasets' messages."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.system import locks


def folder(data_dir: Path | str | None) -> Path:
    """The folder of prepared data: the given one, $PATE_JAX_DATA, or ~/.cache/pate_jax.

    >>> folder("data").as_posix()
    'data'
    """
    chosen = data_dir or os.environ.get("PATE_JAX_DATA") or Path.home() / ".cache" / "pate_jax"
    return Path(chosen).expanduser()


def locked(root: Path, name: str) -> AbstractContextManager[None]:
    """A lock on the folder while the data set `name` is prepared in it; other processes wait."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PateError(f"--data-dir {root} cannot be written ({error.strerror}); choose another") from error
    return locks.held(root / f".{name}.lock", root, wait=True)


@contextlib.contextmanager
def quiet(tfds: Any) -> Iterator[None]:
    """Send tensorflow-datasets' messages to standard error, or drop them if that is not a terminal."""
    terminal = sys.stderr.isatty()
    (tfds.enable_progress_bar if terminal else tfds.disable_progress_bar)()
    with contextlib.redirect_stdout(sys.stderr if terminal else io.StringIO()):
        yield
