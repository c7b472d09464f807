"""Killed at any moment and run again, an ensemble ends bit for bit as if nothing had happened."""

import json
import signal
import stat
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import forked
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import ensemble
from pate_jax.ensemble import checkpoint
from pate_jax.errors import PateError
from pate_jax.system import storage

SETTINGS = {"epochs": 6, "min_steps": 1, "checkpoint_seconds": 0.0, "devices": 2}


class Crash(BaseException):
    """What no code of ours may survive."""


def fit(directory, width=2, labels=None, key=3, net=None, counts=tiny.COUNTS, **changes):
    inputs, usual = tiny.table()
    labels, cut = usual if labels is None else labels, tiny.shards(counts)
    config = tiny.config(**{**SETTINGS, **changes}, width=width)
    net, key = net or tiny.table_net(), jax.random.key(key)
    return ensemble.fit(net, tiny.Same(), inputs, labels, cut, key=key, config=config, directory=directory)


@pytest.fixture(scope="module")
def undisturbed():
    return tiny.leaves(fit(None).params)


@pytest.mark.long
def test_a_finished_ensemble_is_loaded_and_not_trained_again(tmp_path, undisturbed, monkeypatch):
    assert np.array_equal(tiny.leaves(fit(tmp_path).params), undisturbed)
    monkeypatch.setattr("pate_jax.ensemble.waves.train", None)
    again = fit(tmp_path)
    assert np.array_equal(tiny.leaves(again.params), undisturbed)
    assert again.report["private"]["own_accuracy"]["max"] > 0.4


def crash_after(monkeypatch, calls, *, written):
    """Raise in the given call of the one function through which every stage is recorded."""
    write, count = storage.write_bytes, iter(range(10**6))

    def failing(path, content, **settings):
        here = next(count)
        if here == calls and not written:
            raise Crash
        write(path, content, **settings)
        if here == calls:
            raise Crash

    monkeypatch.setattr(storage, "write_bytes", failing)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    "calls", [0, 2, 9, *(pytest.param(each, marks=pytest.mark.long) for each in (1, 5, 8, 14))]
)
def test_a_crash_at_any_record_loses_no_bit(tmp_path, undisturbed, monkeypatch, calls, written):
    with monkeypatch.context() as patched:
        crash_after(patched, calls, written=written)
        with pytest.raises(Crash):
            fit(tmp_path)
    assert np.array_equal(tiny.leaves(fit(tmp_path).params), undisturbed)
    left = {path.name for path in tmp_path.glob("wave-*") if path.is_dir()}
    named = {json.loads(path.read_text())["folder"] for path in tmp_path.glob("wave-*.json")}
    assert left == named, "a crash left folders behind"


def test_a_run_goes_on_from_its_last_checkpoint_not_from_the_start(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        crash_after(patched, 9, written=True)
        with pytest.raises(Crash):
            fit(tmp_path)
    before = checkpoint.Store(tmp_path, 0)
    assert before.finished(0) or before._stage(0)["turn"] > 1
    epochs = []
    advance = "pate_jax.system.progress.Bar.advance"
    monkeypatch.setattr(advance, lambda bar, steps, note="", found=False: epochs.append(note))
    fit(tmp_path)
    assert len([note for note in epochs if note]) < 3 * 6


@pytest.mark.long
def test_teachers_that_train_alone_resume_too(tmp_path, monkeypatch):
    expected = tiny.leaves(fit(None, width=1).params)
    with monkeypatch.context() as patched:
        crash_after(patched, 11, written=True)
        with pytest.raises(Crash):
            fit(tmp_path, width=1)
    assert np.array_equal(tiny.leaves(fit(tmp_path, width=1).params), expected)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"epochs": 7}, "config.epochs=7"),
        ({"learning_rate": 0.2}, "config.learning_rate=0.2"),
        ({"key": 4}, "key="),
        ({"labels": np.zeros(80, np.int32)}, "data.labels="),
        ({"counts": (*tiny.COUNTS[:-1], 3)}, "data.shards="),
        (
            {"net": tiny.table_net()._replace(description={"about": "another", "input_shape": [5]})},
            "net.about=",
        ),
        ({"width": 3}, "width=3"),
    ],
)
def test_another_config_or_data_set_is_refused_and_the_field_is_named(tmp_path, begun, changes, field):
    with pytest.raises(PateError, match=field):
        fit(begun, **changes)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    folder = tmp_path_factory.mktemp("begun")
    fit(folder)
    return folder


def test_the_stored_width_is_obeyed(begun):
    assert fit(begun, width=None).report["plan"]["width"] == 2


def test_no_file_holds_a_pickle(begun):
    for path in begun.rglob("*"):
        if path.is_file():
            assert not path.read_bytes().startswith(b"\x80"), path
            assert path.suffix not in (".pkl", ".pickle")


def test_teachers_can_be_read_by_their_owner_only(begun):
    arrays = list(begun.glob("wave-*/arrays.npz"))
    assert arrays and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in arrays)


class Layer(NamedTuple):
    kernel: jax.Array
    bias: jax.Array


def net_of_layers():
    """Parameters as a list of named tuples, one of them of a type that NumPy does not know."""
    plain = tiny.table_net()

    def init(key):
        params = plain.init(key)
        bias = params["hidden"]["bias"].astype(jnp.bfloat16)
        return [Layer(params["hidden"]["kernel"], bias), (params["logits"]["kernel"],)]

    def apply(params, inputs):
        hidden, (logits,) = params
        return plain.apply({"hidden": hidden._asdict(), "logits": {"kernel": logits}}, inputs)

    return plain._replace(init=init, apply=apply)


@pytest.mark.long
def test_parameters_in_any_containers_come_back_from_disk(tmp_path, monkeypatch):
    net = net_of_layers()
    trained = fit(None, net=net).params
    with monkeypatch.context() as patched:
        crash_after(patched, 9, written=True)
        with pytest.raises(Crash):
            fit(tmp_path, net=net)
    fit(tmp_path, net=net)
    monkeypatch.setattr("pate_jax.ensemble.waves.train", None)
    stored = fit(tmp_path, net=net).params
    assert jax.tree.structure(stored) == jax.tree.structure(trained)
    assert [leaf.dtype for leaf in jax.tree.leaves(stored)] == ["float32", "bfloat16", "float32"]
    assert np.array_equal(tiny.leaves(stored), tiny.leaves(trained))


def kill_at(folder, checkpoints, patience):
    """Train in a process of its own, killed `patience` seconds after it kept so many checkpoints."""
    process = forked.function("test_resume:fit_long", str(folder))
    while process.is_alive() and len(list(Path(folder).glob("wave-*.json"))) < checkpoints:
        time.sleep(0.01)
    process.join(patience)
    process.kill()
    return forked.ended([process])[0]


def fit_long(folder):
    """The teachers of a process that is killed."""
    warnings.simplefilter("error")
    fit(folder, epochs=60)


@pytest.mark.long
@pytest.mark.parametrize("moment", range(4))
def test_kill_nine_at_a_random_moment(tmp_path, moment):
    expected = tiny.leaves(fit(None, epochs=60).params)
    patience = float(np.random.default_rng(moment).uniform(0, 0.4)) + (1.0 if moment == 0 else 0.0)
    assert kill_at(tmp_path, moment, patience) in (-signal.SIGKILL, 0)
    assert np.array_equal(tiny.leaves(fit(tmp_path, epochs=60).params), expected)
