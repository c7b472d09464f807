"""One method at one epsilon, measured once: a line of JSON for each, which later commands read."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pate_jax.errors import PateError
from pate_jax.sweep import cells, results
from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Draw, Ground
from pate_jax.sweep.results import Row
from pate_jax.system import progress

_SHORT = 0.05  # seconds that no line is needed for
_FORM = 1  # of the digest; a change of what a method does gets a new number


class Late(PateError):
    """A method has used up its time."""


class Cell(NamedTuple):
    """A method at an epsilon, which a method without privacy does not have."""

    contender: Contender
    epsilon: float | None
    seed: int = 0

    def digest(self, ground: Ground) -> str:
        """The digest of everything that decides what is measured."""
        about = {"form": _FORM, "data": ground.digest, "delta": ground.delta, "seed": self.seed}
        return cells.digest({**about, "method": self.contender.name, "epsilon": self.epsilon})


def cells_of(contenders: Sequence[Contender], epsilons: Sequence[float], draws: int = 1) -> list[Cell]:
    """Every method at every epsilon, each several times; those without privacy once.

    >>> from pate_jax.sweep.compare.contenders import named
    >>> [(cell.contender.name, cell.epsilon) for cell in cells_of(named(["sums", "no privacy"]), [1.0, 2.0])]
    [('sums', 1.0), ('no privacy', None), ('sums', 2.0)]
    """
    for epsilon in epsilons:
        if not 0 < epsilon < float("inf"):
            raise PateError(f"epsilon={epsilon!r} must be a finite number above 0; 1 is an example")
    if draws < 1:
        raise PateError(f"draws={draws} must be at least 1")
    every = [
        Cell(one, epsilon, seed) if one.private else Cell(one, None)
        for epsilon in epsilons
        for one in contenders
        for seed in range(draws)
    ]
    return list(dict.fromkeys(every))


def measure(ground: Ground, wanted: Sequence[Cell], path: Path, seconds: float) -> list[Row]:
    """The rows of these cells: those that the file has, and the others, each within its CPU seconds.

    The caller holds the file for itself.
    """
    done = results.of_file(path)
    with progress.bar(ground.dataset.name, total=len(wanted)) as bar:
        for cell in wanted:
            name = cell.digest(ground)
            if name not in done:
                results.append(path, [{"cell": name, **_measured(ground, cell, seconds)}])
            bar.advance(note=cell.contender.name, found=name in done)
    done = results.of_file(path)
    return [done[cell.digest(ground)] for cell in wanted]


def _measured(ground: Ground, cell: Cell, seconds: float) -> dict[str, Any]:
    """What a method brings, or the sentence why it brings nothing."""
    began = _Begun(time.process_time(), ground.clock.seconds)
    told = {
        "data": ground.dataset.name,
        "method": cell.contender.name,
        "epsilon": cell.epsilon,
        "delta": ground.delta,
        "seed": cell.seed,
    }
    try:
        with within(seconds):
            found = cell.contender.learn(ground, Draw(cell.epsilon or 0.0, cell.seed))
    except PateError as error:  # the others are compared without it, and the user reads why
        return {**told, "refused": str(error), **_since(began, ground)}
    _check(found.epsilon, cell)
    right = float(np.mean(found.labels == ground.truth))
    return {
        **told,
        "spent": found.epsilon,
        "right": right,
        "test": len(ground.truth),
        "settings": dict(found.settings),
        **_since(began, ground),
    }


def _check(spent: float | None, cell: Cell) -> None:
    """Refuse a method that states more than it was allowed to spend."""
    if (spent is None) != (cell.epsilon is None) or (spent or 0.0) > (cell.epsilon or 0.0):
        raise RuntimeError(f"{cell.contender.name} states epsilon {spent} where {cell.epsilon} was allowed")


class _Begun(NamedTuple):
    """CPU seconds of the process, and of what methods share, when a cell began."""

    all: float
    shared: float


def _since(began: _Begun, ground: Ground) -> dict[str, float]:
    """CPU seconds of the method itself, and of what it was the first to need and others share."""
    shared = ground.clock.seconds - began.shared
    own = time.process_time() - began.all - shared
    return {"seconds": round(own, 1), **({"shared": round(shared, 1)} if shared >= _SHORT else {})}


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End what runs here with `Late` after so much CPU time of this process.

    It has no effect outside the main thread, and where the system has no such timer.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(number: int, frame: FrameType | None) -> None:
        raise Late(f"it took longer than {seconds:g} CPU seconds and was stopped; allow more (--minutes)")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
