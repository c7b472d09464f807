"""The archives that this package reads itself: their addresses, their content, and how they are divided.

Sizes and SHA-256 are in checksums.tsv, as tensorflow-datasets registers them (for Adult, which has no builder
there, as UCI serves it). The private part is the archive's training part. The archive's test part is divided
at a fixed record into the public part and the test part.

Files become arrays with every size checked. Of UCI Adult the columns, categories and scales are constants.
The categories are those in the data set's description (adult.names), and the scales are round numbers that
fit the meaning of each column. The measures come first and express common knowledge about wages: they rise
with age up to middle age, with schooling and with hours; married people, managers and professionals earn
more, manual and service workers less. Nothing here was fitted to rows. A teacher with a hundred records
learns little about forty countries, so the one-hot groups are divided by five. A row with `?` lacks a value
and is dropped; the others keep the number of their line.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import struct
import tarfile
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data.dataset import Preprocessing
from pate_jax.errors import PateError
from pate_jax.system.storage import UNREADABLE

_IDX_BYTES = 0x08  # the IDX code of unsigned bytes


class Records(NamedTuple):
    """The records of an archive, in its order."""

    inputs: np.ndarray  # uint8 [n, height, width, channels] or float32 [n, features]
    labels: np.ndarray  # int32 [n]
    numbers: np.ndarray  # int64 [n]: the record's number in the archive


def idx_images(images: bytes, labels: bytes, name: str) -> Records:
    """Gzipped IDX images and labels (MNIST, Fashion-MNIST)."""
    pixels, classes = idx(images, f"{name} images"), idx(labels, f"{name} labels")
    if pixels.ndim != 3 or classes.ndim != 1 or len(pixels) != len(classes):
        raise PateError(
            f"{name} holds images {pixels.shape} and labels {classes.shape}, which do not belong together"
        )
    return Records(pixels[..., None], classes.astype(np.int32), np.arange(len(pixels)))


def idx(content: bytes, name: str) -> np.ndarray:
    """One gzipped IDX file of unsigned bytes.

    >>> idx(gzip.compress(bytes([0, 0, 8, 1, 0, 0, 0, 2, 5, 6])), "labels").tolist()
    [5, 6]
    """
    try:
        raw = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise PateError(f"{name} is not a whole gzip file ({error}); fetch it again") from error
    if len(raw) < 4 or raw[:3] != bytes([0, 0, _IDX_BYTES]) or len(raw) < 4 + 4 * raw[3]:
        raise PateError(f"{name} is not an IDX file of bytes; fetch it again")
    shape = struct.unpack(f">{raw[3]}I", raw[4 : 4 + 4 * raw[3]])
    body = np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3])
    if body.size != np.prod(shape):
        raise PateError(f"{name} says that it has shape {shape}, but has {body.size} bytes; fetch it again")
    return body.reshape(shape)


def cifar(content: bytes, members: tuple[str, ...], name: str) -> Records:
    """CIFAR-10's binary tar: records of one label byte and three planes of 32x32."""
    blocks = []
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            for member in members:
                stream = archive.extractfile(f"cifar-10-batches-bin/{member}")
                blocks.append(b"" if stream is None else stream.read())
    except (tarfile.TarError, KeyError, OSError, EOFError, zlib.error) as error:
        raise PateError(f"{name} is not CIFAR-10's binary archive ({error}); fetch it again") from error
    raw = np.frombuffer(b"".join(blocks), np.uint8)
    if raw.size == 0 or raw.size % 3073:
        raise PateError(f"{name} holds {raw.size} bytes, not a whole number of records; fetch it again")
    raw = raw.reshape(-1, 3073)
    inputs = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return Records(np.ascontiguousarray(inputs), raw[:, 0].astype(np.int32), np.arange(len(raw)))


def svhn(content: bytes, name: str) -> Records:
    """SVHN's cropped digits: a MATLAB file with X [32, 32, 3, n] and y [n, 1], where 10 means zero."""
    from scipy.io import loadmat, matlab

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # so that "returned data may be corrupt" is refused
            fields = loadmat(io.BytesIO(content), variable_names=["X", "y"])
        pixels, classes = fields["X"], fields["y"].ravel()
    except (*UNREADABLE, LookupError, matlab.MatReadError, UserWarning) as error:
        raise PateError(f"{name} is not SVHN's MATLAB file ({error}); fetch it again") from error
    if pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3) or pixels.shape[3] != len(classes):
        raise PateError(f"{name} holds images {pixels.shape} and {len(classes)} labels; fetch it again")
    inputs = np.ascontiguousarray(pixels.transpose(3, 0, 1, 2).astype(np.uint8))
    return Records(inputs, (classes % 10).astype(np.int32), np.arange(len(inputs)))


_HEADER = """age workclass fnlwgt education education-num marital-status occupation relationship race sex
    capital-gain capital-loss hours-per-week native-country income"""
COLUMNS = tuple(_HEADER.split())
LABELS = ("<=50K", ">50K")


class Measure(NamedTuple):
    """A number computed from one numeric column; none of them uses the survey weight fnlwgt."""

    column: str
    of: Callable[[float], float]
    offset: float
    scale: float


MEASURES = {
    "age": Measure("age", float, 40.0, 75.0),
    "age, up to 45": Measure("age", lambda age: min(max(age, 10.0), 45.0), 40.0, 15.0),
    "schooling": Measure("education-num", float, 9.0, 3.0),
    "gain": Measure("capital-gain", math.log1p, 0.0, 5.0),
    "great gain": Measure("capital-gain", lambda gain: float(gain > 5000), 0.0, 0.5),
    "loss": Measure("capital-loss", math.log1p, 0.0, 5.0),
    "hours, 16 to 52": Measure("hours-per-week", lambda hours: min(max(hours, 16.0), 52.0), 40.0, 12.0),
}
# name: (column, values for which the sign is 1, scale)
SIGNS = {
    "married": ("marital-status", ("Married-civ-spouse", "Married-AF-spouse"), 0.5),
    "manager or professional": ("occupation", ("Exec-managerial", "Prof-specialty"), 1.0),
    "manual or service": ("occupation", ("Other-service", "Handlers-cleaners", "Farming-fishing"), 1.0),
}
# Values as adult.names lists them, separated by blanks.
CATEGORIES = {
    column: tuple(values.split())
    for column, values in {
        "workclass": (
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
        ),
        "education": (
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
            "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool"
        ),
        "marital-status": (
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
            "Married-AF-spouse"
        ),
        "occupation": (
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
            "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
            "Priv-house-serv Protective-serv Armed-Forces"
        ),
        "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
        "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
        "sex": "Female Male",
        "native-country": (
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
            "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
            "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
            "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
            "Trinadad&Tobago Peru Hong Holand-Netherlands"
        ),
    }.items()
}
_GROUPED = sum(map(len, CATEGORIES.values()))
FEATURES = len(MEASURES) + len(SIGNS) + _GROUPED
OFFSET = (*(measure.offset for measure in MEASURES.values()), *[0.0] * (len(SIGNS) + _GROUPED))
SCALE = (
    *(measure.scale for measure in MEASURES.values()),
    *(scale for _, _, scale in SIGNS.values()),
    *[5.0] * _GROUPED,
)


def parse(content: bytes, name: str) -> Records:
    """Rows of adult.data or adult.test: measures, signs, then one-hot groups; 1 is an income over 50K.

    >>> person = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White"
    >>> records = parse(f"{person}, Male, 2174, 0, 40, United-States, <=50K".encode(), "adult.data")
    >>> records.inputs.shape, records.labels.tolist(), records.inputs[0, :3].tolist()
    ((1, 109), [0], [39.0, 39.0, 13.0])
    """
    rows, labels, numbers = [], [], []
    for number, line in enumerate(_lines(content, name)):
        fields = [field.strip() for field in line.split(",")]
        if not line.strip() or line.startswith("|"):  # a blank line, or the first line of adult.test
            continue
        if len(fields) != len(COLUMNS):
            raise PateError(
                f"{name} line {number + 1} has {len(fields)} columns where Adult has {len(COLUMNS)}"
            )
        if "?" in fields:
            continue
        row = dict(zip(COLUMNS, fields, strict=True))
        rows.append(_features(row, f"{name} line {number + 1}"))
        labels.append(_position(LABELS, row["income"].rstrip("."), f"{name} line {number + 1}", "income"))
        numbers.append(number)
    if not rows:
        raise PateError(f"{name} holds no complete rows; fetch it again")
    return Records(np.array(rows, np.float32), np.array(labels, np.int32), np.array(numbers, np.int64))


def _lines(content: bytes, name: str) -> list[str]:
    try:
        return content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise PateError(f"{name} is not a table in ASCII ({error}); fetch it again") from error


def _features(row: dict[str, str], place: str) -> list[float]:
    features = [
        measure.of(_number(row[measure.column], measure.column, place)) for measure in MEASURES.values()
    ]
    features += [float(row[column] in values) for column, values, _ in SIGNS.values()]
    for column, categories in CATEGORIES.items():
        group = [0.0] * len(categories)
        group[_position(categories, row[column], place, column)] = 1.0
        features += group
    return features


def _number(text: str, column: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise PateError(f"{place} has {column}={text!r}, which is not a number") from error
    if not 0 <= value < 1e9:
        raise PateError(f"{place} has {column}={text}, which is out of range")
    return value


def _position(known: tuple[str, ...], value: str, place: str, column: str) -> int:
    if value not in known:
        raise PateError(f"{place} has {column}={value!r}, which Adult's description does not list")
    return known.index(value)


VERSION = "3.0.0"  # of the prepared data; after a change they are prepared again
CHECKSUMS = Path(__file__).parent / "checksums.tsv"


class Archive(NamedTuple):
    """One file to download: its address, size, digest and name."""

    url: str
    size: int
    sha256: str
    filename: str


@dataclass(frozen=True)
class Source:
    """A data set: its files by split, and the rule that turns their bytes into records."""

    name: str
    base: str  # the files' address without their names
    train: tuple[str, ...]  # becomes the private part
    held_out: tuple[str, ...]  # becomes the public part and the test part
    parse: Callable[[str, list[bytes]], Records]
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    public: int | float  # how many of the held-out records are public, or their share
    preprocessing: Preprocessing
    kind: str = "image"
    own_content: bool = False  # whether the user's copy may have other content in the same layout
    copies: tuple[str, ...] = ()  # SHA-256 of other published copies of the held-out files

    @property
    def archives(self) -> dict[str, Archive]:
        """The registered files by file name."""
        names = sorted({*self.train, *self.held_out})
        return {name: _registered()[self.base + name] for name in names}

    @property
    def dtype(self) -> type:
        """The type of the inputs."""
        return np.uint8 if self.kind == "image" else np.float32


@lru_cache(maxsize=1)
def _registered() -> dict[str, Archive]:
    rows = [line.split("\t") for line in CHECKSUMS.read_text().splitlines()]
    return {url: Archive(url, int(size), sha256, filename) for url, size, sha256, filename in rows}


def is_registered(path: Path, archive: Archive) -> bool:
    """Whether a file is the registered one, bit for bit."""
    return path.stat().st_size == archive.size and sha256_of(path) == archive.sha256


def check_file(path: Path, archive: Archive, remedy: str) -> None:
    """Refuse a file that is not the registered one; `remedy` says what to do about it."""
    if not is_registered(path, archive):
        raise PateError(
            f"{path} is not the registered {archive.url}: it has {path.stat().st_size:,} bytes and SHA-256 "
            f"{sha256_of(path)[:12]}... instead of {archive.size:,} and {archive.sha256[:12]}...; {remedy}"
        )


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _idx(name: str, contents: list[bytes]) -> Records:
    return idx_images(contents[0], contents[1], name)


def _cifar(name: str, contents: list[bytes]) -> Records:
    train = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    return cifar(contents[0], train if name == "train" else ("test_batch.bin",), f"cifar10 {name}")


_IDX_TRAIN = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
_IDX_TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_GREY, _COLOUR = Preprocessing((0.0,), (255.0,)), Preprocessing((127.5,) * 3, (63.75,) * 3)
_DIGITS = tuple("0123456789")
_CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Boot"),
)
_THINGS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

SOURCES = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            base="https://storage.googleapis.com/cvdf-datasets/mnist/",
            train=_IDX_TRAIN,
            held_out=_IDX_TEST,
            parse=_idx,
            shape=(28, 28, 1),
            class_names=_DIGITS,
            public=9000,
            preprocessing=_GREY,
        ),
        Source(
            name="fashion_mnist",
            base="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            train=_IDX_TRAIN,
            held_out=_IDX_TEST,
            parse=_idx,
            shape=(28, 28, 1),
            class_names=_CLOTHES,
            public=9000,
            preprocessing=_GREY,
        ),
        Source(
            name="svhn",
            base="http://ufldl.stanford.edu/housenumbers/",
            train=("train_32x32.mat",),
            held_out=("test_32x32.mat",),
            parse=lambda name, contents: svhn(contents[0], f"svhn {name}"),
            shape=(32, 32, 3),
            class_names=_DIGITS,
            public=10_000,
            preprocessing=_COLOUR,
        ),
        Source(
            name="cifar10",
            base="https://www.cs.toronto.edu/~kriz/",
            train=("cifar-10-binary.tar.gz",),
            held_out=("cifar-10-binary.tar.gz",),
            parse=_cifar,
            shape=(32, 32, 3),
            class_names=_THINGS,
            public=9000,
            preprocessing=_COLOUR,
        ),
        Source(
            name="adult",
            base="https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",
            train=("adult.data",),
            held_out=("adult.test",),
            parse=lambda name, contents: parse(contents[0], f"adult {name}"),
            shape=(FEATURES,),
            class_names=LABELS,
            public=0.75,
            preprocessing=Preprocessing(OFFSET, SCALE),
            kind="table",
            own_content=True,
            copies=(
                "b531ed537ae3eb6c5da34ed3f6e7c9fdb69e9f7b43ef9d33d988994693b5af3d",
            ),  # complete rows only
        ),
    )
}
