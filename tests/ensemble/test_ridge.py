"""Linear teachers: scikit-learn's ridge regression is the oracle, and no bit depends on another's records."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny
from sklearn.linear_model import Ridge

from pate_jax import ensemble, models
from pate_jax.ensemble import checkpoint, ridge, training
from pate_jax.ensemble import feeding as cutting
from pate_jax.ensemble import plan as plans
from pate_jax.errors import PateError
from pate_jax.models import spaces

PRIMAL, DUAL = 5, 60  # features: fewer and more than the places of a usual shard
DEVICES, WIDTH = (
    (1, 4),
    2,
)  # four devices go through the eleven teachers in two rounds, the last with empty places
SHARES = {PRIMAL: "as many equations as entries", DUAL: "as many equations as records"}


def net(features):
    pool = np.random.default_rng(8).normal(size=(300, features)).astype(np.float32)
    space = spaces.learn("identity", pool, directions=features)
    return models.on_space(space, input_shape=(features,), classes=tiny.CLASSES)


NETS = {features: net(features) for features in SHARES}


def fit(features=DUAL, table=None, cut=None, key=3, directory=None, **changes):
    inputs, labels = table or tiny.table(records=160, features=features)
    config = ensemble.TeacherConfig(net="linear", **{"devices": DEVICES[-1], "width": WIDTH, **changes})
    return ensemble.fit(
        NETS[features], tiny.Same(), inputs, labels, cut or tiny.shards(),
        key=jax.random.key(key), config=config, directory=directory,
    )  # fmt: skip


@pytest.fixture(params=["one by one", "in a vmap"])
def form(request, monkeypatch):
    """How a device computes its teachers: as the table has it for CPUs, and for everything else."""
    if request.param == "in a vmap":
        row = {**plans.row("linear", "cpu"), "one_by_one": False}
        monkeypatch.setattr(plans, "table", lambda: {key: {"other": row} for key in ("cpu", "other")})


def kernels(teachers):
    return teachers.params["kernel"]


def grown(longest):
    """The shards, with records 80 and on added to the longest one."""
    cut, counts = tiny.shards(), np.array(tiny.COUNTS, np.int32)
    rows = np.zeros((len(counts), longest), np.int32)
    rows[:, : cut.rows.shape[1]] = cut.rows
    rows[3, 12:], counts[3] = 80 + np.arange(longest - 12), longest
    return tiny.Shards(rows, counts)


@pytest.mark.parametrize("features", SHARES)
@pytest.mark.parametrize("longest", [12, 70])
@pytest.mark.usefixtures("form")
def test_each_teacher_is_the_ridge_regression_of_its_own_shard(features, longest):
    inputs, labels = tiny.table(records=160, features=features)
    cut = grown(longest)
    found = kernels(fit(features, cut=cut))
    entries, wanted = NETS[features].front(inputs), np.eye(tiny.CLASSES)[labels] - 1 / tiny.CLASSES
    for teacher, count in enumerate(cut.counts):
        rows = cut.rows[teacher, :count]
        if count:
            oracle = Ridge(alpha=0.1, fit_intercept=False).fit(entries[rows].astype(np.float64), wanted[rows])
            assert np.allclose(found[teacher], oracle.coef_.T, atol=1e-5)


@pytest.mark.long
def test_the_penalty_may_be_named():
    weak, strong = (kernels(fit(weight_decay=penalty)) for penalty in (0.01, 100.0))
    assert (strong[3] ** 2).sum() < 0.01 * (weak[3] ** 2).sum()


@pytest.mark.parametrize("features", SHARES)
@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.usefixtures("form")
def test_a_changed_record_moves_its_own_teacher_only(features, devices):
    inputs, labels = tiny.table(records=160, features=features)
    before = kernels(fit(features, devices=devices))
    inputs, labels = inputs.copy(), labels.copy()
    row = tiny.shards().rows[5, 2]
    inputs[row] *= -3
    labels[row] = (labels[row] + 1) % tiny.CLASSES
    after = kernels(fit(features, (inputs, labels), devices=devices))
    assert np.array_equal(np.delete(before, 5, 0), np.delete(after, 5, 0))
    assert not np.array_equal(before[5], after[5])


@pytest.mark.parametrize("features", SHARES)
@pytest.mark.parametrize("longest", [13, 20, 33, 70])
@pytest.mark.usefixtures("form")
def test_the_longest_shard_may_grow_and_nobody_else_notices(features, longest):
    """Within the places that the number of records gives it, to more of them, and twice beyond them."""
    before, after = (kernels(fit(features, cut=cut)) for cut in (tiny.shards(), grown(longest)))
    assert np.array_equal(np.delete(before, 3, 0), np.delete(after, 3, 0))
    assert not np.array_equal(before[3], after[3])


@pytest.mark.parametrize("features", SHARES)
@pytest.mark.usefixtures("form")
def test_a_teachers_bits_are_the_same_on_any_number_of_devices_and_without_the_others(features):
    whole = [kernels(fit(features, cut=grown(40), devices=devices)) for devices in DEVICES]
    assert np.array_equal(*whole)
    for teacher in (0, 3, 10):
        cut = grown(40)
        alone = np.where(np.arange(len(cut.counts)) == teacher, cut.counts, 0)
        again = kernels(fit(features, cut=tiny.Shards(cut.rows, alone)))
        assert np.array_equal(again[teacher], whole[0][teacher])


def test_the_place_of_a_teacher_and_the_number_of_places_move_no_bit():
    inputs, labels = tiny.table(records=160, features=DUAL)
    order = np.array([10, 3, 8, 0, 5, 1, 9, 4, 2, 7, 6])  # of the shards, so that teachers change places
    cut = grown(40)
    before, moved = (
        kernels(fit(DUAL, (inputs, labels), shards, devices=devices, width=width))
        for shards, devices, width in ((cut, 4, 2), (tiny.Shards(cut.rows[order], cut.counts[order]), 1, 7))
    )
    filled = cut.counts[order] > 0
    assert np.array_equal(before[order][filled], moved[filled])


@pytest.mark.parametrize("teachers, records", [(5000, 60_000), (250, 60_000), (50, 60_000), (3, 5)])
def test_few_programs_are_compiled_and_few_places_are_empty(teachers, records):
    made = plans.Plan(4, 1, "lax", "float32", 32, records, plans.public_length(records, teachers, 8))
    assert ridge.sizes(made, teachers) == [made.length]
    sizes = ridge.sizes(dataclasses.replace(made, one_by_one=True), teachers)
    assert len(sizes) <= 3 and sizes == sorted(set(sizes)) and sizes[-1] == made.length
    counts = np.random.default_rng(0).poisson(records / teachers, 10_000)
    given = ridge.places(counts, sizes)
    assert (given >= counts).all()
    assert given.mean() < 1.15 * records / teachers + 16


def test_a_shard_without_records_always_answers_one_class_that_its_key_chooses():
    empty = tiny.shards([0] * 11)
    teachers, asked = fit(PRIMAL, cut=empty), tiny.table(features=PRIMAL)[0]
    labels = ensemble.predict(NETS[PRIMAL], tiny.Same(), teachers, asked)
    assert (labels == labels[:, :1]).all()
    assert set(labels[:, 0]) == set(range(tiny.CLASSES))
    assert np.array_equal(kernels(fit(PRIMAL, cut=tiny.shards()))[2], kernels(teachers)[2])


def test_linear_teachers_learn_and_their_votes_are_counted():
    teachers = fit(PRIMAL, cut=tiny.shards([14] * 11))
    asked, truth = tiny.table(records=500, seed=4)
    found = ensemble.predict(NETS[PRIMAL], tiny.Same(), teachers, asked, devices=2)
    votes = ensemble.vote(NETS[PRIMAL], tiny.Same(), teachers, asked, devices=2)
    assert np.array_equal(votes, (found[:, :, None] == np.arange(tiny.CLASSES)).sum(axis=0))
    assert (votes.argmax(1) == truth).mean() > 0.85
    assert teachers.report["private"]["failed"] == []
    assert teachers.report["private"]["own_accuracy"]["min"] > 0.6


class Crash(Exception):
    """The power went."""


@pytest.mark.parametrize("finished", [0, 1])
def test_finished_waves_are_loaded_and_a_resumed_run_ends_bit_for_bit(tmp_path, monkeypatch, finished):
    monkeypatch.setattr(plans, "ROUNDS", 1)
    undisturbed, finish = kernels(fit(devices=1)), checkpoint.Store.finish
    waves = []

    def failing(store, index, wave):
        waves.append(index)
        if index == finished:
            raise Crash
        finish(store, index, wave)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint.Store, "finish", failing)
        with pytest.raises(Crash):
            fit(devices=1, directory=tmp_path)
    monkeypatch.setattr(checkpoint.Store, "finish", lambda *given: (waves.append(given[1]), finish(*given)))
    assert np.array_equal(kernels(fit(devices=1, directory=tmp_path)), undisturbed)
    assert waves == [*range(finished + 1), *range(finished, 6)]
    again = checkpoint.finished_teachers(tmp_path)
    assert np.array_equal(kernels(again), undisturbed)


def test_no_program_holds_a_collective_and_few_teachers_change_no_shape():
    inputs, labels = tiny.table(records=160, features=DUAL)
    config = ensemble.TeacherConfig(net="linear", devices=8).resolved()
    data = cutting.records(NETS[DUAL].front(inputs), labels, tiny.shards(), jax.random.key(3), config)
    places = jax.local_devices()
    plan = training._plan(NETS[DUAL], tiny.Same(), data, config, places, None)
    assert plan.width == 128
    machine = training._machine(NETS[DUAL], tiny.Same(), config, plan, places)
    text = training.compiled(machine, data._replace(length=plan.length)).as_text()
    assert "num_partitions=8" in text or "replica_count=8" in text
    assert tiny.collectives(text) == []
    assert "lapack" not in text


@pytest.mark.parametrize("name", ["epochs", "batch_size"])
def test_settings_of_steps_are_refused(name):
    with pytest.raises(PateError, match=f"{name}=7 is for nets that learn step by step"):
        ensemble.TeacherConfig(net="linear", **{name: 7})


def test_linear_teachers_and_models_go_together():
    (inputs, labels), key = tiny.table(), jax.random.key(0)
    for model, config in ((tiny.table_net(), {"net": "linear"}), (NETS[PRIMAL], {"net": "table"})):
        with pytest.raises(PateError, match=r"linear teachers need a model that models\.on_space makes"):
            chosen = ensemble.TeacherConfig(**config)
            ensemble.fit(model, tiny.Same(), inputs, labels, tiny.shards(), key=key, config=chosen)


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 57, 130])
@pytest.mark.long
def test_systems_are_solved(rows):
    random = np.random.default_rng(rows)
    tall = random.normal(size=(rows, rows + 3)) * random.uniform(0.1, 3, rows + 3)
    matrix, right = tall @ tall.T + 0.2 * np.eye(rows), random.normal(size=(rows, 4))
    found = ridge.solve(jnp.float32(matrix), jnp.float32(right))
    wanted = np.linalg.solve(matrix, right)
    assert np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.long
def test_both_normal_equations_give_the_same_matrix():
    random = np.random.default_rng(0)
    inputs, targets = (random.normal(size=(20, columns)).astype(np.float32) for columns in (21, 2))
    padded = np.concatenate([inputs, np.zeros((10, 21), np.float32)])
    primal = ridge.ridge(jnp.asarray(padded), jnp.asarray(np.pad(targets, ((0, 10), (0, 0)))), 0.5)
    dual = ridge.ridge(jnp.asarray(inputs), jnp.asarray(targets), 0.5)
    for one, other in zip(dual, (primal[0], primal[1][:20]), strict=True):
        assert np.allclose(one, other, atol=1e-5)
    assert np.allclose(inputs @ dual[0], dual[1], atol=1e-5)
