"""One method at one epsilon, measured once: a line of JSON for each, which later commands read."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from pate_jax.crowd.metric import Metric
from pate_jax.errors import PateError
from pate_jax.runs import measured
from pate_jax.runs.inputs import open_data
from pate_jax.runs.report import numbers
from pate_jax.runs.settings import DataChoice
from pate_jax.sweep import cells, results
from pate_jax.sweep.compare.contender import Contender
from pate_jax.sweep.compare.ground import Draw, Ground
from pate_jax.sweep.results import Row
from pate_jax.system import progress, tasks
from pate_jax.system.tasks import Engine

_SHORT = 0.05  # seconds that no line is needed for
_LOOK = 0.1  # seconds between two looks at the clock
_TOO_LONG = "it took longer than {:g} CPU seconds and was stopped; allow more (--minutes)"
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
        judged = {"metric": ground.metric.name, "of": ground.metric.positive, "by": ground.by_group}
        usual = judged == {"metric": "accuracy", "of": None, "by": None}  # as in lines without the others
        about |= {} if usual else judged
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


class Opening(NamedTuple):
    """How a worker opens the ground for itself: records are read where it runs, and never sent."""

    choice: DataChoice
    delta: float
    metric: Metric
    by_group: str | None


class Measured(NamedTuple):
    """A cell to be measured, on a ground that is here or is opened there."""

    ground: Ground | Opening
    digest: str  # of the ground, when the command began
    cell: Cell
    seconds: float


def measure(
    ground: Ground,
    wanted: Sequence[Cell],
    path: Path,
    seconds: float,
    engine: Engine = tasks.HERE,
    choice: DataChoice | None = None,
) -> list[Row]:
    """The rows of these cells: those that the file has, and the others, each within its CPU seconds.

    The caller holds the file for itself. Workers open the data that `choice` names.
    """
    done = results.of_file(path)
    given: Ground | Opening = ground
    if engine is not tasks.HERE:
        if choice is None:
            raise PateError("workers open the records for themselves: name the data set or its files")
        given = Opening(choice, ground.delta, ground.metric, ground.by_group)
    left = [cell for cell in wanted if cell.digest(ground) not in done]
    items = [Measured(given, ground.digest, cell, seconds) for cell in left]
    with progress.bar(ground.dataset.name, total=len(wanted)) as bar:
        bar.advance(len(wanted) - len(left), found=True)
        for place, row in engine.each(one_measured, items):
            results.append(path, [{"cell": left[place].digest(ground), **row}])
            bar.advance(note=left[place].contender.name)
    done = results.of_file(path)
    return [done[cell.digest(ground)] for cell in wanted]


def one_measured(one: Measured) -> dict[str, Any]:
    """What a method brings, or the sentence why it brings nothing."""
    ground = one.ground if isinstance(one.ground, Ground) else _opened(one.ground)
    if ground.digest != one.digest:
        raise PateError(f"{ground.dataset.name} has changed since the command began: repeat it")
    return _measured(ground, one.cell, one.seconds)


@tasks.opened_once
def _opened(there: Opening) -> Ground:
    return Ground(open_data(there.choice), there.delta, there.metric, there.by_group)


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
    return {
        **told,
        "spent": found.epsilon,
        **_judged(found.said, ground),
        "test": len(ground.truth),
        "settings": dict(found.settings),
        **_since(began, ground),
    }


def _judged(said: np.ndarray, ground: Ground) -> dict[str, Any]:
    """How good it is on the test rows."""
    if ground.dataset.target is not None:
        return {"measures": numbers.compared(said[:, 1], ground.test, ground.dataset.target)}
    right = float(np.mean(said.argmax(1) == ground.truth))
    figures = measured.compared(said, ground.test, ground.metric)
    return {"right": right, "measures": figures, **_groups(said, ground)}


def _groups(said: np.ndarray, ground: Ground) -> dict[str, Any]:
    """The figures of each group, where groups are asked for."""
    by = ground.by_group
    if by is None:
        return {}
    return {"groups": measured.by_groups(said, ground.test, ground.dataset, by, ground.metric)}


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
    """End what runs here with `Late` after so much CPU time of this process."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        with _by_signal(seconds):
            yield
        return
    with _by_thread(seconds):
        yield


@contextmanager
def _by_thread(seconds: float) -> Iterator[None]:
    """The same outside the main thread, as on a worker, which no signal reaches: another thread looks on."""
    ended, limit = threading.Event(), time.process_time() + seconds
    thread = ctypes.c_ulong(threading.get_ident())

    def look_on() -> None:
        while not ended.wait(_LOOK):
            if time.process_time() > limit:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Late))
                return

    threading.Thread(target=look_on, daemon=True).start()
    try:
        yield
    except Late as error:  # Python raised it without words
        raise Late(_TOO_LONG.format(seconds)) from error
    finally:
        ended.set()


@contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise Late(_TOO_LONG.format(seconds))

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
