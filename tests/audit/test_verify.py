"""`pate verify`: honest runs pass, every finding has words, and nothing is written on the way."""

import json
import shutil

import honest_runs
import numpy as np
import pytest

from pate_jax import cli
from pate_jax.audit import retraining, verify
from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release.findings import Examination, examine, failed, passed, unchecked
from pate_jax.system import storage

RUNS = {
    "private": honest_runs.whole,
    "seeded": lambda: honest_runs.whole(7),
    "elsewhere": honest_runs.elsewhere,
    "budgeted": honest_runs.budgeted,
}


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main([str(argument) for argument in arguments])
    return ended.value.code


@pytest.mark.parametrize("name", RUNS)
def test_an_honest_run_passes(name):
    found = verify.of_run(RUNS[name]())
    assert found.of("failed") == []
    assert len(found.of("passed")) >= 12


def test_nothing_is_written(tmp_path):
    run = honest_runs.whole()

    def state():
        return {path: path.stat().st_mtime_ns for path in run.root.rglob("*")}

    before = state()
    verify.of_run(run)
    assert state() == before


def test_a_folder_of_a_refused_run_is_said_to_be_empty(tmp_path, capsys):
    (tmp_path / "run/private").mkdir(parents=True)
    (tmp_path / "run/private/.lock").touch()
    assert command("verify", tmp_path / "run") == 2
    assert "holds nothing yet: a run was refused, or stopped" in capsys.readouterr().err
    assert command("budget", tmp_path / "none") == 2
    assert "none does not exist: name the --out of a run" in capsys.readouterr().err


def test_votes_made_elsewhere_leave_open_what_cannot_be_known():
    found = verify.of_run(honest_runs.elsewhere())
    about = " ".join(found.of("unchecked"))
    for word in ("partition:", "fed:", "votes:"):
        assert word in about


@pytest.mark.long
def test_deep_makes_labels_teachers_and_student_again():
    found = verify.of_run(honest_runs.whole(), deep=True, retrained=2)
    assert found.of("failed") == []
    said = " ".join(found.of("passed"))
    for words in ("labels again", "its own shard and key alone", "public inputs and answers alone"):
        assert words in said


def test_a_teacher_that_saw_another_record_is_found():
    """Half a thousandth of another teacher's weights is enough."""
    mine, other = {"a": np.zeros((3, 2), np.float32)}, {"a": np.full((3, 2), 5e-4, np.float32)}
    assert retraining.compared(mine, mine, "teacher 1", "its shard").outcome == "passed"
    assert retraining.compared(mine, other, "teacher 1", "its shard").outcome == "failed"


def test_a_run_that_is_not_finished_is_open_and_not_failed(tmp_path):
    shutil.copytree(honest_runs.budgeted().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    for path in (run.statement, run.public_statement):
        path.unlink()
    found = verify.of_run(run)
    assert found.of("failed") == []
    assert any("run `pate account`" in text for text in found.of("unchecked"))


def test_a_private_statement_is_judged_also_where_none_was_published(tmp_path):
    run = RunDirectory(shutil.copytree(honest_runs.budgeted().root, tmp_path / "run"))
    run.public_statement.unlink()
    body = storage.read_json(run.statement, "statement")
    storage.write_json(run.statement, "statement", {**body, "asked": body["asked"] - 1})
    assert any("the private statement differs: asked" in one for one in verify.of_run(run).of("failed"))


@pytest.mark.parametrize("lost", ["votes", "ledger", "certificate", "answers", "keys", "settings"])
def test_a_lost_file_is_a_failure(tmp_path, lost):
    shutil.copytree(honest_runs.whole().root, tmp_path / "run")
    run = RunDirectory(tmp_path / "run")
    getattr(run, lost).unlink()
    assert verify.of_run(run).of("failed")


def test_no_run_is_refused(tmp_path):
    with pytest.raises(PateError, match="neither a run directory nor a release"):
        verify.at(tmp_path)


def test_the_command_speaks_to_people_and_programs(tmp_path, capsys):
    run = honest_runs.budgeted()
    assert command("verify", run.root) == 0
    text = capsys.readouterr().out
    assert "ok      budget" in text and "could not be checked." in text
    assert command("verify", run.root, "--strict") == 1
    capsys.readouterr()
    assert command("verify", run.root, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == [] and found["passed"] and found["unchecked"]
    shutil.copytree(run.root, tmp_path / "run")
    (tmp_path / "run" / "release" / "votes.npz").write_bytes(b"")
    assert command("verify", tmp_path / "run") == 1
    assert "FAILED  release      votes.npz is no part of a release" in capsys.readouterr().out


def test_a_check_that_meets_bad_input_fails_and_the_others_go_on():
    def broken():
        yield passed("begun")
        raise PateError("file=x is damaged; restore it")

    found = examine("demo", {"first": broken, "second": lambda: [unchecked("no file"), failed("wrong")]})
    assert isinstance(found, Examination)
    assert found.of("failed") == ["first: file=x is damaged; restore it", "second: wrong"]
    assert found.of("passed") == ["first: begun"]
    assert found.text().splitlines()[-1] == "1 passed, 2 failed, 1 could not be checked."
