"""The student of two nets: what the second is told, how their words are put together, and what it learns."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_student_methods import answers_of, leaves, pictures, public

from pate_jax import models
from pate_jax.errors import PateError
from pate_jax.models import patches
from pate_jax.student import Tandem, Vat, fit, fit_many, named
from pate_jax.student.lesson import Lesson
from pate_jax.student.methods import METHODS, nets, ridge, tandem

CONFIG = Tandem(steps=150, batch_size=16, maps=(4, 8), shift=1, average=0.98)


@pytest.fixture(scope="module")
def trained():
    seen, labels = pictures(300)
    return fit(jax.random.key(1), public(seen), answers_of(labels[:60]), CONFIG)


@pytest.mark.long
def test_it_learns_from_few_answers_and_knows_how_sure_it_is(trained):
    seen, labels = pictures(500, seed=9)
    found = trained(seen)
    assert (found.argmax(1) == labels).mean() > 0.85
    assert abs(found.max(1).mean() - (found.argmax(1) == labels).mean()) < 0.12


@pytest.mark.long
def test_its_probabilities_are_the_product_of_those_of_its_nets(trained):
    seen, _ = pictures(40, seed=3)
    about = {"input_shape": (8, 8, 1), "classes": 3}
    nets = {
        "patches": models.build("patches", **about, examples=60),
        "cnn": models.build("cnn", **about, maps=(4, 8)),
    }
    inputs = public(seen).preprocessing.apply(seen)
    each = [jax.nn.softmax(net.apply(trained.parameters[name], inputs)) for name, net in nets.items()]
    product = np.asarray(each[0] * each[1], np.float64) ** (1 / trained.temperature)
    np.testing.assert_allclose(trained(seen), product / product.sum(1, keepdims=True), atol=1e-5)


@pytest.mark.long
def test_the_second_net_is_told_what_ridge_says_and_never_an_answer_itself(monkeypatch):
    seen, labels = pictures(300)
    rows = np.arange(3, 63)
    answers = np.where(rows % 4 == 0, (labels[rows] + 1) % 3, labels[rows])
    heard = []

    def teach(config, keys, lesson):
        heard.append((lesson, config))
        return METHODS["supervised"](config, keys, lesson)

    monkeypatch.setattr(tandem, "_small_net", teach)
    given = Lesson(public(seen), rows, answers)
    tandem.learn(CONFIG.resolved(image=True), jax.random.key(0)[None], given)
    (((inputs, told_rows, told, _), config),) = heard
    images = ridge.scaled(given)
    known = patches.learn(images, seed=nets.seeds(jax.random.key(0)[None])[0])
    features, of_answered = patches.features(known, images), patches.features(known, images[rows])
    parameters, unseen = ridge.fit(known, images, of_answered, given)
    wanted = ridge.logits(parameters["dense0"], features, of_answered).argmax(1)
    assert (wanted[rows] != unseen.argmax(1)).any(), "knowing an answer makes a difference"
    wanted[rows] = unseen.argmax(1)
    np.testing.assert_array_equal(told, wanted)
    np.testing.assert_array_equal(told_rows, np.arange(300))
    assert inputs is given.public
    assert (config.method, config.net, config.maps) == ("supervised", "cnn", (4, 8))


@pytest.mark.long
def test_a_known_balance_is_used():
    """A pool of equal classes and answers that name one of them too often."""
    seen, labels = pictures(300)
    answers = labels[:90].copy()
    answers[np.flatnonzero(answers == 1)[::2]] = 0
    kept = public(seen)
    plain, pulled = (
        fit(jax.random.key(2), kept, answers_of(answers), dataclasses.replace(CONFIG, alignment=each))
        for each in (0.0, 1.0)
    )

    def shares(student):
        net = models.build(**student.description)
        return jax.nn.softmax(net.apply(student.parameters, kept.preprocessing.apply(seen))).mean(0)

    np.testing.assert_allclose(shares(pulled), 1 / 3, atol=1e-3)
    assert np.abs(shares(plain) - 1 / 3).max() > 0.02


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(2, 6), st.floats(0.1, 5.0), st.floats(0.0, 1.0))
def test_a_pull_makes_classes_as_frequent_and_part_of_it_goes_part_of_the_way(
    seed, count, classes, loud, part
):
    logits = loud * np.random.default_rng(seed).standard_normal((count, classes))
    whole = tandem.pull(logits, 1.0)
    moved = np.exp(logits + whole)
    shares = (moved / moved.sum(1, keepdims=True)).mean(0)
    before = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert np.abs(shares - 1 / classes).max() <= max(0.02, np.abs(before.mean(0) - 1 / classes).max() / 5)
    np.testing.assert_allclose(tandem.pull(logits, part), part * whole)


@pytest.mark.long
def test_random_answers_teach_nothing():
    seen, _ = pictures(300)
    test_seen, test_labels = pictures(500, seed=9)
    found, sure = [], []
    for draw in range(6):
        # `pictures` draws its labels from generators 0 and 9: another one, or the noise is the truth
        noise = np.random.default_rng(100 + draw).integers(0, 3, 200).astype(np.int32)
        student = fit(jax.random.key(draw), public(seen), answers_of(noise), CONFIG)
        found.append(student.accuracy(test_seen, test_labels))
        sure.append(student(test_seen).max(1).mean())
    # Images of a kind are told alike, so a draw is right about none, one, two or three kinds of them.
    assert abs(np.mean(found) - 1 / 3) < 0.25
    assert max(sure) < 0.5, "it must know that it knows nothing"


@pytest.mark.long
def test_several_are_those_of_their_keys():
    seen, labels = pictures(300)

    def keys():
        return jax.random.split(jax.random.key(4), 2)

    one, other = fit_many(keys(), public(seen), answers_of(labels[:60]), CONFIG)
    alone = fit(keys()[0], public(seen), answers_of(labels[:60]), CONFIG)
    for left, right in zip(leaves(one), leaves(alone), strict=True):
        np.testing.assert_array_equal(left, right)
    assert any((left != right).any() for left, right in zip(leaves(one), leaves(other), strict=True))


@pytest.mark.parametrize(("net", "method"), [("patches", "ridge"), ("tandem", "tandem")])
def test_nets_of_public_images_are_refused_by_other_methods(net, method):
    seen, labels = pictures(30)
    with pytest.raises(PateError, match=f"net='{net}' is made of public images.*method='{method}'"):
        fit(jax.random.key(0), public(seen), answers_of(labels), Vat(net=net))


@pytest.mark.parametrize("setting", [{"net": "cnn"}, {"hold_out": 0.5}])
def test_settings_that_it_has_no_use_for_are_refused(setting):
    seen, labels = pictures(30)
    with pytest.raises(PateError, match="tandem has a net of its own"):
        fit(jax.random.key(0), public(seen), answers_of(labels), named("tandem", **setting))
