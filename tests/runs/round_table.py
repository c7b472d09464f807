"""A vote among parties in one process, each in a thread: what the protocol does, without its secrecy."""

import contextlib
import threading

import numpy as np


class RoundTable:
    """Where the threads meet; `seats` of them are needed."""

    def __init__(self, seats):
        self.barrier = threading.Barrier(seats, timeout=60)
        self.said, self.names, self.lock = {}, [], threading.Lock()

    @contextlib.contextmanager
    def open(self, agreement, name, key, present=None):
        with self.lock:
            self.names.append(name)
        self.barrier.wait()
        there = tuple(one for one in agreement.names if one in self.names)
        try:
            yield Seat(self, name, there, agreement.noise.threshold)
        except BaseException:
            self.barrier.abort()
            raise


class Seat:
    def __init__(self, table, name, present, threshold):
        self.table, self.name, self.present, self.threshold = table, name, present, threshold

    def exchange(self, content):
        self.table.said[self.name] = content
        self.table.barrier.wait()
        found = dict(self.table.said)
        self.table.barrier.wait()
        return found

    def sum(self, counts, noise):
        assert counts.dtype == noise.dtype == np.int64 and counts.shape == noise.shape
        return np.sum([*self.exchange(counts + noise).values()], axis=0)

    def answers(self, counts, vote_noise, test_noise=None):
        noisy = self.sum(counts, vote_noise)
        labels = noisy.argmax(1)
        if self.threshold is None:
            return labels
        exact = np.sum([*self.exchange(counts).values()], axis=0).max(1)
        tested = exact + np.sum([*self.exchange(test_noise).values()], axis=0) >= self.threshold
        return np.where(tested, labels, -1)
