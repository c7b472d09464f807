"""Agreements of a few parties with certificates and votes of their own, for tests."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

from pate_jax.errors import PateError
from pate_jax.parties import agreement as agreements
from pate_jax.parties import certificates
from pate_jax.parties.agreement import Agreement, Noise, Party

__all__ = ["Forks", "PateError", "agree", "draw", "identity", "ports", "write"]

FORKS = Path(__file__).with_name("forks.py")
_GIVEN = set()
NAMES = ("north", "south", "west", "east", "centre")


@functools.cache
def identity(name):
    return certificates.make(name)


def ports(number):
    """Ports that are free now, and were not found free before: several votes may be held at once."""
    sockets = []
    while len(sockets) < number:
        one = socket.create_server(("127.0.0.1", 0))
        if (port := one.getsockname()[1]) in _GIVEN:
            one.close()
            continue
        _GIVEN.add(port)
        sockets.append(one)
    found = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


def agree(queries=7, classes=4, votes=(5, 6, 8), **changes):
    names = NAMES[: len(votes)]
    parties = tuple(
        Party(name, "127.0.0.1", port, identity(name).certificate, number)
        for name, port, number in zip(names, ports(len(votes)), votes, strict=True)
    )
    settings = {
        "name": "test",
        "pool": "0" * 64,
        "query_list": "1" * 64,
        "queries": queries,
        "classes": classes,
        "voters": "teachers",
        "opened": "counts",
        "noise": Noise(4.0),
        "delta": 1e-5,
        "seconds": 20.0,
        "budget": {"outsiders": 1.0},
        "parties": parties,
    }
    return Agreement(**{**settings, **changes})


def draw(agreement, seed=0):
    """Counts and noise for each party: arrays of one party in the order that a session takes."""
    random = np.random.default_rng(seed)
    shape, found = (agreement.queries, agreement.classes), {}
    for party in agreement.parties:
        own = [random.multinomial(party.votes, np.full(shape[1], 1 / shape[1]), shape[0])]
        if agreement.voters == "sums":
            own = [random.integers(-party.votes, party.votes + 1, shape)]
        if agreement.voters == "neighbours":
            own = [random.binomial(own[0], 0.5)]
        own.append(np.round(random.normal(0, 3, shape)).astype(np.int64))
        if agreement.noise.threshold is not None:
            own.append(np.round(random.normal(0, 3, shape[0])).astype(np.int64))
        found[party.name] = own
    return found


def write(folder, agreement, own):
    """The files of all parties."""
    folder = Path(folder)
    agreements.write(folder / "agreement.toml", agreement)
    for name, arrays in own.items():
        (folder / f"{name}.pem").write_text(identity(name).key)
        np.savez(folder / f"{name}.npz", *arrays)


class Forks:
    """The program that makes processes of parties."""

    def __init__(self, program=FORKS):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sys.path]))}
        pipe = subprocess.PIPE
        command = [sys.executable, str(program)]
        self.program = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, text=True)

    def run(self, folder, parties):
        """Run a vote; the exit code of each process, what each opened, and the sentence of each refusal."""
        (found,) = self.run_together([(folder, parties)])
        return found

    def run_together(self, votes):
        """Run votes at the same time, each in a folder of its own; what `run` returns, of each."""
        for folder, _ in votes:
            for old in [*Path(folder).glob("*.opened.npz"), *Path(folder).glob("*.txt")]:
                old.unlink()
        found = []
        for (folder, _), ended in zip(votes, self._ended(votes), strict=True):
            opened = {name: Path(folder) / f"{name}.opened.npz" for name in ended if ended[name] == 0}
            texts = {name: Path(folder) / f"{name}.txt" for name in ended}
            said = {name: path.read_text() for name, path in texts.items() if path.exists()}
            found.append((ended, {name: np.load(path)["opened"] for name, path in opened.items()}, said))
        return found

    def ended(self, folder, parties):
        """Carry out one job; the exit code of each process."""
        (found,) = self._ended([(folder, parties)])
        return found

    def _ended(self, jobs):
        told = [{"folder": str(folder), "parties": parties} for folder, parties in jobs]
        self.program.stdin.write(json.dumps(told) + "\n")
        self.program.stdin.flush()
        return json.loads(self.program.stdout.readline())

    def close(self):
        self.program.stdin.close()
        self.program.wait()
        self.program.stdout.close()
