"""How a command ends: with one sentence after bad input, with how to go on after Ctrl-C, and quietly when the
reader of its output has closed the pipe."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pate_jax.errors import PateError, PateWarning
from pate_jax.system import progress

_BAD_INPUT, _STOPPED, _NO_READER = 2, 130, 141  # the shell's 128 and the signal's number
_AGAIN = 0.1  # seconds until a lost Ctrl-C is sent again


@contextmanager
def told(name: str) -> Iterator[None]:
    """Wrap a whole command: an error becomes one line under the command's name, and an exit code.

    >>> with told("pate"):
    ...     raise PateError("teachers=0 must be at least 1")
    Traceback (most recent call last):
    ...
    SystemExit: 2
    """
    with _reader_may_leave():
        try:
            with _ctrl_c_arrives(), _warnings_in_words():
                yield
        except PateError as error:
            print(f"{name}: {error}", file=sys.stderr)
            sys.exit(_BAD_INPUT)
        except KeyboardInterrupt:
            again = "repeat the same command to go on from the last finished stage"
            print(f"{name}: stopped; {again}", file=sys.stderr)
            # If it came while a text was executed, as where a dataclass is made, Python would end by the
            # signal in place of our status, although it was caught, until another text was executed.
            exec("")
            sys.exit(_STOPPED)


@contextmanager
def _warnings_in_words() -> Iterator[None]:
    """A warning of ours is one line, said once, without the place in our code that gave it."""
    usual, said = warnings.showwarning, set()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, PateWarning):
            usual(message, category, *place, **more)
        elif (text := str(message)) not in said:
            said.add(text)
            progress.warn(text)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


@contextmanager
def _reader_may_leave() -> Iterator[None]:
    """When nobody reads our output any more (`pate account ... | head`), end like any program in a pipe."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # else the interpreter does it last, and complains
    except BrokenPipeError:
        closed = [stream for stream in (sys.stdout, sys.stderr) if _is_closed(stream.fileno())]
        if not closed:
            raise  # it was another pipe that broke
        for stream in closed:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(_NO_READER)


def _is_closed(descriptor: int) -> bool:
    """Whether the descriptor is a pipe whose other end is closed."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


@contextmanager
def _ctrl_c_arrives() -> Iterator[None]:
    """Send an interrupt again that Python drops, as it does inside a destructor or a callback of the garbage
    collector (JAX has one of those)."""
    usual = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
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
    """From here on, what C libraries write to standard output (gloo does) goes to standard error.

    Python's own standard output stays where it was, so a program that reads our results sees nothing else.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(stdout, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
