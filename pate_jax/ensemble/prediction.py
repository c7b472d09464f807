"""The teachers' predictions: a label per teacher and query, or histograms summed on the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Int

from pate_jax.data.dataset import AS_STORED
from pate_jax.ensemble import feeding, programs
from pate_jax.ensemble import plan as plans
from pate_jax.ensemble.waves import Teachers, cut
from pate_jax.errors import PateError
from pate_jax.models import Form, Net, in_form
from pate_jax.models.flax_nets import Preprocessing
from pate_jax.system import devices as machines
from pate_jax.system import progress

BLOCK_BYTES = 1 << 28  # queries held on each device at a time


def predict(
    net: Net,
    preprocessing: Preprocessing,
    teachers: Teachers,
    inputs: np.ndarray,
    *,
    devices: int | None = None,
    mesh: Mesh | None = None,
    axis: str | None = None,
) -> Int[np.ndarray, "teachers queries"]:
    """The label that each teacher of this process gives each input, int16 (int32 above 32,767 classes).

    >>> import jax
    >>> from pate_jax.data.dataset import AS_STORED
    >>> from pate_jax.models import Model
    >>> net = Model(lambda key: jax.numpy.zeros(2), lambda bias, inputs: inputs + bias, {})
    >>> teachers = Teachers.of(np.array([[0.0, 0.0], [0.0, 9.0], [0.0, 9.0]]))
    >>> predict(net, AS_STORED, teachers, np.eye(2, dtype=np.float32)).tolist()
    [[0, 1], [1, 1], [1, 1]]
    """
    voter = _Voter(net, preprocessing, inputs, programs.places(devices, mesh, axis))
    answer = voter.compiled.labels
    given = np.zeros((len(teachers.ids), len(inputs)), np.int16 if voter.classes <= 1 << 15 else np.int32)
    with progress.bar("labels", float(given.size)) as bar:
        for start, batches in voter.blocks():
            for rows, real, params in voter.rounds(teachers):
                answers = [
                    answer(params, batch) for batch in batches
                ]  # all are started before one is fetched
                labels = np.concatenate([programs.fetch(part)[real] for part in answers], axis=1)
                stop = min(start + labels.shape[1], len(inputs))
                given[rows, start:stop] = labels[:, : stop - start]
                bar.advance(float(len(rows) * (stop - start)))
    return given


def vote(
    net: Net,
    preprocessing: Preprocessing,
    teachers: Teachers,
    inputs: np.ndarray,
    *,
    devices: int | None = None,
    mesh: Mesh | None = None,
    axis: str | None = None,
) -> Int[np.ndarray, "queries classes"]:
    """How many teachers chose each class, for every input: int32, summed on the devices and over processes.

    Labels of single teachers are never stored, and a place without a teacher does not count.

    >>> import jax
    >>> from pate_jax.data.dataset import AS_STORED
    >>> from pate_jax.models import Model
    >>> net = Model(lambda key: jax.numpy.zeros(2), lambda bias, inputs: inputs + bias, {})
    >>> teachers = Teachers.of(np.array([[0.0, 0.0], [0.0, 9.0], [0.0, 9.0]]))
    >>> vote(net, AS_STORED, teachers, np.eye(2, dtype=np.float32)).tolist()
    [[1, 2], [0, 3]]
    """
    voter = _Voter(net, preprocessing, inputs, programs.places(devices, mesh, axis))
    add = voter.compiled.add
    total = np.zeros((len(inputs), voter.classes), np.int32)
    with progress.bar("votes", float(len(inputs) * len(teachers.ids))) as bar:
        for start, batches in voter.blocks():
            empty = np.zeros((voter.batch, voter.classes), np.int32)
            sums = [programs.everywhere(empty, voter.devices) for _ in batches]
            for rows, real, params in voter.rounds(teachers):
                here = real.reshape(len(voter.devices), voter.width).astype(np.int32)
                sums = [add(sum_, params, batch, here) for sum_, batch in zip(sums, batches, strict=True)]
                bar.advance(float(len(rows) * min(len(batches) * voter.batch, len(inputs) - start)))
            counted = np.concatenate([np.asarray(part).sum(axis=0, dtype=np.int32) for part in sums])
            total[start : start + len(counted)] = counted[: len(inputs) - start]
    return machines.sum_over_processes(total)


def score(teacher_labels: np.ndarray, labels: np.ndarray, classes: int) -> dict[str, Any]:
    """How good the teachers are, each and together, on inputs whose true labels are known.

    >>> import numpy as np
    >>> scores = score(np.array([[0, 1], [0, 0], [0, 1]]), np.array([0, 1]), classes=3)
    >>> round(scores["mean"], 3), scores["plurality"]
    (0.833, 1.0)
    """
    each = (teacher_labels == labels).mean(axis=1)
    votes = np.stack([(teacher_labels == j).sum(axis=0) for j in range(classes)], axis=1)
    return {
        "about": "accuracy of teachers trained on private records: not to be published",
        "mean": float(each.mean()),
        "min": float(each.min()),
        "max": float(each.max()),
        "plurality": float((votes.argmax(axis=1) == labels).mean()),
    }


class _Compiled(NamedTuple):
    """What the devices run."""

    labels: Callable[[Any, Any], Any]
    """(params, batch) -> labels [device, width, batch]"""
    add: Callable[[Any, Any, Any, Any], Any]
    """(votes, params, batch, real) -> votes [device, batch, class]; `real` is 0 where there is no teacher"""


@programs.kept
def _compiled(
    apply: Callable, preprocessing: Preprocessing, width: int, classes: int, devices: programs.Places
) -> _Compiled:
    """The programs of a net: who votes again, votes with the same ones."""

    def labels(params: Any, batch: Any) -> Any:
        ready = preprocessing.apply(batch.astype(jnp.float32))
        label: Callable = lambda teacher: jnp.argmax(apply(teacher, ready), axis=-1)  # noqa: E731
        return programs.inside(label, width)(params)

    def add(votes: Any, params: Any, batch: Any, real: Any) -> Any:
        given = labels(params, batch)
        chex.assert_shape([given, votes], [(width, len(batch)), (len(batch), classes)])
        chosen = given[:, :, None] == jnp.arange(classes)
        return votes + jnp.sum(jnp.where(chosen, real[:, None, None], 0), axis=0)

    over = functools.partial(programs.Mapped, devices=devices)
    return _Compiled(over(labels), over(add, donate=(0,)))


@programs.kept
def _classes_of(apply: Callable, init: Callable, preprocessing: Preprocessing, shape: tuple[int, ...]) -> int:
    one = jax.ShapeDtypeStruct((1, *shape), np.float32)
    params = jax.eval_shape(init, jax.random.key(0))
    return jax.eval_shape(lambda p, x: apply(p, preprocessing.apply(x)), params, one).shape[1]


class _Voter:
    """A net in the form of prediction on this backend, and the queries in batches."""

    def __init__(
        self, net: Net, preprocessing: Preprocessing, inputs: np.ndarray, devices: programs.Places
    ) -> None:
        model = feeding.model_for(net, preprocessing, np.asarray(inputs))
        row = plans.row(model.description.get("name"), jax.default_backend())
        self.devices, self.inputs = devices, np.asarray(inputs)
        if not len(self.inputs):
            raise PateError("inputs is empty; give at least one input to vote on")
        if model.front is not None:
            self.inputs, preprocessing = model.front(self.inputs), AS_STORED
        self.width, self.batch = row["predict"]["width"], min(row["predict"]["batch"], len(self.inputs))
        self.classes = _classes_of(model.apply, model.init, preprocessing, self.inputs.shape[1:])
        formed = in_form(model, Form(row["convolution"], row["dtype"])).apply
        self.compiled = _compiled(formed, preprocessing, self.width, self.classes, programs.fixed(devices))

    def blocks(self) -> Iterator[tuple[int, list[Any]]]:
        """Queries in blocks that stay on every device, each cut into batches of one size."""
        each = math.prod(self.inputs.shape[1:]) * self.inputs.dtype.itemsize * self.batch
        size = max(1, BLOCK_BYTES // each) * self.batch
        for start in range(0, len(self.inputs), size):
            block = self.inputs[start : start + size]
            padding = -len(block) % self.batch
            block = np.concatenate([block, np.zeros((padding, *block.shape[1:]), block.dtype)])
            yield (
                start,
                [self._everywhere(block[i : i + self.batch]) for i in range(0, len(block), self.batch)],
            )

    def rounds(self, teachers: Teachers) -> Iterator[tuple[np.ndarray, np.ndarray, Any]]:
        """Rows of the ensemble, which places hold a teacher, and parameters on the devices."""
        done = 0
        for ids, load in teachers.parts:
            stacked = load()
            for group in cut(np.arange(len(ids)), len(self.devices) * self.width):
                real = group >= 0
                chosen = jax.tree.map(lambda leaf: leaf[np.maximum(group, 0)], stacked)  # noqa: B023
                yield done + group[real], real, programs.place(chosen, self.devices, self.width)
            done += len(ids)

    def _everywhere(self, batch: np.ndarray) -> Any:
        return programs.everywhere(batch, self.devices)
