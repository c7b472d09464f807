"""The answers of many settings of one votes file, as one program over settings, spread over the devices.

Each setting draws noise from a key of its own, which its digest and the seed decide: its answers do not
depend on which other settings it shares a program with. The keys are seeded, so none of these answers may
leave: they serve to judge settings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import aggregate
from pate_jax.aggregate import chacha
from pate_jax.aggregate.answers import Sampler
from pate_jax.mechanisms import Mechanism

# Noisy counts that a device holds at a time: what stays in a core's cache, or fills an accelerator (a guess).
_AT_ONCE = {"cpu": 1 << 17}
_AT_ONCE_ELSEWHERE = 1 << 25
REST = -1  # stands for a true label that is not known


class Tallies(NamedTuple):
    """What each setting [S] gives for the first queries, in K numbers of them."""

    answered: np.ndarray | jax.Array  # [S, K]
    right: np.ndarray | jax.Array  # [S, K]: answers that are the true label
    same: np.ndarray | jax.Array  # [S, K]: answers that are the teachers' own first class


def keys_of(words: Sequence[np.ndarray]) -> jax.Array:
    """Seeded keys from eight words each."""
    keys: jax.Array = jax.random.wrap_key_data(jnp.asarray(np.stack(words)), impl=chacha.SEEDED)
    return keys


def tallies(
    mechanisms: Sequence[Mechanism],
    votes: np.ndarray,
    labels: np.ndarray | None,
    sizes: Sequence[int],
    words: Sequence[np.ndarray],
) -> Tallies:
    """Answer every query under every setting of one kind, and count.

    >>> from pate_jax.mechanisms import GNMax
    >>> settings, votes = [GNMax(1.0), GNMax(2.0)], np.array([[90, 10], [20, 80]])
    >>> words = np.arange(16, dtype=np.uint32).reshape(2, 8)
    >>> counted = tallies(settings, votes, np.array([0, 0]), [1, 2], words)
    >>> counted.answered.tolist(), counted.right.tolist()
    ([[1, 2], [1, 2]], [[1, 1], [1, 1]])
    """
    devices = min(len(jax.local_devices()), len(mechanisms))
    padding = -len(mechanisms) % devices
    stacked = aggregate.prepare([*mechanisms, *mechanisms[:padding]])
    keys = keys_of([*words, *words[:padding]])
    truth = np.full(len(votes), REST) if labels is None else labels
    at_once = _AT_ONCE.get(jax.default_backend(), _AT_ONCE_ELSEWHERE)
    counted = _program(devices, max(1, at_once // votes.size))(
        stacked,
        keys,
        jnp.asarray(votes, jnp.int32),
        jnp.asarray(truth, jnp.int32),
        jnp.asarray(sizes, jnp.int32),
    )
    return Tallies(*(np.asarray(part)[: len(mechanisms)] for part in counted))


def answers(mechanism: Mechanism, votes: np.ndarray, words: np.ndarray) -> aggregate.Answers:
    """The answers that `tallies` counted for one setting."""
    return aggregate.answer(mechanism, jnp.asarray(votes, jnp.int32), key=keys_of([words])[0])


@lru_cache(maxsize=8)
def _program(devices: int, at_once: int) -> Callable[..., Tallies]:
    """The compiled count for settings spread over this many devices."""

    def count(
        samplers: Sampler, keys: jax.Array, votes: jax.Array, truth: jax.Array, sizes: jax.Array
    ) -> Tallies:
        first = votes.argmax(1)
        within = jnp.arange(votes.shape[0]) < sizes[:, None]

        def one(pair: tuple[Sampler, jax.Array]) -> Tallies:
            sampler, key = pair
            answers = aggregate.answer(sampler, votes, key=key)
            parts = (answers.answered, answers.labels == truth, answers.labels == first)
            return Tallies(*((within & part & answers.answered).sum(1) for part in parts))

        batch = None if at_once == 1 else min(at_once, keys.shape[0])
        counted: Tallies = jax.lax.map(one, (samplers, keys), batch_size=batch)
        return counted

    if devices == 1:
        return jax.jit(count)
    mesh = jax.make_mesh(
        (devices,),
        ("settings",),
        axis_types=(jax.sharding.AxisType.Auto,),
        devices=jax.local_devices()[:devices],
    )
    split, whole = jax.sharding.PartitionSpec("settings"), jax.sharding.PartitionSpec()
    return jax.jit(
        jax.shard_map(
            count, mesh=mesh, in_specs=(split, split, whole, whole, whole), out_specs=split, check_vma=False
        )
    )
