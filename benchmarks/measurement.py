"""What the benchmarks share: what a figure was taken on, and the file that it is added to."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pate_jax.system import devices

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, and the versions of Python, JAX and NumPy."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = (line.split(": ")[1] for line in lines if line.startswith("model name"))
    return {
        "machine": next(names, platform.processor()),
        "cores": devices.cores(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }


def add(benchmark: str, line: Mapping[str, Any]) -> None:
    """Print a line and append it to the results of a benchmark."""
    text = json.dumps(line)
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{benchmark}.jsonl").open("a") as stream:
        stream.write(text + "\n")
