"""Measures of a clinic: figures of scikit-learn, intervals that cover, and private test rows kept inside."""

import json

import numpy as np
import pytest
from scipy import special
from sklearn import linear_model, metrics

import pate_jax
from pate_jax.audit import secrets
from pate_jax.audit.subject import Subject
from pate_jax.data import Part
from pate_jax.data.columns import Column
from pate_jax.data.dataset import Dataset, Preprocessing
from pate_jax.runs import measured
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.report import measures, measures_page
from pate_jax.runs.report.sheet import Seen


def drawn(rows, seed, *, factor=1.0, shift=0.0):
    """Outcomes, and probabilities whose logits are those of the truth by a factor and a shift."""
    random = np.random.default_rng(seed)
    logit = random.normal(-1.5, 1.2, rows)
    y = (random.random(rows) < special.expit(logit)).astype(int)
    return y, special.expit(factor * logit + shift)


def test_figures_are_those_of_scikit_learn():
    y, p = drawn(700, 1, factor=1.7, shift=0.4)
    p = p.round(2)  # ties
    ones = np.ones((1, len(y)))
    weights = np.random.default_rng(0).integers(0, 4, len(y)).astype(float)
    for weight in (np.ones(len(y)), weights):
        row = weight[None]
        assert measures.auroc(y, p, row)[0] == pytest.approx(
            metrics.roc_auc_score(y, p, sample_weight=weight)
        )
        wanted = metrics.average_precision_score(y, p, sample_weight=weight)
        assert measures.auprc(y, p, row)[0] == pytest.approx(wanted)
    found = measures.measures(measures.judged(y, p, 1))
    assert found["brier"][0] == pytest.approx(metrics.brier_score_loss(y, p))
    logit = special.logit(np.clip(p, 1e-6, 1 - 1e-6))[:, None]
    fitted = linear_model.LogisticRegression(C=np.inf, tol=1e-10).fit(logit, y)
    assert found["slope"][0] == pytest.approx(fitted.coef_.item(), abs=1e-4)
    intercept = measures.calibration_intercept(y, p, ones)[0]
    assert special.expit(logit[:, 0] + intercept).sum() == pytest.approx(y.sum())  # what the intercept means
    for at in found["thresholds"]:
        tn, fp, fn, tp = metrics.confusion_matrix(y, p >= at["threshold"]).ravel()
        assert at["sensitivity"][0] == tp / (tp + fn) and at["specificity"][0] == tn / (tn + fp)
        assert (at["positive_value"][0], at["negative_value"][0]) == (tp / (tp + fp), tn / (tn + fn))
        odds = at["threshold"] / (1 - at["threshold"])
        assert at["net_benefit"][0] == pytest.approx((tp - fp * odds) / len(y))
        assert at["of_calling_all"] == pytest.approx(np.mean(y) - (1 - np.mean(y)) * odds)


def test_averages_are_those_of_scikit_learn():
    random = np.random.default_rng(2)
    labels, best = random.integers(0, 4, (2, 300))
    found = measures.averages(labels, best, 5)  # a class that is not there counts for nothing
    for name, figure in [
        ("recall", metrics.recall_score), ("precision", metrics.precision_score), ("f1", metrics.f1_score)
    ]:  # fmt: skip
        assert found[name] == pytest.approx(figure(labels, best, average="macro"))


def test_a_calibrated_student_is_called_so_and_others_are_not():
    exact, sure = (measures.measures(measures.judged(*drawn(4000, 3, factor=f), 1)) for f in (1.0, 2.0))
    assert exact["calibration_error"] < 0.03 and sure["calibration_error"] > 0.06
    assert abs(exact["calibration_luck"] - exact["calibration_error"]) < 0.012 < sure["calibration_error"]
    for name, best in (("slope", 1), ("intercept", 0)):
        assert exact[name][1] < best < exact[name][2]
    assert sure["slope"][2] < 0.7


def test_intervals_cover_and_users_are_drawn_as_a_whole():
    y, p = drawn(40_000, 5)
    truth, hit = metrics.roc_auc_score(y, p), 0
    for part in range(80):
        rows = slice(500 * part, 500 * (part + 1))
        _, low, high = measures.interval(measures.auroc, measures.judged(y[rows], p[rows], 1))
        hit += low <= truth <= high
    assert 68 <= hit <= 80
    users = np.repeat(np.arange(100), 5)  # each has the same row five times
    y, p = (np.repeat(one[:100], 5) for one in (y, p))
    alone, whole = (measures.interval(measures.auroc, measures.judged(y, p, 1, of)) for of in (None, users))
    assert whole[2] - whole[1] > 1.7 * (alone[2] - alone[1])  # the root of five, nearly


def judged_set():
    y, p = drawn(400, 7)
    inputs = np.zeros((400, 3), np.float32)
    inputs[np.arange(400), np.arange(400) % 3 // 2] = 1  # two in three are f
    part = Part(inputs, y, np.array([f"t{row}" for row in range(400)]))
    data = Dataset(
        name="own", kind="table", private=part, public=part._replace(labels=None),
        test=part, classes=2, class_names=("no", "yes"), preprocessing=Preprocessing((0.0,) * 3, (1.0,) * 3),
        synthetic=False, description="", columns=(Column("sex", ("f", "m")), Column("age")),
    )  # fmt: skip
    return data, Seen("test", part, np.stack([1 - p, p], 1)), p


def test_groups_are_the_rows_of_each_value():
    data, found, p = judged_set()
    made = measured.results(found, data, {"by_group": "sex", "positive": "no"})["measures"]
    assert made["positive"] == "no" and [one["group"] for one in made["groups"]] == ["f", "m"]
    for one, rows in zip(made["groups"], (np.arange(400) % 3 < 2, np.arange(400) % 3 == 2), strict=True):
        y = 1 - found.part.labels[rows]
        assert (one["rows"], one["outcomes"]) == (rows.sum(), y.sum())
        assert one["auroc"][0] == pytest.approx(metrics.roc_auc_score(y, 1 - p[rows]))
        assert one["right"][0] == pytest.approx(np.mean((p[rows] < 0.5) == y))
    page = "".join(measures_page.section({"measures": made}))
    assert "By sex, at a threshold of 0.5" in page and "How well it tells no" in page


def test_what_cannot_be_judged_is_refused_by_name():
    data, *_ = judged_set()
    with pytest.raises(
        pate_jax.PateError, match="--positive maybe must be one of two classes; they are no, yes"
    ):
        measured.check(data, "maybe", None)
    measured.check(data, "yes", "sex")
    measured.check(data, None, "age")  # of two public values
    data.public.inputs[:, 2] = np.arange(400)
    with pytest.raises(pate_jax.PateError, match=r"--by-group age .* at most 12 values .*: sex$"):
        measured.check(data, None, "age")


def test_an_outcome_that_never_happens_is_no_error():
    data, found, _ = judged_set()
    never = found._replace(part=found.part._replace(labels=np.zeros(400, np.int64)))
    made = measured.results(never, data, {})["measures"]
    assert "auroc" not in made and measures_page.told({"measures": made}) == []
    rare = measures.measures(measures.judged(np.array([0] * 9 + [1]), np.linspace(0, 1, 10), 1))
    assert rare["auroc"][0] == 1 and json.dumps(rare)


def frame(rows, seed):
    random = np.random.default_rng(seed)
    age, stage = random.normal(60, 9, rows), random.integers(0, 4, rows)
    sick = random.random(rows) < special.expit((age - 66) / 6 + (stage == 2))
    return {"age": age.tolist(), "stage": stage.tolist(), "sick": np.where(sick, "yes", "no").tolist()}


@pytest.mark.parametrize("private", [False, True])
def test_what_is_measured_on_private_test_rows_stays_inside(tmp_path, private, capsys):
    result = pate_jax.run(
        private=frame(1500, 1), public=frame(400, 2), test=frame(300, 3), label="sick",
        voters="sums", steps=1, epsilon=2.0, out=tmp_path, register=None, seed=1, by_group="stage",
        test_is_private=private,
    )  # fmt: skip
    assert "Public labels alone are expected" in capsys.readouterr().err  # before anything is spent
    right, made = result.facts["student_accuracy"], result.facts["measures"]
    assert made["positive"] == "yes" and made["auroc"][0] > 0.6 and len(made["groups"]) == 4
    assert "AUROC" in str(result) and "ublic labels alone" in str(result)
    owner = (tmp_path / "private/report.html").read_text()
    assert "<h1>Run report: sick, from 2 columns (private)</h1>" in owner
    assert "How well it tells yes" in owner and "What the private records bought" in owner
    released = "".join(path.read_text() for path in sorted((tmp_path / "release").rglob("*.[hm]*")))
    assert "Model card" in released and "<html" in released
    for said in ("AUROC", f"{right:.1%}", "ublic labels alone are right", "By stage"):
        assert (said in released) != private, said
    for said in (str(result), owner):
        assert ("300 private test rows" in said) == private != ("300 public test inputs" in said)
    held = secrets.secrets(Subject(RunDirectory(tmp_path)))
    assert [len(inputs) for inputs in held.inputs()] == [1500, 1500, *([300, 300] if private else [])]


def test_the_student_of_private_test_rows_is_otherwise_the_same():
    data, found, _ = judged_set()
    free, kept = (measured.results(found, data, {"test_is_private": it}) for it in (False, True))
    assert measured.published(free) == free and kept.pop("test_is_private")
    assert {**kept, "seen": {**kept["seen"], "where": "test"}} == free
