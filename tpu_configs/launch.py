"""Run a command on a TPU slice: create it, copy the committed project there, run, fetch runs/, delete it.

python tpu_configs/launch.py v5e-16 -- pate run mnist --teachers 1000 --topology v5e-16 --out runs/mnist
With --dry-run every command is printed and none is run. It needs gcloud, with a project set.
"""

import argparse
import shlex
import subprocess
import tomllib
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("topology", help="a TPU topology of this folder, such as v5e-8")
parser.add_argument("--name", default="pate", help="what the slice is called")
parser.add_argument("--dry-run", action="store_true", help="print every command, run none")
parser.add_argument("command", nargs="+", help="what every worker runs, after --")
given = parser.parse_args()
place = tomllib.loads(Path(__file__).with_name(f"{given.topology}.toml").read_text())
if place["backend"] != "tpu":
    parser.error(f"{given.topology} is no TPU topology: run its command yourself, or see slurm.sh")
tpu = ["gcloud", "compute", "tpus", "tpu-vm"]
zone, workers = ["--zone", place["zone"]], ["--worker=all"]
kind = ["--accelerator-type", place["accelerator"], "--version", place["runtime"]]
remote = "mkdir -p pate && tar xzf pate.tar.gz -C pate && cd pate && python3 -m venv .venv"
remote += " && . .venv/bin/activate && pip install -q -e '.[tpu]' && " + shlex.join(given.command)
work = [
    ["git", "archive", "--output", "pate.tar.gz", "HEAD"],
    [*tpu, "scp", "pate.tar.gz", f"{given.name}:", *zone, *workers],
    [*tpu, "ssh", given.name, *zone, *workers, "--command", remote],
    [*tpu, "scp", "--recurse", f"{given.name}:pate/runs", ".", *zone, "--worker=0"],
]


def do(step: list[str]) -> None:
    """Print a command, and run it."""
    print("+", shlex.join(step), flush=True)
    if not given.dry_run:
        subprocess.run(step, check=True)


do([*tpu, "create", given.name, *zone, *kind])
try:
    for step in work:
        do(step)
finally:
    do([*tpu, "delete", given.name, *zone, "--quiet"])
