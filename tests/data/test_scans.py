"""Private tables in several files: records are read as in one file, and whatever does not fit is refused."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import scanned_files as files
from pyarrow import parquet

from pate_jax.data import from_files, overlap, relation, survey, table_files
from pate_jax.errors import PateError, SharedInputs
from pate_jax.runs import budget, queries

COLUMNS = {"label_column": "sick", "id_column": "pid"}
PRIVATE, PUBLIC = files.drawn(200, 1), files.drawn(60, 2, first=500)


@pytest.fixture(name="public")
def _public(tmp_path):
    return files.write(tmp_path / "pool" / "public.parquet", {name: PUBLIC[name] for name in files.NAMES})


def read(private, public, **more):
    return from_files(private, public, **{**COLUMNS, **more})


def all_of(dataset):
    batches = [batch for path in dataset.scan.scan.files for batch in dataset.scan.scan.batches(path)]
    return [
        np.concatenate([getattr(batch, name) for batch in batches]) for name in ("inputs", "labels", "ids")
    ]


def test_records_are_read_as_in_one_file(tmp_path, public, monkeypatch):
    monkeypatch.setattr(table_files, "ROWS", 40)
    for suffix in (".parquet", ".csv"):
        one = read(files.write(tmp_path / f"one{suffix}", PRIVATE), public)
        many = read(files.cut(tmp_path / f"many{suffix[1:]}", PRIVATE, "abc", suffix), public)
        found = all_of(many)
        for mine, own in zip(found, (one.private.inputs, one.private.labels, one.private.ids), strict=True):
            assert mine.dtype == own.dtype and np.array_equal(mine, own)
        assert dict(many.private_notes) == dict(one.private_notes) != {}
        assert many.private.inputs.shape == one.private.inputs.shape
        assert (many.columns, many.preprocessing, many.ids_are) == (
            one.columns,
            one.preprocessing,
            one.ids_are,
        )


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int32", [3, None, 7, 3]),
        ("uint64", [2**63 + 2**40 + 1, 2**53 + 1, 0, 7]),
        ("int64", [-(2**60) - 1, 5, None, 0]),
        ("float", [1.5, -0.0, None, 3e38]),
        ("double", [float("nan"), 1e-60, -1e-60, 0.1]),
        ("string", ["7", " 08 ", "NA", "1e3"]),
        ("date32", [0, 1, None, 20_000]),
        ("bool", [True, False, None, True]),
    ],
)
def test_every_type_becomes_the_number_of_its_text(tmp_path, kind, values):
    kinds = {"float": pa.float32(), "double": pa.float64(), "date32": pa.date32(), "bool": pa.bool_()}
    made = pa.array(values, kinds.get(kind) or getattr(pa, kind)())
    columns = {"x": made, "sick": ["yes", "no", "yes", "no"], "pid": ["a", "b", "c", "d"]}
    public = files.write(
        tmp_path / "pool" / "public.parquet",
        {"x": pa.concat_arrays([made[:1], made[3:]]), "sick": ["yes", "no"]},
    )
    one = read(files.write(tmp_path / "one.parquet", columns), public, equal_rows_are_coincidences=True)
    half = {name: column[:2] for name, column in columns.items()}
    rest = {name: column[2:] for name, column in columns.items()}
    files.write(tmp_path / "many" / "a.parquet", half)
    files.write(tmp_path / "many" / "b.parquet", rest)
    many = read(tmp_path / "many", public, equal_rows_are_coincidences=True)
    found = all_of(many)[0]
    assert found.tobytes() == one.private.inputs.tobytes()


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_users_are_read_as_in_one_file(tmp_path, public, suffix):
    for name in ("U{}", None, "00{}"):
        private = files.of_users(PRIVATE, 60, name)
        one = read(files.write(tmp_path / f"one-{name}{suffix}", private), public, user_column="who")
        many = read(files.cut(tmp_path / f"many-{name}", private, "abc", suffix), public, user_column="who")
        scan = many.scan.scan
        each = [batch.users.each for path in scan.files for batch in scan.batches(path)]
        assert np.concatenate(each).tolist() == one.private.users.tolist()
        assert many.scan.people.number == len(np.unique(one.private.users)) == budget.people(many, "user")
        assert relation.of(many, "user") == relation.of(one, "user") == "user"


@pytest.mark.parametrize(("first", "name"), [(0, "{}"), (1, "ward-{:04d}"), (1, "200{}"), (2, "{}")])
def test_users_that_count_up_are_row_numbers_as_in_one_file(tmp_path, public, first, name):
    private = {
        **PRIVATE,
        "who": [name.format(first + max(0, row // 2 - 5 * (row % 7 == 6))) for row in range(200)],
    }
    one = read(files.write(tmp_path / "one.parquet", private), public, user_column="who")
    many = read(files.cut(tmp_path / "many", private, "abc"), public, user_column="who")
    assert relation.renumbers(many, "user") == relation.renumbers(one, "user") == (first < 2)
    if first < 2:
        with pytest.raises(PateError, match="--by user needs users that belong"):
            relation.of(many, "user")


def test_users_of_both_parts_and_users_without_a_name_are_refused(tmp_path):
    private, pool = files.of_users(PRIVATE, 60), files.of_users(files.drawn(60, 2, first=500), 9, "V{}")
    pool["who"][7] = " u0044"
    public = files.write(
        tmp_path / "pool" / "p.parquet", {name: pool[name] for name in (*files.NAMES, "who")}
    )
    one, said = files.write(tmp_path / "one.parquet", private), []
    for where in (one, files.cut(tmp_path / "many", private, "abc")):
        with pytest.raises(SharedInputs, match="1 of 60 records have the users of private records") as found:
            read(where, public, user_column="who")
        said.append(str(found.value))
    assert said[0] == said[1]
    private["who"][150] = None
    refused(
        r"b\.parquet .* has no user in 1 records",
        files.cut(tmp_path / "b", private, "abc"),
        public,
        user_column="who",
    )


def test_whole_numbers_are_ids_as_in_one_file(tmp_path, public):
    numbered = {**PRIVATE, "pid": list(range(200))}
    one = read(files.write(tmp_path / "one.parquet", numbered), public)
    many = read(files.cut(tmp_path / "many", numbered, "abc"), public)
    assert relation.are_rows(one) and relation.are_rows(many)
    assert all_of(many)[2].tolist() == one.private.ids.tolist()
    others = read(files.cut(tmp_path / "others", numbered, "cab"), public)  # whose order is another one
    assert not relation.are_rows(others)
    texts = {**PRIVATE, "pid": [f"row-{row}" for row in range(1, 201)]}
    assert relation.are_rows(read(files.cut(tmp_path / "texts", texts, "abc"), public))


@pytest.mark.parametrize(
    ("first", "last", "named"), [("P7", "P7", "P7"), ("0070", "70", "70"), (70, 70, "70")]
)
def test_an_id_of_two_files_is_refused_however_it_is_written(tmp_path, public, first, last, named):
    others = [row + 1000 if isinstance(first, int) else f"Q{row}" for row in range(198)]
    folder = files.cut(tmp_path / "many", {**PRIVATE, "pid": [first, *others, last]}, "abc")
    with pytest.raises(PateError, match=rf"a\.parquet and .*c\.parquet have the id '{named}' twice"):
        read(folder, public)


def test_equal_hashes_of_different_ids_are_no_id_twice(tmp_path, public, monkeypatch):
    real = survey._hashed_texts
    monkeypatch.setattr(survey, "_hashed_texts", lambda names: real(names) % np.uint64(3))
    read(files.cut(tmp_path / "many", PRIVATE, "abc"), public)


def test_public_rows_that_are_private_are_refused_with_the_same_words(tmp_path):
    pool = files.rows(files.drawn(60, 2, first=500))
    for place, row in ((3, 160), (9, 2)):
        for name in files.NAMES:
            pool[name][place] = PRIVATE[name][row]
    said = []
    public = files.write(tmp_path / "pool" / "p.parquet", {name: pool[name] for name in files.NAMES})
    for private in (
        files.write(tmp_path / "one.parquet", PRIVATE),
        files.cut(tmp_path / "many", PRIVATE, "abc"),
    ):
        with pytest.raises(SharedInputs, match=r"2 of 60 inputs are private ones too \(rows 3, 9") as found:
            read(private, public)
        said.append(str(found.value))
    assert said[0] == said[1]


def test_further_public_inputs_are_compared_with_all_files(tmp_path, public):
    said = []
    for private in (
        files.write(tmp_path / "one.parquet", PRIVATE),
        files.cut(tmp_path / "many", PRIVATE, "abc"),
    ):
        dataset = read(private, public)
        rows = dataset.public.inputs[:5].copy()
        further = tmp_path / "further.npz"
        np.savez(further, inputs=rows + 1)
        assert len(queries.further(dataset, further).public.ids) == 5
        rows[2] = read(tmp_path / "one.parquet", public).private.inputs[160]
        np.savez(further, inputs=rows)
        with pytest.raises(SharedInputs, match=r"1 of 5 inputs are private ones too \(rows 2") as found:
            queries.further(dataset, further)
        np.savez(further, inputs=rows + 1, ids=np.array(["a", "b", "c", "p1049", "d"]))
        with pytest.raises(SharedInputs, match="1 of 5 records have the ids of private records"):
            queries.further(dataset, further)
        said.append(str(found.value))
    assert said[0] == said[1]


@pytest.mark.parametrize("numbers", [0, 3, 10**16])
def test_people_of_both_parts_are_refused_with_the_same_words(tmp_path, numbers):
    own = {**PRIVATE, "pid": [numbers * (row + 700) for row in range(200)]} if numbers else PRIVATE
    pool = {**files.drawn(60, 2, first=500)}
    pool["pid"] = [*pool["pid"][:58], f"00{numbers * 720}" if numbers else " p1049", "unknown"]
    public, said = files.write(tmp_path / "pool" / "p.csv", pool), []
    for private in (files.write(tmp_path / "one.parquet", own), files.cut(tmp_path / "many", own, "abc")):
        with pytest.raises(
            SharedInputs, match="1 of 60 records have the ids of private records too"
        ) as found:
            read(private, public)
        said.append(str(found.value))
    assert said[0] == said[1]
    coinciding = read(tmp_path / "many", public, equal_ids_are_coincidences=True)
    assert overlap.people(coinciding, coinciding.public)["ids"].tolist() == [58]


def refused(words, private, public, **more):
    with pytest.raises(PateError, match=words):
        read(private, public, **more)


def test_files_that_do_not_go_together_are_refused(tmp_path, public):
    folder = files.cut(tmp_path / "many", PRIVATE, "abc")
    other = {name: values for name, values in files.rows(PRIVATE, 0, 7).items() if name != "dose"}
    files.write(folder / "b2.parquet", other)
    refused("a.parquet has the column 'dose', and .*b2.parquet lacks it", folder, public)
    files.write(folder / "b2.parquet", {**other, "dose": ["1"] * 7})
    refused("the column 'dose' is double in .*a.parquet and string in .*b2.parquet", folder, public)
    (folder / "b2.parquet").unlink()
    files.write(folder / "d.csv", PRIVATE)
    refused("several formats, .csv and .parquet", folder, public)
    (folder / "d.csv").unlink()
    (folder / "d.parquet").symlink_to(folder / "a.parquet")
    refused("a.parquet and .*d.parquet are one file", folder, public)
    (folder / "d.parquet").unlink()
    (folder / "d.parquet").write_text("nothing")
    refused("d.parquet is not a readable Parquet file", folder, public)
    (folder / "d.parquet").unlink()
    refused("matches no file", tmp_path / "none" / "*.parquet", public)
    refused("has no column 'pidd'; did you mean 'pid'", folder, public, id_column="pidd")
    refused("stands for several files of one table, which only the private part", folder, folder)
    refused("stands for several files of one table, which only the private part", folder, public, test=folder)
    refused("has no column 'who'", folder, public, user_column="who")


def test_an_empty_file_is_refused(tmp_path, public):
    folder = files.cut(tmp_path / "csv", PRIVATE, "abc", ".csv")
    (folder / "b2.csv").write_text(",".join(PRIVATE) + "\n")
    refused(r"b2\.csv holds no records", folder, public)
    folder = files.cut(tmp_path / "parquet", PRIVATE, "abc")
    parquet.write_table(parquet.read_table(folder / "a.parquet").slice(0, 0), folder / "b2.parquet")
    refused(r"b2\.parquet holds no records", folder, public)


def test_columns_and_values_that_the_public_part_does_not_know_are_refused(tmp_path, public):
    more = {**PRIVATE, "more": ["x"] * 200}
    refused(
        "has the column 'more', which the public part lacks", files.cut(tmp_path / "a", more, "abc"), public
    )
    wrong = {**PRIVATE, "dose": [*PRIVATE["dose"][:199], float("inf")]}
    refused(
        r"c.parquet \(rows counted from 0\) has dose='inf' at row 42",
        files.cut(tmp_path / "b", wrong, "abc"),
        public,
    )
    wrong = {**PRIVATE, "sick": [*PRIVATE["sick"][:199], "maybe"]}
    refused("label 'maybe' at row 42", files.cut(tmp_path / "c", wrong, "abc"), public)
    wrong = {**PRIVATE, "pid": [*PRIVATE["pid"][:199], None]}
    refused("no id in 1 records", files.cut(tmp_path / "d", wrong, "abc"), public)
    refused(
        "--ids-are-stable speaks of ids",
        files.cut(tmp_path / "e", {name: PRIVATE[name] for name in files.NAMES}, "abc"),
        public,
        id_column=None,
        ids_are_stable=True,
    )
    two = files.cut(tmp_path / "f", {**PRIVATE, "second": ["x"] * 200}, "abc")  # as of another label
    assert len(read(two, public, leave_out="second").columns) == 5


def test_a_file_that_is_changed_is_refused_wherever_it_is_read_again(tmp_path, public):
    dataset = read(files.cut(tmp_path / "many", PRIVATE, "abc"), public)
    path = dataset.scan.scan.files[1]
    changed = files.rows(PRIVATE, 7, 157)
    changed["dose"] = [changed["dose"][0] + 1, *changed["dose"][1:]]
    files.write(path, changed)
    with pytest.raises(PateError, match=r"b\.parquet was changed"):
        list(dataset.scan.scan.batches(path))


def test_names_of_columns_are_read_without_outer_blanks(tmp_path, public):
    folder = files.cut(tmp_path / "many", {f" {name}": values for name, values in PRIVATE.items()}, "abc")
    assert np.array_equal(all_of(read(folder, public))[2], PRIVATE["pid"])


def test_a_batch_is_in_memory_at_a_time(tmp_path, monkeypatch):
    """Of 20,000 records of 40 numbers, which are 3.2 MB, less is held; 160 kB are hashes of ids."""
    monkeypatch.setattr(table_files, "ROWS", 1000)
    random = np.random.default_rng(0)
    numbers = {f"x{place}": random.normal(size=20_000).astype(np.float32) for place in range(40)}
    labels = np.array(["no", "yes"])[random.integers(0, 2, 20_000)]
    table = pa.table({**numbers, "sick": labels, "pid": random.permutation(20_000) + 5})
    (tmp_path / "many").mkdir()
    parquet.write_table(table, tmp_path / "many" / "a.parquet", row_group_size=1000)
    public = tmp_path / "public.parquet"
    parquet.write_table(table.drop_columns(["pid"]).slice(0, 100), public)
    tracemalloc.start()
    dataset = read(tmp_path / "many", public, equal_rows_are_coincidences=True)
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    assert sum(len(batch.inputs) for batch in dataset.scan.scan.batches(dataset.scan.scan.files[0])) == 20_000
    dataset.scan.scan.check()
    again = survey.of(dataset.scan.scan, {"public": dataset.public}, False)
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert again.survey.records == 20_000 and peak < 1.6e6


def test_what_needs_all_records_is_refused_with_a_remedy(tmp_path, public):
    dataset = read(files.cut(tmp_path / "many", PRIVATE, "abc"), public)
    for use in (
        np.asarray,
        lambda column: column[3],
        lambda column: column.tolist(),
        lambda column: column + 1,
    ):
        with pytest.raises(PateError, match=r"many is read a batch at a time.*give one file"):
            use(dataset.private.inputs)
    with pytest.raises(PateError, match="read a batch at a time"):
        dataset.private.take([0])
