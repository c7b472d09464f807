"""Canaries bound epsilon from below: never above the truth, and above the claim in each broken twin."""

import itertools
import json
import math
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import honest_runs
import jax
import numpy as np
import pytest
from commands import call
from scipy import special, stats
from test_risk import contents

from pate_jax import aggregate
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import Answers, noise
from pate_jax.audit.attacks import canaries, canary_bounds, mechanism, steps_canaries, teacher_canaries, twins
from pate_jax.audit.attacks.attack import Flags
from pate_jax.crowd import classifier, step_choice
from pate_jax.crowd.vectors import Scaling
from pate_jax.data import partition
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import spaces
from pate_jax.runs import pipeline

DELTA, LENGTH, RUNS = 1e-5, 200, 20
TEACHERS, CLASSES, QUERIES = 12, 3, 4
ANSWERING = DiscreteGaussianMax(6.0)


@pytest.fixture(autouse=True, scope="module")
def _quick_normal_law():
    """The same normal law in jax_privacy without the checks of scipy.stats, which take most of its time."""
    upper = lambda level: -special.ndtri(level)  # noqa: E731
    quick = SimpleNamespace(cdf=special.ndtr, ppf=special.ndtri, isf=upper, logcdf=special.log_ndtr)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canary_bounds.auditing(), "_norm", quick)
        yield


def seeded():
    numbers = itertools.count()
    return lambda: noise.seeded_key(next(numbers))


def one_key():
    return lambda: noise.seeded_key(7)


@cache
def voters(entries=20):
    """Sixty canaries, one for each entry of a table of three classes, at epsilon 1."""
    mu = counts.mu_for(1.0, DELTA)
    public = np.rint(np.random.default_rng(0).normal(size=(80, entries)) * 50).astype(np.int32)
    release = ClassSums(CLASSES, entries, LENGTH, 2 * LENGTH / mu * (1 + 1e-6))
    scaling = Scaling(np.full(entries, 1e-4, np.float32), LENGTH, 0)
    pool, number = classifier.measured(public, LENGTH), counts.headcount_for(mu, "sums")
    return canaries.voters(scaling, pool, release, number, 10**6)


def of_sums(made, key=seeded, runs=RUNS):
    seen = canaries.played(made, runs, coins=np.random.default_rng(1), key=key())
    return seen, canaries.Bounds(seen.coins.size, runs, canaries.bounds(seen, voters(), DELTA))


def test_canaries_are_as_far_apart_as_two_contents_may_be_and_share_no_entry():
    made = voters()
    half = made.records // 2
    np.testing.assert_array_equal(made.vectors[:half], -made.vectors[half : 2 * half])
    sizes = np.linalg.norm(made.vectors[: 2 * half], axis=1)
    assert sizes.min() >= LENGTH - 2 and sizes.max() <= LENGTH
    cells = made.labels[:half] * made.release.directions + made.vectors[:half].argmax(1)
    assert len(set(cells)) == half == made.release.classes * made.release.directions
    assert canaries.claim(made)(DELTA) == pytest.approx(1.0, rel=1e-4)


def test_an_honest_crowd_shows_less_than_it_claims_and_its_table_has_the_exact_law():
    seen, found = of_sums(voters(), runs=40)
    assert found.holds and "1 is claimed" in found.text() and "MORE" not in found.text()
    made = voters()
    ideal = made.squares[: made.records // 2] * np.where(seen.coins, 1, -1)
    noisy = (seen.table - ideal) / np.sqrt(made.squares[: made.records // 2]) / made.release.sigma
    assert stats.kstest(noisy.ravel(), "norm").pvalue > 1e-3


@pytest.mark.parametrize(
    ("twin", "key", "score"),
    [
        (twins.without_noise, seeded, "table"),
        (twins.without_noise, seeded, "student"),
        (twins.too_little_noise, seeded, "table"),
        (partial(twins.unbounded, times=5), seeded, "table"),
        (lambda honest: honest, one_key, "difference"),
    ],
    ids=["no noise", "no noise, student", "a tenth of the noise", "unbounded voters", "a reused key"],
)
def test_canaries_among_voters_find_each_broken_twin(twin, key, score):
    _, found = of_sums(twin(voters()), key)
    broken = [one.score for one in found.bounds if not one.holds]
    assert score in broken and "THIS IS MORE THAN THE 1 THAT IS CLAIMED" in found.text()


def normal(release, table, key):
    """The noise of a release by NumPy: the tables of the sampler take long at so wide noise."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    drawn = np.random.default_rng(words).normal(size=table.shape) * release.sigma
    return table + np.rint(drawn).astype(np.int64)


@cache
def in_steps():
    """Eight canaries in five tables, at epsilon 1."""
    mu, random = counts.mu_for(1.0, DELTA), np.random.default_rng(0)
    places = random.normal(size=(300, 8)) * np.linspace(3, 1, 8)
    space = spaces.learn("identity", places)
    pool, number = space.coordinates(places), counts.headcount_for(mu, "sums")
    plan = step_choice.stepped(space, pool, voters=20_000, classes=3, mu=mu, number=5)
    made = steps_canaries.planted(plan, pool, pool, number, voters=20_000, most=8)
    return replace(made, first=replace(made.first, draw=normal))


def of_steps(made, key=seeded, runs=100):
    seen = steps_canaries.played(made, runs, coins=np.random.default_rng(1), key=key())
    return seen, canaries.Bounds(seen.coins.size, runs, steps_canaries.bounds(seen, in_steps(), DELTA))


def test_canaries_in_steps_move_every_table_nearly_as_far_as_may_be_and_show_less_than_is_claimed():
    made = in_steps()
    assert steps_canaries.claim(made)(DELTA) == pytest.approx(1.0, rel=1e-4)
    own = made.own(np.zeros((made.vectors.shape[1], CLASSES), np.int64))
    apart = np.linalg.norm(own[:8] - own[8:], axis=1) / made.made.release.length
    assert apart.min() > 1.6 and apart.max() <= 2  # both sides have the same constant
    seen, found = of_steps(made)
    assert found.holds and "1 is claimed" in found.text() and "MORE" not in found.text()
    table = np.stack([one.table for one in seen.shown]) * np.where(seen.coins, 1, -1)
    spread, mu = table.std(), counts.mu_for(1.0, DELTA)
    assert 0.7 * mu < spread < 1.1 * mu  # of a normal log-likelihood ratio, whose mean is half its variance
    assert table.mean() == pytest.approx(spread**2 / 2, abs=4 * spread / math.sqrt(table.size))


@pytest.mark.parametrize(
    ("twin", "key", "score"),
    [
        (partial(twins.steps_with_too_little_noise, times=10), seeded, "table"),
        (twins.one_noise_for_all_steps, seeded, "again"),
        (lambda honest: honest, one_key, "difference"),
    ],
    ids=["a tenth of the noise", "the noise of one step in the next", "a reused key"],
)
def test_canaries_in_steps_find_each_broken_twin(twin, key, score):
    _, found = of_steps(twin(in_steps()), key)
    broken = [one.score for one in found.bounds if not one.holds]
    assert score in broken and "THIS IS MORE THAN THE 1 THAT IS CLAIMED" in found.text()


def test_a_run_in_steps_is_audited_by_canaries():
    found = canaries.ATTACK.attacked(honest_runs.in_steps("user"), Flags(canaries=100))
    assert found.holds and found.canaries >= 100


def ridge(part, shards, asked):
    """Linear teachers with NumPy alone."""
    labels = []
    for teacher in range(len(shards.counts)):
        rows = shards.of(teacher)
        inputs, wanted = part.inputs[rows], np.eye(CLASSES)[part.labels[rows]] - 1 / CLASSES
        solved = np.linalg.solve(inputs @ inputs.T + 0.1 * np.eye(len(rows)), wanted)
        labels.append((asked @ inputs.T @ solved).argmax(1))
    return np.stack(labels)


def sampler(asked, votes, *, key):
    """The mechanism's law with NumPy's noise, so that nothing is compiled."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    drawn = votes + np.rint(np.random.default_rng(words).normal(size=votes.shape) * asked.sigma)
    drawn = drawn + np.random.default_rng(0).random(votes.shape) / 2
    return Answers(drawn.argmax(1), np.ones(len(votes), bool))


@cache
def worst():
    return WorstCase(ANSWERING, [TEACHERS], CLASSES)


@cache
def claim(delta):
    return float(worst().figure(np.array([QUERIES]), delta).epsilon.epsilon)


def votes():
    random = np.random.default_rng(1)
    inputs = random.normal(size=(30, 5)) + 1
    inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
    race = mechanism.race(ANSWERING, TEACHERS, CLASSES)[0][0]
    return teacher_canaries.votes(ridge, inputs, race, QUERIES, key=partition.seeded_key(3))


def of_teachers(patch, key=seeded, runs=8000, answering=sampler):
    patch.setattr(aggregate, "answer", answering)
    seen = teacher_canaries.rates(ANSWERING, votes(), runs, coins=np.random.default_rng(0), key=key())
    bounds = canary_bounds.many_runs(seen, claim, (DELTA, 0.01, 0.05))
    return canaries.Bounds(runs, runs, bounds)


def test_a_canary_moves_one_vote_at_each_query_of_the_race_that_tells_most(monkeypatch):
    pair = votes()
    expected = mechanism.race(ANSWERING, TEACHERS, CLASSES)[0]
    np.testing.assert_array_equal(pair.without, np.tile(expected[0], (QUERIES, 1)))
    np.testing.assert_array_equal(pair.with_it, np.tile(expected[1], (QUERIES, 1)))
    found = of_teachers(monkeypatch)
    assert found.holds and all(one.epsilon < one.claimed for one in found.bounds)
    assert found.bounds[0].epsilon > 0.2  # so the attack sees the canary


def test_a_person_in_two_shards_is_found(monkeypatch):
    monkeypatch.setattr(teacher_canaries, "divide", twins.shared_shards(teacher_canaries.CANARY))
    pair = votes()
    assert (pair.with_it - pair.without).tolist() == [[-2, 2, 0]] * QUERIES
    found = of_teachers(monkeypatch)
    assert {one.score for one in found.bounds if not one.holds} == {"answers"}


def test_a_reused_key_is_found_by_the_difference_of_two_runs(monkeypatch):
    found = of_teachers(monkeypatch, one_key)
    assert {one.score for one in found.bounds if not one.holds} == {"difference"}


def test_a_third_of_the_noise_is_found(monkeypatch):
    quiet = lambda asked, counted, *, key: sampler(DiscreteGaussianMax(2.0), counted, key=key)  # noqa: E731
    assert not of_teachers(monkeypatch, answering=quiet).holds


def test_bounds_we_use_find_nothing_in_noise_and_epsilon_from_gdp_does():
    """Scores without any signal: whoever reports a leak is wrong, which one in twenty may be."""
    random, leaks, wrong = np.random.default_rng(0), {"ours": 0, "many": 0}, []
    for _ in range(40):
        coins, scores = random.random(400) < 0.5, random.normal(size=400)
        found = canary_bounds.one_run({"noise": scores}, coins, lambda delta: 0.0, DELTA, shift=True)
        leaks["ours"] += any(one.epsilon > 0 for one in found)
        seen = canary_bounds.Rates(scores[coins], scores[~coins], random.normal(size=200))
        many = canary_bounds.many_runs({"noise": seen}, lambda delta: 0.0, (DELTA, 0.05))
        leaks["many"] += any(one.epsilon > 0 for one in many)
        auditor = canary_bounds.auditing().CanaryScoreAuditor(scores[coins], scores[~coins])
        wrong.append(auditor.epsilon_from_gdp(0.05, DELTA))
    assert max(leaks.values()) <= 4 and min(wrong) > 1


def test_bounds_come_near_an_epsilon_that_is_there_and_not_above():
    random, mu = np.random.default_rng(2), counts.mu_for(4.0, DELTA)
    coins = random.random(4000) < 0.5
    scores = random.normal(size=4000) + mu * coins
    found = canary_bounds.one_run({"ideal": scores}, coins, lambda delta: 4.0, DELTA, shift=True)
    plain, strict, gaussian = (one.epsilon for one in found)
    assert 1.0 < plain < gaussian < 4.0 and gaussian > 1.5 and strict >= plain
    seen = canary_bounds.Rates(scores[coins], scores[~coins], random.normal(size=2000))
    assert 0.8 < canary_bounds.many_runs({"ideal": seen}, lambda delta: 4.0, (DELTA,))[0].epsilon < 4.0


def test_runs_that_no_canary_suits_are_refused_with_a_remedy(monkeypatch):
    assert "--only mechanism" in canaries.ATTACK.unfit(honest_runs.whole(7))
    assert canaries.ATTACK.unfit(honest_runs.crowd("sums")) is None
    monkeypatch.setattr(canary_bounds.importlib.util, "find_spec", lambda name: None)
    assert "pip install 'pate-jax[baselines]'" in canaries.ATTACK.unfit(honest_runs.crowd("sums"))
    with pytest.raises(PateError, match="baselines"):
        canary_bounds.auditing()
    with pytest.raises(PateError, match="canaries=99 must be at least 100"):
        canaries.ATTACK.attacked(honest_runs.crowd("sums"), canaries.Flags(canaries=99))


@pytest.mark.long
def test_the_audit_of_a_run_of_sums_holds():
    found = canaries.ATTACK.attacked(honest_runs.crowd("sums"), canaries.Flags(canaries=2000))
    assert found.holds and found.canaries >= 2000 and len(found.bounds) == 9


@pytest.mark.long
def test_the_audit_of_a_run_of_linear_teachers_holds(tmp_path, capsys):
    """The run's own partition, teachers and sampler."""
    linear = {"teacher": TeacherConfig(net="linear"), "mechanism": DiscreteGaussianMax(6.0)}
    pipeline.run(honest_runs.by_teachers(tmp_path / "run", **linear))
    before = contents(tmp_path / "run")
    assert call("attack", tmp_path / "run", "--only", "canaries", "--canaries", "2000", "--json") == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["canaries"]
    assert told["holds"] and max(one["epsilon"] for one in told["bounds"]) > 0.3
    after = contents(tmp_path / "run")
    changed = {path.name for path in after if before.get(path) != after[path]}
    assert changed == {"attacks.json", "report.html"}  # the owner's page tells it too
