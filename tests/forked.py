"""`pate` in processes of its own that need not import JAX again: they are forked from one that has done so.

They are real processes: they can be killed, join each other and crash alone. What they import differs from a
user's shell in nothing but the time that it takes; tests/system/test_cli.py starts `pate` as a shell does.
"""

import importlib
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.process import BaseProcess
from pathlib import Path

LOADED = ("pate_jax.cli.run", "pate_jax.cli.party", "pate_jax.cli.compare", "pate_jax.cli.inspect")


@cache
def _server():
    """The process that all are forked from; it ends with this one."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload([*LOADED])
    return server


def pate(words: Sequence[str], **where) -> BaseProcess:
    """Begin `pate` with these words; `where` is what `function` takes."""
    return function("pate_jax.cli:main", [*map(str, words)], **where)


def function(
    name: str,
    *arguments: object,
    log: Path | None = None,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> BaseProcess:
    """Begin `module:function` in a folder, with more environment variables; a log gets what it says."""
    process = _server().Process(
        target=_carried_out, args=(name, arguments, log, folder, dict(environment or {})), daemon=True
    )
    process.start()
    return process


def _carried_out(name, arguments, log, folder, environment):
    os.environ.update(environment)
    os.chdir(folder or ".")
    said = os.open(log or os.devnull, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for stream in (1, 2):
        os.dup2(said, stream)
    module, _, wanted = name.partition(":")
    getattr(importlib.import_module(module), wanted)(*arguments)
    sys.stdout.flush()


def ended(processes: Sequence[BaseProcess], seconds: float = 300) -> list[int | None]:
    """The exit codes once all have ended; -9 of one that was killed, and None of one that took too long."""
    try:
        for process in processes:
            process.join(seconds)
        return [process.exitcode for process in processes]
    finally:
        for process in processes:
            process.kill()
