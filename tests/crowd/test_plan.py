"""Plans follow from public things alone, cost no more than they may, and give shares with known noise."""

import numpy as np
import pytest

from pate_jax import crowd
from pate_jax.accounting.exact import counts as cost
from pate_jax.aggregate import crowds, noise
from pate_jax.crowd import shares
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import spaces

RANDOM = np.random.default_rng(4)
CENTRES = RANDOM.normal(size=(12, 6)) * 4
POOL = CENTRES[RANDOM.integers(0, 12, 400)] + RANDOM.normal(size=(400, 6))
KIND = RANDOM.integers(0, 12, 2300)
RECORDS = CENTRES[KIND] + RANDOM.normal(size=(2300, 6))
SPACE = spaces.learn("identity", POOL)
PUBLIC = SPACE.coordinates(POOL)
NAMES = np.array([f"n{row}" for row in range(2300)])


def planned(kind, classes=3, mu=0.2681, **given):
    return crowd.plan(kind, SPACE, PUBLIC, voters=2300, classes=classes, mu=mu, **given)


@pytest.mark.parametrize("kind", ["neighbours", "sums"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 4.0])
def test_a_plan_costs_what_it_may_and_hardly_less(kind, epsilon):
    release = planned(kind, mu=cost.mu_for(epsilon, 1e-5)).release
    found = cost.epsilon([release], 1e-5)
    assert found <= epsilon
    assert found > epsilon * 0.999 or release.sigma == 1


@pytest.mark.parametrize("classes", [2, 3])
def test_shares_of_a_plan_are_right_and_their_noise_is_the_one_measured(classes):
    labels = (KIND % classes).astype(np.int32)
    people = crowd.voters(Part(RECORDS, labels, NAMES), classes)
    plan = planned("sums", classes)
    table = crowd.sums(plan.space, plan.scaling, people, plan.release)
    drawn = [
        shares.of_sums(
            crowds.noisy_table(plan.release, table, key=noise.seeded_key(seed)).values, plan, PUBLIC, 2300
        )
        for seed in range(60)
    ]
    assert np.allclose(drawn[0].probabilities.sum(1), 1, atol=1e-5)
    inside = np.stack([one.probabilities for one in drawn])
    whole = (inside > 0).all((0, 2))
    measured = inside[:, whole].std(0).mean()
    assert 0.7 < measured / drawn[0].deviation[whole].mean() < 1.4


def test_shares_of_counts_are_those_of_the_votes_and_their_noise_is_the_one_measured():
    people = crowd.voters(Part(RECORDS, (KIND % 3).astype(np.int32), NAMES), 3)
    plan = planned("neighbours", queries=20)
    table = crowd.counts(plan.space, plan.queries, people, plan.release)
    drawn = [
        shares.of_counts(
            crowds.noisy_table(plan.release, table, key=noise.seeded_key(seed)).values, plan.release
        )
        for seed in range(60)
    ]
    assert np.array_equal(drawn[0].probabilities.shape, (20, 3))
    inside = np.stack([one.probabilities for one in drawn])
    whole = (inside > 0).all(0)
    if whole.any():
        assert 0.6 < inside.std(0)[whole].mean() / drawn[0].deviation.mean() < 1.5


def test_bad_input_is_one_sentence():
    for wrong, message in (
        (lambda: planned("sums", mu=0.0), "mu=0.0 must be"),
        (lambda: planned("neighbours", queries=401), "queries=401 must be from 1 to the 400"),
        (lambda: planned("sums", classes=1), "classes=1"),
        (lambda: shares.of_counts(np.zeros((2, 3), int), NeighbourCounts(3, 3, 1, 2.0)), "do not fit"),
        (lambda: shares.of_sums(np.zeros((3, 7), int), planned("neighbours"), PUBLIC, 9), "of_counts"),
    ):
        with pytest.raises(PateError, match=message):
            wrong()


def test_a_plan_is_a_function_of_its_arguments():
    for kind in ("neighbours", "sums"):
        one, other = planned(kind), planned(kind)
        assert one.release == other.release
        assert np.array_equal(one.scaling.weights, other.scaling.weights)
    assert isinstance(one.release, ClassSums)
