"""The same people are found again in another order, format or company, and other people are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import data
from pate_jax.data import frames
from pate_jax.runs import people

KEY = bytes(range(32))


def small(rows, seed):
    """Columns of few values: what any two tables of people have in common."""
    random = np.random.default_rng(seed)
    return np.stack(
        [random.integers(18, 90, rows), random.integers(0, 2, rows), random.integers(0, 9, rows)], 1
    )


def measured(rows, seed, columns=3):
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)


def made(inputs, **names):
    return people.made(np.asarray(inputs), key=KEY, **names)


def people_table(rows, seed):
    return np.concatenate([small(rows, seed).astype(np.float32), measured(rows, seed + 1)], 1)


@given(st.integers(20, 300), st.integers(0, 99), st.data())
def test_the_same_people_in_any_form(rows, seed, drawn):
    table = people_table(rows, seed)
    mine, columns = made(table), drawn.draw(st.permutations(range(6)))
    random = np.random.default_rng(seed)
    one_more = np.concatenate([table[random.permutation(rows)], people_table(1, seed + 7)])
    assert people.same(mine, made(one_more[:, columns].astype(np.float64)))
    left_out = drawn.draw(st.sampled_from([3, 4, 5]))
    kept = [column for column in columns if column != left_out]
    assert people.same(mine, made(one_more[:, kept]))
    assert people.same(mine, made(np.concatenate([one_more, measured(rows + 1, seed + 3)], 1)))


@given(st.integers(2, 400), st.integers(2, 400), st.integers(0, 99))
def test_unrelated_tables_with_the_same_columns_do_not_match(one, other, seed):
    """Ages, sexes, small numbers, row numbers, measurements: nobody is in both."""
    mine, theirs = people_table(one, 4 * seed), people_table(other, 4 * seed + 1000)
    numbered = (np.concatenate([each, np.arange(len(each))[:, None]], 1) for each in (mine, theirs))
    assert not people.same(*map(made, numbered))
    if min(one, other) >= 50:  # fewer rows of few kinds may well be equal
        assert not people.same(made(mine[:, :3]), made(theirs[:, :3]))


@pytest.mark.parametrize("rows", [50, 1000, 20_000])
def test_a_table_of_few_kinds_is_known_as_a_whole(rows):
    one = small(rows, 1)
    assert people.same(made(one), made(np.concatenate([one[::-1], small(1, 5)])))
    assert not people.same(made(one), made(small(rows, 2)))


def test_dates_that_everybody_shares_are_no_sign_of_the_same_people():
    born = [np.random.default_rng(seed).integers(0, 30_000, (6000, 1)) for seed in (1, 2)]
    assert not people.same(*map(made, born))


@pytest.mark.parametrize("name", ["ids", "users"])
def test_one_shared_name_is_one_shared_person(name):
    names = [np.array([f"{part}-{row}" for row in range(60)]) for part in "ab"]
    one, other = (made(small(60, seed), **{name: each}) for seed, each in enumerate(names))
    assert not people.same(one, other)
    names[1][7] = names[0][3]
    assert people.same(one, made(small(60, 1), **{name: names[1]}))


def test_who_is_an_id_here_may_be_a_user_of_many_rows_there():
    names, visits = np.array([f"P-{row}" for row in range(60)]), np.repeat(np.arange(60), 4)
    one, other = made(small(60, 1), ids=names), made(small(240, 2)[:, :2], users=names[visits])
    assert people.same(one, other) and people.same(other, one)
    assert not people.same(one, made(small(240, 2)[:, :2], users=np.char.add("Q", names)[visits]))


@pytest.mark.parametrize("spelled", ["p-{}", " P-{} ", "P-{}"])
def test_a_name_in_another_spelling_is_the_same_one(spelled):
    one = made(small(60, 1), ids=np.array([f"P-{row}" for row in range(100, 160)]))
    other = made(small(9, 2), users=np.array([spelled.format(row % 3 + 100) for row in range(9)]))
    assert people.same(one, other)


@pytest.mark.parametrize("spelled", ["{}", "{:06d}", "{}.0"])
def test_a_number_as_a_name_is_the_same_in_any_spelling(spelled):
    one = made(small(60, 1), ids=np.array([f"{row:04d}" for row in range(60)]))
    other = made(small(9, 2), users=np.array([spelled.format(row % 3) for row in range(9)]))
    assert people.same(one, other)


def test_ids_are_known_again_as_a_column():
    ids = np.random.default_rng(1).choice(10**6, 60, replace=False)
    named = made(small(60, 1), ids=ids.astype(str))
    assert people.same(named, made(np.concatenate([small(60, 2), ids[:, None]], 1)))


def test_pixels_of_any_type_and_shape_are_the_same_images():
    pixels = np.random.default_rng(1).integers(0, 256, (40, 12, 12, 1)).astype(np.uint8)
    flat = pixels[::-1].reshape(40, -1).astype(np.float64)
    assert people.same(made(pixels), made(flat))
    assert not people.same(made(pixels), made(255 - pixels))


def test_a_part_of_a_large_table_is_found_in_samples():
    table = measured(60_000, 1, 2)
    assert len(made(table)["contents"].digests) == people.KEPT
    assert people.same(made(table), made(np.concatenate([table[:600], measured(59_400, 2, 2)])))
    assert not people.same(made(table), made(measured(60_000, 2, 2)))


def test_a_digest_follows_from_its_record_and_the_key_alone():
    table = people_table(50, 1)
    alone = [made(table[row : row + 1])["contents"].digests[0] for row in range(50)]
    assert sorted(alone) == made(table)["contents"].digests.tolist()
    other = people.made(table, key=bytes(32))["contents"].digests
    assert not set(alone) & set(other.tolist())


def test_they_are_read_as_they_were_written():
    mine = made(small(300, 1), ids=np.array([f"p{row}" for row in range(300)]))
    again = people.from_dict(people.to_dict(mine))
    assert people.to_dict(again) == people.to_dict(mine) and people.same(mine, again)


def test_a_table_of_text_and_arrays_are_the_same_people(tmp_path):
    """By the doors: a table with categories, and the same with another public part and a column less."""
    table, pool = people_table(60, 1), people_table(30, 2)
    words = np.array(["north", "south"])

    def file(name, rows, columns):
        found = {f"c{number}": rows[:, number] for number in columns}
        found["town"] = words[rows[:, 1].astype(int)]
        found["sick"] = np.where(np.arange(len(rows)) % 2, "yes", "no")
        suffix, content = frames.stored(frames.read(found, name))
        path = tmp_path / f"{name}{len(columns)}{suffix}"
        path.write_bytes(content)
        return path

    read = [
        data.from_files(
            file("private", table, columns), file("public", pool[start:], columns), None, label_column="sick"
        )
        for columns, start in (((0, 3, 4), 0), ((4, 3, 0), 10), ((3, 0), 3))
    ]
    first, *others = (people.of(one, KEY) for one in read)
    assert all(people.same(first, other) for other in others)
    assert people.same(first, made(table[:, [0, 3, 4]]))
