"""No test and no doctest writes into a user's home: the register of runs lies in a temporary folder."""

import os
import shutil
import tempfile


def pytest_configure(config):
    """A folder for this session; the processes of a session have one each."""
    os.environ["XDG_STATE_HOME"] = folder = tempfile.mkdtemp(prefix="pate-state-")
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
