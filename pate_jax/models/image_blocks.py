"""Blocks of images, looked at by all devices of this process, each image by itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from pate_jax.system import devices, progress

_BLOCK = 100  # images that a device looks at together, at most
_TOGETHER = 2000  # images that all devices look at together, at least: as many as `spaces` hands over
Look = Callable[[Any, Array], Array]  # of what is known and a block: one row for each image of it


def features(
    look: Look, known: Any, images: Float[np.ndarray, "image h w c"], width: int
) -> Float[np.ndarray, "image features"]:
    """`look` at any number of images, which gives `width` numbers of each.

    All devices take part, whichever one a caller prefers. Every block has the same shape and program, so a
    `look` that treats each image by itself gives it the same bits alone and in any company.
    """
    present = devices.local()
    each = min(_BLOCK, -(-_TOGETHER // len(present)))
    places = tuple(present[: max(1, -(-len(images) // each))])
    program, rows, everywhere = _looking(look, places)
    there, step = jax.device_put(known, everywhere), each * len(places)
    found = np.zeros((len(images), width), np.float32)

    def begun(start: int) -> Array:
        given = np.zeros((step, *images.shape[1:]), np.float32)
        given[: len(images) - start] = images[start : start + step]
        return program(there, jax.device_put(given, rows))

    with devices.kept_memory():
        starts = range(0, len(images), step)
        blocks = [begun(start) for start in starts[:1]]  # and one more while the first is computed
        for start in progress.track(starts, "comparing patches", total=len(starts)):
            if start + step < len(images):
                blocks.append(begun(start + step))
            for shard in blocks.pop(0).addressable_shards:
                first = start + (shard.index[0].start or 0)
                room = found[first : first + each]
                room[:] = np.asarray(shard.data)[: len(room)]
    return found


@functools.cache
def _looking(
    look: Look, places: tuple[jax.Device, ...]
) -> tuple[Callable[..., Array], NamedSharding, NamedSharding]:
    """The program that looks at blocks of images on these devices at once, and where its arguments lie.

    It is one program: were each device to run its own, each would compile it.
    """
    mesh = Mesh(np.array(places), ("image",))
    split, whole = PartitionSpec("image"), PartitionSpec()
    mapped = jax.shard_map(look, mesh=mesh, in_specs=(whole, split), out_specs=split, check_vma=False)
    # Where a device is a core: all devices share a pool of threads, where their products wait for each other.
    options = devices.compiling(places[0].platform)
    return jax.jit(mapped, compiler_options=options), NamedSharding(mesh, split), NamedSharding(mesh, whole)
