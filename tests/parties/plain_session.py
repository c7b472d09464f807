"""A stand-in for the protocol, for tests of what stands above it: threads of one process, nothing hidden.

`Room(agreement).open(name)` is used as `session.open(agreement, name, key)` is: one thread for each party.
"""

import contextlib
import threading

import numpy as np


class Room:
    """Where the parties of one process meet."""

    def __init__(self, agreement, present=None):
        self.present = tuple(present or agreement.names)
        self.agreement, self.inputs = agreement, {}
        self.barrier = threading.Barrier(len(self.present), timeout=agreement.seconds)

    @contextlib.contextmanager
    def open(self, name):
        yield PlainSession(self, name)

    def wait(self):
        """Until all are here."""
        self.barrier.wait()


class PlainSession:
    """What `pate_jax.parties.session.Session` offers, without any protection."""

    def __init__(self, room, name):
        self.room, self.name, self.present = room, name, room.present
        self.identifier = room.agreement.digest

    def _meet(self, *mine):
        self.room.inputs[self.name] = mine
        self.room.wait()
        found = [self.room.inputs[name] for name in self.present]
        self.room.wait()
        return found

    def sum(self, counts, noise):
        return sum(np.asarray(c, np.int64) + np.asarray(n, np.int64) for c, n in self._meet(counts, noise))

    def answers(self, counts, vote_noise, test_noise=None):
        found = self._meet(counts, vote_noise, 0 if test_noise is None else test_noise)
        totals, noise, tests = (sum(np.asarray(one[i], np.int64) for one in found) for i in range(3))
        threshold = self.room.agreement.noise.threshold
        passed = True if threshold is None else totals.max(1) + tests >= threshold
        return np.where(passed, (totals + noise).argmax(1), -1).astype(np.int32)

    def exchange(self, content):
        return dict(zip(self.present, (one for (one,) in self._meet(content)), strict=True))
