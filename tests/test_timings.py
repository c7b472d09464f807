from types import SimpleNamespace

import timings
from _pytest.reports import CollectReport, TestReport


def told(*reports):
    """The lines that end tests with these reports, split into words by the first of them."""
    lines = []
    reports = [*reports, SimpleNamespace(user_properties=[])]  # as a test that was left out
    reporter = SimpleNamespace(stats={"": reports}, section=lines.append, write_line=lines.append)
    timings.Timings().pytest_terminal_summary(reporter)
    return {line.split()[0]: line.split()[1:] for line in lines[:-1]}


def report(name, when, seconds, properties=()):
    return TestReport(
        name, ("", 0, ""), {}, "passed", None, when, user_properties=properties, duration=seconds
    )


def test_seconds_are_summed_by_file_and_phase():
    lines = told(
        report("a.py::one", "setup", 1.0, [("compiling", 0.5)]),
        report("a.py::one", "call", 2.0, [("compiling", 0.25)]),
        report("b.py::two", "call", 4.0, [("compiling", 0.0)]),
    )
    assert [*lines][2:] == ["b.py", "a.py", "all"]  # the dearest first
    assert lines["a.py"] == ["3.0", "1.0", "2.0", "0.8"]
    assert lines["all"][1:] == ["7.0", "1.0", "6.0", "0.8"]


def test_files_that_fail_to_import_and_processes_that_died_do_not_hide_the_other_reports():
    lines = told(
        CollectReport("broken.py", "failed", "no module", []),
        report("died.py::one", "???", 0.0),
        report("a.py::one", "call", 2.0, [("compiling", 0.25)]),
    )
    assert "broken.py" not in lines
    assert lines["died.py"] == ["0.0"] * 4
    assert lines["a.py"] == ["2.0", "0.0", "2.0", "0.2"]


def test_what_is_traced_within_another_program_counts_once(monkeypatch):
    heard, clock = timings.Timings(), iter((3.0, 5.0, 5.5))
    monkeypatch.setattr(timings.time, "perf_counter", lambda: next(clock))
    for seconds, name in ((1.0, "inner"), (4.0, "outer"), (0.25, "next")):
        heard._heard("/jax/core/compile/jaxpr_trace_duration", seconds, fun_name=name)
    assert heard.programs == {"inner": 1.0, "outer": 3.0, "next": 0.25} and heard.compiled == 4.25


def test_programs_are_listed_by_what_compiling_them_took(monkeypatch):
    heard, lines, clock = timings.Timings(), [], iter((1.5, 3.5))  # one event after the other
    monkeypatch.setattr(timings.time, "perf_counter", lambda: next(clock))
    for event, seconds, name in (("jaxpr_trace", 1.5, "draw"), ("jaxpr_to_mlir_module", 2.0, "jit(draw)")):
        heard._heard(f"/jax/core/compile/{event}_duration", seconds, fun_name=name)
    heard._heard("/jax/compilation_cache/cache_retrieval_time_sec", 9.0)
    monkeypatch.undo()
    reporter = SimpleNamespace(stats={}, section=lines.append, write_line=lines.append)
    heard.pytest_terminal_summary(reporter)
    assert [line.split() for line in lines if "draw" in line] == [
        ["program", "draw,", "lowered", "1", "times", "3.5"]
    ]
