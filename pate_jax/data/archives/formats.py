"""The formats of the archives: from bytes to arrays, with every size checked."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import warnings
import zlib
from typing import NamedTuple

import numpy as np

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
