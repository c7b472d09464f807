"""How a command of ours ends: bad input with one sentence, Ctrl-C with a word on how to go on, results alone
on standard output."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pate_jax.errors import PateError

_BAD_INPUT, _STOPPED = 2, 130
_AGAIN = 0.1  # seconds until a lost Ctrl-C is sent again


@contextmanager
def told(name: str) -> Iterator[None]:
    """Around a whole command: what goes wrong is told in one line under its name, with an exit code.

    >>> with told("pate"):
    ...     raise PateError("teachers=0 must be at least 1")
    Traceback (most recent call last):
    ...
    SystemExit: 2
    """
    try:
        with _ctrl_c_arrives():
            yield
    except PateError as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(_BAD_INPUT)
    except KeyboardInterrupt:
        print(
            f"{name}: stopped; repeat the same command to go on from the last finished stage", file=sys.stderr
        )
        sys.exit(_STOPPED)


@contextmanager
def _ctrl_c_arrives() -> Iterator[None]:
    """Python drops an interrupt that comes inside a destructor or a garbage collector's callback (JAX has
    one of those): here it is sent once more."""
    usual = sys.unraisablehook

    def hook(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            main = threading.main_thread().ident or 0
            threading.Timer(_AGAIN, signal.pthread_kill, (main, signal.SIGINT)).start()
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


def results_alone_on_stdout() -> None:
    """From here on what C libraries write to standard output (gloo does) goes to standard error.

    Python's own standard output stays where it was, so a program that reads our results reads them only.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(kept, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
