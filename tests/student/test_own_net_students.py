"""Students of a user's own nets: they learn, are written with a program, and are found again by name."""

import json
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import own_nets
import pytest
import tiny_teachers as tiny
from flax import linen

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError, PateWarning
from pate_jax.models import identity
from pate_jax.student import PublicInputs, Student, exported, graph
from pate_jax.system import storage

NAMES = ("low", "middle", "high")
SCALE = Preprocessing((0.0,), (1.0,))


def public(images, shown=True):
    return PublicInputs(images, SCALE, 3, NAMES, shown)


def answers(labels, every=7):
    """All inputs are asked about, and one of `every` is refused."""
    return Answers(labels, np.arange(len(labels)) % every != 0)


@pytest.fixture(scope="module")
def batch_normed():
    images, labels = tiny.images(records=150)
    return student.fit_net(
        own_nets.NETS["linen_batch_norm"],
        public(images),
        answers(labels),
        key=jax.random.key(1),
        tx=optax.adam(0.01),
        steps=150,
        batch_size=32,
        hold_out=0.2,
    )


@pytest.fixture(scope="module")
def folder(batch_normed, tmp_path_factory):
    place = tmp_path_factory.mktemp("student")
    batch_normed.save(place)
    return place


def test_it_learns_from_answers_and_keeps_its_statistics(batch_normed):
    asked, truth = tiny.images(records=200, seed=5)
    assert (batch_normed.predict(asked) == np.array(NAMES)[truth]).mean() > 0.9
    mean = batch_normed.parameters["state"]["batch_stats"]["BatchNorm_0"]["mean"]
    assert np.abs(mean).max() > 0, "those of training, moved from zero"
    assert 0.2 <= batch_normed.temperature <= 5 and batch_normed.temperature != 1


def test_it_is_found_again_by_its_module_or_its_name(batch_normed, folder):
    asked = tiny.images(records=40, seed=6)[0]
    for net in (own_nets.NETS["linen_batch_norm"], "own_nets:BatchNormed"):
        again = Student.load(folder, net=net)
        assert np.array_equal(again(asked), batch_normed(asked))
        assert again.class_names == NAMES and again.temperature == batch_normed.temperature


def test_its_program_says_the_same_of_any_number_of_inputs(batch_normed, folder):
    served = Student.load(folder)
    for count in (1, 5, 33):
        asked = tiny.images(records=count, seed=6)[0]
        np.testing.assert_allclose(served(asked), batch_normed(asked), rtol=1e-5, atol=1e-6)
    assert served.predict(asked).tolist() == batch_normed.predict(asked).tolist()
    told = storage.read_json(folder / "student.json", "student")["net"]["program"]
    assert told["jax"] == jax.__version__ and {"cpu", "cuda"} <= set(told["platforms"])


def test_nothing_is_imported_unless_the_user_names_it(folder, monkeypatch):
    monkeypatch.setattr(identity.importlib, "import_module", lambda name: pytest.fail(f"imported {name}"))
    Student.load(folder)(tiny.images(records=1)[0])


def test_a_student_by_its_program_is_saved_again_as_it_is(folder, tmp_path):
    Student.load(folder).save(tmp_path)
    assert {path.name for path in folder.iterdir()} == {"student.json", exported.TENSORS, exported.PROGRAM}
    assert all((tmp_path / path.name).read_bytes() == path.read_bytes() for path in folder.iterdir())


def test_its_program_names_no_file(folder):
    content = (folder / exported.PROGRAM).read_bytes()
    assert b".py" not in content and str(Path(exported.__file__).parents[2]).encode() not in content


def test_constants_of_a_program_are_found():
    hidden = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    small = np.array([5, 250, 7], np.uint8)

    def held(tree, rows):
        return rows @ jnp.asarray(hidden) + tree["bias"] + jnp.asarray(small).sum()

    made = exported.program(held, {"bias": np.zeros(40, np.float32)}, (3,))
    text, found = exported.constants(made.text)
    assert all(any(np.array_equal(one, array) for one in found) for array in (hidden, small))
    assert 'dense<"' not in text and "dense<[" not in text


def test_another_source_is_told(folder, tmp_path):
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    body = json.loads((tmp_path / "student.json").read_text())
    body["net"]["source"] = "0" * 16
    storage.write_json(tmp_path / "student.json", "student", body)
    with pytest.warns(PateWarning, match="the source of own_nets:BatchNormed is not that of the training"):
        Student.load(tmp_path, net="own_nets:BatchNormed")


@pytest.mark.filterwarnings("ignore:the source of own_nets")
def test_another_net_is_refused(folder):
    with pytest.raises(PateError, match="is in the file or in the net, and not in both"):
        Student.load(folder, net=partial(own_nets.Dropped, 64, 3))


@pytest.mark.parametrize("name", ["nnx_dropout", "linen_attention"])
def test_other_nets_have_programs_too(name, tmp_path):
    images, labels = tiny.images(records=20)
    settings = {"key": jax.random.key(0), "steps": 2, "batch_size": 4, "tx": optax.sgd(0.01)}
    made = student.fit_net(own_nets.NETS[name], public(images), answers(labels), **settings)
    made.save(tmp_path)
    np.testing.assert_allclose(Student.load(tmp_path)(images), made(images), rtol=1e-5, atol=1e-6)
    assert np.array_equal(Student.load(tmp_path, net=own_nets.NETS[name])(images), made(images))


def test_the_arrays_are_safetensors(folder, tmp_path):
    oracle = pytest.importorskip("safetensors.numpy")
    ours, theirs = (
        exported.read_tensors(folder / exported.TENSORS),
        oracle.load_file(folder / exported.TENSORS),
    )
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    arrays = {
        "b": np.arange(6, dtype=np.int64).reshape(2, 3),
        "a": np.array(3, "f4"),
        "none": np.zeros((0, 2), "u1"),
    }
    oracle.save_file(arrays, tmp_path / "theirs")
    found = exported.read_tensors(tmp_path / "theirs")
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())


@pytest.mark.parametrize("place", [0, 9, 40, -1])
def test_a_damaged_file_of_arrays_is_refused(folder, tmp_path, place):
    content = bytearray((folder / exported.TENSORS).read_bytes())
    damaged = content[:place] if place == -1 else content[:place] + b"\xff" + content[place + 1 :]
    (tmp_path / "damaged").write_bytes(damaged)
    with pytest.raises(PateError, match="no file of safetensors"):
        exported.read_tensors(tmp_path / "damaged")


def test_a_program_that_calls_the_host_is_refused():
    def spying(parameters, inputs):
        jax.debug.callback(print, inputs[0, 0])
        return inputs * parameters["scale"]

    with pytest.raises(PateError, match=r"which is no arithmetic|cannot be exported"):
        exported.program(spying, {"scale": np.ones(3, np.float32)}, (3,))
    text = "stablehlo.custom_call @xla_ffi_python_cpu_callback(%0) {api_version = 4 : i32}"
    with pytest.raises(PateError, match="calls xla_ffi_python_cpu_callback, which is no arithmetic"):
        exported._check_calls(text, exported.PROGRAM)


def test_what_safetensors_cannot_hold_is_refused_before_training():
    with pytest.raises(
        PateError, match=r"scale is of type complex64, which parameters\.safetensors cannot hold"
    ):
        exported.program(lambda tree, rows: rows, {"scale": np.ones(3, np.complex64)}, (3,))


def as_onnx(student, folder, out, asked):
    return graph.export(student, folder, out, folder, asked, student(asked))


def test_onnx_is_made_from_the_module_alone_and_by_a_converter(folder, tmp_path, monkeypatch):
    asked, out = tiny.images(records=20)[0], tmp_path / "student.onnx"
    with pytest.raises(PateError, match=r"own_nets:BatchNormed, code .* name it \(--net package"):
        as_onnx(Student.load(folder), folder, out, asked)
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(PateError, match="`pip install jax2onnx`, or use program"):
        as_onnx(Student.load(folder, net="own_nets:BatchNormed"), folder, out, asked)
    assert not out.exists()


@pytest.mark.parametrize("name", own_nets.NETS)
def test_the_converter_takes_these_nets(name, tmp_path):
    pytest.importorskip("jax2onnx")
    images, labels = tiny.images(records=20)
    settings = {"key": jax.random.key(0), "steps": 2, "batch_size": 4, "tx": optax.sgd(0.01)}
    made = student.fit_net(own_nets.NETS[name], public(images), answers(labels), **settings)
    made.save(tmp_path)
    said = as_onnx(made, tmp_path, tmp_path / "student.onnx", images)
    assert "100.00% of the labels are the same" in said and (tmp_path / "student.onnx").exists()


def rows():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(60, 4)).astype(np.float32)
    return inputs, (inputs[:, 0] > 0).astype(np.int32)


def fit_rows(net=None, **more):
    inputs, labels = rows()
    usual = {"key": jax.random.key(0), "steps": 40, "tx": optax.sgd(0.5)}
    return student.fit_net(net or linen.Dense(3), public(inputs), answers(labels), **{**usual, **more})


@pytest.mark.filterwarnings("ignore:no answer names")
def test_a_loss_and_an_augmentation_of_ones_own_are_used():
    inputs, labels = rows()
    names = np.array(NAMES)[labels]
    usual = fit_rows()
    turned = fit_rows(augment=lambda key, row: -row)
    still = fit_rows(loss=lambda logits, labels: 0.0 * logits[:, 0])
    assert (usual.predict(inputs) == names).mean() > 0.9 > 0.2 > (turned.predict(inputs) == names).mean()
    assert np.array_equal(still.parameters["params"]["bias"], np.zeros(3))
    assert np.array_equal(fit_rows().parameters["params"]["bias"], usual.parameters["params"]["bias"])


def nan(logits, labels):
    return jnp.nan * logits[:, 0]


BAD = {
    "classes": ({"net": linen.Dense(4)}, r"gives an array \[2, 4\] for 2 inputs; logits \[2, 3\]"),
    "no number": ({"loss": nan}, "loss is nan after 40 steps: lower its learning rate"),
    "no steps": ({"steps": 0}, "steps=0 must be"),
    "no net": ({"net": "cnn"}, "net is a str"),
    "no arguments": ({"net": partial(own_nets.Dropped, 4)}, "cannot be made"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("ignore:no answer names")
def test_what_cannot_be_a_student_is_refused(case):
    settings, words = BAD[case]
    with pytest.raises(PateError, match=words):
        fit_rows(**settings)
