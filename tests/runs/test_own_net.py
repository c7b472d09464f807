"""A net of a user's own, named as package.module:Class: a whole run of it, and its source checked later."""

import shutil
import sys
from pathlib import Path

import honest_runs
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import call

from pate_jax import models
from pate_jax.audit import retraining, verify
from pate_jax.audit.subject import Subject
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models import identity
from pate_jax.runs import pipeline, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data, teachers_net
from pate_jax.runs.parties.write import Asked
from pate_jax.runs.release import check
from pate_jax.runs.settings import RunConfig
from pate_jax.student import Own, Student, Supervised, exported
from pate_jax.sweep.runner import _teachers
from pate_jax.sweep.settings import SweepConfig
from pate_jax.system import storage

NETS = """
import dataclasses
import jax
from flax import linen, nnx

class Small(linen.Module):
    classes: int
    hidden: int = 4
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(self.classes)(linen.relu(linen.Dense(self.hidden)(inputs)))

class Dropped(nnx.Module):
    def __init__(self, in_features, num_classes, rate=0.1, *, rngs):
        self.last = nnx.Linear(in_features, num_classes, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)
    def __call__(self, inputs):
        return self.last(self.dropout(inputs))

class Asking(linen.Module):
    classes: int
    @linen.compact
    def __call__(self, inputs, mask):
        return linen.Dense(self.classes)(inputs * mask)

class Calling(linen.Module):
    classes: int
    @linen.compact
    def __call__(self, inputs):
        jax.debug.callback(print, inputs[0, 0])
        return linen.Dense(self.classes)(inputs)

def function():
    pass
"""
QUICK = {"epochs": 1, "min_steps": 3, "batch_size": 8, "devices": 1}


@pytest.fixture(scope="module", autouse=True)
def module(tmp_path_factory):
    """A module of the user's own, where Python finds it."""
    folder = tmp_path_factory.mktemp("nets")
    (folder / "my_small_nets.py").write_text(NETS)
    sys.path.insert(0, str(folder))
    yield folder / "my_small_nets.py"
    sys.path.remove(str(folder))
    sys.modules.pop("my_small_nets", None)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = TeacherConfig(net="my_small_nets:Small", net_args="hidden=5", **QUICK)
    found = pipeline.run(honest_runs.by_teachers(tmp_path_factory.mktemp("own") / "run", 3, teacher=config))
    return RunDirectory(Path(found["run_dir"]))


def checked(run):
    """Outcomes and texts of the checks that train and ask these teachers again."""
    subject = Subject(run, 2)
    return [
        (one.outcome, one.text)
        for check in (retraining.labels, retraining.teachers)
        for one in check(subject)
    ]


def test_a_run_records_its_source_and_is_verified(run):
    recorded = run.record.stages()["net"]
    assert recorded["name"] == "my_small_nets:Small" and "hidden=5" in recorded["arguments"]
    assert verify.of_run(run).of("failed") == []
    found = checked(run)
    assert {outcome for outcome, _ in found} == {"passed"}
    assert "the source of the net my_small_nets:Small is that of the training" in found[0][1]
    assert b"my_small_nets" not in b"".join(path.read_bytes() for path in run.release.glob("*.json"))


def test_a_changed_source_is_told_and_not_gone_on_with(run, module):
    before = module.read_text()
    module.write_text(before + "# changed\n")
    try:
        models.flax_nets._model.cache_clear()
        found = checked(run)
        assert found[0][0] == "unchecked" and "has changed since the training" in found[0][1]
        assert found[1][0] == "passed", "a remark changes no label"
        settings = run.record.read()
        with pytest.raises(PateError, match="was made with net setting source="):
            stages.begin(run, settings.data, settings.partition, settings.teacher)
    finally:
        module.write_text(before)
        models.flax_nets._model.cache_clear()


def test_a_class_is_given_what_the_data_say():
    dataset = open_data(honest_runs.table())
    config = TeacherConfig(net="my_small_nets:Dropped", net_args="rate=0.25")
    made = teachers_net(config, dataset).description
    assert made["arguments"] == "num_classes=3, in_features=4, rate=0.25"


REFUSED = {
    "no such module": ({"net": "no_such_nets:Small"}, "cannot be loaded .*set PYTHONPATH"),
    "no such class": ({"net": "my_small_nets:Large"}, "cannot be loaded"),
    "a function": ({"net": "my_small_nets:function"}, "no class of a module of flax"),
    "no net": ({"net": "cnm"}, "net='cnm' must be one of mlp"),
    "unknown arguments": ({"net": "my_small_nets:Small", "net_args": "depth=2"}, "depth"),
    "code": ({"net": "my_small_nets:Small", "net_args": "hidden=len('a')"}, "hidden is no number"),
    "no names": ({"net": "my_small_nets:Small", "net_args": "5"}, "each needs its name"),
    "no Python": ({"net": "my_small_nets:Small", "net_args": "hidden=("}, "must be like"),
    "arguments alone": ({"net_args": "hidden=5"}, "name it with --net"),
    "an activation": ({"net": "my_small_nets:Small", "activation": "tanh"}, "say it in --net-args"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_net_is_refused(case):
    settings, words = REFUSED[case]
    with pytest.raises(PateError, match=words):
        teachers_net(TeacherConfig(**settings), open_data(honest_runs.table()))


def test_arguments_go_with_own_nets_alone():
    with pytest.raises(PateError, match="net_args='hidden=5' is for a net of your own"):
        TeacherConfig(net="cnn", net_args="hidden=5")
    config = SweepConfig(nets=("table", "a.b:C"), teacher=TeacherConfig(net_args="hidden=5"))
    assert [(one.net, one.net_args) for one in _teachers(config)] == [("table", None), ("a.b:C", "hidden=5")]


def test_parties_run_no_code_that_another_names():
    with pytest.raises(PateError, match="the other parties would have to run"):
        Asked(net="my_small_nets:Small")


STUDENTS = {
    "linen": Own(net="my_small_nets:Small", net_args="hidden=6", steps=30, batch_size=8),
    "nnx": Own(net="my_small_nets:Dropped", net_args="rate=0.25", steps=30, batch_size=8),
}


@pytest.fixture(scope="module", params=STUDENTS)
def released(request, tmp_path_factory):
    """A run whose student is a net of one's own, and its settings."""
    folder = tmp_path_factory.mktemp("own") / "run"
    config = honest_runs.by_teachers(folder, 3, student=STUDENTS[request.param])
    return RunDirectory(Path(pipeline.run(config)["run_dir"])), config


def test_a_run_releases_its_own_student(released):
    run, config = released
    held = {path.relative_to(run.release).as_posix() for path in run.release.rglob("*.*")}
    assert {"student/parameters.safetensors", "student/program.stablehlo", "statement.json"} <= held
    assert not held & {"student/parameters.npz", "student/predict.py"}
    card = (run.student / "MODEL_CARD.md").read_text()
    assert config.student.net in card and "calling_convention" in card and jax.__version__ in card
    found = verify.of_run(run)
    assert found.of("failed") == []
    assert "release: the arrays are the parameters of one student" in found.of("passed")
    again = [(one.outcome, one.text) for one in retraining.student_again(Subject(run, 2))]
    assert [outcome for outcome, _ in again] == ["passed", "passed"]
    assert f"the source of the net {config.student.net} is that of the training" in again[0][1]


def test_the_card_says_how_it_is_asked_by_jax_alone(released, monkeypatch):
    run, _ = released
    card = (run.student / "MODEL_CARD.md").read_text()
    code = "\n".join(line[4:] for line in card.split("## Use")[1].splitlines() if line.startswith("    "))
    asked = open_data(honest_runs.table()).public.inputs
    monkeypatch.chdir(run.student)
    names = {"inputs": asked}
    exec(code, names)
    np.testing.assert_allclose(names["probabilities"], Student.load(run.root)(asked), rtol=1e-6)


def test_the_command_asks_it_without_its_module(released, monkeypatch, tmp_path):
    run, _ = released
    monkeypatch.setitem(sys.modules, "my_small_nets", None)  # as where nobody has it
    inputs, out = honest_runs.table().test, tmp_path / "labels.csv"
    call("predict", str(run.root), str(inputs), "--out", str(out))
    assert len(out.read_text().splitlines()) == 21


def test_what_a_program_or_its_arrays_hide_is_found(released, tmp_path):
    run, _ = released
    copy = tmp_path / "release"
    shutil.copytree(run.release, copy)
    private = open_data(honest_runs.table()).private.inputs
    kept = check.Secrets(inputs=lambda: [private])
    assert check.audit(copy, kept) == []
    path, student = copy / "student" / exported.PROGRAM, Student.load(copy)

    def hiding(tree, rows):
        return jnp.zeros((len(rows), 3)) + 0 * jnp.asarray(private[:9]).sum()

    parameters = jax.tree.map(np.asarray, student.parameters)
    storage.write_bytes(path, exported.program(hiding, parameters, (4,)).content)
    faults = check.audit(copy, kept)
    assert any("program.stablehlo" in fault and "9 private records" in fault for fault in faults)
    storage.write_bytes(path, student.program.content)
    arrays = exported.read_tensors(copy / "student" / exported.TENSORS)
    exported.write_tensors(copy / "student" / exported.TENSORS, {**arrays, "more": private[:3]})
    faults = check.audit(copy, kept)
    assert any("holds more of shape (3, 4), which the net has not" in fault for fault in faults)
    assert any("holds the inputs of 3 private records" in fault for fault in faults)


BAD_STUDENTS = {
    "unnamed": (Own(), "needs --student.net, your net as package.module:Class"),
    "no such class": (Own(net="my_small_nets:Large"), "cannot be loaded"),
    "other arguments": (Own(net="my_small_nets:Asking"), "also takes 'mask'"),
    "other classes": (Own(net="my_small_nets:Small", net_args="classes=4"), r"logits \[2, 3\] are wanted"),
    "the host": (Own(net="my_small_nets:Calling"), "cannot be exported|is no arithmetic"),
}


@pytest.mark.parametrize("case", BAD_STUDENTS)
def test_a_student_that_does_not_fit_is_refused_before_anything_is_spent(case, tmp_path):
    config, words = BAD_STUDENTS[case]
    with pytest.raises(PateError, match=words):
        pipeline.run(honest_runs.by_teachers(tmp_path / "run", 3, student=config))
    assert not RunDirectory(tmp_path / "run").ledger.exists()
    assert not RunDirectory(tmp_path / "run").teacher_report.exists()


def test_methods_and_nets_go_together():
    with pytest.raises(PateError, match=r"must be one of .* with method='own' your own"):
        Supervised(net="my_small_nets:Small")
    with pytest.raises(PateError, match="net='cnn' must be one of"):
        Own(net="cnn")
    with pytest.raises(PateError, match="leave out one of them"):
        RunConfig(student=Own(net="my_small_nets:Small"), learn_from_public_labels=True)


def test_the_command_takes_it(tmp_path):
    table = honest_runs.table()
    flags = [
        "--private",
        str(table.private),
        "--public",
        str(table.public),
        "--teachers",
        "5",
        "--epochs",
        "1",
    ]
    call(
        "train",
        *flags,
        "--net",
        "my_small_nets:Small",
        "--net-args",
        "hidden=3",
        "--out",
        str(tmp_path / "run"),
    )
    assert RunDirectory(tmp_path / "run").record.stages()["teacher"]["net_args"] == "hidden=3"


def test_named_classes_are_the_same_functions_each_time():
    """So that nothing is compiled again for them."""
    one, other = (identity.net_named("my_small_nets:Dropped", None, (4,), 3) for _ in range(2))
    assert models.model_of(one, (4,)) is models.model_of(other, (4,))
