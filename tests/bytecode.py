"""Python's bytecode is kept, also where Python is told to write none beside the sources."""

import importlib.util
import os
import sys
from pathlib import Path


def keep(folder: Path) -> None:
    """Keep the bytecode of this process and of those that it starts.

    Many containers set PYTHONDONTWRITEBYTECODE. Each of some fifty processes would then compile our sources
    again, and those of JAX too where libraries were installed without bytecode. Only there all of it goes to
    `folder`: then Python looks nowhere else, and would not find what an installation brings.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        if not _installed_with_bytecode("numpy"):
            sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder)


def _installed_with_bytecode(library: str) -> bool:
    found = importlib.util.find_spec(library)
    return found is not None and found.cached is not None and Path(found.cached).exists()
