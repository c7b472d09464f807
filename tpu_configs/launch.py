"""Run a command on a TPU slice: create it, copy the committed project there, run, fetch runs/, delete it.

python tpu_configs/launch.py v5e-16 -- pate run mnist --teachers 1000 --topology v5e-16 --out runs/mnist
Sweeps and other work of independent parts go on Dask workers instead: --cluster (docs/start/cluster.md).
With --dry-run every command is printed and none is run. Needs gcloud, with a project set, and this package.
"""

import argparse
import shlex
import subprocess

from pate_jax.errors import PateError
from pate_jax.system import topology

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("topology", help="a TPU topology: a name, such as v5e-8, or a .toml file of your own")
parser.add_argument("--name", default="pate", help="what the slice is called")
parser.add_argument("--dry-run", action="store_true", help="print every command, run none")
parser.add_argument("command", nargs="+", help="what every worker runs, after --")
given = parser.parse_args()
try:
    place = topology.read(given.topology)
    asked = topology.named(given.command)
    if asked is not None and topology.read(asked) != place:
        parser.error(
            f"the slice is {given.topology} and the command wants --topology {asked}: name one of them"
        )
except PateError as error:
    parser.error(str(error))
if place.accelerator is None or place.zone is None or place.runtime is None:
    parser.error(
        f"{given.topology} is no TPU topology with accelerator, zone and runtime: run its command yourself, "
        "or see slurm.sh"
    )


def do(*words: str) -> None:
    """Print a command, and run it."""
    print("+", shlex.join(words), flush=True)
    if not given.dry_run:
        subprocess.run(words, check=True)


def tpu(verb: str, *words: str) -> None:
    """A command of gcloud about the slice."""
    do("gcloud", "compute", "tpus", "tpu-vm", verb, *words, "--zone", place.zone)


tpu("create", given.name, "--accelerator-type", place.accelerator, "--version", place.runtime)
try:
    setup = "mkdir -p pate && tar xzf pate.tar.gz -C pate && cd pate && python3 -m venv .venv"
    setup += " && . .venv/bin/activate && pip install -q -e '.[tpu]' && "
    do("git", "archive", "--output", "pate.tar.gz", "HEAD")
    tpu("scp", "pate.tar.gz", f"{given.name}:", "--worker=all")
    tpu("ssh", given.name, "--worker=all", "--command", setup + shlex.join(given.command))
    tpu("scp", "--recurse", f"{given.name}:pate/runs", ".", "--worker=0")
finally:
    tpu("delete", given.name, "--quiet")
