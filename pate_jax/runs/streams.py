"""The run's noise: the name of each stream, its key, and the digest that commits the run to it.

Every release has one stream, and its name has one form: which release it is, what it is, of which exact
value, and of what public part. So no stream serves two releases, a repeated command draws the same noise
again, and a value that was changed since gets noise of its own. (Voters who answer at their own place,
`local`, name the noise of each answer by themselves.)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.secret import Secret
from pate_jax.system import storage


def key(run: RunDirectory, stream: str) -> Any:
    """The key of one stream of noise."""
    import jax  # here, since light commands read the ledger

    from pate_jax.aggregate import chacha

    impl = chacha.PRIVATE if run.secret.seed is None else chacha.SEEDED
    return jax.random.wrap_key_data(jax.numpy.asarray(_noise_words(run.secret, stream)), impl=impl)


def name(number: int, event: Mapping[str, Any], exact: str, public: str = "") -> str:
    """The name of the noise of one release, which serves nothing else.

    Its number keeps two releases of equal values apart, whose equal answers would show that they are equal.
    The event is what is released, so a copy of the run with another mechanism shares no noise. `exact` is the
    digest of the value that is never shown. `public` names what was asked: two copies of a run that go on
    with different inputs share nothing, even where the votes on them are equal.

    >>> name(1, {"name": "gnmax", "sigma": 40.0}, "ab12", "cd34")
    'release 1 {"name": "gnmax", "sigma": 40.0} ab12 cd34'
    """
    return f"release {number} {json.dumps(event, sort_keys=True)} {exact} {public}"


def commitment(run: RunDirectory, stream: str) -> str:
    """A digest that commits the run to its noise without revealing it."""
    return storage.digest(_noise_words(run.secret, stream))


def _noise_words(secret: Secret, stream: str) -> np.ndarray:
    return np.frombuffer(secret.derive(stream), np.uint32)
