"""Devices and processes: how many there are, which of them are used, and how a batch is spread over them.

On a CPU each core is a device: two single-threaded programs side by side train more images per second than
one program on two threads. XLA reads the number of devices once, when JAX first looks for them, so
`prepare()` has to run before that; nothing in this file imports JAX at import time.

Compiled programs are kept on this machine, so that a second run of the same shape starts without compiling.
JAX keeps them in a folder if its environment names one before JAX is imported (`keep_programs`). A program is
known by its code and the shapes of its inputs. It holds no record: what comes from private data is always an
input of a program and never a constant of one, and a test holds this.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError

# Of a CPU each device is a core. On a GPU XLA would take whatever way was fastest on a clock, and so other
# bits in the next process.
_COMPILING: dict[str, dict[str, str | bool]] = {
    "cpu": {"xla_cpu_multi_thread_eigen": False},
    "gpu": {"xla_gpu_deterministic_ops": True},
}
_COUNT = "--xla_force_host_platform_device_count"
_REPEATABLE = "--xla_gpu_deterministic_ops"
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -2, -3, -4  # of glibc's mallopt
_BLOCK = 1 << 26  # bytes of one process in one exchange, since every device receives those of all
_KNOWN = "every process knows of this error"
ANEW = "--compile-anew"
_LIMIT = 2**30  # bytes; above it the programs that were compiled first are dropped
_ours: list[str] = []  # the flags that `prepare` has set, so that a later call may set others


def cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_devices_flag(count: int | None = None) -> str:
    """The XLA flags that make `count` devices of the CPU (by default one per core).

    >>> host_devices_flag(2)
    '--xla_force_host_platform_device_count=2'
    """
    return f"{_COUNT}={count or cores()}"


def prepare(count: int | None = None) -> bool:
    """Give XLA one host device per core, and GPUs repeatable programs; call it before anything touches JAX.

    A user's own settings in XLA_FLAGS win. Neither has an effect on TPUs. Returns False if no devices were
    made, because the user has made them already or JAX has started.
    """
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag not in _ours]
    if _started():
        return False
    named = {flag.partition("=")[0] for flag in flags}
    wanted = {_COUNT: host_devices_flag(count), _REPEATABLE: f"{_REPEATABLE}=true"}
    _ours[:] = [flag for name, flag in wanted.items() if name not in named]
    os.environ["XLA_FLAGS"] = " ".join([*flags, *_ours])
    return _COUNT not in named


def _started() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bool(getattr(bridge, "_backends", None))


def compiling(platform: str) -> dict[str, str | bool]:
    """The options that programs are compiled with whose bits have to be the same in every process.

    >>> compiling("gpu")
    {'xla_gpu_deterministic_ops': True}
    """
    return dict(_COMPILING.get(platform, {}))


@contextmanager
def kept_memory() -> Iterator[None]:
    """Within this context, memory that a program frees stays with the process; it helps CPUs with glibc only.

    XLA allocates a program's temporary memory at every call, glibc takes large blocks from the system, and
    the system clears them page by page: with the PATE-2017 net that was a third of a training step.
    """
    tune = getattr(ctypes.CDLL(None), "mallopt", None)
    if tune is None:
        yield
        return
    for option, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**28)):
        tune(option, value)
    try:
        yield
    finally:
        usual = {_MMAP_MAX: 2**16, _MMAP_THRESHOLD: 2**25, _TRIM_THRESHOLD: 2**26, _TOP_PAD: 2**17}
        for option, value in usual.items():
            tune(option, value)
        ctypes.CDLL(None).malloc_trim(0)


def local(count: int | None = None) -> list[Any]:
    """The first `count` devices of this process (by default all of them)."""
    import jax

    present: list[Any] = jax.local_devices()
    if count is not None and not 1 <= count <= len(present):
        raise PateError(
            f"devices={count} but this process has {len(present)}; on a CPU set XLA_FLAGS={_COUNT}=N"
        )
    return present[:count]


def join(address: str | None = None, processes: int | None = None, index: int | None = None) -> None:
    """Join the other processes of a run by `jax.distributed`; on TPU pods and Slurm no argument is needed.

    On CPUs the processes communicate through gloo. Call it before anything else touches JAX.
    """
    import jax
    import numpy as np

    jax.distributed.initialize(address, processes, index)
    # Gloo connects at the first exchange of each kind, and gives up if a process is 30 s late, as one that
    # reads a large table is. Once connected, it waits longer.
    from_first(b"here")
    rows_of_all(np.zeros(1, np.uint8))


def leave() -> None:
    """Leave the other processes; each goes on with its own devices.

    JAX's backends on CPUs and GPUs are dropped, since even work on one process's devices would look for the
    others. A TPU pod cannot be joined again, so there they stay.
    """
    import jax
    from jax.extend import backend

    keep = jax.default_backend() == "tpu"
    jax.distributed.shutdown()
    if not keep:
        backend.clear_backends()


def index() -> int:
    """The number of this process, from 0."""
    import jax

    return jax.process_index()


def is_first() -> bool:
    """Whether this is the process that writes."""
    return index() == 0


def processes() -> int:
    """How many processes run together.

    >>> processes()
    1
    """
    import jax

    return int(jax.process_count())


def from_first(content: bytes) -> bytes:
    """The bytes that the first process passed; what the others pass is not read.

    >>> from_first(b"key")
    b'key'
    """
    if processes() == 1:
        return content
    length = _broadcast(len(content).to_bytes(8, "little"))
    return _broadcast(content if is_first() else bytes(int.from_bytes(length, "little")))


@contextmanager
def failing_together() -> Iterator[None]:
    """Whatever error any process has in this context, every process raises; all have to enter it together.

    So none waits for another that has ended. Inside, no process may wait for the others.

    >>> with failing_together():
    ...     raise PateError("teachers=0 must be at least 1")
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: teachers=0 must be at least 1
    """
    if processes() == 1:
        yield
        return
    try:
        yield
    except BaseException as error:
        _first_error(sentence(error))
        error.add_note(_KNOWN)
        raise
    if said := _first_error(""):
        known = PateError(said)
        known.add_note(_KNOWN)
        raise known


def knows_of(error: BaseException) -> bool:
    """Whether every process knows of an error: `failing_together` raised it.

    >>> knows_of(PateError("teachers=0 must be at least 1"))
    False
    """
    return _KNOWN in getattr(error, "__notes__", [])


def sentence(error: BaseException) -> str:
    """What the other processes say of an error that one of them had."""
    if isinstance(error, PateError):
        return str(error)
    return f"process {index()} ended ({error!r}): repeat the same command in every process"


def _first_error(own: str) -> str:
    """The first process's error that has one, by their sentences; empty where none has."""
    import numpy as np

    said = np.frombuffer(own.encode(errors="replace") + b"\0", np.uint8)
    return next((one.decode() for one in rows_of_all(said).tobytes().split(b"\0") if one), "")


def rows_of_all(array: Any) -> Any:
    """The rows of every process's host array, in the order of processes; their numbers of rows may differ.

    >>> import numpy as np
    >>> rows_of_all(np.array([[2, 5]])).tolist()
    [[2, 5]]
    """
    if processes() == 1:
        return array
    import numpy as np

    counts = _from_all(np.array(len(array)))
    padded = np.zeros((int(counts.max()), *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    gathered = _from_all(padded)
    return np.concatenate([part[:count] for part, count in zip(gathered, counts, strict=True)])


def shard_batch(array: Any, count: int | None = None) -> Any:
    """An array (or a tree of them) spread over this process's devices along its first axis."""
    import jax
    import numpy as np

    chosen = local(count)
    mesh = jax.sharding.Mesh(np.array(chosen), ("batch",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    for leaf in jax.tree.leaves(array):
        if leaf.shape[0] % len(chosen):
            raise PateError(
                f"a batch of {leaf.shape[0]} does not divide by {len(chosen)} devices; pad it first"
            )
    return jax.device_put(array, spread)


def sum_over_processes(array: Any) -> Any:
    """The sum of all processes' host arrays, which share shape and type; with one process, the array itself.

    >>> import numpy as np
    >>> sum_over_processes(np.array([2, 5])).tolist()
    [2, 5]
    """
    return array if processes() == 1 else _from_all(array).sum(axis=0, dtype=array.dtype)


def _broadcast(content: bytes) -> bytes:
    """The first process's bytes, of as many as every process passes."""
    import numpy as np
    from jax.experimental import multihost_utils

    received = multihost_utils.broadcast_one_to_all(np.frombuffer(content, np.uint8))
    return np.asarray(received, np.uint8).tobytes()


def _from_all(array: Any) -> Any:
    """Every process's host array, stacked; as bytes, since JAX would make 32 bits of numbers that have 64."""
    import numpy as np
    from jax.experimental import multihost_utils

    sent = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    blocks = [sent[start : start + _BLOCK] for start in range(0, max(1, len(sent)), _BLOCK)]
    received = [np.asarray(multihost_utils.process_allgather(block), np.uint8) for block in blocks]
    gathered = np.concatenate([one.reshape(processes(), -1) for one in received], axis=1)
    return gathered.reshape(-1).view(array.dtype).reshape(processes(), *array.shape)


def programs_folder() -> Path:
    """Where programs are kept, unless JAX_COMPILATION_CACHE_DIR names another place.

    >>> programs_folder().name
    'programs'
    """
    return Path.home() / ".cache" / "pate_jax" / "programs"


def keep_programs(flags: Sequence[str]) -> None:
    """Keep programs in the user's cache folder; with `--compile-anew` take none from it and keep none."""
    if ANEW in flags:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return
    if "JAX_COMPILATION_CACHE_DIR" in os.environ or os.environ.get("JAX_ENABLE_COMPILATION_CACHE") == "false":
        return
    try:
        place = programs_folder()
    except RuntimeError:  # no home is known, as of some containers' users: then each run compiles
        return
    there = next(parent for parent in (place, *place.parents) if os.path.exists(parent))
    if not os.access(there, os.W_OK):  # the home of some containers
        return
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    trim(place, _LIMIT)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(place)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def trim(place: Path, limit: int) -> None:
    """Remove the oldest files of a folder until the others hold at most `limit` bytes."""
    files = sorted((file.stat().st_mtime, file.stat().st_size, file) for file in place.iterdir())
    held = sum(size for _, size, _ in files)
    for _, size, file in files:
        if held <= limit:
            return
        file.unlink(missing_ok=True)  # another run may trim at the same moment
        held -= size
