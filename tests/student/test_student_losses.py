"""The parts of the students' losses against hand-computed cases, closed forms and finite differences."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax import models
from pate_jax.data import Preprocessing
from pate_jax.student import FixMatch, Gan, calibration, training
from pate_jax.student.methods import losses, nets
from pate_jax.student.methods.losses import Views
from pate_jax.student.training import Batch

pytestmark = pytest.mark.long
FEATURES, CLASSES = 5, 3


def softmax(logits):
    exponents = np.exp(logits - logits.max(-1, keepdims=True))
    return exponents / exponents.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def linear():
    random = np.random.default_rng(0)
    return random.normal(size=(FEATURES, CLASSES)), random.normal(size=(4, FEATURES))


def test_the_gradient_of_the_vat_loss_agrees_with_finite_differences(linear):
    weights, inputs = linear
    start = np.random.default_rng(1).normal(size=inputs.shape)

    points = jnp.float32(inputs)

    def direction(weights):
        return losses.worst_direction(lambda x: x @ weights, points, points @ weights, jnp.float32(start))

    def loss(weights):
        way = direction(weights)
        return losses.virtual_adversarial(lambda x: x @ weights, points, points @ weights, way, 0.7).mean()

    found = jax.jit(jax.grad(loss))(jnp.float32(weights))
    change = 0.7 * np.asarray(jax.jit(direction)(jnp.float32(weights)))
    fixed = softmax(inputs @ weights)

    def by_hand(weights):  # r and p(x) are held where they were
        return (fixed * (np.log(fixed) - np.log(softmax((inputs + change) @ weights)))).sum(1).mean()

    assert float(jax.jit(loss)(jnp.float32(weights))) == pytest.approx(by_hand(weights), rel=1e-4)
    for place in np.ndindex(weights.shape):
        step = np.zeros_like(weights)
        step[place] = 1e-5
        slope = (by_hand(weights + step) - by_hand(weights - step)) / 2e-5
        assert float(found[place]) == pytest.approx(slope, abs=2e-5, rel=2e-3)


def test_power_iteration_finds_the_direction_of_greatest_curvature(linear):
    weights, inputs = linear
    start = np.random.default_rng(2).normal(size=inputs.shape)
    apply = lambda x: x @ jnp.float32(weights)  # noqa: E731
    points = jnp.float32(inputs)
    worst = jax.jit(partial(losses.worst_direction, apply, small=0.05, rounds=8))
    found = worst(points, apply(points), jnp.float32(start))
    for row, direction in zip(inputs, np.asarray(found), strict=True):
        p = softmax(row @ weights)
        curvature = weights @ (np.diag(p) - np.outer(p, p)) @ weights.T
        assert abs(direction @ np.linalg.eigh(curvature)[1][:, -1]) > 0.98
        assert np.linalg.norm(direction) == pytest.approx(1, abs=1e-5)


def test_entropy_and_divergence_agree_with_their_definitions(linear):
    weights, inputs = linear
    logits = inputs @ weights
    p, q = softmax(logits), softmax(logits[::-1])
    np.testing.assert_allclose(losses.entropy(jnp.float32(logits)), -(p * np.log(p)).sum(1), rtol=1e-5)
    found = losses.divergence(jnp.float32(logits), jnp.float32(logits[::-1]))
    np.testing.assert_allclose(found, (p * np.log(p / q)).sum(1), rtol=1e-4, atol=1e-6)


def test_alignment_divides_by_frequencies():
    guesses = jnp.array([[0.6, 0.4], [0.9, 0.1]])
    found = losses.aligned(guesses, jnp.array([1.5, 0.5]), 1.0)
    np.testing.assert_allclose(found, [[1 / 3, 2 / 3], [0.75, 0.25]], rtol=1e-6)
    np.testing.assert_allclose(losses.aligned(guesses, jnp.array([1.5, 0.5]), 0.0), guesses, rtol=1e-6)


def test_the_running_average_by_hand():
    average, latest = {"a": jnp.array([1.0])}, {"a": jnp.array([3.0])}
    early = training.running_average(average, latest, 0.9, jnp.array(2))  # keeps (1 + 2) / (10 + 2)
    assert float(early["a"][0]) == pytest.approx(0.25 * 1 + 0.75 * 3)
    late = training.running_average(average, latest, 0.9, jnp.array(1000))
    assert float(late["a"][0]) == pytest.approx(0.9 * 1 + 0.1 * 3, rel=1e-6)


def stub_views():
    plain = Preprocessing((0.0,), (1.0,)).apply
    return Views(plain, lambda _, inputs: plain(inputs), lambda _, inputs: plain(inputs) * 2)


def batch_of(inputs, others, labels):
    keys = jax.random.split(jax.random.key(0), len(inputs) + len(others))
    wanted = training.targets(jnp.asarray(labels), CLASSES, 0.0)
    split = len(inputs)
    known, rest = (jnp.float32(inputs), wanted, keys[:split]), (jnp.float32(others), keys[split:])
    return Batch(*known, *rest, jnp.float32(1.0), other_slots=jnp.arange(len(others)))


def looked(objective, batch):
    return batch._replace(seen=jax.jit(objective.look)(batch))


@pytest.mark.parametrize("distorted", [False, True])
def test_fixmatch_by_hand(linear, distorted):
    """Guesses come from the moved image, count where they are sure, and are taught on the distorted one."""
    weights, inputs = linear
    model = models.Model(lambda key: jnp.float32(weights), lambda w, x: x @ w, {"classes": CLASSES})
    others = np.random.default_rng(3).normal(size=(6, FEATURES))
    objective = losses.fixmatch(
        model, stub_views(), FixMatch(confidence=0.7, weight=2.0, distort_answers=distorted)
    )
    parameters, memory = objective.start(jax.random.key(1))
    batch = looked(objective, batch_of(inputs, others, [0, 1, 2, 1]))
    total, (memory, sure) = jax.jit(objective.loss)(parameters, memory, batch, jax.random.key(2))
    guesses, taught = softmax(others @ weights), softmax(2 * others @ weights)
    mask = guesses.max(1) >= 0.7
    assert 0 < mask.sum() < 6
    unlabelled = np.where(mask, -np.log(taught[np.arange(6), guesses.argmax(1)]), 0).mean()
    shown = 2 * inputs if distorted else inputs
    labelled = -np.log(softmax(shown @ weights)[np.arange(4), [0, 1, 2, 1]]).mean()
    assert float(total) == pytest.approx(labelled + 2 * unlabelled, rel=1e-4)
    assert float(sure) == pytest.approx(mask.mean())
    np.testing.assert_allclose(memory, 0.99 / CLASSES + 0.01 * guesses.mean(0), rtol=1e-5)


def test_no_gradient_flows_through_fixmatch_guesses(linear):
    weights, inputs = linear
    model = models.Model(lambda key: jnp.float32(weights), lambda w, x: x @ w, {"classes": CLASSES})
    views = stub_views()
    blind = views._replace(strong=lambda keys, inputs: jnp.zeros(inputs.shape))  # teaches nothing but bias
    objective = losses.fixmatch(model, blind, FixMatch(confidence=0.0, weight=1.0, distort_answers=False))
    batch = looked(objective, batch_of(inputs, inputs * 3, [0, 1, 2, 1]))
    slope = lambda loss: jax.jit(jax.grad(loss))  # noqa: E731
    with_others = slope(lambda w: objective.loss({"net": w}, jnp.ones(3) / 3, batch, jax.random.key(2))[0])
    labelled = slope(lambda w: losses.cross_entropy(batch.inputs @ w, batch.targets).mean())
    np.testing.assert_allclose(with_others(jnp.float32(weights)), labelled(jnp.float32(weights)), atol=1e-6)


def test_the_gan_loss_is_the_direct_formula_with_one_more_class():
    random = np.random.default_rng(4)
    real, generated = random.normal(size=(7, CLASSES)) * 3, random.normal(size=(5, CLASSES)) * 3

    def generated_probability(logits):
        return softmax(np.concatenate([logits, np.zeros((len(logits), 1))], axis=1))[:, -1]

    direct = 0.5 * (
        -np.log(1 - generated_probability(real)).mean() - np.log(generated_probability(generated)).mean()
    )
    found = losses.real_or_generated(jnp.float32(real), jnp.float32(generated))
    assert float(found) == pytest.approx(direct, rel=1e-5)
    matching = ((real.mean(0) - generated.mean(0)) ** 2).mean()
    found = losses.feature_matching(jnp.float32(real), jnp.float32(generated))
    assert float(found) == pytest.approx(matching, rel=1e-4)


@pytest.mark.long
def test_student_and_generator_each_follow_their_own_loss():
    model = models.build("mlp", input_shape=(4, 4, 1), classes=CLASSES, hidden=(6,))
    plain = Preprocessing((0.0,), (255.0,)).apply
    views = Views(plain, lambda _, inputs: plain(inputs), lambda _, inputs: plain(inputs))
    random = np.random.default_rng(5)
    inputs, others = random.uniform(0, 255, (4, 4, 4, 1)), random.uniform(0, 255, (8, 4, 4, 1))
    batch = batch_of(inputs, others, [0, 1, 2, 1])
    gradients = {}
    for weight in (0.0, 1.0):
        objective = nets.objective(model, views, Gan(weight=weight, latent=3))
        parameters, _ = jax.jit(objective.start)(jax.random.key(6))
        seen = looked(objective, batch)
        loss = lambda tree, one=objective, seen=seen: one.loss(tree, (), seen, jax.random.key(7))[0]  # noqa: E731
        gradients[weight] = jax.jit(jax.grad(loss))(parameters)

    def moved(name):
        pairs = zip(*(jax.tree.leaves(gradients[weight][name]) for weight in (0.0, 1.0)), strict=True)
        return max(float(jnp.abs(left - right).max()) for left, right in pairs)

    assert moved("net") > 1e-3  # telling real from generated is the student's business
    assert moved("generator") == 0.0  # and none of the generator's, which matches features
    supervised = lambda net: losses.cross_entropy(model.apply(net, plain(batch.inputs)), batch.targets)  # noqa: E731
    labelled = jax.jit(jax.grad(lambda net: supervised(net).mean()))
    for mine, wanted in zip(
        jax.tree.leaves(gradients[0.0]["net"]),
        jax.tree.leaves(labelled(parameters["net"])),
        strict=True,
    ):
        np.testing.assert_allclose(mine, wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", pytest.param("cnn", marks=pytest.mark.long), "table"])
def test_features_and_last_layer_make_the_logits(name):
    shape = (8, 8, 1) if name == "cnn" else (6,)
    model = models.build(name, input_shape=shape, classes=CLASSES)
    parameters = jax.jit(model.init)(jax.random.key(0))
    inputs = np.random.default_rng(1).normal(size=(3, *shape)).astype(np.float32)
    by_features = jax.jit(lambda tree, seen: nets.logits_of(tree, nets.features(model)(tree, seen)))
    np.testing.assert_allclose(
        by_features(parameters, inputs), jax.jit(model.apply)(parameters, inputs), atol=1e-5
    )


def test_the_temperature_recovers_the_scale_of_the_logits():
    random = np.random.default_rng(6)
    logits = random.normal(size=(4000, CLASSES)) * 2
    labels = np.array([random.choice(CLASSES, p=p) for p in softmax(logits)])
    assert calibration.temperature(logits * 3, labels) == pytest.approx(3, rel=0.12)
    assert calibration.temperature(logits / 2, labels) == pytest.approx(0.5, rel=0.12)
