"""Membership inference: its statistics beside plain loops, its honest pipeline, and its broken twins."""

import json
import math
import shutil
from functools import cache

import honest_runs
import numpy as np
import pytest
from commands import call
from scipy import stats
from test_risk import contents

from experiments import attacks, crowds
from pate_jax import accounting
from pate_jax.accounting.exact import counts, pair
from pate_jax.audit.attacks import membership, replicas, roc, shadows, twins
from pate_jax.audit.attacks.attack import Flags
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.shadows import Seen, Shadows
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.crowd import classifier, tables
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import spaces
from pate_jax.runs import ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory

LENGTH, DELTA = 200, 1e-5


def crowd(records=160, entries=60, classes=3, epsilon=1.0, seed=0):
    """Vectors of full length whose class is seen in their first entries, among noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, records)
    drawn = random.normal(size=(records + 400, entries))
    drawn[np.arange(records), labels] += 1.5
    drawn *= (LENGTH - 4) / np.linalg.norm(drawn, axis=1, keepdims=True)
    whole = np.rint(drawn).astype(np.int32)
    mu = counts.mu_for(epsilon, DELTA)
    release = ClassSums(classes, entries, LENGTH, 2 * LENGTH / mu * (1 + 1e-6))
    pool = classifier.measured(whole[records:], LENGTH)
    number = counts.headcount_for(mu, "sums")
    return Sums(whole[:records], labels, pool, release, number, reference=60)


@cache
def found(kind, runs=160):
    """The figures of all attacks on one kind of pipeline."""
    honest = crowd()
    made = honest if kind == "honest" else getattr(twins, kind)(honest)
    seen = shadows.played(made, runs, seed=3)
    return {one.attack: one for one in membership.attacked(seen, honest.promise(DELTA))}


def test_an_honest_pipeline_shows_no_more_than_it_promises():
    for one in found("honest").values():
        assert one.holds, one.sentence()
        assert "guessing would give 50" in one.sentence() and "MORE" not in one.sentence()
        assert one.epsilon < 0.3  # far below what is promised, where an attacker does not know the others


def test_whoever_knows_all_others_attains_the_exact_curve_of_a_gaussian_shift():
    honest, one = crowd(), found("honest")["table, others known"]
    shift = math.sqrt(honest.squares.mean()) / honest.release.sigma  # of all vectors nearly the same
    assert abs(one.right - stats.norm.cdf(shift / 2)) < 4 * math.sqrt(0.25 / one.guesses) + 0.002
    assert abs(one.auc - stats.norm.cdf(shift / math.sqrt(2))) < 0.015
    exact = stats.norm.cdf(shift + stats.norm.ppf(0.01))
    assert one.caught[1].low < exact < one.caught[1].high


EVERY = ["loss", "lira", "lira, offline", "rmia", "table", "table, others known"]
TWINS = {"without_noise": EVERY, "too_little_noise": EVERY, "on_private_records": EVERY[:4]}


@pytest.mark.parametrize(("twin", "attack"), [(twin, one) for twin, all_ in TWINS.items() for one in all_])
def test_every_attack_detects_every_broken_twin(twin, attack):
    one, honest = found(twin)[attack], found("honest")[attack]
    assert not one.holds and "MORE THAN THE GUARANTEE" in one.sentence()
    assert one.auc > honest.auc + 0.05


@pytest.mark.parametrize("attack", EVERY[1:])
def test_without_noise_a_small_crowd_is_told_at_ten_times_the_false_positives(attack):
    strict = found("without_noise")[attack].caught[0]
    assert strict.level == 0.001 and strict.share > 10 * strict.level and strict.low > 5 * strict.level


def play(runs=24, records=7, reference=5, seed=1):
    random = np.random.default_rng(seed)
    member = np.stack([shadows.members(records, seed, number) for number in range(runs)])
    chance = random.uniform(0.1, 0.9, (runs, records))
    return Shadows(member, chance, random.uniform(0.1, 0.9, (runs, reference)), None, None)


def one_by_one(seen, here, target, record):
    """Those of a record over all other shadows on one side."""
    others = [s for s in range(len(seen)) if s != target and here[s, record]]
    return seen[others, record]


def test_likelihood_ratios_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr(membership, "MANY", 2)
    here = play()
    seen = membership.logit(here.confidence)
    online, offline = membership.lira(seen, here), membership.offline(seen, here)
    for target, record in np.ndindex(seen.shape):
        sides = [one_by_one(seen, side, target, record) for side in (here.member, ~here.member)]
        laws = [stats.norm(side.mean(), side.std(ddof=1)) for side in sides]
        inside, outside = (law.logpdf(seen[target, record]) for law in laws)
        assert online[target, record] == pytest.approx(inside - outside)
        assert stats.norm.cdf(offline[target, record]) == pytest.approx(laws[1].cdf(seen[target, record]))


def test_rmia_counts_the_records_that_are_raised_less():
    here = play()
    found = membership.rmia(here)
    for target, record in np.ndindex(here.member.shape):
        sides = [one_by_one(here.confidence, side, target, record) for side in (here.member, ~here.member)]
        raised = here.confidence[target, record] / np.mean([side.mean() for side in sides])
        rest = np.delete(here.reference, target, axis=0)
        beaten = (here.reference[target] / rest.mean(0) <= raised).sum()
        assert int(found[target, record] * here.reference.shape[1]) == beaten


def test_the_area_under_the_curve_is_that_of_all_pairs():
    random = np.random.default_rng(0)
    scores, member = random.integers(0, 5, (3, 20)).astype(float), random.random((3, 20)) < 0.5
    inside, outside = scores[member], scores[~member]
    pairs = [(one > two) + (one == two) / 2 for one in inside for two in outside]
    assert roc.measured("a", scores, member, Promise(1, 0.0)).auc == pytest.approx(np.mean(pairs))
    for level in (0.0, 0.1, 0.4):
        cuts = [cut for cut in np.unique(scores) if (outside > cut).mean() <= level]
        expected = max((inside > cut).mean() for cut in cuts)
        assert roc.curve(scores, member, np.array([level]))[0] == pytest.approx(expected)


def test_limits_hold_where_guesses_of_one_run_agree():
    random, truth, held = np.random.default_rng(5), 0.2, 0
    among = np.ones((40, 50), bool)
    for _ in range(200):
        rates = random.beta(4, 16, (40, 1))  # of each run another, around the truth
        low, high = roc._limits(random.random(among.shape) < rates, among, 0.05)
        held += low <= truth <= high
    assert held >= 180  # plain Clopper-Pearson would hold in about 110


def test_limits_of_true_positives_hold_although_the_cut_comes_from_the_same_guesses():
    random, exact, held = np.random.default_rng(6), stats.norm.cdf(0.5 + stats.norm.ppf(0.01)), 0
    for _ in range(60):
        member = random.random((24, 100)) < 0.5
        one = roc.measured("a", random.normal(0.5 * member), member, Promise(9, 0.0)).caught[1]
        held += one.low <= exact <= one.high
        assert one.low <= one.share <= one.high < 1
    assert held >= 57  # limits of the rate above the estimated cut would hold in about 48


def test_runs_that_accuse_nobody_are_worth_as_many_guesses_as_runs():
    among = np.ones((20, 500), bool)
    assert roc._limits(~among, among, 0.05)[1] == pytest.approx(1 - 0.025 ** (1 / 20))
    assert roc._limits(among, among, 0.05)[0] == pytest.approx(0.025 ** (1 / 20))


def test_a_promise_covers_the_table_and_the_number_of_voters():
    for epsilon in (0.1, 1.0, 4.0):
        promise = crowd(epsilon=epsilon).promise(DELTA)
        assert promise.mu == pytest.approx(counts.mu_for(epsilon, DELTA), rel=1e-4)
        assert promise.epsilon == pytest.approx(epsilon, rel=1e-3)


def test_a_promise_is_the_exact_curve_of_a_gaussian_shift():
    for mu in (0.1, 0.5, 2.0):
        exact = pair.of_shifts(np.array([mu]), DELTA)
        promise = Promise(float(exact.epsilon[0]), DELTA, mu)
        assert promise.caught(pair.FALSE_POSITIVES) == pytest.approx(float(exact.caught[0]))
        assert promise.right() == pytest.approx(float(exact.guess[0]))
        assert Promise(promise.epsilon, DELTA).caught(0.001) > promise.caught(0.001)


def test_chance_raises_no_alarm_over_an_attack_that_attains_the_bound():
    """Of a guarantee of which every attacker's 95% intervals pass the bound now and then."""
    random, promise, mu = np.random.default_rng(4), Promise(100.0, 0.0, 0.05), 0.05
    held = {mu: 0, 6 * mu: 0}
    for shift in held:
        for _ in range(25):
            member = random.random((20, 1000)) < 0.5
            held[shift] += roc.measured("a", random.normal(shift * member), member, promise).holds
    assert held == {mu: 25, 6 * mu: 0}


def test_epsilon_is_bounded_from_below_by_either_error():
    member = np.arange(20_000).reshape(10, 2000) % 2 == 0
    for some, others in ((0.6, 0.3), (0.7, 0.4)):
        random = np.random.default_rng(2)
        scores = (random.random(member.shape) < np.where(member, some, others)).astype(float)
        exact = max(math.log(some / others), math.log((1 - others) / (1 - some)))
        lower = roc.measured("coins", scores + random.random(member.shape) / 2, member, Promise(9, 0)).epsilon
        assert 0.5 * exact < lower < exact


class Counted:
    """A pipeline that counts how often it runs."""

    records = 9

    def __init__(self):
        self.runs = 0

    def __call__(self, member, *, key):
        self.runs += 1
        return Seen(member / 2, np.full(3, 0.5))


def test_a_game_goes_on_where_it_stopped(tmp_path):
    made = Counted()
    first = shadows.played(made, 20, 1, tmp_path)
    (tmp_path / "shadow-00004.npz").unlink()
    again = shadows.played(made, 24, 1, tmp_path)
    assert made.runs == 25
    np.testing.assert_array_equal(first.member, again.member[:20])
    np.testing.assert_array_equal(first.confidence, again.confidence[:20])
    assert again.table is None and again.known is None


def test_too_few_shadows_are_refused():
    with pytest.raises(PateError, match="at least 16"):
        shadows.played(Counted(), 15, 1)
    with pytest.raises(PateError, match="reference=0"):
        made = crowd()
        Sums(made.vectors, made.labels, made.pool, made.release, made.number, reference=0)


def test_a_runs_own_pipeline_counts_what_the_run_counted():
    opened = crowd_inputs.opened(honest_runs.crowd("sums"))
    made = replicas.of_crowd(opened)
    assert membership.ATTACK.unfit(opened.run) is None
    rest = made.vectors[made.records :], made.labels[made.records :]
    missing = np.zeros((made.release.classes, made.release.directions), np.int64)
    np.add.at(missing, rest[1], rest[0])
    exact = tables.table(opened.plan, opened.people)
    np.testing.assert_array_equal(made.table(np.ones(made.records, bool)) + missing, exact)
    epsilon = accounting.crowd_statement(
        [line.event for line in ledger.releases(opened.run.ledger)],
        opened.choice.delta,
        voters=1,
        private=True,
    ).headline.epsilon
    assert made.promise(opened.choice.delta).epsilon <= epsilon * (1 + 1e-9)


def test_attacks_on_a_run_leave_it_as_it_is():
    run = honest_runs.crowd("sums")
    before = contents(run.root)
    found = membership.ATTACK.attacked(run, Flags(shadows=32)).attacks
    assert [one.attack for one in found] == EVERY and all(one.holds for one in found)
    assert before == contents(run.root)


def test_the_command_guesses_who_took_part_and_writes_into_private_alone(tmp_path, capsys):
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, tmp_path / "run"))
    before = contents(run.root)
    assert call("attack", run.root, "--only", "membership", "--shadows", "32", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["mechanism"] == [] and "SENSITIVE" in told["membership"]["warning"]
    assert [one["attack"] for one in told["membership"]["attacks"]] == EVERY
    assert all(
        "of 100 cases; guessing would give 50" in one["sentence"] for one in told["membership"]["attacks"]
    )
    after = contents(run.root)
    changed = {run.root / path for path in after if before.get(path) != after[path]}
    assert changed == {run.attacks, run.report}  # the owner's page tells it too
    assert run.attacks.stat().st_mode & 0o777 == 0o600
    assert call("attack", run.root, "--only", "membership", "--shadows", "32") == 0
    assert "by 32 shadow runs on half of the records (SENSITIVE" in capsys.readouterr().out
    assert call("attack", honest_runs.whole(7).root, "--only", "membership") == 2


@pytest.mark.long
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 8.0])
def test_larger_crowds_keep_their_promise_at_every_epsilon(epsilon):
    """No alarm is raised over an honest pipeline, whichever the seed."""
    honest = crowd(records=900, entries=100, classes=5, epsilon=epsilon, seed=9)
    promise, shift = honest.promise(DELTA), math.sqrt(honest.squares.mean()) / honest.release.sigma
    for seed in range(4):
        found = membership.attacked(shadows.played(honest, 128, seed), promise)
        assert all(one.holds for one in found)
        assert found[-1].right == pytest.approx(stats.norm.cdf(shift / 2), abs=0.006)


@pytest.mark.long
def test_the_experiment_tells_honest_pipelines_from_their_twins(tmp_path, monkeypatch):
    monkeypatch.setattr(attacks, "REFERENCE", 200)
    monkeypatch.setattr(attacks, "SMALL", 80)
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 2000)
    inputs = random.normal(size=(2000, 40)) + np.eye(40)[labels]
    space = spaces.learn("identity", inputs[1000:].astype(np.float32))
    places = {
        "private": space.coordinates(inputs[:1000].astype(np.float32)),
        "pool": space.coordinates(inputs[1000:].astype(np.float32)),
    }
    here = crowds.Prepared("made up", 3, space, places, {"private": labels[:1000]}, 1000)
    lines = [attacks.line(here, case, 40, tmp_path / "shadows") for case in attacks.cases([1.0])]
    for line in lines:
        attacks.keep(tmp_path / "lines.jsonl", line)
        attacks.keep(tmp_path / "lines.jsonl", line)
    assert attacks.kept(tmp_path / "lines.jsonl") == json.loads(json.dumps(lines))
    for line in lines:
        assert (line["case"] == "honest") == all(one["holds"] for one in line["attacks"]), line["case"]
    assert attacks.table(lines).count("\n") == 1 + 6 + 6 + 6 + 4
    assert attacks.draw(lines)
