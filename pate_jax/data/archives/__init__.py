"""Data sets from their archives: downloaded or given as files, verified, prepared once, read as arrays."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.data import relation
from pate_jax.data.archives.sources import (
    SOURCES,
    VERSION,
    Archive,
    Source,
    check_file,
    is_registered,
    sha256_of,
)
from pate_jax.data.archives.tfds import check_reachable, folder, locked, quiet
from pate_jax.data.dataset import Dataset, Part, check, numbered_ids
from pate_jax.errors import PateError
from pate_jax.system.progress import track

NAMES = tuple(SOURCES)


def load(
    name: str,
    *,
    data_dir: Path | str | None = None,
    manual_dir: Path | str | None = None,
    ids_are_stable: bool = False,
) -> Dataset:
    """A data set by name, prepared in `data_dir` on first use, from the archives in `manual_dir` if given.

    In a registered archive the number of a record is its id. In the user's own file, which may have any
    content, it is only a row number, unless the user declares otherwise. Whether that file happens to be the
    registered one decides nothing, since one private record may decide that.
    """
    source, root, note = SOURCES[name], folder(data_dir), "the registered archives"
    digests: dict[str, str] = {}
    files = _own_files(source, manual_dir)
    if files and source.own_content:
        digests = {file: sha256_of(path) for file, path in sorted(files.items())}
        root /= f"{name}-{hashlib.sha256(''.join(digests.values()).encode()).hexdigest()[:12]}"
        note = "the user's own files"
    else:
        files = None
    with locked(root, name):
        if manual_dir is None and not (root / f"pate_{name}" / VERSION).exists():
            _check_network(source, root)  # before the builder's imports, which take a second
        builder = _builder(source, root)
        if not builder.data_path.exists():
            _prepare(builder, source, files, manual_dir)
    dataset = _dataset(source, builder, note)
    if files is None:
        dataset = replace(dataset, ids_are="stable")
    published = [{None, source.archives[file].sha256, *source.copies} for file in source.held_out]
    if all(digests.get(file) in known for file, known in zip(source.held_out, published, strict=True)):
        dataset = replace(dataset, equal_rows="published")
    # A digest of private records is sensitive and a description is published, so it goes into the notes.
    dataset = replace(dataset, private_notes={"sha256": digests}) if digests else dataset
    return relation.declared(dataset, ids_are_stable)


def _own_files(source: Source, manual_dir: Path | str | None) -> dict[str, Path] | None:
    """The archives in the user's folder: all must be there and, except Adult's, be the registered ones."""
    if manual_dir is None:
        return None
    files = {name: Path(manual_dir).expanduser() / name for name in source.archives}
    missing = [path.name for path in files.values() if not path.is_file()]
    if missing:
        raise PateError(
            f"--manual-dir {manual_dir} lacks {', '.join(missing)} of {source.name}; "
            f"fetch them from {source.base} or leave --manual-dir out to download them"
        )
    if not source.own_content:
        for name, path in files.items():
            check_file(path, source.archives[name], f"put the archive of {source.name} there in its place")
    return files


def _builder(source: Source, root: Path) -> Any:
    from pate_jax.data.archives.builders import BUILDERS

    return BUILDERS[source.name](data_dir=root, file_format="array_record")


def _prepare(
    builder: Any, source: Source, own: Mapping[str, Path] | None, manual_dir: Path | str | None
) -> None:
    import tensorflow_datasets as tfds
    from requests import RequestException
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
    from tensorflow_datasets.core.download.util import DownloadError

    builder.own_files = own
    for leftover in builder.data_path.parent.glob("incomplete.*"):  # from a process that was killed
        shutil.rmtree(leftover)
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    try:
        with quiet(tfds):
            builder.download_and_prepare(download_config=config)
    except NonMatchingChecksumError as error:
        wrong = [file.url for file in source.archives.values() if file.url in str(error)]
        raise PateError(
            f"{', '.join(wrong) or source.name} did not send the registered file; "
            "put the archives in a folder and pass that as --manual-dir, or try again later"
        ) from error
    except (DownloadError, RequestException) as error:
        raise PateError(
            f"{source.name} cannot be downloaded ({str(error).splitlines()[0]}); "
            "put its archives in a folder and pass that as --manual-dir, or try again later"
        ) from error


def _check_network(source: Source, root: Path) -> None:
    """Refuse at once if an archive must be downloaded and its host does not answer."""
    fetched = [file for file in root.glob("downloads/**/*") if file.is_file()]
    missing = [archive for archive in source.archives.values() if not _among(fetched, archive)]
    check_reachable(source.name, [archive.url for archive in missing])


def _among(files: list[Path], archive: Archive) -> bool:
    """Whether one of the files is this archive, downloaded earlier."""
    return any(file.stat().st_size == archive.size and is_registered(file, archive) for file in files)


def _dataset(source: Source, builder: Any, note: str) -> Dataset:
    try:
        private = _read(builder, "train", f"{source.name}-train")
        held_out = _read(builder, "test", f"{source.name}-test")
    except (RuntimeError, ValueError, OSError, IndexError) as error:
        raise PateError(
            f"the data prepared in {builder.data_path} cannot be read ({error}); "
            "remove that folder and load again"
        ) from error
    edge = source.public if isinstance(source.public, int) else int(source.public * len(held_out.inputs))
    return check(
        Dataset(
            name=source.name,
            kind=source.kind,
            private=private,
            public=held_out.take(slice(None, edge)),
            test=held_out.take(slice(edge, None)),
            classes=len(source.class_names),
            class_names=source.class_names,
            preprocessing=source.preprocessing,
            synthetic=False,
            description=f"{source.name}, from {note}",
            ids_are="rows",
        )
    )


def _read(builder: Any, split: str, prefix: str) -> Part:
    """All records of a split, in the archive's order."""
    columns: dict[str, list[np.ndarray]] = {"inputs": [], "labels": [], "numbers": []}
    source = builder.as_data_source(split=split)
    for place in track(range(len(source)), f"reading {prefix}", total=len(source)):
        block = source[place]
        for name, column in columns.items():
            column.append(block[name])
    inputs, labels, numbers = map(np.concatenate, columns.values())
    order = np.argsort(numbers)
    return Part(inputs[order], labels[order].astype(np.int32), numbered_ids(prefix, numbers[order]))
