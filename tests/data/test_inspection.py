"""`pate inspect`: what the owner is told of a file, in about ten lines, before a run refuses it."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from commands import call
from PIL import Image

from pate_jax.cli.inspect import run_line
from pate_jax.data import Part, inspection
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.runs import budget

ROWS = range(40)
TABLE = {
    "patient": [f"p{7 * row % 40}" for row in ROWS],
    "age": ["" if row % 4 == 0 else str(20 + row) for row in ROWS],
    "town": ["Oslo" if row % 2 else "Rome" for row in ROWS],
    "smokes": ["True" if row % 3 else "False" for row in ROWS],
    "seen": [f"2024-03-{1 + row % 28:02d}" for row in ROWS],
    "unit": ["kg"] * 40,
    "died": ["yes" if row % 5 else "no" for row in ROWS],
}


def seen(names=(), **change):
    return inspection.table_seen(Table({**TABLE, **change}), dict(names))


def test_a_table_is_described_and_its_roles_are_guessed():
    found = seen()
    assert found.what == "a table of 40 rows and 7 columns" and not found.refused
    assert found.names == {"labels": "died", "ids": "patient"}
    assert found.lines == {
        "ids": "patient (a guess: name it with --id-column): 40 different",
        "users": "none: if one person has several records, name a column of persons with --user-column",
        "labels": "died (a guess: name it with --label-column): 2 classes: yes 32, no 8",
        "numbers": "age",
        "codes": "none",
        "words": "town (2), unit (1)",
        "dates, true or false": "smokes (true or false), seen (a date as year-month-day)",
        "left out": "none",
        "missing": "age 25%",
        "constant": "unit",
    }


def test_the_index_of_a_frame_names_rows_and_an_id_that_is_repeated_names_people(tmp_path):
    lines = [f"{7 * row % 60},{90 - row // 3},{1000 + row},{row % 13},{row % 2}" for row in range(60)]
    (tmp_path / "visits.csv").write_text("\n".join([",id,pid,pulse,died", *lines]))
    found = inspection.look(tmp_path / "visits.csv", {"labels": "died"})
    assert found.names == {"labels": "died", "ids": "index", "users": "id"}
    assert found.lines["left out"] == "pid (another value in each of 60 rows, and the name of an id)"


def test_named_columns_are_not_guessed():
    found = seen({"labels": "town", "ids": "seen"})
    assert found.names == {"labels": "town", "ids": "seen"}
    assert found.lines["labels"] == "town: 2 classes: Rome 20, Oslo 20"
    with pytest.raises(PateError, match="there is no column 'ill'; its columns are patient, age"):
        seen({"labels": "ill"})


REFUSED = {
    "ids twice": ({"patient": ["p1"] * 2 + [f"p{row}" for row in range(2, 40)]}, "id 'p1' is there 2 times"),
    "missing labels": ({"died": ["", *TABLE["died"][1:]]}, "1 labels are missing"),
    "thousands": ({"age": ["1,234"] * 40}, "the column 'age' has the number '1,234': write numbers without"),
    "dates": ({"seen": ["01/02/2024"] * 40}, "'seen' may begin with the day or with the month"),
    "nothing": ({"town": [""] * 40}, "has no value in the column 'town'"),
    "infinite": ({"age": ["inf"] * 40}, "age='inf' at row 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_run_would_refuse_is_said(case):
    change, said = REFUSED[case]
    (why,) = seen({"ids": "patient"}, **change).refused
    assert said in why


def test_columns_that_a_run_leaves_out_are_not_refused_and_take_no_memory():
    """One feature for each of 60,000 titles and rows would be 14 GB."""
    titles = [f"title {row}" for row in range(60_000)]
    found = inspection.table_seen(Table({"title": titles, "died": ["yes", "no"] * 30_000}), {})
    assert found.lines["left out"] == "title (60,000 different words in 60,000 rows, such as 'title 0')"
    assert not found.refused


@pytest.mark.parametrize(("values", "classes"), [("12", ("1", "2")), (("-1", "1"), ("-1", "1")), ("01", ())])
def test_labels_that_are_numbers_from_elsewhere_are_names_of_classes(values, classes):
    assert seen(died=[values[row % 2] for row in ROWS]).classes == classes


def test_row_numbers_and_missing_ids_are_said():
    numbered = seen(patient=[str(row) for row in ROWS])
    assert "but they count up like row numbers" in numbered.lines["ids"]
    table = {name: values for name, values in TABLE.items() if name != "patient"}
    assert (
        inspection.table_seen(Table(table), {})
        .lines["ids"]
        .startswith("none: rows are then called by their numbers")
    )


def test_arrays_are_described(tmp_path):
    inputs = np.ones((6, 4, 3, 2), np.float32)
    inputs[2, 0, 0, 0] = np.nan
    ids, labels = np.array(list("abcdef")), np.arange(6) % 2
    np.savez(tmp_path / "own.npz", inputs=inputs, labels=labels, ids=ids, features=np.ones((6, 5)))
    found = inspection.look(tmp_path / "own.npz", {})
    assert found.what == "6 images of 4 x 3 x 2 numbers"
    assert found.refused == ["1 records hold NaN or infinity: fill or remove them"]
    assert found.lines["labels"] == "2 classes: 0 3, 1 3" and found.lines["features"] == "5 for each record"


def test_labels_that_are_numbered_from_one_need_names(tmp_path):
    np.savez(tmp_path / "own.npz", inputs=np.ones((3, 2)), labels=np.array([1, 2, 2]))
    told = inspection.look(tmp_path / "own.npz", {}).lines["labels"]
    assert told.startswith("2 classes: 2 2, 1 1; classes are numbered from 0") and "--classes" in told


def test_folders_are_described(tmp_path):
    for name, size in (("cat/tom", (5, 6)), ("cat/kit", (5, 6)), ("dog/rex", (7, 6))):
        (tmp_path / "own" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", size).save(tmp_path / "own" / f"{name}.png")
    (tmp_path / "own/dog/torn.png").write_bytes(b"\x89PNG")
    found = inspection.look(tmp_path / "own", {})
    assert found.what == "a folder of 4 images"
    assert found.lines["labels"] == "2 classes: cat 2, dog 2"
    assert found.lines["sizes"] == "5 x 6 pixels (2), 7 x 6 pixels (1)"
    assert "torn.png is not a readable image" in found.refused[0]
    assert found.refused[1] == "the images have several sizes: give --image-size, such as 32"


@pytest.mark.parametrize("name", ["patient", "Patient ID", "customer_no", "user"])
def test_a_column_of_persons_who_have_several_records_is_one_of_users(name):
    """Called an id by its name, it would protect one record of a person and no more."""
    table = {name: [f"p{row // 3}" for row in ROWS], **{key: TABLE[key] for key in ("age", "died")}}
    found = inspection.table_seen(Table(table), {})
    assert found.names == {"labels": "died", "users": name} and not found.refused
    said = f"{name} (a guess: name it with --user-column): 14 different, with up to 3 records; "
    assert found.lines["users"] == f"{said}--by user covers all of them"
    assert found.lines["words"] == "none" and found.lines["ids"].startswith("none")
    named = inspection.table_seen(
        Table({**table, "visit": [f"v{row}" for row in ROWS]}), {"users": name, "ids": "visit"}
    )
    assert named.lines["users"].startswith(f"{name}: 14 different")


@pytest.mark.parametrize(
    ("name", "value"), [("userland", "p{0}"), ("users", "p{1}"), ("patient", "p{2}"), ("number", "{0}")]
)
def test_other_columns_are_none_of_users(name, value):
    """By name, because all differ, because there are few of them, and since a number may be anything."""
    table = {name: [value.format(row // 3, row, row % 9) for row in ROWS], "died": TABLE["died"]}
    assert "users" not in inspection.table_seen(Table(table), {}).names


def test_the_command_prints_fourteen_lines_and_the_next_command(tmp_path, capsys):
    header, rows = ",".join(TABLE), zip(*TABLE.values(), strict=True)
    text = "\n".join([header, *map(",".join, rows)]) + "\n"
    (tmp_path / "own.csv").write_text(text)
    others = text.replace("2024-03", "2024-04").replace("\np", "\nq")  # other people
    (tmp_path / "pool.csv").write_text(others)
    assert call("inspect", tmp_path / "own.csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 14 and lines[0].endswith("it is private.")
    flags = "--label-column died --id-column patient"
    assert lines[-2] == f"{'next:':<24}pate split {tmp_path}/own.csv {flags}" and "--public" in lines[-1]
    assert lines[-3].endswith("nothing, of this part alone")
    for pool, said in (("pool", "nothing"), ("own", "the ids of private records too")):
        assert call("inspect", tmp_path / "own.csv", "--public", tmp_path / f"{pool}.csv") == 0
        *_, refused, then = capsys.readouterr().out.splitlines()
        assert refused.startswith("refused:") and said in refused
        assert then.startswith("next:" if said == "nothing" else "next, once mended:")
        assert then.endswith(
            f"run --private {tmp_path}/own.csv --public {tmp_path}/{pool}.csv {flags} --epsilon 1"
        )
    for name in ("own.txt", "own.csv.gz"):
        (tmp_path / name).write_text("x")
    bad = {"gone.csv": "does not exist", "own.txt": "give all parts as .npz", "own.csv.gz": "unpack it first"}
    for path, said in bad.items():
        assert call("inspect", tmp_path / path) == 2
        assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("people", "delta"), [(10, None), (100_000, None), (100_001, "1e-07"), (15_666, None)]
)
def test_the_printed_command_has_a_delta_that_suits_so_many_people(people, delta):
    line = run_line({"private": Path("a.csv"), "public": Path("b.csv")}, {"labels": "died"}, [], people)
    assert ("--delta" in line) == (delta is not None)
    if delta:
        assert f"--delta {delta} " in line


def test_visits_of_one_patient_are_one_person():
    table = {"patient": [f"p{row // 4}" for row in ROWS], "died": TABLE["died"], "age": TABLE["age"]}
    found = inspection.table_seen(Table(table), {})
    assert found.names["users"] == "patient" and found.people == 10
    part = Part(np.zeros((40, 1)), None, np.arange(40).astype(str), np.array(table["patient"]))
    dataset = SimpleNamespace(private=part, scan=None)
    assert [budget.people(dataset, by) for by in ("user", "record")] == [10, 40]
