"""`pate party join` in real processes over TLS, with faults: it imports once and forks each party.

Jobs come by standard input as those of `forks` do: the folder, and for each party its faults. Beside those
there, a fault is a `call`: the number of the system call of `storage` at which the party dies, in the middle
of it if `half`. What a party brings to the sum is kept in NAME.brought. Noise is drawn here by NumPy from the
same stream and secret, since a forked process cannot begin JAX quickly. With `patience` a party waits for so
many seconds at most for those who do not come.
"""

import contextlib
import functools
import io
import math
import os
import signal
from functools import partialmethod
from pathlib import Path

import forks
import numpy as np
from test_crash import Mortal, kill_me

from pate_jax import cli
from pate_jax.accounting import parties
from pate_jax.cli import party as _  # noqa: F401
from pate_jax.parties import agreement as agreements
from pate_jax.parties import certificates, connections, ranges
from pate_jax.runs import secret
from pate_jax.runs.parties import ballot, ledger, questions, terms
from pate_jax.runs.parties.join import questions_beside
from pate_jax.system import storage


@functools.cache
def ready(folder):
    """Load and compute once what every party of a study needs, and would else do again in each process."""
    file = folder / "vote.toml"
    agreement = agreements.read(file)
    asked = questions.load(questions_beside(file), agreement.query_list)
    terms.audiences(agreement, asked)
    parties.joint(terms.vote_of(agreement, asked), agreement.delta, agreement.unit)
    certificates.make("nobody")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        cli.main(["party", "join", "--help"])


def state_of(folder, name):
    """Where a party's machine keeps its register of runs."""
    return str(folder / f"state-{name}")


def join(folder, name, faults):
    """One party's whole command; its exit code."""
    os.environ["XDG_STATE_HOME"] = state_of(folder, name)
    os.chdir(folder)
    said = os.open(f"{name}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(said, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    forks.break_it(faults)
    longest = faults.get("patience", math.inf)
    connections.Hub.until = partialmethod(patient, connections.Hub.until, longest)
    storage.os = Mortal(faults.get("call"), faults.get("half", False), kill_me)
    secret.Secret.key = lambda self, stream: self.derive(stream)
    ballot.share = lambda of, shape, *, key: draw(key, shape)
    ranges.digits = brought(name, ranges.digits)
    words = ["party", "join", "vote.toml", "--key", f"{name}.key.pem", "--out", f"run-{name}"]
    words += ["--private", f"{name}.npz", "--public", "pool.npz", "--test", "test.npz", "--show-public"]
    try:
        cli.main([*words, *faults.get("words", [])])
    except SystemExit as end:
        return end.code or 0
    finally:
        Path(f"{name}.calls").write_text(f"{len(storage.os.calls)} {forks.Sends.number}")
    return 0


def patient(hub, until, most, reached, seconds):
    """Wait as `Hub.until` does, but no longer than that."""
    return until(hub, reached, min(seconds, most))


def draw(key, shape):
    """Whole noise that follows from a key."""
    return np.random.default_rng([*key]).integers(-9, 10, shape)


def brought(name, digits):
    """Keep what a party brings, which must follow a line on disk that says so."""

    def kept(agreement, party, counts, noise, test):
        shown = ledger.read(Path(f"run-{name}/private/ledger.jsonl"))
        assert shown.begun is not None and shown.charge is not None
        with open(f"{name}.brought", "a") as file:
            file.write(storage.digest(counts, noise, test) + "\n")
        return digits(agreement, party, counts, noise, test)

    return kept


if __name__ == "__main__":
    forks.serve(join, ready)
