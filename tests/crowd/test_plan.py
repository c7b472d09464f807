"""Plans follow from public things alone, cost no more than they may, and give shares with known noise."""

import numpy as np
import pytest

from pate_jax import crowd, data
from pate_jax.accounting.exact import counts as cost
from pate_jax.aggregate import noise
from pate_jax.crowd import evidence, shares
from pate_jax.crowd.plan import doubts
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
@pytest.mark.long
def test_shares_of_a_plan_are_right_and_their_noise_is_the_one_measured(classes):
    labels = (KIND % classes).astype(np.int32)
    people = crowd.voters(Part(RECORDS, labels, NAMES), classes)
    plan = planned("sums", classes)
    table = crowd.sums(plan.space, plan.scaling, people, plan.release)
    drawn = [
        shares.of_sums(
            noise.noisy_table(plan.release, table, key=noise.seeded_key(seed)).values, plan, PUBLIC, 2300
        )
        for seed in range(60)
    ]
    assert np.allclose(drawn[0].probabilities.sum(1), 1, atol=1e-5)
    inside = np.stack([one.probabilities for one in drawn])
    whole = (inside > 0).all((0, 2))
    measured = inside[:, whole].std(0).mean()
    assert 0.7 < measured / drawn[0].deviation[whole].mean() < 1.4


@pytest.mark.long
def test_shares_of_counts_are_those_of_the_votes_and_their_noise_is_the_one_measured():
    people = crowd.voters(Part(RECORDS, (KIND % 3).astype(np.int32), NAMES), 3)
    plan = planned("neighbours", queries=20)
    table = crowd.counts(plan.space, plan.queries, people, plan.release)
    drawn = [
        shares.of_counts(
            noise.noisy_table(plan.release, table, key=noise.seeded_key(seed)).values, plan.release
        )
        for seed in range(60)
    ]
    assert np.array_equal(drawn[0].probabilities.shape, (20, 3))
    inside = np.stack([one.probabilities for one in drawn])
    whole = (inside > 0).all(0)
    if whole.any():
        assert 0.6 < inside.std(0)[whole].mean() / drawn[0].deviation.mean() < 1.5


def test_the_more_noise_the_fewer_directions_and_the_sooner_a_plan_says_so():
    mus = [cost.mu_for(epsilon, 1e-5) for epsilon in (0.005, 0.02, 0.1, 4.0)]
    plans = [planned("sums", mu=mu) for mu in mus]
    used = [plan.release.directions for plan in plans]
    assert used == sorted(used) and used[0] < used[-1] == 7
    said = [doubts(plan, SPACE, PUBLIC, voters=2300) for plan in plans]
    assert "little is expected to stand out" in said[0] and said[-1] is None
    drowned = planned("neighbours", mu=mus[0], queries=40)
    assert "no better than the most frequent class" in doubts(drowned, SPACE, PUBLIC, voters=2300)
    assert doubts(planned("neighbours", mu=mus[-1]), SPACE, PUBLIC, voters=2300) is None


def test_the_best_number_of_directions_misses_least_when_tried():
    """Weights drawn from the prior, noisy sums of a Gaussian pool, and the error of the best estimate."""
    random, count, voters, noise = np.random.default_rng(1), 40, 3000, 60.0
    variances = np.arange(1, count + 1) ** -1.5
    energies = variances**0.5
    q, missed = 0.1 * 0.9, {}
    told = q / 2 * variances / variances.sum()
    for wanted in (1, 3, 6, 9, 14, 25, 40):
        energy = energies[:wanted] / energies[:wanted].sum()
        truth = random.normal(size=(4000, count)) * np.sqrt(told)
        around = noise**2 * 0.9 + voters * energy * q / 2
        seen = voters * np.sqrt(energy) * truth[:, :wanted] + random.normal(size=(4000, wanted)) * around**0.5
        trust = voters * np.sqrt(energy) * told[:wanted] / (voters**2 * energy * told[:wanted] + around)
        truth[:, :wanted] -= trust * seen
        missed[wanted] = (truth**2).sum(1).mean()
    chosen = evidence.best(variances, energies, voters=voters, classes=10, noise=noise)
    best = min(missed, key=missed.get)
    assert best / 2 <= chosen <= 2 * best and 1 < best < 40


@pytest.mark.parametrize("classes", [2, 3, 10, 150])
def test_no_direction_is_expected_to_tell_more_than_one_direction_of_labels(classes):
    """Any direction of variance 1, the worst one among them, over classes that are equally frequent."""
    random, most = np.random.default_rng(2), classes**-2
    scores = random.normal(size=(200, classes))  # of an input, by its class: nothing else of it tells more
    scores[0] = np.arange(classes) == 0
    scores = scores - scores.mean(1, keepdims=True)
    scores /= scores.std(1, keepdims=True)
    told = (scores / classes) ** 2  # of each class: its covariance with the direction, squared
    assert np.allclose(told.mean(1), most)  # so what is within a class can only lower it
    for fall in (0.0, 0.7, 3.0):
        variances = np.arange(1, 81) ** -fall
        found, half = evidence.expected_part(variances, classes), evidence.label_variance(classes) / 2
        assert found.max() <= most * (1 + 1e-12)
        assert found.sum() == pytest.approx(min(half, 80 * most))
        below = found < most * (1 - 1e-9)
        assert np.allclose(found[below] / variances[below], (found[below] / variances[below])[:1])
        if classes == 2:
            assert np.allclose(found, half * variances / variances.sum())


@pytest.mark.long
def test_a_class_that_no_record_has_is_hardly_ever_named():
    people = crowd.voters(Part(RECORDS, (KIND % 3).astype(np.int32), NAMES), 4)
    plan = planned("sums", classes=4)
    table = crowd.sums(plan.space, plan.scaling, people, plan.release)
    noisy = noise.noisy_table(plan.release, table, key=noise.seeded_key(1)).values
    found = shares.of_sums(noisy, plan, PUBLIC, 2300).probabilities
    assert (found.argmax(1) == 3).mean() < 0.03 and found[:, 3].mean() < 0.12


@pytest.mark.long
def test_without_a_signal_the_most_frequent_class_is_named():
    labels = (RANDOM.random(2300) < 0.7).astype(np.int32)
    people = crowd.voters(Part(RECORDS, labels, NAMES), 2)
    plan = planned("sums", classes=2, mu=cost.mu_for(0.1, 1e-5))
    table = crowd.sums(plan.space, plan.scaling, people, plan.release)
    noisy = noise.noisy_table(plan.release, table, key=noise.seeded_key(1)).values
    assert (shares.of_sums(noisy, plan, PUBLIC, 2300).probabilities.argmax(1) == 1).mean() > 0.95


def test_held_out_variances_are_those_of_other_inputs():
    pool, others = RANDOM.normal(size=(90, 40)), RANDOM.normal(size=(3000, 40))
    inside, axes = np.linalg.eigh(pool.T @ pool / 90)
    outside = ((others @ axes) ** 2).mean(0)
    found = evidence.held_out(pool)
    assert np.abs(found - outside).mean() < np.abs(inside - outside).mean() / 2


def test_the_space_follows_from_the_inputs():
    part = Part(np.zeros((4, 2), np.float32), np.zeros(4, int), np.array(list("abcd")))

    def kind(inputs, shape="table"):
        own = data.Dataset(
            "x",
            shape,
            part,
            part._replace(inputs=inputs),
            None,
            2,
            ("0", "1"),
            data.Preprocessing((0.0,), (1.0,)),
            True,
            "",
        )
        return crowd.space_kind(own)

    assert kind(np.zeros((4, 8, 8, 1), np.uint8), "image") == "patches"
    assert kind(RANDOM.normal(size=(50, 4))) == "columns"
    assert kind(RANDOM.normal(size=(50, 300))) == "identity"
    assert kind(RANDOM.normal(size=(50, 300)) * np.geomspace(1, 900, 300)) == "columns"


def test_bad_input_is_one_sentence():
    for wrong, message in (
        (lambda: planned("sums", mu=0.0), "mu=0.0 must be"),
        (lambda: planned("neighbours", queries=401), "queries=401 must be from 1 to the 400"),
        (lambda: planned("sums", classes=1), "classes=1"),
        (lambda: planned("sums", directions=7), "directions=7 must be from 1 to the 6"),
        (lambda: planned("neighbours", directions=0), "directions=0 must be"),
        (lambda: planned("neighbours", queries=0), "queries=0 must be"),
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


def test_nearly_all_vectors_of_sums_have_the_full_length():
    plan = planned("sums")
    seen = crowd.vectors(plan.scaling, PUBLIC[:, : len(plan.space.variances)])
    lengths = np.linalg.norm(seen.astype(float), axis=1)
    assert lengths.max() <= plan.release.length
    assert (lengths > 0.98 * plan.release.length - 3).mean() > 0.94
    assert plan.scaling.constant == int(evidence.CONSTANT * plan.release.length)


def test_a_plan_is_doubted_by_what_its_table_is_expected_to_show():
    """The drawn evidence of prior signals is about the expected one."""
    random, dull, signal = np.random.default_rng(2), np.geomspace(1, 5, 12), np.full(12, 0.8)
    ratios = []
    for _ in range(400):
        seen = (random.normal(size=(12, 3)) ** 2).mean(1) * (dull + signal)
        ratios.append(np.log(evidence.mean_ratio(seen, dull, signal[None], 3)))
    assert abs(np.mean(ratios) - np.log(evidence.expected(dull, signal, 3))) < 0.2
