"""The run's noise: the name of each stream, its key, and the digest that commits the run to it.

A name contains all that its answers depend on, so no stream serves two lists of votes, and none is drawn
twice for different answers.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax.aggregate import chacha
from pate_jax.mechanisms.stable import AnyMechanism, to_dict
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.secret import Secret
from pate_jax.system import storage


def key(run: RunDirectory, stream: str) -> jax.Array:
    """The key of one stream of noise."""
    impl = chacha.PRIVATE if run.secret.seed is None else chacha.SEEDED
    drawn: jax.Array = jax.random.wrap_key_data(jnp.asarray(_noise_words(run.secret, stream)), impl=impl)
    return drawn


def label(batch: int, queries: str, inputs: str) -> str:
    """The name of a batch's noise: the batch's number, and the digests of its queries and inputs.

    Without the digests, two copies of a run that ask about different inputs next could reveal, by equal
    answers, that the votes on them are equal.
    """
    return f"{batch} about {queries} {inputs}"


def name(mechanism: AnyMechanism, votes_digest: str, label: int | str) -> str:
    """The name of the noise stream of one batch of votes, which serves nothing else.

    It contains the label of the batch, so that two batches with equal votes do not reveal this by equal
    answers. It contains the mechanism, so that a copy of the run with another mechanism shares no noise.
    """
    return f"noise of batch {label} for {votes_digest} by {json.dumps(to_dict(mechanism), sort_keys=True)}"


def commitment(run: RunDirectory, stream: str) -> str:
    """A digest that commits the run to its noise without revealing it."""
    return storage.digest(_noise_words(run.secret, stream))


def _noise_words(secret: Secret, stream: str) -> np.ndarray:
    return np.frombuffer(secret.derive(stream), np.uint32)
