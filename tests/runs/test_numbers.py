"""A number as the label: how far one record moves its sums, what they teach, and what is checked."""

import csv
import itertools
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import commands
import numpy as np
import pytest

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.audit import methods as audit_methods
from pate_jax.audit import verify
from pate_jax.crowd import numbers as of_numbers
from pate_jax.crowd import scaling
from pate_jax.crowd.numbers import (
    FINE,
    HALF,
    Line,
    numbers,
    residuals,
    ridge,
    started,
    taught,
)
from pate_jax.crowd.sums import sums
from pate_jax.crowd.voters import voters
from pate_jax.data import Dataset, Part, from_files, partition
from pate_jax.data.dataset import AS_STORED
from pate_jax.data.targets import GRID, Target
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, TeacherSums
from pate_jax.models import spaces
from pate_jax.runs import ledger, methods, own_data, people, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.numbers import Numbers, Taught
from pate_jax.runs.report import numbers as figures
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.student import PublicInputs, Student

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
        found = of_numbers.weighed(grid, np.full(len(grid), times), np.arange(len(grid)), length)
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
    ends = voters(part._replace(labels=labels * GRID), GRID + 1)
    assert numbers(space, made, line, ends).tolist() == of_two.tolist()
    halves = [numbers(space, made, line, ends.take(np.arange(*some))) for some in ((0, 131), (131, 300))]
    assert sum(halves).tolist() == of_two.tolist()  # so no record's part depends on the others


def test_no_user_is_longer_than_one_vector_and_adds_the_mean_of_its_records():
    """Fractions: whatever records a user has, in any order among those of others."""
    random, length = np.random.default_rng(6), 9
    kinds, near = np.array([[1, 4, 8, 0], [9, 0, 0, 0], [2, 2, 3, 8], [3, -4, 1, 0]]), []
    for _ in range(2000):
        count = int(random.integers(1, 5))
        seen = random.permuted(kinds[random.integers(0, 4, count)], axis=1)
        times = random.choice([-2 * HALF, -77, HALF, HALF, HALF, 3 * HALF], count)
        every, own = np.append(seen, [[1, 2, 3, 4]], 0), np.append([0] * count, 1)
        found = of_numbers.weighed(every, np.append(times, 5), own, length)
        cut = np.clip(times, -HALF, HALF).tolist()
        sums = [sum(v * c for v, c in zip(column, cut, strict=True)) for column in seen.T.tolist()]
        exact = [Fraction(one, HALF * count) for one in sums]
        off = [abs(Fraction(int(one)) - mean) for one, mean in zip(found[0], exact, strict=True)]
        near.append(max(off) <= Fraction(1, 2))
        assert (found[0] ** 2).sum() <= length**2 and max(off) < 1 and found[1].tolist() == [0, 0, 0, 0]
    assert 0.9 < np.mean(near) < 1  # the nearest, but where that would be longer


def test_all_records_of_a_user_move_the_sums_by_what_is_charged_and_their_order_by_nothing():
    random = np.random.default_rng(7)
    inputs, users = random.normal(size=(9000, 3)).astype(np.float32), random.integers(0, 40, 9000)
    labels, ids = random.integers(0, GRID + 1, 9000).astype(np.int32), np.arange(9000).astype(str)
    part = Part(inputs, labels, ids, users)
    space = spaces.learn("identity", inputs[:80])
    made = scaling(space, space.coordinates(inputs[:80]), length=60, power=0.5, constant=0.25)
    line, release = started(made, np.zeros((1, 4), int), None), ClassSums(2, 4, 60, 10.0)

    def found(one):
        return numbers(space, made, line, voters(one, GRID + 1, by="user"))

    every = found(part)
    assert found(part.take(random.permutation(9000))).tolist() == every.tolist()
    each = [found(part.take(users == user)) for user in range(40)]
    assert sum(each).tolist() == every.tolist()
    other = part.take(users == 3)._replace(inputs=np.full((int((users == 3).sum()), 3), 90, np.float32))
    moved = ((found(other) - each[3]) ** 2).sum()
    assert 0 < moved <= release.squared_shift("changed")
    assert max((one**2).sum() for one in each) <= release.squared_shift("joined")


def test_a_run_by_user_counts_users_and_is_checked(folder, tmp_path):
    """Fifteen hundred records of 500 users, whose rows are three times what one of them says."""
    for name in ("private", "public", "test"):
        head, *rows = (folder / f"{name}.csv").read_text().splitlines()
        whose = [f"{row},{name[1]}{place // 3}" for place, row in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"{head},who", *whose]))
    made = config(tmp_path, tmp_path / "run", cut={"by": "user"})
    made = replace(made, data=replace(made.data, user_column="who"))
    run, found = RunDirectory(tmp_path / "run"), pipeline.run(made)
    lines = list(ledger.releases(run.ledger))
    assert abs(int(methods.values(lines[0])[0, 0]) - 500) < 6 * lines[0].event.sigma
    assert found["statement"]["relation"] == "user" and found["numbers"]["figures"][0]["r2"][0] > 0.3
    checked = verify.of_run(run, deep=True)
    assert checked.of("failed") == []
    assert any(
        "20 voters among 200, and 4 of them among all, each changed" in one for one in checked.of("passed")
    )


def asked_of(length=100, queries=40):
    random = np.random.default_rng(8)
    seen = random.normal(size=(queries, 4)) * [9, 4, 2, 1]
    return np.column_stack([np.rint(seen * length / 40).astype(int), np.full(queries, 20)])


def test_no_teacher_says_more_than_its_vector_may_hold_and_what_it_holds_is_its_prediction():
    """Predictions of all kinds, the worst ones along the functions that the vector shows."""
    asked, length, random = asked_of(), 100, np.random.default_rng(9)
    root = np.linalg.cholesky(asked.T @ asked + np.eye(5)).T
    worst = np.sign(asked @ random.normal(size=(5, 300))).T
    along = np.linalg.qr(asked)[0] @ random.normal(size=(5, 300))
    along = (along / np.linalg.norm(along, axis=0) * math.sqrt(40)).T  # beyond -1 to 1 here and there
    longest = []
    for said in [*worst, *along, np.ones(40), 3 * np.ones(40)]:
        found = of_numbers.answer(said, asked, root, length)
        longest.append(int((found**2).sum()))
        assert longest[-1] <= length**2
    assert max(longest) > 0.9 * length**2 and longest[-1] == 0
    weights = np.array([20, -30, 10, 5, 40]) / 1e4
    whole = of_numbers.answer(asked @ weights, asked, root, length)
    again = np.linalg.solve(root, whole / (length - math.sqrt(5) / 2) * math.sqrt(40))
    assert np.abs(asked @ (again - weights)).max() < 0.05


def test_one_record_or_user_moves_the_sum_of_teachers_by_no_more_than_is_charged():
    """Whoever comes, goes or changes: one teacher says something else, and the others the same bits."""
    random, asked = np.random.default_rng(10), asked_of()
    inputs, users = random.normal(size=(400, 4)).astype(np.float32), (np.arange(400) // 4).astype(str)
    labels, ids = random.integers(0, GRID + 1, 400).astype(np.int32), np.arange(400).astype(str)
    part = Part(inputs, labels, ids, users)
    space = spaces.learn("identity", inputs[:80])
    made = scaling(space, space.coordinates(inputs[:80]), length=100, power=0.5, constant=0.2)
    line = started(made, asked, None)

    def table(part, by):
        shards = partition.divide(part, 20, key=partition.seeded_key(1), by=by)
        crowd = voters(part, GRID + 1, by=by)
        each = [taught(space, made, line, crowd, [shards.of(one)], asked) for one in range(20)]
        turned = (random.permutation(shards.of(one)) for one in range(20))  # whatever records are called
        whole = taught(space, made, line, crowd, turned, asked)
        assert sum(each).tolist() == whole.tolist()
        return np.concatenate(each), whole

    for by, gone in (("record", ids == "7"), ("user", users == "7")):
        each, whole = table(part, by)
        far = np.where(gone, 0, labels).astype(np.int32)
        others = [part.take(~gone), part._replace(labels=far, inputs=np.where(gone[:, None], 50, inputs))]
        for other in others:
            now, after = table(other, by)
            assert (now != each).any(1).sum() == 1
            release = TeacherSums(20, 5, 100, 10.0)
            for change in ("changed", "joined"):
                assert 0 < ((after - whole) ** 2).sum() <= release.squared_shift(change)
    crowd = voters(part, GRID + 1)
    nobody = taught(space, made, line, crowd, [np.arange(0), np.array([3])], asked)
    assert nobody.tolist() == taught(space, made, line, crowd, [np.array([3])], asked).tolist()


def test_one_teacher_has_all_records_of_a_user(tmp_path):
    """A user with half of all records changes them all: every other teacher says what it did."""
    random, run = np.random.default_rng(12), RunDirectory(tmp_path / "run")
    inputs = random.normal(size=(400, 3)).astype(np.float32)
    users = np.where(np.arange(400) < 200, "one", np.arange(400).astype(str))
    labels = np.where(np.arange(400) < 200, GRID, GRID // 2).astype(np.int32)
    private = Part(inputs, labels, np.arange(400).astype(str), users)
    public = Part(random.normal(size=(60, 3)).astype(np.float32), None, np.arange(60).astype(str))
    ends = (2, ("0", "1"), AS_STORED, False, "drawn numbers")
    dataset = Dataset("days", "table", private, public, None, *ends)
    run.secret.draw(1)
    inputs_of = Inputs(run, DataChoice(), PartitionChoice(20, "user"), TeacherConfig(), opened=dataset)
    method = Taught(inputs_of, methods.Promise(5.0, 1e-5, "user"))
    event = method.question(PublicInputs.of(dataset), [])
    other = private._replace(labels=np.where(users == "one", 0, labels).astype(np.int32))
    moved = ((method.count(other, event, []) - method.count(private, event, [])) ** 2).sum()
    assert event.length**2 < moved <= event.squared_shift("changed") == event.squared_shift("joined")


def test_what_teachers_cost_is_that_of_the_two_farthest_tables_they_can_say():
    """mpmath: the profile of a Gaussian between v and -v, for a record that is changed, added or removed."""
    import mpmath

    release = counts.teacher_sums_for(counts.mu_for(0.7, 1e-5), 60, 5, 100)
    stated = counts.worst([release], 1e-5)
    mu = mpmath.mpf(2 * release.length) / mpmath.mpf(release.sigma)
    with mpmath.workdps(50):
        tails = (mpmath.ncdf(mu / 2 - stated / mu), mpmath.exp(stated) * mpmath.ncdf(-mu / 2 - stated / mu))
        assert tails[0] - tails[1] == pytest.approx(1e-5, rel=1e-4)
    assert counts.epsilon([release], 1e-5, change="joined") == counts.epsilon([release], 1e-5)
    assert stated <= 0.7
    random, count = np.random.default_rng(11), 400_000
    vector = np.array([60, 0, 80, 0, 0])
    plus, minus = (
        np.rint(random.normal(size=(count, 5)) * release.sigma + sign * vector) @ vector for sign in (1, -1)
    )
    cut = 2.0 * release.sigma * 100
    ratio = math.log((plus > cut).sum() / (minus > cut).sum())
    theory = [float(mpmath.ncdf((sign * 1e4 - cut) / (release.sigma * 100))) for sign in (1, -1)]
    assert ratio == pytest.approx(math.log(theory[0] / theory[1]), abs=0.05) and 0.2 < ratio < 0.7


def test_teachers_predict_a_number_and_all_of_it_is_checked(folder, tmp_path, monkeypatch):
    run = RunDirectory(tmp_path / "run")
    found = pipeline.run(config(folder, run.root, cut={"teachers": 40}))
    (line,) = ledger.releases(run.ledger)
    assert line.event.name == "teacher-sums" and line.event.teachers == 40
    stated = found["statement"]["figures"]["data_independent"]["epsilon"]
    assert 1.999 < stated <= 2.0
    mine, constant, _ = found["numbers"]["figures"]
    assert mine["r2"][0] > constant["r2"][0] + 0.3
    page = run.public_report.read_text()
    assert "each of 40 teachers adds a vector" in page and "R2" in page and "95% interval" in page
    checked = verify.of_run(run, deep=True)
    assert checked.of("failed") == [] and any("each changed" in one for one in checked.of("passed"))
    again = pipeline.run(config(folder, run.root, cut={"teachers": 40}))
    assert again["numbers"] == found["numbers"]
    with pytest.raises(PateError, match="teachers"):
        pipeline.run(config(folder, run.root, cut={"teachers": 30}))
    monkeypatch.setattr(audit_methods, "_SAMPLED", 2)
    edit(run.settings, lambda body: body["method"].update(teachers=30))
    assert "30" in " | ".join(verify.of_run(run, deep=True).of("failed"))


def test_what_is_left_of_a_number_is_that_of_exact_fractions():
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
            TeacherConfig(),
            opened=methods.Inputs(RunDirectory(tmp_path), data, PartitionChoice(), TeacherConfig()).dataset,
        )
        method = Numbers(inputs, methods.Promise(2.0))
        line = method._line(method._plan(lines), lines)
        asked.append([method.ask(lines[:place]) for place in range(4)] + [line.weights.tolist(), line.width])
    assert asked[0] == asked[1] and asked[0][3] is None


def test_nothing_fails_in_a_run_as_it_was_made(made):
    assert verify.of_run(made[0], deep=True).of("failed") == []


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    monkeypatch.setattr(audit_methods, "_SAMPLED", 2)  # all voters are moved in the run as it was made
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
        (lambda run: edit(run.settings, lambda all: all["method"].pop("promise")), "not of the form"),
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
    named = text[0].split(",")[1]  # what a register knows records by goes with the records that are left out
    both = from_files(
        tmp_path / "a.csv", folder / "public.csv", target="days", id_column="id", leave_out=named
    )
    assert [len(hashes) for hashes in both.unread] == [3] * len(both.unread) != []
    assert people.of(both, key=bytes(32)).keys() >= {"ids", "contents"}
    with pytest.raises(PateError, match="1 private records have no 'days', and none has an id"):
        from_files(tmp_path / "a.csv", folder / "public.csv", target="days", leave_out="id")
    for changes, told in (
        ({"voters": "neighbours"}, "learned by sums, or by --teachers"),
        ({"cut": {"teachers": 5}, "selection": "first"}, "leave out --selection"),
        ({"cut": {"teachers": 1600}}, "ask for at most 1500 teachers"),
        ({"queries": 50}, "leave out --steps, --queries"),
        ({"cut": {"by": "user"}}, "needs the user"),
    ):
        with pytest.raises(PateError, match=told):
            pipeline.run(config(folder, tmp_path / "no", **changes))
    data = config(folder, tmp_path / "no").data
    rows = replace(data, id_column=None, leave_out="id")
    with pytest.raises(PateError, match="by row numbers, so that removing one"):
        pipeline.run(replace(config(folder, tmp_path / "no", cut={"teachers": 5}), data=rows))
    with pytest.raises(PateError, match="which `pate run --voters sums` learns"):
        pipeline.of_one_label(RunConfig(data, out=tmp_path / "no", voters="sums", register=NONE))
    assert not (tmp_path / "no" / "private" / "settings.json").exists()
    assert Target("days", 0, 15).values(np.array([0.5])).tolist() == [7.5]


def test_python_takes_a_number_of_a_frame(tmp_path):
    random = np.random.default_rng(13)

    def frame(count, start):
        inputs = random.normal(size=(count, 2))
        names = [f"{start}{one:05x}" for one in random.permutation(1 << 18)[:count]]
        return {"id": names, "a": inputs[:, 0], "b": inputs[:, 1], "days": np.exp(inputs[:, 0])}

    asked = {"target": "days", "target_range": "0,9", "teachers": 30, "seed": 1, "register": NONE}
    made = own_data.run(frame(600, "p"), frame(80, "u"), id="id", epsilon=4.0, out=tmp_path / "run", **asked)
    low, high = made.predict({"a": [-1.0, 1.5], "b": [0.0, 0.0]})
    assert 0 <= low < high <= 9
