"""Eight fake CPU devices, strict keys, a Ctrl-C that reaches commands, and no end of compiled programs."""

import os
import signal

import pytest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DEBUG_KEY_REUSE", "1")

import jax

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """A module's programs go when it ends: each holds memory maps, of which Linux allows a process 65,530."""
    yield
    jax.clear_caches()
