"""Every kernel gives in a program of somebody else what it gives by itself, on one device and on eight."""

import re

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from pate_jax import aggregate, voting
from pate_jax.aggregate.noise import noise_on
from pate_jax.crowd import kernels, neighbours
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

PARTS, EACH, CLASSES, WIDE = 8, 6, 5, 3  # parts that are mapped, scanned or spread, and what is in each
COUNTS = NeighbourCounts(queries=4, classes=CLASSES, votes=2, sigma=3.0)
SUMS = ClassSums(CLASSES, WIDE, length=20, sigma=9.0)
PAIR = ClassSums(2, WIDE, length=20, sigma=9.0)
PLACES = np.random.default_rng(5).integers(-30, 30, (4, WIDE))


def answer(votes, key):
    return aggregate.answer(DiscreteGaussianMax(3.0), votes, key=key).labels


def answer_gnmax(votes, key):
    return aggregate.answer(GNMax(3.0), votes, key=key).labels


def answer_many(votes, key):
    settings = aggregate.prepare([DiscreteGaussianMax(1.0), DiscreteGaussianMax(9.0)])
    return aggregate.answer_many(settings, votes, key=key).labels


def histogram(labels, axis_name=None):
    return voting.histogram(labels, CLASSES, axis_name=axis_name)


def neighbour_counts(vectors, labels, axis_name=None):
    return kernels.neighbour_counts(COUNTS, vectors, labels, PLACES, axis_name=axis_name)


def class_sums(vectors, labels, axis_name=None):
    return kernels.class_sums(SUMS, vectors, labels, axis_name=axis_name)


def differences(vectors, labels):
    return kernels.class_sums(PAIR, vectors, labels)


def noisy_sums(vectors, labels, key):
    return class_sums(vectors, labels) + noise_on(SUMS, key=key)


def given(kernel, seed=0):
    """Eight parts of what a kernel takes: another seed gives other numbers of the same shapes."""
    rng = np.random.default_rng(seed)
    keys = jax.random.split(aggregate.seeded_key(seed), PARTS)
    voters = rng.normal(0, 15, (PARTS, EACH, WIDE)), rng.integers(0, CLASSES, (PARTS, EACH))
    if kernel is histogram:
        return (rng.integers(0, CLASSES, (PARTS, EACH, 7)).astype(np.int16),)
    if kernel in (neighbour_counts, class_sums, differences):
        return voters
    if kernel is noisy_sums:
        return *voters, keys
    return rng.multinomial(13, np.full(CLASSES, 1 / CLASSES), (PARTS, EACH)).astype(np.int32), keys


def part(arrays, place):
    return [each[place] for each in arrays]


def one_by_one(kernel, arrays):
    return np.stack([kernel(*part(arrays, place)) for place in range(PARTS)])


def scanned(kernel, arrays):
    return jax.lax.scan(lambda done, some: (done + 1, kernel(*some)), 0, arrays)[1]


def spread(kernel, arrays, devices):
    """Every device works on its own parts."""
    mesh = jax.make_mesh(
        (devices,), ("d",), devices=jax.devices()[:devices], axis_types=(jax.sharding.AxisType.Auto,)
    )
    mapped = jax.shard_map(
        lambda *own: jax.lax.map(lambda one: kernel(*one), own), mesh=mesh, in_specs=P("d"), out_specs=P("d")
    )
    return jax.jit(mapped)(*arrays)


COUNTING = [histogram, neighbour_counts, class_sums]
LONG = [
    pytest.param(kernel, marks=pytest.mark.long)
    for kernel in (histogram, neighbour_counts, answer, answer_gnmax, answer_many, noisy_sums)
]

ALL = [answer, answer_gnmax, answer_many, *COUNTING, differences, noisy_sums]


@pytest.mark.parametrize("kernel", [class_sums, *LONG])
def test_it_is_the_plain_call_under_every_transform(kernel):
    plain = one_by_one(kernel, given(kernel))
    with jax.debug_key_reuse(False):  # which takes the mapped keys of a loop's settings for used ones
        mapped = jax.jit(jax.vmap(kernel))(*given(kernel))
    in_turn = jax.jit(lambda *some: scanned(kernel, some))(*given(kernel))
    for way in (mapped, in_turn, spread(kernel, given(kernel), 8)):
        assert np.array_equal(way, plain)


@pytest.mark.parametrize("kernel", ALL)
def test_it_is_the_plain_call_where_jax_has_64_bits(kernel):
    plain = one_by_one(kernel, given(kernel))
    with jax.enable_x64(True):
        wide = jax.jit(lambda *some: scanned(kernel, some))(*given(kernel))
    assert wide.dtype == plain.dtype and np.array_equal(wide, plain)


@pytest.mark.long
@pytest.mark.parametrize("kernel", [answer, class_sums])
def test_it_is_the_plain_call_on_a_mesh_of_one_device(kernel):
    assert np.array_equal(spread(kernel, given(kernel), 1), one_by_one(kernel, given(kernel)))


@pytest.mark.parametrize("kernel", COUNTING)
def test_voters_spread_over_devices_are_summed(kernel):
    arrays = given(kernel)
    together = [np.concatenate(each) for each in arrays]
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    over = jax.shard_map(lambda *own: kernel(*own, axis_name="d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    assert np.array_equal(jax.jit(over)(*together), kernel(*together))


@pytest.mark.parametrize("kernel", [answer_many, *COUNTING, noisy_sums])
def test_a_call_of_equal_shape_compiles_nothing(kernel):
    compiled = []

    def note(event, seconds, **about):
        compiled.extend([event] * ("backend_compile" in event))

    first, second = (part(given(kernel, seed), 0) for seed in (1, 2))
    kernel(*first)
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        kernel(*second)
        assert not compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def test_counts_and_sums_are_those_of_the_definition():
    vectors, labels = (np.concatenate(each) for each in given(class_sums, 3))
    labels[:2] = -1, CLASSES  # outside the classes: no vote
    rows = np.round(vectors).astype(int)
    counts, sums = np.zeros(COUNTS.shape, int), np.zeros(SUMS.shape, int)
    for row, label in zip(rows, labels, strict=True):
        if 0 <= label < CLASSES:
            counts[np.argsort(((row - PLACES) ** 2).sum(1), kind="stable")[: COUNTS.votes], label] += 1
            size = np.linalg.norm(row)
            sums[label] += row if size <= SUMS.length else np.trunc(row * (SUMS.length / size)).astype(int)
    assert np.array_equal(neighbour_counts(vectors, labels), counts)
    assert np.abs(class_sums(vectors, labels) - sums).max() <= 1  # a product may be cut one lower
    each = kernels.class_sums(ClassSums(3, WIDE, 20, 9.0), vectors, labels)
    assert np.array_equal(differences(vectors, labels)[0], each[1] - each[0])


HOSTILE = [[np.nan, 1, 2], [np.inf, -np.inf, 0], [1e30, 3, 4], [-(2.0**31)] * 3, [15, 15, 15], [21, 0, 0]]


def test_no_row_moves_a_table_further_than_its_release_says():
    """Also where the row comes from a traced program, which sees no values."""
    traced = jax.jit(lambda *one: (class_sums(*one), neighbour_counts(*one)))
    for row in HOSTILE:
        for label in (-1, 2, CLASSES):
            sums, counts = traced(np.array([row], np.float32), np.array([label]))
            inside = 0 <= label < CLASSES
            assert (np.asarray(sums, np.int64) ** 2).sum() <= SUMS.squared_shift("joined") * inside
            assert (np.asarray(counts, np.int64) ** 2).sum() == COUNTS.squared_shift("joined") * inside


def test_vectors_are_compared_exactly_up_to_the_length_that_is_told():
    assert neighbours.LENGTH**2 < 2**24 and str(neighbours.LENGTH) in kernels.neighbour_counts.__doc__
    release = NeighbourCounts(queries=2, classes=2, votes=1, sigma=1.0)
    there = [[neighbours.LENGTH, 0], [neighbours.LENGTH - 1, 1]]
    found = kernels.neighbour_counts(
        release, [[neighbours.LENGTH, 0], [neighbours.LENGTH - 1, 1]], [0, 1], there
    )
    assert found.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: class_sums(np.zeros((2, 4)), [0, 1]), "vectors [2, 4] do not fit a release of 3 directions"),
        (lambda: class_sums(np.zeros((2, 3)), [0.0, 1.0]), "labels [2] of float32 do not fit"),
        (lambda: class_sums(np.zeros((2, 3)), [0]), "labels [1] of int32 do not fit vectors [2, 3]"),
        (lambda: class_sums(np.zeros(3), [0]), "vectors [3] of float32 must be numbers"),
        (
            lambda: kernels.neighbour_counts(COUNTS, np.zeros((2, 3)), [0, 1], PLACES[:3]),
            "queries [3, 3] do not fit a release of 4 queries",
        ),
        (
            lambda: kernels.class_sums(ClassSums(3, 3, 1 << 29, 9.0), np.zeros((4, 3)), [0] * 4),
            "voters=4 with vectors of length 536870912 may exceed 32 bits",
        ),
        (
            lambda: kernels.class_sums(ClassSums(3, 3, 46341, 9.0), np.zeros((4, 3)), [0] * 4),
            "length=46341 of a vector must be at most 46340",
        ),
        (lambda: noise_on(SUMS, key=7), "key=int is not a typed JAX key"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(PateError, match=re.escape(message)):
        call()
