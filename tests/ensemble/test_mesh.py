"""The same teachers over devices, over somebody's mesh, and inside somebody's program: equal in every bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import own_nets
import pytest
import tiny_teachers as tiny
from jax.sharding import AxisType

from pate_jax import aggregate, ensemble
from pate_jax.ensemble import TeacherConfig, feeding, inline, programs, training
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.system import devices as devices_of

LONG = pytest.mark.long
ROADS = [
    pytest.param(8, 1),
    *(pytest.param(*road, marks=pytest.mark.long) for road in ((1, 1), (2, 1), (2, 6), (8, 2))),
]


def mesh_of(*shape, names=("teachers", "model"), kind=AxisType.Auto):
    count = int(np.prod(shape))
    kinds = (kind,) * len(shape)
    return jax.make_mesh(shape, names[: len(shape)], axis_types=kinds, devices=jax.devices()[:count])


@functools.cache
def fit(width, devices=None, mesh=None, axis=None):
    return ensemble.fit(
        tiny.table_net(),
        tiny.Same(),
        *tiny.table(),
        tiny.shards(),
        key=jax.random.key(3),
        config=tiny.config(devices=devices, width=width),
        mesh=mesh,
        axis=axis,
    )


@pytest.mark.parametrize(("devices", "width"), ROADS)
def test_a_mesh_changes_no_bit(devices, width):
    here, there = fit(width, devices), fit(width, mesh=mesh_of(devices))
    assert np.array_equal(tiny.leaves(here.params), tiny.leaves(there.params))
    asked = tiny.table(records=50, seed=5)[0]
    given = [
        ensemble.vote(tiny.table_net(), tiny.Same(), here, asked, **where)
        for where in ({"devices": devices}, {"mesh": mesh_of(devices)})
    ]
    assert np.array_equal(*given) and given[0].sum() == 50 * 11


@pytest.mark.parametrize("kind", [pytest.param(AxisType.Auto, marks=LONG), AxisType.Explicit])
def test_the_other_axes_of_a_mesh_are_left_alone(kind):
    of_two = fit(1, mesh=mesh_of(2, 4, kind=kind), axis="teachers")
    assert np.array_equal(tiny.leaves(of_two.params), tiny.leaves(fit(1, 2).params))


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in own_nets.NETS])
def test_a_mesh_changes_no_bit_of_nets_of_ones_own(name):
    images, labels = tiny.images()
    settings = {"key": jax.random.key(3), "config": tiny.config("cnn", width=1, augment="none")}
    here, there = (
        ensemble.fit(own_nets.NETS[name], tiny.Same(), images, labels, tiny.shards(), **settings, mesh=mesh)
        for mesh in (None, mesh_of(8))
    )
    assert np.array_equal(tiny.leaves(here.params), tiny.leaves(there.params))


@pytest.mark.long
def test_the_program_on_a_mesh_holds_no_collective():
    config = tiny.config(width=1).resolved()
    chosen = programs.places(None, mesh_of(8), None)
    data = feeding.records(*tiny.table(), tiny.shards(), jax.random.key(3), config)
    plan = training._plan(tiny.table_net(), tiny.Same(), data, config, chosen, None)
    machine = training._machine(tiny.table_net(), tiny.Same(), config, plan, chosen)
    assert tiny.collectives(training.compiled(machine, data).as_text()) == []


BAD = {
    "no such axis": (lambda: fit(1, mesh=mesh_of(2), axis="data"), "axis='data' is no axis of the mesh"),
    "which axis": (lambda: fit(1, mesh=mesh_of(2, 2)), "say which divides teachers"),
    "an axis alone": (lambda: fit(1, axis="teachers"), "axis='teachers' is of a mesh"),
    "devices too": (lambda: fit(1, 2, mesh=mesh_of(2)), "devices=2 and a mesh were both given"),
    "odd numbers": (lambda: inside(mesh_of(2))[0](feed()), "11 teachers cannot be divided over 2 devices"),
    "linear": (
        lambda: inline.functions(tiny.table_net(), tiny.Same(), feed(), TeacherConfig(net="linear")),
        "net='linear' is solved by ensemble.fit alone",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_refused(case):
    run, words = BAD[case]
    with pytest.raises(PateError, match=words):
        run()


compiled = functools.partial(jax.jit, compiler_options=devices_of.compiling("cpu"))  # as `fit` compiles
CONFIG = tiny.config(attempts=2, epochs=3)


@functools.cache
def feed(counts=tiny.COUNTS):
    return inline.shards_of(*tiny.table(), tiny.shards(counts), key=jax.random.key(3), config=CONFIG)


def inside(mesh=None, width=1, shards=None):
    return inline.functions(tiny.table_net(), tiny.Same(), shards or feed(), CONFIG, mesh=mesh, width=width)


@functools.cache
def fitted(counts=tiny.COUNTS):
    settings = {"key": jax.random.key(3), "config": TeacherConfig(**{**vars(CONFIG), "width": 1})}
    return ensemble.fit(tiny.table_net(), tiny.Same(), *tiny.table(), tiny.shards(counts), **settings)


def test_teachers_inside_a_callers_jit_are_those_of_fit():
    """Those that fail and start anew among them."""
    train, votes = inside()
    asked = tiny.table(records=50, seed=5)[0]

    @compiled
    def all_of_it(shards, asked, key):
        params, news = train(shards)
        counted = votes(params, asked)
        return params, news, counted, aggregate.answer(DiscreteGaussianMax(1.0), counted, key=key).labels

    params, news, counted, labels = all_of_it(feed(), asked, jax.random.key(8))
    assert np.array_equal(tiny.leaves(params), tiny.leaves(fitted().params))
    said = fitted().report["private"]
    assert (
        {str(one): int(news.attempt[one]) for one in np.flatnonzero(news.attempt)} == said["restarted"] != {}
    )
    assert np.array_equal(counted, ensemble.vote(tiny.table_net(), tiny.Same(), fitted(), asked))
    assert labels.shape == (50,) and (np.asarray(labels) == counted.argmax(1)).mean() > 0.6


@pytest.mark.parametrize(
    ("devices", "kind"), [pytest.param(2, AxisType.Auto, marks=LONG), (8, AxisType.Explicit)]
)
def test_a_callers_mesh_divides_them_without_a_bit_changed(devices, kind):
    counts = (*tiny.COUNTS, 2, 3, 1, 4, 2)
    shards, asked = feed(counts), tiny.table(records=9, seed=5)[0]
    train, votes = inside(mesh_of(devices, kind=kind), shards=shards)
    params, _ = compiled(train)(shards)
    assert len(jax.tree.leaves(params)[0].sharding.device_set) == devices
    assert np.array_equal(tiny.leaves(params), tiny.leaves(fitted(counts).params))
    assert np.array_equal(compiled(votes)(params, asked), votes(fitted(counts).params, asked))
    assert tiny.collectives(compiled(train).lower(shards).compile().as_text()) == []


@pytest.mark.long
def test_a_changed_shard_moves_its_own_teacher_only_inside_a_program():
    train, _ = inside(width=4)
    shards = feed()
    inputs = shards.inputs.copy()
    inputs[3] *= -2
    before, after = (compiled(train)(one)[0] for one in (shards, shards._replace(inputs=inputs)))
    changed = (tiny.leaves(before) != tiny.leaves(after)).any(1)
    assert changed.tolist() == [teacher == 3 for teacher in range(11)]


def test_votes_may_stand_inside_a_loop():
    params, votes = fitted().params, inside().votes
    asked = jnp.asarray(tiny.table(records=20, seed=5)[0])
    _, parts = jax.jit(
        lambda: jax.lax.scan(lambda _, part: (None, votes(params, part)), None, asked[:, None])
    )()
    assert np.array_equal(parts[:, 0], votes(params, asked))
