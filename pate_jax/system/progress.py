"""Progress bars for people: on standard error, and silent where that is not a terminal.

A bar says how much time is left, by the pace so far. What the first steps take, such as compiling, does not
count once there are others, and steps that an earlier command did do not count at all.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")


class Drawn(Protocol):
    """What is used of rich's bars, which are loaded only when one is drawn."""

    def update(self, task: Any, /, *, advance: float, note: str) -> None:
        """Move a bar on and show a note."""


_silent: list[bool] = []  # one for each `quiet` that is open
_open: list[Drawn] = []  # the bars on the screen, the outermost first


class Pace:
    """How fast work of `total` steps goes on, and so what time is left.

    >>> pace = Pace(total=100, now=0.0)
    >>> pace.moved(10, now=30.0)  # of these seconds 29 were for compiling
    >>> pace.moved(10, now=31.0)
    >>> pace.left(now=31.0), pace.left(now=32.0)
    (8.0, 7.0)
    """

    def __init__(self, total: float, now: float) -> None:
        self._left, self._began, self._last = total, now, now
        self._first: tuple[float, float] | None = None  # the steps made first, and when they were done
        self._steps = 0.0

    def moved(self, steps: float, now: float, found: bool = False) -> None:
        """Note steps that are done; those that were `found` done already say nothing of the pace."""
        self._left -= steps
        if found or not steps:
            self._began = now if self._first is None else self._began
            return
        self._first = self._first or (steps, now)
        self._steps += steps
        self._last = now

    def left(self, now: float) -> float | None:
        """The seconds that are left; None before the first step."""
        if self._first is None:
            return None
        (first, at), steps, seconds = self._first, self._steps, self._last - self._began
        if self._last > at:
            steps, seconds = steps - first, self._last - at
        return max(0.0, self._left * seconds / steps - (now - self._last))

    def __str__(self) -> str:
        left = self.left(time.monotonic())
        if left is None or self._left <= 0 or self._first is None:
            return ""
        return told(left, sure=self._last > self._first[1])


def told(seconds: float, *, sure: bool) -> str:
    """The time that is left, in words; it is not `sure` if it follows from the first steps alone.

    >>> told(8.2, sure=True), told(200.0, sure=True), told(9000.0, sure=False)
    ('about 8 s left', 'about 3 min left', 'at most 2.5 h left')
    """
    short, long = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min", f"{seconds / 3600:.1f} h"
    return f"{'about' if sure else 'at most'} {short if seconds < 5400 else long} left"


class Bar:
    """A progress bar on the screen: `advance` moves it on and may show a note."""

    def __init__(self, progress: Drawn | None, task: Any = None, pace: Pace | None = None) -> None:
        self._progress = progress  # none where nobody would see it
        self._task = task
        self._pace = pace

    def advance(self, steps: float = 1, note: str = "", *, found: bool = False) -> None:
        """Move on by some steps, which may be `found` done already; `note` replaces the text at the end."""
        if self._progress is not None:
            if self._pace is not None:
                self._pace.moved(steps, time.monotonic(), found)
            self._progress.update(self._task, advance=steps, note=note)


def say(text: str) -> None:
    """Print a line on standard error, for what a person should read and a program should not.

    >>> say("3 queries are nearly equal")
    """
    if not _silent:
        print(text, file=sys.stderr)


@contextmanager
def quiet(warnings_too: bool = True) -> Iterator[None]:
    """Say nothing, warn of nothing and draw nothing: for work whose amount is a secret.

    Without `warnings_too`, Python's warnings are given all the same.

    >>> with quiet():
    ...     say("candidate 3 of 17")
    ...     warnings.warn("the student of candidate 3 cannot learn a class")
    """
    _silent.append(True)
    try:
        with warnings.catch_warnings(action="ignore") if warnings_too else nullcontext():
            yield
    finally:
        _silent.pop()


def warn(text: str | None) -> None:
    """Print a warning on standard error; None prints nothing.

    >>> warn(None)
    """
    if text is not None:
        say(f"warning: {text}")


@contextmanager
def bar(description: str, total: float) -> Iterator[Bar]:
    """A progress bar for work of `total` steps; a bar inside another one is not drawn.

    >>> with bar("counting", total=2) as steps:
    ...     steps.advance(2, note="done")
    """
    if _open or _silent or not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    pace = Pace(total, time.monotonic())
    console = Console(file=sys.stderr, force_terminal=None)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}"),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
    _open.append(progress)
    try:
        with progress:
            yield Bar(progress, progress.add_task(description, total=total, note="", left=pace), pace)
    finally:
        _open.remove(progress)


def track(items: Iterable[Item], description: str, total: float) -> Iterator[Item]:
    """Iterate over the items while a progress bar shows how far it is.

    >>> list(track([1, 2], "counting", total=2))
    [1, 2]
    """
    with bar(description, total) as steps:
        for item in items:
            yield item
            steps.advance()
