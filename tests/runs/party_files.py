"""Three parties with small tables of their own, one public pool, and agreements among them."""

import threading
from pathlib import Path

import numpy as np
from round_table import RoundTable

from pate_jax.parties import agreement as agreements
from pate_jax.runs.parties import join, terms, write
from pate_jax.runs.parties.terms import Terms
from pate_jax.runs.parties.write import Asked
from pate_jax.runs.settings import DataChoice

NAMES = ("east", "north", "west")
RECORDS, POOL = 60, 40
CENTRES = np.eye(3, 4) * 4


def prepare(folder, ports=(7101, 7102, 7103, 7104), voters=RECORDS, records=RECORDS, names=NAMES):
    """Files of data, keys and cards; the same data at every call."""
    random = np.random.default_rng(11)
    for part, count in [*((name, records) for name in names), ("pool", POOL), ("test", 30)]:
        labels = random.integers(0, 3, count).astype(np.int32)
        inputs = (CENTRES[labels] + random.normal(size=(count, 4))).astype(np.float32)
        ids = np.array([f"{part}-{7 * row % count:03d}x" for row in range(count)])
        np.savez(folder / f"{part}.npz", inputs=inputs, labels=labels, ids=ids)
    for name, port in zip(names, ports, strict=False):
        terms.make(folder, name, "localhost", port, voters)
    return folder


def data_of(folder, name):
    parts = {"private": f"{name}.npz", "public": "pool.npz", "test": "test.npz"}
    return DataChoice(**{part: folder / file for part, file in parts.items()}, show_public=True)


def agree(folder, kind, file="vote.toml", asked=None, names=NAMES, **chosen):
    """Write the agreement; returns its path."""
    chosen = {"epsilon": 8.0, "seconds": 20.0, **chosen}
    asked = asked or Asked(queries={"teachers": 12, "neighbours": 9, "sums": None}[kind], net="linear")
    write.write(
        folder / file,
        "a study",
        [folder / f"{name}.card.json" for name in names],
        data_of(folder, names[0]),
        Terms(voters=kind, **chosen),
        asked,
    )
    return folder / file


def member(folder, name, file, seed=None, run=None):
    out = folder / (run or "run-{}").format(name)
    return join.of_party(Path(file), folder / f"{name}.key.pem", data_of(folder, name), out, seed=seed)


def vote(folder, file, names=NAMES, opener=None, table_opener=None, **more):
    """All parties vote, each in a thread; what each returned or raised, by its name."""
    table, found = RoundTable(agreements.read(file), names), {}
    opener = opener or (table_opener(table) if table_opener else table.seat)

    def one(name):
        with table.turn:
            try:
                party, key = member(folder, name, file, **more)
                found[name] = join.join(party, key, opener)
            except BaseException as error:
                table.barrier.abort()
                found[name] = error

    threads = [threading.Thread(target=one, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
