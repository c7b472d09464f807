"""MPyC's runtime for one session: its options, its transport's bytes, and one step mended.

MPyC reads the command line of whichever program imports it and keeps one runtime for each process. Here it is
imported without anybody's command line, and a session makes its runtime itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from pate_jax.errors import PateError
from pate_jax.parties import certificates, shamir

SECURITY = 80  # bits: what a masked number may tell, by the statistical distance 2^-80 for each comparison


@functools.cache
def library() -> Any:
    """MPyC's module `runtime`, imported as if no program had a command line."""
    certificates.needs_the_extra()
    root, argv, environment = logging.getLogger(), sys.argv, dict(os.environ)
    handlers, level = list(root.handlers), root.level
    sys.argv = [argv[0] if argv else "", "--no-log", "--no-uvloop"]
    for name in [name for name in os.environ if name.startswith("MPYC_")]:
        del os.environ[name]
    try:
        with _some_loop(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # MPyC 0.11 reads an old name of NumPy's
            import mpyc.runtime
    finally:
        sys.argv, root.handlers = argv, handlers
        root.setLevel(level)
        os.environ.clear()
        os.environ.update(environment)
        os.environ["MPYC_MAXWORKERS"] = "0"  # MPyC reads it again at each square root
    mpyc.runtime.pickle = shamir  # see wire.py: a peer's bytes are never unpickled
    return mpyc.runtime


@contextlib.contextmanager
def _some_loop() -> Iterator[None]:
    """An event loop to look at: MPyC makes a runtime when it is imported, though nobody uses that one."""
    if asyncio._get_running_loop() is not None:
        yield
        return
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def make(index: int, parties: int, threshold: int, loop: asyncio.AbstractEventLoop) -> Any:
    """A runtime of party `index` among this many; connections are given to it afterwards."""
    if not 0 < threshold < (parties + 1) // 2:
        raise PateError(f"{threshold} colluding parties must be fewer than half of {parties}")
    asyncio.set_event_loop(loop)
    module = library()
    members = [module.Party(i, "", 0) for i in range(parties)]
    runtime = _kind()(index, members, _options(threshold))
    for name in ("sectypes", "asyncoro", "mpctools"):
        getattr(module, name).runtime = runtime
    for name in ("seclists", "secpols", "secgroups", "random", "statistics"):
        getattr(module.mpyc, name).runtime = runtime
    return runtime


def _options(threshold: int) -> argparse.Namespace:
    found = argparse.Namespace(threshold=threshold, sec_param=SECURITY, bit_length=32, ssl=False)
    for name in ("no_async", "no_barrier", "no_prss", "mix32_64bit"):
        setattr(found, name, False)
    found.no_log = True
    return found


@functools.cache
def _kind() -> type[Any]:
    """The class of runtimes, which can be written only once MPyC is imported."""
    module = library()

    class Runtime(module.Runtime):  # type: ignore[misc, name-defined]
        """MPyC's runtime with a round of messages of its own and with a masked test for zero."""

        async def round(self, payloads: Sequence[bytes]) -> list[bytes]:
            """Send each party its bytes and receive what each has for us."""
            self._program_counter[0] += 1
            for peer in range(len(self.parties)):
                if peer != self.pid:
                    self._send_message(peer, payloads[peer])
            waiting = [
                payloads[peer] if peer == self.pid else self._receive_message(peer)
                for peer in range(len(self.parties))
            ]
            return list(await self.gather(waiting))

        def zeros(self, field: Any, count: int) -> Any:
            """Random sharings of zero of degree 2t: they hide all of an opened product but its value."""
            return module.thresha.np_pseudorandom_share_0(
                field, len(self.parties), self.pid, self.prfs(field.order), self._prss_uci(), count
            )

        @module.asyncoro.mpc_coro  # type: ignore[untyped-decorator]
        async def np_is_zero_public(self, a: Any):  # type: ignore[no-untyped-def]
            """Test which elements are zero, and show nothing else of them.

            The product of an element with a random number is opened. Its shares lie on the product of two
            polynomials, and whoever sees all of them can factor it: with its own share of the element, one
            party is left with few candidates for a number that must stay hidden. MPyC 0.11 masks the product
            for small moduli only. Here a sharing of zero is always added, so that the opened polynomial is
            uniform given its value at 0.
            """
            await self.returnType(asyncio.Future)
            kind = type(a)
            field = kind.sectype.field if issubclass(kind, self.SecureArray) else kind.field
            random = self._np_randoms(field, a.size)
            a = await self.gather(a)
            shape = a.shape
            product = a.reshape(-1) * random + self.zeros(field, a.size)
            opened = await self.output(product, threshold=2 * self.threshold)
            return opened.reshape(shape) == 0

    return Runtime
