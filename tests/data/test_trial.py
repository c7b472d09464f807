"""`pate split`: parts for a trial, which share no user, and what is said of them."""

import shlex

import numpy as np
import pytest
from commands import call
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.data import from_files, tables, trial
from pate_jax.errors import PateError

NAMES = {"labels": "sick", "ids": "key", "users": None}
TABLE = {
    "key": [f"p{7 * row % 60}" for row in range(60)],
    "who": [f"user {row // 3}" for row in range(60)],
    "pulse": [str(60 + row) for row in range(60)],
    "sick": ["yes" if row % 3 else "no" for row in range(60)],
}


@pytest.fixture
def file(tmp_path):
    (tmp_path / "own.csv").write_bytes(tables.to_csv(TABLE))
    return tmp_path / "own.csv"


@given(
    st.lists(st.integers(0, 30), min_size=20),
    st.floats(0.1, 0.4),
    st.floats(0.1, 0.4),
    st.integers(0, 2**32 - 1),
)
def test_every_row_is_in_one_part_and_no_unit_in_two(units, public, test, seed):
    units = np.array([*units, *range(31)])
    rows = trial.rows_of(units, public, test, seed)
    assert sorted(np.concatenate(list(rows.values())).tolist()) == list(range(len(units)))
    parts = [set(units[chosen].tolist()) for chosen in rows.values()]
    assert len(set().union(*parts)) == sum(map(len, parts)) == 31
    assert [len(part) for part in parts[1:]] == [round(public * 31), round(test * 31)]
    again = trial.rows_of(units, public, test, seed)
    assert all(np.array_equal(again[part], rows[part]) for part in rows)


def test_a_table_is_divided_by_record_or_user(file):
    made = trial.divide(file, file.parent / "a", NAMES)
    assert made.rows == {"private": 42, "public": 12, "test": 6} and (made.classes, made.equal) == ((), 0)
    parts = [tables.read(path) for path in made.files.values()]
    assert sorted(key for part in parts for key in part["key"]) == sorted(TABLE["key"])
    users = trial.divide(file, file.parent / "b", NAMES | {"users": "who"})
    held = [set(tables.read(path)["who"]) for path in users.files.values()]
    assert len(set().union(*held)) == sum(map(len, held)) == 20
    assert all(path.stat().st_mode & 0o077 == 0 for path in made.files.values())


def test_arrays_are_divided(tmp_path):
    inputs = np.arange(90.0).reshape(30, 3)
    np.savez(
        tmp_path / "own.npz",
        inputs=inputs,
        ids=np.array([f"x{row}" for row in range(30)]),
        labels=[0, 1] * 15,
    )
    made = trial.divide(tmp_path / "own.npz", tmp_path / "out", NAMES, test=0)
    assert made.rows == {"private": 24, "public": 6}
    data = from_files(made.files["private"], made.files["public"])
    for part in (data.private, data.public):
        assert np.array_equal(part.inputs, inputs[[int(name[1:]) for name in part.ids]])


def test_the_printed_command_opens_the_parts(file, capsys):
    """Equal rows of different records, and a class that only private rows show, are declared."""
    table = {**TABLE, "pulse": [str(row % 4) for row in range(60)], "sick": ["rare", *TABLE["sick"][1:]]}
    seed = next(
        seed for seed in range(50) if 0 in trial.rows_of(np.array(TABLE["key"]), 0.2, 0.1, seed)["private"]
    )
    flags = ("--label-column", "sick", "--id-column", "key", "--user-column", "who")
    file.write_bytes(tables.to_csv({name: values for name, values in table.items() if name != "who"}))
    assert call("split", file, *flags[:4], "--out", file.parent / "out", "--seed", seed) == 0
    said = capsys.readouterr()
    assert "have no privacy. Do not publish" in said.err
    line = shlex.split(said.out.splitlines()[-1].removeprefix("next: "))
    assert "--equal-rows-are-coincidences" in line and line[line.index("--classes") + 1] == "no,rare,yes"
    parts = [line[line.index(f"--{part}") + 1] for part in trial.PARTS]
    found = from_files(
        *parts, label_column="sick", id_column="key", classes="no,rare,yes", equal_rows_are_coincidences=True
    )
    assert found.class_names == ("no", "rare", "yes")
    file.write_bytes(tables.to_csv(table))
    assert call("split", file, *flags, "--out", file.parent / "users") == 0
    assert "--user-column who --by user --classes no,rare,yes" in capsys.readouterr().out


def test_columns_that_nobody_named_are_guessed(file, capsys):
    """Records of a person stay together, and the command names columns that would be features else."""
    table = {{"who": "patient"}.get(name, name): values for name, values in TABLE.items()}
    file.write_bytes(tables.to_csv(table))
    assert call("split", file, "--out", file.parent / "guessed") == 0
    said = capsys.readouterr().out
    assert "the column 'patient' is taken for that of users: name another with --user-column" in said
    assert "--label-column sick --id-column key --user-column patient --by user" in said
    held = [set(tables.read(file.parent / "guessed" / f"{part}.csv")["patient"]) for part in trial.PARTS]
    assert len(set().union(*held)) == sum(map(len, held)) == 20


def test_rows_that_are_equal_but_for_free_text_are_declared(file, capsys):
    """A run leaves such a column out, so that other rows become equal."""
    rows = range(300)
    pulses, notes = [str(row % 2) for row in rows], [f"note {row}" for row in rows]
    ill = ["no" if row % 3 else "yes" for row in rows]
    file.write_bytes(tables.to_csv({"pulse": pulses, "notes": notes, "ill": ill}))
    assert call("split", file, "--out", file.parent / "out") == 0
    assert "--equal-rows-are-coincidences" in capsys.readouterr().out


def test_numbers_that_do_not_start_at_0_are_named(file, capsys):
    file.write_bytes(tables.to_csv({**TABLE, "sick": ["1" if row % 3 else "-1" for row in range(60)]}))
    assert call("split", file, "--out", file.parent / "out", "--label-column", "sick") == 0
    line = shlex.split(capsys.readouterr().out.splitlines()[-1].removeprefix("next: "))
    assert line[line.index("--classes") + 1] == "-1,1"
    parts = [line[line.index(f"--{part}") + 1] for part in trial.PARTS]
    with pytest.raises(
        PateError, match="labels are numbers from -1 to 1, and classes are numbered from 0: pass"
    ):
        from_files(*parts, label_column="sick", id_column="key")
    assert from_files(*parts, label_column="sick", id_column="key", classes="-1,1").class_names == ("-1", "1")


BAD = {
    "no column": ({"names": NAMES | {"ids": "id"}}, "no column 'id'; its columns are key, who"),
    "no public part": ({"public": 0.0}, "public=0 must be above 0"),
    "nothing left": ({"public": 0.6, "test": 0.4}, "both together below 1"),
    "NaN": ({"public": float("nan")}, "public=nan must be above 0"),
    "too few": ({"public": 0.001}, "60 users or records are too few"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_splits_are_one_sentence(file, case):
    change, said = BAD[case]
    with pytest.raises(PateError) as caught:
        trial.divide(file, file.parent / "out", **{"names": NAMES, **change})
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not (file.parent / "out").exists()


def test_files_that_are_there_are_kept(file):
    trial.divide(file, file.parent / "out", NAMES)
    with pytest.raises(PateError, match=r"private\.csv is there already: choose another --out"):
        trial.divide(file, file.parent / "out", NAMES, seed=1)
    with pytest.raises(PateError, match="stands for several files of one table"):
        trial.divide(file.parent, file.parent / "more", NAMES)
    (file.parent / "images").mkdir()
    with pytest.raises(PateError, match="is a folder of images"):
        trial.divide(file.parent / "images", file.parent / "more", NAMES)
    np.savez(file.parent / "bad.npz", inputs=np.zeros((3, 2)), labels=[0, 1])
    with pytest.raises(PateError, match="has arrays of different lengths"):
        trial.divide(file.parent / "bad.npz", file.parent / "more", NAMES)
