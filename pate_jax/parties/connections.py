"""Connections between the parties of a session: MPyC's exchange of messages over mutual TLS.

Every party listens at its address and calls the parties that stand after it in the agreement. Both ends of a
connection show a certificate, and a certificate is accepted if it is in the agreement. From then on the peer
is known by name, and each message on the connection carries a label and its bytes, as MPyC defines them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import os
import secrets
import socket
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.parties import engine
from pate_jax.parties.agreement import Agreement, Party

REFUSAL, HELLO, PRESENT, KEYS, FAREWELL = range(-1, -6, -1)  # labels; those of MPyC are hashes or above 0
LONGEST_REFUSAL = 600
LINGER = 1.0  # seconds in which a failed party still answers
_PATIENCE = 0.05  # seconds between two calls of a party that does not answer yet


class Refusal(PateError):
    """The end of a vote, in a sentence that all parties may read.

    Only these are sent to others. What is wrong with a party's own numbers is told to that party alone, since
    the sentence may show them.
    """


class Hub:
    """All connections of one party, and the first thing that went wrong on any of them."""

    def __init__(self, agreement: Agreement, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self.agreement, self.name, self.loop = agreement, name, loop
        self._loop = loop  # where MPyC's connections look for it
        self.nonce = secrets.token_hex(16)
        self.nonces = {name: self.nonce}
        self.peers: dict[str, Any] = {}
        self.failure: asyncio.Future[None] = loop.create_future()
        self.failure.add_done_callback(lambda done: done.exception())  # it is raised where somebody waits
        self.changed = asyncio.Event()
        self.server: asyncio.Server | None = None
        self.unreached: dict[str, str] = {}  # why a party could not be called, the last time
        self.hung_up: set[str] = set()  # who left before greeting, as one that does not know us
        self.settled = False  # whether it is known who takes part

    def fail(self, sentence: str) -> None:
        """End the session with a sentence, which all other parties are told too."""
        if self.failure.done():
            return
        for peer in self.peers.values():
            peer.tell(sentence)
        self.failure.set_exception(Refusal(sentence))

    def hello(self) -> bytes:
        """The first message to each peer."""
        return json.dumps([self.agreement.digest, self.nonce]).encode()

    def hear(self, name: str, content: bytes) -> None:
        """Take the first message of a peer."""
        try:
            digest, nonce = (str(word)[:64] for word in json.loads(content))
        except (ValueError, TypeError):
            self.fail(f"{name} does not greet as this version does: install the same one")
            return
        if digest != self.agreement.digest:
            pair = sorted([(self.name, self.agreement.digest[:12]), (name, digest[:12])])
            self.fail(
                f"{pair[0][0]} and {pair[1][0]} hold different agreements ({pair[0][1]} and {pair[1][1]}): "
                "compare the files"
            )
            return
        self.nonces[name] = nonce
        self.changed.set()

    def close(self) -> None:
        """Close all connections."""
        if self.server:
            self.server.close()
        for peer in self.peers.values():
            peer.closing = True
            peer.transport.close()

    def knows(self, names: tuple[str, ...]) -> bool:
        """Whether all these parties have greeted."""
        return all(name in self.nonces for name in names)

    def told(self) -> bool:
        """Whether a party has said who is present."""
        return any(PRESENT in peer.buffers for peer in self.peers.values())

    async def until(self, reached: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, the session fails or the time is over; whether it holds."""
        end = time.monotonic() + seconds
        while not reached() and time.monotonic() < end:
            if self.failure.done():
                self.failure.result()
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.5, max(0.0, end - time.monotonic()))):
                    await self.changed.wait()
        return reached()

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take errors of tasks that nobody waits for: the session cannot go on without them."""
        error = context.get("exception")
        if isinstance(error, PateError):
            self.fail(str(error))
        elif error is not None and not isinstance(error, OSError):  # a stranger at the door ends no vote
            self.fail(f"{self.name} could not go on ({type(error).__name__}): run the vote again")


class Peer:
    """What a connection of MPyC does here besides: its peer is known by its certificate."""

    buffers: dict[int, Any]
    peer_pid: Any
    transport: Any

    def __init__(self, hub: Hub, expected: str | None) -> None:
        super().__init__(hub, None)  # type: ignore[call-arg]  # MPyC reads no more of a runtime than its loop
        self.hub, self.expected, self.name = hub, expected, expected or ""
        self.closing, self.refused = False, False
        self.received = 0  # so that a slow message is told from a silent peer

    def connection_made(self, transport: Any) -> None:
        """Find out who the peer is."""
        self.transport = transport
        shown = hashlib.sha256(transport.get_extra_info("ssl_object").getpeercert(True)).hexdigest()
        names = [one.name for one in self.hub.agreement.parties if one.fingerprint == shown]
        if not names or (self.expected and names[0] != self.expected) or names[0] == self.hub.name:
            self._turn_away(names[0] if names else "a stranger")
        elif self.hub.failure.done():
            self.refuse(str(self.hub.failure.exception()))
        elif names[0] in self.hub.peers:
            self.refuse(
                f"a second process of the name {names[0]} came: the first one votes, so end one of them"
            )
        elif self.hub.settled:
            self.refuse(f"{names[0]} came too late: the vote began without it")
        else:
            self.name = self.peer_pid = names[0]
            self.hub.peers[names[0]] = self
            self.send(HELLO, self.hub.hello())
            self.hub.changed.set()

    def _turn_away(self, who: str) -> None:
        if self.expected:
            self.hub.fail(f"where {self.expected} should listen is {who}: correct host and port")
        self.refuse(f"{self.hub.name} did not expect {who} here: check the agreement's addresses")

    def refuse(self, sentence: str) -> None:
        """Tell a peer why it may not take part, and hang up."""
        self.tell(sentence)
        self.closing = self.refused = True
        self.transport.close()

    def tell(self, sentence: str) -> None:
        """Send the sentence with which the session ends."""
        if not self.transport.is_closing():
            self.send(REFUSAL, sentence.encode()[:LONGEST_REFUSAL])

    def send(self, label: int, payload: bytes) -> None:
        """Send a message, unless the connection is being closed."""
        if not self.transport.is_closing():
            super().send(label, payload)  # type: ignore[misc]

    def data_received(self, data: bytes) -> None:
        """Take bytes, and end the session if they are its end."""
        if self.refused:
            return
        self.received += len(data)
        super().data_received(data)  # type: ignore[misc]
        told = self.buffers.get(REFUSAL)
        if isinstance(told, bytes):
            self.hub.fail(told.decode(errors="replace"))
        if HELLO in self.buffers:
            self.hub.hear(self.name, self.buffers.pop(HELLO))
        self.hub.changed.set()

    def connection_lost(self, error: Exception | None) -> None:
        """End the session unless the peer had said farewell."""
        over = self.closing or FAREWELL in self.buffers or self.hub.peers.get(self.name) is not self
        if not over and not self.hub.settled:
            if self.name not in self.hub.nonces:
                self.hub.hung_up.add(self.name)
            del self.hub.peers[self.name]
            self.hub.nonces.pop(self.name, None)
        elif not over:
            self.hub.fail(
                f"{self.name} left before the vote was over: start it again, and each party then sends "
                "the votes and the noise that it had recorded"
            )
        self.hub.changed.set()

    def gone(self) -> bool:
        """Whether the peer has said that it ends, or hung up."""
        ended = FAREWELL in self.buffers or REFUSAL in self.buffers
        return ended or bool(self.transport.is_closing())

    def waiting(self) -> bool:
        """Whether a message of this peer is awaited."""
        return any(isinstance(one, asyncio.Future) and not one.done() for one in self.buffers.values())


@functools.cache
def _exchanger() -> type[Any]:
    """The class of connections, which can be made only once MPyC is imported."""
    return type("Exchanger", (Peer, engine.library().asyncoro.MessageExchanger), {})


@contextlib.asynccontextmanager
async def door(hub: Hub, key: str, wanted: tuple[str, ...]) -> AsyncIterator[None]:
    """Listen and call while it is being settled who is present."""
    order = hub.agreement.names
    own = hub.agreement.party(hub.name)
    server_side, client_side = _contexts(hub.agreement, own, key)
    hub.server = await _listen(hub, own, server_side)  # to the end, so that who comes late is told so
    later = [name for name in wanted if order.index(name) > order.index(hub.name)]
    calls = [asyncio.ensure_future(_call(hub, hub.agreement.party(name), client_side)) for name in later]
    try:
        yield
    finally:
        if hub.failure.done():  # whoever comes now is told why
            await asyncio.sleep(min(LINGER, hub.agreement.seconds / 10))
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def _listen(hub: Hub, own: Party, context: ssl.SSLContext) -> asyncio.Server:
    try:
        return await hub.loop.create_server(
            lambda: _exchanger()(hub, None), host=_address(own.host), port=own.port, ssl=context
        )
    except OSError as error:
        raise PateError(
            f"{own.name} cannot listen at {own.host}:{own.port} ({error.strerror or error}): another process "
            "of this name runs, or another program uses the port; end it, or agree on another port"
        ) from error


def _address(host: str) -> str | None:
    """Where to listen: on this machine only if others are told so, else wherever the name may lead here."""
    return host if host == "localhost" or host.startswith("127.") or host == "::1" else None


async def _call(hub: Hub, peer: Party, context: ssl.SSLContext) -> None:
    """Call a party until it answers, and again if it is lost."""
    while not hub.settled:
        try:
            await hub.loop.create_connection(
                lambda: _exchanger()(hub, peer.name), peer.host, peer.port, ssl=context
            )
            await hub.until(lambda: peer.name not in hub.peers or hub.settled, float("inf"))
            await asyncio.sleep(_PATIENCE)
        except ssl.SSLCertVerificationError:
            hub.fail(
                f"who answers for {peer.name} at {peer.host}:{peer.port} shows a certificate that is not in "
                "the agreement: compare the fingerprints"
            )
            return
        except OSError as error:
            own_words = isinstance(error, socket.gaierror) or not error.errno  # of names that lead nowhere
            reason = error.strerror or error if own_words else os.strerror(error.errno or 0)
            hub.unreached[peer.name] = f"{peer.host}:{peer.port}: {reason}"
            await asyncio.sleep(_PATIENCE)


def _contexts(agreement: Agreement, own: Party, key: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for both ends: version 1.3, and no certificate but those of the agreement."""
    found = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate itself is agreed on, wherever its owner runs
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata="\n".join(party.certificate for party in agreement.parties))
        found.append(context)
    with tempfile.TemporaryDirectory() as folder:  # `ssl` reads a key from a file only
        path = Path(folder) / "identity.pem"
        stream = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(stream, "w") as file:
            file.write(f"{key}\n{own.certificate}")
        for context in found:
            _load(context, path, own)
    return found[0], found[1]


def _load(context: ssl.SSLContext, path: Path, own: Party) -> None:
    try:
        context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise PateError(
            f"the key is not that of the certificate of {own.name} in the agreement ({error.reason}): take "
            "the key with which the certificate was made"
        ) from error
