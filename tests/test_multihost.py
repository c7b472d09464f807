"""Two processes of four devices each vote as one process does; each keeps its own teachers."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import devices, ensemble

HERE = Path(__file__).parent


def votes(directory=None):
    (inputs, labels), (asked, _) = tiny.table(), tiny.table(records=70, seed=5)
    net = tiny.table_net()
    teachers = ensemble.fit(
        net, tiny.Same(), inputs, labels, tiny.shards(),
        key=jax.random.key(3), config=tiny.config(width=1), directory=directory,
    )  # fmt: skip
    return ensemble.vote(net, tiny.Same(), teachers, asked), teachers


def one_of_two(address, index, folder):
    """What each of the two processes does."""
    devices.join(address, 2, int(index))
    found, teachers = votes(Path(folder) / "teachers")
    np.savez(
        Path(folder) / f"votes{index}.npz", votes=found, ids=teachers.ids, devices=jax.local_device_count()
    )


@pytest.mark.long
def test_two_processes_vote_as_one(tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE}",
    }
    script = "import sys, test_multihost; test_multihost.one_of_two(*sys.argv[1:])"
    running = [
        subprocess.Popen([sys.executable, "-c", script, address, str(index), str(tmp_path)], env=environment)
        for index in (0, 1)
    ]
    try:
        assert [process.wait(300) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
    expected, whole = votes()
    first, second = (dict(np.load(tmp_path / f"votes{index}.npz")) for index in (0, 1))
    assert np.array_equal(first["votes"], expected)
    assert np.array_equal(second["votes"], expected)
    assert expected.sum(axis=1).tolist() == [len(tiny.COUNTS)] * 70
    assert [*first["ids"], *second["ids"]] == whole.ids.tolist()
    assert len(first["ids"]) in (5, 6)
    assert {path.name for path in (tmp_path / "teachers").iterdir()} == {"process-000", "process-001"}
