"""Where the time of whole commands goes: share of each stage, compilation, peak memory, disk.

    python benchmarks/whole_runs.py                                   # all cases; wants a quiet machine
    python benchmarks/whole_runs.py --cases strokes table --busy
    python benchmarks/whole_runs.py --cases mnist --manual-dir DIR    # the four original archives

Each case is a process of its own, which starts without compiled programs (`first`) and then with those
that it left (`second`). A stage is a function of the pipeline; `start` is everything before the command
begins, the imports among it. Lines are appended to benchmarks/results/whole_runs.jsonl.
"""

from __future__ import annotations

import argparse
import contextlib
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
    "report": "pate_jax.runs.crowds.stages.tell",
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


def timed(place: str, name: str, spent: dict[str, float]) -> None:
    """Add what a function takes to its stage."""
    module, function = place.rsplit(".", 1)
    owner = importlib.import_module(module)
    real = getattr(owner, function)

    def measured(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            stack.callback(lambda: spent.update({name: spent[name] + time.perf_counter() - began}))
            return real(*arguments, **named)

    setattr(owner, function, measured)


def command(words: list[str]) -> None:
    """In a process of its own: run a command and print what its stages took."""
    began = float(os.environ["BEGAN"])
    from pate_jax import cli

    spent: dict[str, float] = defaultdict(float)
    if words[0] == "run":
        for name, place in (TEACHERS if "--teachers" in words else CROWD).items():
            timed(place, name, spent)
        import jax

        def compiled(event: str, seconds: float, **_: Any) -> None:
            if any(part in event for part in COMPILING):
                spent["compile (in the stages)"] += seconds

        jax.monitoring.register_event_duration_secs_listener(compiled)
    start = time.time() - began
    code = cli.main(words)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = {"code": code, "start": start, "wall": time.time() - began, "stages": spent, "peak_gib": peak}
    print("MEASURED " + json.dumps(line), flush=True)


def run(words: list[str], cache: Path) -> dict[str, Any]:
    """One process, and its line."""
    environment = {**os.environ, "BEGAN": str(time.time()), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.1"}
    done = subprocess.run(
        [sys.executable, __file__, "--command", *words], env=environment, stdout=subprocess.PIPE, text=True
    )
    line: dict[str, Any] = json.loads(done.stdout.rpartition("MEASURED ")[2] or "{}")
    if done.returncode or line.get("code"):
        sys.exit(f"pate {' '.join(words)} failed: see above")
    return line


def measured(name: str, manual: Path | None) -> dict[str, Any]:
    """A case twice: without and with the programs that the first run left."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        words, found = case(name, folder, manual), {}
        for turn in ("first", "second"):
            shutil.rmtree(folder / "run", ignore_errors=True)
            line = run(words, folder / "programs")
            stages = line["stages"]
            rounded = {stage: round(seconds, 2) for stage, seconds in stages.items()}
            found[turn] = {"wall_s": round(line["wall"], 1), "start_s": round(line["start"], 1), **rounded}
        disk = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
        return {
            "case": name,
            **found,
            "peak_gib": round(line["peak_gib"], 2),
            "disk_mib": round(disk / 2**20, 1),
        }


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
