"""Eigensystems: right, on one thread, and the number of threads is afterwards what it was."""

import json
import os
import subprocess
import sys

import numpy as np

from pate_jax.system import eigen

WATCHED = """
import json
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from threadpoolctl import threadpool_info
from pate_jax.system.eigen import eigensystem

def threads():
    return sorted({library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"})

def looking(matrix):
    seen.append(threads())
    return real(matrix)

seen, real, np.linalg.eigh = [threads()], np.linalg.eigh, looking
eigensystem(np.eye(3))
with ThreadPoolExecutor(4) as pool:
    list(pool.map(eigensystem, [np.eye(60)] * 12))
print(json.dumps([*seen, threads()]))
"""


def test_directions_are_orthonormal_and_stretched_by_their_values():
    numbers = np.random.default_rng(0).normal(size=(30, 30))
    matrix = numbers + numbers.T
    values, directions = eigen.eigensystem(matrix)
    assert np.allclose(matrix @ directions, directions * values)
    assert np.allclose(directions.T @ directions, np.eye(30)) and (np.diff(values) >= 0).all()


def test_it_takes_one_thread_and_leaves_the_others_as_they_were():
    """In a process with two, also where several threads ask at once."""
    variables = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    child = subprocess.run(
        [sys.executable, "-c", WATCHED], env=variables, capture_output=True, text=True, check=True
    )
    before, *during, after = json.loads(child.stdout)
    assert before == after == [2] and during == [[1]] * 13
