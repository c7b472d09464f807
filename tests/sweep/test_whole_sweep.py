"""A sweep over teachers, queries, noise, seeds and students: rows, limits, interruption and the picture."""

import json

import jax
import numpy as np
import pytest

from pate_jax import accounting, data, student, voting
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.errors import PateError
from pate_jax.mechanisms import from_dict
from pate_jax.student import PublicInputs
from pate_jax.sweep import Grid, SweepConfig, cells, charts, results, students, sweep, vote_sources
from pate_jax.sweep import rows as judged

ONE_LIST = Grid(("gnmax",), ("4", "10"), queries=("40",))
TWO_SEEDS = {"values": ONE_LIST, "seeds": (0, 1), "students": ("ridge",), "selections": ("first",)}
GRID = Grid(("gnmax",), ("4", "10"), queries=("20", "40"))
FIGURES = ("data_independent", "published", "answered", "right", "student_accuracy")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of two classes that a line tells apart, as private, public and test part."""
    folder, random = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    for name, records in (("private", 300), ("public", 90), ("test", 80)):
        inputs = random.normal(size=(records, 3)).astype(np.float32)
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=(inputs[:, 0] + inputs[:, 1] > 0).astype(int))
    return {name: folder / f"{name}.npz" for name in ("private", "public", "test")}


def settings_of(files, out, **changes):
    """The settings of a sweep, changed here and there."""
    usual = {"out": out, "teachers": (25, 40), "nets": ("linear",), "values": GRID}
    learner = student.Supervised(net="table", steps=4)
    usual |= {"students": ("ridge", "supervised"), "student": learner}
    return SweepConfig(**files, **usual | changes)


@pytest.fixture
def told(files, tmp_path):
    """What makes the settings of a sweep in the folder of a test."""
    return lambda **changes: settings_of(files, **{"out": tmp_path / "sweep", **changes})


@pytest.fixture(scope="module")
def whole(files, tmp_path_factory):
    """What a sweep that was never interrupted found, and the figures that it drew."""
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "rendered", lambda figure, *_: figures.append(figure) or b"<svg/>")
        return sweep(settings_of(files, tmp_path_factory.mktemp("whole"), **TWO_SEEDS)), figures


def bare(rows):
    return {row["cell"]: {name: row[name] for name in FIGURES} for row in rows}


def of_students(rows):
    return [row for row in rows if row["student"]]


@pytest.mark.long
def test_every_combination_is_judged_and_the_figures_are_those_of_accounting_and_student(told, files):
    config = told()
    found = sweep(config)
    plain, taught = [row for row in found["rows"] if not row["student"]], of_students(found["rows"])
    assert len(plain) == 2 * 2 * 2 and {row["teachers"] for row in plain} == {25, 40}
    assert found["students"] == len(taught) > 4
    assert {row["student"] for row in taught} == {"ridge", "supervised"}
    assert {row["judged_on"] for row in found["rows"]} == {"private"}
    assert {(row["net"], row["selection"]) for row in found["rows"]} == {("linear", "kmeans")}
    for row in found["rows"]:
        votes = voting.load_votes(config.folder / "votes" / f"{row['votes']}.npz").votes
        assert votes.shape == (row["queries"], 2) and {*votes.sum(1)} == {row["teachers"]}
        stated = accounting.statement(
            from_dict(row["mechanism"]), votes, np.ones(len(votes), bool), row["delta"], private=True
        )
        assert row["data_independent"] == pytest.approx(stated.figures["data_independent"].epsilon, rel=1e-12)
    again_by_hand(config, files, next(row for row in taught if row["student"] == "ridge"))


def again_by_hand(config, files, row):
    """The student of a row learns from the row's answers and from all public inputs."""
    public, test = (np.load(files[name], allow_pickle=False) for name in ("public", "test"))
    votes = voting.load_votes(config.folder / "votes" / f"{row['votes']}.npz")
    asked = [int(name.rpartition("-")[2]) for name in votes.ids]
    mechanism = from_dict(row["mechanism"])
    cell = cells.Cell(row["source"], row["teachers"], mechanism, row["queries"], 1e-5, row["seed"])
    answers = judged.answers_to(mechanism, votes.votes, cell.words("noise"))
    np.testing.assert_array_equal(public["labels"][asked], votes.labels)
    assert row["right"] == (np.asarray(answers.labels) == votes.labels).sum()
    dataset = data.from_files(*files.values())
    pool = PublicInputs.of(dataset)
    order = [*asked, *np.setdiff1d(np.arange(len(public["inputs"])), asked)]
    learned = student.fit(
        jax.random.key(0), pool._replace(inputs=pool.inputs[order]), answers, student.Ridge()
    )
    right = (learned(test["inputs"]).argmax(1) == test["labels"]).mean()
    assert row["student_accuracy"] == pytest.approx(right, abs=1e-6)


@pytest.mark.long
def test_an_interrupted_sweep_goes_on_where_it_was_and_ends_with_the_same_bits(told, whole, monkeypatch):
    trained, real = [], students.measures

    def counted(*arguments):
        if len(trained) == 2:
            trained.append(None)
            raise KeyboardInterrupt
        trained.append(arguments[3])
        return real(*arguments)

    monkeypatch.setattr(students, "measures", counted)
    config = told(**TWO_SEEDS)
    with pytest.raises(KeyboardInterrupt):
        sweep(config)
    rows = results.read(config.folder).values()
    assert len(rows) == 8 + 2
    first = {path: path.stat().st_mtime_ns for path in config.folder.glob("teachers/*/private/*.npz")}
    found = sweep(config)
    assert {path: path.stat().st_mtime_ns for path in first} == first, "teachers voted again"
    assert len(trained) == 1 + found["students"] and found["done_before"] == 10
    assert sweep(config)["done_before"] == found["cells"] and len(trained) == 1 + found["students"]
    assert bare(whole[0]["rows"]) == bare(found["rows"])


def test_the_picture_has_a_line_for_each_number_of_teachers_of_means_over_seeds(whole):
    found, figures = whole
    picture = next(figure.axes[0] for figure in figures if "publishable" in figure.axes[0].get_xlabel())
    lines = {line.get_label(): line for line in picture.lines}
    assert set(lines) == {"25 teachers", "40 teachers"}
    assert "student" in picture.get_ylabel()
    for teachers in (25, 40):
        means = {}
        for row in of_students(found["rows"]):
            if row["teachers"] == teachers:
                key = row["data_independent"], json.dumps(row["mechanism"]), row["queries"]
                means.setdefault(key, []).append(100 * row["student_accuracy"])
        assert {len(draws) for draws in means.values()} == {2}
        best = max(np.mean(draws) for draws in means.values())
        epsilons, accuracies = lines[f"{teachers} teachers"].get_data()
        assert max(accuracies) == pytest.approx(best) and list(accuracies) == sorted(accuracies)
        assert set(epsilons) <= {key[0] for key in means}
    assert (found["picture"], found["folder"]) == (f"{found['folder']}/plots/accuracy.svg", found["folder"])


def test_students_can_be_limited_and_the_most_promising_settings_come_first(told, monkeypatch):
    asked = []
    monkeypatch.setattr(
        students, "measures", lambda *given: asked.append(len(given[2].labels)) or {"student_accuracy": 0.5}
    )
    few = sweep(told(values=ONE_LIST, most_students=5))
    assert few["students"] == len(asked) == 4, "two settings with two students each; a fifth has no partner"
    every = sweep(told(values=ONE_LIST))
    assert every["students"] > 4 and every["done_before"] == 4 + 4
    with pytest.raises(PateError, match="most_students=0 must be at least 1"):
        told(most_students=0)


@pytest.mark.parametrize(("name", "wishes"), [("gnmax", (1, 4)), ("confident-gnmax", (2,))])
def test_noise_is_fitted_to_wished_epsilons(name, wishes):
    wished = Grid((name,), epsilons=tuple(map(str, wishes)), thresholds=("0.6T",))
    asked = wished.asked(30, 2, [20, 40], 1e-5)
    assert [queries for _, queries in asked] == [20, 40] * len(wishes)
    for (mechanism, queries), wish in zip(asked, np.repeat(wishes, 2), strict=True):
        figure = WorstCase(mechanism, [30], 2).figure(np.array([queries]), 1e-5).epsilon.epsilon
        assert 0.85 * wish < figure <= wish


@pytest.mark.long
def test_all_ensembles_are_asked_the_same_lists_and_a_list_of_first_inputs_begins_a_longer_one(told):
    config = told(students=(), selections=("first", "kmeans"), seeds=(0,))
    rows = sweep(config)["rows"]
    kept = {path.stem: voting.load_votes(path) for path in (config.folder / "votes").glob("*.npz")}
    lists = {(row["selection"], row["queries"], row["teachers"]): kept[row["votes"]].ids for row in rows}
    assert {len(ids) for (selection, _, _), ids in lists.items() if selection == "first"} == {40}
    for selection in ("first", "kmeans"):
        for queries in (20, 40):
            few, more = (lists[selection, queries, teachers].tolist() for teachers in (25, 40))
            assert few == more
    assert len(lists["kmeans", 20, 25]) == 20 and len(kept) == 2 * 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": ()}, r"seeds=\(\) must be numbers from 0"),
        ({"seeds": (-1,)}, r"seeds=\(-1,\) must be numbers from 0"),
        ({"teacher": vote_sources.TeacherConfig(net="mlp")}, "--net mlp and --nets were both given"),
    ],
)
def test_settings_that_make_no_sense_are_refused(told, changes, message):
    with pytest.raises(PateError, match=message):
        told(**changes)
