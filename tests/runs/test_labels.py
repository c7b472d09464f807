"""Several labels of each record: what they cost together, and that nothing of such a run goes unchecked."""

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

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.audit import verify
from pate_jax.data import from_files
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.runs import labels, ledger, own_data, pipeline, register
from pate_jax.runs.directory import RunDirectory, kind_of
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Student, Students
from pate_jax.student.settings import Auto, Linear
from pate_jax.system import storage

LABELS = ("sick", "ward/out")


def rows(random, count, start=""):
    """Rows of two numbers and a word, with two labels that follow from them."""
    inputs, site = random.normal(size=(count, 2)), random.choice(["a", "b"], count)
    sick = np.where(inputs[:, 0] + 0.3 * random.normal(size=count) > 0, "yes", "no")
    ward = np.array(["low", "mid", "top"])[np.digitize(inputs[:, 1], [-0.5, 0.5])]
    names = [f"{start}{one:06x}" for one in random.permutation(1 << 20)[:count]]
    return [
        [name, f"{x:.4f}", f"{z:.4f}", *words]
        for name, (x, z), *words in zip(names, inputs, site, sick, ward, strict=True)
    ]


def write(path, content):
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([["id", "x", "z", "site", *LABELS], *content])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("labels"), np.random.default_rng(3)
    for name, count in (("private", 600), ("public", 150), ("test", 80)):
        write(folder / f"{name}.csv", rows(random, count, name[1]))
    register.begin(folder / "register.jsonl")
    return folder


def config(folder, out, **changes):
    files = {name: folder / f"{name}.csv" for name in ("private", "public", "test")}
    data = DataChoice(**files, label_column=",".join(LABELS), id_column="id")
    settings = {"voters": "sums", "epsilon": 2.0, "steps": 1, "student": Linear(), **changes}
    return RunConfig(data, PartitionChoice(), out=out, register=folder / "register.jsonl", **settings)


@pytest.fixture(scope="module")
def made(folder):
    return RunDirectory(folder / "run"), pipeline.run(config(folder, folder / "run"))


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made[0].root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def failures(run):
    return " | ".join(verify.of_run(run).of("failed"))


@pytest.mark.parametrize("number", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_all_labels_together_cost_what_was_promised_and_hardly_less(number, epsilon):
    each = counts.share_of(epsilon, 1e-5, number)
    mu = counts.mu_for(each, 1e-5)
    releases = [counts.headcount_for(mu, "sums"), ClassSums(2, 5, 100, 200 / mu * (1 + 1e-6))] * number
    together = counts.worst(releases, 1e-5)
    assert 0.9995 * epsilon < together <= epsilon
    more = composition.gaussian_epsilon(math.sqrt(number) * counts.mu_for(each * 1.01, 1e-5), 1e-5)
    assert more > epsilon  # so a share that is one hundredth larger would be too much


def test_one_joint_table_has_the_noise_of_runs_by_themselves():
    """Brute force over all records with a vector on a small grid: how far one of them moves a joint table."""
    length, number, mu = 5, 3, 0.4
    grid = [np.array(one) for one in itertools.product(range(-5, 6), repeat=2) if math.hypot(*one) <= length]
    signs = [np.array(one) for one in itertools.product((-1, 1), repeat=number)]
    tables = np.array([np.outer(sign, one).ravel() for sign in signs for one in grid])
    moves = np.sqrt(((tables[:, None] - tables[None]) ** 2).sum(2))
    joint = moves.max() / mu  # the noise that makes the joint table mu-GDP
    assert joint == pytest.approx(2 * math.sqrt(number) * length / mu)
    alone = ClassSums(2, 2, length, 100.0).squared_shift("changed") ** 0.5 / (mu / math.sqrt(number))
    assert joint == pytest.approx(alone)
    present = np.array(
        [np.outer(sign > 0, one).ravel() for sign in signs for one in grid if (sign > 0).sum() <= 1]
    )
    limited = np.sqrt(((present[:, None] - present[None]) ** 2).sum(2)).max() / mu
    assert limited == pytest.approx(2 * length / mu)  # twice this, for rows that say half as much
    assert 2 * limited > joint  # since one label of three is more than a quarter


def test_one_record_is_in_the_tables_of_all_labels(made, folder):
    run, found = made
    several = labels.of(run)
    assert (
        kind_of(run) == "labels" and several.labels == LABELS and several.folder("ward/out") == "2-ward-out"
    )
    lines = [line for one in several.runs(run).values() for line in ledger.releases(one.ledger)]
    stated = found["statement"]["figures"]["data_independent"]["epsilon"]
    squares = sum(line.event.squared_shift("changed") / line.event.sigma**2 for line in lines)
    assert stated == pytest.approx(composition.gaussian_epsilon(math.sqrt(squares), 1e-5), rel=1e-6)
    assert 1.999 < stated <= 2.0
    assert found["register"]["epsilon"] == pytest.approx(2, rel=1e-3)
    for label, one in several.runs(run).items():
        data = one.record.read().data
        seen = from_files(
            data.private, data.public, label_column=label, leave_out=data.leave_out, id_column="id"
        )
        assert {column.name for column in seen.columns} == {"x", "z", "site"}


def test_it_is_verified_told_and_served(made, folder, tmp_path, capsys):
    run, found = made
    assert verify.of_run(run, deep=True).of("failed") == [] == verify.at(run.release).of("failed")
    figures = found["labels"]["sick"]["figures"]
    test = from_files(
        folder / "private.csv",
        folder / "public.csv",
        folder / "test.csv",
        label_column="sick",
        leave_out="ward/out",
        id_column="id",
    ).test
    students = Students.load(run.release)
    right = students.by_label["sick"](test.inputs).argmax(1) == test.labels
    assert figures["accuracy"][0] == pytest.approx(right.mean()) and right.mean() > 0.8
    each = [one["figures"]["accuracy"][0] for one in found["labels"].values()]
    assert found["macro"]["accuracy"][0] == pytest.approx(np.mean(each))
    for page in (run.report, run.public_report):
        assert "2 labels: sick, ward/out" in page.read_text()
    for command in ("verify", "report", "budget"):
        assert commands.call(command, run.root) == 0
    assert commands.call("predict", run.root, folder / "test.csv", "--out", tmp_path / "a.csv") == 0
    program = [sys.executable, str(run.student / "predict.py"), str(folder / "test.csv"), "--out"]
    subprocess.run([*program, str(tmp_path / "b.csv")], check=True, capture_output=True)
    ours, theirs = (list(csv.DictReader((tmp_path / f"{one}.csv").read_text().splitlines())) for one in "ab")
    assert list(ours[0]) == list(theirs[0]) and len(ours) == 80
    assert list(ours[0])[:5] == ["id", "sick", "p_sick_no", "p_sick_yes", "ward/out"]
    for one, other in zip(ours, theirs, strict=True):
        assert (one["sick"], one["ward/out"]) == (other["sick"], other["ward/out"])
        assert float(one["p_sick_yes"]) == pytest.approx(float(other["p_sick_yes"]), abs=2e-6)
    with pytest.raises(PateError, match=r"several labels: pate_jax.student.Students"):
        Student.load(run.release)


def test_a_stopped_run_goes_on_and_a_finished_one_is_not_made_again(folder, tmp_path, monkeypatch):
    from pate_jax.runs import crowds

    real, calls = crowds.run, []

    def second_dies(config, engine):
        calls.append(config)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(config, engine)

    wished = config(folder, tmp_path / "run")
    monkeypatch.setattr(crowds, "run", second_dies)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run(wished)
    run = RunDirectory(tmp_path / "run")
    assert verify.of_run(run).of("failed") == [] and not run.results.exists()
    monkeypatch.setattr(crowds, "run", real)
    found = pipeline.run(wished)
    kept = {path: path.read_bytes() for path in storage.files(run.release)}
    assert pipeline.run(wished)["statement"] == found["statement"]
    assert kept == {path: path.read_bytes() for path in storage.files(run.release)}
    with pytest.raises(PateError, match=r"epsilon=2.0, not 3.0"):
        pipeline.run(config(folder, run.root, epsilon=3.0))


def change(path, **values):
    body = json.loads(path.read_text())
    for place, value in values.items():
        *way, last = place.split("__")
        inner = body
        for one in way:
            inner = inner[one]
        inner[last] = value
    path.write_text(json.dumps(body))


MUTATIONS = {
    "a label that spends all": (lambda run, one: change(one.settings, crowd__epsilon=2.0), "epsilon 2"),
    "another label as an input": (
        lambda run, one: change(one.settings, data__leave_out=None),
        "leaves out nothing",
    ),
    "shares of another budget": (lambda run, one: change(run.settings, labels__share=1.9), "its share is"),
    "other records for one label": (
        lambda run, one: change(one.settings, data__private="elsewhere.csv"),
        "another private",
    ),
    "a cheaper statement": (
        lambda run, one: change(run.statement, figures__data_independent__epsilon=1.0),
        "statement differs",
    ),
    "another student of one label": (
        lambda run, one: shutil.copy(
            one.student / "parameters.npz", run.student / "2-ward-out" / "parameters.npz"
        ),
        "2-ward-out/parameters.npz is not what",
    ),
    "students under wrong names": (
        lambda run, one: change(
            run.student / "labels.json", folders={"sick": "2-ward-out", "ward/out": "1-sick"}
        ),
        "labels.json is not what",
    ),
    "a stranger in the release": (
        lambda run, one: shutil.copy(one.ledger, run.student / "1-sick" / "ledger.jsonl"),
        "no part of a release",
    ),
    "one secret for two labels": (
        lambda run, one: shutil.copy(one.keys, labels.of(run).run(run, "ward/out").keys),
        "share one secret",
    ),
}


@pytest.mark.parametrize("what", MUTATIONS)
def test_what_does_not_fit_is_found(copy, what):
    mutate, told = MUTATIONS[what]
    mutate(copy, labels.of(copy).run(copy, "sick"))
    assert told in failures(copy)


def test_what_is_for_one_label_only_is_refused(folder, tmp_path):
    with pytest.raises(PateError, match="say how many teachers"):
        pipeline.run(config(folder, tmp_path / "no", voters="teachers", steps=None, student=Auto()))
    with pytest.raises(PateError, match="leave-out nothing is a column of no table"):
        from_files(folder / "private.csv", folder / "public.csv", label_column="sick", leave_out="nothing")
    with pytest.raises(PateError, match="--label-column died is a column of no table"):
        pipeline.run(
            RunConfig(
                DataChoice(
                    private=folder / "private.csv", public=folder / "public.csv", label_column="sick,died"
                ),
                voters="sums",
                out=tmp_path / "no",
            )
        )
    assert not (tmp_path / "no" / "private" / "settings.json").exists()


def test_commands_that_look_at_one_label_say_what_to_do(folder, tmp_path, capsys):
    parts = [word for one in ("private", "public", "test") for word in (f"--{one}", folder / f"{one}.csv")]
    wished = [*parts, "--label-column", "sick,died", "--out", tmp_path / "no"]
    for command in (["compare"], ["baseline", "dpsgd"]):
        assert commands.call(*command, *wished) == 2
        assert "names 2 labels" in (said := capsys.readouterr().err) and "--leave-out" in said
    assert commands.call("baseline", "dpsgd", *parts, "--target", "x", "--out", tmp_path / "no") == 2
    assert "is a number" in capsys.readouterr().err
    pool = ("--public", folder / "public.csv", "--label-column", "sick,died")
    assert commands.call("plan", *pool, "--records", 3000, "--epsilon", 1) == 2
    assert f"of epsilon 1 each may cost {counts.share_of(1.0, 1e-5, 2):g}" in capsys.readouterr().err
    assert not (tmp_path / "no" / "private" / "settings.json").exists()


def test_python_takes_several_labels_of_a_frame(folder, tmp_path):
    columns = dict(
        zip(
            ["id", "x", "z", "site", *LABELS],
            zip(*rows(np.random.default_rng(0), 200), strict=True),
            strict=True,
        )
    )
    columns = {name: list(values) for name, values in columns.items()}
    found = own_data.run(
        columns,
        folder / "public.csv",
        label=LABELS,
        id="id",
        voters="neighbours",
        epsilon=3.0,
        out=tmp_path / "run",
        register="none",
        seed=1,
    )
    said = found.students.predict({name: columns[name][:3] for name in ("x", "z", "site")})
    assert {label: len(values) for label, values in said.items()} == {"sick": 3, "ward/out": 3}
    assert "All labels" in str(found)
