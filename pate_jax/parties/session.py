"""The door of a vote among parties: open a session, give counts and noise, and read what all may see.

A session is one process of each party. Every wait has the agreement's time limit, and every failure is one
sentence that all parties are told. What is opened is opened to every party alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Int32, Int64, Shaped, UInt8

from pate_jax.errors import PateError
from pate_jax.parties import certificates, connections, engine, presence, ranges
from pate_jax.parties.agreement import Agreement, Party
from pate_jax.parties.connections import Hub, Refusal
from pate_jax.parties.shamir import MERSENNE, Mersenne, Prime

T = TypeVar("T")
_ALONE = threading.Lock()  # MPyC keeps one runtime for each process
_TICKS = 10  # a peer is silent if none of its bytes came in this many parts of the time limit


@contextlib.contextmanager
def open(
    agreement: Agreement, name: str, key: str, *, present: tuple[str, ...] | None = None
) -> Iterator[Session]:
    """Meet the other parties of an agreement and hold a vote.

    `key` is the PEM of this party's secret key. A party that repeats a vote must name in `present` the
    parties that were there when it first sent its numbers: two openings of different parties' sums would show
    what the missing party added, behind that party's noise alone.
    """
    certificates.needs_the_extra()
    agreement.party(name)
    if present is not None:
        _check_present(agreement, name, present)
    if not _ALONE.acquire(blocking=False):
        raise PateError("one process holds one session at a time: close the other, or start another process")
    try:
        with _event_loop() as loop:
            session = Session(agreement, name, loop)
            try:
                session._run(session._begin(key, present))
                yield session
                session._run(session._farewell())
            except BaseException as error:
                session._hub.fail(str(error) if isinstance(error, Refusal) else _left(name))
                raise
            finally:
                loop.run_until_complete(_wind_up(session._hub))
    finally:
        _ALONE.release()


class Session:
    """A vote that goes on; `open` makes it."""

    present: tuple[str, ...]  # the parties that take part, in the agreement's order
    identifier: str  # a digest of the agreement, of who is present and of fresh numbers of each

    def __init__(self, agreement: Agreement, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.agreement, self.name, self._loop = agreement, name, loop
        self._hub = Hub(agreement, name, loop)
        self._runtime: Any = None
        self._done = False

    @property
    def bytes_sent(self) -> int:
        """How many bytes this party has sent to all others, before encryption."""
        return sum(peer.nbytes_sent for peer in self._hub.peers.values())

    def sum(
        self, counts: Int64[np.ndarray, "query class"], noise: Int64[np.ndarray, "query class"]
    ) -> Int64[np.ndarray, "query class"]:
        """Open the sum of all parties' counts and noise, and nothing else."""
        self._once("counts")
        own = ranges.digits(self.agreement, self.agreement.party(self.name), counts, noise, None)
        return self._run(self._confirmed(self._sum(own)))

    def answers(
        self,
        counts: Int64[np.ndarray, "query class"],
        vote_noise: Int64[np.ndarray, "query class"],
        test_noise: Int64[np.ndarray, " query"] | None = None,
    ) -> Int32[np.ndarray, " query"]:
        """Open the class with the most noisy votes for each query, and nothing else.

        Ties are broken at random. A query whose largest count, with the noise of the test, stays below the
        agreement's threshold has the answer -1.
        """
        self._once("answers")
        own = ranges.digits(self.agreement, self.agreement.party(self.name), counts, vote_noise, test_noise)
        return self._run(self._confirmed(self._answers(own)))

    def exchange(self, content: bytes) -> dict[str, bytes]:
        """Show some bytes to all parties, a signature for example, and read theirs."""
        received = self._run(self._runtime.round([content] * len(self.present)))
        return dict(zip(self.present, received, strict=True))

    def _once(self, opened: str) -> None:
        if self.agreement.opened != opened:
            raise PateError(f"the agreement opens {self.agreement.opened}, not {opened}: make another one")
        if self._done:
            raise PateError("a session opens one vote: a second one needs the agreement of the next vote")
        self._done = True

    async def _sum(self, own: np.ndarray) -> Int64[np.ndarray, "query class"]:
        prime, field = Mersenne(), engine.library().finfields.GF(MERSENNE)
        parts = await shared(self._runtime, prime, self.agreement, self._members(), own)
        total = prime.add(parts[0], parts[1]).astype(object)
        opened = (await self._runtime.output(field.array(total))).value.astype(np.int64)
        signed: np.ndarray = np.where(opened > MERSENNE // 2, opened - MERSENNE, opened)
        return signed

    async def _answers(self, own: np.ndarray) -> Int32[np.ndarray, " query"]:
        agreement, members = self.agreement, self._members()
        scale = agreement.noise.test_scale
        limits = ranges.Limits(
            sum(party.votes for party in members),
            len(members) * ranges.noise_range(agreement, agreement.noise.scale),
            0 if scale is None else len(members) * ranges.noise_range(agreement, scale),
        )
        prime = Prime(ranges.modulus(self._runtime, limits))
        parts = await shared(self._runtime, prime, agreement, members, own)
        test = parts[2][:, 0] if len(parts) > 2 else None
        race = ranges.Race(parts[0], parts[1], test, agreement.noise.threshold)
        return await ranges.answers(self._runtime, prime, limits, race)

    async def _confirmed(self, work: Coroutine[Any, Any, np.ndarray]) -> np.ndarray:
        """The result, after all parties have shown that they have the same."""
        opened = await work
        digest = hashlib.sha256(opened.astype("<i8").tobytes()).digest()
        received = await self._runtime.round([digest] * len(self.present))
        if len({*received}) > 1:
            raise Refusal("the parties opened different numbers, so one of them did not keep to the protocol")
        return opened

    def _members(self) -> tuple[Any, ...]:
        return tuple(self.agreement.party(name) for name in self.present)

    async def _begin(self, key: str, present: tuple[str, ...] | None) -> None:
        """Meet, settle who is present, and set up what MPyC needs."""
        hub = self._hub
        async with connections.door(hub, key, present or self.agreement.names):
            self.present = await presence.settle(hub, present)
        words = [self.agreement.digest, *(f"{name} {hub.nonces[name]}" for name in self.present)]
        self.identifier = hashlib.sha256(json.dumps(words).encode()).hexdigest()
        self._runtime = await presence.runtime(hub, self.present, key)
        self._loop.set_exception_handler(hub.on_error)  # MPyC's own prints what went wrong, and goes on
        self._watch = asyncio.ensure_future(_watch(hub))
        if len({*await self._runtime.round([self.identifier.encode()] * len(self.present))}) > 1:
            raise Refusal("the parties do not see one another alike: start the vote again, all of you")

    async def _farewell(self) -> None:
        """Let everybody finish before connections close."""
        for peer in self._hub.peers.values():
            peer.send(connections.FAREWELL, b"")
            peer.closing = True
        others = [peer for name, peer in self._hub.peers.items() if name in self.present]
        await self._hub.until(lambda: all(peer.gone() for peer in others), min(5.0, self.agreement.seconds))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do a part of the protocol, unless a connection or a task fails meanwhile."""
        task, failure = self._loop.create_task(work), self._hub.failure
        either: list[asyncio.Future[Any]] = [task, failure]
        try:
            self._loop.run_until_complete(asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED))
        except RuntimeError:  # MPyC stops the loop when one of its tasks fails
            if not failure.done():
                raise
        if failure.done():
            if not self._hub.settled:  # who comes now is still told why
                self._loop.run_until_complete(asyncio.wait([task], timeout=1 + connections.LINGER))
            task.cancel()
            failure.result()
        return task.result()


async def _watch(hub: Hub) -> None:
    """End the session when a peer that is awaited sends nothing for the time limit.

    Parts of the limit are counted, not time, so that work of this process, which stops the counting, is not
    held against the others.
    """
    idle: dict[str, tuple[int, int]] = {}
    while not hub.failure.done():
        await asyncio.sleep(hub.agreement.seconds / _TICKS)
        for name, peer in hub.peers.items():
            received, ticks = idle.get(name, (-1, 0))
            quiet = peer.waiting() and peer.received == received
            idle[name] = (peer.received, ticks + 1 if quiet else 0)
        silent = [name for name in hub.agreement.names if idle.get(name, (0, 0))[1] >= _TICKS]
        if silent:
            hub.fail(
                f"{', '.join(silent)} sent nothing for {hub.agreement.seconds:g} seconds, which is the "
                "agreement's limit: start the vote again, or agree on more seconds"
            )


@contextlib.contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop of the session's own."""
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()
        asyncio.set_event_loop(None)


async def _wind_up(hub: Hub) -> None:
    """End all tasks, and close all connections once nothing on them can be lost.

    After a failure that is when every peer has told its own sentence or hung up: one that still sends would
    find the connection broken, and blame this party before it has read why.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    end = time.monotonic() + connections.LINGER
    while hub.failure.done() and time.monotonic() < end and not all(p.gone() for p in hub.peers.values()):
        await asyncio.sleep(0.01)
    hub.close()
    await asyncio.sleep(0.05)  # in which the last bytes leave


def _check_present(agreement: Agreement, name: str, present: tuple[str, ...]) -> None:
    if name not in present or tuple(one for one in agreement.names if one in present) != tuple(present):
        raise PateError(
            f"present={present} must name this party and others of {agreement.names}, in that order"
        )
    if len(present) < len(agreement.names) - agreement.dropouts:
        raise PateError(
            f"{len(present)} parties are too few: the agreement lets {agreement.dropouts} of "
            f"{len(agreement.names)} drop out, and with fewer there would be too little noise"
        )


def _left(name: str) -> str:
    return f"{name} left before the vote was over: start it again"


async def shared(
    runtime: Any,
    prime: Prime,
    agreement: Agreement,
    present: tuple[Party, ...],
    own: UInt8[np.ndarray, " digit"],
) -> list[Shaped[np.ndarray, "row column"]]:
    """Shares of the sums of all parties' numbers, after all of them passed the check."""
    pieces = prime.split(prime.of(own.astype(np.int64)), runtime.threshold, len(present))
    received = await runtime.round([prime.pack(piece) for piece in pieces])
    shares = [_read(prime, agreement, *pair) for pair in zip(present, received, strict=True)]
    await runtime.round([b"received"] * len(present))
    bad = await _failing(runtime, prime, agreement, present, shares)
    await _agree(runtime, agreement, present, bad)
    total: list[np.ndarray] = []
    for party, piece in zip(present, shares, strict=True):
        own_numbers = ranges.numbers(prime, ranges.sent(agreement, party), piece)  # type: ignore[arg-type]
        votes = own_numbers[0][:, : agreement.classes]  # without the class "no vote"
        parts = [votes, *own_numbers[1:]]
        total = [prime.add(*pair) for pair in zip(total, parts, strict=True)] if total else parts
    return total


def _read(prime: Prime, agreement: Agreement, party: Party, content: bytes) -> np.ndarray | None:
    """A party's shares, or None where they are not what the agreement asks of it."""
    try:
        return prime.unpack(content, ranges.sent(agreement, party).digits)
    except PateError:
        return None


async def _failing(
    runtime: Any, prime: Prime, agreement: Agreement, present: tuple[Party, ...], shares: list[Any]
) -> list[int]:
    """Which parties sent no votes, as far as this party sees."""
    field = engine.library().finfields.GF(prime.modulus)
    coin = await runtime.output(field.array(runtime._np_randoms(field, 2).value))
    seed = b"|".join(str(int(number)).encode() for number in coin.value)
    sums = [
        0 if piece is None else ranges.combination(prime, agreement, party, piece, seed)
        for party, piece in zip(present, shares, strict=True)
    ]
    hidden = field.array(np.array(sums, object)) + runtime.zeros(field, len(sums))
    opened = await runtime.output(hidden, threshold=2 * runtime.threshold)
    return [i for i, piece in enumerate(shares) if piece is None or int(opened.value[i]) != 0]


async def _agree(runtime: Any, agreement: Agreement, present: tuple[Party, ...], bad: list[int]) -> None:
    """Refuse, all with one sentence, if any party saw another fail."""
    verdicts = await runtime.round([bytes(int(i in bad) for i in range(len(present)))] * len(present))
    named = [
        party.name
        for i, party in enumerate(present)
        if any(len(verdict) == len(present) and verdict[i] for verdict in verdicts)
    ]
    if named:
        rule = {
            "teachers": "with exactly its teachers' votes on each query",
            "neighbours": "with its agreed votes at most on each query",
            "sums": "with sums within the agreed size",
        }[agreement.voters]
        raise Refusal(
            f"{', '.join(named)} sent numbers out of the agreed range: each party sends "
            f"{agreement.queries} x {agreement.classes} counts {rule}, and noise of the agreed scale; "
            "nothing was opened"
        )
