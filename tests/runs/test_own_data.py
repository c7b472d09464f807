"""`pate_jax.run`: data from Python, by the same way as `pate run`."""

import json

import jax
import numpy as np
import pytest
from commands import call

import pate_jax
from pate_jax import models
from pate_jax.audit import verify
from pate_jax.data import Preprocessing
from pate_jax.data.dataset import class_names_of
from pate_jax.errors import PateError
from pate_jax.runs import ledger, own_data
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.own_data import Result
from pate_jax.runs.settings import TEACHERS
from pate_jax.student import Student, Supervised

STUDENT = Supervised(net="table", steps=8, batch_size=8)
SETTINGS = {"label": "sick", "id": "key", "epsilon": 4.0, "seed": 3, "student": STUDENT, "voters": "auto"}


def people(count, seed):
    """Numbers, words and dates of people, who are sick where the pulse is high."""
    random = np.random.default_rng(seed)
    pulse = random.normal(70, 10, count).round(2)
    return {
        "key": [f"person-{seed}-{7 * row % count}" for row in range(count)],
        "pulse": [None if row % 11 == 5 else float(value) for row, value in enumerate(pulse)],
        "town": np.array(["Oslo", "Rome"])[random.integers(0, 2, count)],
        "seen": np.datetime64("2024-01-01") + random.integers(0, 300, count),
        "sick": np.where(pulse > 70, "yes", "no"),
    }


PARTS = {"private": people(90, 1), "public": people(40, 2), "test": people(30, 3)}


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    return pate_jax.run(**PARTS, **SETTINGS, out=tmp_path_factory.mktemp("python") / "run")


def test_it_returns_a_student_and_what_it_cost(result):
    labels = result.predict(PARTS["test"])
    assert set(labels.tolist()) <= {"no", "yes"} and labels.shape == (30,)
    probabilities = result.predict_proba(PARTS["test"])
    assert np.allclose(probabilities.sum(1), 1) and probabilities.shape == (30, 2)
    assert result.facts["student_accuracy"] == np.mean(labels == PARTS["test"]["sick"])
    assert result.statement.headline.epsilon <= 4.0
    assert str(result.directory) in str(result) and "NOT PRIVATE" in str(result), "it is seeded"


def test_new_rows_come_as_frame_or_file(result):
    new = {name: column for name, column in PARTS["test"].items() if name not in ("sick", "key")}
    assert np.array_equal(result.predict_proba(new), result.predict_proba(PARTS["test"]))
    file = result.directory / "private" / "data" / "test.csv"
    assert np.array_equal(result.predict_proba(file), result.predict_proba(new))
    with pytest.raises(PateError, match="inputs lacks the column 'seen'"):
        result.predict({"pulse": [60.0], "town": ["Oslo"]})


def test_the_run_is_that_of_the_command(result, tmp_path):
    """The same files and settings give the same ledger, release and statement, bit for bit."""
    data = result.directory / "private" / "data"
    parts = [word for part in PARTS for word in (f"--{part}", data / f"{part}.csv")]
    flags = ["--label-column", "sick", "--id-column", "key", "--voters", "auto", "--epsilon", 4, "--seed", 3]
    learns = ["--student.method", "supervised", "--student.net", "table", "--student.steps", 8]
    learns += ["--student.batch-size", 8]
    assert call("run", *parts, *flags, *learns, "--out", tmp_path / "run", "--json") == 0
    mine, other = RunDirectory(result.directory), RunDirectory(tmp_path / "run")
    assert [line.values for line in ledger.releases(mine.ledger)] == [
        line.values for line in ledger.releases(other.ledger)
    ]
    for name in ("statement.json", "student/parameters.npz"):
        assert (mine.release / name).read_bytes() == (other.release / name).read_bytes()


def test_the_run_is_verified(result):
    findings = verify.at(result.directory)
    assert not findings.of("failed"), findings.text()


def test_the_same_call_returns_the_same_run_and_other_data_are_refused(result):
    again = pate_jax.run(**PARTS, **SETTINGS, out=result.directory)
    assert again.facts == result.facts
    before = {path: path.read_bytes() for path in (result.directory / "private" / "data").iterdir()}
    for part in PARTS:
        with pytest.raises(PateError, match=f"was begun with another {part} part"):
            pate_jax.run(**PARTS | {part: people(35, 9)}, **SETTINGS, out=result.directory)
    with pytest.raises(PateError, match=r"was made with crowd setting epsilon=4.0, not 2.0"):
        pate_jax.run(**PARTS, **SETTINGS | {"epsilon": 2.0}, out=result.directory)
    assert before == {path: path.read_bytes() for path in (result.directory / "private" / "data").iterdir()}


def ids_of(folder):
    return (folder / "private" / "data" / "private.csv").read_text()


def test_a_second_call_replaces_no_data_that_a_run_is_about_to_read(tmp_path, monkeypatch):
    """Between storing its data and beginning the run, the first call holds them."""
    called, read = [], []

    def pipeline(config):
        if not called:
            called.append(config)
            with pytest.raises(PateError, match=r"private/data is being written by process \d+"):
                pate_jax.run(**PARTS | {"private": people(35, 9)}, **SETTINGS, out=tmp_path / "run")
            pate_jax.run(**PARTS, **SETTINGS, out=tmp_path / "run")  # as another process of the same run
        read.append(ids_of(tmp_path / "run"))
        return {}

    monkeypatch.setattr("pate_jax.runs.pipeline.run", pipeline)
    pate_jax.run(**PARTS, **SETTINGS, out=tmp_path / "run")
    assert len(read) == 2 and all("person-1-" in text and "person-9-" not in text for text in read)
    pate_jax.run(**PARTS | {"private": people(35, 9)}, **SETTINGS, out=tmp_path / "run")  # no run began
    assert "person-9-" in read[2] and "person-1-" not in read[2]


def test_a_run_begins_with_the_data_that_it_was_given_or_not_at_all(tmp_path, monkeypatch):
    store = own_data._store

    def replaced(directory, contents):
        store(directory, contents)
        (directory.data / "private.csv").write_text("key,pulse\n")

    monkeypatch.setattr(own_data, "_store", replaced)
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config: pytest.fail("it ran"))
    with pytest.raises(PateError, match=r"private.csv holds another private part than was given"):
        pate_jax.run(**PARTS, **SETTINGS, out=tmp_path / "run")


def test_the_stored_data_are_the_owners_alone(result):
    folder = result.directory / "private"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in (folder / "data").iterdir())
    released = b"".join(path.read_bytes() for path in (result.directory / "release").rglob("*.*"))
    assert b"person-1-" not in released


def test_classes_and_declarations_from_python(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config: seen.append(config) or {})
    public = {name: column for name, column in PARTS["public"].items() if name != "sick"}
    more = {"classes": ["no", "yes"], "scales": {"pulse": [70, 10, 70]}}
    pate_jax.run(PARTS["private"], public, **SETTINGS, **more, out=tmp_path / "run")
    opened = open_data(seen[0].data)
    assert opened.class_names == ("no", "yes") and opened.preprocessing.offset[0] == 70
    assert json.loads((tmp_path / "run/private/data/scales.json").read_text()) == more["scales"]


def test_numbered_classes_are_predicted_as_numbers(tmp_path):
    model = models.build("table", input_shape=(3,), classes=4)
    parameters, scaling = model.init(jax.random.key(1)), Preprocessing((0.0,) * 3, (1.0,) * 3)
    Student(parameters, model.description, scaling, class_names_of(4), 1.0, "float32").save(tmp_path)
    inputs = np.random.default_rng(0).normal(size=(20, 3))
    found = Result(tmp_path, {})
    assert found.predict(inputs).tolist() == found.predict_proba({"x": inputs}).argmax(1).tolist()
    assert np.array_equal(found.predict((inputs, np.zeros(20))), found.predict(inputs))


BAD = {
    "half of the data": ({"public": None}, "private and public go together"),
    "no label": ({"label": None}, "label is not given: name the column of the labels among key, pulse"),
    "another label": ({"label": "ill"}, "has no column 'ill'; its columns are"),
    "another setting": ({"depth": 3}, "depth is no setting of a run; the settings are "),
    "voters": ({"voters": "crowd"}, "voters='crowd' must be auto, teachers, neighbours or sums"),
    "epsilon": ({"epsilon": -1.0}, "epsilon=-1.0 must be a finite number above 0"),
    "a comma in a class": ({"classes": ["a,b", "c"]}, "has a comma in a name"),
    "a private row that is public": ({"public": PARTS["private"]}, "have the ids of private records too"),
    "of teachers": ({"teachers": 7, "voters": "sums"}, "--teachers belongs to teachers"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_calls_are_one_sentence_and_begin_no_run(tmp_path, case):
    change, said = BAD[case]
    with pytest.raises(PateError) as caught:
        pate_jax.run(**{**PARTS, **SETTINGS, "out": tmp_path / "run", **change})
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert not RunDirectory(tmp_path / "run").settings.exists()


def test_teachers_spend_epsilon_as_their_budget(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config: seen.append(config) or {})
    pate_jax.run(**PARTS, **SETTINGS | {"epsilon": 2.0, "voters": "teachers"}, teachers=7, out=tmp_path)
    (config,) = seen
    assert (config.budget_epsilon, config.epsilon, config.partition.teachers) == (None, 2.0, 7)


@pytest.mark.parametrize("voters", [None, "auto"])
def test_a_number_of_teachers_means_teachers_whatever_the_number(voters, tmp_path, monkeypatch):
    seen, usual = [], TEACHERS
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config: seen.append(config) or {})
    settings = SETTINGS | {"voters": voters}
    pate_jax.run(**PARTS, **settings, teachers=usual, out=tmp_path / "run")
    pate_jax.run(**PARTS, **settings, out=tmp_path / "other")
    assert [(config.who, config.partition.teachers) for config in seen] == [
        ("teachers", usual),
        (voters or "teachers", None),
    ]


def test_a_named_data_set_needs_no_frames(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("pate_jax.runs.pipeline.run", lambda config: seen.append(config) or {})
    monkeypatch.chdir(tmp_path)
    found = pate_jax.run(dataset="glyphs", records=50)
    assert found.directory == seen[0].directory and seen[0].data.dataset == "glyphs"
    assert seen[0].voters == "teachers"


@pytest.mark.parametrize("by", ["record", "user"])
def test_records_that_name_users_and_count_by_record_are_warned_of(tmp_path, capsys, by):
    private = {**PARTS["private"], "family": [f"f{31 * (row // 3) % 97}" for row in range(90)]}
    settings = {"label": "sick", "id": "key", "user": "family", "by": by, "voters": "sums", "seed": 3}
    pate_jax.run(**{**PARTS, "private": private}, **settings, out=tmp_path / "run")
    assert capsys.readouterr().err.count("Pass --by user (by='user' in Python)") == (by == "record")
