"""A private table that is larger than memory: how fast its sums are counted, and in how much memory.

    python benchmarks/big_tables.py --records 10000000 --folder DRAWN

Records of 55 columns are drawn file by file, as Parquet, and removed in the end; a folder that is there
already is taken as drawn. Then two programs, each a process of its own, count the same sums. `ours` opens the
table as `pate run --private 'folder/*.parquet'` does, which checks every record, and counts the table of its
sums. `plain` scans the same files with PyArrow and does the arithmetic alone: no check, no ids, no digests.
The sums must be equal. With `--programs plain ours users workers` two more count them: `users` takes each id
for a user, so that all records are put together by user first, and `workers` has `ours` done by four
processes of this machine; the memory that it names is that of the largest.
"""

from __future__ import annotations

import argparse
import functools
import json
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import measurement
import numpy as np

NUMBERS, WORDS = 50, 3  # columns beside the id and the label, which make 55
IN_A_FILE = 500_000
CLASSES = ("no", "yes")


def columns(records: int, first: int, seed: int) -> dict:
    """Drawn records: numbers of which some matter, three words, a label and an id."""
    random = np.random.default_rng([seed, first])
    numbers = random.normal(size=(records, NUMBERS)).astype(np.float32).round(3)
    words = random.integers(0, 4, (records, WORDS))
    said = numbers[:, :5].sum(1) + (words[:, 0] == 1) + random.normal(size=records) > 0.25
    found = {f"x{place}": numbers[:, place] for place in range(NUMBERS)}
    found |= {
        f"w{place}": np.array(["red", "green", "blue", "grey"])[words[:, place]] for place in range(WORDS)
    }
    own = np.arange(first, first + records) * 7_919 % 1_000_000_007  # all differ, in no order
    return found | {"label": np.array(CLASSES)[said.astype(int)], "id": own}


def draw(folder: Path, records: int) -> None:
    """Write the private files, and a public one of 5,000 records."""
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "private").mkdir(parents=True, exist_ok=True)
    for number, first in enumerate(range(0, records, IN_A_FILE)):
        path = folder / "private" / f"{number:04d}.parquet"
        made = columns(min(IN_A_FILE, records - first), first, 1)
        parquet.write_table(pa.table(made), path, row_group_size=100_000)
    made = columns(5_000, 0, 2)
    del made["id"]
    parquet.write_table(pa.table(made), folder / "public.parquet")


@functools.cache
def planned(folder: Path):
    """The data set without private records, and the plan of its sums: public things."""
    import jax

    from pate_jax import crowd
    from pate_jax.accounting.exact import counts
    from pate_jax.data.own_files import public_parts
    from pate_jax.student import PublicInputs, spaces

    dataset = public_parts(folder / "public.parquet", label_column="label")
    learned = spaces.learned("columns", PublicInputs.of(dataset), key=jax.random.key(0), directions=400)
    mu = counts.mu_for(1.0, 1e-5)
    return dataset, crowd.plan("sums", *learned, voters=1_000_000, classes=2, mu=mu)


def ours(folder: Path, workers: int | None = None, named: str = "id_column") -> np.ndarray:
    """What a run does to its private records."""
    from pate_jax.data import from_files
    from pate_jax.data.shuffle import Shuffle
    from pate_jax.runs.crowds import scans
    from pate_jax.system import tasks

    _, plan = planned(folder)
    parts = folder / "private", folder / "public.parquet"
    start = time.perf_counter()
    with tasks.engine(tasks.Where(workers=workers)) as engine:
        dataset = from_files(*parts, label_column="label", engine=engine, **{named: "id"})
        print(f"opened and checked: {time.perf_counter() - start:.1f} s", file=sys.stderr)
        found = dataset.scan
        if named == "id_column":
            one, items = functools.partial(scans.table_of, scan=found.scan, plan=plan), found.scan.files
        else:
            deal = scans.ByUser(found.scan.reading.width)
            shuffle = Shuffle(found.scan, found.survey.records, deal, folder, engine)
            print(f"put together: {time.perf_counter() - start:.1f} s", file=sys.stderr)
            one, items = functools.partial(scans.table_of_users, plan=plan), shuffle.groups
        return sum(table for _, table in engine.each(one, items))


def plain(folder: Path) -> np.ndarray:
    """PyArrow and the arithmetic."""
    from pyarrow import parquet

    from pate_jax import crowd

    dataset, plan = planned(folder)
    total = np.zeros(plan.release.shape, np.int64)
    for path in sorted((folder / "private").glob("*.parquet")):
        for batch in parquet.ParquetFile(path, pre_buffer=False).iter_batches(
            batch_size=32_000, use_threads=False
        ):
            inputs = np.empty((len(batch), NUMBERS + 4 * WORDS), np.float32, order="F")
            for place in range(NUMBERS):
                inputs[:, place] = batch.column(f"x{place}").to_numpy()
            for place in range(WORDS):
                known = next(one.categories for one in dataset.columns if one.name == f"w{place}")
                coded = batch.column(f"w{place}").dictionary_encode()
                own = np.array(coded.dictionary.to_pylist())[:, None] == np.array(known)
                start = NUMBERS + 4 * place
                inputs[:, start : start + 4] = own.astype(np.float32)[coded.indices.to_numpy()]
            coded = batch.column("label").dictionary_encode()
            labels = np.array([CLASSES.index(one) for one in coded.dictionary.to_pylist()], np.int32)
            people = crowd.Voters(inputs, labels[coded.indices.to_numpy()], None)
            total += crowd.table(plan, people)
    return total


PROGRAMS = {
    "plain": plain,
    "ours": ours,
    "users": functools.partial(ours, named="user_column"),
    "workers": functools.partial(ours, workers=4),
}


def measured(name: str, folder: Path) -> dict:
    """One program in a process of its own."""
    found = subprocess.run(
        [sys.executable, __file__, "--only", name, "--folder", str(folder)],
        check=True,
        stdout=subprocess.PIPE,
    )
    return json.loads(found.stdout.splitlines()[-1])


def only(name: str, folder: Path) -> None:
    """Count, and say how long it took: public things first, which both share, are not measured."""
    planned(folder)
    start = time.perf_counter()
    table = PROGRAMS[name](folder)
    seconds = time.perf_counter() - start
    both = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    memory = max(both) / 2**20
    print(json.dumps({"seconds": seconds, "gigabytes": memory, "sums": table.tolist()}))


def main() -> None:
    """Draw, measure both, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    measurement.add_busy(parser)
    parser.add_argument("--programs", nargs="*", choices=[*PROGRAMS], default=["plain", "ours"])
    parser.add_argument("--only")
    given = parser.parse_args()
    if given.only:
        only(given.only, given.folder)
        return
    machine = measurement.machine() | {"load": measurement.load(given.busy)}
    there = given.folder.exists()  # drawn before, and kept
    if not there:
        draw(given.folder, given.records)
    found = {name: measured(name, given.folder) for name in given.programs}
    equal = all(one["sums"] == found["plain"]["sums"] for one in found.values())
    ratio = found["plain"]["seconds"] / found["ours"]["seconds"]
    size = sum(path.stat().st_size for path in (given.folder / "private").iterdir()) / 1e9
    line = {"records": given.records, "columns": NUMBERS + WORDS + 2, "parquet_gigabytes": round(size, 2)}
    own = {
        name: {what: round(one[what], 2) for what in ("seconds", "gigabytes")} for name, one in found.items()
    }
    measurement.add(
        "big_tables", {**machine, **line, **own, "equal": equal, "of_the_plain_speed": round(ratio, 3)}
    )
    if not there:
        shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
