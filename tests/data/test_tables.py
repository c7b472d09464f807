"""Tables from CSV, Parquet and Python values are the same texts."""

import sys
from datetime import date, datetime, time
from decimal import Decimal
from types import SimpleNamespace

import numpy as np
import openpyxl
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from pate_jax.data import from_files, tables
from pate_jax.errors import PateError
from pate_jax.student import Student, serving
from pate_jax.student.released import predict

VALUES = {
    "age": [30, None, 50],
    "weight": [70.5, 80.0, float("nan")],
    "town": ["Oslo", "Rome, Lazio", None],
    "seen": [date(2024, 3, 25), date(2023, 1, 1), None],
    "smokes": [True, None, False],
    "sick": ["yes", "no", "yes"],
}
TEXTS = {
    "age": ["30", "", "50"],
    "weight": ["70.5", "80", ""],
    "town": ["Oslo", "Rome, Lazio", ""],
    "seen": ["2024-03-25", "2023-01-01", ""],
    "smokes": ["True", "", "False"],
    "sick": ["yes", "no", "yes"],
}


def store(path, columns):
    parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_and_csv_are_the_same_table(tmp_path):
    (tmp_path / "a.csv").write_bytes(tables.to_csv(TEXTS))
    assert tables.read(store(tmp_path / "a.parquet", VALUES)) == tables.read(tmp_path / "a.csv") == TEXTS


def workbook(path, rows, second=()):
    """An Excel workbook with these rows, and with others on a second sheet."""
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(list(row))
    for row in second:
        (book["more"] if "more" in book.sheetnames else book.create_sheet("more")).append(list(row))
    book.save(path)
    return path


def test_a_long_text_in_a_cell_is_read_whole(tmp_path):
    """Python's own limit is 131,072 letters."""
    (tmp_path / "a.csv").write_text("id,note\nr1," + "word " * 40_000 + "\n")
    assert len(tables.read(tmp_path / "a.csv")["note"][0]) > 199_000


def test_a_workbook_is_the_same_table(tmp_path):
    dates = [value and datetime.combine(value, time()) for value in VALUES["seen"]]
    columns = {**VALUES, "seen": dates}
    rows = [list(columns), *zip(*columns.values(), strict=True), [None] * len(columns)]
    found = tables.read(workbook(tmp_path / "a.xlsx", rows))
    assert {**found, "seen": [value[:10] for value in found["seen"]]} == TEXTS
    assert (
        found.kinds == tables.of({**columns, "weight": [70.5, 80, None]}, "frame").kinds
    )  # 80.0 is 80 there


@pytest.mark.parametrize(
    "rows, second, said",
    [
        ([["a", "b"], [1, 2]], [["c"], [3]], "2 sheets with values"),
        ([], [], "0 sheets with values"),
        ([["a", "b"], [1, 2, 3]], [], "beside the 2 columns"),
        ([["a", "b"], [1, "=A2+1"]], [], "a formula without its value"),
        ([["a", "a"], [1, 2]], [], "names each column once"),
        ([["a", "b"]], [], "holds no records"),
    ],
)
def test_a_workbook_that_says_two_things_is_refused(tmp_path, rows, second, said):
    with pytest.raises(PateError, match=said):
        tables.read(workbook(tmp_path / "a.xlsx", rows, second))


def test_a_damaged_workbook_is_refused(tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_bytes(b"PK no workbook")
    with pytest.raises(PateError, match="not a readable Excel workbook"):
        tables.read(tmp_path / "a.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(PateError, match="pip install openpyxl"):
        tables.read(tmp_path / "a.xlsx")


def test_a_data_set_of_parquet_is_that_of_csv(tmp_path):
    for name, shift in (("private", 0), ("public", 1)):
        ids = [f"{name} {place}" for place in "abc"]
        columns = {**VALUES, "age": [shift + (value or 0) for value in VALUES["age"]], "id": ids}
        store(tmp_path / f"{name}.parquet", columns)
        (tmp_path / f"{name}.csv").write_bytes(tables.to_csv(tables.of(columns, name)))
    sets = [
        from_files(
            tmp_path / f"private.{mine}", tmp_path / f"public.{other}", label_column="sick", id_column="id"
        )
        for mine, other in (("csv", "csv"), ("parquet", "parquet"), ("parquet", "csv"))
    ]
    for other in sets[1:]:
        assert np.array_equal(other.private.inputs, sets[0].private.inputs)
        assert (other.columns, other.class_names) == (sets[0].columns, ("no", "yes"))


def test_a_student_is_asked_about_a_parquet_file(tmp_path):
    for name, columns in (("own", {**VALUES, "id": list("abc")}), ("pool", VALUES)):
        store(
            tmp_path / f"{name}.parquet",
            {**columns, "age": [31 + len(name), 40 + len(name), None], "weight": [1, 2, len(name)]},
        )
    files = tmp_path / "own.parquet", tmp_path / "pool.parquet"
    data = from_files(*files, label_column="sick", id_column="id")
    described = {"input_shape": data.input_shape}
    student = Student(None, described, data.preprocessing, data.class_names, 1.0, "float32", data.columns)
    assert np.array_equal(serving.read_inputs(student, files[0])[0], data.private.inputs)


SCALARS = st.one_of(
    st.integers(-(2**60), 2**60), st.floats(width=64), st.booleans(), st.none(), st.dates(), st.datetimes(),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])),
)  # fmt: skip


@given(st.lists(SCALARS, min_size=1))
def test_what_is_written_is_read_back(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "written.csv"
    table = tables.of({"x": values, "y": range(len(values))}, "frame")
    path.write_bytes(tables.to_csv(table))
    assert tables.read(path) == table
    for value, text in zip(values, table["x"], strict=True):
        if isinstance(value, float) and value == value:
            assert float(text) == value
        elif isinstance(value, int):
            assert text == str(value)


def test_numbers_are_written_as_people_write_them():
    column = [
        30.0,
        np.float32(0.5),
        np.int64(7),
        Decimal("1.5"),
        np.datetime64("NaT"),
        float("inf"),
        np.bool_(True),
    ]
    assert tables.of({"x": column}, "frame")["x"] == ["30", "0.5", "7", "1.5", "", "inf", "True"]
    assert tables.of({"x": [datetime(2024, 3, 25, 10, 15)]}, "frame")["x"] == ["2024-03-25T10:15:00"]


BAD = {
    "lists": ({"x": [[1, 2], [3]]}, "has a list in the column 'x' at row 0; give numbers, words"),
    "bytes": ({"x": [b"a"]}, "has a bytes in the column 'x'"),
    "lengths": ({"x": [1, 2], "y": [1]}, "has 1 values in the column 'y' and 2 in 'x'"),
    "names": ({"x": [1], " x": [1]}, "names each column once"),
    "no columns": ({}, "names each column once"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_columns_are_one_sentence(case):
    columns, said = BAD[case]
    with pytest.raises(PateError) as caught:
        tables.of(columns, "frame")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_bad_parquet_files_are_one_sentence(tmp_path):
    path = store(tmp_path / "a.parquet", VALUES)
    (tmp_path / "cut.parquet").write_bytes(path.read_bytes()[:-30])
    with pytest.raises(PateError, match=r"cut\.parquet is not a readable Parquet file"):
        tables.read(tmp_path / "cut.parquet")
    with pytest.raises(PateError, match="has a list in the column 'v' at row 0"):
        tables.read(store(tmp_path / "lists.parquet", {"v": [[1.0, 2.0]]}))
    with pytest.raises(PateError, match="holds no records"):
        tables.read(store(tmp_path / "none.parquet", {"v": pyarrow.array([], pyarrow.int64())}))
    with pytest.raises(PateError, match="does not exist"):
        tables.read(tmp_path / "gone.parquet")


SAME = {
    "commas": "id,dose,town\na,3.5,Oslo\nb,-0.25,\"Rome, Lazio\"\n",
    "semicolons": "id;dose;town\na;3,5;Oslo\nb;-0,25;Rome, Lazio\n",
    "semicolons and quotes": '"id";"dose";"town"\n"a";"3,5";"Oslo"\n"b";-0,25;"Rome, Lazio"\n',
    "semicolons and points": "id; dose;town\na; 3.5;Oslo\nb;-0.25;Rome, Lazio\n",
    "tabs": "id\tdose\ttown\na\t3.5\tOslo\nb\t-0.25\tRome, Lazio\n",
}  # fmt: skip


@pytest.mark.parametrize("separated", SAME)
def test_files_of_other_countries_are_the_same_table(separated, tmp_path):
    (tmp_path / "a.csv").write_text(SAME[separated])
    wanted = {"id": ["a", "b"], "dose": ["3.5", "-0.25"], "town": ["Oslo", "Rome, Lazio"]}
    assert tables.read(tmp_path / "a.csv") == wanted
    columns = ({"name": "dose", "categories": None}, {"name": "town", "categories": ["Rome, Lazio"]})
    alone = SimpleNamespace(columns=columns)
    inputs, called = predict.read_named(tmp_path / "a.csv", alone)
    assert inputs.tolist() == [[3.5, 0], [-0.25, 1]] and called == ["a", "b"]


def test_one_record_decides_nothing_about_how_others_are_separated(tmp_path):
    for row in ("b;1,5;x", "b;2;y"):  # whatever it holds, the line of names alone says what separates
        (tmp_path / "a.csv").write_text(f"id;dose;town\na;3,5;Oslo\n{row}\n")
        assert [values[0] for values in tables.read(tmp_path / "a.csv").values()] == ["a", "3.5", "Oslo"]
    (tmp_path / "a.csv").write_text("id,dose\na,3\nb;1,5\n")
    assert tables.read(tmp_path / "a.csv")["id"] == ["a", "b;1"]


def test_a_mistyped_column_is_recognised(tmp_path):
    (tmp_path / "a.csv").write_text("age,died\n3,no\n")
    with pytest.raises(PateError, match="no column 'Dieed'; did you mean 'died'"):
        from_files(tmp_path / "a.csv", tmp_path / "a.csv", label_column="Dieed")
