"""Which student a crowd has: the classifier of sums where it can be released, or not."""

import shutil
from dataclasses import replace

import honest_runs
import numpy as np
import pytest

from pate_jax.audit import retraining, verify
from pate_jax.audit.subject import Subject
from pate_jax.crowd import shares
from pate_jax.crowd.vectors import vectors
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.runs import ledger, pipeline
from pate_jax.runs.crowds import answers, steps
from pate_jax.runs.crowds.inputs import opened
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.release import check
from pate_jax.runs.settings import PartitionChoice, RunConfig
from pate_jax.runs.students import taught
from pate_jax.student import Auto, Linear, Ridge, Student, choice
from pate_jax.student.methods import METHODS
from pate_jax.system import headcount, storage

TABLE = honest_runs.table


def config(out, student, voters="sums", encoder=None, **more):
    given = {"epsilon": 4.0, "voters": voters, **more}
    return RunConfig(replace(TABLE(), encoder=encoder), PartitionChoice(), student=student, out=out, **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("linear") / "run"
    pipeline.run(config(out, Auto()))
    return RunDirectory(out)


def test_auto_is_the_classifier_of_sums_and_stands_every_check(run):
    assert storage.read_json(run.results, "results")["method"] == "linear"
    found = verify.of_run(run, deep=True)
    assert found.of("failed") == [] and found.of("unchecked") == []
    assert check.audit(run.release) == [] and verify.of_release(run.release).of("failed") == []
    assert "by the method linear" in (run.student / "MODEL_CARD.md").read_text()


def test_it_says_what_the_noisy_sums_say(run):
    crowd = opened(run)
    (_, rows), plan = answers.shares(crowd), crowd.plan
    said = Student.load(run.root)(crowd.dataset.public.inputs[rows])
    seen = vectors(plan.scaling, crowd.pool[rows][:, : len(plan.space.variances)])
    wanted = answers.classifier(crowd).judged(seen)
    np.testing.assert_allclose(said, wanted, atol=1e-3)
    assert (said.argmax(1) == wanted.argmax(1)).all()


def test_sums_are_read_by_the_number_of_voters_as_released_and_planned_by_it_rounded_down(run):
    """Rounded down it may be a tenth too small, and a rare class of two would have no share at all."""
    crowd = opened(run)
    (line,) = [one for one in ledger.releases(run.ledger) if isinstance(one.event, HeadCount)]
    number = int(ledger.unpack_table(line.values, (1, 1))[0, 0])
    assert crowd.counted == number and crowd.voting == headcount.coarse(number) <= number
    kept, values = steps.load_noisy(run)
    found = shares.of_sums(values, crowd.plan._replace(release=kept), crowd.pool, number)
    np.testing.assert_array_equal(answers.shares(crowd)[0].linear, found.linear)


def test_a_changed_parameter_is_found(run, tmp_path):
    shutil.copytree(run.root, tmp_path / "run")
    copy = RunDirectory(tmp_path / "run")
    path = copy.student / "parameters.npz"
    arrays = storage.read_arrays(path, "student-parameters")
    storage.write_arrays(path, "student-parameters", {**arrays, "dense0/bias": arrays["dense0/bias"] + 0.01})
    assert any("the student does not follow" in one for one in verify.of_run(copy, deep=True).of("failed"))


def test_a_run_whose_auto_was_another_method_is_verified_by_that_one(run, tmp_path):
    shutil.copytree(run.root, tmp_path / "run")
    copy = RunDirectory(tmp_path / "run")
    assert taught(copy) == Linear()
    results = storage.read_json(copy.results, "results")
    storage.write_json(copy.results, "results", {**results, "method": "ridge"})
    assert taught(copy) == Ridge()


def test_an_encoder_of_the_owner_is_refused_before_anything_and_auto_goes_on_without(tmp_path):
    with pytest.raises(PateError, match="would have to hold your encoder"):
        pipeline.run(config(tmp_path / "run", Linear(), encoder="numpy:ravel"))
    assert not (tmp_path / "run" / "private").exists() or not RunDirectory(tmp_path / "run").ledger.exists()
    pipeline.run(config(tmp_path / "other", Auto(), encoder="numpy:ravel"))
    assert storage.read_json(RunDirectory(tmp_path / "other").results, "results")["method"] == "ridge"


def test_methods_are_compared_on_answers_of_neighbours_once(tmp_path, monkeypatch):
    """Closed forms stand in for nets, which take seconds to compile."""
    stands_in = lambda config, keys, lesson, exam: METHODS["ridge"](Ridge(), keys, lesson)  # noqa: E731
    monkeypatch.setattr(choice, "NETS", {"supervised": stands_in, "vat": stands_in})
    wanted = config(tmp_path / "run", Auto(), "neighbours", queries=24)
    pipeline.run(wanted)
    copy = RunDirectory(tmp_path / "run")
    results, content = storage.read_json(copy.results, "results"), copy.results.read_bytes()
    assert [each["method"] for each in results["comparison"]] == ["ridge", "supervised", "vat"]
    judged = [each["answers"] for each in results["comparison"]]
    assert judged[0] == 24 and set(judged) <= {8, 16, 24}  # a net that is clearly worse is judged no further
    best = results["method"]  # which of the three that are one depends on the draw
    found = verify.of_run(copy, deep=True)
    assert found.of("failed") == [] == found.of("unchecked")
    assert any(f"the student learned by {best} follows from" in one for one in found.of("passed"))
    other = "vat" if best == "ridge" else "ridge"
    storage.write_json(copy.results, "results", {**results, "method": other})
    again = next(retraining.student_of_tables(Subject(copy)))
    assert again.outcome == "unchecked" and f"compared again {best} is better" in again.text
    copy.results.write_bytes(content)
    monkeypatch.setattr("pate_jax.runs.students.choose", None)  # a student that is there is not chosen again
    pipeline.run(wanted)
    assert copy.results.read_bytes() == content
