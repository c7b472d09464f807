"""A space is a function of public inputs, and a record's coordinates of that record and the space alone."""

import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import models
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import integers, linear, patches, photos, spaces
from pate_jax.models.flax_nets import AsStored
from pate_jax.models.spaces import fronts
from pate_jax.models.spaces.space import BLOCK, arrays_of, over, space_of
from pate_jax.student.released import predict

RANDOM = np.random.default_rng(3)
POOL = RANDOM.normal(size=(300, 7)) * [9, 5, 3, 2, 1, 1, 0.1] + 4
IMAGES = RANDOM.integers(0, 256, (40, 9, 9, 1)).astype(np.uint8)
PHOTOS = RANDOM.integers(0, 256, (40, 16, 17, 3)).astype(np.uint8)
AS_PIXELS = Preprocessing((0.0,), (255.0,))
shortened = jax.jit(integers.shortened, static_argnums=1)


@pytest.fixture(autouse=True, scope="module")
def small_blocks():
    """Ten images on a device at a time: forty fill several devices, and a hundred and twenty many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "_AT_ONCE", 10)
        yield


def first_three(one):
    """An encoder of a user's own."""
    return one.ravel()[:3] * 2.0


@functools.cache
def image_space():
    """Few kinds, from few patches: what is tested here holds for any typical ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "_SAMPLE", 5000)
        patch.setattr(patches, "learn", functools.partial(patches.learn, kinds=12, cells=3))
        return spaces.learn("patches", IMAGES, AS_PIXELS, directions=11)


@functools.cache
def photo_space():
    """The same of photos, which are told from other images by their colours and sides."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photos, "_SAMPLE", 3000)
        patch.setattr(photos, "learn", functools.partial(photos.learn, kinds=9, cells=2))
        return spaces.learn("patches", PHOTOS, AS_PIXELS, directions=11)


def net_space(name="cnn", inputs=IMAGES, **sizes):
    """The last hidden layer of an untrained net."""
    net = models.build(name, input_shape=inputs.shape[1:], classes=3, **sizes)
    front = fronts.Net("student", json.dumps(net.description), tiny.weights(net), AS_PIXELS)
    return over(front, inputs, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: (spaces.learn("identity", POOL), POOL),
        lambda: (spaces.learn("columns", POOL, AS_PIXELS), POOL),
        lambda: (spaces.learn("columns", POOL[:, 3:]), POOL[:, 3:]),
        lambda: (image_space(), IMAGES),
        lambda: (photo_space(), PHOTOS),
        lambda: (net_space(maps=(4, 5), hidden=(7,)), IMAGES),
        lambda: (net_space("table", POOL), POOL),
        lambda: (linear.lifted(spaces.learn("identity", POOL), POOL, directions=30), POOL),
    ],
    ids=["identity", "columns", "products", "patches", "photos", "cnn", "table", "likeness"],
)
def test_coordinates_do_not_depend_on_the_batch_or_the_place_in_it(make):
    space, inputs = make()
    whole_batch = space.coordinates(inputs)
    turned = space.coordinates(inputs[::-1])[::-1]
    alone = np.concatenate([space.coordinates(inputs[row : row + 1]) for row in range(0, len(inputs), 13)])
    several = 3 if inputs.ndim == 4 else BLOCK // len(inputs) + 2  # beyond a block of either front
    many = space.coordinates(np.concatenate([inputs] * several))[-len(inputs) :]
    assert np.array_equal(whole_batch, turned)
    assert np.array_equal(whole_batch[::13], alone)
    assert np.array_equal(whole_batch, many)


def test_directions_are_those_of_the_public_pool_most_varied_first():
    space = spaces.learn("identity", POOL, directions=3)
    values, axes = np.linalg.eigh(np.cov(POOL.T))
    assert np.all(np.diff(space.variances) < 0)
    for place in range(3):
        cosine = axes[:, -1 - place] @ space.directions[:, place] / np.linalg.norm(space.directions[:, place])
        assert abs(cosine) > 0.999
    shares = space.variances / space.variances[0]
    assert np.allclose(shares, values[::-1][:3] / values[-1], rtol=0.05)  # far rows are drawn in
    assert np.allclose(space.coordinates(POOL).mean(0), 0, atol=0.02 * np.sqrt(space.variances[0]))


def test_a_net_shows_the_same_bits_on_every_device():
    front = net_space(maps=(4, 5), hidden=(7,)).front
    with jax.default_device(jax.devices()[-1]):
        elsewhere = front(IMAGES)
    assert np.array_equal(front(IMAGES), elsewhere)


@pytest.mark.parametrize(
    ("name", "sizes", "head"),
    [
        ("mlp", {}, ("dense2",)),
        ("cnn", {"maps": (4, 5), "hidden": (7,)}, ("head", "dense1")),
        ("resnet", {"maps": (8, 16)}, ("head",)),
    ],
)
@pytest.mark.long
def test_a_net_shows_what_its_last_layer_reads(name, sizes, head):
    front = net_space(name, **sizes).front
    layer = front.parameters
    for key in head:
        layer = layer[key]
    logits = models.build(**json.loads(front.description)).apply(front.parameters, AS_PIXELS.apply(IMAGES))
    np.testing.assert_allclose(front(IMAGES) @ layer["kernel"] + layer["bias"], logits, atol=1e-4)


@pytest.mark.long
def test_a_net_taught_by_contrast_shows_the_direction_of_its_output():
    front = net_space("mlp").front
    logits = models.build(**json.loads(front.description)).apply(front.parameters, AS_PIXELS.apply(IMAGES))
    wanted = logits / np.linalg.norm(logits, axis=1, keepdims=True)
    np.testing.assert_allclose(front._replace(kind="contrast")(IMAGES), wanted, atol=1e-5)


@pytest.mark.long
def test_a_tandem_shows_what_its_small_net_has_learned():
    sizes = {"kinds": 5, "size": 3, "cells": 2, "examples": 4, "maps": (4, 5), "hidden": (7,)}
    front = net_space("tandem", **sizes).front
    small = net_space("cnn", maps=(4, 5), hidden=(7,)).front._replace(parameters=front.parameters["cnn"])
    assert np.array_equal(front(IMAGES), small(IMAGES))


def test_a_description_tells_spaces_apart_and_says_what_they_are():
    same, other = spaces.learn("identity", POOL), spaces.learn("identity", POOL * 1.01)
    assert same.description() == spaces.learn("identity", POOL).description()
    assert same.description()[:3] == ("identity", 7, len(same.variances))
    cut = np.zeros_like(same.directions), same.steps * 2, same.middle + 1, same.variances * 2
    changed = [
        same._replace(**{name: value})
        for name, value in zip(("directions", "steps", "middle", "variances"), cut, strict=True)
    ]
    net = net_space("table", POOL)
    moved = jax.tree.map(lambda leaf: leaf + 1, net.front.parameters)
    changed += [other, same.narrowed(2), net, net._replace(front=net.front._replace(parameters=moved))]
    digests = {each.description().digest for each in (same, *changed)}
    assert len(digests) == 1 + len(changed)
    assert (net.description().kind, net.description().features) == ("student", 32)


@pytest.mark.parametrize(
    ("make", "inputs", "scaling"),
    [
        (lambda: spaces.learn("identity", POOL), POOL, AsStored()),
        (lambda: spaces.learn("encoder", POOL), POOL, AsStored()),
        (lambda: spaces.learn("encoder", IMAGES, encoder=f"{__name__}:first_three"), IMAGES, AsStored()),
        (lambda: spaces.learn("columns", POOL, AS_PIXELS), POOL, AS_PIXELS),
        (lambda: spaces.learn("columns", POOL[:, 3:]), POOL[:, 3:], AsStored()),
        (lambda: net_space("table", POOL).narrowed(2), POOL, AS_PIXELS),
        (image_space, IMAGES, AS_PIXELS),
        (photo_space, PHOTOS, AS_PIXELS),
    ],
)
@pytest.mark.long
def test_a_space_is_known_again_from_its_arrays(make, inputs, scaling):
    space = make()
    again = space_of(arrays_of(space), scaling)
    assert again.description() == space.description()
    assert np.array_equal(again.coordinates(inputs[:9]), space.coordinates(inputs[:9]))


def test_arrays_that_hold_no_space_are_one_sentence():
    good = arrays_of(spaces.learn("identity", POOL))
    for missing in ("middle", "front/kind"):
        with pytest.raises(PateError, match="hold no space"):
            space_of({name: good[name] for name in good if name != missing}, AsStored())
    with pytest.raises(PateError, match="has no name"):
        arrays_of(spaces.learn("identity", POOL)._replace(front=fronts.Encoder(np.ravel)))


def test_many_features_find_the_same_directions_by_iteration():
    wide = RANDOM.normal(size=(200, 700)) * np.concatenate([[160, 80, 40], np.ones(697)])
    space = spaces.learn("identity", wide, directions=3)
    length = np.linalg.norm(space.directions, axis=0)
    assert np.all(np.abs(np.diag(space.directions[:3])) / length > 0.97)


def test_whole_products_are_exact_and_lengths_are_never_exceeded():
    rows = shortened(jax.jit(integers.rounded)(jnp.float32(RANDOM.normal(size=(50, 300)) * 3000)), 4000)
    columns = integers.directions(RANDOM.normal(size=(300, 9)), 4000)
    there = np.asarray(rows).astype(np.int64)
    assert (there**2).sum(1).max() <= 4000**2 and (columns.astype(np.int64) ** 2).sum(0).max() <= 4000**2
    assert np.array_equal(jax.jit(integers.product)(rows, columns), there @ columns.astype(np.int64))


@pytest.mark.parametrize("columns", [1, 17, 4900])
@pytest.mark.parametrize("length", [8, 8000])
def test_no_row_is_longer_than_allowed_counted_in_python(columns, length):
    """Also the longest there can be, those at the border, and zero."""
    most = integers.largest(columns)
    rows = RANDOM.integers(-most, most + 1, (40, columns))
    rows[0], rows[1], rows[2, 1:] = most, 0, 0
    rows[3] = length // math.isqrt(columns)
    short = np.asarray(shortened(rows.astype(np.int32), length)).tolist()
    before = [sum(x * x for x in row) for row in rows.tolist()]
    after = [sum(x * x for x in row) for row in short]
    assert max(after) <= length**2
    for row, kept, long, square in zip(rows.tolist(), short, before, after, strict=True):
        assert (
            kept == row
            if long <= length**2
            else square >= (0.9 * length - math.sqrt(columns) - 3) ** 2 * (length > 2 * math.sqrt(columns))
        )


@pytest.mark.parametrize("length", [3, 400, 8000, 40_000])
def test_a_row_is_shortened_by_whole_numbers_that_no_device_rounds_otherwise(length):
    """By Python's own whole numbers; a released student shortens in the same way."""
    random = np.random.default_rng(7)
    rows = random.integers(-8192, 8193, (60, 30)) // random.integers(1, 40, (60, 1))
    found = np.asarray(shortened(rows.astype(np.int32), length))
    for row, kept in zip(rows.tolist(), found.tolist(), strict=True):
        square = sum(x * x for x in row)
        if square > length**2:
            root = math.isqrt(square - 1) + 1
            assert kept == [abs(x) * length // root * (1 if x > 0 else -1) for x in row]
    assert np.array_equal(predict._whole(rows.astype(np.float32), length), found)


@pytest.mark.parametrize("least", [1, 2**24 - 5000, 2**31 - 10_000])
def test_roots_are_pythons(least):
    squares = np.arange(least, least + 9_999)
    wanted = [math.isqrt(square - 1) + 1 for square in squares.tolist()]
    assert np.asarray(jax.jit(integers.root_above)(squares.astype(np.int32))).tolist() == wanted


def test_columns_draw_in_what_no_public_number_comes_near_and_keep_rare_marks():
    table = np.concatenate([POOL[:, :2], (np.arange(300) == 7)[:, None]], 1).astype(np.float32)
    front = fronts.columns_of(table, Preprocessing((4.0, 4, 0), (9.0, 5, 1)))
    seen = front(np.array([[1e30, 4, 1], [4, -1e30, 0]], np.float32))
    assert np.abs(seen[:, :2]).max() < 5 and seen[:, 2].tolist() == [1, 0]


def test_an_encoder_sees_one_record_at_a_time():
    sizes = []

    def watched(one):
        sizes.append(one.shape)
        return first_three(one)

    front = fronts.Encoder(watched)
    assert front(IMAGES).shape == (40, 3) and set(sizes) == {(9, 9, 1)}
    space = spaces.learn("encoder", IMAGES, directions=2, encoder=f"{__name__}:first_three")
    assert space.coordinates(IMAGES).shape == (40, 2)


@pytest.mark.long
def test_directions_in_which_the_pool_does_not_vary_are_left_out():
    """Nothing public tells how far private records lie along them."""
    doubled = np.concatenate([POOL[:, :3], POOL[:, :3], np.ones((300, 2))], 1)
    assert len(spaces.learn("identity", doubled).variances) == 3


def test_a_narrowed_space_has_the_same_first_coordinates():
    space = spaces.learn("identity", POOL)
    assert np.array_equal(space.narrowed(2).coordinates(POOL), space.coordinates(POOL)[:, :2])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: spaces.learn("pixels", POOL), "space='pixels' must be one of"),
        (lambda: spaces.learn("contrast", IMAGES), "has to be trained"),
        (
            lambda: net_space("table", POOL).coordinates(POOL[:, :3]),
            r"\[3\] do not fit a net that takes \[7\]",
        ),
        (lambda: spaces.learn("identity", POOL, directions=0), "directions=0"),
        (lambda: spaces.learn("identity", POOL[:1]), r"public inputs \(1\) two"),
        (lambda: spaces.learn("identity", np.ones((5, 2))), "no direction tells them apart"),
        (lambda: spaces.learn("patches", POOL), "choose another net"),
        (lambda: spaces.learn("encoder", POOL, encoder="numpy"), "must be module:function"),
        (lambda: spaces.learn("encoder", POOL, encoder="numpy:nothing"), "cannot be loaded"),
        (lambda: spaces.learn("encoder", IMAGES, encoder="numpy:asarray"), "must make one vector"),
        (lambda: spaces.learn("identity", POOL).coordinates(POOL[:, :3]), "do not fit a space of 7"),
        (
            lambda: spaces.learn("identity", POOL).coordinates(POOL * np.nan),
            "300 of the 300 records read together",
        ),
    ],
)
def test_bad_input_is_one_sentence(wrong, message):
    with pytest.raises(PateError, match=message):
        wrong()


def test_likeness_falls_with_the_squared_distance_as_a_gaussian_does():
    first = spaces.learn("identity", POOL)
    front = linear.front(first, POOL)
    places = first.coordinates(POOL).astype(np.float64)
    rows = np.random.default_rng(0).permutation(len(POOL))
    gaps = ((places[:, None] - places[rows][None]) ** 2).sum(2)
    wanted = np.exp(-gaps / (linear.WIDTH * np.median(gaps[gaps > 0])))
    ordinary = np.linalg.norm(places, axis=1) < 2 * np.sqrt(first.variances.sum())  # far rows are drawn in
    found = front(POOL)[np.ix_(ordinary, ordinary[rows])]
    np.testing.assert_allclose(found, wanted[np.ix_(ordinary, ordinary[rows])], atol=0.02)
    assert np.allclose(front(POOL)[rows, np.arange(len(rows))], 1.0)


def test_inputs_that_are_all_alike_have_no_likeness():
    first = spaces.learn("identity", POOL)
    with pytest.raises(PateError, match="all public inputs are the same vector"):
        linear.front(first, np.repeat(POOL[:1], 9, 0))
