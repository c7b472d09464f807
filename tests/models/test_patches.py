"""Typical patches: what they are by plain loops, that no image sees another, and what is learned on them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_student_methods import answers_of, pictures, public
from tiny_teachers import CLASSES, images, shards

from pate_jax import ensemble, models
from pate_jax.data import Preprocessing
from pate_jax.ensemble import TeacherConfig
from pate_jax.ensemble.settings import RECIPES
from pate_jax.errors import PateError
from pate_jax.models import patches
from pate_jax.student import Ridge, fit, fit_many, named
from pate_jax.student.methods import ridge

SCALE = Preprocessing((0.0,), (255.0,))
FEW = {"kinds": 6, "size": 3, "cells": 2}


def drawn(count=40, side=7, channels=2, seed=0):
    return np.random.default_rng(seed).random((count, side, side + 1, channels)).astype(np.float32)


@pytest.fixture(scope="module")
def known():
    return patches.learn(drawn(), **FEW)


def by_loops(known, image, size, cells):
    """The features of one image, patch by patch, in double precision."""
    flat, offset, whitening, typical, middle, shaky, taken, spread = (
        np.asarray(leaf, np.float64) for leaf in known
    )
    height, width, channels = image.shape
    sums = np.zeros((cells, cells, len(typical)))
    for row in range(height):
        for column in range(width):
            patch = np.zeros((size, size, channels))
            for i in range(size):
                for j in range(size):
                    y, x = row + i - size // 2, column + j - size // 2
                    if 0 <= y < height and 0 <= x < width:
                        patch[i, j] = image[y, x]
            seen = patch.ravel() - patch.mean()
            white = (seen / np.sqrt((seen**2).mean() + flat) - offset) @ whitening
            gaps = np.sqrt(((white - typical) ** 2).sum(1))
            for cell in range(cells):
                for across in range(cells):
                    above, left = height * cell // cells - 1, width * across // cells - 1
                    below, right = height * (cell + 1) // cells + 1, width * (across + 1) // cells + 1
                    if above <= row < below and left <= column < right:
                        sums[cell, across] += np.maximum(gaps.mean() - gaps, 0)
    found = np.sqrt(sums.ravel()) - middle
    for direction, share in zip(shaky.T, taken, strict=True):  # which are orthogonal
        found = found - share * (found @ direction) * direction
    return found / spread


def test_features_are_what_plain_loops_give(known):
    for image in drawn(3, seed=4):
        found = patches.features(known, image[None])[0]
        np.testing.assert_allclose(found, by_loops(known, image, 3, 2), atol=2e-3)


def test_features_have_the_pools_middle_and_length(known):
    found = patches.features(known, drawn())
    np.testing.assert_allclose(found.mean(0), 0, atol=1e-4)
    assert (found**2).sum(1).mean() == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("count", [1, 37, 100, 101])
def test_no_image_changes_a_bit_of_anothers_features(known, count):
    pool = drawn(230, seed=2)
    alone = patches.features(known, pool[5:6])
    among = patches.features(known, np.concatenate([drawn(count, seed=3), pool[5:]]))[count]
    np.testing.assert_array_equal(alone[0], among)


def test_patches_follow_from_the_pool_and_the_seed():
    one, same, other = (patches.learn(drawn(), seed=seed, **FEW) for seed in (0, 0, 1))
    for left, right in zip(one, same, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (np.asarray(one.typical) != np.asarray(other.typical)).any()


def test_flat_images_have_features_too(known):
    flat = np.full((2, 7, 8, 2), 0.5, np.float32)
    assert np.isfinite(patches.features(known, flat)).all()


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        (np.zeros((5, 7, 8, 1), np.float32), "0 patches of 5 public images are not flat"),
        (np.zeros((5, 7), np.float32), r"the public inputs are \[5, 7\]: choose another net"),
        (np.zeros((0, 7, 8, 1), np.float32), r"the public inputs are \[0, 7, 8, 1\]"),
    ],
)
def test_pools_without_patches_are_refused(pool, said):
    with pytest.raises(PateError, match=said):
        patches.learn(pool, **FEW)


@pytest.mark.long
def test_what_moves_with_a_pixel_counts_less():
    """Against a plain eigendecomposition of what changes when images are moved."""
    pool, size = drawn(), {"kinds": 8, "size": 3, "cells": 4}
    known = patches.learn(pool, **size)
    plain = known._replace(taken=0 * known.taken, spread=1.0)
    still, changes = patches.features(plain, pool), []
    for shift, axis in ((1, 1), (-1, 1), (1, 2), (-1, 2)):
        moved = np.roll(pool, shift, axis)
        edge = 0 if shift == 1 else pool.shape[axis] - 1
        place = (slice(None), edge) if axis == 1 else (slice(None), slice(None), edge)
        moved[place] = pool[place]
        changes.append(patches.features(plain, moved) - still)
    changes = np.concatenate(changes).astype(np.float64)
    values, directions = np.linalg.eigh(changes.T @ changes / len(changes))
    steady = (directions / np.sqrt(1 + 0.3 * values / values.mean())) @ directions.T
    found = patches.features(known, pool)
    # 100 of 128 directions are taken, the rest of which change least of all
    wanted = still @ steady / known.spread
    assert np.linalg.norm(found - wanted) < 0.03 * np.linalg.norm(wanted)
    assert (known.taken > 0).all()


def test_likeness_is_what_random_half_planes_have_in_common():
    """The kernel is twice the mean of relu(w a) relu(w b) over Gaussian w, for unit vectors."""
    random = np.random.default_rng(0)
    things = random.normal(size=(4, 5)).astype(np.float32)
    ones = things / np.linalg.norm(things, axis=1, keepdims=True)
    seen = np.maximum(random.normal(size=(400_000, 5)) @ ones.T, 0)
    things = jnp.asarray(things)
    np.testing.assert_allclose(patches.likeness(things, 3 * things), 2 * seen.T @ seen / 400_000, atol=0.02)
    chex.assert_tree_all_finite(patches.likeness(things, 0 * things))


@pytest.mark.parametrize("share", [1e-3, 0.3])
def test_least_squares_solves_the_normal_equations_and_leaves_one_out(monkeypatch, share):
    random = np.random.default_rng(0)
    features, labels = random.normal(size=(25, 40)), random.integers(0, 3, 25)
    monkeypatch.setattr(ridge, "_PENALTIES", np.array([share]))
    line = ridge.weighted_least_squares(features @ features.T, np.eye(3)[labels], np.ones(25))
    middle, shares = features.mean(0), np.eye(3)[labels].mean(0)
    centred, targets = features - middle, np.eye(3)[labels] - shares
    penalty = share * (centred**2).sum() / 25

    def solved(rows):
        system = centred[rows].T @ centred[rows] + penalty * np.eye(40)
        return np.linalg.solve(system, centred[rows].T @ targets[rows])

    other = random.normal(size=(7, 40))
    found = other @ features.T @ line.kernel + line.bias
    np.testing.assert_allclose(found, (other - middle) @ solved(np.arange(25)) + shares, atol=1e-10)
    for row in range(25):
        rest = np.arange(25) != row
        middle, shares = features[rest].mean(0), np.eye(3)[labels[rest]].mean(0)
        centred, targets = features - middle, np.eye(3)[labels] - shares
        np.testing.assert_allclose(line.unseen[row], centred[row] @ solved(rest) + shares, atol=1e-10)


def test_the_penalty_is_the_one_that_predicts_unseen_answers_best():
    random = np.random.default_rng(1)
    features = random.normal(size=(60, 30))
    alike, both, weights = features @ features.T, np.eye(2), np.ones(60)
    noise = ridge.weighted_least_squares(alike, both[random.integers(0, 2, 60)], weights)
    signal = ridge.weighted_least_squares(alike, both[(features[:, 0] > 0).astype(int)], weights)
    assert np.abs(features.T @ noise.kernel).max() < 0.3 * np.abs(features.T @ signal.kernel).max()


CONFIG = Ridge()


@pytest.mark.long
@pytest.mark.parametrize("rows", [[5], [5, 5, 5]])
@pytest.mark.filterwarnings("ignore:no answer names class")
def test_one_answer_and_equal_images_are_learned_too(rows):
    seen, labels = pictures(60)
    inputs = np.concatenate([seen[rows], seen])
    student = fit(jax.random.key(0), public(inputs), answers_of(labels[rows]), CONFIG)
    found = student(seen)
    assert np.isfinite(found).all()
    assert (found.argmax(1) == labels[5]).all()


@pytest.fixture(scope="module")
def trained():
    seen, labels = pictures(300)
    return fit(jax.random.key(1), public(seen), answers_of(labels[:60]), CONFIG)


@pytest.mark.long
def test_the_ridge_student_learns_from_few_answers_and_knows_how_sure_it_is(trained):
    seen, labels = pictures(600, seed=9)
    found = trained(seen)
    assert (found.argmax(1) == labels).mean() > 0.8
    assert abs(found.max(1).mean() - (found.argmax(1) == labels).mean()) < 0.12


@pytest.mark.long
def test_random_answers_teach_the_ridge_student_nothing():
    seen, _ = pictures(300)
    test_seen, test_labels = pictures(500, seed=9)
    found = []
    for draw in range(5):
        # `pictures` draws its labels from generators 0 and 9: another one, or the noise is the truth
        noise = np.random.default_rng(100 + draw).integers(0, 3, 200).astype(np.int32)
        student = fit(jax.random.key(draw), public(seen), answers_of(noise), CONFIG)
        found.append(student.accuracy(test_seen, test_labels))
    assert abs(np.mean(found) - 1 / 3) < 0.1


@pytest.mark.long
def test_several_ridge_students_are_those_of_their_keys():
    seen, labels = pictures(300)

    def keys():
        return jax.random.split(jax.random.key(4), 2)

    one, other = fit_many(keys(), public(seen), answers_of(labels[:60]), CONFIG)
    alone = fit(keys()[0], public(seen), answers_of(labels[:60]), CONFIG)
    for name, leaf in alone.parameters["dense0"].items():
        np.testing.assert_array_equal(one.parameters["dense0"][name], leaf)
    assert (np.asarray(one.parameters["typical"]) != np.asarray(other.parameters["typical"])).any()


def test_a_ridge_student_holds_the_images_that_were_answered_and_no_others(trained):
    seen, _ = pictures(300)
    asked = public(seen).preprocessing.apply(seen[:60])
    np.testing.assert_array_equal(trained.parameters["examples"], np.asarray(asked, np.float32))
    assert trained.description["examples"] == 60


@pytest.mark.parametrize("setting", [{"net": "cnn"}, {"hold_out": 0.5}])
def test_settings_that_the_ridge_student_has_no_use_for_are_refused(setting):
    seen, labels = pictures(30)
    with pytest.raises(PateError, match="ridge has a net of its own"):
        fit(jax.random.key(0), public(seen), answers_of(labels), named("ridge", **setting))


def teachers(inputs, labels, cut, model, **changes):
    config = TeacherConfig(net="patches", epochs=3, min_steps=12, batch_size=4, **changes)
    return ensemble.fit(model, SCALE, inputs, labels, cut, key=jax.random.key(0), config=config)


@pytest.fixture(scope="module")
def net():
    pool = SCALE.apply(images(60, seed=8)[0])
    known = patches.learn(pool, kinds=5, size=3)
    return models.on_patches(known, SCALE, input_shape=(8, 8, 1), classes=CLASSES)


def kernels(found):
    return [np.asarray(load()["dense0"]["kernel"]) for _, load in found.parts]


@pytest.mark.parametrize(
    ("devices", "width"),
    [(2, 1), *(pytest.param(*case, marks=pytest.mark.long) for case in ((1, 1), (8, 3)))],
)
def test_a_changed_or_longer_shard_moves_its_own_teacher_only(net, devices, width):
    inputs, labels = images()
    cut, size = shards(), {"devices": devices, "width": width}
    before = np.concatenate(kernels(teachers(inputs, labels, cut, net, **size)))
    moved = inputs.copy()
    moved[cut.rows[3, :12]] = 255 - moved[cut.rows[3, :12]]
    counts = list(cut.counts)
    counts[3] += 1
    for other_inputs, other_cut in ((moved, cut), (inputs, grown(cut, 3))):
        after = np.concatenate(kernels(teachers(other_inputs, labels, other_cut, net, **size)))
        changed = [i for i in range(len(counts)) if (before[i] != after[i]).any()]
        assert changed == [3]


def grown(cut, teacher):
    """The same shards with one more record, that nobody had, for one teacher."""
    rows = np.concatenate([cut.rows, np.zeros((len(cut.rows), 1), np.int32)], 1)
    rows[teacher, cut.counts[teacher]] = cut.counts.sum()
    counts = cut.counts.copy()
    counts[teacher] += 1
    return type(cut)(rows, counts)


@pytest.mark.long
def test_teachers_on_patches_learn_and_are_kept(net, tmp_path):
    inputs, labels = images(400)
    rows = np.arange(240, dtype=np.int32).reshape(4, 60)
    cut = type(shards())(rows, np.full(4, 60, np.int32))
    config, fed = TeacherConfig(net="patches", epochs=20), {"key": jax.random.key(0)}
    looked = []

    def front(seen):
        looked.append(len(seen))
        return net.front(seen)

    counting = net._replace(front=front)
    for _ in range(2):
        kept = ensemble.fit(
            counting, SCALE, inputs, labels, cut, config=config, directory=tmp_path / "kept", **fed
        )
    assert looked == [240, 1]  # the records of the shards, once; then one, for the shape
    told = ensemble.predict(net, SCALE, kept, inputs[240:])
    assert (told == labels[240:]).mean() > 0.9
    votes = ensemble.vote(net, SCALE, kept, inputs[240:])
    np.testing.assert_array_equal(votes, np.stack([(told == c).sum(0) for c in range(CLASSES)], 1))


def test_a_label_beyond_the_classes_is_refused_behind_a_front_too():
    inputs, labels = images()
    known = patches.learn(SCALE.apply(inputs), **FEW)
    two = models.on_patches(known, SCALE, input_shape=(8, 8, 1), classes=2)
    with pytest.raises(PateError, match="label 2 is beyond the net's classes=2"):
        teachers(inputs, labels, shards(), two)


@pytest.mark.long
def test_the_squared_loss_pulls_outputs_to_one_and_zero():
    assert RECIPES["patches"]["loss"] == "squared"
    inputs = np.repeat(np.eye(3, dtype=np.float32), 8, 0)
    labels = np.repeat(np.arange(3), 8).astype(np.int32)
    cut = type(shards())(np.arange(24, dtype=np.int32)[None], np.array([24], np.int32))
    model = models.build("mlp", input_shape=(3,), classes=3, hidden=())
    config = TeacherConfig(net="mlp", loss="squared", epochs=200, weight_decay=0.0, learning_rate=0.3)
    same = Preprocessing((0.0,), (1.0,))
    ((_, load),) = ensemble.fit(model, same, inputs, labels, cut, key=jax.random.key(0), config=config).parts
    outputs = model.apply(jax.tree.map(lambda leaf: leaf[0], load()), np.eye(3, dtype=np.float32))
    np.testing.assert_allclose(outputs, np.eye(3) - 1 / 3, atol=1e-3)
    with pytest.raises(PateError, match="loss='hinge' must be one of cross_entropy, squared"):
        TeacherConfig(loss="hinge").resolved()


def test_no_bit_hangs_on_how_many_images_go_to_a_device_together(monkeypatch):
    """One after the other, in tens, and all at once, as a GPU gets them."""
    images = np.random.default_rng(4).random((23, 9, 9, 1)).astype(np.float32)
    known = patches.learn(images, kinds=5, cells=2)
    found = []
    for at_once in (1, 7, 2000):
        monkeypatch.setattr(patches, "_AT_ONCE", at_once)
        found.append(patches.features(known, images))
    assert all(np.array_equal(found[0], other) for other in found[1:])
