"""A number as the label: how far one record moves its sums, what they teach, and what is checked."""

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
from pate_jax.crowd import scaling
from pate_jax.crowd.numbers import FINE, HALF, Line, numbers, residuals, ridge, started, weighed
from pate_jax.crowd.sums import sums
from pate_jax.crowd.voters import voters
from pate_jax.data import Part, from_files
from pate_jax.data.targets import GRID, Target
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import spaces
from pate_jax.runs import ledger, methods, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.numbers import Numbers
from pate_jax.runs.report import numbers as figures
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Student

NONE = "none"


def write(path, random, count, start=""):
    inputs = random.normal(size=(count, 3))
    days = np.exp(1 + 0.8 * inputs[:, 0] - 0.5 * inputs[:, 1] + 0.3 * random.normal(size=count))
    names = [f"{start}{one:06x}" for one in random.permutation(1 << 20)[:count]]
    with path.open("w", newline="") as stream:
        made = csv.writer(stream)
        made.writerow(["id", "x", "y", "z", "days"])
        made.writerows(
            [n, *(f"{v:.4f}" for v in row), f"{d:.3f}"] for n, row, d in zip(names, inputs, days, strict=True)
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, random = tmp_path_factory.mktemp("numbers"), np.random.default_rng(3)
    for name, count in (("private", 1500), ("public", 120), ("test", 200)):
        write(folder / f"{name}.csv", random, count, name[1])
    return folder


def config(folder, out, **changes):
    files = {name: folder / f"{name}.csv" for name in ("private", "public", "test")}
    data = DataChoice(**files, target="days", target_range="0,15", id_column="id")
    return RunConfig(
        data, PartitionChoice(**changes.pop("cut", {})), out=out, epsilon=2.0, register=NONE, **changes
    )


@pytest.fixture(scope="module")
def made(folder):
    return RunDirectory(folder / "run"), pipeline.run(config(folder, folder / "run"))


def test_no_record_is_longer_than_its_vector_may_be():
    """Brute force: every vector of a small grid, times numbers of all kinds."""
    length = 6
    grid = np.array([one for one in itertools.product(range(-6, 7), repeat=3) if math.hypot(*one) <= length])
    cast = []
    for times in (
        -2 * HALF,
        -HALF,
        -HALF + 1,
        -4501,
        -3333,
        -1,
        0,
        1,
        2499,
        2500,
        2501,
        4167,
        HALF,
        3 * HALF,
    ):
        found = weighed(grid, np.full(len(grid), times))
        assert (np.abs(found - grid * np.clip(times, -HALF, HALF) / HALF) <= 0.5).all()
        cast.append(found)
    tables = np.unique(np.concatenate(cast), axis=0)
    moves = ((tables[:, None] - tables[None]) ** 2).sum(2)
    release = ClassSums(2, 3, length, 10.0)
    assert moves.max() == release.squared_shift("changed")
    assert (tables**2).sum(1).max() == release.squared_shift("joined")


def test_numbers_at_the_ends_of_the_range_are_the_sums_of_two_classes():
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(300, 4)).astype(np.float32), random.integers(0, 2, 300)
    part = Part(inputs, labels.astype(np.int32), np.arange(300).astype(str))
    space = spaces.learn("identity", inputs[:80])
    made = scaling(space, space.coordinates(inputs[:80]), length=100, power=0.5, constant=0.25)
    line = started(made, np.zeros((1, 5), int), None)
    of_two = sums(space, made, voters(part, 2), ClassSums(2, 5, 100, 10.0))
    ends = part._replace(labels=labels * GRID)
    assert numbers(space, made, line, ends).tolist() == of_two.tolist()
    halves = [numbers(space, made, line, ends.take(slice(*some))) for some in ((0, 131), (131, 300))]
    assert sum(halves).tolist() == of_two.tolist()  # so no record's part depends on the others


def test_what_is_left_of_a_number_is_that_of_exact_fractions():
    from fractions import Fraction

    random = np.random.default_rng(1)
    seen, steps = random.integers(-90, 90, (200, 3)), random.integers(-5000, 20000, 200)
    line = Line(random.integers(-40 * FINE, 40 * FINE, 3), 777)
    for row, step, found in zip(seen, steps, residuals(line, seen, steps), strict=True):
        exact = Fraction(int(step)) - Fraction(int(row @ line.weights), FINE)
        share = max(min(exact / 777, Fraction(1)), Fraction(-1))
        assert abs(Fraction(int(found), HALF) - share) <= Fraction(1, HALF) + Fraction(1, 777)


def test_ridge_is_that_of_its_normal_equations_and_its_misses_are_of_rows_left_out():
    random = np.random.default_rng(2)
    seen = random.normal(size=(60, 4))
    known = seen @ [3, 0, -2, 1] + 5 + random.normal(size=60)
    weights, rest = ridge(seen, known)
    assert np.allclose(weights, [3, 0, -2, 1, 5], atol=0.5)
    centred, spread = seen - seen.mean(0), known - known.mean()
    unit = np.linalg.svd(centred, compute_uv=False)
    for penalty in 10.0 ** np.arange(-4, 4):
        direct = np.linalg.solve(
            centred.T @ centred + penalty * (unit**2).mean() * np.eye(4), centred.T @ spread
        )
        if np.allclose(direct, weights[:4]):
            break
    else:
        pytest.fail("the weights are those of no penalty that is tried")
    own = np.linalg.solve(
        centred[1:].T @ centred[1:] + penalty * (unit**2).mean() * np.eye(4),
        centred[1:].T @ (known[1:] - known[1:].mean()),
    )
    assert rest[0] == pytest.approx(known[0] - known[1:].mean() - centred[0] @ own, abs=0.1)


def test_it_costs_what_was_promised_and_beats_what_is_free(made):
    run, found = made
    lines = list(ledger.releases(run.ledger))
    assert [line.event.name for line in lines] == ["headcount", "sums", "sums"]
    moved = sum(line.event.squared_shift("changed") / line.event.sigma**2 for line in lines)
    stated = found["statement"]["figures"]["data_independent"]["epsilon"]
    assert stated == pytest.approx(composition.gaussian_epsilon(math.sqrt(moved), 1e-5), rel=1e-6)
    assert 1.99 < stated <= 2.0 == pytest.approx(counts.worst([line.event for line in lines], 1e-5), rel=1e-3)
    mine, constant, alone = found["numbers"]["figures"]
    assert (
        mine["r2"][0] > 0.5
        and mine["r2"][0] > constant["r2"][0] + 0.5
        and mine["r2"][0] > alone["r2"][0] - 0.05
    )
    assert constant["name"] == figures.CONSTANT and alone["name"] == figures.ALONE
    assert abs(constant["r2"][0]) < 0.05


def test_the_figures_are_those_of_the_numbers_it_predicts(made, folder, tmp_path):
    run, found = made
    assert commands.call("predict", run.root, folder / "test.csv", "--out", tmp_path / "a.csv") == 0
    program = [sys.executable, str(run.student / "predict.py"), str(folder / "test.csv"), "--out"]
    subprocess.run([*program, str(tmp_path / "b.csv")], check=True, capture_output=True)
    ours, theirs = (
        np.array(
            [row["days"] for row in csv.DictReader((tmp_path / f"{one}.csv").read_text().splitlines())], float
        )
        for one in "ab"
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    true = np.array(
        [row["days"] for row in csv.DictReader((folder / "test.csv").read_text().splitlines())], float
    )
    assert ours.min() >= 0 and ours.max() <= 15 < true.max()  # the test part is not clipped
    mine = found["numbers"]["figures"][0]
    assert mine["error"][0] == pytest.approx(np.abs(true - ours).mean(), rel=1e-3)
    assert mine["r2"][0] == pytest.approx(
        1 - ((true - ours) ** 2).sum() / ((true - true.mean()) ** 2).sum(), rel=1e-3
    )
    assert mine["r2"][1] < mine["r2"][0] < mine["r2"][2]
    said = Student.load(run.release).predict({"x": [0.0], "y": [0.0], "z": [0.0]})
    assert 2 < said[0] < 4
    for text in (run.public_report.read_text(), (run.student / "MODEL_CARD.md").read_text()):
        assert "days" in text and "R2" in text and "public numbers alone" in text
    assert "2 classes" not in (run.student / "MODEL_CARD.md").read_text()


def test_questions_read_no_private_number(made, folder, tmp_path):
    """Other private inputs and numbers, the same releases: the same questions, bit for bit."""
    run, _ = made
    lines = list(ledger.releases(run.ledger))
    files = {name: folder / f"{name}.csv" for name in ("public", "test")}
    write(tmp_path / "other.csv", np.random.default_rng(99), 333, "o")
    asked = []
    for private in (folder / "private.csv", tmp_path / "other.csv"):
        data = DataChoice(private=private, **files, target="days", target_range="0,15", id_column="id")
        inputs = Inputs(
            run,
            data,
            PartitionChoice(),
            methods.TeacherConfig(),
            opened=methods.Inputs(
                RunDirectory(tmp_path), data, PartitionChoice(), methods.TeacherConfig()
            ).dataset,
        )
        method = Numbers(inputs, methods.Promise(2.0))
        line = method._line(method._plan(lines), lines)
        asked.append([method.ask(lines[:place]) for place in range(4)] + [line.weights.tolist(), line.width])
    assert asked[0] == asked[1] and asked[0][3] is None


def test_nothing_fails_in_a_run_as_it_was_made(made):
    assert verify.of_run(made[0], deep=True).of("failed") == []


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made[0].root, tmp_path / "run")
    return RunDirectory(tmp_path / "run")


def edit(path, change):
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (
            lambda run: edit(run.settings, lambda all: all["data"].update(target_range="0,30")),
            "another table",
        ),
        (lambda run: edit(run.settings, lambda all: all["method"]["promise"].update(epsilon=1.0)), "asks"),
        (
            lambda run: edit(run.student / "student.json", lambda all: all["target"].update(extra=1)),
            "student.json",
        ),
        (
            lambda run: edit(
                run.statement, lambda all: all["figures"]["data_independent"].update(epsilon=1.0)
            ),
            "differs",
        ),
    ],
)
def test_what_does_not_fit_is_found(copy, what, told):
    what(copy)
    assert told in " | ".join(verify.of_run(copy, deep=True).of("failed"))


def test_bad_numbers_and_settings_are_refused(folder, tmp_path):
    with pytest.raises(PateError, match="the smaller first"):
        from_files(folder / "private.csv", folder / "public.csv", target="days", target_range="9,1")
    text = (folder / "private.csv").read_text().splitlines()
    for value, told in (("soon", "has 'soon' for 'days' at row 0"), ("inf", "has 'inf' for 'days'")):
        (tmp_path / "a.csv").write_text(
            "\n".join([text[0], text[1].rsplit(",", 1)[0] + f",{value}", *text[2:5]])
        )
        with pytest.raises(PateError, match=told):
            from_files(tmp_path / "a.csv", folder / "public.csv", target="days", id_column="id")
    (tmp_path / "a.csv").write_text("\n".join([text[0], text[1].rsplit(",", 1)[0] + ",NA", *text[2:5]]))
    left = from_files(tmp_path / "a.csv", folder / "public.csv", target="days", id_column="id").private
    assert (
        left.ids.tolist() == [line.split(",")[0] for line in text[2:5]]
        and len(left.inputs) == len(left.labels) == 3
    )
    with pytest.raises(PateError, match="1 private records have no 'days', and none has an id"):
        from_files(tmp_path / "a.csv", folder / "public.csv", target="days", leave_out="id")
    for changes, told in (
        ({"voters": "neighbours"}, "learned by sums"),
        ({"cut": {"teachers": 5}}, "leave out --teachers"),
        ({"cut": {"by": "user"}}, "covers one record"),
    ):
        with pytest.raises(PateError, match=told):
            pipeline.run(config(folder, tmp_path / "no", **changes))
    data = config(folder, tmp_path / "no").data
    with pytest.raises(PateError, match="which `pate run --voters sums` learns"):
        pipeline.of_one_label(RunConfig(data, out=tmp_path / "no", voters="sums", register=NONE))
    assert not (tmp_path / "no" / "private" / "settings.json").exists()
    assert Target("days", 0, 15).values(np.array([0.5])).tolist() == [7.5]
