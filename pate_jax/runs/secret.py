"""The secret of a run: drawn once, kept by its owner, and the root of all that must not be foreseen.

Every release has one stream of noise, and its name has one form: which release it is, what it is, of which
exact value, and of what public part. So no stream serves two releases, a repeated command draws the same
noise again, and a value that was changed since gets noise of its own. (Voters who answer at their own place,
`local`, name the noise of each answer by themselves.)
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.errors import PateError
from pate_jax.system import storage

_IS_ENTROPY = re.compile("[0-9a-f]{64}").fullmatch


@dataclass(frozen=True)
class Secret:
    """256 bits from the operating system, or the seed of a run that promises nothing, in a file of the run.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> secret = Secret(folder / "keys.json", folder / "ledger.jsonl", folder)
    >>> secret.draw(seed=7)
    >>> len(secret.derive("noise")), secret.derive("noise") == secret.derive("partition")
    (32, False)
    """

    file: Path
    ledger: Path  # where it lies, noise was used, and a lost secret is not drawn anew
    root: Path
    release: Path | None = None  # where it holds anything, a run was published, whose ledger may be lost too

    def draw(self, seed: int | None) -> None:
        """Draw the secret once, or keep the seed; later calls check that the seed is still the same."""
        if not self.file.exists():
            if self.ledger.exists():
                raise PateError(
                    f"{self.file} is missing, and {self.ledger} shows that its noise was used: restore it "
                    "from a backup, or choose another --out"
                )
            published = [] if self.release is None else storage.files(self.release)
            if published:
                raise PateError(
                    f"{published[0]} is of a run whose secret {self.file} does not show: private/ was lost, "
                    "and other noise would cost as much again. Restore it from a backup, or choose another "
                    "--out and add up what both have spent"
                )
            self.make(seed)
        if self.seed != seed:
            raise PateError(f"{self.root} was made with seed={self.seed}, not {seed}; choose another --out")

    def make(self, seed: int | None) -> None:
        """Draw the secret, or keep the seed, where there is none yet."""
        entropy = None if seed is not None else secrets.token_hex(32)
        storage.write_json(self.file, "keys", {"seed": seed, "entropy": entropy}, mode=0o600)

    @property
    def seed(self) -> int | None:
        """The seed of a reproducible run; None where the run is private."""
        return self._stored()[0]

    def hand_down(self, to: Secret, purpose: str) -> None:
        """Write the secret of a part of this run, which follows from its own."""
        if not to.file.exists():
            storage.write_json(to.file, "keys", self.handed(purpose), mode=0o600)

    def handed(self, purpose: str) -> dict[str, int | str | None]:
        """What is written of the secret of a part of this run: a seed where this one has a seed."""
        entropy = self.derive(purpose)
        if self.seed is None:
            return {"seed": None, "entropy": entropy.hex()}
        return {"seed": int.from_bytes(entropy[:6], "big"), "entropy": None}

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose."""
        seed, entropy = self._stored()
        root = entropy if seed is None else b"seed %d" % seed
        return hashlib.blake2b(purpose.encode(), key=root, digest_size=32, person=b"pate_jax run").digest()

    def key(self, stream: str) -> Any:
        """The key of one stream of noise."""
        import jax  # here, since light commands read the ledger

        from pate_jax.aggregate import chacha

        impl = chacha.PRIVATE if self.seed is None else chacha.SEEDED
        return jax.random.wrap_key_data(jax.numpy.asarray(self._words(stream)), impl=impl)

    def commitment(self, stream: str) -> str:
        """A digest that commits the run to its noise without revealing it."""
        return storage.digest(self._words(stream))

    def _words(self, stream: str) -> np.ndarray:
        return np.frombuffer(self.derive(stream), np.uint32)

    def _stored(self) -> tuple[int | None, bytes]:
        stored = storage.read_json(self.file, "keys")
        seed, entropy = stored.get("seed"), stored.get("entropy")
        if "seed" in stored and type(seed) is int:
            return seed, b""
        if "seed" in stored and seed is None and isinstance(entropy, str) and _IS_ENTROPY(entropy):
            return None, bytes.fromhex(entropy)
        raise PateError(f"{self.file} holds neither a seed nor 256 bits of entropy; restore it from a backup")


def stream(number: int, event: Mapping[str, Any], exact: str, public: str = "") -> str:
    """The name of the noise of one release, which serves nothing else.

    Its number keeps two releases of equal values apart, whose equal answers would show that they are equal.
    The event is what is released, so a copy of the run with another mechanism shares no noise. `exact` is the
    digest of the value that is never shown. `public` names what was asked: two copies of a run that go on
    with different inputs share nothing, even where the votes on them are equal.

    >>> stream(1, {"name": "gnmax", "sigma": 40.0}, "ab12", "cd34")
    'release 1 {"name": "gnmax", "sigma": 40.0} ab12 cd34'
    """
    return f"release {number} {json.dumps(event, sort_keys=True)} {exact} {public}"
