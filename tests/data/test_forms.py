"""Columns of words, dates, true and false: what they become follows from public values alone."""

import re
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.data import columns, forms, from_files
from pate_jax.errors import PateError
from pate_jax.student.released import predict

DAY = date(2024, 3, 25)
WRITTEN = {
    "%Y-%m-%d": "2024-03-25",
    "%Y/%m/%d": "2024/03/25",
    "%d/%m/%Y": "25/03/2024",
    "%m/%d/%Y": "03/25/2024",
    "%d.%m.%Y": "25.3.2024",
    "%d-%m-%Y": "25-03-2024",
    "%d %b %Y": "25 Mar 2024",
    "%d-%b-%Y": "25-Mar-2024",
    "%b %d, %Y": "Mar 25, 2024",
    "%B %d, %Y": "March 25, 2024",
}


@pytest.mark.parametrize("form", WRITTEN)
@pytest.mark.parametrize("time", ["", " 10:15", "T23:59:59Z"])
def test_a_date_is_its_days_since_1970(form, time):
    text = WRITTEN[form] + time
    assert forms.form_of("seen", [text]) == form
    assert forms.numbers([text], form).tolist() == [(DAY - date(1970, 1, 1)).days]


@given(
    st.lists(st.dates(date(1000, 1, 1), date(9999, 12, 31)), min_size=1),
    st.sampled_from(["%d/%m/%Y", "%Y-%m-%d"]),
)
def test_any_date_is_read_back(days, form):
    written = [f"{day.year:04d}-{day.month:02d}-{day.day:02d}" for day in days]
    if form == "%d/%m/%Y":
        written = [f"{day.day}/{day.month}/{day.year:04d}" for day in days]
    found = columns.encode({"x": written}, [columns.Column("x", form=form)], "private")
    assert [date(1970, 1, 1) + timedelta(days=int(number)) for number in found[:, 0]] == days
    column = columns.Column("x", form=form)._asdict()
    assert np.array_equal(predict._column(written, column, Path("x.csv")), found)


@given(st.lists(st.sampled_from(["True", "FALSE", "true", "false", "", "NA"]), min_size=1))
def test_true_and_false_are_one_and_zero_in_any_case(values):
    column = columns.Column("x", form=forms.BOOLEAN, filling=1.0, indicator=True)
    gone = [value in ("", "NA") for value in values]
    wanted = [
        [1.0 if lacks else float(value.lower() == "true"), lacks]
        for value, lacks in zip(values, gone, strict=True)
    ]
    found = columns.encode({"x": values}, [column], "private")
    assert np.array_equal(found, np.array(wanted, np.float32))
    assert np.array_equal(predict._column(values, column._asdict(), Path("x.csv")), found)


REFUSED = {
    "day or month": (["01/02/2024", "12/11/2024"], "may begin with the day or with the month (01/02/2024)"),
    "thousands": (["950", "1,234"], "has the number '1,234': write numbers without thousands separators"),
    "thousands by points": (["1.234.567"], "has the number '1.234.567'"),
    "thousands by blanks": (["1 234"], "has the number '1 234'"),
    "decimal comma": (["3,5", "4"], "has the number '3,5'"),
    "a word among numbers": (
        [*map(str, range(40)), "unknown"],
        "has 40 different numbers, but also 'unknown'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_in_one_way_is_refused(case):
    values, said = REFUSED[case]
    with pytest.raises(PateError) as caught:
        columns.plan({"x": values}, {}, {})
    assert said in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values", [["1,2,3"], ["192.168.1.1"], ["12:30"], ["a"], ["01/02/24"], ["30/02/2024"], ["1", "b"]]
)
def test_other_texts_are_words(values):
    assert forms.form_of("x", values) is None


PUBLIC = "seen,smokes,name,dose,sick\n" + "".join(
    f"{1 + row % 28}/02/2024,{row % 2 == 0},person {row},{row},{'yes' if row % 3 else 'no'}\n"
    for row in range(40)
)
PRIVATE = "seen,smokes,name,dose,sick,id\n13/01/2024,TRUE,Ann,3,yes,a\n,false,Bo,4,no,b\n"
NAMES = {"label_column": "sick", "id_column": "id"}


def own(folder, private=PRIVATE, public=PUBLIC, **more):
    for name, text in (("private", private), ("public", public)):
        (folder / f"{name}.csv").write_text(text)
    return from_files(folder / "private.csv", folder / "public.csv", **NAMES, **more)


def test_a_table_with_dates_booleans_and_names(tmp_path, capsys):
    data = own(tmp_path)
    assert [(column.name, column.form) for column in data.columns] == [
        ("seen", "%d/%m/%Y"),
        ("smokes", "boolean"),
        ("dose", ""),
    ]
    first = (date(2024, 1, 13) - date(1970, 1, 1)).days
    assert data.private.inputs[0].tolist() == [first, 1, 3]
    assert data.private_notes["missing_values"] == {"seen": "1 filled with 2024-02-10"}
    said = capsys.readouterr().err
    assert "the column 'name' is left out: 40 different words in 40 public rows, such as 'person 0'" in said
    assert "Ann" not in said  # a private value
    kept = own(tmp_path, categories={"name": ["Ann", "Bo", "person 0"]})
    assert kept.private.inputs[:, 2:4].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("row", ["31/12/1999,true,Cy,9,no,c", ",,,,no,c", "13/01/2024,FALSE,Cy,NA,yes,c"])
def test_no_private_row_changes_another_row_or_the_plan(tmp_path, row):
    before, after = own(tmp_path), own(tmp_path, PRIVATE + row + "\n")
    assert np.array_equal(after.private.inputs[:2], before.private.inputs)
    assert (after.columns, after.preprocessing, after.class_names) == (
        before.columns,
        before.preprocessing,
        before.class_names,
    )


def test_a_private_name_leaves_no_column_out(tmp_path):
    """However many different words private rows hold: the public ones are few."""
    private = PRIVATE + "".join(f"13/01/2024,true,village {row},{row},no,v{row}\n" for row in range(30))
    public = re.sub(r"person \d+", "Oslo", PUBLIC)
    assert "name" in [column.name for column in own(tmp_path, private, public).columns]


BAD = {
    "date of another form": (
        "2024-01-13,true,x,1,no,c",
        "seen='2024-01-13' at row 2, which is not a date as day/month/year",
    ),
    "date that is none": ("31/02/2024,true,x,1,no,c", "seen='31/02/2024' at row 2"),
    "boolean in another word": (
        "13/01/2024,yes,x,1,no,c",
        "smokes='yes' at row 2, which is not true or false",
    ),
    "thousands": (
        '13/01/2024,true,x,"1,234",no,c',
        "dose='1,234' at row 2, which is not a finite number; correct it (without",
    ),
    "beyond float32": (
        "13/01/2024,true,x,1e300,no,c",
        "dose='1e300' at row 2, which is not a finite number; correct it (numbers are kept up to 3.4e38)",
    ),
    "unknown class": (
        "13/01/2024,true,x,1,perhaps,c",
        "private label 'perhaps' at row 2 is not one of the classes",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_private_values_are_one_sentence(tmp_path, case):
    row, said = BAD[case]
    with pytest.raises(PateError) as caught:
        own(tmp_path, PRIVATE + row + "\n")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_table_of_names_alone_is_refused(tmp_path):
    lines = [",".join([line.split(",")[2], line.split(",")[4]]) for line in PUBLIC.splitlines()]
    with pytest.raises(PateError, match="no column is left to learn from: 'name' has 40 different words"):
        own(tmp_path, "name,sick,id\nAnn,yes,a\n", "\n".join(lines) + "\n")


def test_classes_by_name_come_from_public_knowledge(tmp_path):
    unlabelled = "\n".join(line.rpartition(",")[0] for line in PUBLIC.splitlines()) + "\n"
    with pytest.raises(PateError, match=r"private labels must not be used.*--classes no,yes"):
        own(tmp_path, public=unlabelled)
    with pytest.raises(PateError, match=r"private labels are not numbers.*--classes no,yes"):
        own(tmp_path, public=unlabelled, classes=2)
    assert own(tmp_path, public=unlabelled, classes="yes, no").class_names == ("yes", "no")
    described = own(tmp_path, public=unlabelled, categories={"sick": ["no", "yes", "unclear"]})
    assert described.class_names == ("no", "yes", "unclear")
    with pytest.raises(PateError, match="names a class twice"):
        own(tmp_path, classes="yes,yes")


@pytest.mark.parametrize("label", ["{row}000", "patient {row}"])
def test_labels_that_are_no_classes_are_refused(tmp_path, label):
    rows = "".join(f"{row},{label.format(row=row)}\n" for row in range(2100))
    with pytest.raises(PateError, match=r"the public labels show .* classes, as a number or a name would"):
        own(tmp_path, "dose,sick,id\n1,2,a\n", "dose,sick\n" + rows)


def test_a_value_below_a_limit_is_read_at_the_limit_and_marked_also_by_the_released_student(tmp_path):
    written = ["<0.5", "2", "3.5", "> 90", "4"]
    (column,) = columns.plan({"crp": written}, {}, {})
    encoded = columns.encode({"crp": written}, [column], "private")
    assert encoded.tolist() == [[0.5, 1], [2, 0], [3.5, 0], [90, 1], [4, 0]]
    assert predict._column(written, column._asdict(), tmp_path).tolist() == encoded.tolist()
    (plain,) = columns.plan({"crp": ["1", "2.5"]}, {}, {})  # the public part has no limit
    assert columns.encode({"crp": ["<0.5"]}, [plain], "private").tolist() == [[0.5]]
    assert predict._column(["<0.5"], plain._asdict(), tmp_path).tolist() == [[0.5]]
    for wrong in ("5<3", "<<5", "=5", "< "):
        with pytest.raises(PateError, match="crp"):
            columns.encode({"crp": [wrong]}, [column], "private")
        with pytest.raises(predict.InputError, match="crp"):
            predict._column([wrong], column._asdict(), tmp_path)
    (groups,) = columns.plan({"age": ["<20", ">=20"]}, {}, {})
    assert groups.categories == ("<20", ">=20")
