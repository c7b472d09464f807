import json

import jax
import numpy as np
import pytest

from pate_jax import models
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student import Student, graph
from pate_jax.system import onnx

runtime = pytest.importorskip("onnxruntime")


def answers(content, inputs):
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return session.run([graph.OUTPUT], {graph.INPUT: inputs})[0], session


def student(net, **more):
    description = {"name": net, "classes": 3, **more}
    parameters = models.build(**description).init(jax.random.key(0))
    full = {"activation": "relu", **description}
    pixels = len(more["input_shape"]) == 3
    scaling = Preprocessing((0.0,), (255.0,)) if pixels else Preprocessing((1.0,), (2.0,))
    return Student(parameters, full, scaling, ("a", "b", "c"), 1.5, "uint8" if pixels else "float32")


@pytest.mark.parametrize("activation", ["relu", "tanh", "tempered_sigmoid"])
@pytest.mark.parametrize(("net", "shape"), [("mlp", (7,)), ("cnn", (9, 8, 1))])
def test_an_exported_net_answers_as_the_student_does(net, shape, activation):
    served = student(net, input_shape=shape, activation=activation)
    random = np.random.default_rng(0)
    some = random.integers(0, 256, (1000, *shape)).astype(np.uint8)
    some = some if len(shape) == 3 else random.normal(size=(1000, *shape)).astype(np.float32)
    found, session = answers(graph.write(served, {"privacy": "epsilon 1"}), some)
    assert np.abs(found - served(some)).max() < 1e-5
    said = session.get_modelmeta().custom_metadata_map
    assert json.loads(said["class_names"]) == ["a", "b", "c"] and said["privacy"] == "epsilon 1"
    assert found.tobytes() == answers(graph.write(served, {}), some)[0].tobytes()


@pytest.mark.parametrize(("width", "length"), [(1, 5), (6, 8000), (40, 979), (300, 60)])
def test_whole_numbers_are_those_of_predict_py(width, length):
    from pate_jax.student.released import predict

    made = onnx.Writer()
    made.named("y", graph._whole(made, "x", width, length))
    value = onnx.Value("x", "float32", ["n", width]), onnx.Value("y", "float32", ["n", width])
    content = onnx.model(made.nodes, value[:1], value[1:], made.tensors)
    random = np.random.default_rng(width)
    rows = random.normal(size=(500, width), scale=10 ** random.uniform(-1, 5, (500, 1))).astype(np.float32)
    rows[0], rows[1] = 0, 2.5
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(["y"], {"x": rows})
    assert (found == predict._whole(rows, length)).all()


def test_what_no_operation_covers_is_refused():
    with pytest.raises(PateError, match=r"which export does not write: use release/student/predict.py"):
        graph.write(student("resnet", input_shape=(8, 8, 3)), {})


def test_a_written_file_is_one_that_onnx_itself_accepts():
    checker = pytest.importorskip("onnx")
    content = graph.write(student("mlp", input_shape=(7,)), {})
    checker.checker.check_model(checker.load_from_string(content), full_check=True)
