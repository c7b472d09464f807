"""Keys in a program of several processes: a shared one gives one noise, whoever looks."""

from pathlib import Path

import forked
import jax
import numpy as np
import pytest
import quick_compiler
from jax.sharding import PartitionSpec as P
from test_multihost import free_address

from pate_jax import aggregate, voting
from pate_jax.aggregate import chacha
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.system import devices

MECHANISM = DiscreteGaussianMax(20.0)
LABELS = np.random.default_rng(0).integers(0, 3, (40, 150)).astype(np.int16)  # [teacher, query]


def vote_and_answer(labels, key):
    votes = voting.histogram(labels, classes=3, axis_name="teachers")
    return aggregate.answer(MECHANISM, votes, key=key).labels


def one_of_two(address, index, folder):
    """What each process does: the answers of all teachers, of which it holds half, and a key of its own."""
    devices.join(address, 2, index)
    with pytest.raises(PateError, match="2 processes needs shared=True"):
        aggregate.fresh_key()
    mesh = jax.make_mesh((2,), ("teachers",), axis_types=(jax.sharding.AxisType.Auto,))
    spread = jax.shard_map(vote_and_answer, mesh=mesh, in_specs=(P("teachers"), P()), out_specs=P())
    over = jax.sharding.NamedSharding(mesh, P("teachers"))
    labels = jax.make_array_from_process_local_data(over, LABELS[20 * index : 20 * index + 20])
    shared, own = aggregate.fresh_key(shared=True), aggregate.fresh_key(shared=False)
    keys = {name: jax.random.key_data(key) for name, key in (("shared", shared), ("own", own))}
    np.savez(Path(folder) / f"{index}.npz", answers=jax.jit(spread)(labels, shared), **keys)


@pytest.mark.long
def test_what_two_processes_answer_together_has_one_noise(tmp_path):
    environment = {"XLA_FLAGS": quick_compiler.environment(devices=1)["XLA_FLAGS"]}
    name, address = "test_key_hosts:one_of_two", free_address()
    running = [
        forked.function(name, address, index, str(tmp_path), environment=environment) for index in (0, 1)
    ]
    assert forked.ended(running) == [0, 0]
    first, second = (np.load(tmp_path / f"{index}.npz") for index in (0, 1))
    assert np.array_equal(first["shared"], second["shared"]) and not (first["own"] == second["own"]).any()
    key = jax.random.wrap_key_data(first["shared"], impl=chacha.PRIVATE)
    expected = aggregate.answer(MECHANISM, voting.histogram(LABELS, classes=3), key=key).labels
    assert all(np.array_equal(found["answers"], expected) for found in (first, second))
