"""Votes and a mechanism to answers: one jitted call for a whole set of queries. The only room that draws noise.

`answer` checks values where it can see them; under jit, vmap or shard_map it checks shapes and types only.
Mechanisms are registered as pytrees here, so that they can be stacked, passed to jit and mapped over; rebuilding
one from its leaves does not validate, since the leaves may be arrays or tracers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32

from pate_jax import laws, noise, voting
from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME, InteractiveGNMax, Mechanism, Noise

REFUSED = -1  # the label of a query that was not answered


class Answers(NamedTuple):
    """A label for each query, -1 where there is none, and whether the teachers answered."""

    labels: Int32[Array, "queries"]
    answered: Bool[Array, "queries"]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sampler:
    """A mechanism made ready for a device: what `answer` needs, as a pytree that can be mapped over.

    Made by `prepare`. Discrete noise is a table, and its threshold a whole number.
    """

    noise: noise.Source
    test: noise.Source | None
    threshold: Any
    student_confidence: Any  # None unless interactive


def prepare(mechanism: Mechanism | Sequence[Mechanism]) -> Sampler:
    """Make a mechanism, or many of one kind stacked for `vmap`, ready for `answer`.

    Needed for discrete mechanisms that enter a jit or vmap as arguments, because their tables are built on the
    host; tables of several scales are padded to the size of the largest.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> votes = jnp.array([[200, 40, 10], [90, 80, 80]])
    >>> samplers = prepare([DiscreteGaussianMax(sigma) for sigma in (1.0, 2.0, 4.0, 8.0)])
    >>> jax.vmap(lambda sampler: answer(sampler, votes, key=noise.seeded_key(0)).labels)(samplers).shape
    (4, 2)
    """
    if not isinstance(mechanism, Sequence):
        return _ready(mechanism, None, None)
    if not mechanism:
        raise PateError("mechanism=[] is empty; give at least one mechanism")
    kinds = {type(one).__name__ for one in mechanism}
    if len(kinds) > 1:
        raise PateError(f"mechanisms of several kinds ({', '.join(sorted(kinds))}) cannot be stacked")
    lengths = [_longest([one.noise for one in mechanism])]
    lengths.append(_longest([one.test.noise for one in mechanism if one.test is not None]))
    ready = [_ready(one, *lengths) for one in mechanism]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *ready)


def answer(
    mechanism: Mechanism | Sampler,
    votes: Int[Array, "queries classes"],
    *,
    key: jax.Array,
    student_probabilities: Float[Array, "queries classes"] | None = None,
) -> Answers:
    """The noisy plurality of each query's votes, or a refusal where the mechanism tests first.

    Ties are broken uniformly at random. Interactive mechanisms need the student's probabilities: a query that
    passes the test gets the teachers' noisy plurality and counts as answered; one that does not pass, and where
    the student's largest probability exceeds `student_confidence`, gets the student's own label, which costs
    nothing and counts as not answered; any other gets -1.

    >>> from pate_jax.mechanisms import ConfidentDiscreteGaussian
    >>> mechanism = ConfidentDiscreteGaussian(threshold=150, sigma_threshold=4, sigma=2)
    >>> answer(mechanism, [[200, 40, 10], [90, 80, 80]], key=noise.seeded_key(0))
    Answers(labels=Array([ 0, -1], dtype=int32), answered=Array([ True, False], dtype=bool))
    """
    noise.check_key(key)
    sampler = mechanism if isinstance(mechanism, Sampler) else prepare(mechanism)
    votes = voting.check_votes(votes)
    if (sampler.student_confidence is None) != (student_probabilities is None):
        raise PateError(
            "student_probabilities goes with InteractiveGNMax and no other mechanism: "
            f"it is {'missing' if student_probabilities is None else 'given'} here"
        )
    if student_probabilities is not None:
        student_probabilities = voting.check_probabilities(student_probabilities, votes.shape)
    return _answer(sampler, votes, key, student_probabilities)


@jax.jit
def _answer(sampler: Sampler, votes: Any, key: jax.Array, student_probabilities: Any) -> Answers:
    for_noise, for_ties, for_test = jax.random.split(key, 3)
    counts = jnp.asarray(votes, jnp.int32).T  # classes first: all reductions run across queries
    labels = _noisy_plurality(sampler.noise, counts, for_noise, for_ties)
    if sampler.test is None:
        return Answers(labels, jnp.ones(labels.shape, bool))
    lead = counts
    if student_probabilities is not None:
        predicted = student_probabilities.astype(jnp.float32).T
        lead = counts - counts.sum(0) * predicted
    drawn = noise.draw(sampler.test, for_test, labels.shape)
    answered = lead.max(0) + drawn >= sampler.threshold
    otherwise = jnp.full_like(labels, REFUSED)
    if student_probabilities is not None:
        sure = predicted.max(0) > sampler.student_confidence
        otherwise = jnp.where(sure, predicted.argmax(0).astype(jnp.int32), REFUSED)
    return Answers(jnp.where(answered, labels, otherwise), answered)


def _noisy_plurality(source: noise.Source, counts: Any, for_noise: Any, for_ties: Any) -> Any:
    noisy = counts + noise.draw(source, for_noise, counts.shape)
    tied = noisy == noisy.max(0)
    words = jax.random.bits(for_ties, (4, counts.shape[1]), jnp.uint32)
    chosen = _share(tuple(words), tied.sum(0, dtype=jnp.uint32)).astype(jnp.int32)
    rank = jnp.cumsum(tied, axis=0, dtype=jnp.int32)
    return (rank <= chosen).sum(0, dtype=jnp.int32)


def _share(words: tuple, count: Any) -> Any:
    """`floor(w count / 2^128)` for the 128-bit number w of four words and a count below 2^16."""
    carry = jnp.zeros_like(words[0])
    for word in words[::-1]:
        for part in (word & np.uint32(0xFFFF), word >> np.uint32(16)):
            carry = (part * count + carry) >> np.uint32(16)
    return carry


def _longest(noises: list[Noise]) -> int | None:
    discrete = [laws.padded_length(one) for one in noises if laws.is_discrete(one)]
    return max(discrete, default=None)


def _ready(mechanism: Mechanism, noise_length: int | None, test_length: int | None) -> Sampler:
    ready = noise.source(mechanism.noise, noise_length)
    confidence = None
    if isinstance(mechanism, InteractiveGNMax):
        confidence = jnp.asarray(mechanism.student_confidence, jnp.float32)
    if mechanism.test is None:
        return Sampler(ready, None, None, confidence)
    test = noise.source(mechanism.test.noise, test_length)
    threshold = mechanism.test.threshold
    if laws.is_discrete(mechanism.test.noise):  # n + x >= t for whole n and x is n + x >= ceil(t)
        return Sampler(ready, test, jnp.ceil(threshold).astype(jnp.int32), confidence)
    return Sampler(ready, test, jnp.asarray(threshold, jnp.float32), confidence)


def _register(kind: type) -> None:
    names = [one.name for one in dataclasses.fields(kind)]

    def flatten(mechanism: Any) -> tuple:
        return tuple(getattr(mechanism, name) for name in names), None

    def flatten_with_keys(mechanism: Any) -> tuple:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(mechanism, name)) for name in names), None

    def unflatten(_: None, leaves: Any) -> Any:
        mechanism = object.__new__(kind)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(mechanism, name, leaf)
        return mechanism

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)


for _kind in BY_NAME.values():
    _register(_kind)
