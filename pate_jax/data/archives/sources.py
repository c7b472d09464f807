"""The archives that this package reads itself: their addresses, their content, and how they are divided.

Sizes and SHA-256 are in checksums.tsv, as tensorflow-datasets registers them (for Adult, which has no builder
there, as UCI serves it). The private part is the archive's training part. The archive's test part is divided
at a fixed record into the public part and the test part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data.archives import adult, formats
from pate_jax.data.archives.formats import Records
from pate_jax.data.dataset import Preprocessing
from pate_jax.errors import PateError

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
    return formats.idx_images(contents[0], contents[1], name)


def _cifar(name: str, contents: list[bytes]) -> Records:
    train = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    return formats.cifar(contents[0], train if name == "train" else ("test_batch.bin",), f"cifar10 {name}")


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
            parse=lambda name, contents: formats.svhn(contents[0], f"svhn {name}"),
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
            parse=lambda name, contents: adult.parse(contents[0], f"adult {name}"),
            shape=(adult.FEATURES,),
            class_names=adult.LABELS,
            public=0.75,
            preprocessing=Preprocessing(adult.OFFSET, adult.SCALE),
            kind="table",
            own_content=True,
            copies=(
                "b531ed537ae3eb6c5da34ed3f6e7c9fdb69e9f7b43ef9d33d988994693b5af3d",
            ),  # complete rows only
        ),
    )
}
