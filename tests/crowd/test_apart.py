"""Several processes, each of which was given records of its own: all return the table of one that has all."""

import numpy as np
import process_threads
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate_jax import crowd
from pate_jax.crowd import neighbours
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import spaces

RANDOM = np.random.default_rng(8)
PUBLIC = RANDOM.normal(size=(60, 4)) * [4, 3, 2, 1]
SPACE = spaces.learn("identity", PUBLIC)
POOL = SPACE.coordinates(PUBLIC)
NEAR = neighbours.choose(crowd.scaling(SPACE, POOL, length=2000, power=0.3), POOL, 9)
SCALING = crowd.scaling(SPACE, POOL, length=90, power=0.5, constant=0.25)
COUNTS, SUMS = NeighbourCounts(9, 3, votes=2, sigma=5.0), ClassSums(3, 5, length=90, sigma=90.0)
RECORDS, PROCESSES = 101, 3
ALL = Part(
    RANDOM.normal(size=(RECORDS, 4)) * [4, 3, 2, 1],
    RANDOM.integers(0, 3, RECORDS).astype(np.int32),
    np.array([f"entry {row}" for row in range(RECORDS)]),
    np.array([f"user {row % 23}" for row in range(RECORDS)]),
)


def tables(part, by, apart):
    people = crowd.voters(part, 3, by=by, apart=apart)
    return crowd.counts(SPACE, NEAR, people, COUNTS), crowd.sums(SPACE, SCALING, people, SUMS)


def parts(places):
    """The records by the process that holds each."""
    return [ALL.take(np.flatnonzero(places == index)) for index in range(PROCESSES)]


def by_user(first, last):
    """Users divided among the processes from `first` to `last`, in parts of unequal size."""
    number = np.arange(RECORDS) % 23
    return first + (number * number) % (last + 1 - first)


@pytest.mark.parametrize("by", ["record", "user"])
@pytest.mark.parametrize("places", [by_user(0, 2), by_user(1, 2)])  # of the second the first process has none
def test_records_of_ones_own_give_the_tables_of_all(monkeypatch, by, places):
    expected = tables(ALL, by, apart=False)
    own = parts(places)
    assert len({len(part.ids) for part in own}) == PROCESSES
    for found in process_threads.group(monkeypatch, PROCESSES).ends(lambda at: tables(own[at], by, True)):
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_a_process_by_itself_has_all_voters():
    for found, expected in zip(tables(ALL, "user", True), tables(ALL, "user", False), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_user_with_two_processes_is_refused_by_all(monkeypatch):
    places = by_user(0, 2)
    places[places == 0] = np.where(np.arange((places == 0).sum()) == 0, 2, 0)  # one record of a user moves
    own = parts(places)
    ends = process_threads.group(monkeypatch, PROCESSES).ends(lambda at: tables(own[at], "user", True))
    assert {type(end) for end in ends} == {PateError} and len({str(end) for end in ends}) == 1
    assert "1 of 23 voters were given twice, the first of them to processes 0 and 2" in str(ends[0])
    records = process_threads.group(monkeypatch, PROCESSES).ends(lambda at: tables(own[at], "record", True))
    assert all(isinstance(end, tuple) for end in records), "as records they are different voters"


def test_a_record_that_two_processes_hold_is_refused_by_all(monkeypatch):
    own = parts(by_user(0, 2))
    twice = [own[0], own[1], ALL.take(np.arange(RECORDS))]
    ends = process_threads.group(monkeypatch, PROCESSES).ends(lambda at: tables(twice[at], "record", True))
    known = len(own[0].ids) + len(own[1].ids)
    assert all(f"{known} of {RECORDS} voters were given twice" in str(end) for end in ends)


@given(st.permutations(range(12)), st.integers(0, PROCESSES - 1), st.sampled_from(["record", "user"]))
@settings(max_examples=25, deadline=None)
def test_copies_in_another_order_are_refused(order, place, by):
    """Rows that change places within a class: some records would be counted twice, and others never."""
    people = ALL._replace(labels=np.zeros(RECORDS, np.int32), users=np.array(["one user"] * RECORDS))
    rows = np.arange(RECORDS)
    rows[::9] = rows[::9][order]
    copies = [people.take(rows) if at == place else people for at in range(PROCESSES)]
    with pytest.MonkeyPatch.context() as patch:
        ends = process_threads.group(patch, PROCESSES).ends(lambda at: tables(copies[at], by, False))
    if (rows == np.arange(RECORDS)).all():
        np.testing.assert_array_equal(ends[0][0], tables(people, by, False)[0])
    else:
        assert {type(end) for end in ends} == {PateError} and "in another order" in str(ends[0])


def test_all_processes_have_their_own_or_none_has(monkeypatch):
    group = process_threads.group(monkeypatch, PROCESSES)
    ends = group.ends(lambda at: tables(ALL, "record", at == 1))
    said = "process 0 was given the same voters as all, and process 1 its own"
    assert {str(end) for end in ends} == {f"{said}: give every process its own, or none"}
