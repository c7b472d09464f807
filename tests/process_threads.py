"""Threads that take themselves for the processes of one run, so that a test need not start any.

All that processes exchange passes `devices._broadcast` and `devices._from_all`. Here both meet at a barrier;
the rest is the package's own code. A thread that leaves is one process by itself again.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pate_jax.system import devices

_PATIENCE = 120  # seconds after which a process that waits for an ended one gives up


class Group:
    """So many processes that run together."""

    def __init__(self, count: int) -> None:
        self.count, self.own = count, threading.local()
        self.meeting = threading.Barrier(count, timeout=_PATIENCE)
        self.brought: list[Any] = [None] * count

    def exchange(self, thing: Any) -> list[Any]:
        """What every process brought, in their order."""
        self.brought[self.own.index] = thing
        self.meeting.wait()
        found = list(self.brought)
        self.meeting.wait()
        return found

    def from_all(self, array: np.ndarray) -> np.ndarray:
        found = self.exchange(np.array(array))
        assert len({(one.shape, one.dtype) for one in found}) == 1, "processes do not say the same together"
        return np.stack(found)

    def broadcast(self, content: bytes) -> bytes:
        found = self.exchange(bytes(content))
        assert len({len(one) for one in found}) == 1, "processes do not expect the same length"
        return found[0]

    def leave(self) -> None:
        self.exchange(None)
        self.own.index = None

    def here(self) -> bool:
        return getattr(self.own, "index", None) is not None

    def ends(self, work: Callable[[int], Any]) -> list[Any]:
        """What `work(index)` returned in each process, or the error that it ended with."""

        def one(index: int) -> Any:
            self.own.index = index
            try:
                return work(index)
            except Exception as error:
                if not isinstance(error, threading.BrokenBarrierError):
                    return error
                raise

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(one, range(self.count)))


def group(monkeypatch: pytest.MonkeyPatch, count: int) -> Group:
    """A group, to which the package's functions belong in its threads."""
    made = Group(count)
    monkeypatch.setattr(devices, "processes", lambda: count if made.here() else 1)
    monkeypatch.setattr(devices, "index", lambda: made.own.index if made.here() else 0)
    for name in ("from_all", "broadcast"):
        monkeypatch.setattr(devices, f"_{name}", getattr(made, name))
    monkeypatch.setattr(devices, "leave", made.leave)
    return made
