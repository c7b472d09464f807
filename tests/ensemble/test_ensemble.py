"""Training and voting: every record counted once, unequal shards, failures, plans and what is refused."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import ensemble
from pate_jax.ensemble import plan, waves
from pate_jax.ensemble import teacher as training
from pate_jax.ensemble import training as fitting
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.system import devices

SAME = tiny.Same()


def fit(inputs=None, labels=None, cut=None, model=None, key=3, **changes):
    usual = tiny.table()
    inputs, labels = usual[0] if inputs is None else inputs, usual[1] if labels is None else labels
    return ensemble.fit(
        model or tiny.table_net(), SAME, inputs, labels, cut or tiny.shards(),
        key=jax.random.key(key), config=tiny.config(**{"devices": 2, "width": 2, **changes}),
    )  # fmt: skip


def counting_net(records):
    """One row of weights per record: what a teacher was fed can be read from its parameters."""
    return Model(
        lambda key: {"seen": jnp.zeros((records, 2))},
        lambda params, inputs: inputs @ params["seen"],
        {"about": "counts records", "input_shape": [records]},
    )


@pytest.mark.filterwarnings("ignore:this net starts with the same numbers")
def test_each_teacher_is_fed_each_of_its_own_records_once_an_epoch_and_no_other():
    """With a rate too small to matter, each showing of a record moves its row by the same small amount."""
    records, cut = 57, tiny.shards()
    found = fit(
        np.eye(records, dtype=np.float32), np.zeros(records, np.int32), cut, counting_net(records),
        batch_size=1, epochs=3, min_steps=1, learning_rate=1e-4, momentum=0.0, weight_decay=0.0, warmup=0.0,
    )  # fmt: skip
    seen = np.asarray(found.params["seen"])[:, :, 0]
    for teacher, count in enumerate(tiny.COUNTS):
        own = np.isin(np.arange(records), cut.rows[teacher, :count])
        assert (seen[teacher, own] > 0).all()
        assert (seen[teacher, ~own] == 0).all()
    # Batches of unequal size weigh their records unequally; the loss of an epoch counts each record once.
    assert found.report["private"]["own_loss"]["mean"] == pytest.approx(np.log(2), rel=1e-3)


def test_an_order_is_a_permutation_that_no_padding_changes():
    key, order = jax.random.key(5), jax.jit(training.order_of, static_argnums=3)
    short, long = (np.asarray(order(key, 2, 9, length)) for length in (9, 300))
    assert sorted(short) == list(range(9))
    assert np.array_equal(short, long[:9])
    other = np.asarray(order(key, 3, 9, 9))
    assert not np.array_equal(short, other)


@pytest.mark.long
def test_orders_are_uniform():
    orders = jax.vmap(lambda epoch: training.order_of(jax.random.key(0), epoch, 4, 6))(jnp.arange(6000))
    first = np.bincount(np.asarray(orders)[:, 0], minlength=4)
    assert ((first - 1500) ** 2 / 1500).sum() < 25
    assert len({tuple(order[:4]) for order in np.asarray(orders)}) == 24


def test_steps_and_epochs_follow_from_a_teachers_own_count():
    config = ensemble.TeacherConfig(net="cnn", batch_size=24, epochs=30, min_steps=200)
    assert training.steps_per_epoch(np.array([0, 1, 24, 25, 240]), config).tolist() == [0, 1, 1, 2, 10]
    assert training.epochs_of(np.array([0, 1, 24, 25, 240]), config).tolist() == [0, 200, 200, 100, 30]


@pytest.mark.long
def test_an_empty_shard_keeps_its_first_net_and_votes():
    teachers = fit()
    first = fit(cut=tiny.shards([0] * len(tiny.COUNTS)))
    assert np.array_equal(tiny.leaves(teachers.params, 2), tiny.leaves(first.params, 2))
    votes = ensemble.vote(tiny.table_net(), SAME, first, tiny.table()[0])
    assert (votes.sum(axis=1) == len(tiny.COUNTS)).all()


@pytest.mark.parametrize("devices", [1, 8])
def test_votes_are_the_counted_labels_and_padding_never_votes(devices):
    """Eleven teachers on eight devices leave five places empty; queries do not fill a batch either."""
    teachers, asked = fit(), tiny.table(records=1203, seed=9)[0]
    labels = ensemble.predict(tiny.table_net(), SAME, teachers, asked, devices=devices)
    votes = ensemble.vote(tiny.table_net(), SAME, teachers, asked, devices=devices)
    assert labels.shape == (11, 1203)
    assert labels.dtype == np.int16
    assert votes.dtype == np.int32
    assert np.array_equal(votes, (labels[:, :, None] == np.arange(tiny.CLASSES)).sum(axis=0))
    logits = jax.vmap(tiny.table_net().apply, in_axes=(0, None))(teachers.params, asked)
    assert np.array_equal(labels, np.argmax(logits, axis=-1))


class Times(NamedTuple):
    """A preprocessing of one's own."""

    by: float

    def apply(self, inputs):
        return inputs * self.by


class Over(NamedTuple):
    """Another one, whose tuple is the same."""

    by: float

    def apply(self, inputs):
        return 1 - inputs / self.by


@dataclasses.dataclass
class Unhashable:
    """One that no program can be kept by."""

    by: float = 2.0

    def apply(self, inputs):
        return inputs * self.by


def test_kept_programs_answer_for_no_other_preprocessing():
    asked = tiny.table(records=9, seed=5)[0]
    teachers = waves.Teachers.of({"w": np.ones((1, 1))})
    net = Model(
        lambda key: {"w": jnp.ones(1)},
        lambda params, inputs: jnp.stack([inputs[:, 0], -inputs[:, 0]], 1) * params["w"],
        {},
    )
    for scale in (Times(2.0), Over(2.0), Unhashable()):
        labels = ensemble.predict(net, scale, teachers, asked)[0]
        assert np.array_equal(labels, scale.apply(asked)[:, 0] < 0), scale


@pytest.mark.long
def test_teachers_learn_and_differ():
    inputs, labels = tiny.table(records=600)
    teachers = fit(inputs, labels, tiny.shards([54] * 11), epochs=40)
    asked, truth = tiny.table(records=500, seed=4)
    found = ensemble.score(ensemble.predict(tiny.table_net(), SAME, teachers, asked), truth, tiny.CLASSES)
    assert found["plurality"] > 0.85
    assert len(np.unique(tiny.leaves(teachers.params), axis=0)) == 11


def fragile_net():
    """Half of all first nets are dead: they answer nothing but zeros, whatever they learn."""

    def init(key):
        one, two = jax.random.split(key)
        return {
            "alive": jax.random.bernoulli(one).astype(jnp.float32),
            "w": jax.random.normal(two, (5, 3)) / 9,
        }

    def apply(params, inputs):
        return jax.lax.stop_gradient(jnp.round(params["alive"])) * (inputs @ params["w"])

    return Model(init, apply, {"about": "fragile", "input_shape": [5]})


@pytest.fixture(scope="module")
def collapsed():
    shared = {"model": fragile_net(), "weight_decay": 0.0, "epochs": 8}
    return fit(attempts=1, **shared), fit(attempts=9, **shared), shared


def test_a_collapsed_teacher_starts_again_from_another_fold_of_its_own_key(collapsed):
    once, again, _ = collapsed
    dead = set(once.report["private"]["failed"])
    assert 0 < len(dead) < 11
    restarted = {int(name) for name in again.report["private"]["restarted"]}
    assert dead <= restarted
    assert len(again.report["private"]["failed"]) < len(dead)
    same = [t for t in range(11) if t not in restarted]
    assert np.array_equal(tiny.leaves(once.params)[same], tiny.leaves(again.params)[same])


def test_restarting_depends_on_the_own_shard_only(collapsed):
    _, again, shared = collapsed
    labels = tiny.table()[1].copy()
    rows = tiny.shards().rows[0, :9]
    labels[rows] = (labels[rows] + 1) % 3
    other = fit(labels=labels, attempts=9, **shared)
    assert np.array_equal(tiny.leaves(again.params)[1:], tiny.leaves(other.params)[1:])


@pytest.mark.long
def test_a_diverged_teacher_is_reported():
    found = fit(learning_rate=1e30, attempts=2).report["private"]
    assert {int(name) for name in found["restarted"]} >= {0, 3, 5}
    assert {0, 3, 5} <= set(found["failed"])
    assert 2 not in found["failed"]


@pytest.mark.long
def test_adam_and_moving_images_train_too():
    inputs, labels = tiny.images()
    config = tiny.config("cnn", optimizer="adam", augment="shift", width=1, devices=1)
    cut = tiny.shards((5, 7, 3))
    teachers = ensemble.fit(tiny.image_net(), SAME, inputs, labels, cut, key=jax.random.key(1), config=config)
    assert np.isfinite(tiny.leaves(teachers.params)).all()


def test_recipes_fill_in_what_is_not_set():
    assert ensemble.TeacherConfig(net="mlp").resolved().augment == "none"
    assert ensemble.TeacherConfig(net="cnn", epochs=7).resolved().epochs == 7


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"learning_rate": 0.0}, "learning_rate=0"),
        ({"optimizer": "lbfgs"}, "optimizer='lbfgs'"),
        ({"augment": "spin"}, "augment='spin'"),
        ({"warmup": 1.0}, "warmup=1"),
        ({"width": 0}, "width=0"),
        ({"devices": 99}, "devices=99"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(PateError, match=message):
        fit(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": np.full(80, 3)}, "label 3"),
        ({"labels": np.full(80, -1)}, "label -1"),
        ({"labels": np.zeros(79, int)}, "79"),
        ({"inputs": np.zeros((80, 5))}, "float64"),
        ({"cut": tiny.Shards(np.array([[0, 1], [1, 2]]), np.array([2, 2]))}, "two shards"),
        ({"cut": tiny.Shards(np.array([[0, 80]]), np.array([2]))}, "80"),
        ({"cut": tiny.Shards(np.array([[0, 1]]), np.array([3]))}, "3"),
    ],
)
def test_records_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(PateError, match=message):
        fit(**changes)


def test_an_untyped_key_is_refused():
    with pytest.raises(PateError, match="typed JAX key"):
        ensemble.fit(
            tiny.table_net(), SAME, *tiny.table(), tiny.shards(),
            key=np.zeros(2, np.uint32), config=tiny.config(),
        )  # fmt: skip


def test_a_key_of_another_generator_seeds_the_streams():
    keys = [jax.random.key(seed, impl="rbg") for seed in (0, 0, 1)]
    found = [
        tiny.leaves(
            ensemble.fit(
                tiny.table_net(),
                SAME,
                *tiny.table(),
                tiny.shards(),
                key=key,
                config=tiny.config(devices=2, width=2),
            ).params
        )
        for key in keys
    ]
    assert np.array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_the_table_has_a_row_for_every_net_and_backend():
    for backend in ("cpu", "gpu", "tpu", "some-new-backend"):
        for net in ("cnn", "mlp", "of-my-own", None):
            made = plan.choose(net, backend, teachers=250, devices=4, width=None)
            assert made.width >= 1
            assert made.wave % (4 * made.width) == 0


def test_waves_follow_from_measured_memory():
    """5,000 teachers of a megabyte on a device of a hundred: the width is halved until it fits."""
    wide = plan.choose("cnn", "gpu", teachers=5000, devices=2, width=None)
    fitted = plan.within_memory(
        dataclasses.replace(wide, memory=100 * 2**20), 2, lambda trial: trial.width * 2**20
    )
    assert 30 <= fitted.width <= 60
    assert fitted.width == wide.width // 16 and fitted.wave == 2 * fitted.width


def test_a_plan_that_fits_is_left_alone():
    made = dataclasses.replace(plan.choose("mlp", "gpu", teachers=250, devices=1, width=None), memory=100)
    assert plan.within_memory(made, 1, lambda trial: 1) == made


def test_free_memory_is_measured():
    assert 2**20 < plan.free_bytes(jax.local_devices()) < 2**50
    assert plan.free_bytes(jax.local_devices()) <= plan.available_bytes()
    assert plan.free_bytes(jax.local_devices()) <= plan.device_bytes(jax.local_devices()) < 2**50


def test_teachers_too_many_for_memory_stay_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("pate_jax.ensemble.training.IN_MEMORY", 0.0)
    kept = ensemble.fit(
        tiny.table_net(), SAME, *tiny.table(), tiny.shards(),
        key=jax.random.key(3), config=tiny.config(devices=2, width=2), directory=tmp_path,
    )  # fmt: skip
    assert all(load.func.__name__ == "params" for _, load in kept.parts)
    assert np.array_equal(tiny.leaves(kept.params), tiny.leaves(fit().params))


def test_rounds_of_a_vmap_keep_places_and_rounds_alone_go_by_size():
    counts = np.array([3, 9, 9, 1, 5])
    alone = plan.Plan(1, 1, "lax", "float32", 64)
    together = plan.Plan(2, 0, "patches", "float32", 4)
    assert [g.tolist() for g in waves.rounds(np.arange(5), counts, alone, 2)] == [[1, 2], [4, 0], [3, -1]]
    assert [g.tolist() for g in waves.rounds(np.arange(5), counts, together, 2)] == [
        [0, 1, 2, 3],
        [4, -1, -1, -1],
    ]


def test_idle_cores_are_told_of_unless_one_device_was_asked_for(capsys, monkeypatch):
    monkeypatch.setattr(devices, "cores", lambda: 4)
    for places, asked in [(1, None), (1, 1), (2, None)]:
        fitting._tell_of_cores(jax.local_devices()[:places], tiny.config(devices=asked))
    assert capsys.readouterr().err.count("trains on one of 4 cores") == 1
