"""Where the seconds of the tests go: preparing, running and compiling, by file and by program."""

import sys
import time
from collections import Counter

import pytest

_COMPILING = "/jax/core/compile/"  # JAX's own events: tracing, lowering, and XLA or its cache
_LOWERING = "/jax/core/compile/jaxpr_to_mlir_module_duration"  # once for each program and shape
_DEAREST = 10  # files and programs that are listed
_BEGUN = time.perf_counter()


class Timings:
    """Of one process. Its tests tell the main process by their reports what they took."""

    def __init__(self):
        self.compiled, self.listens = 0.0, False
        self.programs, self.times = Counter(), Counter()  # seconds of compiling, and how often, by name
        self.inner = []  # when each event began that may lie within one that has not ended, and its seconds
        self.collected, self.ended = {}, {}  # seconds since a process began, by its name

    def pytest_collection_finish(self, session):
        """All tests of this process are known."""
        self.collected["main"] = time.perf_counter() - _BEGUN

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        """A report tells how much of its time JAX has compiled."""
        if not self.listens and "jax" in sys.modules:
            from jax import monitoring

            monitoring.register_event_duration_secs_listener(self._heard)
            self.listens = True
        outcome = yield
        outcome.get_result().user_properties.append(("compiling", self.compiled))
        self.compiled = 0.0

    def _heard(self, event, seconds, fun_name="", **_):
        if event.startswith(_COMPILING):
            fun_name = fun_name.removeprefix("jit(").removesuffix(")")  # tracing says the name alone
            own = self._own(time.perf_counter() - seconds, seconds)
            self.compiled += own
            self.programs[fun_name] += own
            self.times[fun_name] += event == _LOWERING

    def _own(self, began, seconds):
        """The seconds of an event without those of events within it: a program is traced within another."""
        own = seconds
        while self.inner and self.inner[-1][0] >= began:
            own -= self.inner.pop()[1]
        self.inner.append((began, seconds))
        return max(own, 0.0)

    def pytest_sessionfinish(self, session):
        """A process of xdist tells when it had collected and when it ended."""
        if hasattr(session.config, "workeroutput"):
            now = time.perf_counter() - _BEGUN
            session.config.workeroutput["timings"] = self.collected["main"], now
            session.config.workeroutput["programs"] = dict(self.programs), dict(self.times)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):
        """The main process hears it."""
        if "timings" in getattr(node, "workeroutput", {}):
            self.collected[node.gateway.id], self.ended[node.gateway.id] = node.workeroutput["timings"]
            for own, found in zip((self.programs, self.times), node.workeroutput["programs"], strict=True):
                own.update(found)

    def pytest_terminal_summary(self, terminalreporter):
        """The dearest files, the sum of compiling, and how long the processes collected and lived."""
        every = [one for some in terminalreporter.stats.values() for one in some]
        reports = [
            one for one in every if isinstance(one, pytest.TestReport)
        ]  # not of files or left-out tests
        spent = Counter()
        for report in reports:
            file = report.nodeid.partition("::")[0]
            compiling = dict(report.user_properties).get("compiling", 0.0)  # a process that died tells none
            phase = "running" if report.when == "call" else "preparing"
            spent.update({(file, phase): report.duration, (file, "compiling"): compiling})
        files = Counter()
        for (file, phase), seconds in spent.items():
            files[file] += seconds if phase != "compiling" else 0.0
        terminalreporter.section("where the seconds went")
        write = terminalreporter.write_line
        write(f"{'file':<60}{'all':>9}{'preparing':>11}{'running':>9}{'compiling':>11}")
        rows = [*files.most_common(_DEAREST), ("all files", files.total())]
        for file, seconds in rows:
            phases = ("preparing", "running", "compiling")
            each = [
                sum(spent[one, phase] for one in (files if file == "all files" else [file]))
                for phase in phases
            ]
            write(f"{file:<60}{seconds:>9.1f}{each[0]:>11.1f}{each[1]:>9.1f}{each[2]:>11.1f}")
        for name, seconds in self.programs.most_common(_DEAREST):
            write(f"{f'  program {name}, lowered {self.times[name]} times':<91}{seconds:>11.1f}")
        lives = (
            f"{name}: {at:.1f} to {self.ended[name]:.1f}"
            for name, at in self.collected.items()
            if name in self.ended
        )
        write(
            "tests began and ended, in seconds since their process did: "
            + ("; ".join(lives) or f"{self.collected.get('main', 0):.1f}")
        )
