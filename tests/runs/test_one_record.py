"""One private record more, less or other, as odd as can be, changes how no other record is read.

Whoever makes a data frame, a Parquet file or an array infers the type of a column from all records. So every
door either reads each other record to the same bits, label, id, user, teacher and hold-out, or refuses.
"""

import csv
import io
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import csv as arrow_csv
from pyarrow import parquet

import pate_jax
from pate_jax import PateClassifier
from pate_jax.data import from_files, partition
from pate_jax.errors import PateError
from pate_jax.runs.inputs import open_data

pytestmark = pytest.mark.filterwarnings("ignore")  # of pandas, and of fits on the same records

FEW = settings(
    max_examples=int(os.environ.get("ONE_RECORD_EXAMPLES", "30")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
KEY = partition.seeded_key(3)
CODES = ["007", "010", "0032", "7"]
ROWS = range(12)
PEOPLE = [
    {
        "key": f"{5 + 7 * row:06d}",
        "user": f"{row // 2:03d}",
        "code": CODES[row % 4],
        "ward": ["0.0", "1.0"][row % 2],
        "dose": ["-0.0", "1.50", "20", "3e2"][row % 4],
        "flag": ["True", "False"][row // 3 % 2],
        "seen": f"2024-03-{1 + row:02d}",
        "sick": ["1", "0"][row % 2],
    }
    for row in ROWS
]
FEATURES = ("code", "ward", "dose", "flag", "seen")
POOL = [
    {**{name: PEOPLE[row][name] for name in (*FEATURES, "sick")}, "dose": f"{row}.25"} for row in range(8)
]
ODD = (
    *("", " ", "A12", "x", "maybe", "None", "NaN", "NA", "n/a", "inf", "-inf", "-0", "-0.0", "0.5", "1e3"),
    *("9007199254740993", "99999999999999999999", "-99999999999999999999", "1e400", "1_000", "1,5", "+7"),
    *(
        "0x10",
        "٣",
        "\uff17",
        "TRUE",
        "false",
        "True",
        "1.0",
        "007",
        "7.0",
        "2024-03-25T10:15:00",
        "25/03/2024",
    ),
    *("1600-01-01", "10:30:00", "2024-13-45", "[1]", "(1, 2)", "\u00a0 7", "é" * 40),
)
texts = st.one_of(st.sampled_from(ODD), st.text(st.characters(codec="utf-8", exclude_categories=["C"])))


odd_records = st.dictionaries(st.sampled_from(list(PEOPLE[0])), texts, max_size=2).map(
    lambda odd: {**PEOPLE[3], "key": "000901", "user": "901", **odd}
)
changes = st.tuples(st.sampled_from(["add", "change", "remove"]), st.integers(0, len(PEOPLE) - 1))
publics = st.sampled_from(["as the private part", "with a letter", "as text"])
declared = st.sampled_from(
    [{}, {}, {}, {"ward": ["0.0", "1.0"]}, {"ward": ["0", "1"]}, {"code": ["7", "10"]}]
)


def typed(text):
    """A value as a program that reads each by itself would hold it."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"True": True, "False": False, "": None}.get(text, text)


def written(records):
    stream = io.StringIO()
    table = csv.DictWriter(stream, list(records[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(records)
    return stream.getvalue()


def columns(records, kind=str):
    return {name: [kind(record[name]) for record in records] for name in records[0]}


def by_pandas(records, **more):
    pandas = pytest.importorskip("pandas")
    return pandas.read_csv(io.StringIO(written(records)), **more)


def listed(table):
    """The codes and the wards as categories, as Arrow has them."""
    held = zip(table.column_names, table.columns, strict=True)
    return pyarrow.table(
        {name: one.dictionary_encode() if name in ("code", "ward") else one for name, one in held}
    )


MAKERS = {
    "frame": by_pandas,
    "frame as text": lambda records: by_pandas(records, dtype=str, keep_default_na=False),
    "frame of categories": lambda records: by_pandas(records).astype(
        {"code": "category", "ward": "category"}
    ),
    "dictionary": lambda records: columns(records, typed),
    "dictionary of arrays": lambda records: {
        name: np.array(values) for name, values in columns(records, typed).items()
    },
    "Arrow": lambda records: arrow_csv.read_csv(io.BytesIO(written(records).encode())),
    "Arrow of categories": lambda records: listed(MAKERS["Arrow"](records)),
}
NAMES = {"label": "sick", "id": "key", "user": "user"}


class Opened(Exception):
    """The data set that a run would begin with."""


@pytest.fixture(autouse=True)
def _no_run(monkeypatch):
    def opened(config):
        raise Opened(open_data(config.data))

    monkeypatch.setattr("pate_jax.runs.pipeline.run", opened)


def of_run(act):
    """The private part of a run that `act` begins in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            act(Path(folder))
        except Opened as found:
            return found.args[0].private
    raise AssertionError("no run began")


def made(maker, records):
    """What a program makes of the records; where it cannot, there is nothing to read."""
    try:
        return MAKERS[maker](records)
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException):
        reject()


def pool(public, maker, names=(*FEATURES, "sick")):
    records = [{name: record[name] for name in names} for record in POOL]
    if public == "with a letter":
        records[0]["code"] = "B7"
    return made("frame as text" if public == "as text" and "frame" in maker else maker, records)


def frames(maker):
    def read(records, public, categories):
        private, known = made(maker, records), pool(public, maker)
        declares = {name: values for name, values in categories.items() if values}
        return of_run(
            lambda folder: pate_jax.run(
                private,
                known,
                **NAMES,
                classes=["0", "1"],
                categories=declares,
                equal_rows_are_coincidences=True,
                out=folder / "run",
            )
        )

    return read


def files(first, second):
    """Two files, as `pate run` takes them."""

    def write(records, path):
        if path.suffix == ".csv":
            path.write_text(written(records))
            return path
        try:
            if path.stem.endswith("pandas"):
                made("frame", records).to_parquet(path)
            else:
                parquet.write_table(made("Arrow", records), path)
        except (pyarrow.ArrowException, OverflowError):
            reject()
        return path

    def read(records, public, categories):
        with tempfile.TemporaryDirectory() as place:
            known = [{**POOL[0], "code": "B7"}, *POOL[1:]] if public == "with a letter" else POOL
            return from_files(
                write(records, Path(place) / first),
                write(known, Path(place) / second),
                label_column="sick",
                id_column="key",
                user_column="user",
                classes="0,1",
                categories=categories,
                equal_rows_are_coincidences=True,
            ).private

    return read


def archive(records, public, categories):
    """Arrays, whose types NumPy takes from all values."""
    with tempfile.TemporaryDirectory() as place:
        paths = []
        for name, rows in (("private", records), ("public", POOL)):
            found = {
                "inputs": np.array([[typed(row["dose"]), typed(row["ward"])] for row in rows]),
                "labels": np.array([typed(row["sick"]) for row in rows]),
            }
            if name == "private":
                found |= {"ids": np.array([typed(row["key"]) for row in rows])}
                found |= {"users": np.array([typed(row["user"]) for row in rows])}
            paths.append(Path(place) / f"{name}.npz")
            np.savez(paths[-1], **found)
        return from_files(*paths, classes=2, equal_rows_are_coincidences=True).private


def classifier(maker, form):
    """`PateClassifier` on frames, on lists of rows or on what NumPy makes of them."""

    def read(records, public, categories):
        features = [{name: row[name] for name in FEATURES} for row in records]
        X, X_public = form(made(maker, features)), form(pool(public, maker, FEATURES))
        y, ids = [typed(row["sick"]) for row in records], [typed(row["key"]) for row in records]
        model = PateClassifier(classes=[0, 1], equal_rows_are_coincidences=True)
        return of_run(lambda _: model.fit(X, y, X_public, ids=ids))

    return read


def rows_of(table):
    return [list(row) for row in zip(*table.values(), strict=True)]


DOORS = {
    **{maker: frames(maker) for maker in MAKERS},
    "CSV": files("a.csv", "b.csv"),
    "Parquet": files("a.parquet", "b.parquet"),
    "Parquet of pandas": files("a pandas.parquet", "b pandas.parquet"),
    "Parquet and CSV": files("a.parquet", "b.csv"),
    "CSV and Parquet": files("a.csv", "b.parquet"),
    "archive": archive,
    "classifier of frames": classifier("frame", lambda frame: frame),
    "classifier of rows": classifier("dictionary", rows_of),
    "classifier of an array": classifier("dictionary", lambda table: np.array(rows_of(table))),
    "classifier of an array of objects": classifier(
        "dictionary", lambda table: np.array(rows_of(table), object)
    ),
}


def changed(records, kind, at, odd):
    """The records after a change, and which of them were there before, with their rows then and now."""
    if kind == "add":
        return [*records, odd], [(row, row) for row in range(len(records))]
    if kind == "change":
        rows = [(row, row) for row in range(len(records)) if row != at]
        return [*records[:at], odd, *records[at + 1 :]], rows
    rest = [row for row in range(len(records)) if row != at]
    return [records[row] for row in rest], [(row, place) for place, row in enumerate(rest)]


def shown(part, row):
    """All that may decide what a record does: its bits, label, id and user, its teacher and its hold-out."""
    whole = [part.ids, part.ids if part.users is None else part.users]
    units = [names[row] for names in whole]
    places = [partition.assign(names, 5, key=KEY)[row] for names in whole]
    return part.inputs[row].tobytes(), int(part.labels[row]), units, places


def check(read, records, kind, at, odd):
    """Compare what a door reads before and after a change; how it went."""
    after, same = changed(records, kind, at, odd)
    parts = []
    for content in (records, after):
        try:
            parts.append(read(content))
        except PateError as error:
            assert "\n" not in str(error)
            return "refused"
    for row, place in same:
        assert shown(parts[0], row) == shown(parts[1], place)
    return "read"


@pytest.mark.parametrize("door", DOORS)
def test_one_record_changes_how_no_other_is_read(door):
    @FEW
    @given(odd=odd_records, change=changes, extra=st.booleans(), public=publics, categories=declared)
    def holds(odd, change, extra, public, categories):
        records = [*PEOPLE, odd] if extra else PEOPLE
        at = len(PEOPLE) if extra and change[0] != "add" else change[1]
        event(check(lambda rows: DOORS[door](rows, public, categories), records, change[0], at, odd))

    holds()


PLAIN = {  # values of one record that make something else of a whole column
    "a letter among codes": {"code": "A12"},
    "a letter among ids": {"key": "A12"},
    "a blank code": {"code": " "},
    "a missing code": {"code": ""},
    "a missing truth value": {"flag": ""},
    "a time of day": {"seen": "2024-03-25T10:15:00"},
    "a huge id": {"key": "99999999999999999999"},
    "nothing odd": {},
}


@pytest.mark.parametrize("odd", PLAIN)
@pytest.mark.parametrize("door", ["CSV", "frame as text"])
def test_what_is_read_value_by_value_is_not_refused(door, odd):
    """The property holds of these not because all is refused."""
    record = {**PEOPLE[3], "key": "odd", "user": "odd", **PLAIN[odd]}
    assert check(lambda rows: DOORS[door](rows, "with a letter", {}), PEOPLE, "add", 0, record) == "read"


@pytest.mark.parametrize(
    "odd", ["a letter among ids", "a missing truth value", "a time of day", "nothing odd"]
)
@pytest.mark.parametrize("door", ["frame", "Arrow", "Parquet", "Parquet of pandas", "Parquet and CSV"])
def test_ids_and_numbers_are_read_whatever_the_type_of_their_column(door, odd):
    record = {**PEOPLE[3], "key": "odd", "user": "odd", **PLAIN[odd]}
    assert (
        check(lambda rows: DOORS[door](rows, "as the private part", {}), PEOPLE, "add", 0, record) == "read"
    )


@pytest.mark.parametrize("door", ["frame", "Arrow", "Parquet", "Parquet of pandas", "classifier of frames"])
@pytest.mark.parametrize("more", [[], [{**PEOPLE[3], "key": "odd", "user": "odd", "code": "A12"}]])
def test_codes_that_became_numbers_are_refused_where_the_public_part_has_words(door, more):
    """With A12 among them they are words, but 007 was 7 in all other records without it."""
    read = DOORS[door]
    if more:
        assert len(read([*PEOPLE, *more], "with a letter", {}).ids) == len(PEOPLE) + 1
        return
    with pytest.raises(
        PateError, match=r"has whole numbers in the column 'code' .7 at row 0. and the public"
    ):
        read(PEOPLE, "with a letter", {})


MODES = ["L", "RGB", "RGBA", "P", "LA", "1", "I;16", "CMYK"]


@FEW
@given(
    mode=st.sampled_from(MODES),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    name=st.sampled_from(["7", "007", "A12", "٣", " 7", "z" * 60]),
    label=st.sampled_from(["cat", "dog", "cow"]),
    kind=st.sampled_from([".png", ".jpg", ".txt"]),
    side=st.sampled_from([None, 5]),
)
def test_one_image_changes_how_no_other_is_read(mode, size, name, label, kind, side):
    with tempfile.TemporaryDirectory() as place:
        private, public = Path(place) / "private", Path(place) / "public"
        for row, folder in enumerate((private, public)):
            for animal, seed in (("cat", 1), ("dog", 2)):
                (folder / animal).mkdir(parents=True)
                for number in range(3):
                    pixels = np.random.default_rng([row, seed, number]).integers(0, 256, (5, 4))
                    path = folder / animal / f"{[7, 10, 32][number]:03d}.png"
                    Image.fromarray(pixels.astype(np.uint8)).save(path)
        odd = private / label / f"{name}{kind}"
        if odd.exists():
            return

        def read(records):
            if "odd" in records:
                odd.parent.mkdir(exist_ok=True)
                with suppress(OSError, KeyError):  # what Pillow cannot write in this format
                    Image.new(mode, size).save(odd, None if kind != ".txt" else "PNG")
            found = from_files(private, public, classes="cat,dog", image_size=side).private
            order = np.argsort(found.ids == odd.relative_to(private).as_posix(), kind="stable")
            return found.take(order)

        usual = ["usual"] * 6
        event(check(read, usual, "add", 0, "odd"))
