"""One teacher's functions, run for devices x width teachers at once; the only file that names pmap.

Inside a device `vmap` batches `width` teachers; over devices `pmap` runs the same program on each, or
`shard_map` over the axis of a mesh that somebody else has made, with the same bits. A program takes and gives
arrays of [devices, width, ...]. No numbers of two teachers ever meet: the compiled text of every program
holds no collective, which a test reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.teacher import Teacher
from pate_jax.errors import PateError
from pate_jax.models.trees import Tree
from pate_jax.system import devices as machines

Made = TypeVar("Made")


class OnMesh(tuple[jax.Device, ...]):
    """The devices along one axis of somebody else's mesh; along its other axes all is the same."""

    mesh: Mesh
    axis: str

    def __new__(cls, mesh: Mesh, axis: str | None = None) -> OnMesh:
        """Of a mesh with one axis that need not be named."""
        names = tuple(map(str, mesh.axis_names))
        if axis is None and len(names) != 1:
            raise PateError(f"the mesh has the axes {', '.join(names)}: say which divides teachers, axis=")
        chosen = axis or names[0]
        if chosen not in names:
            raise PateError(f"axis={axis!r} is no axis of the mesh, which has {', '.join(names)}")
        along = np.moveaxis(mesh.devices, names.index(chosen), 0).reshape(mesh.shape[chosen], -1)
        if any(device.process_index != jax.process_index() for device in along.ravel()):
            raise PateError("the mesh has devices of other processes: give each process a mesh of its own")
        made = super().__new__(cls, along[:, 0].tolist())
        made.mesh, made.axis = mesh, chosen
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OnMesh) and (self.mesh, self.axis) == (other.mesh, other.axis)

    def __hash__(self) -> int:
        return hash((self.mesh, self.axis))

    @property
    def sharding(self) -> NamedSharding:
        """How arrays of [devices, ...] lie on it."""
        return NamedSharding(self.mesh, PartitionSpec(self.axis))

    def over(self, function: Callable) -> Callable:
        """`shard_map` of a function of one device's arrays, whose first axis is divided."""
        lies = PartitionSpec(self.axis)
        divided = jax.shard_map(function, mesh=self.mesh, in_specs=lies, out_specs=lies, check_vma=False)
        if AxisType.Explicit not in self.mesh.axis_types:
            return divided
        return lambda *arguments: divided(*jax.reshard(arguments, self.sharding))

    def mapped(self, function: Callable, donate: tuple[int, ...]) -> Any:
        """What `jax.pmap` of a function is over devices."""

        def one(*arguments: Tree) -> Tree:
            mine = jax.tree.map(lambda leaf: leaf[0], arguments)
            return jax.tree.map(lambda leaf: leaf[None], function(*mine))

        lies = self.sharding
        return jax.jit(self.over(one), in_shardings=lies, out_shardings=lies, donate_argnums=donate)


Places = Sequence[jax.Device]  # devices by themselves, or OnMesh


def places(count: int | None, mesh: Mesh | None, axis: str | None) -> Places:
    """Where teachers are computed: on so many devices of this process, or on somebody's mesh."""
    if mesh is None:
        if axis is not None:
            raise PateError(f"axis={axis!r} is of a mesh, and none was given: pass mesh=")
        return machines.local(count)
    if count is not None:
        raise PateError(f"devices={count} and a mesh were both given, which names its devices: leave one out")
    return OnMesh(mesh, axis)


def fixed(devices: Places) -> tuple[jax.Device, ...]:
    """The same places, hashable."""
    return devices if isinstance(devices, OnMesh) else tuple(devices)


class Mapped:
    """`jax.pmap` of a function, or `shard_map`, compiled once for each shape of its arguments.

    A device of a CPU is one core (`devices.prepare`), so its program keeps to one thread. All devices share a
    pool of threads, where the parts of one device's operations would wait behind another's, and how an
    operation is cut into parts, which may change its last bits, would depend on the machine's cores. On a GPU
    a clock would choose between ways to compute a product, whose bits differ, anew in each process.
    """

    def __init__(self, function: Callable, devices: Places, donate: tuple[int, ...] = ()) -> None:
        self._options = machines.compiling(devices[0].platform)
        if isinstance(devices, OnMesh):
            self._mapped = devices.mapped(function, donate)
        else:
            self._mapped = jax.pmap(function, devices=devices, donate_argnums=donate)
        self._one = jax.jit(function, donate_argnums=donate)
        self._programs: dict[Any, Any] = {}

    def __call__(self, *arguments: Tree) -> Any:
        """Run it; every argument has the axis of devices first."""
        return self._once(self._mapped, arguments)(*arguments)

    def compiled(self, *arguments: Tree) -> Any:
        """The program for arguments of these shapes, for its text and its memory; nothing is run.

        Of several processes pmap takes arrays only. What one device runs stands for its program there.
        """
        if jax.process_count() == 1:
            return self._once(self._mapped, arguments)
        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), arguments)
        return self._once(self._one, one)

    def _once(self, function: Any, arguments: tuple[Tree, ...]) -> Any:
        leaves, tree = jax.tree.flatten(arguments)
        shapes = (function, tree, *((leaf.shape, leaf.dtype) for leaf in leaves))
        if shapes not in self._programs:
            self._programs[shapes] = function.lower(*arguments).compile(self._options)
        return self._programs[shapes]


class Programs(NamedTuple):
    """The programs that train a round of teachers."""

    start: Callable[[Tree, Tree], Tree]
    """(shards, attempts) -> states"""
    steps: Callable[[Tree, Tree, int], Tree]
    """(states, shards, how many steps) -> states"""
    turn: Callable[[Tree, Tree], tuple[Tree, Tree]]
    """(states, shards) -> (states, news)"""
    choose: Callable[[Tree, Tree, Tree], Tree]
    """(which, states, states) -> the first where `which`, else the second"""
    compiled: Callable[[Tree, Tree], Any]
    """(states, shards) -> the program that `steps` runs, for its text and its memory"""


def build(teacher: Teacher, plan: Plan, devices: Places) -> Programs:
    """The programs of this teacher in the form that the plan wants."""
    over = partial(across, plan=plan, devices=devices)
    if plan.steps_per_call:
        moving = _several(teacher.step, plan, devices)
        count = lambda steps: -(-steps // plan.steps_per_call)  # noqa: E731
        run = lambda states, shards, steps: _repeat(moving, states, shards, count(steps))  # noqa: E731
        compiled = moving.compiled
    else:
        whole = _epoch(teacher.step, plan, devices)
        run = lambda states, shards, steps: whole(states, shards, _number(steps, devices))  # noqa: E731
        compiled = lambda *arguments: whole.compiled(*arguments, _number(1, devices))  # noqa: E731
    choose = over(lambda which, new, old: jax.tree.map(partial(jnp.where, which), new, old))
    return Programs(over(teacher.start), run, over(teacher.turn, donate=(0,)), choose, compiled)


def across(function: Callable, *, plan: Plan, devices: Places, donate: tuple[int, ...] = ()) -> Mapped:
    """A function of one teacher, for devices x width teachers; every argument has those two axes first."""
    batched = in_turn(function) if plan.one_by_one else inside(function, plan.width)
    return Mapped(batched, devices, donate)


def inside(function: Callable, width: int) -> Callable:
    """A function of one teacher for the `width` teachers of a device; no vmap where there is only one.

    A vmapped convolution is a grouped one even for a single teacher, and CPUs are slow at those.
    """
    if width > 1:
        return jax.vmap(function)

    def alone(*arguments):
        mine = jax.tree.map(lambda leaf: leaf[0], arguments)
        return jax.tree.map(lambda leaf: leaf[None], function(*mine))

    return alone


def in_turn(function: Callable) -> Callable:
    """A function of one teacher for the teachers of a device, in a loop: no place differs in a bit."""
    return lambda *arguments: jax.lax.map(lambda mine: function(*mine), arguments)


def place(tree: Tree, devices: Places, width: int) -> Tree:
    """Host arrays of [devices * width, ...] on the devices, `width` teachers on each."""
    tree = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(len(devices), width, *leaf.shape[1:]), tree)
    return jax.device_put(tree, layout(fixed(devices)))


def everywhere(array: np.ndarray, devices: Places) -> Any:
    """The same host array on each of the devices."""
    return jax.device_put(np.broadcast_to(array, (len(devices), *array.shape)), layout(fixed(devices)))


@functools.cache
def layout(devices: tuple[jax.Device, ...]) -> Any:
    """How pmap itself lays out an array of [devices, ...]: anything else would compile each program twice."""
    if isinstance(devices, OnMesh):
        return devices.sharding
    return jax.pmap(lambda leaf: leaf, devices=devices)(np.zeros(len(devices))).sharding


def kept(make: Callable[..., Made]) -> Callable[..., Made]:
    """The same function, which makes once what it is asked for again, by positional arguments.

    One's own preprocessing may not be hashable: then nothing is kept.

    >>> kept(list)((1, 2)), kept(list)([1, 2])
    ([1, 2], [1, 2])
    """
    again = functools.lru_cache(maxsize=16, typed=True)(make)  # tuples of two types may be equal

    @functools.wraps(make)
    def made(*arguments: Any) -> Made:
        return again(*arguments) if _is_hashable(arguments) else make(*arguments)

    return made


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def fetch(tree: Tree) -> Tree:
    """Arrays of [devices, width, ...] as host arrays of [devices * width, ...]."""
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), tree)


def _several(step: Callable, plan: Plan, devices: Places) -> Mapped:
    def run(state, shard):
        for _ in range(plan.steps_per_call):
            state = step(state, shard)
        return state

    return across(run, plan=plan, devices=devices, donate=(0,))


def _epoch(step: Callable, plan: Plan, devices: Places) -> Mapped:
    """A whole epoch in one loop on the device; the number of its turns is an argument and shapes nothing."""
    batched = inside(step, plan.width)

    def run(states, shards, steps):
        return jax.lax.fori_loop(0, steps, lambda _, moving: batched(moving, shards), states)

    return Mapped(run, devices, donate=(0,))


def _repeat(program: Callable, states: Tree, shards: Tree, times: int) -> Tree:
    for _ in range(times):
        states = program(states, shards)
    return states


def _number(value: int, devices: Places) -> np.ndarray:
    return np.full(len(devices), value, np.int32)
