"""How long a vote among parties takes: real processes over loopback, one line of JSON for each setting.

    python -m benchmarks.parties             # all settings
    python -m benchmarks.parties --only 0 3  # some of them

Each process meets the others, shares its numbers, checks everybody's, and opens the result. `seconds` is from
the call of `session.open` to its end, in the slowest process, `cpu_seconds` is of all processes together, and
bytes are what one party sends to all others, before encryption. Imports are not counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import socket
import time
from typing import Any

import numpy as np

from benchmarks.measurement import add, machine
from pate_jax.parties import certificates, engine, session
from pate_jax.parties.agreement import Agreement, Noise, Opened, Party, parse, text

TEACHERS, CLASSES = 250, 10
SETTINGS: list[tuple[Opened, int, int, int]] = [  # what is opened, queries, parties, colluders
    ("counts", 640, 3, 1),
    ("counts", 640, 5, 2),
    ("counts", 10000, 3, 1),
    ("answers", 640, 3, 1),
    ("answers", 640, 5, 2),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=int, nargs="*", default=range(len(SETTINGS)))
    for number in parser.parse_args().only:
        add("parties", {"date": time.strftime("%Y-%m-%d"), **vote(*SETTINGS[number]), **machine()})


def vote(opened: Opened, queries: int, parties: int, colluders: int) -> dict[str, Any]:
    """Hold one vote and measure it."""
    engine.library()
    agreement, keys = agree(opened, queries, parties, colluders)
    context = multiprocessing.get_context("fork")
    with context.Pool(parties) as pool:
        found = pool.starmap(join, [(text(agreement), name, keys[name]) for name in agreement.names], 1)
    sent = max(one[1] for one in found)
    return {
        "opened": opened,
        "queries": queries,
        "parties": parties,
        "colluders": colluders,
        "teachers": TEACHERS,
        "classes": CLASSES,
        "seconds": round(max(one[0] for one in found), 2),
        "cpu_seconds": round(sum(one[2] for one in found), 2),
        "bytes_of_a_party": sent,
        "bytes_per_query": round(sent / queries),
    }


def agree(opened: Opened, queries: int, parties: int, colluders: int) -> tuple[Agreement, dict[str, str]]:
    """An agreement of parties on this machine, and their keys."""
    numbers = [TEACHERS // parties + (i < TEACHERS % parties) for i in range(parties)]
    identities = {f"party{i}": certificates.make(f"party{i}") for i in range(parties)}
    members = [
        Party(name, "127.0.0.1", port, identities[name].certificate, number)
        for name, port, number in zip(identities, ports(parties), numbers, strict=True)
    ]
    noise = Noise(40.0) if opened == "counts" else Noise(40.0, 200.0, 150.0)
    digest = "0" * 64
    agreement = Agreement(
        *("benchmark", digest, digest, queries, CLASSES, "teachers", opened, noise, 1e-5),  # type: ignore[arg-type]
        budget={},
        parties=tuple(members),
        colluders=colluders,
        seconds=120.0,
    )
    return agreement, {name: one.key for name, one in identities.items()}


def join(agreed: str, name: str, key: str) -> tuple[float, int, float]:
    """One party: seconds, bytes that it sent, and seconds of its CPU time."""
    agreement = parse(agreed)
    random = np.random.default_rng(agreement.names.index(name))
    shape, votes = (agreement.queries, CLASSES), agreement.party(name).votes
    counts = random.multinomial(votes, np.full(CLASSES, 1 / CLASSES), agreement.queries)
    noise = np.round(random.normal(0, 28, shape)).astype(np.int64)
    test = np.round(random.normal(0, 106, shape[0])).astype(np.int64)
    start, used = time.perf_counter(), cpu()
    with session.open(agreement, name, key) as opened:
        if agreement.opened == "counts":
            opened.sum(counts, noise)
        else:
            opened.answers(counts, noise, test)
        sent = opened.bytes_sent
    return time.perf_counter() - start, sent, cpu() - used


def cpu() -> float:
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def ports(number: int) -> list[int]:
    """Ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    found: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return found


if __name__ == "__main__":
    main()
