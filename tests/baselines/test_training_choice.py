"""The best of several trainings by DP-SGD: what it costs, who trains, who judges, and which one wins."""

import dataclasses
import math
from types import SimpleNamespace

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld

from pate_jax.accounting import tuning
from pate_jax.accounting.tuning import Tuned
from pate_jax.aggregate import seeded_key
from pate_jax.baselines.dpsgd import Fitted, Settings, calibration, choice
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise

DELTA = 1e-5
LISTED = [Settings(steps=2, batch=50, net="table", clip=clip) for clip in (0.1, 0.2, 0.3)]
INPUTS = np.arange(200, dtype=np.float32)[:, None]
LABELS = np.arange(200) % 2


def profile_of(settings, records, relation, less=1.0):
    """The log of delta at each epsilon of one training, by another library alone."""
    accountant = pld.PLDAccountant(relation, value_discretization_interval=4e-3)
    step = dp_accounting.GaussianDpEvent(less * settings.noise_multiplier)
    rate = calibration.rate_of(settings.batch, records)
    sampled = dp_accounting.PoissonSampledDpEvent(rate, step)
    accountant.compose(dp_accounting.SelfComposedDpEvent(sampled, settings.steps))
    return lambda epsilon: math.log(max(accountant.get_delta(epsilon), 1e-300))


def test_trainings_by_their_own_profile_stay_within_the_cost_of_the_choice():
    """The bound with the whole profile, which is never looked at to choose the noise."""
    tuned = choice.planned(3, 1.0, DELTA, 10.0)
    settings = choice.within(LISTED[0], tuned, DELTA, 180)
    assert settings.neighbours == "changed"
    for relation in (calibration.REPLACE, calibration.ADD_OR_REMOVE):
        profile = profile_of(settings, 180, relation)
        assert tuning.log_delta(tuned.law, profile, 1.0) <= math.log(DELTA)
    less = profile_of(settings, 180, calibration.REPLACE, less=0.9)
    assert tuning.log_delta(tuned.law, less, 1.0) > math.log(DELTA)


@pytest.fixture
def trained(monkeypatch):
    """What `fit` was given; its nets are right about all inputs if the clip is 0.2, and else about none."""
    given = []

    def fit(inputs, labels, classes, settings, *, key, preprocessing, model):
        given.append((inputs[:, 0].astype(int), settings, key))
        wrong = settings.clip != 0.2
        net = SimpleNamespace(apply=None, description={"classes": 2}, front=None)
        found = Fitted({}, net, 4, 1.0, 0.1, settings.delta, 0.2, private=False)
        say = lambda asked: np.eye(2)[(asked[:, 0].astype(int) + wrong) % 2]  # noqa: E731
        object.__setattr__(found, "probabilities", say)
        return found

    monkeypatch.setattr(choice, "fit", fit)
    monkeypatch.setattr(choice, "within", within)
    return given


def within(settings, tuned, delta, records):
    """Noise that costs nothing to plan."""
    return dataclasses.replace(settings, noise_multiplier=7.0 * (records < 200) + records / 1e6)


def best(seed):
    return choice.best_of(INPUTS, LABELS, 2, LISTED, key=seeded_key(seed), delta=DELTA)


def test_held_out_records_train_no_candidate_and_each_has_noise_of_its_own(trained):
    found = best(5)
    rows = {tuple(each) for each, _, _ in trained}
    assert len(rows) == 1 and 5 < 200 - len(rows.pop()) < 45
    assert len({str(key) for _, _, key in trained}) == len(trained) > 3
    assert all(one.noise_multiplier == 7 + len(each) / 1e6 for each, one, _ in trained)
    assert found.fitted.epsilon == found.fitted.replaced == found.tuned.epsilon(DELTA) <= 1
    assert found.fitted.delta == DELTA


def test_the_best_wins_and_the_number_of_candidates_varies(trained, monkeypatch):
    """Scores are without noise here."""
    monkeypatch.setattr(choice, "error", lambda tuned, key: 0)
    numbers = set()
    for seed in range(4):
        before = len(trained)
        found = best(seed)
        tried = [one.clip for _, one, _ in trained[before:]]
        numbers.add(len(tried))
        assert found.settings.clip == (0.2 if 0.2 in tried else tried[0])
    assert len(numbers) > 2


def test_the_number_of_candidates_has_its_law(monkeypatch):
    tuned = choice.planned(2, 1.0, DELTA, 10.0)
    for chance, number in ((0.0, 1), (0.5, 7), (0.99, 44)):
        monkeypatch.setattr(choice, "_number", lambda key, chance=chance: int(chance * 2**64))
        assert len(choice._keys(seeded_key(1), tuned)) == number


def test_the_noise_of_a_score_is_what_a_candidate_may_cost(monkeypatch):
    asked = []
    monkeypatch.setattr(choice.keys, "draw", lambda *given: asked.append(given) or [3])
    tuned = Tuned(tuning.negative_binomial(10.0), 0.25, 2)
    assert choice.error(tuned, seeded_key(1)) == 3
    assert asked[0][0] == Noise("rounded_gaussian", 4.0)


def test_one_setting_is_no_choice_and_a_fixed_list_has_no_two_places():
    with pytest.raises(PateError, match="no choice"):
        choice.best_of(INPUTS, LABELS, 2, LISTED[:1], key=seeded_key(1))
    with pytest.raises(PateError, match="too large for so few candidates"):
        choice.within(LISTED[0], Tuned(tuning.negative_binomial(2.0), 0.3, 3), 0.2, 180)
    with pytest.raises(PateError, match="fixed list"):
        tuning.points(Tuned(tuning.Fixed(3), 0.2, 3), DELTA)


@pytest.mark.long
def test_nets_are_trained_and_the_better_settings_win():
    random = np.random.default_rng(0)
    inputs = random.normal(size=(1500, 3)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    listed = [
        Settings(steps=30, batch=300, net="table", microbatch=64, learning_rate=rate) for rate in (1e-6, 1.0)
    ]
    found = choice.best_of(inputs, labels, 2, listed, key=seeded_key(1), epsilon=8.0, candidates=4.0)
    assert found.settings.learning_rate == 1.0
    assert found.fitted.accuracy(inputs, labels) > 0.8
