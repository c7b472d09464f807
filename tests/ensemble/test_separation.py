"""No teacher's numbers depend on another's records: bit for bit, and in the compiled program's text."""

import functools
import re

import commands
import jax
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import ensemble
from pate_jax.data import Preprocessing
from pate_jax.ensemble import feeding as cutting
from pate_jax.ensemble import plan as plans
from pate_jax.ensemble import programs, training
from pate_jax.errors import PateError

PLACES = [(1, 1), (1, 11), (2, 1), (2, 6), (4, 1), (8, 1), (8, 2)]  # devices, teachers per vmap
MORE = [
    pytest.param(d, w, marks=pytest.mark.long)
    for d in (1, 2, 8)
    for w in (2, 3, 4, 5)
    if (d, w) not in PLACES
]
MOVING = {"augment": "shift_flip"}


def fit(inputs, labels, cut, *, net=None, scaling=None, **changes):
    name = "table" if net is None else "cnn"
    model = net or tiny.table_net()
    return ensemble.fit(
        model,
        scaling or tiny.Same(),
        inputs,
        labels,
        cut,
        key=jax.random.key(3),
        config=tiny.config(name, **changes),
    )


def others(params, teacher):
    return np.delete(tiny.leaves(params), teacher, axis=0)


@functools.cache
def of_120_records(devices, width):
    return fit(*tiny.table(records=120), tiny.shards(), devices=devices, width=width)


@pytest.mark.parametrize(("devices", "width"), [*PLACES, *MORE])
def test_a_changed_shard_moves_its_own_teacher_only(devices, width):
    (inputs, labels), cut = tiny.table(records=120), tiny.shards()
    before = of_120_records(devices, width)
    changed, relabelled = inputs.copy(), labels.copy()
    rows = cut.rows[5, : cut.counts[5]]
    changed[rows] *= -3
    relabelled[rows] = (labels[rows] + 1) % 3
    after = fit(changed, relabelled, cut, devices=devices, width=width)
    assert np.array_equal(others(before.params, 5), others(after.params, 5))
    assert not np.array_equal(tiny.leaves(before.params, 5), tiny.leaves(after.params, 5))


@pytest.mark.long
@pytest.mark.parametrize(("devices", "width"), [(2, 1), (2, 6)])
def test_a_changed_shard_moves_its_own_convolutional_teacher_only(devices, width):
    (inputs, labels), cut, net = tiny.images(), tiny.shards(), tiny.image_net()
    before = fit(inputs, labels, cut, net=net, devices=devices, width=width, **MOVING)
    changed = inputs.copy()
    changed[cut.rows[3, : cut.counts[3]]] = 7
    after = fit(changed, labels, cut, net=net, devices=devices, width=width, **MOVING)
    assert np.array_equal(others(before.params, 3), others(after.params, 3))
    assert not np.array_equal(tiny.leaves(before.params, 3), tiny.leaves(after.params, 3))


def grown(longest):
    """The shards with records 80 and on added to the longest one, which has 12."""
    cut = tiny.shards()
    rows = np.zeros((len(cut.counts), longest), np.int32)
    rows[:, : cut.rows.shape[1]] = cut.rows
    rows[3, 12:longest] = 80 + np.arange(longest - 12)
    counts = cut.counts.copy()
    counts[3] = longest
    return tiny.Shards(rows, counts)


@pytest.mark.parametrize("longest", [13, 45])
@pytest.mark.parametrize(("devices", "width"), [(2, 1), (2, 6)])
def test_the_longest_shard_may_grow_and_nobody_else_notices(longest, devices, width):
    """Within the 40 places that the number of records gives every shard, and beyond them."""
    before = of_120_records(devices, width)
    after = fit(*tiny.table(records=120), grown(longest), devices=devices, width=width)
    assert np.array_equal(others(before.params, 3), others(after.params, 3))
    assert not np.array_equal(tiny.leaves(before.params, 3), tiny.leaves(after.params, 3))


@pytest.mark.long
@pytest.mark.parametrize("width", [1, 6])
def test_augmented_images_do_not_notice_a_longer_shard_either(width):
    (inputs, labels), cut, net = tiny.images(), tiny.shards(), tiny.image_net()
    counts = cut.counts.copy()
    counts[3] = 13
    rows = np.zeros((len(counts), 13), np.int32)
    rows[:, :12] = cut.rows
    rows[3, 12] = 70
    before, after = (
        fit(inputs, labels, shards, net=net, devices=2, width=width, **MOVING)
        for shards in (cut, tiny.Shards(rows, counts))
    )
    assert np.array_equal(others(before.params, 3), others(after.params, 3))


WIDE = {"width": 6, "steps_per_call": 0, "convolution": "patches", "dtype": "float32", "wide": True}
CASES = [
    ("table", 6, 13),
    ("table", None, 13),
    pytest.param("table", None, 45, marks=pytest.mark.long),
    *(pytest.param("cnn", *more, marks=pytest.mark.long) for more in ((6, 13), (None, 13), (None, 45))),
]


def a_machine_of(monkeypatch, size):
    for name in ("free_bytes", "device_bytes"):
        monkeypatch.setattr(plans, name, lambda devices: size, raising=False)


@pytest.mark.parametrize(("name", "width", "longest"), CASES)
def test_short_memory_does_not_let_the_longest_shard_choose_the_width(name, width, longest, monkeypatch):
    """What programs of both tables need is measured first; then there is as much memory as lies between."""
    (inputs, labels) = tiny.table(records=120) if name == "table" else tiny.images(records=120)
    monkeypatch.setattr(plans, "table", lambda: {key: {"other": WIDE} for key in ("cpu", "other")})
    measure, needs = training._needed, []
    monkeypatch.setattr(training, "_needed", lambda *of: needs.append(measure(*of)) or needs[-1])

    def both():
        net = None if name == "table" else tiny.image_net()
        cuts = (tiny.shards(), grown(longest))
        return [fit(inputs, labels, cut, net=net, devices=2, width=width) for cut in cuts]

    a_machine_of(monkeypatch, 1 << 40)
    both()
    between = 1 + int((needs[0] + needs[-1]) / 2 / plans.MEMORY_SHARE)
    for size in [between] if width else [between, between // 2]:
        a_machine_of(monkeypatch, size)
        before, after = both()
        assert before.report["plan"] == after.report["plan"]
        assert before.report["plan"]["width"] == 6 or size < between
        assert np.array_equal(others(before.params, 3), others(after.params, 3))


def test_what_does_not_fit_is_refused_and_not_cut(monkeypatch, capsys):
    a_machine_of(monkeypatch, 2000)
    commands.call("run", "--help-all")
    flags = capsys.readouterr().out
    for width, remedy in ((6, "a --width below 6"), (1, "a smaller --batch-size or fewer --devices")):
        words = f"{width} teachers in a program need .* and 2e-06 GB are free: .* another run with {remedy}"
        with pytest.raises(PateError, match=words):
            fit(*tiny.table(records=120), tiny.shards(), devices=2, width=width)
        assert all(flag in flags for flag in re.findall(r"--[a-z-]+", remedy))


@pytest.mark.parametrize(("records", "named", "known"), [(81, None, 90), (90, None, 90), (91, 81, 81)])
def test_the_number_of_records_is_known_to_plans_coarsely_or_as_it_is_named(records, named, known):
    machine, _ = lowered(tiny.table_net(), "table", records, devices=2, public_records=named)
    assert (machine.plan.public_records, machine.plan.length) == (known, 32)


def lowered(net, name, records=120, **changes):
    (inputs, labels) = tiny.table(records=records) if name == "table" else tiny.images()
    config = tiny.config(name, **changes).of_net(net.description.get("name")).resolved()
    data = cutting.records(inputs, labels, tiny.shards(), jax.random.key(3), config)
    chosen = jax.local_devices()[: config.devices]
    plan = training._plan(net, tiny.Same(), data, config, chosen, None)
    machine = training._machine(net, tiny.Same(), config, plan, chosen)
    return machine, data._replace(length=training._length(data, plan, config))  # as `fit` compiles it


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("name", ["table", pytest.param("cnn", marks=pytest.mark.long)])
def test_the_compiled_training_programs_hold_no_collective(name, width):
    net = tiny.table_net() if name == "table" else tiny.image_net()
    machine, data = lowered(net, name, devices=8, width=width)
    text = training.compiled(machine, data).as_text()
    assert re.search(r"\b(dot|convolution|fusion|custom-call)", text), "this is no training program"
    assert "num_partitions=8" in text or "replica_count=8" in text
    assert tiny.collectives(text) == []


def test_a_collective_would_be_found():
    summing = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")
    assert tiny.collectives(summing.lower(np.zeros((8, 3), np.float32)).compile().as_text()) == ["all-reduce"]


def test_every_program_of_a_round_holds_no_collective():
    machine, data = lowered(tiny.table_net(), "table", devices=4, width=2)
    config = machine.config
    group = np.append(np.arange(8, 11), [-1] * 5)
    resident = programs.place(cutting.take(data, group, config), machine.devices, 2)
    attempts = np.zeros((4, 2), np.int32)
    state = machine.programs.start(resident, attempts)
    which = np.ones((4, 2), bool)
    for program, arguments in [
        (machine.programs.start, (resident, attempts)),
        (machine.programs.turn, (state, resident)),
        (machine.programs.choose, (which, state, state)),
    ]:
        assert tiny.collectives(program.compiled(*arguments).as_text()) == []


@pytest.mark.long
def test_devices_and_widths_agree_to_rounding_after_a_few_steps():
    (inputs, labels), cut = tiny.table(), tiny.shards()
    found = [tiny.leaves(fit(inputs, labels, cut, devices=d, width=w).params) for d, w in PLACES]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_convolution_forms_agree_to_rounding_after_a_few_steps():
    """Of scaled inputs: others let training diverge, and rounding with it."""
    (inputs, labels), cut = tiny.images(), tiny.shards()
    each = {"net": tiny.image_net(), "scaling": Preprocessing((0.0,), (255.0,)), "devices": 2, **MOVING}
    alone, together = (tiny.leaves(fit(inputs, labels, cut, width=width, **each).params) for width in (1, 6))
    np.testing.assert_allclose(together, alone, rtol=1e-3, atol=1e-4)


@pytest.mark.long
def test_devices_and_widths_agree_on_labels_after_full_training():
    """At most one label in a thousand differs; the teachers themselves differ from each other."""
    (inputs, labels), cut = tiny.table(), tiny.shards()
    asked, _ = tiny.table(records=2000, seed=5)
    found = []
    for devices, width in PLACES[1:]:
        teachers = fit(inputs, labels, cut, devices=devices, width=width, epochs=15, min_steps=30)
        found.append(ensemble.predict(tiny.table_net(), tiny.Same(), teachers, asked))
    assert all((other != found[0]).mean() <= 1e-3 for other in found[1:])
    assert len({row.tobytes() for row in found[0]}) == len(found[0])


@pytest.mark.long
def test_images_get_the_same_labels_alone_and_together():
    """Fully trained CNNs: alone with lax.conv, five or ten in a vmap with patches."""
    (inputs, labels), cut = tiny.images(records=600), tiny.shards([60] * 10)
    asked, _ = tiny.images(records=1000, seed=5)
    net, found = tiny.image_net(), []
    for devices, width in [(2, 1), (2, 5), (1, 10)]:
        teachers = fit(inputs, labels, cut, net=net, devices=devices, width=width, epochs=20, min_steps=200)
        found.append(ensemble.predict(net, tiny.Same(), teachers, asked))
    assert all((other != found[0]).mean() <= 1e-3 for other in found[1:])


def test_records_of_a_file_are_put_behind_a_front_in_a_file_without_a_name(tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "_AT_ONCE", 7)
    numbers = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    numbers.tofile(tmp_path / "records")
    mapped = np.asarray(np.memmap(tmp_path / "records", np.float32, "r", shape=(40, 3)))
    rows, folder = np.array([3, 1, *range(10, 39)]), tmp_path / "teachers"
    found = cutting.behind(lambda inputs: 2 * inputs[:, :2], mapped, rows, folder)
    assert isinstance(found, np.memmap) and np.array_equal(found, 2 * numbers[rows, :2])
    assert [*folder.iterdir()] == []
    there = cutting.behind(lambda inputs: 2 * inputs[:, :2], numbers, rows, folder)
    assert not isinstance(there, np.memmap) and np.array_equal(there, found)
