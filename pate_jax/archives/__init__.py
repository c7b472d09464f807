"""Data sets from their archives: fetched or brought by hand, verified, prepared once, read as arrays."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.archives.network import check_reachable
from pate_jax.archives.sources import SOURCES, Source, check_file, is_registered, sha256_of
from pate_jax.dataset import Dataset, Part, check, numbered_ids
from pate_jax.errors import PateError

NAMES = tuple(SOURCES)
BLOCK = 4000  # records read at a time


def load(name: str, *, data_dir: Path | str | None = None, manual_dir: Path | str | None = None) -> Dataset:
    """A data set by name, prepared in `data_dir` on first use, from `manual_dir` where its archives lie there."""
    source = SOURCES[name]
    root = folder(data_dir)
    own = _own_files(source, manual_dir)
    note = "the registered archives"
    if own and not all(is_registered(own[name], archive) for name, archive in source.archives.items()):
        digest = hashlib.sha256("".join(sha256_of(own[name]) for name in sorted(own)).encode()).hexdigest()
        root = root / f"{name}-{digest[:12]}"
        digests = ", ".join(f"{path.name} {sha256_of(path)[:12]}" for path in own.values())
        note = f"the user's own files, which are not the registered ones (SHA-256 {digests})"
    else:
        own = None
    builder = _builder(source, root)
    with _locked(root / f".{name}.lock"):
        if not builder.data_path.exists():
            _prepare(builder, source, own, manual_dir)
    return _dataset(source, builder, note)


def folder(data_dir: Path | str | None) -> Path:
    """Where prepared data lie: the given folder, $PATE_JAX_DATA, or ~/.cache/pate_jax."""
    chosen = data_dir or os.environ.get("PATE_JAX_DATA") or Path.home() / ".cache" / "pate_jax"
    return Path(chosen).expanduser()


def _own_files(source: Source, manual_dir: Path | str | None) -> dict[str, Path] | None:
    """The archives in the user's folder: all there, and the registered ones or at least of the right layout."""
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
    from pate_jax.archives.builders import BUILDERS

    root.mkdir(parents=True, exist_ok=True)
    return BUILDERS[source.name](data_dir=root, file_format="array_record")


def _prepare(
    builder: Any, source: Source, own: Mapping[str, Path] | None, manual_dir: Path | str | None
) -> None:
    import tensorflow_datasets as tfds

    builder.own_files = own
    if manual_dir is None:
        check_reachable(source.name, [archive.url for archive in source.archives.values()])
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    with _quiet(tfds):
        builder.download_and_prepare(download_config=config)


@contextlib.contextmanager
def _quiet(tfds: Any) -> Iterator[None]:
    """Messages go to standard error, and bars nowhere but to a terminal."""
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    with contextlib.redirect_stdout(sys.stderr if sys.stderr.isatty() else io.StringIO()):
        yield


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time; the system frees the lock when its holder ends, however it ends."""
    with open(path, "w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _dataset(source: Source, builder: Any, note: str) -> Dataset:
    private = _read(builder, "train", f"{source.name}-train")
    held_out = _read(builder, "test", f"{source.name}-test")
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
        )
    )


def _read(builder: Any, split: str, prefix: str) -> Part:
    """All records of a split, in the archive's order."""
    records = builder.as_data_source(split=split)
    blocks = []
    for start in range(0, len(records), BLOCK):
        rows = records.__getitems__(list(range(start, min(start + BLOCK, len(records)))))
        blocks.append([np.stack([row[column] for row in rows]) for column in ("inputs", "label", "number")])
    inputs, labels, numbers = (np.concatenate(column) for column in zip(*blocks, strict=True))
    order = np.argsort(numbers)
    return Part(inputs[order], labels[order].astype(np.int32), numbered_ids(prefix, numbers[order]))
