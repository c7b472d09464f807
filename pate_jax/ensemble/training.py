"""`fit`: private records and shards in, trained teachers out; a run that was interrupted goes on."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array

from pate_jax.data.dataset import AS_STORED
from pate_jax.ensemble import feeding as cutting
from pate_jax.ensemble import plan as plans
from pate_jax.ensemble import programs, ridge, waves
from pate_jax.ensemble import teacher as single_teacher
from pate_jax.ensemble.checkpoint import Store, share_of
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.programs import Places
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import LossOf, News, Own, Shard
from pate_jax.ensemble.waves import Machine, Teachers
from pate_jax.errors import PateError
from pate_jax.models import Model, Net, in_form
from pate_jax.models.augment import Augmentation
from pate_jax.models.flax_nets import Preprocessing
from pate_jax.system import devices as machines
from pate_jax.system import progress, storage

ELSEWHERE = (
    "devices",
    "checkpoint_seconds",
    "width",
    "public_records",
    "net_args",
)  # where and when teachers are computed, or stored in the plan or with the net
NOT_COMPILED = (
    *ELSEWHERE,
    "activation",
    "epochs",
    "min_steps",
    "attempts",
)  # no compiled program depends on them
IN_MEMORY = 0.25  # parameters above this share of the free memory stay on disk


def fit(
    net: Net,
    preprocessing: Preprocessing,
    inputs: np.ndarray,
    labels: np.ndarray,
    shards: Any,
    *,
    key: Array,
    config: TeacherConfig | None = None,
    directory: Path | str | None = None,
    tx: optax.GradientTransformation | None = None,
    loss: LossOf | None = None,
    augment: Augmentation | None = None,
    public_constants: bool = False,
    mesh: Mesh | None = None,
    axis: str | None = None,
) -> Teachers:
    """Train one teacher per shard: `shards.rows[t, :shards.counts[t]]` are teacher t's rows of the records.

    A teacher's result follows from `fold_in(key, t)`, its own shard and the config. The teacher of an empty
    shard keeps the net that its key starts it with, and votes like any other. With a `directory`, training
    goes on from there after an interruption, bit for bit as if there had been none, and finished teachers are
    loaded. Of several processes (`jax.distributed`) each trains and keeps its own teachers.

    `net` is a `Model`, or a module of Flax as `models.model_of` takes it. `tx` (any chain of optax, with its
    learning rate), `loss` ((logits, labels) -> the loss of each record) and `augment` ((key, one input) ->
    one input) replace the config's names; what would join teachers is refused (`reading`). Where own code
    holds arrays by itself, `public_constants` says that no private record went into them. A `mesh` of yours
    divides teachers along its `axis`, by `shard_map` and with the same bits.

    >>> import jax, numpy as np
    >>> from pate_jax import models
    >>> from pate_jax.data.dataset import AS_STORED
    >>> from pate_jax.data.partition import Shards
    >>> inputs, labels = np.eye(6, dtype=np.float32), np.array([0, 1, 0, 1, 1, 0])
    >>> shards = Shards(np.array([[0, 1, 2], [3, 4, 0]], np.int32), np.array([3, 2], np.int32))
    >>> model = models.build("table", input_shape=(6,), classes=2)
    >>> config = TeacherConfig(net="table", epochs=1, min_steps=20)
    >>> teachers = fit(model, AS_STORED, inputs, labels, shards, key=jax.random.key(0), config=config)
    >>> teachers.params["dense0"]["kernel"].shape
    (2, 6, 64)
    """
    given, inputs = config or TeacherConfig(), np.asarray(inputs)
    own = Own(tx, loss, augment).checked(given)
    model = cutting.model_for(net, preprocessing, inputs)
    config = given.of_net(model.description.get("name")).resolved()
    data = cutting.records(inputs, labels, shards, key, config)
    if model.front is None:
        cutting.check_net(model, preprocessing, data)
    program = cutting.own_program(model, preprocessing, data, config, own, public_constants)
    chosen = programs.places(config.devices, mesh, axis)
    mine, store = own_ids(len(data.counts)), _store(directory, config, model)
    if store is not None:
        store.agree(identity(model, preprocessing, data, config) | program)
    if model.front is not None:
        data, preprocessing = _behind(model.front, data, mine, store), AS_STORED
        cutting.check_net(model, preprocessing, data)
    plan = _plan(model, preprocessing, data, config, chosen, store, own)
    machine = _machine(model, preprocessing, config, plan, chosen, own)
    return _trained(machine, data._replace(length=_length(data, plan, config)), mine, store)


def _trained(machine: Machine, data: cutting.Records, mine: np.ndarray, store: Store | None) -> Teachers:
    chosen = machine.devices
    if store is not None:
        store.sweep()
    if not _all_finished(mine, store):
        _check_room(machine, data)
        _tell_of_cores(chosen, machine.config)
    with machines.kept_memory() if chosen[0].platform == "cpu" else nullcontext():
        return _train(machine, data, mine, store)


def _tell_of_cores(chosen: Places, config: TeacherConfig) -> None:
    """Say so where most cores are idle: each device of a CPU trains on one."""
    alone = chosen[0].platform == "cpu" and jax.process_count() == 1 and config.devices is None
    if alone and len(chosen) == 1 < machines.cores():
        progress.say(
            f"teachers: JAX has one device here and trains on one of {machines.cores()} cores; call "
            "pate_jax.system.devices.prepare() before JAX starts, and it has one for each"
        )


def _length(data: cutting.Records, plan: Plan, config: TeacherConfig) -> int:
    """Places for the records of the longest shard."""
    return ridge.longest(data.counts, plan) if config.closed_form else max(plan.length, data.length)


def _behind(front: Any, data: cutting.Records, mine: np.ndarray, store: Store | None) -> cutting.Records:
    """The records of these teachers behind the front; once all are trained, only their shapes matter."""
    if _all_finished(mine, store):
        one = front(data.inputs[:1])
        return data._replace(inputs=np.broadcast_to(one, (len(data.inputs), *one.shape[1:])))
    mine_rows = data.rows[mine]
    used = np.unique(mine_rows[np.arange(mine_rows.shape[1]) < data.counts[mine, None]])
    rows = np.minimum(np.searchsorted(used, data.rows), max(0, len(used) - 1))
    seen = cutting.behind(front, data.inputs, used, None if store is None else store.folder)
    return data._replace(inputs=seen, labels=data.labels[used], rows=rows)


def _all_finished(mine: np.ndarray, store: Store | None) -> bool:
    stored = None if store is None else store.plan()
    if store is None or stored is None:
        return False
    return all(store.finished(index) for index in range(-(-len(mine) // stored["wave"])))


def own_ids(teachers: int) -> np.ndarray:
    """The teachers of this process: a contiguous share of them."""
    return share_of(teachers, jax.process_index(), jax.process_count())


def identity(
    model: Model, preprocessing: Preprocessing, data: cutting.Records, config: TeacherConfig
) -> dict[str, Any]:
    """Everything that decides the result, as JSON; secrets and data as digests."""
    settings = {name: v for name, v in dataclasses.asdict(config).items() if name not in ELSEWHERE}
    return {
        "config": settings,
        "net": {name: list(v) if isinstance(v, tuple) else v for name, v in model.description.items()},
        "preprocessing": plain(preprocessing),
        "teachers": len(data.counts),
        "processes": jax.process_count(),
        "key": cutting.digest_of_keys(data.keys),
        "data": {
            "inputs": storage.digest(data.inputs),
            "labels": storage.digest(data.labels),
            "shards": storage.digest(data.rows, data.counts),
        },
    }


def plain(preprocessing: Preprocessing) -> Any:
    """A preprocessing as JSON: what it is called and its constants."""
    if dataclasses.is_dataclass(preprocessing) and not isinstance(preprocessing, type):
        values = dataclasses.asdict(preprocessing)
    else:
        values = preprocessing._asdict() if hasattr(preprocessing, "_asdict") else {}
    return {
        "kind": type(preprocessing).__name__,
        **{name: np.asarray(v).tolist() for name, v in values.items()},
    }


def _store(directory: Path | str | None, config: TeacherConfig, model: Model) -> Store | None:
    if directory is None:
        return None
    folder = Path(directory)
    if jax.process_count() > 1:
        folder = folder / f"process-{jax.process_index():03d}"
    return Store(folder, config.checkpoint_seconds, jax.eval_shape(model.init, jax.random.key(0)))


def _plan(model, preprocessing, data, config, chosen, store: Store | None, own: Own | None = None) -> Plan:
    share = -(-len(data.counts) // jax.process_count())
    stored = store.plan() if store is not None else None
    if stored is not None:
        named = config.width or stored["width"]
        if stored["width"] not in (named, min(named, -(-share // len(chosen)))):
            raise PateError(
                f"width={config.width} but these teachers were begun with {stored['width']}; name that, "
                "or begin in another folder"
            )
        return Plan(**stored)
    memory = 0 if config.width else plans.device_bytes(chosen)
    plan = planned(model, preprocessing, data, config, chosen, len(chosen), share, memory, own)
    if store is not None:
        store.keep_plan(dataclasses.asdict(plan))
    return plan


def planned(
    model, preprocessing, data, config, chosen, devices: int, share: int, memory: int, own: Own | None = None
) -> Plan:
    """The plan for a `share` of the teachers on this number of devices, from public values alone.

    The memory of programs is measured on the devices `chosen`, at the length that follows from the public
    number of records. A width that the user named is not changed.
    """
    net, backend = model.description.get("name"), jax.default_backend()
    length = plans.public_length(data.public, len(data.counts), config.batch_size or ridge.ROUNDED)
    plan = plans.choose(net, backend, share, devices, config.width, length)
    plan = dataclasses.replace(plan, public_records=data.public, memory=memory)
    if config.width is not None:
        return plan
    public = data._replace(length=length)

    def measure(candidate: Plan) -> int:
        return _needed(_machine(model, preprocessing, config, candidate, chosen, own), public)

    return plans.within_memory(plan, devices, measure)


def planned_again(model, preprocessing, data, config, plan: Plan, devices: int, share: int) -> Plan:
    """The plan that `planned` gives for the memory that another plan was made for, measured on one device."""
    if model.front is not None:
        data, preprocessing = _behind(model.front, data, np.arange(1), None), AS_STORED
    return planned(model, preprocessing, data, config, machines.local(1), devices, share, plan.memory)


def _needed(machine: Machine, data: cutting.Records) -> int:
    needed = plans.program_bytes(compiled(machine, data))
    if machine.config.closed_form:
        needed += machine.plan.width * plans.tree_bytes(_one(machine, data)[1])  # the next round's shards
    return needed


def _check_room(machine: Machine, data: cutting.Records) -> None:
    """Refuse to train what does not fit into memory; the longest shard may stop a run, never change it."""
    needed, free, width = _needed(machine, data), plans.free_bytes(machine.devices), machine.plan.width
    if needed > free:
        smaller = f"a --width below {width}" if width > 1 else "a smaller --batch-size or fewer --devices"
        raise PateError(
            f"{width} teachers in a program need {needed / 1e9:.3g} GB of each device, and {free / 1e9:.3g} "
            f"GB are free: free some memory, or begin another run with {smaller}"
        )


def _machine(
    model: Model,
    preprocessing: Any,
    config: TeacherConfig,
    plan: Plan,
    chosen: Places,
    own: Own | None = None,
) -> Machine:
    formed = in_form(model, plan.form)
    usual = TeacherConfig()
    same = dataclasses.replace(config, **{name: getattr(usual, name) for name in NOT_COMPILED})
    alike = dataclasses.replace(plan, wave=0, public_records=0, length=0, memory=0)  # likewise
    teacher, built = _compiled(
        (formed.init, formed.apply, formed.learn),
        preprocessing,
        same,
        alike,
        programs.fixed(chosen),
        _shape(formed),
        own or Own(),
    )
    return Machine(teacher, built, plan, chosen, config)


@programs.kept
def _compiled(net, preprocessing, config, plan: Plan, chosen: Places, shape, own: Own) -> tuple[Any, ...]:
    """The programs, cached: a second ensemble of the same kind is not compiled again."""
    init, apply, learn = net
    model = Model(init, apply, {"input_shape": shape}, learn=learn)
    if config.closed_form:
        teacher = ridge.teacher(model, config)
    else:
        teacher = single_teacher.teacher(model, preprocessing.apply, config, own)
    return teacher, programs.build(teacher, plan, chosen)


def _shape(model: Model) -> tuple[int, ...]:
    return tuple(model.description.get("input_shape", (0, 0, 0)))


def compiled(machine: Machine, data: cutting.Records) -> Any:
    """The program that trains, compiled for these records but not run: for its memory and its text."""
    return machine.programs.compiled(*_shapes(machine, data))


def _shapes(machine: Machine, data: cutting.Records) -> Any:
    """What the program that trains takes for these records: the shapes of all its teachers' arrays."""
    places = (len(machine.devices), machine.plan.width)
    lies = programs.layout(programs.fixed(machine.devices))

    def widen(leaf):
        return jax.ShapeDtypeStruct((*places, *leaf.shape), leaf.dtype, sharding=lies)

    return jax.tree.map(widen, _one(machine, data))


def _train(machine: Machine, data: cutting.Records, mine: np.ndarray, store: Store | None) -> Teachers:
    groups = [mine[first : first + machine.plan.wave] for first in range(0, len(mine), machine.plan.wave)]
    light = store is None or _is_light(machine, data, len(mine))
    parts, news, trained, began = [], [], 0, time.monotonic()
    with progress.bar("teachers", _images(machine, data, mine)) as bar:
        for index, ids in enumerate(groups):
            if store is not None and store.finished(index):
                bar.advance(_images(machine, data, ids), found=True)
                params, latest = (store.params(index) if light else None), News(**store.news(index))
            else:
                params, latest = _train_wave(machine, data, ids, index, store, bar)
                trained += _images(machine, data, ids)
            parts.append((ids, partial(_same, params) if light else partial(_of(store).params, index)))
            news.append(latest)
    seconds = time.monotonic() - began
    together = jax.tree.map(lambda *columns: np.concatenate(columns), *news)
    return Teachers(
        mine, waves.report(machine, data, mine, together, trained / seconds, seconds), tuple(parts)
    )


def _train_wave(machine, data, ids, index: int, store: Store | None, bar: progress.Bar) -> tuple[Any, News]:
    wave = waves.empty(machine, data, ids)
    if machine.config.closed_form:
        wave = ridge.train(machine, data, ids, wave, bar.advance)
    elif store is None:
        wave = waves.train(machine, data, ids, wave, save=lambda fill: None, tell=bar.advance)
    else:
        wave = store.resume(index, wave)
        wave = waves.train(machine, data, ids, wave, save=partial(store.offer, index), tell=bar.advance)
    if store is not None:
        store.finish(index, wave)
    return wave.state.params, wave.news


def _images(machine: Machine, data: cutting.Records, ids: np.ndarray) -> int:
    counts = data.counts[ids].astype(np.int64)
    return int((counts * single_teacher.epochs_of(counts, machine.config)).sum())


def _is_light(machine: Machine, data: cutting.Records, teachers: int) -> bool:
    """Whether the parameters of all these teachers fit easily into memory together."""
    one = plans.tree_bytes(_one(machine, data)[0].params)
    return one * teachers <= IN_MEMORY * plans.available_bytes()


def _one(machine: Machine, data: cutting.Records) -> tuple[single_teacher.State, Shard]:
    """Shapes of one teacher's state and shard."""
    shard = jax.tree.map(lambda leaf: leaf[0], cutting.take(data, np.full(1, -1), machine.config))
    return jax.eval_shape(machine.teacher.start, shard, jax.ShapeDtypeStruct((), np.int32)), shard


def _same(tree: Any) -> Any:
    return tree


def _of(store: Store | None) -> Store:
    if store is None:
        raise PateError("these teachers do not fit into memory together; give a directory to keep them in")
    return store
