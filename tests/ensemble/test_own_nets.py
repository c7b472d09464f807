"""Nets, losses, rules and augmentations of a user's own: they learn, keep apart, go on, and are refused."""

import time
from functools import partial
from pathlib import Path

import forked
import jax
import jax.numpy as jnp
import numpy as np
import optax
import own_nets
import pytest
import tiny_teachers as tiny
from flax import linen, nnx

from pate_jax import ensemble, models
from pate_jax.ensemble import feeding, training
from pate_jax.ensemble.teacher import Own
from pate_jax.errors import PateError, PateWarning

NETS = pytest.mark.parametrize("name", own_nets.NETS)
FEW = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if "attention" in name else ()) for name in own_nets.NETS],
)


def fit(net, inputs=None, cut=None, directory=None, own=None, data=None, **changes):
    images, labels = data or tiny.images()
    config = tiny.config("cnn", **{"devices": 8, "width": 1, "augment": "none", **changes})
    return ensemble.fit(
        net,
        tiny.Same(),
        images if inputs is None else inputs,
        labels,
        cut or tiny.shards(),
        key=jax.random.key(3),
        config=config,
        directory=directory,
        **(own or {}),
    )


def others(params, teacher):
    return np.delete(tiny.leaves(params), teacher, axis=0)


def changed(images, shards, teacher):
    inputs = images.copy()
    inputs[shards.rows[teacher, : shards.counts[teacher]]] = 7
    return inputs


@NETS
@pytest.mark.parametrize("width", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_changed_shard_moves_its_own_teacher_only(name, width):
    (images, _), cut, net = tiny.images(), tiny.shards(), own_nets.NETS[name]
    before, after = fit(net, width=width), fit(net, changed(images, cut, 3), width=width)
    assert np.array_equal(others(before.params, 3), others(after.params, 3))
    assert not np.array_equal(tiny.leaves(before.params, 3), tiny.leaves(after.params, 3))
    assert len({row.tobytes() for row in tiny.leaves(before.params)}) == len(cut.counts)


@FEW
def test_a_longer_shard_of_another_teacher_is_not_noticed(name):
    """Padding enters neither statistics nor streams: the longest shard has one record more."""
    cut = tiny.shards()
    rows = np.zeros((len(cut.counts), 13), np.int32)
    rows[:, :12] = cut.rows
    rows[3, 12] = 70
    counts = cut.counts.copy()
    counts[3] = 13
    before, after = (fit(own_nets.NETS[name], cut=shards) for shards in (cut, tiny.Shards(rows, counts)))
    assert np.array_equal(others(before.params, 3), others(after.params, 3))


@NETS
def test_the_compiled_program_holds_no_collective(name):
    (images, labels), cut = tiny.images(), tiny.shards()
    config = tiny.config("cnn", devices=8, width=1, augment="none").resolved()
    model = models.model_of(own_nets.NETS[name], (8, 8, 1))
    data = feeding.records(images, labels, cut, jax.random.key(3), config)
    chosen = jax.local_devices()[:8]
    plan = training._plan(model, tiny.Same(), data, config, chosen, None)
    machine = training._machine(model, tiny.Same(), config, plan, chosen)
    assert tiny.collectives(training.compiled(machine, data).as_text()) == []


@FEW
def test_teachers_learn_and_vote_the_same_every_time(name):
    asked, truth = tiny.images(records=200, seed=5)
    data, cut = tiny.images(records=240), tiny.shards((80, 80, 80))
    teachers = fit(own_nets.NETS[name], data=data, cut=cut, epochs=20, devices=1, learning_rate=0.05)
    labels = ensemble.predict(own_nets.NETS[name], tiny.Same(), teachers, asked)
    assert (labels == truth).mean() > 0.8
    again = ensemble.vote(own_nets.NETS[name], tiny.Same(), teachers, asked)
    assert np.array_equal(again, np.stack([(labels == j).sum(0) for j in range(3)], 1))


def test_statistics_are_those_of_a_teachers_own_records():
    """One step of one batch: the running mean moves a fifth of the way to that of the shard's records."""
    (images, _), cut = tiny.images(), tiny.shards()
    trained = fit(own_nets.NETS["linen_batch_norm"], devices=1, epochs=1, min_steps=1, batch_size=4)
    state = trained.params["state"]["batch_stats"]["BatchNorm_0"]
    model = models.model_of(own_nets.NETS["linen_batch_norm"], (8, 8, 1))
    shard = jax.random.wrap_key_data(feeding.keys_of(jax.random.key(3), 11)[1])
    stream = jax.random.fold_in(jax.random.fold_in(shard, 0), 0)
    first = jax.jit(model.init)(stream)["params"]["Conv_0"]
    seen = linen.Conv(4, (3, 3), strides=2).apply({"params": first}, images[cut.rows[1, :4]] / 255)
    np.testing.assert_allclose(state["mean"][1], 0.2 * seen.mean((0, 1, 2)), rtol=1e-4, atol=1e-5)
    assert np.array_equal(state["mean"][2], np.zeros(4)), "the teacher without records has none"


def test_dropout_draws_anew_at_each_step_and_not_in_use():
    model = models.model_of(own_nets.NETS["nnx_dropout"], (64,))
    variables, inputs = model.init(jax.random.key(0)), jnp.ones((3, 64))
    one, other = (model.learn(variables, inputs, jax.random.key(seed))[0] for seed in (1, 2))
    assert not np.array_equal(one, other)
    assert np.array_equal(one, model.learn(variables, inputs, jax.random.key(1))[0])
    assert np.array_equal(model.apply(variables, inputs), model.apply(variables, inputs))


def fit_table(inputs=None, **own):
    """Teachers of the quick net of tables, twelve records at most, all in one step."""
    data = tiny.table()
    usual = {"devices": 1, "width": 11, "batch_size": 12, "augment": None if "augment" in own else "none"}
    rates = {"epochs": own.pop("epochs", 2), "min_steps": 1, "learning_rate": None if "tx" in own else 0.1}
    return tiny.leaves(fit(tiny.table_net(), data=data, own=own, **usual, **rates).params)


def test_a_chain_of_optax_sees_the_teachers_own_steps():
    """A rate of zero from the third step on: six epochs end where two steps do."""
    falling = optax.sgd(lambda step: jnp.where(step < 2, 0.1, 0.0))
    assert np.array_equal(fit_table(tx=falling, epochs=6), fit_table(tx=optax.sgd(0.1), epochs=2))


def stopping(inputs=None, stop_below=None, epochs=8, width=11):
    """Teachers whose rate is the same at every step, so that how many there were is all that matters."""
    settings = {"width": width, "devices": 1, "batch_size": 12, "min_steps": 1, "epochs": epochs}
    own, more = {"tx": optax.sgd(1.0)}, {"learning_rate": None, "stop_below": stop_below}
    data = tiny.table() if inputs is None else (inputs, tiny.table()[1])
    return fit(tiny.table_net(), data=data, own=own, **settings, **more)


def test_a_teacher_stops_by_its_own_records_and_no_other_notices():
    at_once, one = stopping(stop_below=1e9), stopping(epochs=1)
    assert np.array_equal(tiny.leaves(at_once.params), tiny.leaves(one.params))
    long, early = (tiny.leaves(stopping(stop_below=loss).params) for loss in (None, 0.3))
    same = (long == early).all(axis=1)
    assert 2 < same.sum() < 10, "some go on to the end, among them the one without records"
    cut, inputs = tiny.shards(), tiny.table()[0].copy()
    inputs[cut.rows[5, : cut.counts[5]]] *= -3
    for width in (1, 11):
        before, after = (stopping(some, 0.3, width=width).params for some in (None, inputs))
        assert np.array_equal(others(before, 5), others(after, 5))
        assert not np.array_equal(tiny.leaves(before, 5), tiny.leaves(after, 5))


def test_a_loss_and_an_augmentation_of_ones_own_are_used():
    def none(logits, labels):
        return 0.0 * logits[:, 0]

    plain, still = fit_table(tx=optax.sgd(0.1)), fit_table(tx=optax.sgd(0.1), loss=none)
    moved = fit_table(tx=optax.sgd(0.1), augment=lambda key, row: -row)
    first = fit_table(tx=optax.sgd(0.0))
    assert np.array_equal(still, first)
    assert not np.array_equal(plain, first) and not np.array_equal(plain, moved)


def frozen():
    return own_nets.Dropped(64, 3, rngs=nnx.Rngs(0))


def test_only_the_head_of_a_frozen_net_is_learned_and_stored():
    net = models.model_of(frozen(), (8, 8, 1), trainable="last")
    teachers = fit(net, devices=1)
    assert {*teachers.params["params"]} == {"last/kernel", "last/bias"}
    asked = tiny.images(records=9, seed=5)[0]
    assert ensemble.predict(net, tiny.Same(), teachers, asked).shape == (11, 9)
    several = models.model_of(frozen(), (8, 8, 1), trainable=("last", "first/bias"))
    learned = jax.eval_shape(several.init, jax.random.key(0))["params"]
    assert {*learned} == {"last/kernel", "last/bias", "first/bias"}


class Masked(nnx.Module):
    def __init__(self, *, rngs):
        self.dense = nnx.Linear(64, 3, rngs=rngs)

    def __call__(self, inputs, mask):
        return self.dense(inputs)


class Flat(linen.Module):
    @linen.compact
    def __call__(self, inputs):
        return linen.Dense(3)(inputs.reshape(len(inputs), 7, -1))


class Joined(linen.Module):
    @linen.compact
    def __call__(self, inputs, train: bool):
        seen = linen.BatchNorm(use_running_average=not train, axis_name="devices")(
            inputs.reshape(len(inputs), -1)
        )
        return linen.Dense(3)(seen)


def noisy(logits, labels):
    jax.debug.print("{}", labels)
    return jnp.zeros(len(labels))


SECRET = jnp.ones((64, 64))
ROWS = [jnp.ones(64) * row for row in range(64)]


@jax.custom_batching.custom_vmap
def mean_of_all(gradient):
    return gradient


@mean_of_all.def_vmap
def _(teachers, batched, gradient):
    return jnp.broadcast_to(gradient.mean(0), gradient.shape), True


MEETING = optax.chain(
    optax.stateless(lambda updates, params: jax.tree.map(mean_of_all, updates)), optax.sgd(0.1)
)


@jax.custom_vjp
def watched(logits):
    return logits


def seen_by_host(_, slope):
    kind = jax.ShapeDtypeStruct(slope.shape, slope.dtype)
    return (jax.pure_callback(np.asarray, kind, slope, vmap_method="sequential"),)


watched.defvjp(lambda logits: (logits, None), seen_by_host)


def plain_net(**changed):
    """A net of a user's own without Flax."""
    net = tiny.table_net()
    return fit(net._replace(**changed), data=tiny.table(), devices=1)


def with_sums(params, inputs):
    return tiny.table_net().apply(params, inputs) + SECRET.sum()


def fit_rule(tx):
    return fit(tiny.table_net(), data=tiny.table(), own={"tx": tx}, devices=1, learning_rate=None)


BAD = {
    "other arguments": (lambda: fit(Masked(rngs=nnx.Rngs(0))), "also takes 'mask'"),
    "no arguments": (lambda: fit(partial(own_nets.Dropped, 64)), "cannot be made .*'classes'"),
    "a class": (lambda: fit(own_nets.Dropped), "cannot be made .*give its arguments"),
    "no net": (lambda: fit("cnn"), "net is a str"),
    "shapes": (lambda: fit(Flat()), r"cannot be called with inputs float32\[2, 8, 8, 1\]"),
    "inputs of another size": (lambda: fit(partial(own_nets.Dropped, 5, 3)), "cannot be called"),
    "classes": (lambda: fit(partial(own_nets.Dropped, 64, 2)), "label 2 is beyond the net's classes=2"),
    "a collective": (lambda: fit(Joined()), "axis of devices|cannot be called .*devices"),
    "the host": (lambda: fit(tiny.image_net(), own={"loss": noisy}), "loss calls the host"),
    "a mean": (
        lambda: fit(tiny.image_net(), own={"loss": lambda p, y: jnp.mean(p)}),
        "one number for each record",
    ),
    "held": (
        lambda: fit(tiny.image_net(), own={"loss": lambda p, y: p[:, 0] * SECRET.sum()}),
        r"loss holds an array float32\[64, 64\]",
    ),
    "held in parts": (
        lambda: fit(tiny.image_net(), own={"loss": lambda p, y: p[:, 0] * sum(row.sum() for row in ROWS)}),
        r"loss holds an array float32\[64\] .*1,088 numbers in all",
    ),
    "held by a net without Flax": (lambda: plain_net(apply=with_sums), "the net holds an array"),
    "held from the start by a rule": (
        lambda: fit_rule(optax.GradientTransformation(lambda params: SECRET, optax.identity().update)),
        "tx holds an array",
    ),
    "the host, in a gradient": (
        lambda: fit(tiny.image_net(), own={"loss": lambda p, y: watched(p)[:, 0]}),
        "loss calls the host",
    ),
    "all of a vmap": (lambda: fit_rule(MEETING), "tx says what becomes of it in a vmap"),
    "a front of all records": (
        lambda: plain_net(front=lambda inputs: inputs - inputs.mean(0)),
        "other numbers beside other records",
    ),
    "another shape": (
        lambda: fit(tiny.image_net(), own={"augment": lambda k, x: x[1:]}, augment=None),
        "augment gives",
    ),
    "two rules": (
        lambda: fit(tiny.image_net(), own={"tx": optax.sgd(0.1)}),
        "learning_rate=0.1 says what tx",
    ),
    "frozen": (
        lambda: models.model_of(partial(own_nets.Dropped, 64, 3), (64,), trainable="last"),
        "starts with random",
    ),
    "no such path": (
        lambda: models.model_of(frozen(), (64,), trainable="head"),
        "names no parameter: .*last/kernel",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_trained_is_refused_with_the_reason(case):
    run, words = BAD[case]
    with pytest.raises(PateError, match=words):
        run()


def test_a_program_that_meets_others_is_found_by_its_operations():
    model = tiny.table_net()
    seen = jax.ShapeDtypeStruct((4, 5), np.float32)
    tx = optax.stateless(lambda updates, params: jax.tree.map(lambda u: jax.lax.pmean(u, "i"), updates))
    with pytest.raises(PateError, match="tx names an axis"):
        feeding.check(model, Own(tx=tx), seen, seen, public_constants=False)
    mesh = jax.make_mesh((2,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    summed = jax.shard_map(
        lambda x: jax.lax.psum(x, "i"), mesh=mesh, in_specs=spec, out_specs=jax.sharding.PartitionSpec()
    )
    tx = optax.stateless(lambda updates, params: jax.tree.map(lambda u: u + summed(jnp.ones(2))[0], updates))
    with pytest.raises(PateError, match="tx exchanges numbers between devices"):
        feeding.check(model, Own(tx=tx), seen, seen, public_constants=False)


def test_a_net_that_ignores_its_key_is_told():
    net = models.model_of(own_nets.NETS["nnx_dropout"], (64,))
    same = net._replace(init=lambda key: jax.tree.map(jnp.zeros_like, jax.eval_shape(net.init, key)))
    with pytest.warns(PateWarning, match="same numbers whatever its key"):
        fit(same._replace(apply=lambda v, x: net.apply(v, x.reshape(len(x), -1))), devices=1)


def test_losses_that_are_no_numbers_fail_their_own_teachers():
    def broken(logits, labels):
        return jnp.where(labels == 0, jnp.nan, 1.0) * logits[:, 0]

    (inputs, _), cut = tiny.table(), tiny.shards()
    labels = np.ones(len(inputs), np.int32)
    labels[cut.rows[3, : cut.counts[3]]] = 0
    own = {"loss": broken, "tx": optax.sgd(0.01)}
    found = fit(
        tiny.table_net(),
        own=own,
        learning_rate=None,
        devices=1,
        width=11,
        data=(inputs, labels),
        augment="none",
    )
    assert found.report["private"]["failed"] == [3]
    assert np.isfinite(others(found.params, 3)).all()


def fit_long(folder, name):
    """The teachers of a process that is killed."""
    fit(own_nets.NETS[name], directory=folder, devices=1, epochs=30, checkpoint_seconds=0.0)


@pytest.mark.long
@NETS
def test_a_killed_process_goes_on_bit_for_bit(name, tmp_path):
    process = forked.function("test_own_nets:fit_long", str(tmp_path), name)
    while process.is_alive() and not list(Path(tmp_path).glob("wave-*.json")):
        time.sleep(0.01)
    process.kill()
    forked.ended([process])
    usual = {"devices": 1, "epochs": 30, "checkpoint_seconds": 0.0}
    again, whole = (fit(own_nets.NETS[name], directory=place, **usual) for place in (tmp_path, None))
    assert np.array_equal(tiny.leaves(again.params), tiny.leaves(whole.params))
