"""Voters on several machines: each process reads its own part of them, and all return what one would."""

import itertools
from pathlib import Path

import forked
import numpy as np
import pytest
import quick_compiler
from test_multihost import free_address

from pate_jax import crowd
from pate_jax.crowd import neighbours
from pate_jax.crowd.voters import own_rows
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import spaces
from pate_jax.system import devices

RECORDS = 4507
LARGE = 3 << 40  # beyond 32 bits


def tables(folder, by, part=None):
    """Counts and sums of records in a memory map, in which a user's records lie far apart.

    `part` is a process's number and that of all, where each is given the records of its own users alone.
    """
    random = np.random.default_rng(3)
    pool = random.normal(size=(90, 5)) * [5, 4, 3, 2, 1]
    space = spaces.learn("identity", pool)
    public = space.coordinates(pool)
    chosen = neighbours.choose(crowd.scaling(space, public, length=2000, power=0.3), public, 11)
    scaling = crowd.scaling(space, public, length=90, power=0.5, constant=0.25)
    inputs = np.load(Path(folder) / "inputs.npy", mmap_mode="r", allow_pickle=False)
    labels, users = np.arange(RECORDS, dtype=np.int32) % 3, np.arange(RECORDS) % 1201
    people = crowd.Voters(inputs, labels, users if by == "user" else None)
    if part is not None:
        mine = np.flatnonzero(users % part[1] == part[0])
        names = np.unique(users[mine]) if by == "user" else mine
        people = crowd.Voters(inputs[mine], labels[mine], users[mine] if by == "user" else None, names)
    counts = crowd.counts(space, chosen, people, NeighbourCounts(11, 3, votes=2, sigma=5.0))
    return counts, crowd.sums(space, scaling, people, ClassSums(3, 6, length=90, sigma=90.0))


def one_of_several(address, count, index, folder):
    """What each process does: all tables, a sum of large numbers, and a list that the others do not have."""
    devices.join(address, count, index)
    found = {by: tables(folder, by) for by in ("record", "user")}
    found |= {f"apart-{by}": tables(folder, by, (index, count)) for by in ("record", "user")}
    large = devices.sum_over_processes(np.array([LARGE + index]))
    other = crowd.Voters(np.zeros((7, 5)), np.full(7, int(index == 1), np.int32), None)
    try:
        own_rows(other)
    except PateError as error:
        refused = str(error)
    arrays = {f"{by}{place}": found[by][place] for by in found for place in (0, 1)}
    np.savez(Path(folder) / f"tables{index}.npz", large=large, refused=refused, **arrays)


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 4])
def test_several_processes_count_and_sum_as_one_does(tmp_path, count):
    np.save(tmp_path / "inputs.npy", np.random.default_rng(4).normal(size=(RECORDS, 5)) * [5, 4, 3, 2, 1])
    environment = {"XLA_FLAGS": quick_compiler.environment(devices=2)["XLA_FLAGS"]}
    name, address = "test_crowd_hosts:one_of_several", free_address()
    running = [
        forked.function(name, address, count, index, str(tmp_path), environment=environment)
        for index in range(count)
    ]
    assert forked.ended(running) == [0] * count
    for by in ("record", "user"):
        counts, sums = tables(tmp_path, by)
        assert counts.sum() == 2 * (RECORDS if by == "record" else 1201)
        for index in range(count):
            with np.load(tmp_path / f"tables{index}.npz") as found:
                for name in (by, f"apart-{by}"):
                    assert np.array_equal(found[f"{name}0"], counts)
                    assert np.array_equal(found[f"{name}1"], sums)
                assert found["large"] == count * LARGE + sum(range(count))
                assert "process 1 was given other records" in str(found["refused"])


@pytest.mark.parametrize("processes", [2, 4, 9])
def test_every_record_is_read_once_and_every_user_by_one_process(monkeypatch, processes):
    users = np.random.default_rng(5).integers(0, 4, 7)
    monkeypatch.setattr(devices, "processes", lambda: processes)
    monkeypatch.setattr(devices, "rows_of_all", lambda digest: np.repeat(digest, processes, 0))
    for owners in (None, users):
        parts = []
        for index in range(processes):
            monkeypatch.setattr(devices, "index", lambda index=index: index)
            parts.append(list(own_rows(crowd.Voters(np.zeros((7, 2)), np.zeros(7, np.int32), owners))))
        assert sorted(itertools.chain(*parts)) == list(range(7))
        if owners is not None:
            assert all(np.all(np.diff(users[part]) >= 0) for part in parts), "one user after another"
            assert sum(len(set(users[part])) for part in parts) == len(set(users))
