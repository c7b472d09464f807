"""How many devices there are, who decides, and how a batch is spread."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils

from pate_jax.errors import PateError
from pate_jax.system import devices


def devices_of(flags, call):
    script = "from pate_jax.system import devices; "
    script += f"print(devices.{call}); import jax; print(len(jax.devices()))"
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.mark.long
def test_a_core_becomes_a_device_before_jax_starts():
    assert devices_of("", "prepare(3)") == ["True", "3"]


@pytest.mark.long
def test_the_users_own_flags_win():
    assert devices_of("--xla_force_host_platform_device_count=2", "prepare(3)") == ["False", "2"]


def test_other_flags_are_kept(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    monkeypatch.setattr(devices, "_started", lambda: False)
    assert devices.prepare(2)
    assert os.environ["XLA_FLAGS"].split() == [
        "--xla_cpu_enable_fast_math=false",
        devices.host_devices_flag(2),
        "--xla_gpu_deterministic_ops=true",
    ]


def test_once_jax_runs_it_is_too_late():
    jax.devices()
    assert not devices.prepare(3)


def test_the_flag_counts_cores_unless_told():
    assert devices.host_devices_flag() == devices.host_devices_flag(devices.cores())


def test_the_first_devices_are_taken():
    assert devices.local(3) == jax.local_devices()[:3]
    assert devices.local() == jax.local_devices()


@pytest.mark.parametrize("count", [0, 99])
def test_devices_that_are_not_there_are_refused(count):
    with pytest.raises(PateError, match=f"devices={count}"):
        devices.local(count)


def test_a_batch_is_spread_over_devices():
    spread = devices.shard_batch(np.arange(12.0).reshape(6, 2), 3)
    assert [piece.data.shape for piece in spread.addressable_shards] == [(2, 2)] * 3
    assert np.array_equal(spread, np.arange(12.0).reshape(6, 2))
    with pytest.raises(PateError, match="7"):
        devices.shard_batch(np.zeros((7, 2)), 3)


def test_kept_memory_gives_memory_back_at_its_end():
    def resident() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc")
    before = resident()
    with devices.kept_memory():
        for _ in range(3):
            np.ones(2**26, np.uint8)
    assert resident() - before < 2**15  # KiB: half of one array


@pytest.mark.parametrize("shape", [(5, 3), (4, 2), (0, 3), ()])
def test_what_processes_exchange_comes_in_blocks_and_whole(monkeypatch, shape):
    """Of three processes, each later one holds the bytes of the one before, and one more in each."""
    sizes = []

    def gathered(block):
        sizes.append(len(block))
        return np.stack([block, block + 1, block + 2])

    monkeypatch.setattr(multihost_utils, "process_allgather", gathered)
    monkeypatch.setattr(devices, "processes", lambda: 3)
    monkeypatch.setattr(devices, "_BLOCK", 32)
    sent = np.random.default_rng(1).integers(0, 1 << 40, shape)
    received = devices._from_all(sent)
    assert received.shape == (3, *shape) and received.dtype == np.int64
    for more, one in enumerate(received):
        bytes_of_one = np.frombuffer(sent.tobytes(), np.uint8) + np.uint8(more)
        assert one.tobytes() == bytes_of_one.tobytes()
    assert sum(sizes) == sent.nbytes and max(sizes) <= 32
