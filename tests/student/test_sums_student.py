"""The student of sums is their classifier, in JAX and in NumPy, whatever space it looks through."""

import json

import jax
import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import calibration_curve

from pate_jax import models
from pate_jax.aggregate import Answers
from pate_jax.crowd import classifier
from pate_jax.crowd.vectors import scaling as scaling_of
from pate_jax.crowd.vectors import vectors
from pate_jax.data import Preprocessing
from pate_jax.data.dataset import AS_STORED
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import patches, photos, spaces
from pate_jax.models.spaces import fronts
from pate_jax.models.spaces.space import over
from pate_jax.runs.release import check
from pate_jax.runs.settings import RunConfig
from pate_jax.student import Auto, Linear, PublicInputs, Student, calibration, fit, sums
from pate_jax.student.released import predict
from pate_jax.sweep.students import check_methods

RANDOM = np.random.default_rng(5)
SCALED = Preprocessing((3.0,), (2.0,))
TABLE = (RANDOM.standard_t(3, size=(300, 5)) * [9, 1, 3, 0.5, 2] + 3).astype(np.float32)
IMAGES = RANDOM.integers(0, 256, (120, 9, 8, 1)).astype(np.uint8)
PHOTOS = RANDOM.integers(0, 256, (120, 17, 16, 3)).astype(np.uint8)


def net_of_contrast():
    net = models.build("cnn", input_shape=(9, 8, 1), classes=64)
    weights = jax.tree.map(np.asarray, net.init(jax.random.key(1)))
    return fronts.Net("contrast", json.dumps(net.description), weights, SCALED)


def few_patches():
    known = patches.learn(SCALED.apply(IMAGES), kinds=5, size=3, cells=2)
    return fronts.Patches(known, SCALED)


def few_photos():
    return fronts.Photos(photos.learn(SCALED.apply(PHOTOS), kinds=7, size=5, cells=2), SCALED)


SPACES = {
    "identity": lambda: (TABLE, spaces.learn("identity", TABLE, SCALED)),
    "columns": lambda: (TABLE, spaces.learn("columns", TABLE, SCALED)),
    "products": lambda: (TABLE[:, :4], spaces.learn("columns", TABLE[:, :4], SCALED)),
    "pixels": lambda: (IMAGES, spaces.learn("identity", IMAGES, SCALED, directions=9)),
    "patches": lambda: (IMAGES, over(few_patches(), IMAGES, 12)),
    "photos": lambda: (PHOTOS, over(few_photos(), PHOTOS, 12)),
    "contrast": lambda: (IMAGES, over(net_of_contrast(), IMAGES, 12)),
}


def fitted(pool, space, classes, constant=0.25):
    """The classifier of noisy sums of made-up voters, and its scaling."""
    seen = space.coordinates(pool)
    scaling = scaling_of(space, seen, length=300, power=0.5, full=0.9, constant=constant)
    seen = vectors(scaling, seen)
    rows = 1 if classes == 2 else classes
    release = ClassSums(classes, seen.shape[1], 300, 900.0)
    noisy = np.rint(RANDOM.normal(size=(rows, seen.shape[1])) * 2000 * seen.std(0) + 30).astype(np.int64)
    return scaling, classifier.fit(noisy, release, seen, 5000)


def near(found, wanted):
    """All but a few inputs, of which rounding has moved a whole number, are equal to three digits."""
    apart = np.abs(found - wanted).max(1)
    return (apart < 1e-4).mean() >= 0.95 and apart.max() < 0.02


@pytest.mark.long
@pytest.mark.parametrize("name", SPACES)
def test_the_student_is_the_classifier(name, tmp_path):
    pool, space = SPACES[name]()
    classes = 2 if name in ("identity", "patches") else 3
    scaling, model = fitted(pool, space, classes, constant=0.0 if name == "pixels" else 0.25)
    public = PublicInputs(pool, SCALED, classes, tuple("abc"[:classes]))
    student = sums.of_sums(public, space, scaling, model)
    others = (pool[:50] * (1.5 if pool.ndim == 2 else 1)).astype(pool.dtype)
    wanted = model.judged(vectors(scaling, space.coordinates(others)))
    if classes == 2:
        told, share = (
            model.linear(vectors(scaling, space.coordinates(inputs)))[:, 1] for inputs in (pool, others)
        )
        told = told.mean() + np.sqrt(model.spread.wider) * (told - told.mean())  # as new inputs vary
        scale = sums._scale(told)  # which makes them such as labels can have
        told, share = (0.5 + (shares - 0.5) / scale for shares in (told, share))
        offset, slope = calibration.logistic(told, model.spread.covariance[1, 1] / scale**2)
        wanted = np.stack([expit(-offset - slope * share), expit(offset + slope * share)], 1)
    assert np.ptp(wanted, 0).max() > 0.05, "a classifier that says one thing tests nothing"
    assert near(student(others), wanted)
    student.save(tmp_path)
    assert list(check._arrays(tmp_path)) == []
    np.testing.assert_array_equal(Student.load(tmp_path)(others), student(others))
    assert near(predict.load(tmp_path)(others), wanted)


def test_no_student_holds_an_encoder_of_the_owner():
    pool = TABLE[:, :3]
    space = spaces.learn("encoder", pool)
    scaling, model = fitted(pool, space, 3)
    with pytest.raises(PateError, match="no student can hold the space 'encoder'"):
        sums.of_sums(PublicInputs(pool, SCALED, 3, tuple("abc")), space, scaling, model)


@pytest.mark.parametrize("given", [{}, {"voters": "neighbours"}])
def test_linear_is_refused_before_anything_where_there_are_no_sums(given):
    with pytest.raises(PateError, match=r"method='linear' is the classifier .* --voters sums"):
        RunConfig(student=Linear(), **given)
    RunConfig(student=Linear(), voters="sums")
    RunConfig(student=Auto(), **given)


def test_linear_is_refused_where_students_learn_from_answers():
    public = PublicInputs(TABLE, SCALED, 2, ("no", "yes"))
    with pytest.raises(PateError, match="method='linear'"):
        fit(jax.random.key(0), public, Answers(np.zeros(9, int), np.ones(9, bool)), Linear())
    with pytest.raises(PateError, match="student 'linear' is unknown"):
        check_methods(("linear",))


def test_shares_of_another_scale_are_drawn_in_until_labels_may_have_them():
    """Users with more records than public ones have longer tables, so fitted shares are too far from 1/2."""
    random = np.random.default_rng(3)
    true = 1 / (1 + np.exp(-(random.normal(size=20_000) - 2.2)))  # of a label that one in eight has
    best = true.mean() + (true - true.mean())  # the best guess is the share itself
    assert sums._scale(best) == 1
    for weight in (1.4, 2.0, 3.0):
        found = sums._logistic(0.5 + weight * (best - 0.5))
        logits = found.offset[1] + found.turn[1, 1] * (0.5 + weight * (best - 0.5))
        said = 1 / (1 + np.exp(-logits))
        missed = -(true * np.log(said) + (1 - true) * np.log(1 - said)).mean()
        least = -(true * np.log(true) + (1 - true) * np.log(1 - true)).mean()
        assert missed < least + 0.08, weight


@pytest.mark.parametrize(("strength", "rare"), [(1.0, 0.0), (3.0, 0.0), (2.0, -1.5)])
def test_probabilities_of_sums_are_as_sure_as_labels_are(strength, rare):
    """Labels are drawn from known probabilities; the student sees noisy sums and public inputs alone."""
    random, weights = np.random.default_rng(12), np.random.default_rng(4).normal(size=40) / np.sqrt(40)
    pool, voters, fresh = (random.normal(size=(rows, 40)).astype(np.float32) for rows in (1200, 9000, 9000))
    labels, wanted = (
        random.random(9000) < expit(strength * rows @ weights + rare) for rows in (voters, fresh)
    )
    space = spaces.learn("identity", pool)
    scaling = scaling_of(space, space.coordinates(pool), length=1000, power=0.5, constant=0.2)
    seen, asked = (vectors(scaling, space.coordinates(rows)) for rows in (pool, voters))
    release = ClassSums(2, seen.shape[1], 1000, 20_000.0)
    exact = ((2 * labels - 1) @ asked)[None]
    noisy = np.rint(exact + random.normal(size=exact.shape) * release.sigma).astype(np.int64)
    model = classifier.fit(noisy, release, seen, 9000)
    student = sums.of_sums(PublicInputs(pool, AS_STORED, 2, ("no", "yes")), space, scaling, model)
    said = student(fresh)[:, 1].astype(float)
    happens, told = calibration_curve(wanted, said, n_bins=10, strategy="quantile")
    assert np.abs(happens - told).mean() < 0.03 and np.ptp(told) > 0.25
