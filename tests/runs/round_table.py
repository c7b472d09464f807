"""The plain stand-in for the protocol, where a party that fails ends the vote for all at once."""

import contextlib
import threading

from plain_session import Room


class RoundTable(Room):
    """Where the threads of one process meet; `seat` opens as `pate_jax.parties.session.open` does.

    One party works at a time: what one has computed or compiled, the next finds in this process.
    """

    def __init__(self, agreement, present=None):
        super().__init__(agreement, present)
        self.turn = threading.Lock()

    def wait(self):
        self.turn.release()
        try:
            super().wait()
        finally:
            self.turn.acquire()

    @contextlib.contextmanager
    def seat(self, agreement, name, key, present=None):
        assert present in (None, self.present) and agreement == self.agreement
        with self.open(name) as session:
            try:
                yield session
            except BaseException:
                self.barrier.abort()
                raise
