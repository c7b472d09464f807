"""Codes: numbers with few public values have an indicator each, which follows from the public part alone."""

import json

import numpy as np
import pytest
from commands import call

from pate_jax.data import columns, forms, inspection, own_files, tables
from pate_jax.data.columns import Column
from pate_jax.student import Student, serving
from pate_jax.student.released import predict

CODES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
DIES = np.array([0, 1, 0, 1, 0, 1, 0], bool)  # by code: nothing that a line along the codes could say


def table(rows, seed, start=0):
    random = np.random.default_rng(seed)
    code, age = random.integers(0, 7, rows), random.normal(60, 9, rows).round(6)
    return {
        "id": [f"p{start + row}" for row in range(rows)],
        "stage": [f"{value}.0" for value in code],
        "age": [str(value) for value in age],
        "died": np.where(DIES[code], "yes", "no").tolist(),
    }


def files(folder, **parts):
    for name, content in parts.items():
        (folder / f"{name}.csv").write_bytes(tables.to_csv(content))
    return own_files.from_files(folder / "own.csv", folder / "pool.csv", label_column="died", id_column="id")


def test_what_a_line_cannot_say_of_codes_is_said_by_their_indicators(tmp_path):
    data = files(tmp_path, own=table(400, 1), pool=table(200, 2, 1000))
    assert [column.codes for column in data.columns] == [CODES, ()]
    scaled = np.c_[data.preprocessing.apply(data.private.inputs), np.ones(400)]

    def right(features):  # of least squares, without any of our own methods
        weights = np.linalg.lstsq(features, data.private.labels - 0.5, rcond=None)[0]
        return np.mean((features @ weights > 0) == data.private.labels)

    assert right(scaled) == 1 and right(scaled[:, [0, 8, 9]]) < 0.7


def test_private_values_decide_nothing(tmp_path):
    own, pool = table(400, 1), table(200, 2, 1000)
    data = files(tmp_path, own=own, pool=pool)
    other = files(tmp_path, own={**own, "stage": ["9", "", *own["stage"][2:]]}, pool=pool)  # no public code
    assert other.columns == data.columns and np.array_equal(other.public.inputs, data.public.inputs)
    assert not other.private.inputs[:2, 1:8].any() and other.private.inputs[0, 0] == 9
    assert np.array_equal(other.private.inputs[2:], data.private.inputs[2:])


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (["0", "1"] * 40, ()),  # one number tells two values apart
        ([str(value) for value in range(13)] * 40, ()),
        ([str(value) for value in range(12)] * 40, tuple(map(float, range(12)))),
        (["1", "2", "3"] * 9, ()),  # too few rows to learn from
        (["1", "2", "3"] * 20 + ["4"] * 9, (1.0, 2.0, 3.0)),  # one is rare
        (["0.5", "1", "1e400"] * 20, (0.5, 1.0, float("inf"))),  # which `encode` refuses
        (["true", "false"] * 40, ()),
    ],
)
def test_which_numbers_are_codes(values, codes):
    assert columns.codes_among(values, forms.form_of("x", values)) == codes


def test_a_declared_scale_says_that_a_column_is_a_number():
    (column,) = columns.plan({"x": ["1", "2", "3"] * 20}, {}, {"x": (2.0, 1.0)})
    assert column.codes == () and column.width == 1


def test_a_filled_number_is_no_code():
    (column,) = columns.plan({"x": ["1", "2", "3", ""] * 20}, {}, {})
    assert column == Column("x", filling=2.0, indicator=True, codes=(1.0, 2.0, 3.0))
    assert columns.encode({"x": ["", "2.00"]}, [column], "rows").tolist() == [
        [2, 1, 0, 0, 0],
        [2, 0, 0, 1, 0],
    ]


def test_the_released_student_reads_codes_as_the_run_did(tmp_path):
    data = files(tmp_path, own=table(90, 1), pool={**table(200, 2, 1000), "age": [*[""] * 3, *["61"] * 197]})
    net = {"name": "linear", "input_shape": data.input_shape, "classes": 2}
    student = Student({}, net, data.preprocessing, data.class_names, 1.0, "float32", data.columns)
    student.save(tmp_path / "student")
    again, alone = Student.load(tmp_path / "student"), predict.load(tmp_path / "student")
    assert again.columns == data.columns
    inputs, _ = serving.read_inputs(again, tmp_path / "own.csv")
    assert np.array_equal(inputs, data.private.inputs)
    assert np.array_equal(predict.read(tmp_path / "own.csv", alone), data.private.inputs)


def test_inspect_lists_codes_and_takes_categories(tmp_path, capsys):
    found = inspection.table_seen(tables.Table(table(200, 1)), {})
    assert found.lines["codes"] == "stage (0, 1, 2, 3, 4, 5, 6)" and found.lines["numbers"] == "age"
    (tmp_path / "own.csv").write_bytes(tables.to_csv(table(200, 1)))
    (tmp_path / "pool.csv").write_bytes(tables.to_csv(table(200, 2, 1000)))
    declared = tmp_path / "stages.json"
    for values, refused in (
        ([f"{code:.1f}" for code in CODES], "nothing"),
        (["I", "II"], "no public value is"),
    ):
        declared.write_text(json.dumps({"stage": values}))
        more = ("--public", tmp_path / "pool.csv", "--categories", declared)
        assert call("inspect", tmp_path / "own.csv", *more) == 0
        lines = capsys.readouterr().out.splitlines()
        assert refused in lines[-2] and f"--categories {declared}" in lines[-1]
        if refused == "nothing":
            assert any(line.split() == ["words:", "stage", "(7)"] for line in lines)
