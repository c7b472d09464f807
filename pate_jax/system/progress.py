"""Progress bars for people: on standard error, and silent where that is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")


class Drawn(Protocol):
    """What is used of rich's bars, which are loaded only when one is drawn."""

    def update(self, task: Any, /, *, advance: float, note: str) -> None:
        """Move a bar on and show a note."""


_open: list[Drawn] = []  # the bars on the screen, the outermost first


class Bar:
    """A progress bar on the screen: `advance` moves it on and may show a note."""

    def __init__(self, progress: Drawn | None, task: Any = None) -> None:
        self._progress = progress  # none where nobody would see it
        self._task = task

    def advance(self, steps: float = 1, note: str = "") -> None:
        """Move on by some steps; `note` replaces the text at the end of the line."""
        if self._progress is not None:
            self._progress.update(self._task, advance=steps, note=note)


def say(text: str) -> None:
    """Print a line on standard error, for what a person should read and a program should not.

    >>> say("3 queries are nearly equal")
    """
    print(text, file=sys.stderr)


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
    if _open or not sys.stderr.isatty():
        yield Bar(None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(file=sys.stderr, force_terminal=None)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
    )
    _open.append(progress)
    try:
        with progress:
            yield Bar(progress, progress.add_task(description, total=total, note=""))
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
