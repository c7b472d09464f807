"""A net of a user's own, named as package.module:Class: a whole run of it, and its source checked later."""

import sys
from pathlib import Path

import honest_runs
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
from pate_jax.sweep.runner import _teachers
from pate_jax.sweep.settings import SweepConfig

NETS = """
import dataclasses
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
