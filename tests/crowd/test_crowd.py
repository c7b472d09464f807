"""Neighbours and sums: one voter moves what theory says and nothing else, bit for bit, on any devices."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate_jax import crowd
from pate_jax.aggregate import noise
from pate_jax.crowd import classifier, neighbours, shares
from pate_jax.crowd.sums import shortened
from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import spaces

RANDOM = np.random.default_rng(9)
CENTRES = RANDOM.normal(size=(12, 6)) * 4
POOL = CENTRES[RANDOM.integers(0, 12, 240)] + RANDOM.normal(size=(240, 6))
KIND = RANDOM.integers(0, 12, 2300)
RECORDS = CENTRES[KIND] + RANDOM.normal(size=(2300, 6))
LABELS = KIND % 3
SPACE = spaces.learn("identity", POOL, directions=5)
PUBLIC = SPACE.coordinates(POOL)
NEAR = neighbours.choose(crowd.scaling(SPACE, PUBLIC, length=2000, power=0.3), PUBLIC, 20)
COUNTS = {votes: NeighbourCounts(20, 3, votes=votes, sigma=2.0) for votes in (1, 4)}
SCALING = crowd.scaling(SPACE, PUBLIC, length=150, power=0.5, constant=0.25)
SUMS = ClassSums(3, 6, length=150, sigma=900.0)


def people(inputs=RECORDS, labels=LABELS, users=None):
    names = np.array([f"n{row}" for row in range(len(inputs))])
    owners = None if users is None else np.array([f"u{user}" for user in users])
    part = Part(inputs, labels.astype(np.int32), names, owners)
    return crowd.voters(part, 3, by="record" if users is None else "user")


def votes_of(voters, votes=4, devices=1):
    return crowd.counts(SPACE, NEAR, voters, COUNTS[votes], devices=devices)


def sums_of(voters, devices=1):
    return crowd.sums(SPACE, SCALING, voters, SUMS, devices=devices)


def by_hand(voters, votes):
    """Votes by the definition, one voter after another, from exact distances."""
    table = np.zeros((20, 3), np.int64)
    vectors = crowd.vectors(NEAR.scaling, SPACE.coordinates(voters.inputs)).astype(np.int64)
    gaps = (vectors**2).sum(1)[:, None] + NEAR.offsets - 2 * vectors @ NEAR.vectors.astype(np.int64)
    owners = np.arange(len(vectors)) if voters.users is None else voters.users
    for owner in np.unique(owners):
        mine = np.flatnonzero(owners == owner)
        best = [min((gaps[row, query], voters.labels[row]) for row in mine) for query in range(20)]
        for query in sorted(range(20), key=lambda query: (best[query][0], query))[:votes]:
            table[query, best[query][1]] += 1
    return table


@pytest.mark.parametrize("votes", [1, 4])
@pytest.mark.parametrize("users", [None, np.arange(200) // 7])
def test_votes_are_those_of_the_definition(votes, users):
    some = people(RECORDS[:200], LABELS[:200], users)
    found = votes_of(some, votes)
    assert np.array_equal(found, by_hand(some, votes))
    assert found.sum() == votes * (200 if users is None else 29)


@pytest.mark.parametrize("devices", [2, 8])
def test_tables_are_bitwise_the_same_on_any_number_of_devices(devices):
    users = RANDOM.integers(0, 300, len(RECORDS))
    for voters in (people(), people(users=users)):
        assert np.array_equal(votes_of(voters), votes_of(voters, devices=devices))
        assert np.array_equal(sums_of(voters), sums_of(voters, devices=devices))


def test_the_order_of_records_changes_no_table():
    turned = people(RECORDS[::-1], LABELS[::-1])
    assert np.array_equal(votes_of(people()), votes_of(turned))
    assert np.array_equal(sums_of(people()), sums_of(turned))


def edits(inputs, labels, row, kind):
    """A neighbour of the records: one changed, relabelled, or removed."""
    if kind == "removed":
        return np.delete(inputs, row, 0), np.delete(labels, row)
    inputs, labels = inputs.copy(), labels.copy()
    if kind == "relabelled":
        labels[row] = (labels[row] + 1) % 3
    else:
        inputs[row] = {"changed": -3 * inputs[row], "far": 1e30, "middle": POOL.mean(0)}[kind]
    return inputs, labels


KINDS = ["removed", "relabelled", "changed", "far", "middle"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("votes", [1, 4])
def test_one_record_moves_as_many_votes_as_theory_says_and_no_others(kind, votes):
    release, before = COUNTS[votes], votes_of(people(), votes)
    change = "joined" if kind == "removed" else "changed"
    for row in (0, 1999, 2000, 2299):
        after = votes_of(people(*edits(RECORDS, LABELS, row, kind)), votes, devices=2)
        moved = after - before
        assert np.abs(moved).max() <= 1
        assert (moved**2).sum() <= release.squared_shift(change)
        if kind in ("removed", "relabelled"):
            assert (moved**2).sum() == release.squared_shift(change), "the bound is reached"
        own = votes_of(people(RECORDS[row : row + 1], LABELS[row : row + 1]), votes)
        assert np.array_equal(np.minimum(moved, 0), -own * (moved < 0)), "only its own votes go"


@pytest.mark.parametrize("kind", KINDS)
def test_one_record_moves_the_sums_by_its_own_vector_and_no_further(kind):
    before = sums_of(people())
    change = "joined" if kind == "removed" else "changed"
    for row in (0, 1999, 2000, 2299):
        inputs, labels = edits(RECORDS, LABELS, row, kind)
        moved = sums_of(people(inputs, labels), devices=2) - before
        assert (moved**2).sum() <= SUMS.squared_shift(change)
        own = sums_of(people(RECORDS[row : row + 1], LABELS[row : row + 1]))
        new = 0 if kind == "removed" else sums_of(people(inputs[row : row + 1], labels[row : row + 1]))
        assert np.array_equal(moved, new - own)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3, 2100])
def test_all_records_of_a_user_move_no_more_than_one_record(kind, size):
    """A user of 2,100 records lies in two blocks; all its records change at once, or some of them."""
    users = np.concatenate([np.zeros(size, int), 1 + np.arange(len(RECORDS) - size) // 2])
    votes, sums = (what(people(users=users)) for what in (votes_of, sums_of))
    change = "joined" if kind == "removed" else "changed"
    rows = np.arange(size) if kind == "removed" else np.arange(0, size, 2)
    inputs, labels = edits(RECORDS, LABELS, rows, kind)
    others = people(inputs, labels, np.delete(users, rows) if kind == "removed" else users)
    moved = votes_of(others, devices=8) - votes
    assert np.abs(moved).max() <= 1 and (moved**2).sum() <= COUNTS[4].squared_shift(change)
    assert ((sums_of(others, devices=8) - sums) ** 2).sum() <= SUMS.squared_shift(change)


def test_a_users_table_is_that_of_its_records_and_no_longer_than_a_vector():
    """By the definition, one user after another, in exact whole numbers."""
    users = np.sort(RANDOM.integers(0, 700, len(RECORDS)))
    some, expected, shorter = people(users=users), np.zeros((3, 6), np.int64), 0
    vectors = crowd.vectors(SCALING, SPACE.coordinates(RECORDS)).astype(np.int64)
    for user in np.unique(users):
        mine = users == user
        table = np.stack([vectors[mine & (label == LABELS)].sum(0) for label in range(3)])
        size = math.isqrt(max(int((table**2).sum()) - 1, 0)) + 1
        expected += table if size <= 150 else np.sign(table) * (np.abs(table) * 150 // size)
        shorter += size > 150
    assert shorter > 400
    assert np.array_equal(sums_of(some), expected)


@settings(max_examples=200)
@given(st.data())
def test_no_users_sums_are_longer_than_a_vector_nor_turned(data):
    length, most = data.draw(st.integers(8, 8000)), data.draw(st.sampled_from([30, 10**5, 10**9, 10**13]))
    row = st.lists(st.integers(-most, most), min_size=4, max_size=4)
    drawn = np.array(data.draw(st.lists(row, min_size=1, max_size=3)))
    found = shortened(drawn, np.full(len(drawn), 7), length)
    size = math.sqrt(sum(int(one) ** 2 for one in drawn.ravel()))
    assert sum(int(one) ** 2 for one in found.ravel()) <= length**2
    if size <= length:
        assert np.array_equal(found, drawn)
    else:
        assert np.abs(found - drawn * (length / size)).max() <= 2 + length / size, "cut, not turned"


def test_constants_tell_for_how_many_means_the_sums_of_users_stand():
    users = np.sort(RANDOM.integers(0, 300, len(RECORDS)))
    table, vectors = sums_of(people(users=users)), crowd.vectors(SCALING, SPACE.coordinates(RECORDS))
    stands = 0.0
    for user in np.unique(users):
        mine = users == user
        each = np.stack([vectors[mine & (label == LABELS)].sum(0) for label in range(3)])
        stands += mine.sum() * min(1, 150 / np.linalg.norm(each))
    assert stands > 1.3 * 300
    assert shares.weight(table, SCALING.constant, 300) == pytest.approx(stands, rel=0.02)
    assert shares.weight(sums_of(people()), SCALING.constant, len(RECORDS)) == len(RECORDS)


def test_by_user_probabilities_of_mixed_records_are_those_by_record():
    """Of users of eight random records each, and as many voters: what noise-free sums tell is the same."""
    users = np.arange(len(RECORDS)) // 8
    release = ClassSums(3, 6, length=150, sigma=1.0)
    public, seen = crowd.vectors(SCALING, PUBLIC), crowd.vectors(SCALING, SPACE.coordinates(RECORDS))
    table = sums_of(people(users=users))
    every = classifier.fit(sums_of(people()), release, public, 2300).probabilities(seen)
    weighed = classifier.fit(table, release, public, shares.weight(table, SCALING.constant, 288))
    plain = classifier.fit(table, release, public, 288)
    off = [np.abs(one.probabilities(seen) - every).mean() for one in (weighed, plain)]
    assert off[0] < 0.03 < 0.1 < off[1]


def test_equal_records_of_one_user_have_one_vote_each_query():
    inputs, labels = np.repeat(RECORDS[:1], 10_000, 0), np.arange(10_000) % 3
    table = votes_of(people(inputs, labels, np.zeros(10_000, int)))
    assert table.sum() == 4 and table.max() == 1 and table[:, 0].sum() == 4, "the lowest label of equal ones"
    table = sums_of(people(inputs, labels, np.zeros(10_000, int)))
    assert (table**2).sum() <= 150**2


def test_two_classes_have_one_row_of_differences():
    release = ClassSums(2, 6, length=150, sigma=900.0)
    halves = crowd.Voters(RECORDS, (KIND % 2).astype(np.int32), None)
    table = crowd.sums(SPACE, SCALING, halves, release)
    vectors = crowd.vectors(SCALING, SPACE.coordinates(RECORDS)).astype(np.int64)
    assert np.array_equal(table[0], vectors[KIND % 2 == 1].sum(0) - vectors[KIND % 2 == 0].sum(0))
    everyone = halves._replace(users=np.arange(len(RECORDS)))
    assert np.array_equal(crowd.sums(SPACE, SCALING, everyone, release), table)


def test_every_user_of_one_record_votes_as_a_record_does():
    alone = people(users=RANDOM.permutation(len(RECORDS)))
    assert np.array_equal(votes_of(alone), votes_of(people()))
    assert np.array_equal(sums_of(alone), sums_of(people()))


def test_queries_are_different_public_inputs_with_balanced_voters():
    plain = neighbours.choose(NEAR.scaling, PUBLIC, 20, balanced=False)
    spread = {}
    for name, chosen in (("plain", plain), ("balanced", NEAR)):
        assert len(set(chosen.rows.tolist())) == 20
        spread[name] = crowd.counts(SPACE, chosen, people(), COUNTS[1]).sum(1).std()
    assert spread["balanced"] < spread["plain"]


def test_no_records_cast_no_votes():
    for users in (None, np.zeros(0, int)):
        nobody = crowd.Voters(RECORDS[:0], LABELS[:0].astype(np.int32), users)
        assert not votes_of(nobody).any() and not sums_of(nobody).any()


def test_a_missing_class_and_an_empty_vector_are_no_trouble():
    lacking = people(RECORDS, np.minimum(LABELS, 1))
    assert votes_of(lacking)[:, 2].sum() == 0 and not sums_of(lacking)[2].any()
    middle = people(np.broadcast_to(POOL.mean(0), (3, 6)).copy(), np.zeros(3, int))
    assert sums_of(middle)[0, :5].max() <= 3 * 5, "hardly more than the constant"
    assert votes_of(middle).sum() == 12


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.long
def test_the_classifier_learns_what_is_there_and_nothing_from_noise(classes):
    labels = (KIND % classes).astype(np.int32)
    truth = np.asarray(crowd.Voters(RECORDS, labels, None).labels)
    release = ClassSums(classes, 6, length=150, sigma=2000.0)
    table = crowd.sums(SPACE, SCALING, crowd.Voters(RECORDS, labels, None), release)
    public = crowd.vectors(SCALING, PUBLIC)
    seen = crowd.vectors(SCALING, SPACE.coordinates(RECORDS))
    noisy = noise.noisy_table(release, table, key=noise.seeded_key(3)).values
    clear = classifier.fit(noisy, release, public, 2300).probabilities(seen)
    exact = classifier.fit(table, ClassSums(classes, 6, 150, sigma=1.0), public, 2300).probabilities(seen)
    assert np.allclose(clear.sum(1), 1, atol=1e-5)
    assert (clear.argmax(1) == truth).mean() > (exact.argmax(1) == truth).mean() - 0.1 > 1 / classes
    alone = noise.noisy_table(release, np.zeros_like(table), key=noise.seeded_key(4)).values
    nothing = classifier.fit(alone, release, public, 2300).probabilities(seen)
    assert np.abs(nothing - 1 / classes).mean() < 0.5 * np.abs(clear - 1 / classes).mean()


def test_blocks_of_a_memory_map_give_the_same_tables(tmp_path):
    np.save(tmp_path / "inputs.npy", RECORDS)
    mapped = np.load(tmp_path / "inputs.npy", mmap_mode="r", allow_pickle=False)
    assert np.array_equal(votes_of(people(mapped)), votes_of(people()))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: neighbours.choose(NEAR.scaling, PUBLIC, 241), "queries=241 must be from 1 to the 240"),
        (lambda: neighbours.choose(NEAR.scaling._replace(length=4001), PUBLIC, 3), "length=4001"),
        (lambda: people(labels=LABELS + 1), r"label 3 at row \d+ is outside 0..2"),
        (lambda: people(labels=LABELS - 1), "label -1 at row"),
        (lambda: crowd.voters(Part(RECORDS, None, np.zeros(0)), 3), "private has no labels"),
        (
            lambda: crowd.voters(Part(RECORDS, LABELS + 0.5, np.zeros(0)), 3),
            "must be one whole number a record",
        ),
        (lambda: crowd.counts(SPACE, NEAR, people(), NeighbourCounts(21, 3, 1, 2.0)), "20 queries are given"),
        (
            lambda: crowd.sums(SPACE, SCALING, people(), ClassSums(3, 6, 149, 9.0)),
            "for a release of 6 and 149",
        ),
        (
            lambda: votes_of(people(np.where(np.arange(2300)[:, None] == 2100, np.nan, RECORDS))),
            "1 of the 300 records read together .* at row 2100",
        ),
        (
            lambda: votes_of(crowd.Voters(RECORDS, (LABELS + 1).astype(np.int32), None)),
            r"label 3 at row \d+ is outside 0..2",
        ),
        (
            lambda: sums_of(crowd.Voters(RECORDS, (LABELS + 1).astype(np.int32), None)),
            r"label 3 at row \d+ is outside 0..2",
        ),
        (lambda: neighbours.nearest(SPACE, NEAR, RECORDS, 21), "votes=21 must be from 1 to the 20 queries"),
        (
            lambda: crowd.scaling(SPACE, PUBLIC, length=7, power=0.5),
            "length=7 of a voter's vector must be from 8 to 8000",
        ),
        (
            lambda: classifier.fit(np.zeros((2, 6), int), SUMS, crowd.vectors(SCALING, PUBLIC), 9),
            "do not fit",
        ),
    ],
)
def test_bad_input_is_one_sentence(wrong, message):
    with pytest.raises(PateError, match=message):
        wrong()


def test_many_directions_at_the_greatest_length_are_exact():
    """300 directions of length 4,000: entries are drawn in so that squares fit into 32 bits."""
    pool = RANDOM.normal(size=(400, 300))
    space = spaces.learn("identity", pool)
    scaling = crowd.scaling(space, space.coordinates(pool), length=4000, power=1.0)
    found = crowd.vectors(scaling, space.coordinates(pool * RANDOM.choice([0.1, 1, 1e9], (400, 1))))
    assert 0.9 * 4000**2 < (found.astype(np.int64) ** 2).sum(1).max() <= 4000**2


@pytest.mark.parametrize("constant", [0, 100])
@pytest.mark.parametrize("records", [0, 1, 2048, 5000])
def test_vectors_on_the_host_are_those_of_the_kernels_bit_for_bit(records, constant):
    scaling = Scaling(RANDOM.random(30).astype(np.float32), 1003, constant)
    spread = 10 ** RANDOM.uniform(0, 5, (records, 1))
    coordinates = np.rint(RANDOM.normal(size=(records, 30)) * spread).astype(np.int32)
    found = crowd.vectors(scaling, coordinates)
    of_kernels = np.asarray(bounded(coordinates, scaling.weights, 1003, constant))
    assert found.dtype == of_kernels.dtype
    np.testing.assert_array_equal(found, of_kernels)


def test_eight_devices_are_there():
    assert len(jax.local_devices()) >= 8
