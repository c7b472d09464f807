"""Teachers of several labels: how far one record moves their one table, and that a run of them is checked."""

import csv
import itertools
import json
import math
import shutil
import subprocess
import sys

import commands
import numpy as np
import pytest
import test_labels

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.audit import methods as audit_methods
from pate_jax.audit import verify
from pate_jax.crowd import numbers, scaling, vectors
from pate_jax.data import Dataset, Part, labels, partition
from pate_jax.data.dataset import AS_STORED
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import TeacherVotes
from pate_jax.models import spaces
from pate_jax.runs import ledger, methods, pipeline, stages
from pate_jax.runs.directory import RunDirectory, kind_of
from pate_jax.runs.inputs import open_data
from pate_jax.runs.labels import Taught
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import PublicInputs, Students
from pate_jax.system import storage

LABELS = ("pain", "rash/itch", "fever", "cough", "sleep")


def write(path, random, count, start, known=True):
    """Five diagnoses, each of which follows from the numbers; few rows have more than two."""
    inputs = random.normal(size=(count, 4))
    told = inputs @ random_weights() - 1.1 + 0.3 * random.normal(size=(count, len(LABELS)))
    names = [f"{start}{one:06x}" for one in random.permutation(1 << 20)[:count]]
    with path.open("w", newline="") as stream:
        made = csv.writer(stream)
        made.writerow(["id", "a", "b", "c", "d", *(LABELS if known else ())])
        for name, row, one in zip(names, inputs, told, strict=True):
            words = np.where(one > 0, "yes", "no") if known else ()
            made.writerow([name, *(f"{value:.4f}" for value in row), *words])


def random_weights():
    return np.random.default_rng(5).normal(size=(4, len(LABELS))) * 0.7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("labels"), np.random.default_rng(3)
    for name, count in (("private", 1500), ("public", 150), ("test", 300)):
        write(folder / f"{name}.csv", random, count, name[1], name != "public")
    return folder


def config(folder, out, teachers=60, register="none", **changes):
    files = {name: folder / f"{name}.csv" for name in ("private", "public", "test")}
    data = {
        **files,
        "label_column": ",".join(LABELS),
        "id_column": "id",
        "classes": "no,yes",
        "most_labels": 2,
    }
    cut = PartitionChoice(teachers)
    data |= changes.pop("data", {})
    return RunConfig(DataChoice(**data), cut, out=out, epsilon=2.0, register=register, **changes)


@pytest.fixture(scope="module")
def made(folder):
    return RunDirectory(folder / "run"), pipeline.run(config(folder, folder / "run"))


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made[0].root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


@pytest.mark.parametrize(("number", "most"), [(2, 1), (3, 1), (4, 2), (5, 2), (5, 1), (5, 3), (5, 5)])
def test_no_teacher_moves_a_table_further_than_is_charged(number, most):
    """Brute force: every pair of what a teacher may name of an input, the same at all inputs."""
    rows = [np.array(one) for one in itertools.product((0, 1), repeat=number) if sum(one) <= most]
    farthest = max(((one - other) ** 2).sum() for one in rows for other in rows)
    release = TeacherVotes(teachers=9, queries=7, labels=number, most=most, sigma=3.0)
    for change in ("changed", "joined"):  # who is left out leaves a teacher behind, who may name any others
        assert release.squared_shift(change) == 7 * farthest == 7 * min(number, 2 * most)


@pytest.mark.parametrize("most", [1, 2, 9])
def test_what_it_costs_is_that_of_the_two_farthest_tables(most):
    """mpmath: the profile of a Gaussian between two tables so far apart, at the noise that a run takes."""
    import mpmath

    mu = counts.mu_for(0.7, 1e-5)
    release = counts.teacher_votes_for(mu, 60, 40, 9, most)
    stated = counts.worst([release], 1e-5)
    apart = mpmath.sqrt(40 * min(9, 2 * most)) / mpmath.mpf(release.sigma)
    with mpmath.workdps(50):
        tails = mpmath.ncdf(apart / 2 - stated / apart), mpmath.ncdf(-apart / 2 - stated / apart)
        assert tails[0] - mpmath.exp(stated) * tails[1] == pytest.approx(1e-5, rel=1e-4)
    assert 0.6999 < stated <= 0.7


@pytest.mark.parametrize(("number", "most"), [(3, 3), (9, 9), (9, 5), (9, 4), (40, 2)])
def test_one_table_has_no_more_noise_than_runs_of_single_labels(number, most):
    """Each by itself at its share of the budget: equal where nothing is limited, and else more."""
    joint = counts.teacher_votes_for(0.3, 50, 20, number, most)
    alone = counts.teacher_votes_for(0.3 / math.sqrt(number), 50, 20, 1, 1)
    gain = math.sqrt(number / min(number, 2 * most))
    assert alone.sigma / joint.sigma == pytest.approx(gain) and gain >= 1
    together = composition.gaussian_epsilon(
        math.sqrt(number * alone.squared_shift("changed")) / alone.sigma, 1e-5
    )
    assert counts.worst([joint], 1e-5) == pytest.approx(together, rel=1e-6)


def test_one_record_or_user_moves_the_table_by_no_more_than_is_charged():
    """Whoever comes, goes or changes: one teacher names others, and all others the same, bit for bit."""
    random = np.random.default_rng(10)
    inputs, users = random.normal(size=(400, 4)).astype(np.float32), (np.arange(400) // 4).astype(str)
    codes, ids = random.integers(0, 32, 400), np.arange(400).astype(str)
    part = Part(inputs, codes, ids, users)
    space = spaces.learn("identity", inputs[:80])
    made = scaling(space, space.coordinates(inputs[:80]), length=100, power=0.5, constant=0.2)
    asked = vectors(made, space.coordinates(inputs[:30]))

    def table(part, by, most):
        shards = partition.divide(part, 20, key=partition.seeded_key(1), by=by)
        seen, held = vectors(made, space.coordinates(part.inputs)), labels.bits(part.labels, 5)
        each = [numbers.counted(seen, held, [shards.of(one)], asked, most) for one in range(20)]
        turned = (random.permutation(shards.of(one)) for one in range(20))  # whatever records are called
        whole = numbers.counted(seen, held, turned, asked, most)
        assert sum(each).tolist() == whole.tolist()
        return np.array(each), whole

    for by, gone in (("record", ids == "7"), ("user", users == "7")):
        for most in (1, 2, 5):
            each, whole = table(part, by, most)
            assert (each.sum(2) <= most).all() and each.max() == 1
            far = part._replace(
                labels=np.where(gone, 31 - codes, codes), inputs=np.where(gone[:, None], 50, inputs)
            )
            for other in (part.take(~gone), far):
                now, after = table(other, by, most)
                assert (now != each).any((1, 2)).sum() <= 1
                release = TeacherVotes(20, 30, 5, most, 10.0)
                for change in ("changed", "joined"):
                    assert ((after - whole) ** 2).sum() <= release.squared_shift(change)


def test_a_teacher_names_what_its_own_records_show_and_the_likeliest_of_too_many():
    random = np.random.default_rng(0)
    seen = np.column_stack([random.normal(size=(500, 3)) * 40, np.full(500, 20)]).astype(int)
    held = np.column_stack([seen[:, 0] > 0, seen[:, 0] > -60, seen[:, 1] > 0])
    free, few = (numbers.named(seen, held, seen, most) for most in (3, 1))
    assert (free == held).mean() > 0.9
    assert few.sum(1).max() == 1 and (free[few.any(1)] & few[few.any(1)]).any(1).all()
    both = free[:, 0] & free[:, 1] & ~free[:, 2]
    assert few[both, 1].mean() > 0.9  # the second is the likelier one wherever the first is likely too


def test_a_run_is_one_table_of_all_labels_at_what_was_promised(made):
    run, found = made
    (line,) = ledger.releases(run.ledger)
    assert kind_of(run) == "method" and line.event.name == "teacher-votes"
    assert (line.event.teachers, line.event.queries, line.event.labels, line.event.most) == (60, 150, 5, 2)
    moved = math.sqrt(150 * 4) / line.event.sigma
    stated = found["statement"]["figures"]["data_independent"]["epsilon"]
    assert (
        stated == pytest.approx(composition.gaussian_epsilon(moved, 1e-5), rel=1e-6) and 1.999 < stated <= 2
    )
    assert "names at most 2 of 5 labels of an input" in run.public_report.read_text()
    assert len(found["labels"]) == 5
    assert found["macro"]["auroc"][0] > 0.7 and found["macro"]["accuracy"][0] > 0.7  # 0.88 and 0.82, +- 0.03


def test_it_is_verified_told_and_served(made, folder, tmp_path):
    run, found = made
    checked = verify.of_run(run, deep=True)
    assert checked.of("failed") == [] == verify.at(run.release).of("failed")
    assert any("voters, each changed" in one for one in checked.of("passed"))
    assert any("the student of rash/itch follows" in one for one in checked.of("passed"))
    assert any("it names no encoder, and holds none" in one for one in checked.of("passed"))
    students, test = Students.load(run.release), open_data(config(folder, run.root).data).test
    right = students.by_label["rash/itch"](test.inputs).argmax(1) == (test.labels >> 1 & 1)
    assert found["labels"]["rash/itch"]["figures"]["accuracy"][0] == pytest.approx(right.mean())
    for page in (run.report, run.public_report):
        assert "5 labels: pain, rash/itch, fever, cough ..." in page.read_text()
    assert any("files are what the students of the labels give" in one for one in checked.of("passed"))
    assert any("figures of every label follow" in one for one in checked.of("passed"))
    kept = {path: path.read_bytes() for path in storage.files(run.release)}
    for command in ("verify", "report", "budget", "account"):
        assert commands.call(command, run.root) == 0
    assert kept == {path: path.read_bytes() for path in storage.files(run.release)}
    assert commands.call("predict", run.root, folder / "test.csv", "--out", tmp_path / "a.csv") == 0
    program = [sys.executable, str(run.student / "predict.py"), str(folder / "test.csv"), "--out"]
    subprocess.run([*program, str(tmp_path / "b.csv")], check=True, capture_output=True)
    ours, theirs = (list(csv.DictReader((tmp_path / f"{one}.csv").read_text().splitlines())) for one in "ab")
    assert list(ours[0]) == list(theirs[0]) and len(ours) == 300
    for one, other in zip(ours, theirs, strict=True):
        assert float(one["p_fever_yes"]) == pytest.approx(float(other["p_fever_yes"]), abs=2e-6)


def test_an_edited_figure_is_seen(made, tmp_path, monkeypatch):
    monkeypatch.setattr(audit_methods, "_SAMPLED", 2)
    run, found = made
    other = RunDirectory(shutil.copytree(run.root, tmp_path / "run"))
    card = other.student / "MODEL_CARD.md"
    figure = f"{100 * found['labels']['fever']['figures']['accuracy'][0]:.1f}"
    assert figure in card.read_text()
    card.write_text(card.read_text().replace(figure, "99.9"))
    results = json.loads(other.results.read_text())
    results["labels"]["fever"]["figures"]["accuracy"][0] = 0.123
    other.results.write_text(json.dumps(results))
    failed = verify.of_run(other, deep=True).of("failed")
    assert any("MODEL_CARD.md is not what the students" in one for one in failed)
    assert any("fever.figures.accuracy" in one for one in failed)


def test_a_finished_run_is_not_made_again_and_others_are_refused(made, folder):
    run, found = made
    assert pipeline.run(config(folder, run.root))["statement"] == found["statement"]
    with pytest.raises(PateError, match="teachers"):
        pipeline.run(config(folder, run.root, teachers=50))
    with pytest.raises(PateError, match="most_labels"):
        pipeline.run(config(folder, run.root, data={"most_labels": 1}))


def test_all_records_of_a_user_are_with_one_teacher(tmp_path):
    """A user with half of all records changes them all: every other teacher names what it did."""
    random, run = np.random.default_rng(12), RunDirectory(tmp_path / "run")
    inputs = random.normal(size=(400, 3)).astype(np.float32)
    users = np.where(np.arange(400) < 200, "one", np.arange(400).astype(str))
    private = Part(inputs, np.where(np.arange(400) < 200, 7, 0), np.arange(400).astype(str), users)
    public = Part(random.normal(size=(60, 3)).astype(np.float32), None, np.arange(60).astype(str))
    names = tuple((one, ("no", "yes")) for one in LABELS[:3])
    ends = (2, ("no", "yes"), AS_STORED, False, "drawn labels")
    dataset = Dataset("labels", "table", private, public, None, *ends, several=names)
    run.secret.draw(1)
    made = methods.Inputs(run, DataChoice(), PartitionChoice(20, "user"), TeacherConfig(), opened=dataset)
    method = Taught(made, methods.Promise(5.0, 1e-5, "user"))
    event = method.question(PublicInputs.of(dataset), [])
    other = private._replace(labels=np.zeros(400, int))
    moved = ((method.count(other, event, []) - method.count(private, event, [])) ** 2).sum()
    assert moved == event.squared_shift("changed") == event.squared_shift("joined") == 60 * 3


MUTATIONS = {
    "a smaller limit": (lambda run: test_labels.change(run.settings, data__most_labels=1), "the method asks"),
    "no limit": (lambda run: test_labels.change(run.settings, data__most_labels=None), "the method asks"),
    "fewer teachers": (lambda run: test_labels.change(run.settings, method__teachers=50), "the method asks"),
    "another order of labels": (
        lambda run: test_labels.change(run.settings, data__label_column="fever,rash/itch,pain,cough,sleep"),
        "another table",
    ),
    "a cheaper statement": (
        lambda run: test_labels.change(run.statement, figures__data_independent__epsilon=1.0),
        "statement differs",
    ),
    "students under wrong names": (
        lambda run: test_labels.change(
            run.student / "labels.json",
            folders={
                **{one: f"{place}-{one}" for place, one in enumerate(LABELS, 1) if one not in LABELS[:2]},
                "pain": "2-rash-itch",
                "rash/itch": "1-pain",
            },
        ),
        "does not follow",
    ),
    "a stranger in the release": (
        lambda run: shutil.copy(run.ledger, run.student / "1-pain" / "ledger.jsonl"),
        "no part of a release",
    ),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_does_not_fit_is_found(copy, what, monkeypatch):
    monkeypatch.setattr(audit_methods, "_SAMPLED", 2)  # all voters are moved in the run as it was made
    mutate, told = MUTATIONS[what]
    mutate(copy)
    assert told in " | ".join(verify.of_run(copy, deep=True).of("failed"))


def test_the_limit_follows_from_public_labels_or_is_none(folder, tmp_path):
    random = np.random.default_rng(4)
    write(tmp_path / "known.csv", random, 400, "k")
    with open(tmp_path / "known.csv") as stream:
        most = np.quantile([[*row.values()].count("yes") for row in csv.DictReader(stream)], 0.99)
    for told, data in (
        (5, {"most_labels": None}),  # no public labels, and nobody says
        (5, {"most_labels": 3}),  # a limit of half or more moves no table less
        (1, {"most_labels": 1}),
        (5 if 2 * most >= 5 else most, {"most_labels": None, "public": tmp_path / "known.csv"}),
    ):
        settings = config(folder, tmp_path / "run", data=data).data
        inputs = methods.Inputs(RunDirectory(tmp_path / "run"), settings, PartitionChoice(60), None)
        inputs.run.secret.draw(1)
        method = Taught(inputs, methods.Promise(2.0))
        assert method._most == told
        assert method.question(None, []).most == told


def test_what_does_not_go_together_is_refused(folder, tmp_path):
    for changes, told in (
        ({"teachers": None}, "say how many teachers"),
        ({"queries": 30}, "leave out --queries"),
        ({"min_distance": 0.5}, "leave out --min-distance"),
        ({"data": {"most_labels": 0}}, "--most-labels 0 must be at least 1"),
        ({"voters": "sums", "teachers": None}, "--most-labels 2 is of teachers"),
        ({"data": {"classes": "no,yes,perhaps"}}, "pain has 3 classes"),
        ({"data": {"label_column": "pain", "leave_out": ",".join(LABELS[1:])}}, "several labels: name these"),
    ):
        with pytest.raises(PateError, match=told):
            pipeline.run(config(folder, tmp_path / "no", **changes))
    assert not (tmp_path / "no" / "private" / "settings.json").exists()
    data = config(folder, tmp_path / "no").data
    with pytest.raises(PateError, match="names several labels"):
        stages.begin(RunDirectory(tmp_path / "train"), data, PartitionChoice(10), TeacherConfig())
