"""Comparisons: tables and laws are right, epsilons are kept, rows are measured once, sentences are honest."""

import importlib.util
import itertools
import json
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from commands import call

from pate_jax import crowd
from pate_jax.baselines.dpsgd import calibration
from pate_jax.crowd import steps, tables
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.plan import Plan
from pate_jax.data.dataset import AS_STORED, Dataset, Part
from pate_jax.data.targets import GRID, Target
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import local as described
from pate_jax.runs import methods
from pate_jax.runs.inputs import teachers_net
from pate_jax.runs.report import numbers
from pate_jax.sweep.compare import (
    Contender,
    Draw,
    Ground,
    Needs,
    Outcome,
    comparison,
    contenders,
    crowds,
    dpsgd,
    local_sums,
    named,
    whole_run,
)
from pate_jax.sweep.compare import local_votes as local
from pate_jax.sweep.compare.cells import Cell, Late, cells_of, measure, within

NOTHING = Needs("none", "nobody", "nothing")


def part(rows, seed):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows, 3)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int32)
    return Part(inputs, labels, np.array([f"{seed}-{row}" for row in rng_names(rows, seed)]))


def rng_names(rows, seed):
    return np.random.default_rng(seed).permutation(10_000)[:rows]


@pytest.fixture(scope="module")
def ground():
    return drawn(600)


def drawn(records):
    parts = part(records, 1), part(90, 2), part(70, 3)
    names = ("no", "yes")
    return Ground(Dataset("made-up", "table", *parts, 2, names, AS_STORED, False, "drawn by a test"))


@pytest.fixture(scope="module")
def people(ground):
    return crowd.voters(ground.dataset.private, 2)


def test_tables_are_those_of_a_run(ground, people):
    sums, counts = (crowds.plan(kind, ground, 1.0) for kind in ("sums", "neighbours"))
    run = crowd.sums(sums.space, sums.scaling, people, sums.release)
    np.testing.assert_array_equal(crowds.summed(sums, ground), run)
    run = crowd.counts(counts.space, counts.queries, people, counts.release)
    np.testing.assert_array_equal(crowds.counted(counts, ground), run)


def test_sums_are_compared_by_the_steps_that_a_run_takes():
    ground = drawn(8000)
    made, people = crowds.plan("sums", ground, 8.0), crowd.voters(ground.dataset.private, 2)
    found = crowds.by_sums(ground, Draw(8.0))
    assert found.settings["steps"] == made.steps.number and 7.99 < found.epsilon <= 8.0
    assert (found.said.argmax(1) == ground.truth).mean() > 0.9
    weights = np.ones((made.steps.release.directions, 2), np.int64)
    step = Plan(made.steps.space, made.steps.scaling, None, made.steps.release, weights=weights)
    private = crowd.vectors(step.scaling, ground.places)
    mine = steps.gradients(private, ground.labels, None, weights, step.release)
    np.testing.assert_array_equal(mine, tables.table(step, people))


@pytest.mark.long
def test_a_whole_run_brings_what_its_classifier_does(ground):
    run, fast = (how(ground, Draw(2.0)) for how in (whole_run.by_sums, crowds.by_sums))
    assert 1.98 < run.epsilon <= 2.0 >= fast.epsilon
    assert run.settings == {"student": "linear"}
    assert (run.said.argmax(1) == fast.said.argmax(1)).mean() > 0.9


@pytest.mark.parametrize("noise", [described.RandomisedResponse(4, 1.0), described.OneHotNoise(4, 1.0)])
def test_local_counts_have_the_law_of_the_channel(noise):
    """Mean and covariance against the channel of one record, over many draws."""
    exact, random = np.array([5, 0, 30, 2]), np.random.default_rng(0)
    drawn = np.array([local.received(noise, exact, random) for _ in range(600)])
    rows = np.array(described.channel(noise), float) / described.WORDS
    if described.is_bits(noise):
        each = np.where(np.eye(4, dtype=bool), rows[1, 1], rows[0, 1])
        spread = [np.diag(row * (1 - row)) for row in each]
    else:
        each = rows
        spread = [np.diag(row) - np.outer(row, row) for row in each]
    wanted = sum(number * of for number, of in zip(exact, spread, strict=True))
    np.testing.assert_allclose(drawn.mean(0), exact @ each, atol=4 * np.sqrt(wanted.max() / 600))
    np.testing.assert_allclose(np.cov(drawn.T), wanted, atol=0.3 * wanted.max())
    unbiased = np.array([local.estimates(noise, one, 37) for one in drawn])
    error = unbiased.std(0) / np.sqrt(len(drawn))
    assert (abs(unbiased.mean(0) - exact) < 4 * error).all()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_what_a_record_sends_is_as_private_as_is_said(ground, epsilon):
    made, noise = local.plan(ground, epsilon)
    rows = np.array(described.channel(noise), float)
    each = (rows.max(0) / rows.min(0)).max() ** (1 + described.is_bits(noise))
    assert np.log(each) <= described.log_ratio(noise) * (1 + 1e-12) <= epsilon * (1 + 1e-12)
    assert noise.classes == np.prod(made.release.shape)
    assert made.release.votes == 1
    assert crowds.counted(made, ground).sum() == len(ground.labels)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_vector_is_sent_without_bias_and_as_private_as_is_said(epsilon):
    """The chances of the two sides of a full vector are e^epsilon apart; those of no vector are equal."""
    random, draws = np.random.default_rng(5), 8000
    full, half = np.array([0.0, 3.0, 4.0, 0.0]), np.array([0.0, 0.0, 0.0, 2.5])
    for vector in (full, half, 0 * full):
        drawn = local_sums.sent(np.tile(vector, (draws, 1)), 5.0, epsilon, random)
        error = drawn.std(0) / draws**0.5
        assert (abs(drawn.mean(0) - vector) < 4.5 * error).all()
        np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), local_sums.radius(4, 5.0, epsilon))
        side = (drawn @ (vector if vector.any() else full) > 0).mean()
        likely = 1 / (1 + np.exp(-epsilon))
        wanted = 0.5 + (likely - 0.5) * np.linalg.norm(vector) / 5
        assert abs(side - wanted) < 4.5 * 0.5 / draws**0.5
    with pytest.raises(PateError, match="longer than 5"):
        local_sums.sent(full[None] * 1.01, 5.0, epsilon, random)


def test_the_noise_of_local_sums_is_what_their_classifier_is_told(ground):
    made = local_sums.plan(ground, 1.0)
    random = np.random.default_rng(3)
    exact = crowds.summed(made, ground)
    errors = [local_sums.received(made, ground, 1.0, random) - exact for _ in range(40)]
    assert np.std(errors) == pytest.approx(made.release.sigma, rel=0.2)


def test_the_epsilon_of_dpsgd_is_that_of_a_changed_record(ground):
    """The other relation is cheaper, and is only told beside it."""
    trained = SimpleNamespace(
        steps=9, noise_multiplier=2.0, epsilon=0.6, replaced=1.1, probabilities=lambda inputs: np.eye(2)
    )
    found = dpsgd.outcome(trained, np.zeros((2, 3)))
    assert found.epsilon == 1.1 and found.settings["added_or_removed"] == 0.6
    settings = dpsgd.chosen(ground, 1.0, None, steps=100)
    planned = calibration.plan(settings.epsilon, settings.delta, len(ground.labels), settings)
    assert planned.epsilon < 0.9 < 0.97 < planned.replaced <= 1


def saying(labels, epsilon, name="one"):
    calls = []

    def learn(ground, draw):
        calls.append(draw)
        return Outcome(
            np.eye(ground.dataset.classes)[np.full(len(ground.truth), labels)],
            epsilon and draw.epsilon * epsilon,
            {"made": "up"},
        )

    return Contender(name, NOTHING, learn, epsilon is not None), calls


def test_a_cell_is_measured_once(ground, tmp_path):
    one, calls = saying(1, 0.5)
    none, others = saying(0, None, "none")
    wanted = cells_of([one, none], [1.0, 3.0], draws=2)
    path = tmp_path / "results.jsonl"
    first = measure(ground, wanted[:3], path, 60)
    assert measure(ground, wanted, path, 60)[:3] == first
    assert calls == [Draw(1.0), Draw(1.0, 1), Draw(3.0), Draw(3.0, 1)] and others == [Draw(0.0)]
    assert [row["spent"] for row in first] == [0.5, 0.5, None]
    assert first[0]["right"] == pytest.approx((ground.truth == 1).mean())


def test_what_methods_share_counts_for_none_of_them(ground, tmp_path, monkeypatch):
    """The first to need a space is not charged for it; this clock ticks at each look."""
    fresh = Ground(ground.dataset)
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: next(ticks))

    def learn(ground, draw):
        assert len(ground.places) == len(ground.labels)  # made of another shared thing, which counts once
        return Outcome(np.eye(ground.dataset.classes)[ground.truth], draw.epsilon, {})

    wanted = cells_of([Contender("one", NOTHING, learn)], [1.0, 2.0])
    first, second = measure(fresh, wanted, tmp_path / "results.jsonl", 60)
    assert (first["seconds"], first["shared"], fresh.clock.seconds) == (2, 3, 3)
    assert second["seconds"] == 1 and "shared" not in second


def test_linear_teachers_see_the_space_that_was_learned(ground):
    learned = teachers_net(TeacherConfig(net="linear"), ground.dataset)
    np.testing.assert_array_equal(learned.front(ground.test.inputs), ground.entries.tested)


def test_a_method_that_spends_more_than_it_may_ends_the_comparison(ground, tmp_path):
    beyond, _ = saying(1, 1.001)
    with pytest.raises(RuntimeError, match=r"where 1\.0 was allowed"):
        measure(ground, [Cell(beyond, 1.0)], tmp_path / "results.jsonl", 60)
    unguarded, _ = saying(1, None)
    with pytest.raises(RuntimeError, match="states epsilon None"):
        measure(ground, [Cell(unguarded, 1.0)], tmp_path / "results.jsonl", 60)


def test_a_refused_or_late_method_is_said_to_be_none(ground, tmp_path):
    def refusing(ground, draw):
        raise PateError("it is too small")

    def slow(ground, draw):
        while True:
            time.process_time()

    wanted = [Cell(Contender(how.__name__, NOTHING, how), 1.0) for how in (refusing, slow)]
    rows = measure(ground, wanted, tmp_path / "results.jsonl", 0.05)
    assert rows[0]["refused"] == "it is too small"
    assert "longer than 0.05 CPU seconds" in rows[1]["refused"]
    with within(0.05):
        pass  # and no alarm is left
    assert sum(range(10**6))


def test_a_late_method_is_stopped_in_any_thread():
    def slow():
        try:
            with within(0.2):
                while True:
                    sum(range(1000))
        except Late as error:
            said.append(str(error))

    said = []
    other = threading.Thread(target=slow)
    other.start()
    other.join(60)
    assert said == ["it took longer than 0.2 CPU seconds and was stopped; allow more (--minutes)"]


def row(method, right, spent=1.0, test=400):
    return {"method": method, "right": right, "spent": spent, "test": test, "seconds": 1.0}


def test_a_choice_on_private_records_is_never_said_to_be_covered():
    rows = [row("sums", 0.9), row("teachers", 0.6), row("no privacy", 0.95, None)]
    said = comparison.sentence(rows, 1.0, 0.5, "private")
    assert "take sums (90.0%" in said and "no epsilon covers it" in said
    assert "SENSITIVE" in comparison.warning("private", 6)
    for kind in ("public", "synthetic"):
        assert f"are {kind}, so this choice costs no privacy" in comparison.sentence(rows, 1.0, 0.5, kind)
        assert comparison.warning(kind, 6) is None


def test_methods_that_the_test_rows_do_not_tell_apart_are_named_together():
    rows = [row("sums", 0.80), row("neighbours", 0.78), row("teachers", 0.6)]
    said = comparison.sentence(rows, 1.0, 0.5, "public")
    assert "do not tell from neighbours;" in said
    assert "surely better than the most frequent class" in comparison.sentence(rows, 1.0, 0.79, "public")
    assert "raise epsilon" in comparison.sentence([row("no privacy", 0.9, None)], 1.0, 0.5, "public")


def test_methods_are_ordered_and_told_apart_by_the_metric_that_is_named():
    hidden, ranks = row("neighbours", 0.9), row("sums", 0.9)
    hidden["measures"] = {"auroc": [0.55, 0.5, 0.6], "accuracy": [0.9, 0.88, 0.92]}
    ranks["measures"] = {"auroc": [0.8, 0.75, 0.85], "accuracy": [0.9, 0.88, 0.92]}
    rows, metric = [hidden, ranks], Metric("auroc")
    assert [one.method for one in comparison.standings(rows, "auroc")] == ["sums", "neighbours"]
    said = comparison.sentence(rows, 1.0, 0.5, "public", metric)
    assert said.startswith("At epsilon 1 take sums (AUROC 0.800); ")
    assert "the most frequent class, which reaches AUROC 0.790" in comparison.sentence(
        rows, 1.0, 0.79, "public", metric
    )


def test_the_error_of_draws_and_of_test_rows_add_up():
    found = comparison.standings([row("sums", right) for right in (0.7, 0.8, 0.9)])[0]
    assert found.error**2 == pytest.approx(0.8 * 0.2 / 400 + 0.01 / 3)


def test_the_command_warns_and_goes_on(tmp_path, capsys):
    files = []
    for name, seed in (("private", 1), ("public", 2), ("test", 3)):
        made = part(600 if name == "private" else 90, seed)
        np.savez(tmp_path / f"{name}.npz", inputs=made.inputs, labels=made.labels, ids=made.ids)
        files += [f"--{name}", tmp_path / f"{name}.npz"]
    flags = [*files, "--out", tmp_path / "out", "--methods", "sums", "--epsilon", "2"]
    assert call("compare", *flags, "--json") == 0
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert "SENSITIVE" in told.err and found["judged_on"] == "private"
    assert 1.98 < found["rows"][0]["spent"] <= 2
    assert call("compare", *flags, "--judged-on", "public") == 0
    told = capsys.readouterr()
    assert "SENSITIVE" not in told.err and "costs no privacy" in told.out
    assert f"{found['rows'][0]['right']:.1%}" in told.out
    assert (tmp_path / "out/results.jsonl").read_text().count("\n") == 1
    assert call("compare", *flags[:4], "--methods", "sums") == 2
    assert "no labelled test part" in capsys.readouterr().err


def test_a_comparison_says_beforehand_what_its_rivals_need(monkeypatch):
    real = importlib.util.find_spec
    missing = lambda name, *more: None if name == "jax_privacy" else real(name, *more)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", missing)
    assert [one.name for one in named(["sums"])] == ["sums"]
    for wanted in ([], ["DP-SGD linear"]):
        with pytest.raises(PateError, match=r"pip install 'pate-jax\[baselines\]', or name other methods"):
            named(wanted)


def of_numbers(rows, seed):
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(rows, 3)).astype(np.float32)
    days = Target("days", 0, 15).steps(np.exp(1 + inputs[:, 0] - 0.5 * inputs[:, 1]))
    names = np.array([f"{seed}-{row}" for row in rng_names(rows, seed)])
    return Part(inputs, days.clip(0, GRID), names)


def test_numbers_are_compared_by_what_their_students_predict(tmp_path):
    parts = of_numbers(900, 1), of_numbers(150, 2), of_numbers(120, 3)
    ends = (2, ("0", "15"), AS_STORED, True, "drawn numbers")
    dataset = Dataset("drawn", "table", *parts, *ends, target=Target("days", 0, 15))
    begun = comparison.begun(dataset, contenders.of_numbers(), 4.0, 1e-5, None)
    found = begun.measured(tmp_path, 1, 600)
    rows = {row["method"]: row for row in found.rows}
    assert list(rows) == ["sums", "teachers", "public numbers alone", "no privacy"]
    assert [row["spent"] for row in rows.values()][2:] == [0.0, None]
    assert 3.99 < rows["sums"]["spent"] <= 4.0 and rows["teachers"]["settings"]["teachers"] == 15
    (student, _), test = methods.trial("teachers of numbers", dataset, methods.Promise(4.0), 15), parts[2]
    said, true = student(test.inputs)[:, 1] * 15, test.labels / GRID * 15
    assert np.abs(said - true).mean() == pytest.approx(rows["teachers"]["measures"]["error"][0], rel=0.5)
    best = rows["no privacy"]["measures"]
    known = numbers.alone(dataset, test.inputs, np.asarray(parts[1].labels, float)) / GRID * 15
    alone = rows["public numbers alone"]["measures"]
    assert alone["error"][0] == pytest.approx(np.abs(known - true).mean(), rel=1e-6)
    assert alone["r2"][0] == pytest.approx(
        1 - ((known - true) ** 2).sum() / ((true - true.mean()) ** 2).sum()
    )
    assert best["r2"][0] > 0.5 and best["r2"][1] < best["r2"][0] < best["r2"][2]
    shown = found.to_dict()
    assert "(R2 0." in shown["recommendation"] or "a constant" in shown["recommendation"]
    assert found.measured(tmp_path, 1, 600).rows == found.rows
    with pytest.raises(PateError, match="predicts no number"):
        contenders.of_numbers(["neighbours"])
