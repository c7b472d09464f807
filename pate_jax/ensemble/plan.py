"""How the ensemble is computed: teachers per vmap, form of convolutions, steps per call, teachers per wave.

These come from a committed table per backend and net (`forms.json`, refreshed by benchmarks/teachers.py) and
from the memory of the machine, never from a clock and never from a record: two runs of one command compute
the same way, and so do two tables that differ in a record. The plan is stored with a run and obeyed when it
resumes.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

import jax
import numpy as np

from pate_jax.models import Form

MEMORY_SHARE = 0.6  # of a device's memory: how much of it a plan may fill
WAVE_TEACHERS = 64  # teachers of a wave where each trains alone
ROUNDS = 8  # of a wave where devices go through their teachers one by one
PLACES = 8192  # for records on each device, at most, where they do: what they hold then stays in the cache


@dataclasses.dataclass(frozen=True)
class Plan:
    """How one process computes its teachers."""

    width: int
    """teachers per vmap, or per loop, on each device"""
    steps_per_call: int
    """steps in one call of the program; 0 is a whole epoch in one loop on the device"""
    convolution: str
    """one of models.CONVOLUTIONS"""
    dtype: str
    """in which type a net computes; parameters are float32 always"""
    wave: int
    """teachers of a wave: they are kept on disk together"""
    public_records: int = 0
    """the number of private records as this plan knows it"""
    length: int = 0
    """places for the records of a shard, from that number; a longer shard gets more and changes no plan"""
    memory: int = 0
    """bytes of a device that the width was chosen for; 0 where the user named the width"""
    one_by_one: bool = False
    """whether a device computes the teachers of its width in a loop, and not in a vmap"""

    @property
    def form(self) -> Form:
        """The form that the net takes."""
        return Form(self.convolution, self.dtype)


@lru_cache(maxsize=1)
def table() -> dict[str, dict[str, dict[str, Any]]]:
    """The committed table: backend -> net -> width, steps per call, convolution form, compute type.

    >>> table()["cpu"]["cnn"]["width"]
    1
    """
    return json.loads(resources.files("pate_jax.ensemble").joinpath("forms.json").read_text())["forms"]


def row(net: str | None, backend: str) -> dict[str, Any]:
    """The table's row for a net; backends and nets that were never measured share a row each."""
    of_backend = table().get(backend, table()["other"])
    return of_backend.get(net or "", of_backend["other"])


def choose(
    net: str | None, backend: str, teachers: int, devices: int, width: int | None, length: int = 0
) -> Plan:
    """The plan that the table gives for this number of teachers, before memory is measured.

    Where a row says `whole`, fewer teachers than its width leave places empty: bits may depend on the width.
    Where it says `one_by_one`, teachers with places for `length` records share a program as the cache allows.

    >>> choose("cnn", "cpu", teachers=250, devices=2, width=None).width
    1
    """
    chosen = row(net, backend)
    if width is not None and width > 1 and not chosen["wide"]:
        chosen = {**chosen, "convolution": "patches", "steps_per_call": 0}
    most = max(1, -(-teachers // devices))
    one_by_one = chosen.get("one_by_one", False)
    fitting = PLACES // max(1, length) if one_by_one else chosen["width"]
    wanted = width or max(1, min(chosen["width"], fitting))
    if not chosen.get("whole"):
        wanted = min(wanted, most)
        rounds = -(-most // wanted)
        wanted = wanted if width is not None else -(-most // rounds)
    form = (chosen["steps_per_call"], chosen["convolution"], chosen["dtype"])
    return _with_width(Plan(wanted, *form, 0, length=length, one_by_one=one_by_one), wanted, devices)


def public_length(records: int, teachers: int, batch: int) -> int:
    """How many records a shard is padded to, in whole batches; very few shards are longer.

    A hash cuts the shards, so their sizes spread like Poisson's: these are six deviations above the mean.

    >>> public_length(60_000, teachers=250, batch=24)
    360
    """
    mean = records / teachers
    return -(-math.ceil(mean + 6 * math.sqrt(mean) + 6) // batch) * batch


def within_memory(plan: Plan, devices: int, measure: Callable[[Plan], int]) -> Plan:
    """The plan, its width halved until its measured bytes stay within the share of a device's `memory`."""
    room = MEMORY_SHARE * plan.memory
    while plan.width > 1 and (needed := measure(plan)) > room:
        halved = plan.width >> max(1, math.ceil(math.log2(needed / room)))
        plan = _with_width(plan, max(1, halved), devices)
    return plan


def program_bytes(compiled: Any) -> int:
    """Bytes that a compiled program needs on one device: arguments, new results and temporaries."""
    needs = compiled.memory_analysis()
    if needs is None:
        return 0  # this backend does not tell
    held = needs.argument_size_in_bytes + needs.output_size_in_bytes - needs.alias_size_in_bytes
    return int(held + needs.temp_size_in_bytes)


def device_bytes(devices: Sequence[jax.Device]) -> int:
    """Bytes of each of these devices, used or free; devices of a CPU share the machine's memory."""
    if (stats := _stats(devices)) is not None:
        return min(found["bytes_limit"] for found in stats)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(pages, _of_group("memory.max") or pages) // len(devices)


def free_bytes(devices: Sequence[jax.Device]) -> int:
    """Bytes that each of these devices can still give; devices of a CPU share the machine's memory."""
    if (stats := _stats(devices)) is not None:
        return min(found["bytes_limit"] - found["bytes_in_use"] for found in stats)
    return available_bytes() // len(devices)


def _stats(devices: Sequence[jax.Device]) -> list[dict[str, int]] | None:
    """Memory statistics of accelerators that have their own memory, or None."""
    stats = [device.memory_stats() or {} for device in devices if device.platform != "cpu"]
    return stats if stats and all("bytes_limit" in found for found in stats) else None


def available_bytes() -> int:
    """Memory that this machine, or the control group of this process, can still give."""
    free = _meminfo(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    limit, used = _of_group("memory.max"), _of_group("memory.current")
    return free if limit is None or used is None else min(free, max(limit - used, 0))


def _of_group(name: str) -> int | None:
    """A figure of the control group that this process is confined to, if there is one."""
    try:
        with open(f"/sys/fs/cgroup/{name}") as file:
            figure = file.read().strip()
    except OSError:
        return None  # no such group, no such limit
    return int(figure) if figure.isdigit() else None


def _meminfo(otherwise: int) -> int:
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: free pages are the nearest figure
    return otherwise


def _with_width(plan: Plan, width: int, devices: int) -> Plan:
    size = width * devices
    rounds = ROUNDS if plan.one_by_one else 1 if width > 1 else -(-WAVE_TEACHERS // size)
    return dataclasses.replace(plan, width=width, wave=rounds * size)


def tree_bytes(tree: Any) -> int:
    """Bytes of all arrays (or shapes) of a tree.

    >>> tree_bytes({"a": np.zeros((2, 3), np.float32)})
    24
    """
    return sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(tree))
