"""Compiled programs, kept on this machine, so that a second run of the same shape starts without compiling.

JAX keeps them in a folder if its environment names one before JAX is imported, so nothing here imports JAX.
A program is known by its code and the shapes of its inputs. It holds no record: what comes from private data
is always an input of a program and never a constant of one, and a test holds this.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

ANEW = "--compile-anew"
_LIMIT = 2**30  # bytes; above it the programs that were compiled first are dropped


def folder() -> Path:
    """Where programs are kept, unless JAX_COMPILATION_CACHE_DIR names another place.

    >>> folder().name
    'programs'
    """
    return Path.home() / ".cache" / "pate_jax" / "programs"


def prepare(flags: Sequence[str]) -> None:
    """Keep programs in the user's cache folder; with `--compile-anew` take none from it and keep none."""
    if ANEW in flags:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or os.environ.get("JAX_ENABLE_COMPILATION_CACHE") == "false":
        return
    try:
        place = folder()
    except RuntimeError:  # no home is known, as of some containers' users: then each run compiles
        return
    there = next(parent for parent in (place, *place.parents) if os.path.exists(parent))
    if not os.access(there, os.W_OK):  # the home of some containers
        return
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    trim(place, _LIMIT)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(place)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def trim(place: Path, limit: int) -> None:
    """Remove the oldest files of a folder until the others hold at most `limit` bytes."""
    files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in place.iterdir())
    held = sum(size for _, size, _ in files)
    for _, size, file in files:
        if held <= limit:
            return
        file.unlink(missing_ok=True)  # another run may trim at the same moment
        held -= size
