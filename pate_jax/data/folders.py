"""Folders of images: FOLDER/CLASS/*.png with a class for each folder, or FOLDER/*.png without labels.

The shape of the images follows from the public part: their size, unless it is declared, and whether they are
grey. An image becomes pixels by itself, so no pixel depends on another record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from pate_jax.data import columns, encoders, fingerprints, relation
from pate_jax.data.dataset import Dataset
from pate_jax.data.encoders import Known, OfPhotos, encoder, graphs
from pate_jax.data.encoders.encoder import Shape
from pate_jax.data.raw import Raw
from pate_jax.errors import PateError, translated, within
from pate_jax.system.progress import bar, say

SUFFIXES = (".png", ".jpg", ".jpeg")
_GREY = ("1", "L", "LA")
_COLOURS = ((), (1,), (3,))  # the last axis of photos in an array
_BLOCK = 100  # photos that are encoded together
_SHOWN = 200  # images between two updates of the progress bar


def read(folder: Path, shape: Shape, resized: bool = False, most: int | None = None) -> Raw:
    """The first (unset: all) images of a folder in this shape, with the names of their files as ids.

    Images of another size are refused, unless they are to be `resized`.
    """
    paths = files(folder)[:most]
    height, width, channels = shape
    pixels = np.empty((len(paths), height, width, channels), np.uint8)
    changed = 0
    with bar(f"reading {folder.name}", total=len(paths)) as progress:
        for row, path in enumerate(paths):
            with _opened(path) as image:
                if image.size != (width, height):
                    _refuse_size(path, image.size, shape, resized)
                    changed += 1
                pixels[row] = encoder.pixels(image, shape)
            if row % _SHOWN == 0:
                progress.advance(_SHOWN)
    if changed:
        say(f"{folder}: {changed:,} of {len(paths):,} images were resized to {width} x {height} pixels")
    return _named(folder, paths, pixels)


def _named(folder: Path, paths: Sequence[Path], inputs: np.ndarray) -> Raw:
    """The inputs with the names of their files as ids, and those of the folders of classes as labels."""
    names = [path.relative_to(folder).as_posix() for path in paths]
    inside = paths[0].parent != folder
    labels = np.array([path.parent.name for path in paths], np.str_) if inside else None
    unread = (
        fingerprints.hashed(path.read_bytes() for path in paths),
    )  # whatever shape or encoder sees them
    return Raw(inputs, labels, np.array(names, np.str_), None, numbered=count_up(names), unread=unread)


def encoded(folder: Path, reader: OfPhotos, keep: Path | None = None) -> Raw:
    """The vectors that an encoder makes of the photos of a folder, kept in the folder `keep`."""
    paths = files(folder)
    found = _named(folder, paths, vectors(paths, reader, folder.name, keep))
    return found._replace(encoder=reader.known)


def vectors(
    photos: Sequence[Path] | np.ndarray, reader: OfPhotos, name: str, keep: Path | None = None
) -> np.ndarray:
    """A row for each photo, a file or bytes [height, width, channels]; a block is in memory at a time."""
    if isinstance(photos, np.ndarray) and (photos.dtype != np.uint8 or photos.shape[3:] not in _COLOURS):
        raise PateError(
            f"{name} holds {photos.dtype} {list(photos.shape)}, and an encoder of photos takes bytes (uint8) "
            "[photo, height, width], or with 1 or 3 colours at the end"
        )
    shape = (reader.side, reader.side, 3)
    found = np.empty((len(photos), reader.known.width), np.float32)
    with bar(f"reading {name}", total=len(photos)) as progress:
        for start in range(0, len(photos), _BLOCK):
            block = photos[start : start + _BLOCK]
            with translated(encoder.InputError):
                pixels = np.stack([*graphs.each(partial(encoder.photo, shape=shape), block)])
            found[start : start + len(block)] = encoders.kept(reader, pixels, keep)
            progress.advance(len(block))
    return found


def as_seen(inputs: np.ndarray, seen: Iterable[Known], place: str) -> np.ndarray:
    """Pixels as the first encoder that inputs are seen by sees them, if that is one of photos."""
    known = next(iter(seen), None)
    if known is None or not encoders.of_photos(known.name) or inputs.ndim not in (3, 4):
        return inputs
    return vectors(inputs, cast(OfPhotos, encoders.same(known)), place)


def of_set(dataset: Dataset, name: str, side: int | None = None, keep: Path | None = None) -> Dataset:
    """A data set of pictures as a frozen encoder of photos sees them, each by itself."""
    if dataset.kind != "image":
        raise PateError(f"--encoder {name} reads photos, and {dataset.name} has none: leave it out")
    reader = encoders.photos(name, side)
    named = {"private": dataset.private, "public": dataset.public, "test": dataset.test}
    parts: dict[str, Any] = {
        part: None if one is None else one._replace(inputs=vectors(one.inputs, reader, part, keep))
        for part, one in named.items()
    }
    plan = (columns.Column("photo", encoder=reader.known),)
    scaled = columns.preprocessing(parts["public"].inputs, plan)
    unread = (fingerprints.of_rows(dataset.private.inputs),)
    return replace(dataset, kind="table", **parts, preprocessing=scaled, columns=plan, unread=unread)


def shape_of(folder: Path, side: int | None = None) -> Shape:
    """The shape that the images of a public folder share; `side` is their declared height and width."""
    within(1, 4096, " pixels", image_size=side)
    first, grey = (0, 0), True
    paths = files(folder)
    for path in paths:
        with _opened(path) as image:
            first = image.size if path == paths[0] else first
            grey = grey and image.mode in _GREY
            if side is None and image.size != first:
                _refuse_size(path, image.size, (first[1], first[0], 1), False)
    height, width = (side, side) if side else (first[1], first[0])
    return height, width, 1 if grey else 3


def count_up(names: Iterable[str]) -> bool:
    """Whether the names of files are only numbers in order, in all or in each of their folders.

    >>> count_up(["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"])
    True
    >>> count_up(["cat/ann.png", "dog/bo.png"])
    False
    >>> count_up(["cat/img2.png", "cat/img3.png", "dog/img1.png", "dog/img4.png"])
    True
    """
    folders: dict[str, list[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, []).append(file)
    several = [group for group in folders.values() if len(group) > 1]
    alone = bool(several) and all(_in_order(group) for group in several)
    return alone or _in_order([file for group in folders.values() for file in group])


def _in_order(names: list[str]) -> bool:
    return relation.count_up(sorted(names, key=lambda name: (len(name), name)))


def files(folder: Path) -> list[Path]:
    """The images of a folder, all in folders of their classes or all directly in it, in a fixed order."""
    if not folder.is_dir():
        raise PateError(f"{folder} {'is no folder' if folder.exists() else 'does not exist'}")
    there = sorted(_visible(folder))
    classes = [path for path in there if path.is_dir()]
    files = [path for path in there if path not in classes]
    if classes and files:
        raise PateError(
            f"{folder} holds both folders and files ({files[0].name}): put every image into the folder of "
            "its class, or all of them directly into the folder if they have no labels"
        )
    files = [path for place in classes for path in sorted(_visible(place))] if classes else files
    for path in files:
        if path.is_dir() or path.suffix.lower() not in SUFFIXES:
            kind = "a folder inside the folder of a class" if path.is_dir() else "no image"
            raise PateError(f"{path} is {kind}: give {', '.join(SUFFIXES)} in the folder of each class")
    if not files:
        raise PateError(f"{folder} holds no images ({', '.join(SUFFIXES)}); give at least one")
    return files


def header(path: Path) -> tuple[tuple[int, int], str]:
    """Width and height of an image that can be read, and its mode: L for grey, RGB for colour."""
    with _opened(path) as image:
        image.load()
        return image.size, image.mode


def _visible(folder: Path) -> Iterator[Path]:
    """What lies in a folder, without what systems leave there."""
    return (path for path in folder.iterdir() if not path.name.startswith(".") and path.name != "Thumbs.db")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An image of a file (a `PIL.Image.Image`), whose faults name it."""
    with translated(encoder.InputError), encoder.opened(path) as image:
        yield image


def _refuse_size(path: Path, found: tuple[int, int], shape: Shape, resized: bool) -> None:
    if not resized:
        raise PateError(
            f"{path} has {found[0]} x {found[1]} pixels, and the first public image has {shape[1]} x "
            f"{shape[0]}: give images of one size, or --image-size to resize them all, such as 32"
        )
