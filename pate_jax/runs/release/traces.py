"""What private arrays leave where they get into a release: rows, numbers in a text, pictures on a page."""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pate_jax.data import duplicates
from pate_jax.runs.report import sheet
from pate_jax.student import exported
from pate_jax.system import storage

MOST = 60
_SPELT = 16  # the fewest consecutive numbers of a table that cannot be a coincidence
_CHANCE = 48.0  # and the fewest bits: such a row is seen by chance once in 2^48 places
_STEPS = 2  # the most changes between neighbours in such a row that may still be a coincidence
_TRIED = 400  # the most such rows that are searched for
_ADDRESS = re.compile(re.escape(sheet.PREFIX) + r"([A-Za-z0-9+/=]*)")


def parted(page: str) -> tuple[str, list[np.ndarray]]:
    """A page without its pictures, and their pixels; what is no such picture stays in the page.

    >>> address = sheet.address(np.array([[[7]]], np.uint8))
    >>> parted(f"<img src='{address}'>"), parted(address + "AAAA")[1]
    (("<img src=''>", [array([[[7]]], dtype=uint8)]), [])
    """
    found: list[np.ndarray] = []

    def taken(match: re.Match[str]) -> str:
        try:
            found.append(sheet.read_png(base64.b64decode(match[1], validate=True)))
        except (ValueError, binascii.Error):
            return match[0]
        return ""

    return _ADDRESS.sub(taken, page), found


def faults(name: str, pictures: list[np.ndarray]) -> Iterator[str]:
    """More pictures than a page may hold."""
    if len(pictures) > MOST:
        yield f"{name} holds {len(pictures)} pictures, and may hold {MOST}"


def private(
    pictures: list[np.ndarray], forms: Iterable[np.ndarray], whose: str = "private records"
) -> Iterator[str]:
    """Pictures of these inputs, in any form that these have; a picture of one colour reveals nothing."""
    shown = {duplicates.digests(picture[None])[0] for picture in pictures if np.ptp(picture)}
    for form in forms if shown else ():
        if form.ndim == 4:
            known = (duplicates.digests(sheet.thumbnail(image)[None])[0] for image in form)
            if held := sum(name in shown for name in known):
                yield f"report.html shows the inputs of {held} {whose}"


def spelt(text: str) -> str:
    """The whole numbers of a text, in order; 1.0 counts as one of them."""
    return " ".join(re.findall(r"\d+", re.sub(r"\.0(?!\d)", "", html.unescape(text))))


def spells(numbers: str, secret: np.ndarray) -> bool:
    """Whether a text contains consecutive whole numbers of a table, by rows or by columns.

    A row is long enough if numbers drawn like the table's would show it with probability 2^-48: 48 numbers
    where two classes are alike frequent. Rows that hardly change are skipped: the offsets and scales of any
    table are zeros followed by ones.

    >>> labels = np.random.default_rng(0).integers(0, 2, 400)
    >>> [spells(" ".join(map(str, labels[:count])), labels) for count in (16, 60)]
    [False, True]
    """
    for table in (secret, secret.T):
        flat = table.reshape(-1)[: _SPELT * _TRIED]
        _, kinds, counts = np.unique(flat, return_inverse=True, return_counts=True)
        bits = np.append(0.0, np.cumsum(np.log2(flat.size / counts)[kinds]))
        starts = np.arange(0, flat.size, _SPELT)
        ends = np.maximum(starts + _SPELT, np.searchsorted(bits, bits[starts] + _CHANCE))
        rows = [flat[start:end] for start, end in zip(starts, ends, strict=True) if end <= flat.size]
        pieces = [row.tolist() for row in rows if np.count_nonzero(np.diff(row)) > _STEPS]
        if any(f" {' '.join(map(str, piece))} " in f" {numbers} " for piece in pieces):
            return True
    return False


def pieces(array: np.ndarray, size: int) -> np.ndarray:
    """The parts of an array that may be inputs of this size; constant parts reveal nothing.

    >>> pieces(np.array([[1.0, 2.0], [3.0, 3.0]]), 2).tolist()
    [[1.0, 2.0], [1.0, 3.0], [2.0, 3.0]]
    """
    if size < 2 or array.size % size:
        return np.zeros((0, size), array.dtype)
    pieces = np.concatenate([array.reshape(-1, size), array.reshape(size, -1).T])
    varied: np.ndarray = pieces[np.ptp(pieces, axis=1) > 0]
    return varied


def holds(array: np.ndarray, secret: np.ndarray) -> bool:
    """Whether an array equals the secret one, or one of its rows; constant arrays reveal nothing."""
    if array.size < 2 or np.ptp(array) == 0:
        return False
    rows = [secret] if array.shape == secret.shape else secret if array.shape == secret.shape[1:] else []
    return any(np.array_equal(array, row.astype(array.dtype)) for row in rows)


def homes(folder: Path) -> list[Path]:
    """The folders of all students of a release that have parameters."""
    found = (folder / "student").rglob("parameters.*")
    return sorted({path.parent for path in found if path.suffix in (".npz", ".safetensors")})


def arrays(folder: Path) -> dict[str, np.ndarray]:
    """The arrays of all students of a release, each by its file and its name."""
    return {
        f"{(home / file).relative_to(folder).as_posix()}: {name}": array
        for home in homes(folder)
        for file, named in held(home).items()
        for name, array in named.items()
    }


def held(home: Path) -> dict[str, dict[str, np.ndarray]]:
    """The arrays of one student by file and name; a program's constants have numbers for names."""
    if not (home / exported.TENSORS).exists():
        return {"parameters.npz": storage.read_arrays(home / "parameters.npz", "student-parameters")}
    _, constants = exported.constants(exported.read_program(home).text)
    numbered = {f"constant {place}": array for place, array in enumerate(constants)}
    return {exported.TENSORS: exported.read_tensors(home / exported.TENSORS), exported.PROGRAM: numbered}
