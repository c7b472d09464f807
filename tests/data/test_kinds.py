"""Of what kind the values of a column are: what the public part decides, and what is refused."""

import csv
import io
import json
from decimal import Decimal

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from pate_jax.data import columns, frames, from_files, tables
from pate_jax.data.raw import in_float32
from pate_jax.errors import PateError

ROLES = {"label_column": "sick", "id_column": "id", "equal_rows_are_coincidences": True}


def opened(folder, private, public, **more):
    """The data set of two Parquet files with these values in the column `code`."""
    for name, values in (("private", private), ("public", public)):
        rows = range(len(values))
        held = {"id": [f"p{row}" for row in rows], "code": values, "dose": [row + 0.5 for row in rows]}
        table = pyarrow.table({**held, "sick": [["no", "yes"][row % 2] for row in rows]})
        parquet.write_table(
            table.drop_columns("id") if name == "public" else table, folder / f"{name}.parquet"
        )
    return from_files(folder / "private.parquet", folder / "public.parquet", **ROLES, **more)


def codes(data):
    return data.private.inputs[:, :-1].argmax(1).tolist()


WHOLE = {"categories": {"code": [7, 10]}}
LARGE = 2**53
REFUSED = {
    "numbers where the public part has words": (
        [7, 10],
        ["007", "B7"],
        {},
        "has whole numbers in the column",
    ),
    "words where it has numbers": (
        ["7", "10"],
        [7, 10],
        WHOLE,
        "and the public part whole numbers: read all",
    ),
    "fractions": ([7.5, 10], [7, 10], WHOLE, "has floats that are no exact whole numbers"),
    "large floats": ([float(LARGE), 7.0], [7, 10], WHOLE, "has floats that are no exact whole numbers"),
    "public fractions": ([7, 10], [0.5, 1.5], {"categories": {"code": [0.5]}}, "the public part has floats"),
    "truth values": (
        [True, False],
        ["True", "no"],
        {},
        "has truth values in the column 'code' (True at row 0)",
    ),
    "numbers for truth": (
        [1.0, None],
        [True, False],
        {},
        "has code='1' at row 0, which is not true or false",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_another_kind_than_the_public_one_is_refused(tmp_path, case):
    private, public, declared, said = REFUSED[case]
    with pytest.raises(PateError) as caught:
        opened(tmp_path, private, public, **declared)
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_whole_numbers_are_themselves_beside_a_missing_one(tmp_path):
    for private in ([10, 7, 10], [10.0, 7.0, None], [Decimal("10.00"), Decimal("7"), None]):
        assert codes(opened(tmp_path, private, [7, 10], **WHOLE))[:2] == [1, 0]
    large = [LARGE + 1, LARGE + 2]
    assert codes(opened(tmp_path, large, large, categories={"code": large})) == [0, 1]
    with pytest.raises(PateError, match="floats that are no exact whole numbers"):
        opened(tmp_path, [float(large[0]), None], large, categories={"code": large})


def test_a_column_of_type_category_is_one_even_of_numbers_by_what_public_rows_hold(tmp_path):
    listed = pyarrow.array(["7", "10", "7"]).dictionary_encode()  # Parquet keeps it of words alone
    data = opened(tmp_path, ["10", "7", "32"], listed)
    assert data.columns[0].categories == ("10", "7") and codes(data)[:2] == [0, 1]
    more = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, 0]), pyarrow.array(["a", "b", "secret"]))
    assert opened(tmp_path, ["a", "secret"], more).columns[0].categories == ("a", "b")
    assert (
        opened(tmp_path, listed, ["7", "10", "7"]).columns[0].categories is None
    )  # the private type says nothing
    frame = frames.read(pyarrow.table({"code": pyarrow.array([7, 10]).dictionary_encode()}), "public")
    assert columns.plan(frame, {}, {}) == [columns.Column("code", ("10", "7"), kind="whole numbers")]


def test_categories_of_no_public_value_are_refused(tmp_path):
    """The file says 0.0, which is the whole number 0."""
    with pytest.raises(PateError, match=r"name '0.0', and no public value is one of them .the first is '0'."):
        opened(tmp_path, [0.0, 1.0], [0.0, 1.0], categories={"code": ["0.0", "1.0"]})
    assert codes(opened(tmp_path, [0.0, 1.0], [0.0, 1.0], categories={"code": [0.0, 1.0]})) == [0, 1]


@pytest.mark.parametrize("strangers", [1, 2])
def test_the_owner_is_told_where_most_values_are_unknown_and_nobody_else(tmp_path, capsys, strangers):
    private = ["a", "b", "x", "y"][strangers - 1 :][:3]
    data = opened(tmp_path, private, ["a", "b", "a"])
    said = f"warning: {strangers} of 3 private values of the column 'code' are in no known category and"
    assert (said in capsys.readouterr().err) == (strangers == 2)
    assert str(strangers) not in data.description


def test_kinds_lie_beside_a_stored_table_and_are_checked(tmp_path):
    path = tmp_path / "private.csv"
    path.write_bytes(tables.to_csv({"code": ["7", "10"]}))
    assert tables.read(path).kinds == {}
    file = tables.kinds_file(path)
    file.write_text(json.dumps({"code": {"whole numbers": 1}}))
    assert tables.read(path).kinds == {"code": {"whole numbers": 1}}
    for damaged in ({"code": 1}, {"code": {"words": 2}}, {"code": {"words": "x"}}):
        file.write_text(json.dumps(damaged))
        with pytest.raises(PateError, match=r"does not list the kinds of the values in private\.csv"):
            tables.read(path)


def test_one_fraction_changes_no_bit_of_a_large_whole_number():
    """To float32 at once or by way of float64 are two roundings."""
    large = np.array([LARGE + 2**29 + 1, 7])
    assert np.array_equal(in_float32(large), in_float32(np.array([*large, 0.5]))[:2])
    assert not np.signbit(in_float32(np.array([-0.0]))).any()


def test_classes_that_a_program_could_take_for_one_are_refused(tmp_path):
    for classes in ("1,01", "1.0,1", "TRUE,True"):
        with pytest.raises(PateError, match="are one value in a column of numbers or truth values"):
            opened(tmp_path, ["a", "b"], ["a", "b"], classes=classes)


def test_dates_of_any_unit_are_days():
    days = np.array(["2024-03-25", "2024-03-26"], "datetime64[D]")
    table = tables.of({unit: days.astype(f"datetime64[{unit}]") for unit in ("D", "s", "ns")}, "frame")
    assert {unit: values[1][:10] for unit, values in table.items()} == dict.fromkeys(table, "2024-03-26")
    assert tables.of({"x": days.astype("datetime64[M]")}, "frame")["x"] == ["2024-03-01"] * 2


LAUNDERED = {  # what a program writes that has read a file by the type of each column
    "a missing value": (
        ["1", "2"],
        ["1.0", "2.0", ""],
        "code='1.0' at row 0, which is the known category '1'",
    ),
    "no letter": (["007", "B7"], ["7", "7"], "code='7' at row 0, which is the known category '007' written"),
    "truth": (
        ["true", "x"],
        ["True", "True"],
        "the known category 'true' written otherwise: write all parts",
    ),
}


@pytest.mark.parametrize("case", LAUNDERED)
def test_files_in_which_a_program_wrote_all_categories_otherwise_are_refused(tmp_path, case):
    """One private record decides how it writes all others, and none of them would be of a known category."""
    public, private, said = LAUNDERED[case]
    for name, values in (("public", public), ("private", private)):
        table = {"code": values, "sick": (["no", "yes"] * 2)[: len(values)]}
        (tmp_path / f"{name}.csv").write_bytes(tables.to_csv(table))
    files, roles = (tmp_path / "private.csv", tmp_path / "public.csv"), {"label_column": "sick"}
    more = {"categories": {"code": public}, "equal_rows_are_coincidences": True}
    with pytest.raises(PateError) as caught:
        from_files(*files, **roles, **more)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    both = {"code": list(dict.fromkeys([*public, *filter(None, private)]))}
    assert from_files(*files, **roles, **{**more, "categories": both}).private.inputs[0].sum() == 1


def test_any_text_of_a_frame_is_stored_as_it_is_or_refused():
    for text in ("a\rb", 'a"\r\nb', "a\nb,c", "é"):
        _, content = frames.stored(frames.read({"note": ["x", text], "age": [1, 2]}, "private"))
        rows = list(csv.reader(io.StringIO(content.decode(), newline="")))
        assert rows[1:] == [["x", "1"], [text, "2"]]
    with pytest.raises(PateError, match="a text that UTF-8 cannot write"):
        frames.stored(frames.read({"note": ["\ud800"]}, "private"))
