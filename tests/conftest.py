"""Eight fake CPU devices, strict keys, a Ctrl-C that reaches commands, and compiled programs kept on disk."""

import atexit
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import bytecode
import forgetting
import hypothesis
import pytest
import quick_compiler
import scheduling
import shapes
import timings

CACHE = Path(__file__).parents[1] / ".jax_cache"
bytecode.keep(CACHE / "bytecode")

# Tests write some 30,000 small files and remove them again, which a disk takes half a minute for.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# XLA_FLAGS=--xla_force_host_platform_device_count=8 gives the tests the compiler as users have it.
if "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = quick_compiler.flags()
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # there is a process for each core already
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DEBUG_KEY_REUSE", "1")
# The tests and the commands that they start share compiled programs, also with the next run of the tests.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.02")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

os.fsync = lambda _: (
    None
)  # in this process: no test cuts the power, and children that are killed keep their own

gc.disable()  # until all tests are known
gc.set_threshold(50_000, 20, 100)  # looking for garbage among what tracing makes takes a sixth of the time

shapes.install()
forgetting.install()

# A shell that starts the tests in the background lets them ignore Ctrl-C, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

DRAWN: dict[tuple, object] = {}
NUMBERS = itertools.count()
PICTURED = {f"test_{name}.py" for name in ("plots", "report_student", "browser", "experiments", "sweep")}
MAPS = 25_000  # of the 65,530 memory maps that Linux allows a process; each compiled program holds some

for name, examples in (("quick", 25), ("thorough", 100)):  # CI takes the thorough one; both repeat themselves
    hypothesis.settings.register_profile(name, max_examples=examples, deadline=None, derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_configure(config):
    """All processes tell what tests took, and share the runs of tests/honest_runs.py; CI's sessions do."""
    config.pluginmanager.register(timings.Timings())
    if "PATE_HONEST_RUNS" not in os.environ:
        os.environ["PATE_HONEST_RUNS"] = tempfile.mkdtemp(prefix="pate-runs-")
        config.add_cleanup(lambda: shutil.rmtree(os.environ.pop("PATE_HONEST_RUNS"), ignore_errors=True))


def pytest_collection_finish():
    """No search for garbage looks again at what lives as long as the process: libraries and the tests."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup():
    """Whichever test has loaded JAX, those after it lower their programs faster."""
    quick_compiler.share_contexts()


def pytest_unconfigure(config):
    """A process of xdist takes ten seconds to give back all its memory, and the main one waits for that."""
    if hasattr(config, "workerinput"):
        atexit.register(_leave, os.getpid())


def _leave(process):
    if os.getpid() == process:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Tests that share programs go to one process."""
    return scheduling.scheduler(config, log)


@pytest.fixture(autouse=True, scope="module")
def _drawn_once(request):
    """A process draws each synthetic part once, except in the tests of the data."""
    if "data" in request.path.parts[-2:]:
        yield
        return
    from pate_jax.data import synthetic

    real = synthetic._part

    def part(name, records, font, difficulty, progress):
        key = name, records, font.classes, difficulty
        if key not in DRAWN:
            DRAWN[key] = real(name, records, font, difficulty, progress)
            DRAWN[key].inputs.setflags(write=False)
            DRAWN[key].labels.setflags(write=False)
        return DRAWN[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "_part", part)
        yield


@pytest.fixture(autouse=True, scope="module")
def _own_register(tmp_path_factory):
    """Each module has a register of its own, which the commands that it starts use too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _register_of_a_test(_own_register):
    """Runs of a test are entered beside no others: those of its module's fixtures know their own register."""
    kept = os.environ["XDG_STATE_HOME"]
    os.environ["XDG_STATE_HOME"] = str(Path(kept, f"test-{next(NUMBERS)}"))
    yield
    os.environ["XDG_STATE_HOME"] = kept


@pytest.fixture(autouse=True, scope="module")
def _pictures_where_they_are_looked_at(request):
    """Drawing takes long, and most tests never look at a picture of a page."""
    if request.path.name not in PICTURED:
        request.getfixturevalue("without_pictures")


@pytest.fixture(scope="module")
def without_pictures():
    """Pages with empty pictures."""
    import matplotlib.figure

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matplotlib.figure.Figure, "savefig", lambda self, out, **_: out.write(b"<svg/>"))
        yield


@pytest.fixture
def small_nets():
    """Narrow nets, few typical patches and empty pictures: for runs that have to stand, not to be right."""
    from functools import partial

    import matplotlib.figure

    from pate_jax.models import nets, patches
    from pate_jax.student import serving
    from pate_jax.student.methods import nets as students

    kept = (nets._build, serving._wanted_shapes, students._program)

    def small(name, size):
        widths = isinstance(size, tuple)
        return tuple(max(8, width // 4) for width in size) if widths else few.get(name, size)

    few = {"kinds": 12, "cells": 3}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patches, "learn", partial(patches.learn, **few))
        patch.setattr(patches, "_SAMPLE", 5000)
        patch.setattr(matplotlib.figure.Figure, "savefig", lambda self, out, **_: out.write(b"<svg/>"))
        for _, sizes in nets.NETS.values():
            for name, size in [*sizes.items()]:
                patch.setitem(sizes, name, small(name, size))
        for each in kept:
            each.cache_clear()
        yield
    for each in kept:
        each.cache_clear()


@pytest.fixture(autouse=True, scope="module")
def _forget_compiled_programs():
    """Programs are forgotten when a module ends with many of them."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > MAPS:
        import jax

        jax.clear_caches()


def pytest_terminal_summary(terminalreporter):
    """The mutations that were tried, in whichever process, and what caught each."""
    ended = [report for report in terminalreporter.stats.get("", ()) if report.when == "teardown"]
    tried = [told for report in ended for name, told in report.user_properties if name == "mutation"]
    if tried:
        terminalreporter.section("mutations")
        for mistake, finding in tried:
            terminalreporter.write_line(f"  {mistake:<72} {(finding or 'NOT CAUGHT')[:110]}")
        caught = sum(finding is not None for _, finding in tried)
        terminalreporter.write_line(f"caught {caught} / injected {len(tried)}")
