"""A released student in use: from its folder alone, by JAX and by NumPy, and what both refuse."""

import json
import shutil
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest

import pate_jax
from pate_jax import cli, data, models, voting
from pate_jax.data import Preprocessing
from pate_jax.data.columns import Column
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import write
from pate_jax.student import Student, Supervised, serving
from pate_jax.student.released import predict
from pate_jax.system import storage

NETS = {
    "mlp": ("mlp", (6, 5, 1), "tanh", {"hidden": (9, 7)}),
    "cnn": ("cnn", (9, 8, 2), "relu", {"maps": (3, 5), "hidden": (6,)}),
    "even": ("cnn", (8, 9, 1), "tanh", {"maps": (3,), "size": 2, "hidden": (6,)}),
    "pate2017": ("pate2017", (8, 9, 1), "relu", {"maps": (4, 6), "hidden": (7, 5)}),
    "resnet": (
        "resnet",
        (9, 11, 3),
        "tempered_sigmoid",
        {"maps": (8, 16), "scale": 1.5, "temperature": 3.0, "offset": 0.7},
    ),
    "square": ("resnet", (8, 8, 3), "relu", {"maps": (16, 16)}),
    "patches": ("patches", (7, 9, 2), "relu", {"kinds": 6, "size": 3, "cells": 3, "examples": 120}),
    "tandem": (
        "tandem",
        (7, 9, 1),
        "tanh",
        {"kinds": 6, "size": 3, "cells": 3, "examples": 110, "maps": (3, 5), "hidden": (6,)},
    ),
    "table": ("table", (7,), "tempered_sigmoid", {"hidden": (5, 4)}),
    "rows": ("rows", (7,), "relu", {"examples": 110}),
}
# Python that may not import these; NumPy is all that predict.py may use.
BLOCKED = ("jax", "jaxlib", "flax", "optax", "pate_jax", "scipy")


def student_of(name, dtype="uint8", temperature=1.7):
    net, shape, activation, settings = NETS[name]
    model = models.build(net, input_shape=shape, classes=4, activation=activation, **settings)
    rng = np.random.default_rng(sum(map(ord, name)))
    shapes = jax.eval_shape(model.init, jax.random.key(3))
    drawn = jax.tree.map(lambda leaf: _drawn(rng, leaf.shape), shapes)
    scaling = Preprocessing((100.0,), (90.0,))
    return Student(drawn, model.description, scaling, ("ant", "bee", "cat", "dog"), temperature, dtype)


def _drawn(rng, shape):
    """Kernels of about unit gain; scales and biases that differ from those of a fresh net."""
    if not shape:
        return np.float32(0.5 + rng.random())
    if len(shape) == 1:
        return (0.3 * rng.standard_normal(shape) + (0.5 if shape[0] % 8 == 0 else 0)).astype(np.float32)
    return (1.5 * rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def pixels(name, count=7):
    """Dark and bright noise, so that every net says different things."""
    rng, shape = np.random.default_rng(5), NETS[name][1]
    bright = rng.random((count,) + (1,) * len(shape))
    return (rng.integers(0, 256, (count, *shape)) * bright).astype(np.uint8)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A folder for each net, as it lies in a release, with predict.py beside it."""
    root = tmp_path_factory.mktemp("shelf")
    for name in NETS:
        student_of(name).save(root / name)
        (root / name / "predict.py").write_text(write.programs()["student/predict.py"])
        np.savez(root / name / "inputs.npz", inputs=pixels(name))
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run made from votes of elsewhere, and its student, with private/ taken away."""
    root = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (30, 8, 8, 1)).astype(np.uint8)
    labels = np.arange(30) % 3
    np.savez(root / "pool.npz", inputs=inputs, labels=labels)
    made = RunDirectory(root / "run")
    votes = np.eye(3, dtype=np.int64)[labels] * 20
    batches.adopt(made, voting.Votes(votes, None, None, None), seed=None, relation="record")
    batches.answer(made, DiscreteGaussianMax(2.0))
    stages.account(made, 1e-5)
    results = stages.teach(made, Supervised(net="mlp", steps=3), root / "pool.npz", root / "pool.npz")
    shutil.rmtree(made.private)
    return made, results, inputs


@pytest.mark.parametrize("name", NETS)
@pytest.mark.long
def test_numpy_agrees_with_jax(shelf, name):
    student, alone = Student.load(shelf / name), predict.load(shelf / name)
    inputs = pixels(name, 103)
    wanted = student(inputs)
    assert np.ptp(wanted, axis=0).max() > 0.02, "a net that says one thing tests nothing"
    np.testing.assert_allclose(alone(inputs), wanted, atol=1e-5)
    np.testing.assert_allclose(alone(inputs[:0]), wanted[:0])


@pytest.mark.long
def test_predict_py_needs_numpy_alone(shelf):
    """Each net's own predict.py, run from its folder, where importing JAX or pate_jax fails."""
    script = (
        f"import runpy, sys\nfor name in {BLOCKED!r}: sys.modules[name] = None\n"
        "for name in sys.argv[1:]:\n"
        "    sys.argv = [name, name + '/inputs.npz', '--out', name + '/labels.npz']\n"
        "    runpy.run_path(name + '/predict.py', run_name='__main__')\n"
    )
    subprocess.run([sys.executable, "-I", "-c", script, *NETS], cwd=shelf, check=True, capture_output=True)
    for name in NETS:
        found = storage.read_foreign_arrays(shelf / name / "labels.npz")
        wanted = Student.load(shelf / name)(pixels(name))
        np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-4)
        assert found["labels"].tolist() == found["class_names"][wanted.argmax(1)].tolist()


@pytest.mark.long
def test_a_wrong_parameter_would_be_noticed(shelf):
    student = Student.load(shelf / "resnet")
    student.parameters["block1"]["norm0"]["scale"] *= 1.05
    gap = np.abs(student(pixels("resnet")) - predict.load(shelf / "resnet")(pixels("resnet"))).max()
    assert gap > 1e-4


def test_temperature_softens_and_keeps_the_order():
    sharp, soft = (student_of("mlp", temperature=t)(pixels("mlp", 40)) for t in (1.0, 4.0))
    assert (sharp.argmax(1) == soft.argmax(1)).all()
    assert sharp.max(1).mean() > soft.max(1).mean() + 0.05
    ratio = np.log(sharp[:, 0] / sharp[:, 1]) / np.log(soft[:, 0] / soft[:, 1])
    np.testing.assert_allclose(ratio, 4, rtol=1e-3)


@pytest.mark.parametrize("place", ["", "release", "release/student"])
def test_a_student_is_served_without_any_private_file(run, place, tmp_path, capsys):
    made, results, inputs = run
    assert not made.private.exists()
    student = pate_jax.Student.load(made.root / place)
    assert student.accuracy(inputs, np.arange(30) % 3) == pytest.approx(results["student_accuracy"])
    np.savez(tmp_path / "new.npz", inputs=inputs[:4], ids=np.array(["p", "q", "r", "s"]))
    cli.main(["predict", str(made.root / place), str(tmp_path / "new.npz")])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "id,label,p_0,p_1,p_2" and [line[0] for line in lines[1:]] == list("pqrs")
    wanted = student(inputs[:4])
    assert [line.split(",")[1] for line in lines[1:]] == [
        student.class_names[best] for best in wanted.argmax(1)
    ]


def test_ten_predictions_are_shown_and_the_rest_is_named(run, tmp_path, capsys):
    made, _, inputs = run
    np.savez(tmp_path / "new.npz", inputs=inputs)
    cli.main(["predict", str(made.root), str(tmp_path / "new.npz")])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 11
    assert "and 20 more: --out predictions.csv writes all 30" in shown.err


def test_predictions_are_written_with_all_probabilities(run, tmp_path):
    made, _, inputs = run
    np.savez(tmp_path / "new.npz", inputs=inputs[:5, :, :, 0])  # the channel axis may be left out
    out = tmp_path / "found.npz"
    cli.main(["predict", str(made.root), str(tmp_path / "new.npz"), "--out", str(out)])
    found = storage.read_arrays(out, "predictions")
    np.testing.assert_allclose(found["probabilities"], Student.load(made.root)(inputs[:5]), atol=1e-6)
    assert found["labels"].shape == (5,) and set(found["labels"].tolist()) <= {"0", "1", "2"}


def test_the_released_predict_py_serves_the_run(run, tmp_path):
    made, _, inputs = run
    np.savez(tmp_path / "new.npz", inputs=inputs)
    command = [sys.executable, "-I", str(made.student / "predict.py"), str(tmp_path / "new.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    header, *lines = (line.split(",") for line in done.stdout.splitlines())
    student = Student.load(made.root)
    assert header == ["row", "label", "p_0", "p_1", "p_2"]
    assert [line[1] for line in lines] == [str(label) for label in student.predict(inputs[:10])]
    np.testing.assert_allclose(np.array(lines)[:, 2:].astype(float), student(inputs[:10]), atol=1e-5)
    assert "and 20 more: --out labels.csv writes all 30" in done.stderr


def asked_in_every_form(student, path, wanted):
    frame = pd.read_csv(path)
    forms = frame, frame.to_dict("list"), frame.assign(sick="no"), path, str(path)
    for inputs in forms:
        np.testing.assert_array_equal(student.predict_proba(inputs), wanted)
        assert student.predict(inputs).tolist() == student.classes_[wanted.argmax(1)].tolist()
    assert student.classes_.tolist() == ["no", "yes"]
    with pytest.raises(PateError, match="lacks the column 'gain'"):
        student.predict(frame.drop(columns="gain"))


@pytest.mark.parametrize(
    ("more", "ids"),
    [
        ((), ["a7", "b9"]),  # a column that is called as ids are, and differs in every row
        (("--id-column", "name"), ["Ada", "Bo"]),
        (("--id-column", "xy"), "has no column 'xy'; it"),
    ],
)
def test_predictions_carry_the_ids_of_a_table(tmp_path, capsys, more, ids):
    columns = (Column("age", filling=40.0), Column("gain"), Column("sex", ("f", "m")))
    model = models.build("table", input_shape=(4,), classes=2, hidden=())
    student = Student(
        model.init(jax.random.key(1)), model.description, Preprocessing((0.0,) * 4, (9.0,) * 4),
        ("no", "yes"), 1.0, "float32", columns,
    )  # fmt: skip
    student.save(tmp_path)
    rows = tmp_path / "new.csv"
    rows.write_text("gain,name,visit id,sex,age\n3,Ada,a7,m,33\n0,Bo,b9,unheard,\n")
    wanted = student.predict_proba(rows)
    for command in (cli.main, run_alone):
        out = tmp_path / "labels.csv"
        words = [*(["predict", str(tmp_path)] if command is cli.main else []), str(rows)]
        words += ["--out", str(out), *more, *(["--student", str(tmp_path)] if command is run_alone else [])]
        capsys.readouterr()
        if isinstance(ids, str):
            with pytest.raises(SystemExit):
                command(words)
            assert ids in capsys.readouterr().err
            continue
        command(words)
        told = capsys.readouterr().err
        assert "sex (1)" in told and "age (1" in told and "columns name, visit id" in told
        header, *lines = (line.split(",") for line in out.read_text().splitlines())
        assert header == ["id", "label", "p_no", "p_yes"] and [line[0] for line in lines] == ids
        np.testing.assert_allclose(np.array(lines)[:, 2:].astype(float), wanted, atol=1e-5)


def run_alone(words):
    """The command of the released predict.py, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["predict.py", *words])
        predict.main()


def test_a_table_of_text_is_encoded_as_in_training(tmp_path, capsys):
    (tmp_path / "mine.csv").write_text("id,age,sex,gain,sick\na,30,f,0,yes\nb,40,m,9,no\n")
    (tmp_path / "pool.csv").write_text("age,sex,gain,sick\n20,f,5,no\n60,m,7,yes\n31,x,0,no\n")
    own = data.from_files(tmp_path / "mine.csv", tmp_path / "pool.csv", label_column="sick", id_column="id")
    model = models.build("table", input_shape=(5,), classes=2)
    parameters = model.init(jax.random.key(1))
    columns = tuple(
        column._replace(logarithmic=True) if column.name == "gain" else column for column in own.columns
    )
    student = Student(
        parameters, model.description, own.preprocessing, own.class_names, 1.0, "float32", columns
    )
    student.save(tmp_path / "student")
    again = Student.load(tmp_path / "student")
    assert again.columns == columns
    # Another order of columns, one column that the student does not know, a category it does not know.
    (tmp_path / "new.csv").write_text("gain,name,sex,age\n3,Ada,m,33\n0,Bo,unheard,50\n")
    inputs, _ = serving.read_inputs(again, tmp_path / "new.csv")
    assert inputs.tolist() == [
        [33, 0, 1, 0, pytest.approx(np.log1p(3))],
        [50, 0, 0, 0, 0],
    ]
    told = capsys.readouterr().err
    assert "columns name" in told and "sex (1)" in told
    alone = predict.load(tmp_path / "student")
    np.testing.assert_allclose(alone(predict.read(tmp_path / "new.csv", alone)), again(inputs), atol=1e-5)
    told = capsys.readouterr().err
    assert "columns name" in told and "sex (1)" in told
    asked_in_every_form(again, tmp_path / "new.csv", again(inputs))
    for content, said in [
        ("sex,age\nm,3\n", "lacks the column 'gain'"),
        ("gain,sex,age\n3,m,old\n", "age='old' at row 0"),
        ("gain,sex,age\n-3,m,4\n", "gain="),
        ('gain,sex,age\n3,"m,4\n1,f,5\n', "not a CSV table"),
        ("gain,sex,age,age\n3,m,4,5\n", "names each column once"),
    ]:
        (tmp_path / "bad.csv").write_text(content)
        with pytest.raises(PateError, match=said):
            serving.read_inputs(again, tmp_path / "bad.csv")
        with pytest.raises(predict.InputError, match=said):
            predict.read(tmp_path / "bad.csv", alone)
    np.savez(tmp_path / "bad.npz", inputs=np.zeros((3, 5)), ids=np.array(["a", "b"]))
    with pytest.raises(predict.InputError, match=r"ids of shape \(2,\) for inputs of shape \(3, 5\)"):
        predict.read_named(tmp_path / "bad.npz", alone)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (np.zeros((2, 9, 9, 1), np.uint8), r"\(9, 9, 1\) each; this student takes \(6, 5, 1\)"),
        (np.zeros(30, np.uint8), "shape"),
        (np.array("text"), "give numbers"),
        (np.full((2, 6, 5, 1), np.nan, np.float32), "NaN or infinity"),
        (np.full((2, 6, 5, 1), 0.25, np.float32), "pixels from 0 to 255"),
        (np.full((2, 6, 5, 1), -3), "pixels from 0 to 255"),
        (np.full((2, 6, 5, 1), 1j), "give numbers"),
    ],
)
def test_inputs_that_cannot_be_meant_are_refused_by_both(shelf, inputs, said):
    with pytest.raises(PateError, match=said):
        Student.load(shelf / "mlp")(inputs)
    with pytest.raises(predict.InputError, match=said):
        predict.load(shelf / "mlp")(inputs)


def test_bad_files_end_in_one_sentence(shelf, tmp_path, capsys):
    (tmp_path / "broken.npz").write_bytes(b"PK nothing")
    np.savez(tmp_path / "other.npz", pictures=np.zeros(3))
    (tmp_path / "table.csv").write_text("a\n1\n")
    home = str(shelf / "mlp")
    for arguments, said in [
        ([home, str(tmp_path / "broken.npz")], "not a readable .npz"),
        ([home, str(tmp_path / "other.npz")], "no array 'inputs'; it holds pictures"),
        ([home, str(tmp_path / "table.csv")], "trained on arrays; give .npz"),
        ([home, str(tmp_path / "nowhere.npz")], "does not exist"),
        ([str(tmp_path), str(shelf / "mlp" / "inputs.npz")], "holds no student"),
        ([home, str(shelf / "mlp" / "inputs.npz"), "--out", "labels.txt"], "must end in .csv or .npz"),
    ]:
        with pytest.raises(SystemExit) as stopped:
            cli.main(["predict", *arguments])
        told = capsys.readouterr().err
        assert stopped.value.code == 2 and said in told and told.count("\n") == 1
    for name, said in [("broken", "not a readable"), ("other", "no array"), ("table", "give .npz")]:
        path = next(tmp_path.glob(f"{name}.*"))
        with pytest.raises(predict.InputError, match=said):
            predict.read(path, predict.load(home))


def test_damaged_students_are_refused(shelf, tmp_path):
    folder = tmp_path / "student"
    shutil.copytree(shelf / "mlp", folder)
    kept = (folder / "student.json").read_text()
    body = json.loads(kept)
    (folder / "student.json").write_text(json.dumps({**body, "preprocessing": {"offset": [0]}}))
    with pytest.raises(PateError, match="describes no student"):
        Student.load(folder)
    (folder / "student.json").write_text(json.dumps({**body, "net": {**body["net"], "hidden": [9, 8]}}))
    with pytest.raises(PateError, match="parameter dense1/"):
        Student.load(folder)(pixels("mlp"))


def test_a_student_saved_before_it_had_a_temperature_is_still_read(shelf, tmp_path):
    shutil.copytree(shelf / "mlp", tmp_path / "old")
    body = json.loads((tmp_path / "old" / "student.json").read_text())
    for name in ("temperature", "dtype", "columns"):
        body.pop(name)
    (tmp_path / "old" / "student.json").write_text(json.dumps(body))
    assert Student.load(tmp_path / "old").temperature == 1
    np.testing.assert_allclose(
        predict.load(tmp_path / "old")(pixels("mlp")),
        Student.load(tmp_path / "old")(pixels("mlp")),
        atol=1e-5,
    )
