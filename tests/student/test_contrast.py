"""What is learned from public images alone: the loss by its definition, and kinds that pixels mix up."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax.data.dataset import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student import selection, spaces
from pate_jax.student.methods import losses

pytestmark = pytest.mark.long
SCALE = Preprocessing((0.0,), (255.0,))
QUICK = dataclasses.replace(spaces._SETTINGS, steps=120)


def marks(count=400, seed=0):
    """Rings, crosses and bars of 12 x 12 pixels at any place, and which each is."""
    random = np.random.default_rng(seed)
    shapes = np.zeros((3, 6, 6), np.uint8)
    shapes[0, [0, 5], :] = shapes[0, :, [0, 5]] = 255
    shapes[1, 2:4, :] = shapes[1, :, 2:4] = 255
    shapes[2, 2:4, :] = 255
    which = random.integers(3, size=count)
    images = np.zeros((count, 12, 12, 1), np.uint8)
    for image, kind, (top, left) in zip(images, which, random.integers(0, 7, (count, 2)), strict=True):
        image[top : top + 6, left : left + 6, 0] = shapes[kind]
    return images, which


def test_the_loss_is_that_of_its_definition():
    random = np.random.default_rng(0)
    views = random.normal(size=(6, 4))
    views /= np.linalg.norm(views, axis=1, keepdims=True)
    lost, found = losses.contrast(jnp.asarray(views, jnp.float32), 0.5)
    for one in range(6):
        partner, others = (one + 3) % 6, [other for other in range(6) if other != one]
        near = {other: np.exp(views[one] @ views[other] / 0.5) for other in others}
        assert lost[one] == pytest.approx(-np.log(near[partner] / sum(near.values())), rel=1e-5)
        assert bool(found[one]) == (near[partner] == max(near.values()))


@pytest.mark.long
def test_kinds_that_pixels_mix_up_come_apart():
    images, which = marks()
    space = spaces.contrast_space(images, SCALE, key=jax.random.key(0), config=QUICK)
    learned = space.coordinates(images).astype(np.float64)
    assert space.description().kind == "contrast"
    middles = np.stack([learned[which == kind].mean(0) for kind in range(3)])
    nearest = ((learned[:, None] - middles) ** 2).sum(-1).argmin(1)
    assert (nearest == which).mean() > 0.95
    pixels = images.reshape(len(images), -1) / 255.0
    middles = np.stack([pixels[which == kind].mean(0) for kind in range(3)])
    assert (((pixels[:, None] - middles) ** 2).sum(-1).argmin(1) == which).mean() < 0.9


@pytest.mark.long
def test_the_list_is_the_same_for_a_key_and_asks_once_each(monkeypatch):
    monkeypatch.setattr(spaces, "_SETTINGS", dataclasses.replace(spaces._SETTINGS, steps=3))
    images, _ = marks(60)
    chosen = selection.select("learned", images, 9, key=b"one", preprocessing=SCALE)
    again = selection.select("learned", images, 9, key=b"one", preprocessing=SCALE)
    assert np.array_equal(chosen, again) and len(set(chosen.tolist())) == 9
    assert not np.array_equal(chosen, selection.select("learned", images, 9, key=b"two", preprocessing=SCALE))


def test_columns_are_no_images():
    with pytest.raises(PateError, match=r"shape \(5,\); choose kmeans"):
        selection.select("learned", np.zeros((20, 5), np.float32), 3, key=b"one")
