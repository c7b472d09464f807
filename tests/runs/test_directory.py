"""Run directories: one writer, settings that are obeyed, secrets drawn once."""

import dataclasses
import os
import stat
import subprocess
import sys

import pytest

from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory


def test_settings_are_recorded_and_obeyed(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.record.agree("partition", {"teachers": 5, "by": "record"})
    run.record.agree("partition", {"teachers": 5, "by": "record"})
    with pytest.raises(PateError, match="teachers=5, not 6"):
        run.record.agree("partition", {"teachers": 6, "by": "record"})
    run.record.agree("partition", {"teachers": 6, "by": "record"}, but_not=["teachers"])
    assert run.record.stages()["partition"]["teachers"] == 5


def test_private_secrets_differ_between_runs_and_last(tmp_path):
    first, second = RunDirectory(tmp_path / "a"), RunDirectory(tmp_path / "b")
    for run in (first, second):
        run.secret.draw(None)
    assert first.secret.derive("noise") != second.secret.derive("noise")
    assert first.secret.derive("noise") != first.secret.derive("partition")
    assert first.secret.derive("noise") == RunDirectory(tmp_path / "a").secret.derive("noise")
    assert first.secret.seed is None
    assert stat.S_IMODE(os.stat(first.keys).st_mode) == 0o600


def test_a_seed_makes_the_same_secrets(tmp_path):
    first, second, other = (RunDirectory(tmp_path / name) for name in "abc")
    for run, seed in ((first, 3), (second, 3), (other, 4)):
        run.secret.draw(seed)
    assert first.secret.derive("noise") == second.secret.derive("noise") != other.secret.derive("noise")
    with pytest.raises(PateError, match="seed=3, not None"):
        first.secret.draw(None)


def test_a_second_writer_is_refused_with_the_holders_number(tmp_path):
    run = RunDirectory(tmp_path / "run")
    script = (
        "import sys\nfrom pate_jax.errors import PateError\n"
        "from pate_jax.runs.directory import RunDirectory\n"
        "try:\n    with RunDirectory(sys.argv[1]).writing(): print('in')\n"
        "except PateError as error: print(error)"
    )
    command = [sys.executable, "-c", script, str(run.root)]
    with run.writing():
        refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"process {os.getpid()}" in refused
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "in\n"


def test_a_file_is_no_run_directory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PateError, match="is a file"):
        RunDirectory(tmp_path / "file")


def test_a_missing_stage_is_named(tmp_path):
    run = RunDirectory(tmp_path)
    with pytest.raises(PateError, match="run `pate vote` first"):
        run.existing(run.votes, "vote")


def test_a_run_directory_cannot_be_changed_under_a_stage(tmp_path):
    run = RunDirectory(tmp_path)
    for name in ("root", "votes", "settings"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(run, name, tmp_path / "elsewhere")


def test_a_stage_that_has_not_run_has_no_settings(tmp_path):
    run = RunDirectory(tmp_path)
    for name in ("data", "partition", "teacher", "student", "mechanism", "register"):
        with pytest.raises(PateError, match=rf"settings.json holds no settings of '{name}'"):
            getattr(run.record.read(), name)
    settings = run.record.read()
    assert settings.budget is settings.delta is settings.relation is None


def test_what_was_read_of_the_settings_stays_as_it_was_and_a_stage_can_be_forgotten(tmp_path):
    run = RunDirectory(tmp_path)
    run.record.agree("vote", {"queries": 5, "selection": "first"})
    before = run.record.read()
    run.record.agree("account", {"delta": 1e-5})
    run.record.revise({}, ["vote"])
    after = run.record.read()
    assert before.vote(1) == (5, "first", None, None) and before.delta is None
    assert "vote" not in after and after.delta == 1e-5
    run.record.agree("vote", {"queries": 6, "selection": "first"})
