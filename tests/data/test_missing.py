"""Missing values in tables: what becomes of them follows from the public part and declarations alone."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import models
from pate_jax.data import columns, from_files
from pate_jax.data.columns import Column
from pate_jax.errors import PateError
from pate_jax.runs.release import write
from pate_jax.student import Student, serving
from pate_jax.student.released import predict

SHARED = Path(__file__).parents[2] / "../shared/data/support2"
FORMS = ["", "  ", "NA", "na", "NaN", "nan", "null", "NULL", " Na "]
PUBLIC = "age,pulse,town,sick\n20,60,Oslo,no\n,70,Rome,yes\n60,80,NA,no\n41,90,null,yes\n"
PRIVATE = "id,age,pulse,town,sick\nann,30,61,Rome,yes\nbob,NA,62,,no\ncyd,50,,Lima,yes\n"
COLUMNS = {"label_column": "sick", "id_column": "id"}


def own(folder, private=PRIVATE, public=PUBLIC, **more):
    (folder / "private.csv").write_text(private)
    (folder / "public.csv").write_text(public)
    return from_files(folder / "private.csv", folder / "public.csv", **COLUMNS, **more)


def test_numbers_become_the_public_median_and_words_a_category(tmp_path):
    data = own(tmp_path)
    assert data.columns == (
        Column("age", filling=41.0, indicator=True),
        Column("pulse", filling=75.0),  # complete in the public part, so without an indicator
        Column("town", ("", "Oslo", "Rome"), kind="words"),
    )
    # age, whether it misses, pulse, then no town at all, Oslo, Rome; Lima is none of them
    assert data.private.inputs.tolist() == [
        [30, 0, 61, 0, 0, 1],
        [41, 1, 62, 1, 0, 0],
        [50, 0, 75, 0, 0, 0],
    ]
    assert data.public.inputs[1].tolist() == [41, 1, 70, 0, 0, 1]
    assert data.preprocessing.offset == pytest.approx((40.5, 0, 75, 0, 0, 0))
    assert data.preprocessing.scale[1] == 1


def test_the_owner_is_told_what_was_filled_and_nobody_else(tmp_path):
    data = own(tmp_path)
    assert data.private_notes == {
        "unseen_categories": {"town": 1},
        "missing_values": {
            "age": "1 filled with 41 and marked",
            "pulse": "1 filled with 75",
            "town": "1 in a category of their own",
        },
    }
    assert data.description == "the owner's own data"


@pytest.mark.parametrize(
    "row", ["dan,33,63,Oslo,no", "dan,,63,Oslo,no", "dan,NA,null,NaN,no", "dan,1e30,,x,no", "dan,-4,nan,,no"]
)
def test_one_private_row_more_changes_no_other_row_and_no_plan(tmp_path, row):
    before, after = own(tmp_path), own(tmp_path, private=f"{PRIVATE}{row}\n")
    assert np.array_equal(after.private.inputs[:3], before.private.inputs)
    assert (after.columns, after.preprocessing) == (before.columns, before.preprocessing)
    assert np.array_equal(after.public.inputs, before.public.inputs)
    assert after.description == before.description


@pytest.mark.parametrize("column", ["age", "pulse", "town"])
@pytest.mark.parametrize("form", FORMS)
def test_one_missing_private_value_more_changes_its_own_row_only(tmp_path, column, form):
    lines = [line.split(",") for line in PRIVATE.splitlines()]
    lines[1][lines[0].index(column)] = form
    before, after = own(tmp_path), own(tmp_path, private="".join(",".join(line) + "\n" for line in lines))
    assert np.array_equal(after.private.inputs[1:], before.private.inputs[1:])
    assert not np.array_equal(after.private.inputs[0], before.private.inputs[0])
    assert (after.columns, after.preprocessing) == (before.columns, before.preprocessing)


def test_a_declared_number_takes_the_place_of_the_median(tmp_path):
    data = own(tmp_path, scales={"age": [40, 15, -1], "pulse": [70, 10, 0]})
    age, pulse, _ = data.columns
    assert age == Column("age", scale=(40.0, 15.0), filling=-1.0, indicator=True)
    assert pulse.indicator and data.private.inputs[2, 2:4].tolist() == [0, 1]
    assert data.preprocessing.offset[:4] == (40.0, 0.0, 70.0, 0.0)
    empty = PUBLIC.replace("20,", ",").replace("60,80", ",80").replace("41,", ",")
    filled = own(tmp_path, public=empty, scales={"age": [40, 15, 50]})
    assert filled.public.inputs[:, :2].tolist() == [[50, 1]] * 4


def test_declared_categories_and_missing_words(tmp_path):
    towns = own(tmp_path, categories={"town": ["Rome", "Oslo"]})
    assert towns.columns[2].categories == ("Rome", "Oslo", "")  # the public part misses some
    assert own(tmp_path, categories={"town": ["", "Rome"]}).columns[2].categories == ("", "Rome")
    namibia = own(tmp_path, PRIVATE.replace("Lima", "NA"), categories={"town": ["NA", "Rome"]})
    assert namibia.columns[2].categories == ("NA", "Rome", "")
    assert namibia.private.inputs[:, -3:].tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    whole = own(tmp_path, public=PUBLIC.replace("NA", "Oslo").replace("null", "Oslo"))
    assert whole.columns[2].categories == ("Oslo", "Rome")
    assert whole.private_notes["missing_values"]["town"] == "1 in no category"


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr)
WORDS = st.sampled_from(["Oslo", "Rome", "none", "0x", "n/a"])


@given(st.lists(st.one_of(NUMBERS, st.sampled_from(FORMS)), min_size=1), st.booleans(), NUMBERS)
def test_any_number_is_itself_and_any_missing_one_the_filling(values, marked, filling):
    column = Column("x", filling=float(filling), indicator=marked)
    gone = [value in FORMS for value in values]
    wanted = [[float(filling) if lacks else float(value)] for value, lacks in zip(values, gone, strict=True)]
    wanted = [[*row, float(lacks)] if marked else row for row, lacks in zip(wanted, gone, strict=True)]
    found = columns.encode({"x": values}, [column], "private")
    assert found.dtype == np.float32 and np.array_equal(found, np.array(wanted, np.float32))
    alone = predict._column([value.strip() for value in values], column._asdict(), Path("x.csv"))
    assert np.array_equal(alone, found)


@given(
    st.lists(st.one_of(WORDS, st.sampled_from(FORMS)), min_size=1), st.lists(WORDS, unique=True, min_size=1)
)
def test_missing_words_are_alike_however_they_are_written(values, known):
    for categories in (tuple(known), (*known, "")):
        values = [value.strip() for value in values]
        column = Column("x", categories)
        found = columns.encode({"x": values}, [column], "private")
        for value, row in zip(values, found, strict=True):
            named = "" if value in {form.strip() for form in FORMS} else value
            assert row.tolist() == [float(category == named) for category in categories]
        assert np.array_equal(predict._column(values, column._asdict(), Path("x.csv")), found)


@given(
    st.lists(st.one_of(NUMBERS, st.sampled_from(FORMS)), min_size=1),
    st.lists(st.one_of(NUMBERS, st.sampled_from(FORMS)), min_size=1),
)
def test_a_plan_reads_public_values_only_and_fits_any_private_ones(public, private):
    there = [float(value) for value in public if value not in FORMS]
    if not there:
        with pytest.raises(PateError, match="no value in the column 'x'"):
            columns.plan({"x": public}, {}, {})
        return
    (column,) = columns.plan({"x": public}, {}, {})
    assert column.indicator == (len(there) < len(public))
    assert column.filling == np.float32(np.median(np.array(there)))
    assert columns.encode({"x": private}, [column], "private").shape == (len(private), column.width)


def student_of(data):
    model = models.build("table", input_shape=data.input_shape, classes=2)
    parameters = model.init(jax.random.key(1))
    return Student(
        parameters, model.description, data.preprocessing, data.class_names, 1.0, "float32", data.columns
    )


def test_a_student_is_served_rows_with_missing_values_as_it_was_trained(tmp_path, capsys):
    data = own(tmp_path)
    student_of(data).save(tmp_path / "student")
    again, alone = Student.load(tmp_path / "student"), predict.load(tmp_path / "student")
    assert again.columns == data.columns
    inputs, _ = serving.read_inputs(again, tmp_path / "private.csv")
    assert np.array_equal(inputs, data.private.inputs)
    assert np.array_equal(predict.read(tmp_path / "private.csv", alone), data.private.inputs)
    np.testing.assert_allclose(alone(inputs), again(inputs), atol=1e-5)
    assert "age (1 filled with 41 and marked)" in capsys.readouterr().err
    assert "values may be missing" in write.takes(again)


def test_a_student_of_before_takes_no_missing_values(tmp_path):
    """Older students know neither fillings nor indicators: they load, and refuse what they never saw."""
    complete = PUBLIC.replace("\n,", "\n30,")
    data = own(tmp_path, public=complete)
    student_of(data).save(tmp_path / "student")
    path = tmp_path / "student" / "student.json"
    body = json.loads(path.read_text())
    for column in body["columns"]:
        del column["filling"], column["indicator"]
    path.write_text(json.dumps(body))
    again, alone = Student.load(tmp_path / "student"), predict.load(tmp_path / "student")
    (tmp_path / "rows.csv").write_text("age,pulse,town\n30,61,Rome\n")
    inputs, _ = serving.read_inputs(again, tmp_path / "rows.csv")
    np.testing.assert_allclose(alone(predict.read(tmp_path / "rows.csv", alone)), again(inputs), atol=1e-5)
    (tmp_path / "rows.csv").write_text("age,pulse,town\n,61,Rome\n")
    with pytest.raises(PateError, match="age='' at row 0"):
        serving.read_inputs(again, tmp_path / "rows.csv")
    with pytest.raises(predict.InputError, match="age='' at row 0"):
        predict.read(tmp_path / "rows.csv", alone)


def test_a_hospitals_table_opens():
    """SUPPORT2: 19 of its columns miss values."""
    if not SHARED.exists():
        pytest.skip(f"{SHARED} is not there")
    data = from_files(
        *(SHARED / f"{part}.csv" for part in ("private", "public", "test")),
        label_column="died",
        id_column="patient",
    )
    assert data.class_names == ("no", "yes")
    assert np.isfinite(data.preprocessing.apply(data.private.inputs)).all()
    marked = [column for column in data.columns if column.indicator]
    assert len(marked) >= 10 and all(column.filling is not None for column in marked)
    assert data.private_notes["missing_values"]["urine"].endswith("and marked")
