"""The rehearsal of a plan on public inputs: it says what a crowd of such records really brings."""

import json

import numpy as np
import pytest
from commands import call

from pate_jax import crowd
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import seeded_key
from pate_jax.aggregate.crowds import noisy_table
from pate_jax.crowd import rehearsal, shares
from pate_jax.data import Part
from pate_jax.models import spaces

CLASSES, VOTERS = 3, 4000
RANDOM = np.random.default_rng(3)
CENTRES = RANDOM.normal(size=(CLASSES, 6)) * 2
TRUTH = {part: RANDOM.integers(0, CLASSES, size) for part, size in (("pool", 500), ("private", VOTERS))}
PLACES = {part: CENTRES[labels] + RANDOM.normal(size=(len(labels), 6)) for part, labels in TRUTH.items()}
SPACE = spaces.learn("identity", PLACES["pool"])
POOL = SPACE.coordinates(PLACES["pool"])


def planned(kind, epsilon):
    mu = counts.mu_for(epsilon, 1e-5)
    return crowd.plan(kind, SPACE, POOL, voters=VOTERS, classes=CLASSES, mu=mu)


@pytest.mark.parametrize("epsilon", [0.02, 0.5])
def test_sums_are_as_right_as_rehearsed_with_true_labels(epsilon):
    made = planned("sums", epsilon)
    expected = rehearsal.rehearse(made, POOL, [TRUTH["pool"]] * 4, VOTERS).accuracy
    ids = np.arange(VOTERS).astype(str)
    people = crowd.voters(Part(PLACES["private"], TRUTH["private"], ids), CLASSES)
    table = crowd.table(made, people)
    draws = (noisy_table(made.release, table, key=seeded_key(seed)).values for seed in range(4))
    found = [shares.of_sums(noisy, made, POOL, VOTERS).probabilities.argmax(1) for noisy in draws]
    real = float(np.mean([(each == TRUTH["pool"]).mean() for each in found]))
    assert abs(expected - real) < 0.06


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
def test_more_epsilon_is_expected_to_bring_more_and_none_little(kind):
    labels = rehearsal.labellings(SPACE, POOL, CLASSES)
    drowned, clear = (rehearsal.rehearse(planned(kind, each), POOL, labels, VOTERS) for each in (0.002, 2.0))
    assert clear.accuracy > drowned.accuracy + 0.1
    assert clear.low <= clear.accuracy <= clear.high <= 1
    assert drowned.accuracy < drowned.majority + 0.3


def test_a_rehearsal_is_a_function_of_public_inputs_alone():
    labels = rehearsal.labellings(SPACE, POOL, CLASSES)
    once, again = (rehearsal.rehearse(planned("sums", 0.5), POOL, labels, VOTERS) for _ in range(2))
    assert once == again
    assert [each.tolist() for each in labels] == [
        each.tolist() for each in rehearsal.labellings(SPACE, POOL, CLASSES)
    ]


def test_labels_are_made_up_of_every_class_even_for_a_small_pool():
    few = POOL[:8]
    assert all(len(each) == 8 and each.max() < CLASSES for each in rehearsal.labellings(SPACE, few, CLASSES))


@pytest.mark.parametrize("by_labels", [False, True])
def test_a_plan_of_crowds_reads_public_inputs_alone(tmp_path, capsys, by_labels):
    path = tmp_path / "pool.npz"
    np.savez(path, inputs=PLACES["pool"].astype(np.float32), labels=TRUTH["pool"])
    wish = ("plan", "--records", VOTERS, "--classes", CLASSES, "--epsilon", 0.5, "--public", path)
    assert call(*wish, *["--public-labels"] * by_labels, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    labels = [TRUTH["pool"]] if by_labels else rehearsal.labellings(SPACE, POOL, CLASSES)
    expected = rehearsal.rehearse(planned("sums", 0.5), POOL, labels, VOTERS)
    assert said["sums"]["accuracy"] == pytest.approx(expected.accuracy, abs=0.02)
    assert call(*wish) == 0
    assert f"--voters {said['voters']}" in capsys.readouterr().out or by_labels


BAD = {
    "no labels": (["--public-labels"], "have no labels to judge by"),
    "no epsilon": (["--epsilon", 0], "epsilon=0"),
    "no delta": (["--delta", 2], "delta=2"),
}


@pytest.mark.parametrize(("more", "sentence"), BAD.values(), ids=BAD)
def test_a_plan_of_crowds_that_makes_no_sense_is_one_sentence(tmp_path, capsys, more, sentence):
    np.savez(tmp_path / "pool.npz", inputs=PLACES["pool"].astype(np.float32))
    wish = ["plan", "--records", VOTERS, "--classes", CLASSES, "--epsilon", 0.5]
    assert call(*wish, "--public", tmp_path / "pool.npz", *more) == 2
    assert sentence in capsys.readouterr().err
