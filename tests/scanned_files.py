"""Small tables, in one file and in several, for the tests of tables that are read file by file."""

import csv
import io

import numpy as np
import pyarrow as pa
from pyarrow import parquet

NAMES = ("age", "seen", "sex", "stage", "dose", "sick")
SIZES = (7, 150, 43)  # of the files, in the order of the table


def drawn(records, seed, first=0):
    """Columns of Python values: numbers, dates, words, codes and a label; some of them are missing."""
    random = np.random.default_rng(seed)
    age = [None if random.random() < 0.1 else float(random.integers(18, 90)) for _ in range(records)]
    seen = [f"2024-{month:02d}-{day:02d}" for month, day in random.integers(1, 13, (records, 2))]
    sex = [("f", "m", None)[one] for one in random.choice(3, records, p=(0.45, 0.45, 0.1))]
    dose = random.normal(size=records)
    sick = ["yes" if one > 0.1 else "no" for one in dose + random.normal(size=records) / 3]
    own = [f"P{7 * row % 1000 + 1000}" for row in range(first, first + records)]
    columns = (age, seen, sex, random.integers(0, 3, records).tolist(), dose.tolist(), sick)
    return {"pid": own, **dict(zip(NAMES, columns, strict=True))}


def of_users(columns, users, name="U{}"):
    """The same columns with users, of which nearly each has records in several files."""
    own = np.random.default_rng(3).integers(0, users, len(columns["sick"])).tolist()
    return {"who": [name.format(one + 40) if name else one + 40 for one in own], **columns}


def rows(columns, start=0, end=None):
    """The same columns of some rows."""
    return {name: values[start:end] for name, values in columns.items()}


def write(path, columns):
    """A Parquet file, or a CSV file."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
        path.write_text(text.getvalue())
    return path


def cut(folder, columns, names, suffix=".parquet"):
    """The table in several files of different sizes, which are called by these names."""
    start = 0
    for name, size in zip(names, SIZES, strict=True):
        write(folder / f"{name}{suffix}", rows(columns, start, start + size))
        start += size
    return folder
