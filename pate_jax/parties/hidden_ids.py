"""Ids behind the keys of several parties: equal ones can be counted, and none be recognised.

An id becomes a point of Curve25519 by hashing, and each party multiplies it with a fresh secret number of its
own (Diffie and Hellman's exchange, X25519). The order of the parties does not matter, so an id that two
parties have ends as one point. Who lacks a number cannot tell points from random ones, by the usual
assumption (decisional Diffie-Hellman).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence

from pate_jax.errors import PateError

SIZE = 32  # bytes of a point
_PRIME, _COEFFICIENT = 2**255 - 19, 486662  # of the curve y^2 = x^3 + 486662 x^2 + x


class Blinder:
    """A fresh secret number of one party, for one comparison.

    >>> ours, yours = Blinder(), Blinder()
    >>> mine, theirs = (points(ids, b"") for ids in (["ann", "bob"], ["bob", "cem", "dan"]))
    >>> both = ours.raised(yours.raised(theirs)), yours.raised(ours.raised(mine))
    >>> len({*both[0]} & {*both[1]})
    1
    """

    def __init__(self) -> None:
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        self._key = X25519PrivateKey.generate()

    def raised(self, given: Iterable[bytes]) -> list[bytes]:
        """Each point times the secret number, sorted, so that nobody sees which came from which."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        try:
            return sorted(self._key.exchange(X25519PublicKey.from_public_bytes(one)) for one in given)
        except ValueError as error:  # only points of a small order, which no hash is, end as zero
            raise PateError("a party sends points that hide nothing: it runs another program") from error


def points(ids: Iterable[str], context: bytes) -> list[bytes]:
    """The points of ids; the same ids have others in another context."""
    return [_point(one.encode(errors="surrogatepass"), context) for one in ids]


def padded(given: Sequence[bytes], size: int) -> list[bytes]:
    """The points and random ones, `size` in all, so that their number tells nothing.

    >>> len(padded(points(["ann"], b""), 8))
    8
    """
    return [*given, *(_point(secrets.token_bytes(32), b"") for _ in range(size - len(given)))]


def _point(text: bytes, context: bytes) -> bytes:
    """The first hash that is the x of a point of the curve; points of its twist could be told apart."""
    import gmpy2

    words = text
    while True:
        words = hashlib.blake2b(words, key=context, digest_size=SIZE).digest()
        x = int.from_bytes(words, "little") % 2**255
        if gmpy2.legendre(x * (x * (x + _COEFFICIENT) + 1) % _PRIME, _PRIME) == 1:
            return x.to_bytes(SIZE, "little")
