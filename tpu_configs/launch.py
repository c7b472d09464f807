"""Run a command on a TPU slice: create it, copy the committed project there, run, fetch runs/, delete it.

python tpu_configs/launch.py v5e-16 -- pate run mnist --teachers 1000 --topology v5e-16 --out runs/mnist
With --dry-run every command is printed and none is run. It needs gcloud, with a project set.
"""

import argparse
import shlex
import subprocess
import tomllib
from pathlib import Path

places = {file.stem: tomllib.loads(file.read_text()) for file in Path(__file__).parent.glob("*.toml")}
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("topology", choices=sorted(places), help="a TPU topology of this folder, such as v5e-8")
parser.add_argument("--name", default="pate", help="what the slice is called")
parser.add_argument("--dry-run", action="store_true", help="print every command, run none")
parser.add_argument("command", nargs="+", help="what every worker runs, after --")
given = parser.parse_args()
place = places[given.topology]
if place["backend"] != "tpu":
    parser.error(f"{given.topology} is no TPU topology: run its command yourself, or see slurm.sh")


def do(*words: str) -> None:
    """Print a command, and run it."""
    print("+", shlex.join(words), flush=True)
    if not given.dry_run:
        subprocess.run(words, check=True)


def tpu(verb: str, *words: str) -> None:
    """A command of gcloud about the slice."""
    do("gcloud", "compute", "tpus", "tpu-vm", verb, *words, "--zone", place["zone"])


tpu("create", given.name, "--accelerator-type", place["accelerator"], "--version", place["runtime"])
try:
    setup = "mkdir -p pate && tar xzf pate.tar.gz -C pate && cd pate && python3 -m venv .venv"
    setup += " && . .venv/bin/activate && pip install -q -e '.[tpu]' && "
    do("git", "archive", "--output", "pate.tar.gz", "HEAD")
    tpu("scp", "pate.tar.gz", f"{given.name}:", "--worker=all")
    tpu("ssh", given.name, "--worker=all", "--command", setup + shlex.join(given.command))
    tpu("scp", "--recurse", f"{given.name}:pate/runs", ".", "--worker=0")
finally:
    tpu("delete", given.name, "--quiet")
