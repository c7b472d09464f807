"""How long commands take before they do anything: CPU seconds, and which imports are left.

    python benchmarks/startup.py [--repeats 7]

CPU time (user and system, median of some starts) is little disturbed by what else the machine does. What is
left comes from `python -X importtime`: the packages that take longest, each with all that it imports. The
last command does some work too, on 20 queries. Prints one JSON line for each command, and adds the lines to
benchmarks/results/startup.jsonl.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results" / "startup.jsonl"
PATE = ["-m", "pate_jax.cli"]
LEFT = 6  # packages named


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--repeats", type=int, default=7)
    chosen = arguments.parse_args()
    about = {"day": datetime.now(UTC).date().isoformat(), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as folder, open(RESULTS, "a") as results:
        for name, command in commands(Path(folder)).items():
            cpu = statistics.median(seconds([sys.executable, *command]) for _ in range(chosen.repeats))
            line = json.dumps({**about, "command": name, "cpu_s": round(cpu, 2), "left_ms": left(command)})
            print(line, flush=True)
            results.write(line + "\n")


def commands(folder):
    """What is started, by name; the first line is what Python itself takes."""
    votes = np.random.default_rng(0).multinomial(250, [0.91, *[0.01] * 9], size=20)
    np.save(folder / "votes.npy", votes)
    account = [*PATE, "account", str(folder / "votes.npy"), "gnmax", "--sigma", "40"]
    return {
        "python": ["-c", "pass"],
        "import pate_jax": ["-c", "import pate_jax"],
        "pate --help": [*PATE, "--help"],
        "pate run --help": [*PATE, "run", "--help"],
        "pate account --help": [*PATE, "account", "--help"],
        "pate account VOTES --no-pld": [*account, "--no-pld"],
        "pate account VOTES": account,
    }


def seconds(command):
    """CPU seconds, user and system, of one process."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return used.ru_utime + used.ru_stime


def left(command):
    """Milliseconds on the clock of the packages that take longest to import, each with what it imports."""
    done = subprocess.run([sys.executable, "-X", "importtime", *command], capture_output=True, text=True)
    times = re.findall(r"\| +(\d+) \| +([\w.]+)$", done.stderr, re.MULTILINE)
    whole = {name: int(taken) for taken, name in times if "." not in name or name == "scipy.special"}
    longest = sorted(whole, key=whole.get, reverse=True)[:LEFT]
    return {name: round(whole[name] / 1000) for name in longest}


if __name__ == "__main__":
    main()
