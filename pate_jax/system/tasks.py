"""Tasks: one function over many items, in this process, by workers of this machine, or on a cluster.

Whoever has work that falls into independent items asks an `Engine` for `each` of them, and gets the results
as they end. What an item gives may depend on nothing but the item, so results are the same on any engine.
Only the process that asked writes them down. A worker that dies costs no more than the items it was at: they
run again on another. Engines other than this process are Dask's (`pip install 'pate-jax[cluster]'`), which is
imported only when one is asked for.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import threading
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from pate_jax.errors import PateError, PateWarning, at_least
from pate_jax.system import devices, progress

if TYPE_CHECKING:
    from distributed import Client

Item = TypeVar("Item")
Result = TypeVar("Result")
Opening = TypeVar("Opening", bound=Callable[..., Any])
_SAME = ("jax", "numpy", "distributed")  # versions that a worker must share with whoever asks


@dataclass(frozen=True)
class Where:
    """Who does the work: this process, unless workers or a cluster are named."""

    workers: int | None = None
    """Share the work among this many processes of this machine, or jobs of --cluster FILE.yaml; unset: do it
    in this process. The results are the same."""
    cluster: str | None = None
    """A Dask scheduler that shares the work (tls://HOST:PORT, or tcp:// within a network that you trust), or
    a .yaml file for dask-jobqueue, as for Slurm."""

    def __post_init__(self) -> None:
        at_least(1, "; leave it out to work in this process", workers=self.workers)
        if self.cluster is not None and self.workers is not None and not self.jobs:
            raise PateError(
                f"--workers {self.workers} and --cluster {self.cluster} were both given: the scheduler has "
                "workers of its own, so leave --workers out"
            )

    @property
    def jobs(self) -> bool:
        """Whether the cluster is one that is made of jobs, as a file describes them."""
        return self.cluster is not None and self.cluster.endswith((".yaml", ".yml"))


HERE_ALONE = Where()
_ALONE = threading.Lock()  # folder, warnings and cores belong to a whole process


class Engine(Protocol):
    """Does a function for many items."""

    @property
    def size(self) -> int:
        """How many items it does at a time."""
        ...

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Place and result of every item, in the order in which they end."""
        ...


class Here:
    """This process: one item after another, each when its result is asked for.

    >>> list(Here().each(len, ["private", "records"]))
    [(0, 7), (1, 7)]
    """

    size = 1

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Place and result of every item, in order."""
        for place, item in enumerate(items):
            yield place, function(item)


HERE = Here()


class Workers:
    """The workers of a Dask scheduler, by its client."""

    def __init__(self, client: Client) -> None:
        self._client, self._command = client, secrets.token_hex(8)

    @property
    def size(self) -> int:
        """How many workers there are now."""
        return max(1, len(self._client.nthreads()))

    def each(self, function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[tuple[int, Result]]:
        """Place and result of every item, as they end; an error ends the others."""
        import dask.config
        from distributed import as_completed

        wanted = [Task(function, item, versions(), os.getcwd(), self._command) for item in items]
        large = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # items may hold public arrays
        with dask.config.set(large):
            futures = self._client.map(_done, wanted, pure=False)
        place_of = {future.key: place for place, future in enumerate(futures)}
        try:
            with _in_words(self._client):
                for future in as_completed(futures, loop=self._client.loop):
                    done = future.result()
                    future.release()
                    for said in done.said:
                        warnings.warn(said, PateWarning, stacklevel=2)
                    _told(done)
                    yield place_of[future.key], done.result
        finally:
            self._cancel(futures)

    def _cancel(self, futures: Sequence[Any]) -> None:
        left = [future for future in futures if not future.done()]
        if left and self._client.status == "running":
            self._client.cancel(left, force=True)


class Task(NamedTuple):
    """What travels to a worker: a function by its name, and an item."""

    function: Callable[[Any], Any]
    item: Any
    versions: dict[str, str]
    folder: str  # that relative paths begin at
    command: str  # whose item it is


class Done(NamedTuple):
    """What comes back."""

    result: Any
    said: list[str]  # warnings
    error: Exception | None = None  # raised where the item was asked for: Dask would write it into a log
    host: str = ""


_FORGET: list[Callable[[], None]] = []  # what functions opened for a command


def opened_once(function: Opening) -> Opening:
    """A function that opens files, and keeps the last that it opened for all items of one command.

    From one command to the next files change, and a relative path may name another one; workers of a cluster
    serve many commands.
    """
    kept = lru_cache(maxsize=1)(function)
    _FORGET.append(kept.cache_clear)
    return cast(Opening, kept)


@lru_cache(maxsize=1)
def _serve(command: str) -> None:
    """Forget what was opened for another command."""
    del command
    for forget in _FORGET:
        forget()


@cache
def versions() -> dict[str, str]:
    """What must be the same wherever an item is done, for the same bits.

    >>> sorted(versions())[-1]
    'python'
    """
    package = Path(__file__).parents[1]
    source = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(package.rglob("*.py"))))
    found = {name: metadata.version(name) for name in _SAME}
    minor = ".".join(platform.python_version_tuple()[:2])
    return {"pate_jax": f"source {source.hexdigest()[:12]}", **found, "python": minor}


def _done(task: Task) -> Done:
    """Do one item on a worker; what it has to say, or what went wrong, goes back in place of a log."""
    try:
        return _tried(task)
    except Exception as error:  # it may show a private value, and a worker's log is nobody's private folder
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        return Done(None, [], error, platform.node())


def _told(done: Done) -> None:
    """Raise what went wrong, in words that say where a file was looked for."""
    if isinstance(done.error, PateError):
        done.error.args = (said_by(done.host) + str(done.error),)
    if done.error is not None:
        raise done.error


def said_by(host: str) -> str:
    """How a sentence of a worker elsewhere begins; of a worker of this machine it stands alone.

    >>> said_by("node7")
    'a worker on node7, which opens files under the same paths as this command, says: '
    """
    if host == platform.node():
        return ""
    return f"a worker on {host}, which opens files under the same paths as this command, says: "


def _tried(task: Task) -> Done:

    own, asked = versions(), task.versions
    other = [f"{name} {own[name]}, not {wanted}" for name, wanted in asked.items() if own[name] != wanted]
    if other:
        raise PateError(f"the worker has {'; '.join(other)}: install the same versions everywhere")
    with _ALONE:
        _serve(task.command)
        _enter(task.folder)
        devices.prepare()
        devices.keep_programs(())
        return _said(task)


def _said(task: Task) -> Done:
    with warnings.catch_warnings(record=True) as caught, progress.quiet(warnings_too=False):
        warnings.simplefilter("always", PateWarning)
        result = task.function(task.item)
    said = [str(one.message) for one in caught if issubclass(one.category, PateWarning)]
    return Done(result, said, host=platform.node())


def _enter(folder: str) -> None:
    """Go where relative paths begin; files are opened where a worker runs, and never sent."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise PateError(
            f"the worker cannot enter {folder} ({error.strerror or error}): work in a folder that all "
            "workers share under the same path"
        ) from error


@contextmanager
def _in_words(client: Client) -> Iterator[None]:
    """What goes wrong with the cluster itself, in one sentence with the remedy."""
    from asyncio import CancelledError
    from concurrent.futures import CancelledError as FutureCancelled

    from distributed import KilledWorker
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import NoWorkerError

    from pate_jax.system import clusters

    try:
        yield
    except KilledWorker as error:
        raise PateError(
            f"the same task ended {error.allowed_failures + 1} workers, the last one at "
            f"{error.last_worker.address}: give the workers more memory, or use fewer of them at a time"
        ) from error
    except NoWorkerError as error:
        raise PateError(
            f"there has been no worker for {error.timeout:g} seconds: what has ended is kept, so repeat the "
            "same command to go on, with fewer workers if the memory was too small"
        ) from error
    except (CancelledError, FutureCancelled, FutureCancelledError, CommClosedError) as error:
        raise PateError(
            f"the scheduler at {clusters.address_of(client)} is gone: what has ended is kept, so start it "
            "again and repeat the same command to go on"
        ) from error


@contextmanager
def engine(where: Where, client: Client | None = None, *, private: bool = True) -> Iterator[Engine]:
    """The engine that a command was told to use; a `client` of yours goes before the flags.

    Results that come from `private` records leave this machine by TLS only.

    >>> with engine(Where()) as here:
    ...     dict(here.each(abs, [-3, 4]))
    {0: 3, 1: 4}
    """
    _serve(secrets.token_hex(8))
    if client is None and where.workers is None and where.cluster is None:
        yield HERE
        return
    needs_the_extra()
    from pate_jax.system import clusters

    if client is not None:
        clusters.check_secret(clusters.address_of(client), private)
        yield Workers(client)
    elif where.cluster is None:
        with clusters.local(where.workers or 1) as found:
            yield Workers(found)
    elif where.jobs:
        with clusters.of_jobs(where.cluster, where.workers) as found:
            yield Workers(found)
    else:
        with clusters.existing(where.cluster, private) as found:
            yield Workers(found)


def needs_the_extra() -> None:
    """Say in one sentence which part of the installation is missing."""
    import importlib.util

    missing = [name for name in ("distributed", "cryptography") if importlib.util.find_spec(name) is None]
    if missing:
        raise PateError(f"workers need {missing[0]}: pip install 'pate-jax[cluster]'")


def parts(items: Iterable[Item], size: int) -> list[list[Item]]:
    """Items in runs of neighbours; the size never depends on the engine, and so nothing does.

    >>> parts(range(5), 3)
    [[0, 1, 2], [3, 4]]
    """
    every = list(items)
    return [every[start : start + size] for start in range(0, len(every), size)]
