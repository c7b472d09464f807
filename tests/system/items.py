"""What workers do in tests. They import this file, and so it imports little."""

import os
import signal
import time
import warnings

from pate_jax.errors import PateError, PateWarning
from pate_jax.system import tasks


def doubled(number):
    if number == 3:
        warnings.warn("three is a lot", PateWarning, stacklevel=2)
    return 2 * number, os.getpid()


def refused(number):
    raise PateError(f"number={number} must be even")


def killed_once(path):
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name


def squared_slowly(number):
    time.sleep(0.4)
    return number**2


def surroundings(_):
    return os.getcwd(), os.environ["XLA_FLAGS"], os.environ["OMP_NUM_THREADS"]


@tasks.opened_once
def content(path):
    return path.read_text()


def read(path):
    return content(path)
