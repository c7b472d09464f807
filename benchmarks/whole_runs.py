"""Where the time of whole commands goes: share of each stage, compilation, peak memory, disk.

    python benchmarks/whole_runs.py                                   # all cases; wants a quiet machine
    python benchmarks/whole_runs.py --cases strokes table --busy
    python benchmarks/whole_runs.py --cases mnist --manual-dir DIR    # the four original archives

Each case runs twice, each time in a process of its own: `first` on a machine that keeps no compiled program
yet (a new home folder), `second` with what the first left there. A stage is a function of the pipeline.
Stages are in seconds of CPU time, which other programs on the machine disturb little, and a stage within
another one counts for itself only. `start` is everything before the command begins, the imports among it;
`rest` is what is in no stage. `compile_s` is the time that XLA took, within the stages. Lines are appended
to benchmarks/results/whole_runs.jsonl.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import measurement
import numpy as np

CROWD = {
    "data": "pate_jax.runs.crowds.stages.begin",
    "choice": "pate_jax.runs.crowds.choice.decided",
    "release": "pate_jax.runs.crowds.release.release",
    "account": "pate_jax.runs.crowds.stages.account",
    "student": "pate_jax.runs.crowds.stages.teach",
    "report": "pate_jax.runs.results.tell_plain",
}
TEACHERS = {
    "plan": "pate_jax.runs.teacher_plan.settled",
    "data": "pate_jax.runs.stages.begin",
    "train": "pate_jax.runs.stages.train",
    "vote": "pate_jax.runs.stages.vote",
    "answer": "pate_jax.runs.batches.answer",
    "account": "pate_jax.runs.stages.account",
    "student": "pate_jax.runs.stages.teach",
    "report": "pate_jax.runs.stages.tell",
}
AGGREGATE = {
    "read": "pate_jax.voting.votes._read",
    "check": "pate_jax.voting.votes._checked",
    "adopt": "pate_jax.runs.batches.adopt",
    "answer": "pate_jax.runs.batches.answer",
    "draw": "pate_jax.runs.batches.draw",
    "digest": "pate_jax.system.storage.digest",
    "write": "pate_jax.system.storage.write_arrays",
}
ACCOUNT = {
    "read": "pate_jax.voting.votes._read",
    "check": "pate_jax.voting.votes._checked",
    "statement": "pate_jax.accounting.statement",
}
BYTECODE = str(Path(__file__).parents[1] / ".jax_cache" / "bytecode")
COMPILING = ("jaxpr_trace", "jaxpr_to_mlir", "backend_compile")
ROWS, QUERIES, HISTOGRAMS = 100_000, 1_000_000, 1_000


def table(folder: Path) -> list[str]:
    """A table of 100,000 private rows with 20 columns, whose label depends on ten of them."""
    rng = np.random.default_rng(0)
    paths = []
    for name, rows in (("private", ROWS), ("public", 10_000), ("test", 5_000)):
        inputs = rng.normal(size=(rows, 20)).astype(np.float32)
        labels = (inputs[:, :10].sum(1) + 2 * rng.normal(size=rows) > 0).astype(np.int32)
        path = folder / f"{name}.npz"
        np.savez(path, inputs=inputs, labels=labels, ids=np.array([f"{name}-{row}" for row in range(rows)]))
        paths += [f"--{name}", str(path)]
    return ["run", *paths, "--out", str(folder / "run")]


def votes(folder: Path, command: str) -> list[str]:
    """A million queries to 250 teachers, with 1,000 different histograms: answered, or accounted for."""
    rng = np.random.default_rng(0)
    kinds = rng.multinomial(250, rng.dirichlet(np.full(10, 0.2), HISTOGRAMS))
    path = folder / "votes.npz"
    np.savez(path, votes=kinds[rng.integers(0, HISTOGRAMS, QUERIES)].astype(np.uint8))
    noise = ["confident-discrete-gaussian", "--threshold", "200", "--sigma-threshold", "150", "--sigma", "40"]
    where = ["--relation", "record", "--out", str(folder / "run")] if command == "aggregate" else ["--no-pld"]
    return [command, str(path), *where, *noise]


def case(name: str, folder: Path, manual: Path | None) -> list[str]:
    """The words of a case's command; what it reads is made in the folder."""
    if name == "table":
        return table(folder)
    if name in ("aggregate", "account"):
        return votes(folder, name)
    words = ["run", *([name] if name == "mnist" else []), "--out", str(folder / "run")]
    few = ["--teachers", "100", "--queries", "500", "--epochs", "5", "discrete-gaussian", "--sigma", "20"]
    data = ["--data-dir", str(folder / "data"), *(["--manual-dir", str(manual)] if manual else [])]
    return [*words, *(data if name == "mnist" else []), *(few if name == "teachers" else [])]


CASES = ("strokes", "mnist", "table", "aggregate", "account", "teachers")


def stages(words: list[str]) -> dict[str, str]:
    """The stages of a command and their functions."""
    if words[0] == "run":
        return TEACHERS if "--teachers" in words else CROWD
    return AGGREGATE if words[0] == "aggregate" else ACCOUNT


def cpu() -> float:
    """Seconds of CPU time of this process and of those that it has waited for."""
    spent = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in spent)


class Clock:
    """CPU seconds of each stage, without those of the stages within it."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._running: list[str] = []
        self._since = cpu()

    def _switch(self) -> None:
        now = cpu()
        self.spent[self._running[-1] if self._running else "rest"] += now - self._since
        self._since = now

    def add(self, place: str, name: str) -> None:
        """Measure a function as this stage from now on."""
        module, function = place.rsplit(".", 1)
        owner = importlib.import_module(module)
        real = getattr(owner, function)

        def measured(*arguments: Any, **named: Any) -> Any:
            self._switch()
            self._running.append(name)
            try:
                return real(*arguments, **named)
            finally:
                self._switch()
                self._running.pop()

        setattr(owner, function, measured)

    def begin(self) -> None:
        """All that came before is the start of the process."""
        self.spent, self._since = defaultdict(float, start=cpu()), cpu()

    def end(self) -> dict[str, float]:
        """The stages of all that came since."""
        self._switch()
        return self.spent


def command(words: list[str]) -> None:
    """In a process of its own: run a command and print what its stages took."""
    began = float(os.environ["BEGAN"])
    from pate_jax import cli
    from pate_jax.system import devices

    devices.keep_programs(words)
    clock, compiling = Clock(), [0.0]
    for name, place in stages(words).items():
        clock.add(place, name)
    if words[0] != "account":
        import jax

        def compiled(event: str, seconds: float, **_: Any) -> None:
            compiling[0] += seconds * any(part in event for part in COMPILING)

        jax.monitoring.register_event_duration_secs_listener(compiled)
    clock.begin()
    code = cli.main(words)
    spent = clock.end()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = {"code": code, "wall": time.time() - began, "stages": spent, "peak_gib": peak}
    print("MEASURED " + json.dumps({**line, "compile": compiling[0]}), flush=True)


def environment(home: Path) -> dict[str, str]:
    """That of a user with this home folder: nothing says where programs are kept, and bytecode is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("JAX_COMPILATION")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache"), "PYTHONPYCACHEPREFIX": BYTECODE}


def warm_up(words: list[str], home: Path) -> None:
    """Import what a command imports, so that Python has its bytecode, as after an installation."""
    modules = {"jax", *(place.rsplit(".", 1)[0] for place in stages(words).values())}
    lines = [f"import {module}" for module in ("pate_jax.cli.run", "matplotlib.figure", *sorted(modules))]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], env=environment(home), check=True)


def run(words: list[str], home: Path) -> dict[str, Any]:
    """One process of a user with this home folder, and its line."""
    done = subprocess.run(
        [sys.executable, __file__, "--command", *words],
        env={**environment(home), "BEGAN": str(time.time())},
        stdout=subprocess.PIPE,
        text=True,
    )
    line: dict[str, Any] = json.loads(done.stdout.rpartition("MEASURED ")[2] or "{}")
    if done.returncode or line.get("code"):
        sys.exit(f"pate {' '.join(words)} failed: see above")
    return line


def told(line: dict[str, Any]) -> dict[str, Any]:
    """What is recorded of one process: stages that took longer come first."""
    spent = sorted(line["stages"].items(), key=lambda stage: -stage[1])
    return {
        "wall_s": round(line["wall"], 1),
        "cpu_s": round(sum(line["stages"].values()), 1),
        "compile_s": round(line["compile"], 1),
        "peak_gib": round(line["peak_gib"], 2),
        "stages_cpu_s": {stage: round(seconds, 2) for stage, seconds in spent},
    }


def size(folder: Path) -> float:
    """MiB of all files in a folder."""
    return round(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 2**20, 1)


def measured(name: str, manual: Path | None) -> dict[str, Any]:
    """A case twice: without and with the programs that the first run left."""
    with tempfile.TemporaryDirectory() as place:
        folder, home = Path(place), Path(place) / "home"
        home.mkdir()
        words, found = case(name, folder, manual), {}
        warm_up(words, folder)
        for turn in ("first", "second"):
            shutil.rmtree(folder / "run", ignore_errors=True)
            found[turn] = told(run(words, home))
        kept = {"disk_mib": size(folder / "run"), "programs_mib": size(home / ".cache")}
        return {"case": name, **found, **kept}


def main() -> None:
    if sys.argv[1:2] == ["--command"]:
        command(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--manual-dir", type=Path, help="where MNIST's archives lie; unset: they are downloaded"
    )
    measurement.add_busy(parser)
    chosen = parser.parse_args()
    load = measurement.load(chosen.busy)
    for name in chosen.cases:
        measurement.add(
            "whole_runs", {**measurement.machine(), "load": load, **measured(name, chosen.manual_dir)}
        )


if __name__ == "__main__":
    main()
