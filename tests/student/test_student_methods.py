"""Every method end to end on small data: it learns, repeats itself, and does not depend on devices."""

import dataclasses

import jax
import numpy as np
import pytest

from pate_jax import data
from pate_jax.aggregate import Answers
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student import Auto, FixMatch, Gan, PublicInputs, Student, Supervised, Vat, fit, fit_many, named
from pate_jax.student.methods import METHODS
from pate_jax.student.settings import KINDS, names

CLASSES, SIDE = 3, 8


def pictures(count, seed=0):
    """A bright bar: across, down, or a square; each at a random place, with noise."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    images = random.integers(0, 40, (count, SIDE, SIDE, 1))
    for image, label in zip(images, labels, strict=True):
        top, left = random.integers(1, 4, 2)
        height, width = ((1, 5), (5, 1), (3, 3))[label]
        image[top : top + height, left : left + width] = 220
    return images.astype(np.uint8), labels


def public(inputs):
    scale = Preprocessing((0.0,), (255.0,)) if inputs.ndim == 4 else Preprocessing((0.0,), (1.0,))
    return PublicInputs(inputs, scale, CLASSES, ("across", "down", "square"))


def answers_of(labels, answered=None):
    answered = np.ones(len(labels), bool) if answered is None else answered
    return Answers(np.where(answered, labels, -1).astype(np.int32), answered)


SMALL = {"net": "mlp", "batch_size": 8, "unlabelled": 2, "shift": 1, "average": 0.9}


def leaves(student):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(student.parameters)]


@pytest.fixture(scope="module")
def trained():
    """One student by fixmatch on one device, and its inputs."""
    images, labels = pictures(300)
    config = FixMatch(steps=160, strength=0.5, confidence=0.8, devices=1, **SMALL)
    student = fit(jax.random.key(1), public(images), answers_of(labels[:60]), config)
    return images, labels, config, student


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=pytest.mark.long if name == "tandem" else ()) for name in METHODS]
)
@pytest.mark.long
def test_every_method_repeats_itself_and_serves_itself(method, tmp_path):
    images, labels = pictures(60)
    net = "own_nets:BatchNormed" if method == "own" else "mlp"
    small = {"steps": 2, "batch_size": 4, "devices": 1, "net": net}
    config = named(method, **{name: value for name, value in small.items() if name in names(KINDS[method])})
    one, same = (fit(jax.random.key(1), public(images), answers_of(labels[:30]), config) for _ in range(2))
    for left, right in zip(leaves(one), leaves(same), strict=True):
        np.testing.assert_array_equal(left, right)
    one.save(tmp_path)
    found = Student.load(tmp_path, net if method == "own" else None)(images)
    np.testing.assert_array_equal(found, one(images))
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


@pytest.mark.long
def test_fixmatch_learns_from_few_answers(trained):
    images, labels = pictures(400, seed=9)
    assert trained[3].accuracy(images, labels) > 0.8


@pytest.mark.long
def test_a_key_gives_the_same_student_bit_for_bit(trained):
    images, labels, config, student = trained
    again = fit(jax.random.key(1), public(images), answers_of(labels[:60]), config)
    for left, right in zip(leaves(student), leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
    other = fit(jax.random.key(2), public(images), answers_of(labels[:60]), config)
    assert any((left != right).any() for left, right in zip(leaves(student), leaves(other), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("devices", [2, 8])
def test_the_number_of_devices_changes_nothing_but_rounding(trained, devices):
    images, labels, config, _ = trained
    found = [
        fit(
            jax.random.key(3),
            public(images),
            answers_of(labels[:60]),
            dataclasses.replace(config, steps=12, devices=count),
        )
        for count in (1, devices)
    ]
    for left, right in zip(*map(leaves, found), strict=True):
        np.testing.assert_allclose(left, right, atol=2e-4)


@pytest.mark.long
def test_seeds_trained_together_are_those_trained_alone():
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, 60).astype(np.int32)
    inputs = (np.eye(CLASSES, 4)[labels] * 3 + random.normal(size=(60, 4))).astype(np.float32)
    config = Vat(steps=12, batch_size=8, unlabelled=2)

    def keys():
        return jax.random.split(jax.random.key(4), 3)

    together = fit_many(keys(), public(inputs), answers_of(labels[:30]), config)
    alone = fit(keys()[1], public(inputs), answers_of(labels[:30]), config)
    for left, right in zip(leaves(together[1]), leaves(alone), strict=True):
        np.testing.assert_allclose(left, right, atol=5e-4)
    assert any((left != right).any() for left, right in zip(*map(leaves, together[:2]), strict=True))


def moons(count, seed=0):
    """Two half circles, one inside the arm of the other: [count, 2] and their classes."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 2, count).astype(np.int32)
    angle = random.uniform(0, np.pi, count)
    upper = np.stack([np.cos(angle), np.sin(angle)], 1)
    lower = np.stack([1 - np.cos(angle), 0.5 - np.sin(angle)], 1)
    points = np.where(labels[:, None] == 0, upper, lower)
    return (points + random.normal(size=points.shape) * 0.08).astype(np.float32), labels


@pytest.mark.long
def test_vat_learns_from_inputs_without_answers():
    """Eight answers leave the arms of two moons open; the shape of the pool settles them."""
    inputs, labels = moons(600)
    ends = np.concatenate([np.flatnonzero(labels == label)[:4] for label in (0, 1)])
    order = np.concatenate([ends, np.setdiff1d(np.arange(600), ends)])
    pool = PublicInputs(inputs[order], Preprocessing((0.5, 0.25), (0.87, 0.5)), 2, ("up", "down"))
    given = answers_of(labels[order][:8])
    test_inputs, test_labels = moons(1000, seed=1)

    def reached(method, **more):
        config = named(method, steps=600, batch_size=8, **more)
        keys = jax.random.split(jax.random.key(5), 3)
        return np.mean([s.accuracy(test_inputs, test_labels) for s in fit_many(keys, pool, given, config)])

    with_pool = reached("vat", unlabelled=8, radius=0.15, entropy=1.0)
    assert with_pool > 0.92
    assert with_pool > reached("supervised") + 0.02


@pytest.mark.long
def test_gan_learns():
    images, labels = pictures(300)
    config = Gan(steps=150, devices=1, latent=8, learning_rate=3e-3, **SMALL)
    student = fit(jax.random.key(6), public(images), answers_of(labels[:90]), config)
    test_images, test_labels = pictures(400, seed=9)
    assert student.accuracy(test_images, test_labels) > 0.7
    net = student.shapes()
    assert all(not name.startswith("generator") for name in net)


@pytest.mark.long
def test_refused_queries_serve_as_inputs_without_answers(trained):
    images, labels, config, _ = trained
    short = dataclasses.replace(config, steps=12)
    answered = np.arange(120) % 2 == 0
    spoilt = answers_of(np.where(answered, labels[:120], 0), answered)
    spoilt = spoilt._replace(labels=np.where(answered, spoilt.labels, 2).astype(np.int32))
    clean = answers_of(labels[:120], answered)
    both = [fit(jax.random.key(7), public(images), each, short) for each in (spoilt, clean)]
    for left, right in zip(*map(leaves, both), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.long
def test_a_missing_class_is_warned_about_by_name():
    inputs = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    labels = np.arange(40) % 2
    with pytest.warns(UserWarning, match="no answer names class square"):
        fit(
            jax.random.key(0),
            public(inputs),
            answers_of(labels),
            Supervised(steps=1, batch_size=8),
        )


def test_what_may_be_private_is_refused():
    dataset = data.load("strokes", size=20, public_size=12, test_size=5)
    config = Auto(steps=1)
    given = answers_of(np.zeros(5, np.int32))
    with pytest.raises(PateError, match="is a Part: pass PublicInputs"):
        fit(jax.random.key(0), dataset.private, given, config)
    with pytest.raises(PateError, match="is a Part, which may hold private records"):
        PublicInputs(dataset.private, dataset.preprocessing, 10, dataset.class_names)
    with pytest.raises(PateError, match="is a Dataset, which may hold private records"):
        PublicInputs(dataset, dataset.preprocessing, 10, dataset.class_names)
    with pytest.raises(PateError, match="answers is a Part: pass the Answers"):
        fit(jax.random.key(0), PublicInputs.of(dataset), dataset.private, config)


def test_public_inputs_put_those_asked_about_first():
    dataset = data.load("strokes", size=20, public_size=12, test_size=5)
    found = PublicInputs.of(dataset, np.array([7, 2]))
    np.testing.assert_array_equal(found.inputs[:3], dataset.public.inputs[[7, 2, 0]])
    assert len(found.inputs) == 12


@pytest.mark.parametrize("label", [-1, CLASSES])
def test_a_label_outside_the_classes_is_refused(label):
    inputs = np.zeros((4, 5), np.float32)
    answers = Answers(np.array([0, label], np.int32), np.ones(2, bool))
    with pytest.raises(PateError, match=f"an answer is {label}"):
        fit(jax.random.key(0), public(inputs), answers, Auto())


@pytest.mark.long
def test_answers_held_out_set_the_temperature_and_stop_early():
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, 300).astype(np.int32)
    inputs = (np.eye(CLASSES, 4)[labels] + random.normal(size=(300, 4)) * 0.7).astype(np.float32)
    config = Supervised(steps=1000, batch_size=16, label_smoothing=0.0, hold_out=0.3, patience=2)
    student = fit(jax.random.key(8), public(inputs), answers_of(labels), config)
    plain = student._replace(temperature=1.0)
    assert student.temperature != 1.0
    test_labels = random.integers(0, CLASSES, 2000).astype(np.int32)
    test = (np.eye(CLASSES, 4)[test_labels] + random.normal(size=(2000, 4)) * 0.7).astype(np.float32)

    def surprise(each):
        return -np.log(each(test)[np.arange(2000), test_labels]).mean()

    assert surprise(student) < surprise(plain) + 0.05


def test_the_method_follows_the_kind_of_data():
    assert Auto().resolved(image=True).method == "fixmatch"
    assert Auto().resolved(image=False).method == "vat"
    assert {Auto().resolved(image=image, whole=True).method for image in (True, False)} == {"ridge"}
    assert Auto(steps=7).resolved(image=True).steps == 7
    assert Auto().resolved(image=True).label_smoothing == 0.0
    assert Vat().resolved(image=True).label_smoothing == 0.1
    assert Auto(label_smoothing=0.2).resolved(image=True).label_smoothing == 0.2
    for method in ("gan", "fixmatch", "tandem"):
        with pytest.raises(PateError, match=f"method='{method}' needs images"):
            named(method).resolved(image=False)


@pytest.mark.parametrize(
    "setting",
    [
        {"steps": 0},
        {"batch_size": 0},
        {"learning_rate": 0.0},
        {"label_smoothing": 1.0},
        {"shift": -1},
        {"confidence": 1.2},
        {"average": 1.0},
        {"unlabelled": 0},
        {"radius": 0.0},
        {"alignment": -0.5},
        {"hold_out": 1.0},
        {"weight": -1.0},
        {"patience": 3},
        {"settled": 1.0},
    ],
)
def test_settings_that_make_no_sense_are_named(setting):
    name, value = next(iter(setting.items()))
    with pytest.raises(PateError, match=f"{name}={value}"):
        Auto(**setting)
