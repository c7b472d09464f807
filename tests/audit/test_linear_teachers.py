"""A run with linear teachers, from files to a student, stands every check; its teachers are made again."""

import json
from dataclasses import replace

import honest_runs
import pytest
from commands import call

from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.runs import pipeline
from pate_jax.runs.settings import PartitionChoice, RunConfig


@pytest.mark.long
def test_a_run_with_linear_teachers_stands_every_check(tmp_path, capsys):
    config = RunConfig(
        data=honest_runs.table(),
        partition=PartitionChoice(teachers=honest_runs.TEACHERS, by="user"),
        teacher=TeacherConfig(net="linear"),
        student=honest_runs.STUDENT,
        queries=honest_runs.QUERIES,
        mechanism=ConfidentDiscreteGaussian(3.0, 3.0, 1.5),
        out=tmp_path / "run",
    )
    results = pipeline.run(config)
    assert results["teachers"] == honest_runs.TEACHERS
    assert pipeline.run(replace(config)) == results
    capsys.readouterr()
    assert call("verify", tmp_path / "run", "--deep", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["failed"] == []
    assert "from its own shard and key alone, bit for bit" in json.dumps(told)
