"""Every reader, given damaged and hostile files: our own error or an honest result, and nothing else.

Each honest file is cut short, has bits flipped, is replaced by random bytes, and, where it is JSON or an
archive of arrays, has a part of its content replaced by something hostile. No file of any kind is unpickled,
none takes memory that its size does not justify, and none leads out of its folder.
"""

import copy
import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from pyarrow import parquet

from pate_jax import accounting, mechanisms, voting
from pate_jax.data import own_files, partition
from pate_jax.data.archives import sources
from pate_jax.data.dataset import Part
from pate_jax.ensemble import checkpoint
from pate_jax.ensemble.checkpoint import Store
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, GNMax
from pate_jax.mechanisms.local import RandomisedResponse
from pate_jax.models import trees
from pate_jax.runs import budget, chain, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.local import ballot, terms
from pate_jax.runs.settings import DataChoice, PartitionChoice, from_settings, to_settings
from pate_jax.student import serving
from pate_jax.student.released import predict
from pate_jax.sweep import results
from pate_jax.system import storage, topology

ROOT = Path(__file__).parents[2]
KEY = partition.seeded_key(3)
FEW = settings(
    max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
MANY = settings(FEW, max_examples=500)


class Reader(NamedTuple):
    """A kind of file: how an honest folder of it is made, which file is spoilt, and who reads it."""

    make: Callable[[Path], object]
    file: str
    read: Callable[[Path], object]


# ---- honest files


def votes(folder):
    labels = np.random.default_rng(0).integers(0, 3, (7, 5)).astype(np.int16)
    counts = np.array([np.bincount(column, minlength=3) for column in labels.T])
    ids = np.array([f"input {row}" for row in range(5)])
    voting.save_votes(folder / "votes.npz", voting.Votes(counts, labels, ids, np.arange(5) % 3, ids))
    np.save(folder / "votes.npy", counts)
    np.savez(folder / "labels.npz", votes=labels)


def part():
    names = np.array([f"id-{row}" for row in range(12)])
    return Part(
        np.arange(24.0, dtype=np.float32).reshape(12, 2), np.arange(12, dtype=np.int32) % 2, names, names
    )


def certificate(folder):
    shards = partition.divide(part(), 3, key=KEY, by="user")
    body = partition.certificate(shards, part(), key=KEY, by="user")
    storage.write_json(folder / "certificate.json", "certificate", body)


def check_certificate(folder):
    body = storage.read_json(folder / "certificate.json", "certificate")
    shards = partition.divide(part(), 3, key=KEY, by="user")
    partition.check_certificate(body, shards, part(), key=KEY)
    partition.check_fed(body, [shards.of(teacher) for teacher in range(3)], part(), key=KEY)


def statement(folder):
    made = accounting.statement(GNMax(9.0), [[7, 2, 1], [5, 5, 0]], None, 1e-5, private=True)
    storage.write_json(folder / "statement.json", "statement", made.to_dict())


def read_statement(folder):
    found = accounting.Statement.from_dict(storage.read_json(folder / "statement.json", "statement"))
    found.text()
    found.html()
    found.model_card_line()


def book(folder):
    with chain.Writer(folder / "ledger.jsonl") as writer:
        for batch in (1, 2):
            writer.append({"batch": batch, "asked": 3, "answers": "0 - 2", "cost": {"rdp": 0.1}})


def read_book(folder):
    for entry in chain.entries(folder / "ledger.jsonl"):
        ledger.unpack(entry["answers"])
    chain.check(folder / "ledger.jsonl")


def run_of(folder):
    run = RunDirectory(folder)
    run.secret.draw(None)
    run.record.agree("data", to_settings(DataChoice()))
    run.record.agree("partition", to_settings(PartitionChoice(teachers=5)))
    mechanism = ConfidentDiscreteGaussian(4.0, 3.0, 2.0)
    budget.settle(run, mechanism, teachers=5, classes=3, epsilon=30.0)
    run.record.agree("account", {"delta": 1e-5})


def read_run(folder):
    run = RunDirectory(folder)
    recorded = run.record.stages()
    run.secret.derive("noise")
    from_settings(DataChoice, recorded["data"]) if "data" in recorded else None
    from_settings(PartitionChoice, recorded["partition"]) if "partition" in recorded else None
    mechanisms.from_dict(recorded["mechanism"]) if "mechanism" in recorded else None
    budget.fixed(run)
    budget.spent(run)
    budget.agreed_delta(run, None)


def teachers(folder):
    store = Store(folder / "teachers", 0.0)
    store.agree({"teachers": 2, "processes": 1, "data": {"inputs": "0"}})
    store.keep_plan({"width": 1, "steps_per_call": 1, "convolution": "lax", "dtype": "float32", "wave": 2})
    (folder / "teachers" / "wave-00000-000001").mkdir()
    arrays = {"params.w": np.zeros((2, 3), np.float32)}
    storage.write_arrays(folder / "teachers" / "wave-00000-000001" / "arrays.npz", "teachers-wave", arrays)
    stage = {"folder": "wave-00000-000001", "turn": 1, "finished": True}
    storage.write_json(folder / "teachers" / "wave-00000.json", "teachers-wave", stage)


def read_teachers(folder):
    for _, load in checkpoint.finished_teachers(folder / "teachers").parts:
        trees.flat(load())
    Store(folder / "teachers", 0.0).sweep()


def learned(folder):
    import test_release

    test_release.student().save(folder)


def read_student(folder):
    serving._check_parameters(serving.Student.load(folder))


def read_student_alone(folder):
    predict.load(folder)


def own(folder):
    rows = np.random.default_rng(1).normal(size=(12, 3)).astype(np.float32)
    names = np.array([f"id-{row}" for row in range(12)])
    for name in ("private", "public"):
        np.savez(
            folder / f"{name}.npz", inputs=rows + len(name), labels=np.arange(12) % 3, ids=names, users=names
        )
    text = "id,age,town,sick\na,30,Rome,yes\nb,40,Oslo,no\nc,50,Rome,yes\n"
    (folder / "private.csv").write_text(text)
    (folder / "public.csv").write_text(re.sub(r"(\w),(\d)0,", r"of-pool-\g<1>,\g<2>1,", text))
    (folder / "categories.json").write_text(json.dumps({"town": ["Rome", "Oslo", "Lima"]}))
    (folder / "scales.json").write_text(json.dumps({"age": [40, 10]}))


def read_own(folder):
    own_files.from_files(folder / "private.npz", folder / "public.npz")


def read_table(folder):
    declared = {name: folder / f"{name}.json" for name in ("categories", "scales")}
    own_files.from_files(
        folder / "private.csv", folder / "public.csv", label_column="sick", id_column="id", **declared
    )


def frames(folder):
    """A Parquet table with dates, and folders of images."""
    days = [date(2024, 3, 1 + row) for row in range(9)]
    columns = {
        "seen": days,
        "smokes": [True, False, None] * 3,
        "sick": ["yes", "no", "no"] * 3,
    }
    for name, shift in (("private", 0.0), ("public", 0.5)):
        dose = [row + shift for row in range(9)]
        ids = [f"{name} {letter}" for letter in "abcdefghi"]
        table = pyarrow.table({"id": ids, **columns, "dose": dose})
        parquet.write_table(table, folder / f"{name}.parquet")
        for row, kind in enumerate(("cat", "dog")):
            (folder / name / kind).mkdir(parents=True)
            pixels = np.random.default_rng([row, len(name)]).integers(0, 256, (5, 4)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / kind / f"one-{name}.png")
            Image.fromarray(pixels).save(folder / name / kind / f"two-{name}.jpg")


def read_parquet(folder):
    own_files.from_files(
        folder / "private.parquet", folder / "public.parquet", label_column="sick", id_column="id"
    )


def read_images(folder):
    own_files.from_files(folder / "private", folder / "public")


def topologies(folder):
    (folder / "mine.toml").write_text(
        (ROOT / "pate_jax" / "system" / "topologies" / "cpu-8.toml").read_text()
    )


def rows(folder):
    results.append(folder / "results.jsonl", [{"cell": "a", "n": 1}, {"cell": "b", "n": 2}])


def local_vote(folder):
    agreed = terms.Terms(RandomisedResponse(3, 2.0), 5, 2, 4.0, 0.0, "one", 90)
    storage.write_json(folder / "plan.json", terms.KIND, terms.to_dict(agreed))
    votes(folder)
    given = {"party": "a", "folder": folder, "out": folder / "a.npz"}
    ballot.vote(folder / "plan.json", folder / "votes.npz", **given)


def read_local_vote(folder):
    ballot.count(folder / "plan.json", [folder / "a.npz"])


READERS = {
    "votes.npz": Reader(votes, "votes.npz", lambda folder: voting.load_votes(folder / "votes.npz")),
    "votes.npy": Reader(votes, "votes.npy", lambda folder: voting.load_votes(folder / "votes.npy")),
    "labels.npz": Reader(
        votes,
        "labels.npz",
        lambda folder: voting.load_votes(folder / "labels.npz", labels_are_teacher_labels=True),
    ),
    "certificate": Reader(certificate, "certificate.json", check_certificate),
    "statement": Reader(statement, "statement.json", read_statement),
    "ledger": Reader(book, "ledger.jsonl", read_book),
    "head": Reader(book, "ledger.jsonl.head.json", read_book),
    "settings": Reader(run_of, "private/settings.json", read_run),
    "keys": Reader(run_of, "private/keys.json", read_run),
    "identity": Reader(teachers, "teachers/identity.json", read_teachers),
    "plan": Reader(teachers, "teachers/plan.json", read_teachers),
    "wave": Reader(teachers, "teachers/wave-00000.json", read_teachers),
    "checkpoint": Reader(teachers, "teachers/wave-00000-000001/arrays.npz", read_teachers),
    "student.json": Reader(learned, "student.json", read_student),
    "parameters": Reader(learned, "parameters.npz", read_student),
    "student.json alone": Reader(learned, "student.json", read_student_alone),
    "parameters alone": Reader(learned, "parameters.npz", read_student_alone),
    "private.npz": Reader(own, "private.npz", read_own),
    "public.npz": Reader(own, "public.npz", read_own),
    "private.csv": Reader(own, "private.csv", read_table),
    "public.csv": Reader(own, "public.csv", read_table),
    "private.parquet": Reader(frames, "private.parquet", read_parquet),
    "public.parquet": Reader(frames, "public.parquet", read_parquet),
    "private png": Reader(frames, "private/cat/one-private.png", read_images),
    "public jpg": Reader(frames, "public/dog/two-public.jpg", read_images),
    "categories": Reader(own, "categories.json", read_table),
    "scales": Reader(own, "scales.json", read_table),
    "topology": Reader(topologies, "mine.toml", lambda folder: topology.read(str(folder / "mine.toml"))),
    "local plan": Reader(local_vote, "plan.json", read_local_vote),
    "local answers": Reader(local_vote, "a.npz", read_local_vote),
    "sweep": Reader(rows, "results.jsonl", lambda folder: results.read(folder)),
}
OURS = (PateError, predict.InputError)


def spoilt(reader: Reader, folder: Path, content: bytes) -> None:
    """Read the folder with this in place of the one file; only our own errors may come out."""
    (folder / reader.file).write_bytes(content)
    try:
        reader.read(folder)
    except OURS as error:
        assert "\n" not in str(error).strip() and len(str(error)) < 20_000


@pytest.fixture(scope="module", params=READERS)
def honest(request, tmp_path_factory):
    """A folder with an honest file, its reader and its content."""
    reader = READERS[request.param]
    folder = tmp_path_factory.mktemp("honest")
    reader.make(folder)
    reader.read(folder)
    return reader, folder, (folder / reader.file).read_bytes()


@st.composite
def damages(draw, content: bytes):
    """The content cut short, with bits flipped, with a piece repeated, or nothing like it."""
    kind = draw(st.sampled_from(["cut", "flip", "flip", "repeat", "random"]))
    if kind == "random":
        return draw(st.binary(max_size=200))
    place = draw(st.integers(0, max(len(content) - 1, 0)))
    if kind == "cut":
        return content[:place]
    if kind == "repeat":
        return content[:place] + content[place : place + 9] * draw(st.integers(2, 40)) + content[place:]
    spoiled = bytearray(content)
    for at in [place, *draw(st.lists(st.integers(0, max(len(content) - 1, 0)), max_size=3))]:
        spoiled[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(spoiled)


def damaged(honest, profile):
    reader, folder, content = honest

    @profile
    @given(damages(content))
    def test(spoiled):
        spoilt(reader, folder, spoiled)

    test()


@pytest.mark.filterwarnings("ignore:Data type alias")  # NumPy's own remark on a letter that damage made
def test_damage_ends_in_our_own_error(honest):
    damaged(honest, FEW)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Data type alias")
def test_much_damage_ends_in_our_own_error(honest):
    damaged(honest, MANY)


# ---- JSON that is whole and hostile

HOSTILE = [
    *(None, True, -1, 0, 10**30, 1e308, "", "x", "../../etc", "\ud800", [], {}, [[]], {"a": {}}),
    *([None], ["x"], -(10**30), 0.5, "9" * 50, "0" * 64, {"": 0}),
]


def places(body, path=()):
    """Every place in a JSON value."""
    yield path
    pairs = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for name, value in pairs:
        yield from places(value, (*path, name))


def exchanged(body, path, value, how):
    """The value with another one, or nothing, at a place; or with one more beside it."""
    if not path:
        return value
    body = copy.deepcopy(body)
    here = body
    for step in path[:-1]:
        here = here[step]
    if how == "drop":
        del here[path[-1]]
    elif how == "add" and isinstance(here, dict):
        here["unheard of"] = value
    else:
        here[path[-1]] = value
    return body


JSON = [name for name, reader in READERS.items() if reader.file.endswith(".json")]


@pytest.mark.parametrize("name", JSON)
def test_hostile_json_ends_in_our_own_error(name, tmp_path):
    reader = READERS[name]
    reader.make(tmp_path)
    body = json.loads((tmp_path / reader.file).read_text())
    everywhere = [path for path in places(body) if path not in ((), ("artefact",), ("schema",))]

    @FEW
    @given(
        st.sampled_from(everywhere), st.sampled_from(HOSTILE), st.sampled_from(["set", "set", "drop", "add"])
    )
    def test(path, value, how):
        spoilt(reader, tmp_path, json.dumps(exchanged(body, path, value, how)).encode())

    test()


NASTY = {
    "deep": b"[" * 100_000,
    "deep object": b'{"a":' * 100_000,
    "not a number": b'{"artefact": "x", "schema": NaN}',
    "infinite": b'{"artefact": "x", "schema": 1e999}',
    "huge number": b'{"artefact": "x", "schema": ' + b"9" * 10_000 + b"}",
    "twice": b'{"artefact": "x", "artefact": "y"}',
    "no object": b"3",
    "byte order": b"\xef\xbb\xbf{}",
    "zeros": bytes(1000),
    "nothing": b"",
}


@pytest.mark.parametrize("kind", NASTY)
def test_nasty_text_ends_in_our_own_error(kind, tmp_path):
    for name, reader in READERS.items():
        folder = tmp_path / name
        folder.mkdir()
        reader.make(folder)
        spoilt(reader, folder, NASTY[kind])


# ---- archives that are whole and hostile

ARCHIVES = [name for name, reader in READERS.items() if reader.file.endswith(".npz")]
ARRAYS = [
    np.zeros(0),
    np.zeros((3, 0)),
    np.array(3),
    np.array("x"),
    np.array([1.5, np.nan]),
    np.full((5, 3), -1),
    np.full((5, 3), 2**62),
    np.zeros((5, 3), np.complex64),
    np.zeros((2, 2, 2, 2, 2)),
    np.array(["a", "b"]),
    np.zeros(5, "M8[s]"),
    np.zeros(5, [("a", "i4")]),
    np.ones((5, 3), bool),
    np.array(b"bytes"),
]


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in content:
            archive.writestr(name, data)
    return stream.getvalue()


def npy(array):
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


@pytest.mark.parametrize("name", ARCHIVES)
def test_hostile_arrays_end_in_our_own_error(name, tmp_path):
    reader = READERS[name]
    reader.make(tmp_path)
    content = members(tmp_path / reader.file)

    @FEW
    @given(st.sampled_from(sorted(content)), st.sampled_from(range(len(ARRAYS))))
    def test(member, which):
        changed = {**content, member: npy(ARRAYS[which])}
        spoilt(reader, tmp_path, zipped(changed.items()))

    test()


class Bomb:
    """What a pickle could do."""

    def __reduce__(self):
        return (Path("was-here").touch, ())


@pytest.mark.parametrize("name", [*ARCHIVES, "votes.npy"])
def test_no_pickle_is_ever_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reader = READERS[name]
    reader.make(tmp_path)
    pickled = npy(np.array([Bomb()], dtype=object))
    raw = pickle.dumps(Bomb())
    content = [] if name == "votes.npy" else list(members(tmp_path / reader.file))
    for attack in (pickled, raw):
        (tmp_path / reader.file).write_bytes(attack)
        with pytest.raises(OURS):
            reader.read(tmp_path)
        for member in content:
            (tmp_path / reader.file).write_bytes(zipped([(member, attack)]))
            with pytest.raises(OURS):
                reader.read(tmp_path)
    assert not (tmp_path / "was-here").exists()


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_leads_nowhere_else_and_takes_no_more_memory_than_it_may(name, tmp_path):
    reader, folder = READERS[name], tmp_path / "inside"
    folder.mkdir()
    reader.make(folder)
    content = members(folder / reader.file)
    for place in ("../../escaped.npy", "/tmp/escaped.npy", "C:\\escaped.npy", "a/../../escaped.npy"):
        spoilt(reader, folder, zipped([*content.items(), (place, npy(np.arange(3)))]))
        assert not list(tmp_path.rglob("escaped*"))
        assert not Path("/tmp/escaped.npy").exists()
    header = npy(np.zeros(1, np.uint8))[:-1].replace(b"(1,)", b"(9999999999999,)")
    spoilt(reader, folder, zipped([*content.items(), ("more.npy", header)]))
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs.npy", b"")
    size = re.sub(
        rb"(PK\x01\x02.{20})....", lambda found: found[1] + b"\xff\xff\xff\xf0", many.getvalue(), flags=re.S
    )
    spoilt(reader, folder, size)


def test_a_checkpoint_is_read_from_its_own_folder_only(tmp_path):
    teachers(tmp_path)
    (tmp_path / "precious").mkdir()
    for folder in ("../precious", str(tmp_path / "precious"), "..", ".", "", "wave-00000-000001/.."):
        stage = {"folder": folder, "turn": 1, "finished": True}
        storage.write_json(tmp_path / "teachers" / "wave-00000.json", "teachers-wave", stage)
        with pytest.raises(PateError, match="folder"):
            read_teachers(tmp_path)
        with pytest.raises(PateError, match="folder"):
            Store(tmp_path / "teachers", 0.0).offer(0, dict)
    assert (tmp_path / "precious").is_dir() and (tmp_path / "teachers").is_dir()


@FEW
@given(st.binary(max_size=300), st.sampled_from(["idx", "cifar", "svhn"]))
def test_bytes_that_are_no_archive_of_a_data_set(content, kind):
    import gzip

    for spoiled in (content, gzip.compress(content), b"\x1f\x8b" + content):
        with pytest.raises(PateError):
            if kind == "idx":
                sources.idx(b"\0" + spoiled, "images")
            elif kind == "cifar":
                sources.cifar(spoiled, ("data_batch_1.bin",), "cifar10")
            else:
                sources.svhn(spoiled, "svhn")


@FEW
@given(st.text(max_size=300))
def test_text_that_is_no_table_of_adult(text):
    with pytest.raises(PateError):
        sources.parse(text.encode(errors="replace"), "adult.data")


def test_the_package_unpickles_nothing():
    """`allow_pickle=False` wherever NumPy reads or writes, and none of the modules that unpickle."""
    forbidden = re.compile(
        r"\b(pickle|cloudpickle|dill|joblib|shelve|marshal|yaml)\b\s*(\.|$)|allow_pickle=True"
    )
    for path in sorted((ROOT / "pate_jax").rglob("*.py")):
        text = re.sub(r'""".*?"""|#.*', "", path.read_text(), flags=re.DOTALL)
        assert not re.search(
            rf"(import|from)\s+({'|'.join(('pickle', 'dill', 'joblib', 'shelve', 'marshal'))})\b", text
        ), path
        assert not forbidden.search(text.replace("allow_pickle=False", "")), path
        for call in re.finditer(r"np\.(load|save|savez|savez_compressed)\(", text):
            assert "allow_pickle=False" in text[call.start() : call.start() + 200], path
