"""Membership inference on DP-SGD, and on a twin of it without noise, by shadow trainings of a linear head."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from pate_jax import models
from pate_jax.audit.attacks import membership, shadows
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.shadows import Seen
from pate_jax.baselines.dpsgd import calibration, gradients, training

PEOPLE, REFERENCE, FEATURES, CLASSES = 100, 40, 60, 3
EPSILON, DELTA, RATE, STEPS, CLIP = 1.0, 1e-5, 0.5, 15, 1.0


def head(key):
    return {"kernel": jnp.zeros((FEATURES, CLASSES))}


NET = models.Model(head, lambda params, x: x @ params["kernel"], {"name": "own", "classes": CLASSES})


class Training:
    """DP-SGD on whoever takes part: the package's own sums of clipped gradients and its own noise."""

    records = PEOPLE

    def __init__(self, noisy):
        random, self.noisy = np.random.default_rng(0), noisy
        self.labels = random.integers(0, CLASSES, PEOPLE + REFERENCE)
        places = random.normal(size=(len(self.labels), FEATURES)) + np.eye(CLASSES, FEATURES)[self.labels]
        self.places = (places / 8).astype(np.float32)
        self.start, self.unflatten = ravel_pytree(head(None))
        self.sums = gradients.sums(NET, lambda found: found, CLIP, len(self.start))
        self.multiplier = calibration._least(EPSILON, DELTA, RATE, STEPS, calibration.ADD_OR_REMOVE)

    def __call__(self, member, *, key):
        there, params = np.flatnonzero(member), np.asarray(self.start, np.float64)
        data = jnp.asarray(self.places), jnp.asarray(self.labels, jnp.int32)
        random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
        for step in range(STEPS):
            rows = there[random.random(len(there)) < RATE]
            now = self.unflatten(jnp.asarray(params, jnp.float32))
            total = training._total(self.sums, now, *data, rows, 64)
            drawn = self.noisy(total, CLIP, self.multiplier, jax.random.fold_in(key, step))
            params -= 4.0 * drawn / (RATE * PEOPLE / 2)
        scores = self.places @ params.reshape(FEATURES, CLASSES)
        said = np.exp(scores - scores.max(1, keepdims=True))
        right = (said / said.sum(1, keepdims=True))[np.arange(len(said)), self.labels]
        return Seen(right[:PEOPLE], right[PEOPLE:])


def without(total, clip, multiplier, key):
    """The exact sum."""
    return total * (clip / gradients.FINEST)


@cache
def found(noisy):
    """The figures of all attacks, at the epsilon that the honest training promises."""
    seen = shadows.played(Training(noisy), 64, seed=2)
    return {one.attack: one for one in membership.attacked(seen, Promise(EPSILON, DELTA))}


@pytest.mark.long
@pytest.mark.parametrize("attack", ["loss", "lira", "lira, offline", "rmia"])
def test_dpsgd_keeps_its_promise_and_without_noise_every_attack_shows_that_it_does_not(attack):
    honest, broken = found(gradients.noisy)[attack], found(without)[attack]
    assert honest.holds, honest.sentence()
    assert not broken.holds and broken.auc > honest.auc + 0.1
