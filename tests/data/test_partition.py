"""Shards depend on each record alone; the certificate proves it and catches every departure."""

import json
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.data import partition
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards
from pate_jax.errors import PateError

KEY = partition.seeded_key(3)
TEACHERS = 7


def make_part(records: int = 101, users: int | None = None, offset: int = 0) -> Part:
    numbers = np.arange(offset, offset + records)
    inputs = np.stack([numbers, numbers**2], axis=1).astype(np.float32)
    ids = np.array([f"id-{number}" for number in numbers])
    owners = None if users is None else np.array([f"user-{number % users}" for number in numbers])
    return Part(inputs, (numbers % 3).astype(np.int32), ids, owners)


def held(shards: Shards, part: Part) -> list[list[str]]:
    return [part.ids[shards.of(teacher)].tolist() for teacher in range(len(shards.counts))]


def changed(before: list[list[str]], after: list[list[str]]) -> list[int]:
    return [teacher for teacher, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]


def test_a_teacher_is_the_keyed_hash_of_the_id():
    import hashlib

    word = hashlib.blake2b(b"ann", key=KEY, digest_size=8, person=b"pate shard").digest()
    ids = ["ann", *(f"other-{number}" for number in range(30))]
    assert partition.assign(ids, TEACHERS, key=KEY)[0] == int.from_bytes(word, "little") % TEACHERS
    assert (
        partition.assign(ids, TEACHERS, key=partition.seeded_key(4)).tolist()
        != partition.assign(ids, TEACHERS, key=KEY).tolist()
    )


def test_fresh_keys_differ_and_seeded_keys_repeat():
    assert partition.fresh_key() != partition.fresh_key()
    assert partition.seeded_key(1) == partition.seeded_key(1) != partition.seeded_key(2)


def test_shards_are_about_equal():
    counts = np.bincount(partition.assign([f"record {n}" for n in range(20_000)], 10, key=KEY))
    assert abs(counts - 2000).max() < 6 * np.sqrt(2000)


def test_each_row_is_in_one_shard_and_padding_is_masked():
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    assert shards.rows.dtype == shards.counts.dtype == np.int32
    assert shards.rows.shape == (TEACHERS, shards.counts.max())
    assert sorted(np.concatenate([shards.of(t) for t in range(TEACHERS)]).tolist()) == list(range(101))
    padded = np.arange(shards.rows.shape[1]) >= shards.counts[:, None]
    assert padded.any()
    assert not shards.rows[padded].any()


@pytest.mark.parametrize("by", ["record", "user"])
def test_removing_or_adding_one_record_changes_one_shard(by):
    part = make_part(users=40)
    before = held(partition.divide(part, TEACHERS, key=KEY, by=by), part)
    for row in (0, 50, 100):
        fewer = part.take(np.delete(np.arange(101), row))
        after = held(partition.divide(fewer, TEACHERS, key=KEY, by=by), fewer)
        (teacher,) = changed(before, after)
        assert [name for name in before[teacher] if name != part.ids[row]] == after[teacher]


def test_adding_to_the_longest_shard_leaves_the_others():
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    longest = int(shards.counts.argmax())
    candidates = make_part(200, offset=1000)
    teachers = partition.assign(candidates.ids, TEACHERS, key=KEY)
    more = candidates.take(np.flatnonzero(teachers == longest)[:1])
    joined = Part(*(np.concatenate(pair) for pair in zip(part[:3], more[:3], strict=True)))
    larger = partition.divide(joined, TEACHERS, key=KEY)
    assert larger.rows.shape[1] == shards.rows.shape[1] + 1
    assert changed(held(shards, part), held(larger, joined)) == [longest]


def test_removing_one_user_changes_one_shard_and_users_never_meet_two_teachers():
    part = make_part(users=17)
    shards = partition.divide(part, TEACHERS, key=KEY, by="user")
    meets = [set(part.users[shards.of(teacher)]) for teacher in range(TEACHERS)]
    assert sum(map(len, meets)) == len(set.union(*meets)) == 17
    fewer = part.take(part.users != "user-5")
    after = held(partition.divide(fewer, TEACHERS, key=KEY, by="user"), fewer)
    assert len(changed(held(shards, part), after)) == 1


@pytest.mark.parametrize("column", ["inputs", "labels", "features"])
def test_changing_contents_changes_one_digest(column):
    part = make_part()._replace(features=np.arange(303.0).reshape(101, 3))
    proof = partition.certificate(partition.divide(part, TEACHERS, key=KEY), part, key=KEY)
    values = getattr(part, column).copy()
    values[12] += 1
    moved = part._replace(**{column: values})
    other = partition.certificate(partition.divide(moved, TEACHERS, key=KEY), moved, key=KEY)
    differing = [a != b for a, b in zip(proof["shards"], other["shards"], strict=True)]
    assert sum(differing) == 1
    assert {k: v for k, v in proof.items() if k != "shards"} == {
        k: v for k, v in other.items() if k != "shards"
    }


names = st.lists(st.text(min_size=0, max_size=6), min_size=6, max_size=40, unique=True)


@given(names, st.integers(1, 6), st.data())
def test_any_ids_in_any_order_any_one_removed(ids, teachers, data):
    order = data.draw(st.permutations(range(len(ids))))
    gone = data.draw(st.integers(0, len(ids) - 1))

    def shards_of(listed):
        assignment = partition.assign(listed, teachers, key=KEY)
        shards = partition.cut(assignment, listed, teachers, key=KEY)
        return [[listed[row] for row in shards.of(teacher)] for teacher in range(teachers)]

    before = shards_of(ids)
    assert sorted(chain.from_iterable(before)) == sorted(ids)
    assert shards_of([ids[place] for place in order]) == before
    if len(ids) > teachers:
        after = shards_of([name for place, name in enumerate(ids) if place != gone])
        assert len(changed(before, after)) == 1


def test_shuffle_and_cut_is_what_the_removal_test_would_catch():
    """The same comparison on the usual wrong way: cut a shuffled table into equal pieces."""

    def shuffled(ids):
        rows = np.random.default_rng(0).permutation(len(ids))
        return [np.array(ids)[piece].tolist() for piece in np.array_split(rows, TEACHERS)]

    ids = make_part().ids.tolist()
    assert len(changed(shuffled(ids), shuffled(ids[1:]))) > 1


@pytest.mark.parametrize("by", ["record", "user"])
def test_a_certificate_holds_and_survives_json(by):
    part = make_part(users=30)
    shards = partition.divide(part, TEACHERS, key=KEY, by=by)
    proof = json.loads(json.dumps(partition.certificate(shards, part, key=KEY, by=by)))
    assert partition.check_certificate(proof, shards, part, key=KEY) == []
    assert partition.check_sums(proof) == []
    assert proof["records"] == 101
    assert proof.get("users") == (30 if by == "user" else None)
    assert sum(shard.get("users", 0) for shard in proof["shards"]) == (30 if by == "user" else 0)
    assert KEY.hex() not in json.dumps(proof)


def test_an_empty_shard_is_certified():
    ids = np.array(["a", "b", "c", "d"])
    part = Part(np.zeros((4, 2), np.float32), np.zeros(4, np.int32), ids)
    for seed in range(200):
        key = partition.seeded_key(seed)
        shards = partition.divide(part, 4, key=key)
        if shards.counts.min() == 0:
            proof = partition.certificate(shards, part, key=key)
            assert partition.check_certificate(proof, shards, part, key=key) == []
            return
    pytest.fail("no seed leaves a shard empty")


def moved(shards: Shards, source: int, target: int, copy: bool) -> Shards:
    """Shards with the first record of one teacher moved, or copied, to another."""
    lists = [shards.of(teacher).tolist() for teacher in range(len(shards.counts))]
    lists[target].append(lists[source][0])
    if not copy:
        lists[source].pop(0)
    counts = np.array(list(map(len, lists)), np.int32)
    rows = np.zeros((len(lists), counts.max()), np.int32)
    for teacher, listed in enumerate(lists):
        rows[teacher, : len(listed)] = listed
    return Shards(rows, counts)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda s: moved(s, 0, 1, copy=True), "is in the shards of teachers [0, 1]"),
        (lambda s: moved(s, 0, 1, copy=False), "against its hash"),
        (lambda s: s._replace(counts=np.maximum(s.counts - [1, 0, 0, 0, 0, 0, 0], 0)), "is in no shard"),
        (lambda s: s._replace(rows=s.rows + 1), "outside"),
        (lambda s: s._replace(rows=np.where(s.rows == s.of(2)[0], s.of(2)[1], s.rows)), "is in the shards"),
        (lambda s: reordered(s, 3), "order of their hashes"),
    ],
)
def test_a_bad_partition_gets_no_certificate_and_fails_one(spoil, said):
    part = make_part()
    good = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(good, part, key=KEY)
    bad = spoil(good)
    with pytest.raises(PateError, match="not a partition"):
        partition.certificate(bad, part, key=KEY)
    found = partition.check_certificate(proof, bad, part, key=KEY)
    assert any(said in line for line in found), found


def reordered(shards: Shards, teacher: int) -> Shards:
    rows = shards.rows.copy()
    rows[teacher, : shards.counts[teacher]] = shards.of(teacher)[::-1]
    return shards._replace(rows=rows)


def test_every_teacher_with_the_first_shard_is_caught():
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    found = partition.check_fed(proof, [shards.of(0)] * TEACHERS, part, key=KEY)
    assert {line.split(":")[0] for line in found} == {f"teacher {teacher}" for teacher in range(1, TEACHERS)}


def test_what_was_fed_is_checked_row_by_row():
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    fed = [np.random.default_rng(t).permutation(np.tile(shards.of(t), 5)) for t in range(TEACHERS)]
    assert partition.check_fed(proof, fed, part, key=KEY) == []
    fed[4] = np.append(fed[4], shards.of(1)[0])
    found = partition.check_fed(proof, fed, part, key=KEY)
    assert found
    assert all(line.startswith("teacher 4:") for line in found)
    fed[4] = fed[4][fed[4] != shards.of(4)[0]]
    assert "teacher 4: the digest of the ids is not the certified one" in partition.check_fed(
        proof, fed, part, key=KEY
    )


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("record_sum", "0" * 64, "do not add up"),
        ("records", 100, "the shards hold 101 records and the table 100"),
        ("key_digest", "0" * 64, "the key's digest"),
        ("teachers", 6, "the number of teachers"),
    ],
)
def test_a_forged_certificate_is_caught(field, value, said):
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    proof[field] = value
    assert any(said in line for line in partition.check_certificate(proof, shards, part, key=KEY))


@pytest.mark.parametrize("field", ["records", "record_sum", "ids", "contents"])
def test_a_forged_shard_is_caught(field):
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    proof["shards"][2][field] = 0 if field == "records" else "f" * 64
    assert partition.check_certificate(proof, shards, part, key=KEY)


def test_the_sums_alone_betray_an_overlap():
    """Without ids or key: a certificate honest about overlapping shards does not add up."""
    part = make_part()
    shards = partition.divide(part, TEACHERS, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    proof["shards"][0] = proof["shards"][1]
    assert any("do not add up" in line for line in partition.check_sums(proof))


MANY = [f"id {number}" for number in range(110)]


def test_a_refusal_tells_two_digits_of_the_count_only():
    """Of 100 to 109 records none is told from another, and 110 are enough for 110 teachers."""
    refusals = set()
    for records in (100, 105, 109):
        with pytest.raises(PateError) as refused:
            partition.assign(MANY[:records], 105, key=KEY)
        refusals.add(str(refused.value))
    assert len(refusals) == 1
    assert len(partition.assign(MANY, 110, key=KEY)) == 110


def bad_assign(**options):
    return lambda: partition.assign(**{"ids": ["a", "b", "c"], "teachers": 2, "key": KEY, **options})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (bad_assign(teachers=0), "teachers=0 must be at least 1"),
        (bad_assign(teachers=4), "teachers=4 is more than the 3 records or users"),
        (bad_assign(ids=["a", "a", "a"]), "teachers=2 is more than the 1 records or users"),
        (bad_assign(ids=[]), "teachers=2 is more than the 0"),
        (bad_assign(ids=MANY[:105], teachers=105), "teachers=105 is more than the 100 records or users"),
        (bad_assign(key=b"short"), "partition key has 5 bytes"),
        (lambda: partition.cut(np.array([0, 1]), ["a"], 2, key=KEY), "2 assignments are given for 1 ids"),
        (lambda: partition.cut(np.array([0, 5]), ["a", "b"], 2, key=KEY), "assignment must lie in 0..1"),
        (lambda: partition.cut(np.array([0, 1]), ["a", "a"], 2, key=KEY), "id 'a' appears twice"),
        (lambda: partition.divide(make_part(), 2, key=KEY, by="house"), "by='house' must be"),
        (
            lambda: partition.divide(make_part(), 2, key=KEY, by="user"),
            "needs the user of every private record",
        ),
        (lambda: partition.check_certificate({}, *empty_case(), key=KEY), "certificate lacks"),
    ],
)
def test_bad_input_is_one_sentence(call, said):
    with pytest.raises(PateError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def empty_case():
    part = make_part()
    return partition.divide(part, TEACHERS, key=KEY), part


@pytest.mark.long
def test_a_hundred_thousand_ids_divide():
    ids = np.array([f"record-{number}" for number in range(100_000)])
    part = Part(np.zeros((len(ids), 1), np.uint8), np.zeros(len(ids), np.int32), ids)
    shards = partition.divide(part, 250, key=KEY)
    proof = partition.certificate(shards, part, key=KEY)
    assert proof["records"] == 100_000
    assert shards.counts.sum() == 100_000
