"""Archives: their layouts, their checksums, one way to prepare them, and what happens without a network."""

import dataclasses
import functools
import gzip
import hashlib
import http.server
import io
import socket
import struct
import subprocess
import sys
import tarfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from pate_jax import data
from pate_jax.data import relation
from pate_jax.data.archives import sources
from pate_jax.data.archives import tfds as others
from pate_jax.data.archives.sources import Archive
from pate_jax.errors import PateError

SHARED = Path(__file__).parents[2] / "../shared/data"
HELD_OUT = {"mnist": 9500, "fashion_mnist": 9500, "svhn": 10_500, "cifar10": 9500}
ALIKE = {"equal_rows_are_coincidences": True}  # made-up rows repeat themselves


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(head + array.tobytes(), compresslevel=1)


def pictures(records: int, *shape: int) -> np.ndarray:
    """Every image is its own: its first two bytes spell its number."""
    images = np.zeros((records, *shape), np.uint8)
    flat = images.reshape(records, -1)
    flat[:, 0], flat[:, 1] = np.arange(records) % 256, np.arange(records) // 256
    return images


def idx_files(train: int, held_out: int) -> dict[str, bytes]:
    return {
        f"{prefix}-{kind}": idx(content)
        for prefix, records in (("train", train), ("t10k", held_out))
        for kind, content in (
            ("images-idx3-ubyte.gz", pictures(records, 28, 28)),
            ("labels-idx1-ubyte.gz", (np.arange(records) % 10).astype(np.uint8)),
        )
    }


def cifar_file(train: int, held_out: int) -> dict[str, bytes]:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as tar:
        batches = np.array_split(np.arange(train), 5)
        members = {f"data_batch_{number}.bin": rows for number, rows in enumerate(batches, start=1)}
        for name, rows in (members | {"test_batch.bin": np.arange(held_out)}).items():
            planes = pictures(rows.max() + 1, 3072)[rows]
            content = np.concatenate([(rows % 10).astype(np.uint8)[:, None], planes], axis=1).tobytes()
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return {"cifar-10-binary.tar.gz": stream.getvalue()}


def svhn_files(train: int, held_out: int) -> dict[str, bytes]:
    files = {}
    for name, records in (("train", train), ("test", held_out)):
        stream = io.BytesIO()
        labels = np.where(np.arange(records) % 10 == 0, 10, np.arange(records) % 10)[:, None].astype(np.uint8)
        savemat(
            stream,
            {"X": pictures(records, 32, 32, 3).transpose(1, 2, 3, 0), "y": labels},
            do_compression=True,
        )
        files[f"{name}_32x32.mat"] = stream.getvalue()
    return files


WHO = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male"
ROW = f"{WHO}, 2174, 0, 40,"
MISSING = ROW.replace("State-gov", "?")


def adult_files(rows: int = 9) -> dict[str, bytes]:
    train = [f"{ROW} United-States, {'>50K' if row % 3 else '<=50K'}" for row in range(rows)]
    train[4] = f"{MISSING} United-States, >50K"
    held_out = ["|1x3 Cross validator", *(line + "." for line in train)]
    return {"adult.data": "\n".join([*train, ""]).encode(), "adult.test": "\n".join([*held_out, ""]).encode()}


FILES = {
    "mnist": functools.partial(idx_files, 60),
    "fashion_mnist": functools.partial(idx_files, 50),
    "svhn": functools.partial(svhn_files, 40),
    "cifar10": functools.partial(cifar_file, 30),
}


def register(monkeypatch, name: str, files: dict[str, bytes], base: str = "http://localhost:9/") -> None:
    """Make small files the registered ones, for us and for tensorflow-datasets."""
    import tensorflow_datasets as tfds

    from pate_jax.data.archives.builders import BUILDERS

    known = {
        base + file: Archive(base + file, len(content), hashlib.sha256(content).hexdigest(), file)
        for file, content in files.items()
    }
    infos = {
        url: tfds.download.checksums.UrlInfo(archive.size, archive.sha256, archive.filename)
        for url, archive in known.items()
    }
    source = dataclasses.replace(sources.SOURCES[name], base=base)
    monkeypatch.setattr(sources, "_registered", lambda: known)
    monkeypatch.setitem(sources.SOURCES, name, source)
    monkeypatch.setattr(BUILDERS[name], "SOURCE", source)
    monkeypatch.setattr(BUILDERS[name], "url_infos", infos)


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


# Layouts


def test_idx_round_trip():
    images, labels = pictures(7, 5, 4), np.arange(7, dtype=np.uint8)
    records = sources.idx_images(idx(images), idx(labels), "x")
    assert np.array_equal(records.inputs[..., 0], images)
    assert records.labels.tolist() == records.numbers.tolist() == list(range(7))


def test_cifar_planes_become_channels():
    content = cifar_file(10, 3)["cifar-10-binary.tar.gz"]
    records = sources.cifar(content, ("test_batch.bin",), "cifar10")
    assert records.inputs.shape == (3, 32, 32, 3)
    assert records.inputs[2, 0, 0, 0] == 2  # the first byte is red, at the top left
    assert records.inputs[2, 0, 1, 0] == 0


def test_svhn_ten_is_zero():
    records = sources.svhn(svhn_files(12, 1)["train_32x32.mat"], "svhn")
    assert records.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert records.inputs.shape == (12, 32, 32, 3)
    assert records.inputs[5, 0, 0, 0] == 5


def test_adult_rows():
    train, held_out = (sources.parse(content, name) for name, content in adult_files().items())
    assert train.numbers.tolist() == [
        0,
        1,
        2,
        3,
        5,
        6,
        7,
        8,
    ]  # line 4 misses a value; the others keep their number
    assert train.labels.tolist() == [0, 1, 1, 0, 1, 0, 1, 1]
    assert held_out.numbers.tolist() == [1, 2, 3, 4, 6, 7, 8, 9]
    assert held_out.labels.tolist() == train.labels.tolist()
    assert train.inputs.shape == (8, sources.FEATURES) == (8, 109)
    measures = [39, 39, 13, np.log1p(2174), 0, 0, 40]
    assert train.inputs[0, :7].tolist() == pytest.approx(measures)
    assert train.inputs[0, 7:10].tolist() == [0, 0, 0]  # single, of neither group of occupations
    assert (train.inputs[:, 10:].sum(1) == len(sources.CATEGORIES)).all()
    assert len(sources.OFFSET) == len(sources.SCALE) == sources.FEATURES


GZIP = idx(pictures(3, 5, 4))
DAMAGED = {
    "gzip cut short": (lambda: sources.idx(GZIP[:-9], "mnist images"), "not a whole gzip file"),
    "no gzip": (lambda: sources.idx(b"<html>", "mnist images"), "not a whole gzip file"),
    "no IDX": (lambda: sources.idx(gzip.compress(b"abcdef"), "mnist images"), "not an IDX file"),
    "IDX too short": (
        lambda: sources.idx(gzip.compress(gzip.decompress(GZIP)[:-1]), "x"),
        "says that it has shape (3, 5, 4)",
    ),
    "IDX of another count": (
        lambda: sources.idx_images(GZIP, idx(np.zeros(4, np.uint8)), "x"),
        "do not belong",
    ),
    "no tar": (
        lambda: sources.cifar(b"abc", ("test_batch.bin",), "cifar10"),
        "not CIFAR-10's binary archive",
    ),
    "tar lacks a member": (
        lambda: sources.cifar(cifar_file(5, 1)["cifar-10-binary.tar.gz"], ("x.bin",), "cifar10"),
        "not CIFAR-10's",
    ),
    "no MATLAB file": (lambda: sources.svhn(b"abc" * 100, "svhn"), "not SVHN's MATLAB file"),
    "adult of other columns": (lambda: sources.parse(b"1, 2, 3\n", "adult.data"), "line 1 has 3 columns"),
    "adult of other values": (
        lambda: sources.parse(f"{ROW} Atlantis, >50K".encode(), "adult.data"),
        "line 1 has native-country='Atlantis'",
    ),
    "adult without a number": (
        lambda: sources.parse(f"{ROW} Cuba, >50K".replace("39", "old").encode(), "adult.data"),
        "line 1 has age='old', which is not a number",
    ),
    "adult NaN": (
        lambda: sources.parse(f"{ROW} Cuba, >50K".replace("39", "nan").encode(), "a"),
        "out of range",
    ),
    "adult of another label": (lambda: sources.parse(f"{ROW} Cuba, 7".encode(), "a"), "income='7'"),
    "adult without rows": (lambda: sources.parse(b"\n", "adult.data"), "no complete rows"),
    "adult in binary": (lambda: sources.parse(b"\xff\xfe", "adult.data"), "not a table in ASCII"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damage_is_one_sentence(case):
    call, said = DAMAGED[case]
    with pytest.raises(PateError) as caught:
        call()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# Loading


@pytest.mark.parametrize("name", FILES)
@pytest.mark.long
def test_load_prepares_once_and_keeps_the_archives_order(name, monkeypatch, tmp_path):
    files = FILES[name](HELD_OUT[name])
    register(monkeypatch, name, files)
    first = data.load(name, data_dir=tmp_path / "cache", manual_dir=lay(tmp_path / "own", files))
    side, channels = (28, 1) if "mnist" in name else (32, 3)
    assert first.input_shape == (side, side, channels)
    assert first.private.ids[:2].tolist() == [f"{name}-train-0", f"{name}-train-1"]
    public = 10_000 if name == "svhn" else 9000
    assert (len(first.public.inputs), len(first.test.inputs)) == (public, HELD_OUT[name] - public)
    assert first.test.ids[0] == f"{name}-test-{public}"
    assert (first.private.labels == np.arange(len(first.private.labels)) % 10).all()
    assert first.test.labels[0] == public % 10
    if channels == 1:
        assert (
            first.private.inputs.reshape(len(first.private.labels), -1)[:, 0]
            == np.arange(60)[: len(first.private.labels)]
        ).all()
    again = data.load(name, data_dir=tmp_path / "cache")  # prepared: neither archives nor a network
    for one, other in zip(
        (first.private, first.public, first.test), (again.private, again.public, again.test), strict=True
    ):
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
    assert not first.synthetic
    assert "registered archives" in first.description


def test_adult_of_other_content_is_named_and_kept_apart(tmp_path):
    own = lay(tmp_path / "own", adult_files())
    first = data.load("adult", data_dir=tmp_path / "cache", manual_dir=own, **ALIKE)
    digest = hashlib.sha256((own / "adult.data").read_bytes()).hexdigest()
    assert first.private_notes["sha256"]["adult.data"] == digest
    assert "the user's own files" in first.description and digest[:8] not in first.description
    assert first.kind == "table"
    assert first.private.ids[4] == "adult-train-5"
    assert (len(first.public.inputs), len(first.test.inputs)) == (6, 2)
    other = data.load(
        "adult", data_dir=tmp_path / "cache", manual_dir=lay(tmp_path / "more", adult_files(30)), **ALIKE
    )
    assert len(other.private.inputs) == 29
    assert len(data.load("adult", data_dir=tmp_path / "cache", manual_dir=own, **ALIKE).private.inputs) == 8
    unreachable = socket.gaierror("no name")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(PateError, match="cannot be reached"):
        patch.setattr(socket, "create_connection", functools.partial(_raise, unreachable))
        data.load(
            "adult", data_dir=tmp_path / "cache"
        )  # the user's own files do not pass for the registered ones


@pytest.mark.parametrize(("row", "age"), [(0, 17), (3, 90)])
def test_one_private_row_of_ones_own_adult_decides_nothing_public(tmp_path, row, age):
    """Not even whether the file is the registered one, as it is before its row changes."""
    folder, files = tmp_path, adult_files()
    lines = files["adult.data"].splitlines()
    lines[row] = lines[row].replace(b"39", b"%d" % age, 1)
    copies = files, {**files, "adult.data": b"\n".join(lines)}, {**files, "adult.data": b"\n".join(lines[1:])}
    with pytest.MonkeyPatch.context() as patch:
        register(patch, "adult", files)
        registered, changed, fewer = (
            data.load("adult", data_dir=folder / "cache", manual_dir=lay(folder / str(at), copy), **ALIKE)
            for at, copy in enumerate(copies)
        )
    for other in (changed, fewer):
        for name in ("description", "ids_are", "equal_rows", "name", "preprocessing", "class_names"):
            assert getattr(registered, name) == getattr(other, name)
        assert relation.of(registered, "record") == relation.of(other, "record")
        assert relation.renumbers(registered, "record") == relation.renumbers(other, "record")
        np.testing.assert_array_equal(registered.public.inputs, other.public.inputs)


def _raise(error, *_args, **_options):
    raise error


def test_files_of_another_set_do_not_pass(monkeypatch, tmp_path):
    register(monkeypatch, "mnist", idx_files(60, 9500))
    fashion = lay(tmp_path / "fashion", idx_files(50, 9500))
    with pytest.raises(PateError, match=r"ubyte\.gz is not the registered .*archive of mnist"):
        data.load("mnist", data_dir=tmp_path / "cache", manual_dir=fashion)
    assert not list((tmp_path / "cache").glob("**/*.array_record*"))


@pytest.mark.parametrize("damage", ["cut short", "one bit"])
def test_damaged_archives_do_not_pass(monkeypatch, tmp_path, damage):
    files = idx_files(60, 9500)
    register(monkeypatch, "mnist", files)
    victim = "t10k-images-idx3-ubyte.gz"
    content = bytearray(files[victim])
    if damage == "cut short":
        content = content[:-100]
    else:
        content[len(content) // 2] ^= 1
    own = lay(tmp_path / "own", files | {victim: bytes(content)})
    with pytest.raises(PateError, match=f"{victim} is not the registered"):
        data.load("mnist", data_dir=tmp_path / "cache", manual_dir=own)


def test_missing_archives_are_named(monkeypatch, tmp_path):
    files = idx_files(60, 9500)
    register(monkeypatch, "mnist", files)
    own = lay(tmp_path / "own", files)
    (own / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(PateError, match=r"lacks train-labels-idx1-ubyte\.gz of mnist"):
        data.load("mnist", data_dir=tmp_path / "cache", manual_dir=own)
    with pytest.raises(PateError, match="lacks"):
        data.load("mnist", data_dir=tmp_path / "cache", manual_dir=tmp_path / "nowhere")


def test_a_damaged_cache_is_named(monkeypatch, tmp_path):
    files = idx_files(60, 9500)
    register(monkeypatch, "mnist", files)
    own = lay(tmp_path / "own", files)
    data.load("mnist", data_dir=tmp_path / "cache", manual_dir=own)
    for record in (tmp_path / "cache").glob("**/*train.array_record*"):
        record.write_bytes(record.read_bytes()[:70_000])
    with pytest.raises(PateError, match="remove that folder and load again"):
        data.load("mnist", data_dir=tmp_path / "cache", manual_dir=own)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PateError, match="cannot be written"):
        data.load("mnist", data_dir=tmp_path / "file")


LOAD = """
import sys
from pate_jax import data
folders = {"data_dir": sys.argv[1], "manual_dir": sys.argv[2]}
part = data.load("adult", **folders, equal_rows_are_coincidences=True).private
print(len(part.inputs), part.inputs.sum())
"""


@pytest.mark.long
def test_two_processes_at_once(tmp_path):
    own = lay(tmp_path / "own", adult_files(3000))
    command = [sys.executable, "-W", "error", "-c", LOAD, str(tmp_path / "cache"), str(own)]
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    (first, trouble), (second, more) = (run.communicate() for run in runs)
    assert (trouble, more) == ("", "")
    assert first == second
    assert first.startswith("2999 ")
    assert len(list((tmp_path / "cache").glob("**/*train.array_record*"))) == 1


# Network


class Server(http.server.ThreadingHTTPServer):
    asked = 0


@pytest.fixture
def serve(tmp_path):
    """A host that serves a folder."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            self.server.asked += 1

    servers = []

    def start(folder: Path) -> Server:
        server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_archives_are_downloaded_once(monkeypatch, tmp_path, serve):
    files = idx_files(60, 9500)
    server = serve(lay(tmp_path / "host", files))
    register(monkeypatch, "mnist", files, base=f"http://127.0.0.1:{server.server_port}/")
    assert len(data.load("mnist", data_dir=tmp_path / "cache").private.inputs) == 60
    assert server.asked == 4
    assert len(data.load("mnist", data_dir=tmp_path / "cache").private.inputs) == 60
    assert server.asked == 4


def test_a_wrong_download_does_not_pass(monkeypatch, tmp_path, serve):
    files = idx_files(60, 9500)
    spoiled = files | {"train-labels-idx1-ubyte.gz": b"<html>moved</html>"}
    server = serve(lay(tmp_path / "host", spoiled))
    register(monkeypatch, "mnist", files, base=f"http://127.0.0.1:{server.server_port}/")
    with pytest.raises(PateError) as caught:
        data.load("mnist", data_dir=tmp_path / "cache")
    assert "train-labels-idx1-ubyte.gz" in str(caught.value)
    assert "--manual-dir" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "cache").glob("**/*.array_record*"))


def test_a_host_without_the_file_is_named(monkeypatch, tmp_path, serve):
    files = idx_files(60, 9500)
    server = serve(lay(tmp_path / "host", {}))
    register(monkeypatch, "mnist", files, base=f"http://127.0.0.1:{server.server_port}/")
    with pytest.raises(PateError, match=r"mnist cannot be downloaded \(.*404.*--manual-dir"):
        data.load("mnist", data_dir=tmp_path / "cache")


def test_a_closed_port_names_the_way_out(monkeypatch, tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{unused.getsockname()[1]}/"
    register(monkeypatch, "mnist", idx_files(60, 9500), base=base)
    with pytest.raises(PateError, match=r"cannot be reached .*--manual-dir, or use strokes"):
        data.load("mnist", data_dir=tmp_path / "cache")


def test_a_name_that_does_not_resolve(monkeypatch):
    monkeypatch.setattr(
        socket, "create_connection", functools.partial(_raise, socket.gaierror(-2, "no such name"))
    )
    with pytest.raises(PateError, match=r"svhn must be downloaded, but host\.invalid:80 cannot be reached"):
        others.check_reachable("svhn", ["http://host.invalid/a", "http://host.invalid/b"])


def test_a_host_that_never_answers(monkeypatch):
    monkeypatch.setattr(others, "SECONDS", 0.05)
    monkeypatch.setattr(others, "_try", lambda *_: time.sleep(5))
    with pytest.raises(PateError, match="did not answer in time"):
        others.check_reachable("svhn", ["http://one.invalid/", "https://two.invalid/"])


def test_a_proxy_is_asked_in_place_of_the_host(monkeypatch):
    asked = []

    class Connection:
        def close(self):
            pass

    def connect(host, **_):
        asked.append(host)
        return Connection()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", "inside.invalid")
    others.check_reachable("x", ["https://outside.invalid/a", "https://very.inside.invalid/b"])
    assert sorted(asked) == [("proxy.invalid", 3128), ("very.inside.invalid", 443)]


def test_no_addresses_need_no_network():
    others.check_reachable("x", [])


# Other names


def test_an_unknown_name_lists_the_names():
    with pytest.raises(
        PateError, match=r"data='mnits' is not known; choose one of strokes, glyphs, mnist.*similar"
    ):
        data.load("mnits")
    with pytest.raises(PateError, match=r"data='\.\./x' is not known"):
        data.load("../x")


def test_a_name_that_needs_tensorflow_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(others.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(PateError, match=r"data='kmnist' .*pip install 'pate-jax\[tensorflow\]'"):
        data.load("kmnist", data_dir=tmp_path)


def their_builders():
    """Builders as if tensorflow-datasets had them, of features that need no TensorFlow."""
    import tensorflow_datasets as tfds

    feature = tfds.features

    class PateToyImages(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("2.0.0")

        def _info(self):
            image = feature.Tensor(shape=(5, 6, 3), dtype=np.uint8)
            label = feature.ClassLabel(names=["left", "right"])
            columns = {"image": image, "label": label, "note": feature.Text()}
            return tfds.core.DatasetInfo(builder=self, features=feature.FeaturesDict(columns))

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(30), "test": self._generate_examples(20)}

        def _generate_examples(self, records):
            for number in range(records):
                yield (
                    number,
                    {"image": np.full((5, 6, 3), number, np.uint8), "label": number % 2, "note": "n"},
                )

    class PateToyRows(PateToyImages):
        def _info(self):
            columns = {"a": np.float32, "b": feature.Tensor(shape=(2,), dtype=np.float32), "n": np.int64}
            columns |= {"kind": feature.ClassLabel(num_classes=3)}
            return tfds.core.DatasetInfo(builder=self, features=feature.FeaturesDict(columns))

        def _generate_examples(self, records):
            for number in range(records):
                yield number, {"a": number, "b": [1.0, number], "n": number, "kind": number % 3}

    class PateToyWords(PateToyImages):
        def _info(self):
            columns = {"text": feature.Text()}
            return tfds.core.DatasetInfo(builder=self, features=feature.FeaturesDict(columns))

        def _generate_examples(self, records):
            for number in range(records):
                yield number, {"text": str(number)}


@pytest.fixture(scope="module")
def toys():
    their_builders()


@pytest.mark.long
def test_any_other_image_and_table(toys, monkeypatch, tmp_path):
    monkeypatch.setattr(others.importlib.util, "find_spec", lambda _: True)
    images = data.load("pate_toy_images", data_dir=tmp_path, **ALIKE)
    assert (images.kind, images.class_names, images.input_shape) == ("image", ("left", "right"), (5, 6, 3))
    assert (len(images.private.inputs), len(images.public.inputs), len(images.test.inputs)) == (30, 18, 2)
    assert (images.private.inputs[:, 0, 0, 0] % 2 == images.private.labels).all()
    assert sorted(images.private.inputs[:, 0, 0, 0].tolist()) == list(range(30))
    # Places in a file that nobody vouches for: no ids.
    assert relation.of(images, "record") == "contents" and "WARNING" in images.description
    fixed = data.load("pate_toy_images", data_dir=tmp_path, ids_are_stable=True, **ALIKE)
    assert relation.of(fixed, "record") == "record" and "WARNING" not in fixed.description
    rows = data.load("pate_toy_rows", data_dir=tmp_path, **ALIKE)
    assert (rows.kind, rows.classes, rows.input_shape) == ("table", 3, (4,))
    assert np.allclose(rows.preprocessing.offset, rows.public.inputs.mean(0))
    with pytest.raises(PateError, match="no class labels"):
        data.load("pate_toy_words", data_dir=tmp_path)
    monkeypatch.setattr(others.importlib.util, "find_spec", lambda _: None)
    again = data.load("pate_toy_images", data_dir=tmp_path, **ALIKE)  # prepared: needs no TensorFlow
    assert np.array_equal(again.private.inputs, images.private.inputs)


# The true archives


def test_checksums_name_every_file_once():
    found = [archive for source in sources.SOURCES.values() for archive in source.archives.values()]
    assert len(found) == 13
    assert len({archive.sha256 for archive in found}) == 13
    assert all(len(archive.sha256) == 64 for archive in found)
    assert not any("extra" in archive.url for archive in found)


FASHION = pytest.param("fashion_mnist", [9, 0, 0, 3, 0], marks=pytest.mark.long)


@pytest.mark.parametrize(("name", "first"), [("mnist", [5, 0, 4, 1, 9]), FASHION])
@pytest.mark.long
def test_true_images(name, first, tmp_path):
    folder = SHARED / name
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    found = data.load(name, data_dir=tmp_path, manual_dir=folder)
    assert found.private.inputs.shape == (60_000, 28, 28, 1)
    assert (len(found.public.inputs), len(found.test.inputs)) == (9000, 1000)
    assert found.private.labels[:5].tolist() == first
    raw = gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes())[16:]
    assert found.private.inputs.tobytes() == raw
    other = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}[name]
    with pytest.raises(PateError, match="is not the registered"):
        data.load(name, data_dir=tmp_path, manual_dir=SHARED / other)


@pytest.mark.long
def test_true_adult(tmp_path):
    folder = SHARED / "adult"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    found = data.load("adult", data_dir=tmp_path, manual_dir=folder)
    assert found.private.inputs.shape == (30_162, 109)
    assert (len(found.public.inputs), len(found.test.inputs)) == (11_295, 3765)
    assert found.private.labels.mean() == pytest.approx(0.2489, abs=1e-4)
    scaled = found.preprocessing.apply(found.private.inputs)
    assert np.abs(scaled).max() < 6
