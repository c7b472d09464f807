"""A run with linear teachers, from files to a student, stands every check; its teachers are made again."""

import json
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from commands import call

from pate_jax.audit.attacks import membership, replicas
from pate_jax.audit.attacks.attack import Flags
from pate_jax.ensemble import TeacherConfig
from pate_jax.runs import answers, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")


def with_features(folder):
    """The table of people with features beside the inputs, as an encoder of the owner's might make them."""
    files = {}
    for name in ("private", "public", "test"):
        with np.load(getattr(honest_runs.table(), name), allow_pickle=False) as file:
            arrays = dict(file)
        files[name] = folder / f"{name}.npz"
        np.savez(files[name], **arrays, features=np.tanh(arrays["inputs"][:, :3]))
    return DataChoice(**files)


@pytest.mark.long
@pytest.mark.parametrize("features", [False, True])
def test_a_run_with_linear_teachers_stands_every_check(tmp_path, capsys, features):
    config = honest_runs.by_teachers(
        tmp_path / "run",
        data=with_features(tmp_path) if features else honest_runs.table(),
        teacher=TeacherConfig(net="linear"),
    )
    results = pipeline.run(config)
    assert results["teachers"] == honest_runs.TEACHERS
    assert pipeline.run(replace(config)) == results
    capsys.readouterr()
    assert call("verify", tmp_path / "run", "--deep", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] == []
    assert "from its own shard and key alone, bit for bit" in json.dumps(told)
    repeated_in_memory(RunDirectory(tmp_path / "run"))


def repeated_in_memory(run):
    """The pipeline in memory votes as the run did, and attacks on it find no mistake."""
    made, promise = replicas.linear_teachers(run)
    labels, _ = made.labelled(np.ones(len(made.teacher_of), bool))
    stored = answers.load_asked(run)
    np.testing.assert_array_equal(labels, stored.teacher_labels)
    np.testing.assert_array_equal(made.votes(labels), stored.votes)
    published = storage.read_json(run.public_statement, "statement")["figures"]["data_independent"]
    assert promise.epsilon == published["epsilon"]
    assert all(one.holds for one in membership.ATTACK.attacked(run, Flags(shadows=40)).attacks)
