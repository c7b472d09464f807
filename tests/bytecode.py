"""A folder for Python's bytecode, where Python is told to write none beside the sources."""

import os
import sys
from pathlib import Path


def keep(folder: Path) -> None:
    """Keep the bytecode of this process and of those that it starts.

    Many containers set PYTHONDONTWRITEBYTECODE. Each of some fifty processes would then compile the
    sources of JAX and of all other libraries again, which takes seconds.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(folder)
