"""How a command of ours ends: bad input with one sentence, Ctrl-C with a word on how to go on, quietly where
its reader has left, results alone on standard output."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pate_jax.errors import PateError

_BAD_INPUT, _STOPPED, _NO_READER = 2, 130, 141  # the shell's 128 and the signal's number
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
    with _reader_may_leave():
        try:
            with _ctrl_c_arrives():
                yield
        except PateError as error:
            print(f"{name}: {error}", file=sys.stderr)
            sys.exit(_BAD_INPUT)
        except KeyboardInterrupt:
            again = "repeat the same command to go on from the last finished stage"
            print(f"{name}: stopped; {again}", file=sys.stderr)
            sys.exit(_STOPPED)


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """Where what we print is no longer read (`pate account ... | head`), end like any program in a pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # else the interpreter does it last, and complains
    except BrokenPipeError:
        left = [stream for stream in (sys.stdout, sys.stderr) if _is_left(stream.fileno())]
        if not left:
            raise  # another pipe than these broke
        for stream in left:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(_NO_READER)


def _is_left(descriptor: int) -> bool:
    """Whether it is a pipe whose other end has been closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


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
