"""Votes and a mechanism to answers: one jitted call for a whole set of queries.

The room that draws the noise of answers. `answer` checks values where it can see them; under jit, vmap or
shard_map it checks shapes and types only. Mechanisms are registered as pytrees here, so that they can be
stacked, passed to jit and mapped over; rebuilding one from its leaves does not validate, since a leaf may be
a tracer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int32
from numpy.typing import ArrayLike

from pate_jax import voting
from pate_jax.aggregate import argmax, noise
from pate_jax.aggregate.noise import Source
from pate_jax.errors import PateError, at_least
from pate_jax.mechanisms import BY_NAME, Mechanism, Noise, check_votes_suffice, laws

REFUSED = -1  # the label of a query that got none
_ROUNDING = 1e-3  # by which probabilities may miss a sum of 1
_AT_ONCE = 1 << 17  # noisy counts that `answer_many` holds at a time, unless told otherwise


class Answers(NamedTuple):
    """A label for each query, -1 where there is none, and whether the teachers answered.

    Soft answers say more: what probability each class has, and how far noise has moved it. `soft_answers`
    makes them. Of teachers only whole histograms are such answers (`of_histograms`): there the noisy `counts`
    are what was released, and all else follows from them. Other answers leave these fields None.

    >>> answers = Answers(jnp.array([2, -1]), jnp.array([True, False]))
    >>> answers.labels[answers.answered].tolist()
    [2]
    """

    labels: Int32[Array, "*settings queries"]
    answered: Bool[Array, "*settings queries"]
    probabilities: Float32[Array, "*settings queries classes"] | None = None
    deviation: Float32[Array, "*settings queries"] | None = None  # of the noise in each of a row's shares
    shares: Float32[Array, "*settings queries classes"] | None = None  # what probabilities were made of
    counts: Int32[Array, "*settings queries classes"] | None = None  # votes with noise, as they were released


def soft_answers(probabilities: ArrayLike, deviation: ArrayLike, shares: ArrayLike | None = None) -> Answers:
    """Answers from probabilities [query, class]; the label is the most probable class.

    They must follow from what was released with noise, such as a crowd's noisy table. `shares` are what the
    probabilities were made of, where some of it was below 0: their noise is that of the table. `deviation`
    [query] is the standard deviation of the noise in each of a row's shares, or without these in each of its
    probabilities. Values are checked where they are known; under jit only shapes are.

    >>> answers = soft_answers([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], [0.1, 0.2])
    >>> answers.labels.tolist(), answers.answered.tolist(), answers.probabilities.shape
    ([0, 1], [True, True], (2, 3))
    """
    soft, noisy = jnp.asarray(probabilities, jnp.float32), jnp.asarray(deviation, jnp.float32)
    seen = soft if shares is None else jnp.asarray(shares, jnp.float32)
    if soft.ndim != 2 or seen.shape != soft.shape or noisy.shape != soft.shape[:1]:
        raise PateError(
            f"probabilities {list(soft.shape)}, shares {list(seen.shape)} and deviation {list(noisy.shape)} "
            "do not fit: give probabilities and shares [query, class] and one deviation for each query"
        )
    if not any(isinstance(values, jax.core.Tracer) for values in (soft, seen, noisy)):
        _check_soft(np.asarray(soft), np.asarray(seen), np.asarray(noisy))
    labels = soft.argmax(1).astype(jnp.int32)
    return Answers(labels, labels == labels, soft, noisy, seen)


def of_histograms(counts: ArrayLike, mechanism: Mechanism, teachers: int) -> Answers:
    """What rows of noisy counts [query, class] say, as soft answers; the label is their largest count.

    All teachers vote on every query, so a row's sum is known, and what noise adds to it is taken off all
    classes alike. Each count over the number of teachers is then the share of the votes without bias, with
    noise of a known deviation.

    >>> from pate_jax.mechanisms import GaussianHistogram
    >>> found = of_histograms([[70, 25, 8], [-4, 61, 40]], GaussianHistogram(sigma=3.0), 100)
    >>> found.labels.tolist(), np.asarray(found.shares * 100).round().astype(int).tolist()
    ([0, 1], [[69, 24, 7], [-3, 62, 41]])
    >>> np.asarray(found.deviation * 1e4).round().astype(int).tolist()
    [245, 245]
    """
    noisy = np.asarray(counts)
    if teachers < 1 or noisy.ndim != 2 or noisy.dtype.kind not in "iu":
        raise PateError(
            f"counts {list(noisy.shape)} of {noisy.dtype} by {teachers} teachers must be whole numbers "
            "[query, class] by at least one"
        )
    even = 1 / noisy.shape[1]
    shares = even + (noisy - noisy.mean(1, keepdims=True)) / teachers
    kept = np.maximum(shares, 0)
    deviation = np.full(len(noisy), mechanism.noise.scale / teachers * np.sqrt(1 - even))
    found = soft_answers(kept / kept.sum(1, keepdims=True), deviation, shares)
    return found._replace(
        labels=jnp.asarray(noisy.argmax(1), jnp.int32), counts=jnp.asarray(noisy, jnp.int32)
    )


def _check_soft(probabilities: np.ndarray, shares: np.ndarray, deviation: np.ndarray) -> None:
    """Refuse rows that are no distributions, shares of no sum, and noise that is negative or not finite."""
    far = np.abs(probabilities.sum(1) - 1) > _ROUNDING
    bad = ~np.isfinite(probabilities).all(1) | (probabilities < 0).any(1) | far
    if bad.any():
        row = int(bad.argmax())
        raise PateError(
            f"probabilities row {row} is {probabilities[row].tolist()}, which is no distribution: "
            "give numbers of at least 0 that add up to 1"
        )
    bad = ~(np.abs(shares.sum(1) - 1) <= _ROUNDING * np.maximum(np.abs(shares).max(1), 1))
    if bad.any():
        row = int(bad.argmax())
        raise PateError(f"shares row {row} is {shares[row].tolist()}: give finite numbers that add up to 1")
    bad = ~np.isfinite(deviation) | (deviation < 0)
    if bad.any():
        row = int(bad.argmax())
        raise PateError(f"deviation[{row}]={deviation[row]} must be finite and at least 0")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Sampler:
    """A mechanism made ready for a device by `prepare`: a pytree that can be mapped over.

    Discrete noise is a table here, and a threshold on it a whole number. The threshold may be an array, one
    number for each query.
    """

    noise: Source
    test: Source | None
    threshold: Any
    releases_counts: bool = field(default=False, metadata={"static": True})


def prepare(mechanism: Mechanism | Sequence[Mechanism]) -> Sampler:
    """Make a mechanism ready for `answer`, or many of one kind stacked for `vmap`.

    Needed where a discrete mechanism enters jit or vmap as an argument, because its table is built on the
    host; tables of several scales are padded to the size of the largest.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> votes = jnp.array([[200, 40, 10], [90, 80, 80]])
    >>> samplers = prepare([DiscreteGaussianMax(sigma) for sigma in (1.0, 2.0, 4.0, 8.0)])
    >>> jax.vmap(lambda sampler: answer(sampler, votes, key=noise.seeded_key(0)).labels)(samplers).shape
    (4, 2)
    """
    if not isinstance(mechanism, list | tuple):
        return _ready(_checked(mechanism), None, None)
    many = [_checked(one) for one in mechanism]
    kinds = sorted({type(one).__name__ for one in many})
    if len(kinds) != 1:
        raise PateError(
            f"mechanisms of {len(kinds)} kinds ({', '.join(kinds)}) where one kind is wanted to stack"
        )
    for_noise = _longest([one.noise for one in many])
    for_test = _longest([one.test.noise for one in many if one.test is not None])
    ready = [_ready(one, for_noise, for_test) for one in many]
    stacked: Sampler = jax.tree.map(lambda *leaves: _stack(leaves), *ready)
    return stacked


def _stack(leaves: tuple[Any, ...]) -> jax.Array:
    """On the host where values are known: stacking a thousand arrays under JAX would compile for a minute."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return jnp.stack(leaves)
    return jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves]))


def answer(
    mechanism: Mechanism | Sampler,
    votes: ArrayLike,
    *,
    key: jax.Array,
) -> Answers:
    """The noisy plurality of each query's votes[query, class], or a refusal where the mechanism tests first.

    A key serves one call: the same noise must never serve two histograms. Ties are broken uniformly at
    random. A mechanism that releases counts gives these as well, and its labels follow from them: of equal
    counts the first class is named.

    >>> from pate_jax.mechanisms import ConfidentDiscreteGaussian
    >>> mechanism = ConfidentDiscreteGaussian(threshold=150, sigma_threshold=4, sigma=2)
    >>> answers = answer(mechanism, [[200, 40, 10], [90, 80, 80]], key=noise.seeded_key(0))
    >>> answers.labels.tolist(), answers.answered.tolist()
    ([0, -1], [True, False])
    """
    noise.check_key(key)
    sampler = mechanism if isinstance(mechanism, Sampler) else prepare(mechanism)
    if jnp.ndim(sampler.noise.scale if sampler.noise.words is None else sampler.noise.lowest):
        raise PateError(
            f"mechanism={type(mechanism).__name__} holds several settings: vmap over it, or answer_many"
        )
    answers: Answers = _answer(sampler, voting.check_votes(votes), key)
    return answers


def answer_many(
    mechanisms: Sequence[Mechanism] | Sampler,
    votes: ArrayLike,
    *,
    key: jax.Array,
    same_noise: bool = False,
    at_once: int | None = None,
) -> Answers:
    """The answers under each of many settings of one kind: labels[setting, query].

    What `vmap(answer)` gives, `at_once` settings at a time, so that memory stays bounded. By default every
    setting draws noise of its own. With `same_noise` all settings share one standard draw, which is much
    faster and makes them easier to compare; each is then right by itself, but together they reveal the votes,
    so a private key is refused.

    >>> from pate_jax.mechanisms import GNMax
    >>> settings = [GNMax(sigma) for sigma in (1.0, 10.0, 100.0)]
    >>> answer_many(settings, [[200, 40, 10], [90, 80, 80]], key=noise.seeded_key(0)).labels.shape
    (3, 2)
    """
    noise.check_key(key)
    if same_noise and noise.is_private(key):
        raise PateError(
            "same_noise=True answers one histogram many times from one draw: use seeded_key(seed)"
        )
    samplers = mechanisms if isinstance(mechanisms, Sampler) else prepare(mechanisms)
    counts = voting.check_votes(votes)
    if at_once is None:
        alone = not same_noise and not noise.is_drawn_from_table(samplers.noise.family)
        at_once = 1 if alone else max(1, _AT_ONCE // max(1, counts.size))
    at_least(1, at_once=at_once)
    answers: Answers = _answer_many(samplers, counts, key, same_noise, at_once)
    return answers


class _Chance(NamedTuple):
    """All that is random in one call, whatever the scales."""

    label: argmax.Chance
    test: Any


def _chance(sampler: Sampler, key: jax.Array, shape: tuple[int, int], *, stored: bool = False) -> _Chance:
    for_label, for_test = jax.random.split(key)
    label = argmax.chance(sampler.noise.family, for_label, shape, stored=stored)
    if sampler.test is None:
        return _Chance(label, None)
    return _Chance(label, noise.standard(sampler.test.family, for_test, shape[:1]))


@jax.jit
def _answer(sampler: Sampler, votes: Any, key: jax.Array) -> Answers:
    return _decide(sampler, _classes_first(votes), _chance(sampler, key, votes.shape))


@jax.jit(static_argnames=("same_noise", "at_once"))
def _answer_many(samplers: Sampler, votes: Any, key: jax.Array, same_noise: bool, at_once: int) -> Answers:
    counts = _classes_first(votes)
    settings = jax.tree.leaves(samplers)[0].shape[0]
    batch = None if at_once == 1 else min(at_once, settings)
    if same_noise:
        chance = _chance(samplers, key, votes.shape, stored=True)
        alike: Answers = jax.lax.map(lambda one: _decide(one, counts, chance), samplers, batch_size=batch)
        return alike

    def one_setting(pair: tuple[Sampler, Array]) -> Answers:
        sampler, setting_key = pair
        return _decide(sampler, counts, _chance(sampler, setting_key, votes.shape))

    pairs = samplers, jax.random.split(key, settings)
    answers: Answers = jax.lax.map(one_setting, pairs, batch_size=batch)
    return answers


def _classes_first(votes: Any) -> Array:
    """Counts as [class, query]: all loops run across queries."""
    return jnp.asarray(votes, jnp.int32).T


def _decide(sampler: Sampler, counts: Array, chance: _Chance) -> Answers:
    chex.assert_rank(counts, 2)
    if sampler.releases_counts:
        noisy = counts + noise.scaled(sampler.noise, chance.label.noise)
        chex.assert_equal_shape([counts, noisy])
        labels = noisy.argmax(0).astype(jnp.int32)
        return Answers(labels, labels == labels, counts=noisy.T)
    labels = argmax.labels(sampler.noise, counts, chance.label)
    chex.assert_shape(labels, counts.shape[1:])
    if sampler.test is None:
        return Answers(labels, labels == labels)
    drawn = noise.scaled(sampler.test, chance.test)
    chex.assert_equal_shape([labels, drawn])
    answered = counts.max(0) + drawn >= sampler.threshold
    return Answers(jnp.where(answered, labels, REFUSED), answered)


def _checked(mechanism: Any) -> Mechanism:
    """A mechanism whose values are known is made anew from them, which validates; a traced one passes."""
    if type(mechanism) not in BY_NAME.values():
        raise PateError(
            f"mechanism={mechanism!r} is none of {', '.join(kind.__name__ for kind in BY_NAME.values())}"
        )
    check_votes_suffice(mechanism)
    values = [getattr(mechanism, one.name) for one in dataclasses.fields(mechanism)]
    if any(isinstance(value, jax.core.Tracer) or np.ndim(value) for value in values):
        traced: Mechanism = mechanism
        return traced
    plain = (value if isinstance(value, int | float) else float(value) for value in values)
    checked: Mechanism = type(mechanism)(*plain)
    return checked


def _longest(noises: list[Noise]) -> int | None:
    return max((laws.padded_length(one) for one in noises if one.is_discrete), default=None)


def _ready(mechanism: Mechanism, noise_length: int | None, test_length: int | None) -> Sampler:
    ready = noise.source(mechanism.noise, noise_length)
    if mechanism.test is None:
        return Sampler(ready, None, None, mechanism.releases_counts)
    test, threshold = noise.source(mechanism.test.noise, test_length), mechanism.test.threshold
    if test.words is None:
        return Sampler(ready, test, jnp.asarray(threshold, jnp.float32))
    return Sampler(ready, test, _whole_threshold(threshold))


def _whole_threshold(threshold: Any) -> Any:
    """For whole n and x, `n + x >= threshold` is `n + x >= ceil(threshold)`."""
    if isinstance(threshold, jax.core.Tracer):
        return jnp.ceil(threshold).astype(jnp.int32)
    return jnp.asarray(min(int(np.ceil(threshold)), (1 << 31) - 1), jnp.int32)


def _register(kind: type) -> None:
    names = [one.name for one in dataclasses.fields(kind)]

    def flatten(mechanism: Any) -> tuple[Any, None]:
        return tuple(getattr(mechanism, name) for name in names), None

    def flatten_with_keys(mechanism: Any) -> tuple[Any, None]:
        return tuple((jax.tree_util.GetAttrKey(name), getattr(mechanism, name)) for name in names), None

    def unflatten(_: None, leaves: Any) -> Any:
        mechanism: Any = object.__new__(kind)
        for name, leaf in zip(names, leaves, strict=True):
            object.__setattr__(mechanism, name, leaf)
        return mechanism

    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, unflatten, flatten)


for _kind in BY_NAME.values():
    _register(_kind)
