"""Whom a guarantee covers: row numbers are no ids, whoever wrote them down."""

import dataclasses

import numpy as np
import pytest
from commands import call
from hypothesis import given
from hypothesis import strategies as st
from test_archives import ROW, adult_files, idx_files, lay, register

from pate_jax import data
from pate_jax.data import partition, relation
from pate_jax.errors import PateError
from pate_jax.runs import stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice
from pate_jax.system import storage

KEY, TEACHERS, RECORDS = partition.seeded_key(3), 5, 40
RANDOM = np.random.default_rng(2)
INPUTS, LABELS = RANDOM.normal(size=(RECORDS, 3)).astype(np.float32), np.arange(RECORDS) % 2
NUMBERS = np.arange(RECORDS)
ALIKE = {"equal_rows_are_coincidences": True}  # rows of made-up archives repeat themselves
NUMBERED = {
    "numbers from 0": lambda n: np.arange(n),
    "numbers from 1": lambda n: np.arange(1, n + 1),
    "text": lambda n: np.arange(n).astype(str),
    "behind a prefix": lambda n: np.array([f"patient-{row}" for row in range(n)]),
    "behind a prefix of digits": lambda n: np.array([f"2024{row:05d}" for row in range(1, n + 1)]),
    "before a word": lambda n: np.array([f"{row}th" for row in range(n)]),
    "none": lambda n: None,
}
OF_THEIR_OWN = {
    "a gap": np.delete(np.arange(RECORDS + 1), 7),
    "another order": RANDOM.permutation(RECORDS),
    "names": np.array([f"{number * 7919 % 1000:03d}" for number in range(RECORDS)]),
    "several prefixes": np.array([f"{'ab'[row % 2]}{row}" for row in range(RECORDS)]),
}


def npz(folder, name, ids=None, users=None, records=RECORDS):
    more = {key: value for key, value in {"ids": ids, "users": users}.items() if value is not None}
    np.savez(folder / f"{name}.npz", inputs=INPUTS[:records], labels=LABELS[:records], **more)
    return folder / f"{name}.npz"


@pytest.fixture
def pool(tmp_path):
    np.savez(tmp_path / "pool.npz", inputs=INPUTS + 1, labels=LABELS)
    return tmp_path / "pool.npz"


def shards_changed(before, after):
    """How many teachers are given other records once a line is taken out of the file."""
    first, second = (
        partition.certificate(partition.divide(part, TEACHERS, key=KEY), part, key=KEY)["shards"]
        for part in (before.private, after.private)
    )
    return sum(one["contents"] != other["contents"] for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", NUMBERED)
def test_row_numbers_move_many_shards_and_are_covered_for_contents_only(kind, tmp_path, pool):
    """The file is written anew without its last but ten records, and numbered anew."""
    make = NUMBERED[kind]
    whole = data.from_files(npz(tmp_path, "whole", make(RECORDS)), pool)
    rest = {"inputs": np.delete(INPUTS, 9, 0), "labels": np.delete(LABELS, 9)}
    rest |= {} if make(1) is None else {"ids": make(RECORDS - 1)}
    np.savez(tmp_path / "less.npz", **rest)
    assert shards_changed(whole, data.from_files(tmp_path / "less.npz", pool)) > 1
    assert relation.of(whole, "record") == "contents"
    assert relation.ROW_NUMBERS in whole.description


@pytest.mark.parametrize("kind", [kind for kind in NUMBERED if kind != "none"])
def test_numbers_that_belong_to_records_are_declared(kind, tmp_path, pool):
    path = npz(tmp_path, "own", NUMBERED[kind](RECORDS))
    found = data.from_files(path, pool, ids_are_stable=True)
    assert relation.of(found, "record") == "record" and "WARNING" not in found.description
    assert relation.DECLARED in found.description


def test_no_ids_cannot_be_declared_stable(tmp_path, pool):
    with pytest.raises(PateError, match=r"own\.npz has none: give ids"):
        data.from_files(npz(tmp_path, "own"), pool, ids_are_stable=True)


@pytest.mark.parametrize("kind", OF_THEIR_OWN)
def test_ids_of_their_own_are_covered_for_removal(kind, tmp_path, pool):
    found = data.from_files(npz(tmp_path, "own", OF_THEIR_OWN[kind]), pool)
    assert relation.of(found, "record") == "record" and found.description == "the owner's own data"


def test_users_are_no_row_numbers_either(tmp_path, pool):
    own = np.array([f"u{number}" for number in RANDOM.permutation(RECORDS)])
    numbered = np.arange(RECORDS) // 2  # two records each, numbered as they come
    for ids, users, said in ((own, numbered, "needs users"), (NUMBERS, own, "needs ids"), (None, own, "ids")):
        path = npz(tmp_path, "own", ids, users)
        with pytest.raises(PateError, match=f"{said}.*row numbers.*--ids-are-stable"):
            relation.of(data.from_files(path, pool), "user")
    assert relation.of(data.from_files(npz(tmp_path, "own", own, own), pool), "user") == "user"
    path = npz(tmp_path, "own", NUMBERS, numbered)
    assert relation.of(data.from_files(path, pool, ids_are_stable=True), "user") == "user"


def test_a_line_of_ones_own_adult_is_a_row_number(tmp_path):
    files = adult_files(60)
    whole = data.load("adult", data_dir=tmp_path / "cache", manual_dir=lay(tmp_path / "own", files), **ALIKE)
    lines = files["adult.data"].splitlines()
    ages = [line.replace(b"39", b"%d" % (20 + row), 1) for row, line in enumerate(lines)]
    one, other = ({**files, "adult.data": b"\n".join(part)} for part in (ages, [*ages[:9], *ages[10:]]))
    found = [
        data.load("adult", data_dir=tmp_path / "cache", manual_dir=lay(tmp_path / name, content), **ALIKE)
        for name, content in (("one", one), ("other", other))
    ]
    assert shards_changed(*found) == TEACHERS
    assert relation.of(whole, "record") == relation.of(found[0], "record") == "contents"
    assert relation.ROW_NUMBERS in whole.description and ROW.encode() in files["adult.data"]
    fixed = data.load(
        "adult", data_dir=tmp_path / "cache", manual_dir=tmp_path / "own", ids_are_stable=True, **ALIKE
    )
    assert relation.of(fixed, "record") == "record" and "WARNING" not in fixed.description


def test_a_number_in_a_registered_archive_or_of_a_drawn_record_is_an_id(monkeypatch, tmp_path):
    files = idx_files(20, 9020)
    register(monkeypatch, "mnist", files)
    found = data.load("mnist", data_dir=tmp_path / "cache", manual_dir=lay(tmp_path / "own", files))
    assert relation.of(found, "record") == "record" and "WARNING" not in found.description
    assert relation.of(data.load("glyphs", size=9, public_size=2, test_size=2), "record") == "record"


def test_a_dataset_made_by_hand_is_judged_by_its_ids():
    drawn = data.load("strokes", size=9, public_size=2, test_size=2)
    assert relation.of(dataclasses.replace(drawn, ids_are="given"), "record") == "contents"


@given(st.text(max_size=5), st.integers(0, 1), st.integers(2, 30), st.booleans())
def test_whatever_stands_before_a_number_it_is_one(prefix, first, count, padded):
    names = [f"{prefix}{row:0{4 if padded else 0}d}" for row in range(first, first + count)]
    assert relation.count_up(names)
    assert not relation.count_up([*names[1:], names[0]]) or count < 3


@given(st.lists(st.text(max_size=6), max_size=6))
def test_any_names_can_be_judged(names):
    assert relation.count_up(names) in (True, False)


def test_the_run_warns_and_states_the_relation_that_follows_from_the_ids(tmp_path, pool, capsys):
    """Through the command line: the settings, the statement and the page all say it."""
    out, path = tmp_path / "run", npz(tmp_path, "own", NUMBERS)
    command = ["run", "--private", path, "--public", pool, "--teachers", "4", "--queries", "8", "--out", out]
    command += ["--net", "linear", "--student.method", "ridge"]
    assert call(*command, "discrete-gaussian", "--sigma", "0.5") == 0
    told = capsys.readouterr()
    assert "WARNING" in told.err and "--ids-are-stable" in told.err
    run = RunDirectory(out)
    assert run.record.stages()["relation"] == {"relation": "contents"}
    assert storage.read_json(run.public_statement, "statement")["relation"] == "contents"
    assert "which of two contents" in run.public_report.read_text()
    assert call(*command, "--ids-are-stable", "discrete-gaussian", "--sigma", "0.5") != 0
    assert "ids_are_stable" in capsys.readouterr().err


def test_a_run_of_before_the_declaration_goes_on(tmp_path, pool):
    """Its settings do not name the declaration: that is the same as not to declare it."""
    choice = DataChoice(private=npz(tmp_path, "own", NUMBERS), public=pool)
    run = RunDirectory(tmp_path / "run")
    before = {name: value for name, value in stages.to_settings(choice).items() if name != "ids_are_stable"}
    run.record.agree("data", before)
    run.record.agree("data", stages.to_settings(choice))
    with pytest.raises(PateError, match="ids_are_stable"):
        run.record.agree("data", stages.to_settings(dataclasses.replace(choice, ids_are_stable=True)))
