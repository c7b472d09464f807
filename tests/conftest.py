"""Eight fake CPU devices, strict keys for every test, and a Ctrl-C that reaches the commands tests start."""

import os
import signal

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DEBUG_KEY_REUSE", "1")

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
