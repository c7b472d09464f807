"""A whole run on a tiny data set: what it leaves behind, what a second call does, and what a seed means."""

import json
import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest
from test_release import first_line

from pate_jax.audit import verify
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax
from pate_jax.runs import batches, ledger, pipeline
from pate_jax.runs.answers import load_answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student import Auto, Student
from pate_jax.system import storage

SEED, CHANCE = 7, (3.0, 3.0, 1.5)


def tiny(out, seed=SEED, **changes):
    return honest_runs.by_teachers(out, seed, **changes)


def copied(folder, seed):
    """A run that may be changed, and its results."""
    shutil.copytree(honest_runs.whole(seed).root, folder / "run")
    return RunDirectory(folder / "run"), pipeline.run(tiny(folder / "run", seed))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("seeded"), SEED)


@pytest.fixture(scope="module")
def private(tmp_path_factory):
    return copied(tmp_path_factory.mktemp("private"), None)


def files_of(folder):
    return {
        path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"
    }


def test_results_hold_together(finished):
    run, results = finished
    votes = storage.read_arrays(run.votes, "votes")
    answers = load_answers(run)
    assert results["teachers"] == 6 and results["queries"] == 18
    assert votes["votes"].shape == (18, 3) and (votes["votes"].sum(1) == 6).all()
    assert results["answered"] == answers.answered.sum() > 0
    assert ((answers.labels == -1) == ~answers.answered).all()
    figures = results["statement"]["figures"]
    assert set(figures) == {"exact", "pld", "published", "data_independent", "sanitised"}
    assert figures["exact"]["status"] == figures["published"]["status"] == "sensitive"
    assert figures["data_independent"]["status"] == "publishable"
    assert figures["exact"]["epsilon"] <= figures["data_independent"]["epsilon"]


def test_the_ledger_has_the_answers(finished):
    run, _ = finished
    (line,) = ledger.read(run.ledger)
    answers = load_answers(run)
    labels, answered = ledger.unpack(line.values)
    assert labels.tolist() == answers.labels.tolist()
    assert answered.tolist() == answers.answered.tolist()
    assert line.event.asked == 18


@pytest.mark.long
def test_a_second_call_repeats_nothing(finished):
    run, results = finished
    keep = [run.teacher_report, run.certificate, run.votes, run.ledger, run.student / "parameters.npz"]
    before = {path: path.stat().st_mtime_ns for path in keep}
    assert pipeline.run(tiny(run.root)) == results
    assert {path: path.stat().st_mtime_ns for path in keep} == before


def test_a_changed_setting_is_refused_by_name(finished):
    run, _ = finished
    with pytest.raises(PateError, match="queries=18, not 22"):
        pipeline.run(tiny(run.root, queries=22))
    with pytest.raises(PateError, match="teachers=6, not 4"):
        pipeline.run(tiny(run.root, partition=PartitionChoice(teachers=4, by="user", seed=SEED)))
    with pytest.raises(PateError, match="seed=7, not None"):
        pipeline.run(tiny(run.root, partition=PartitionChoice(teachers=6, by="user")))
    with pytest.raises(PateError, match=r"sigma=1\.5, not 0\.75"):
        pipeline.run(tiny(run.root, mechanism=ConfidentDiscreteGaussian(3.0, 3.0, 0.75)))


@pytest.mark.long
def test_the_same_seed_gives_the_same_run(finished, tmp_path):
    run, _ = finished
    again = RunDirectory(tmp_path / "again")
    pipeline.run(tiny(again.root))
    assert run.answers.read_bytes() == again.answers.read_bytes()
    first, second = (
        storage.read_arrays(each.student / "parameters.npz", "student-parameters") for each in (run, again)
    )
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_too_many_queries_are_refused_before_the_teachers_are_trained(tmp_path):
    with pytest.raises(PateError, match=r"queries=\d+ is more than the \d+ different public inputs"):
        pipeline.run(tiny(tmp_path, queries=10**6))
    assert not RunDirectory(tmp_path).certificate.exists()


def test_a_lost_answers_file_comes_back_from_the_ledger_without_a_new_charge(finished):
    run, _ = finished
    before = run.answers.read_bytes()
    run.answers.unlink()
    batches.answer(run, ConfidentDiscreteGaussian(*CHANCE))
    assert run.answers.read_bytes() == before
    assert len(ledger.read(run.ledger)) == 1


def test_other_votes_are_not_answered_in_a_run_that_has_answered(private):
    run, _ = private
    kept = run.votes.read_bytes()
    votes = storage.read_arrays(run.votes, "votes")
    storage.write_arrays(run.votes, "votes", {"votes": np.roll(votes["votes"], 1, axis=0)})
    with pytest.raises(PateError, match="has answered other votes"):
        batches.answer(run, ConfidentDiscreteGaussian(*CHANCE))
    storage.write_bytes(run.votes, kept)


def test_noise_belongs_to_one_list_of_votes(private):
    run, _ = private
    assert run.secret.commitment("a") != run.secret.commitment("b")


def test_a_seeded_run_says_not_private_in_everything_it_releases(finished):
    run, _ = finished
    assert "NOT PRIVATE" in storage.read_json(run.public_statement, "statement")["warning"]
    assert "NOT PRIVATE" in first_line((run.student / "MODEL_CARD.md").read_text())
    assert "NOT PRIVATE" in run.public_report.read_text()
    assert "NOT PRIVATE" in run.report.read_text()


def test_a_private_run_does_not(private):
    run, _ = private
    for path in (run.public_statement, run.student / "MODEL_CARD.md", run.public_report):
        assert "NOT PRIVATE" not in path.read_text()


def test_private_runs_draw_fresh_noise(private, tmp_path):
    run, _ = private
    other = RunDirectory(tmp_path / "other")
    other.secret.draw(None)
    votes = np.full((400, 10), 5)
    line = ledger.read(run.ledger)[0]
    line = line._replace(event=replace(line.event, mechanism=DiscreteGaussianMax(3.0)))
    first, second = (np.asarray(batches.draw(each, line, votes).labels) for each in (run, other))
    assert 0.02 < (first == second).mean() < 0.25  # one in ten by chance


def test_the_release_holds_only_what_may_leave(private):
    run, results = private
    assert check.audit(run.release) == []
    published = storage.read_json(run.public_statement, "statement")
    assert set(published["figures"]) == {"data_independent"}
    text = " ".join(path.read_text() for path in run.release.rglob("*.*") if path.suffix != ".npz")
    exact = results["statement"]["figures"]["exact"]["epsilon"]
    key = run.secret.derive("partition").hex()
    for secret in (f"{exact:.4f}", str(run.root), "private-entry", "patient-", key):
        assert secret not in text
    assert Student.load(run.student).accuracy  # it can be served from there


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda folder: (folder / "votes.npz").write_bytes(b""), "votes.npz is no part"),
        (lambda folder: (folder / "student" / "notes.txt").write_text("x"), "notes.txt is no part"),
        (lambda folder: (folder / "report.html").write_text("sensitive"), "speaks of 'sensitive'"),
    ],
)
def test_the_audit_finds_what_was_planted(private, tmp_path, plant, said):
    run, _ = private
    folder = tmp_path / "release"
    shutil.copytree(run.release, folder)
    plant(folder)
    assert any(said in finding for finding in check.audit(folder))
    with pytest.raises(PateError, match="must not be handed over"):
        check.check(folder)


def test_the_audit_finds_teachers_among_the_parameters(private, tmp_path):
    run, _ = private
    folder = tmp_path / "release"
    shutil.copytree(run.release, folder)
    arrays = storage.read_arrays(folder / "student" / "parameters.npz", "student-parameters")
    name = next(iter(arrays))
    stacked = {**arrays, name: np.stack([arrays[name]] * 6)}
    storage.write_arrays(folder / "student" / "parameters.npz", "student-parameters", stacked)
    assert any(name in finding for finding in check.audit(folder))


def test_the_audit_finds_a_sensitive_figure(private, tmp_path):
    run, _ = private
    folder = tmp_path / "release"
    shutil.copytree(run.release, folder)
    storage.write_bytes(folder / "statement.json", run.statement.read_bytes())
    assert any("sensitive figure 'exact'" in finding for finding in check.audit(folder))


def test_verify_finds_nothing_in_an_honest_run(private, finished):
    for run, _ in (private, finished):
        assert not any(verify.verify(run).values()), verify.verify(run)


def test_verify_finds_an_edited_statement(private):
    run, _ = private
    kept = run.public_statement.read_text()
    body = json.loads(kept)
    body["figures"]["data_independent"]["epsilon"] /= 2
    run.public_statement.write_text(json.dumps(body))
    found = verify.verify(run)
    run.public_statement.write_text(kept)
    assert found["statement"] and not found["ledger"] and not found["votes"] and not found["partition"]


def test_verify_finds_edited_answers_and_votes(private):
    run, _ = private
    kept = run.answers.read_bytes(), run.votes.read_bytes()
    answers = storage.read_arrays(run.answers, "answers")
    storage.write_arrays(run.answers, "answers", {**answers, "labels": np.roll(answers["labels"], 1)})
    assert verify.verify(run)["ledger"]
    storage.write_bytes(run.answers, kept[0])
    votes = storage.read_arrays(run.votes, "votes")
    storage.write_arrays(run.votes, "votes", {**votes, "votes": np.roll(votes["votes"], 1, axis=1)})
    found = verify.verify(run)
    storage.write_bytes(run.votes, kept[1])
    assert found["votes"] and found["ledger"]


def test_verify_finds_a_partition_with_another_key(private):
    run, _ = private
    kept = run.certificate.read_bytes()
    certificate = storage.read_json(run.certificate, "certificate")
    certificate["shards"][0]["records"] += 1
    storage.write_json(run.certificate, "certificate", certificate)
    found = verify.verify(run)
    storage.write_bytes(run.certificate, kept)
    assert found["partition"]


def test_settings_are_plain_json():
    for choice in (DataChoice(), PartitionChoice(), TeacherConfig(), Auto()):
        assert json.loads(json.dumps(to_settings(choice))) == to_settings(choice)
