"""The kernels: answers follow the laws of their mechanisms, under every transform of JAX."""

import os
import subprocess
import sys

import exact_laws
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from scipy import stats

from pate_jax import aggregate, voting
from pate_jax.aggregate import argmax, interactive, noise
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    BY_NAME,
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    PermuteAndFlip,
)

COUNTS = [12, 9, 7, 3]
DRAWS = 60_000  # tests that ask for as many draws of as many classes share their compiled programs
PLAIN = [
    LNMax(5.0),
    GNMax(5.0),
    GumbelMax(5.0),
    PermuteAndFlip(5.0),
    DiscreteGaussianMax(5.0),
    DiscreteLaplaceMax(5.0),
    DiscreteGaussianMax(1.2),
    DiscreteLaplaceMax(1.2),
]
TESTED = [
    ConfidentGNMax(14, 4.0, 5.0),
    ConfidentDiscreteGaussian(14, 4.0, 5.0),
    ConfidentDiscreteLaplace(14, 4.0, 5.0),
    ConfidentDiscreteGaussian(12.5, 1.5, 2.0),
]


def ask(mechanism, counts=COUNTS, draws=DRAWS, seed=5, **more):
    votes = np.tile(np.asarray(counts, np.int32), (draws, 1))
    return aggregate.answer(mechanism, votes, key=noise.seeded_key(seed), **more)


def p_value(labels, law) -> float:
    """Chi-square of outcomes -1, 0, 1, .. under a law over refused, 0, 1, .."""
    observed = np.bincount(np.asarray(labels) + 1, minlength=len(law))
    law = np.maximum(law, 1e-300)
    keep = law * observed.sum() > 5
    assert keep.sum() >= 2
    observed = np.append(observed[keep], observed[~keep].sum() + 1e-12)
    expected = np.append(law[keep], max(law[~keep].sum(), 1e-12)) * observed.sum()
    statistic = ((observed - expected) ** 2 / np.maximum(expected, 1e-3)).sum()
    return float(stats.chi2.sf(statistic, keep.sum() - 1 + (law[~keep].sum() > 1e-9)))


def rescaled(mechanism, factor):
    """The mechanism with all noise scales multiplied."""
    fields = {name: getattr(mechanism, name) for name in mechanism.__dataclass_fields__}
    return type(mechanism)(
        **{
            name: value * factor if "sigma" in name or "scale" in name else value
            for name, value in fields.items()
        }
    )


@pytest.mark.parametrize("mechanism", PLAIN + TESTED, ids=str)
def test_outcomes_follow_the_exact_law_and_no_scale_beside_it(mechanism):
    labels = ask(mechanism).labels
    assert p_value(labels, exact_laws.outcomes(mechanism, COUNTS)) > 1e-4
    for factor in (2 / 3, 3 / 2):
        assert p_value(labels, exact_laws.outcomes(rescaled(mechanism, factor), COUNTS)) < 1e-9


@pytest.mark.parametrize("mechanism", TESTED, ids=str)
def test_the_rate_of_answers_is_that_of_the_threshold_noise_alone(mechanism):
    count = int(ask(mechanism).answered.sum())
    for factor, fits in ((1, True), (2 / 3, False), (3 / 2, False)):
        other = rescaled(mechanism, factor)
        chance = exact_laws.answered(other.test, max(COUNTS))
        assert bool(stats.binomtest(count, DRAWS, chance).pvalue > 1e-4) is fits


def test_the_threshold_itself_is_reached_for_whole_numbers():
    """n + x >= t, not > t, and not off by one for fractional thresholds."""
    for threshold in (12, 12.5, 13):
        mechanism = ConfidentDiscreteGaussian(threshold, 1.0, 2.0)
        count = int(ask(mechanism).answered.sum())
        assert stats.binomtest(count, DRAWS, exact_laws.answered(mechanism.test, 12)).pvalue > 1e-4
        assert stats.binomtest(count, DRAWS, exact_laws.answered(mechanism.test, 11)).pvalue < 1e-9


def test_gumbel_noise_is_the_exponential_mechanism():
    law = np.exp(np.array(COUNTS) / 5.0)
    assert p_value(ask(GumbelMax(5.0)).labels, np.append(0, law / law.sum())) > 1e-4


def test_exponential_noise_is_permute_and_flip():
    law = exact_laws.permute_and_flip(5.0, COUNTS)
    np.testing.assert_allclose(law, exact_laws.plurality(PermuteAndFlip(5.0).noise, COUNTS), atol=1e-6)
    assert p_value(ask(PermuteAndFlip(5.0)).labels, np.append(0, law)) > 1e-4


@pytest.mark.parametrize("counts", [[4] * 2, [4] * 7, [4, 1, 4, 0, 0, 4, 1]], ids=str)
def test_ties_of_whole_numbers_are_broken_evenly(counts):
    """At so small a scale nearly all noise is 0, so nearly all queries end in a tie of the leaders."""
    labels = ask(DiscreteGaussianMax(0.1), counts=counts).labels
    law = np.array(counts) == max(counts)
    assert p_value(labels, np.append(0, law / law.sum())) > 1e-4


def test_ties_among_some_classes_leave_out_the_others():
    labels = np.asarray(ask(DiscreteLaplaceMax(0.02), counts=[3, 9, 0, 9, 9, 1]).labels)
    observed = np.bincount(labels, minlength=6)
    assert observed[[0, 2, 5]].sum() == 0
    assert stats.chisquare(observed[[1, 3, 4]]).pvalue > 1e-4


def test_a_share_of_a_long_word_is_exact():
    words = [0, 1, 2**128 - 1, 2**127, 2**128 // 3, 2**128 // 3 + 1, 0x0123456789ABCDEF0123456789ABCDEF]
    parts = [jnp.asarray([w >> s & 0xFFFFFFFF for w in words], jnp.uint32) for s in (96, 64, 32, 0)]
    for count in (1, 2, 3, 150, 65535):
        ours = argmax.share(tuple(parts), jnp.full(len(words), count, jnp.uint32))
        assert ours.tolist() == [w * count >> 128 for w in words]


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism, classes, draws",
    [
        (GNMax(5.0), 10, DRAWS),
        (GNMax(5.0), 23, 60_001),
        (LNMax(5.0), 8, 60_001),
        (GumbelMax(5.0), 15, 60_001),
    ],
    ids=str,
)
def test_all_classes_of_a_block_and_more_than_a_block_holds(mechanism, classes, draws):
    """One block gives the noise of ten classes (Gaussian) or seven; more classes take several blocks."""
    counts = [1, 3] + [2] * (classes - 4) + [9, 12]
    labels = ask(mechanism, counts=counts, draws=draws).labels
    assert p_value(labels, exact_laws.outcomes(mechanism, counts)) > 1e-4
    for factor in (2 / 3, 3 / 2):
        assert p_value(labels, exact_laws.outcomes(rescaled(mechanism, factor), counts)) < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("classes", [3, 10, 25])
def test_ties_of_continuous_noise_are_broken_evenly(classes):
    """Noise this small vanishes beside the counts in float32, so all classes tie, in all groups."""
    most = 1 << 19
    labels = ask(GNMax(1e-3), counts=[most] * classes).labels
    assert p_value(labels, np.append(0, np.full(classes, 1 / classes))) > 1e-4
    some = [most, 1, most, most] + [0] * (classes - 3)
    labels = ask(GNMax(1e-3), counts=some).labels
    assert p_value(labels, np.append(0, np.array(some) == most) / 3) > 1e-4


@pytest.mark.parametrize(
    "mechanism, classes",
    [
        (GNMax(30.0), 31),
        pytest.param(GNMax(30.0), 10, marks=pytest.mark.long),
        pytest.param(LNMax(30.0), 16, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_registers_and_memory_give_the_same_answers(mechanism, classes):
    """Nearly: noise may be rounded in its last place, which moves no more than a rare close call."""
    votes = np.random.default_rng(1).multinomial(250, np.full(classes, 1 / classes), size=20_003)
    alone = aggregate.answer(mechanism, votes, key=noise.seeded_key(3)).labels
    stored = aggregate.answer_many([mechanism], votes, key=noise.seeded_key(3), same_noise=True).labels[0]
    assert (alone == stored).mean() > 0.999


@pytest.mark.long
def test_more_classes_than_a_block_holds_under_every_transform():
    """The loop over groups inside vmap and a jitted shard_map, and with a key of JAX's own kind."""
    votes = np.random.default_rng(4).multinomial(40, np.full(12, 1 / 12), size=24)
    one = lambda v, k: aggregate.answer(GNMax(3.0), v, key=k)  # noqa: E731
    keys = lambda: jax.random.split(noise.seeded_key(2), 8)  # noqa: E731
    parts = votes.reshape(8, 3, 12)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    mapped = jax.shard_map(lambda v, k: one(v, k[0]), mesh=mesh, in_specs=(P("d"), P("d")), out_specs=P("d"))
    ways = [jax.vmap(one)(parts, keys())]
    ways.append(jax.tree.map(lambda leaf: leaf.reshape(8, 3), jax.jit(mapped)(votes, keys())))
    for place in (0, 5):
        alone = one(parts[place], keys()[place])
        for way in ways:
            assert same(jax.tree.map(lambda leaf, place=place: leaf[place], way), alone)
    assert one(votes, jax.random.key(0)).labels.shape == (24,)


@pytest.mark.parametrize("mechanism", [PLAIN[1], PLAIN[4], TESTED[0], "private"], ids=str)
def test_one_key_for_two_calls_is_an_error(mechanism):
    key, votes = noise.seeded_key(3), np.tile(np.asarray(COUNTS, np.int32), (DRAWS, 1))
    if mechanism == "private":
        mechanism, key, votes = ConfidentGNMax(5, 3.0, 3.0), noise.fresh_key(), VOTES
    aggregate.answer(mechanism, votes, key=key)
    with pytest.raises(jax.errors.KeyReuseError):
        aggregate.answer(mechanism, votes, key=key)


INTERACTIVE = InteractiveGNMax(threshold=6, sigma_threshold=4.0, sigma=5.0, student_confidence=0.55)


@pytest.mark.parametrize("student", [[0.1, 0.2, 0.6, 0.1], [0.3, 0.3, 0.3, 0.1]])
def test_interactive_outcomes(student):
    """A pass gives the teachers' label; else a sure student's own, unanswered; else nothing."""
    probabilities = np.tile(np.array(student, np.float32), (DRAWS, 1))
    votes = np.tile(np.asarray(COUNTS, np.int32), (DRAWS, 1))
    labels, answered, *_ = interactive.answer(INTERACTIVE, votes, probabilities, key=noise.seeded_key(5))
    lead = max(n - sum(COUNTS) * p for n, p in zip(COUNTS, student, strict=True))
    refused = np.unique(np.asarray(labels)[~np.asarray(answered)])
    assert refused.tolist() == ([2] if max(student) > 0.55 else [-1])
    shown = np.where(answered, labels, -1)
    assert p_value(shown, exact_laws.outcomes(INTERACTIVE, COUNTS, lead)) > 1e-4
    for factor in (2 / 3, 3 / 2):
        assert p_value(shown, exact_laws.outcomes(rescaled(INTERACTIVE, factor), COUNTS, lead)) < 1e-9


def test_noises_of_test_and_answer_are_independent():
    """The labels of answered and of all queries follow one law."""
    mechanism = ConfidentGNMax(12, 4.0, 5.0)
    labels, answered, *_ = ask(mechanism)
    shown = np.asarray(labels)[np.asarray(answered)]
    assert p_value(shown, np.append(0, exact_laws.plurality(mechanism.noise, COUNTS))) > 1e-4


def test_different_queries_get_different_noise():
    labels = np.asarray(ask(GNMax(50.0), counts=[5005, 5005, 0, 0]).labels)
    assert set(labels.tolist()) == {0, 1}
    for lag in (1, 2, 100, 8192, 10_000):
        assert abs(np.corrcoef(labels[lag:], labels[:-lag])[0, 1]) < 5 / np.sqrt(len(labels) - lag)


REST = [name for name in BY_NAME if name not in ("interactive-gnmax", "confident-discrete-gaussian")]
KINDS = [
    "interactive-gnmax",
    "confident-discrete-gaussian",
    *(pytest.param(n, marks=pytest.mark.long) for n in REST),
]


def example(name):
    fields = {"threshold": 6.0, "student_confidence": 0.5}
    return BY_NAME[name](*(fields.get(field, 3.0) for field in BY_NAME[name].__dataclass_fields__))


def ready(mechanism, votes):
    if not isinstance(mechanism, InteractiveGNMax):
        return aggregate.prepare(mechanism)
    student = jnp.asarray(votes / votes.sum(1, keepdims=True), jnp.float32)
    return interactive.sampler(mechanism, votes, student)


def all_ready(mechanisms, votes):
    if not isinstance(mechanisms[0], InteractiveGNMax):
        return aggregate.prepare(mechanisms)
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *[ready(one, votes) for one in mechanisms])


VOTES = np.random.default_rng(2).multinomial(13, [0.5, 0.2, 0.15, 0.1, 0.05], size=24).astype(np.int32)


def same(left, right) -> bool:
    return bool((left.labels == right.labels).all() and (left.answered == right.answered).all())


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_jit_and_vmap_give_what_plain_calls_give(name):
    mechanism = example(name)
    sampler = ready(mechanism, VOTES)
    plain = aggregate.answer(sampler, VOTES, key=noise.seeded_key(1))
    assert plain.labels.dtype == jnp.int32 and plain.answered.dtype == bool
    jitted = jax.jit(lambda s, v, k: aggregate.answer(s, v, key=k))
    assert same(jitted(sampler, jnp.asarray(VOTES), noise.seeded_key(1)), plain)
    others = [mechanism, rescaled(mechanism, 7.0)]
    many = jax.vmap(lambda s: aggregate.answer(s, VOTES, key=noise.seeded_key(1)))(all_ready(others, VOTES))
    assert same(jax.tree.map(lambda leaf: leaf[0], many), plain)
    other = aggregate.answer(ready(others[1], VOTES), VOTES, key=noise.seeded_key(1))
    assert same(jax.tree.map(lambda leaf: leaf[1], many), other) and not same(other, plain)


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_many_settings_are_the_same_as_one_by_one(name):
    mechanisms = [rescaled(example(name), factor) for factor in (0.5, 3.0, 20.0)]
    settings, together = [ready(one, VOTES) for one in mechanisms], all_ready(mechanisms, VOTES)
    shared = aggregate.answer_many(together, VOTES, key=noise.seeded_key(4), same_noise=True, at_once=2)
    for i, setting in enumerate(settings):
        alone = aggregate.answer(setting, VOTES, key=noise.seeded_key(4))
        assert same(jax.tree.map(lambda leaf, i=i: leaf[i], shared), alone)
    own = aggregate.answer_many(together, VOTES, key=noise.seeded_key(4), at_once=3)
    keys = jax.random.split(noise.seeded_key(4), len(settings))
    for i, setting in enumerate(settings):
        alone = aggregate.answer(setting, VOTES, key=keys[i])
        assert same(jax.tree.map(lambda leaf, i=i: leaf[i], own), alone)


@pytest.mark.long
def test_a_thousand_settings_of_discrete_noise():
    sigmas = np.geomspace(0.5, 60.0, 1000)
    settings = aggregate.prepare([ConfidentDiscreteGaussian(8, 2 * s, s) for s in sigmas])
    labels, answered, *_ = aggregate.answer_many(settings, VOTES, key=noise.seeded_key(4))
    assert labels.shape == (1000, 24)
    right = np.asarray(labels == VOTES.argmax(1))[np.asarray(answered.sum(1)) > 0]
    assert right[:100].sum() > 1.5 * right[-100:].sum()


def test_one_noise_for_many_settings_is_refused_for_private_keys():
    with pytest.raises(PateError, match="same_noise"):
        aggregate.answer_many([GNMax(1.0)], VOTES, key=noise.fresh_key(), same_noise=True)


@pytest.mark.parametrize("name", BY_NAME)
def test_mechanisms_are_pytrees_whose_leaves_may_be_anything(name):
    mechanism = example(name)
    leaves, tree = jax.tree.flatten(mechanism)
    assert jax.tree.unflatten(tree, leaves) == mechanism
    assert type(jax.tree.map(lambda _: None, mechanism)) is type(mechanism)
    assert jax.tree.leaves(jax.jit(lambda m: jax.tree.map(lambda x: 2 * x, m))(mechanism)) == [
        2 * x for x in leaves
    ]


@pytest.mark.long
def test_continuous_mechanisms_may_be_traced_and_stacked_as_they_are():
    stacked = jax.tree.map(lambda *s: jnp.stack([jnp.float32(x) for x in s]), GNMax(1.0), GNMax(5.0))
    labels = jax.vmap(lambda m: aggregate.answer(m, VOTES, key=noise.seeded_key(1)).labels)(stacked)
    assert (labels[1] == aggregate.answer(GNMax(5.0), VOTES, key=noise.seeded_key(1)).labels).all()
    with pytest.raises(PateError, match="several settings"):
        aggregate.answer(stacked, VOTES, key=noise.seeded_key(1))


def test_a_traced_discrete_scale_is_refused_with_the_way_out():
    with pytest.raises(PateError, match="prepare"):
        jax.jit(lambda m: aggregate.answer(m, VOTES, key=noise.seeded_key(1)))(DiscreteGaussianMax(2.0))


def test_a_rebuilt_mechanism_with_known_bad_values_is_refused():
    bad = jax.tree.map(lambda x: -x, GNMax(2.0))
    with pytest.raises(PateError, match="sigma=-2"):
        aggregate.answer(bad, VOTES, key=noise.seeded_key(1))


@pytest.mark.parametrize(
    ("mechanism", "other"),
    [(GNMax(15.0), GNMax(30.0)), (DiscreteGaussianMax(5.0), DiscreteGaussianMax(5.0))],
    ids=["gnmax", "discrete-gaussian"],
)
def test_nothing_is_compiled_for_other_votes_and_keys(mechanism, other):
    compiled = []

    def note(event, seconds, **about):
        compiled.extend([event] * ("backend_compile" in event))

    first, second = np.random.default_rng(0).multinomial(100, [0.5, 0.3, 0.2], size=(2, 64))
    aggregate.answer(mechanism, first, key=noise.seeded_key(1))
    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        aggregate.answer(mechanism, second, key=noise.seeded_key(2))
        aggregate.answer(other, 2 * second, key=noise.seeded_key(3))
        assert not compiled
        jax.jit(lambda x: x + 12345)(1.0)
        assert compiled  # so the listener hears
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
def test_inside_shard_map_over_queries_and_over_teachers(name):
    mechanism = example(name)
    labels = np.random.default_rng(3).integers(0, 5, (16, 24)).astype(np.int16)
    mesh = jax.make_mesh((8,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))

    def over_queries(labels, key):
        votes = voting.histogram(labels, 5)
        key = jax.random.fold_in(key, jax.lax.axis_index("d"))
        return aggregate.answer(ready(mechanism, votes), votes, key=key)

    out = jax.jit(jax.shard_map(over_queries, mesh=mesh, in_specs=(P(None, "d"), P()), out_specs=P("d")))
    answers = out(labels, noise.seeded_key(6))
    for device in (0, 5):
        part = slice(3 * device, 3 * device + 3)
        votes = np.asarray(voting.histogram(labels[:, part], 5))
        key = jax.random.fold_in(noise.seeded_key(6), device)
        alone = aggregate.answer(ready(mechanism, votes), votes, key=key)
        assert same(jax.tree.map(lambda leaf, part=part: leaf[part], answers), alone)

    def over_teachers(labels, key):
        votes = voting.histogram(labels, 5, axis_name="d")
        return aggregate.answer(ready(mechanism, votes), votes, key=key)

    out = jax.jit(jax.shard_map(over_teachers, mesh=mesh, in_specs=(P("d"), P()), out_specs=P()))
    votes = np.asarray(voting.histogram(labels, 5))
    alone = aggregate.answer(ready(mechanism, votes), votes, key=noise.seeded_key(7))
    assert same(out(labels, noise.seeded_key(7)), alone)


def test_inside_pmap():
    votes = VOTES.reshape(8, 3, 5)
    answers = jax.pmap(lambda v, k: aggregate.answer(DiscreteGaussianMax(3.0), v, key=k))(
        votes, jax.random.split(noise.seeded_key(1), 8)
    )
    keys = jax.random.split(noise.seeded_key(1), 8)
    alone = aggregate.answer(DiscreteGaussianMax(3.0), votes[5], key=keys[5])
    assert (answers.labels[5] == alone.labels).all()


def test_no_queries_give_no_answers():
    assert aggregate.answer(GNMax(1.0), np.zeros((0, 3), int), key=noise.seeded_key(0)).labels.shape == (0,)


BAD_VOTES = {
    "negative": ([[3, -1], [1, 1]], r"votes\[0, 1\]=-1"),
    "not whole": ([[3.0, 1.5]], r"votes\[0, 1\]=1.5"),
    "NaN": ([[3.0, np.nan]], r"votes\[0, 1\]=nan"),
    "unequal": ([[3, 1], [3, 1], [2, 1]], "row 2 sums to 3, row 0 to 4"),
    "zero teachers": ([[0, 0]], "zero teachers"),
    "rank": ([3, 1], r"shape \(2,\)"),
    "one class": ([[3], [3]], "classes=1"),
    "too many": ([[1 << 24, 0]], r"votes\[0, 0\]=16777216"),
    "text": ([["a", "b"]], "whole numbers"),
}


@pytest.mark.parametrize("case", BAD_VOTES)
def test_bad_votes_are_named_outside_jit(case):
    votes, message = BAD_VOTES[case]
    with pytest.raises(PateError, match=message):
        aggregate.answer(GNMax(1.0), votes, key=noise.seeded_key(0))


@pytest.mark.long
def test_under_tracing_shapes_and_types_are_still_checked():
    def traced(votes):
        return jax.jit(lambda v: aggregate.answer(GNMax(1.0), v, key=noise.seeded_key(0)))(votes)

    traced(jnp.array([[-3, 1]]))  # values cannot be seen here
    with pytest.raises(PateError, match="shape"):
        traced(jnp.array([3, 1]))
    with pytest.raises(PateError, match="whole numbers"):
        traced(jnp.array([[3.0, 1.0]]))


def test_other_bad_input_is_named():
    key = noise.seeded_key(0)
    with pytest.raises(PateError, match="key=int"):
        aggregate.answer(GNMax(1.0), VOTES, key=7)
    with pytest.raises(PateError, match="mechanism='gnmax'"):
        aggregate.answer("gnmax", VOTES, key=key)
    with pytest.raises(PateError, match="student_probabilities is missing"):
        aggregate.answer(INTERACTIVE, VOTES, key=key)
    with pytest.raises(PateError, match="student_probabilities is given"):
        interactive.answer(GNMax(1.0), VOTES, VOTES / 13, key=key)
    with pytest.raises(PateError, match=r"row 3 is not a distribution: .*nan"):
        bad = (VOTES / 13).astype(np.float32)
        bad[3, 2] = np.nan
        interactive.answer(INTERACTIVE, VOTES, bad, key=key)
    with pytest.raises(PateError, match="softmax"):
        interactive.answer(INTERACTIVE, VOTES, np.ones(VOTES.shape, np.float32), key=key)
    with pytest.raises(PateError, match="2 kinds"):
        aggregate.prepare([GNMax(1.0), LNMax(1.0)])
    with pytest.raises(PateError, match="0 kinds"):
        aggregate.prepare([])


@pytest.mark.long
def test_importing_the_kernels_loads_no_training_library():
    code = (
        "import sys, pate_jax.aggregate, pate_jax.voting, pate_jax.aggregate.noise;"
        "bad = [m for m in ('flax', 'optax', 'tensorflow_datasets', 'orbax') if m in sys.modules];"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))


def test_reading_votes_does_not_load_jax():
    code = "import sys, pate_jax.voting, pate_jax.mechanisms, pate_jax.data; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
