"""Any other image or table with class labels that tensorflow-datasets knows, through its own builder.

Its builders need TensorFlow to prepare their data (`pip install 'pate-jax[tensorflow]'`); prepared data can
be read without it. The train split is the private part. The test split, in its own order, is public except
for its last tenth, which is the test part. Records are numbered in the order in which they are stored. This
module does not know whether that order belongs to a published archive or to someone's own file, so these
numbers count as row numbers unless the user declares otherwise.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import socket
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np

from pate_jax.data import relation
from pate_jax.data.columns import standard
from pate_jax.data.dataset import Dataset, Part, Preprocessing, check, numbered_ids, slug
from pate_jax.errors import PateError
from pate_jax.system import locks
from pate_jax.system.progress import bar

PUBLIC_TENTHS = 9
BLOCK = 4000  # records read at a time
_NAME = re.compile(r"\w+(/\w[\w.-]*)?")  # a data set, or one of its configurations


def load(
    name: str,
    *,
    data_dir: Path | str | None,
    manual_dir: Path | str | None,
    known: Sequence[str],
    ids_are_stable: bool = False,
) -> Dataset:
    """A data set of tensorflow-datasets by its name; `known` are the names that need no TensorFlow."""
    root = folder(data_dir)
    builder = _prepared(name, root) or _prepare(name, root, manual_dir, known)
    features, label = builder.info.features, _label(name, builder.info)
    for split in ("train", "test"):
        if split not in builder.info.splits:
            raise PateError(f"data={name!r} has no {split} split; convert it to .npz files and pass those")
    columns = [column for column in features if _usable(features[column]) and column != label]
    if not columns:
        raise PateError(f"data={name!r} has neither images nor numbers to learn from; convert it to .npz")
    images = [column for column in columns if len(features[column].shape) == 3]
    private, held_out = (
        _read(builder, split, f"{name}-{split}", images[:1] or columns, label) for split in ("train", "test")
    )
    edge = len(held_out.inputs) * PUBLIC_TENTHS // 10
    public = held_out.take(slice(None, edge))
    scale = Preprocessing((0.0,), (255.0,)) if private.inputs.dtype == np.uint8 else standard(public.inputs)
    dataset = check(
        Dataset(
            name=name,
            kind="image" if images else "table",
            private=private,
            public=public,
            test=held_out.take(slice(edge, None)),
            classes=features[label].num_classes,
            class_names=tuple(features[label].names),
            preprocessing=scale,
            synthetic=False,
            description=f"{name} {builder.info.version}, prepared by tensorflow-datasets' own builder",
            ids_are="rows",
        )
    )
    return relation.declared(dataset, ids_are_stable)


def _prepared(name: str, root: Path) -> Any:
    """A builder for data that are already prepared in the folder, or None."""
    import tensorflow_datasets as tfds

    infos = sorted((root / name).glob("**/dataset_info.json")) if _NAME.fullmatch(name) else []
    whole = [info.parent for info in infos if "incomplete" not in str(info)]
    return tfds.builder_from_directory(whole[-1]) if whole else None


def _prepare(name: str, root: Path, manual_dir: Path | str | None, known: Sequence[str]) -> Any:
    import tensorflow_datasets as tfds

    theirs = tfds.list_builders(with_community_datasets=False)
    if name.split("/")[0] not in theirs or not _NAME.fullmatch(name):
        near = get_close_matches(name, {*known, *theirs}, n=3)
        raise PateError(
            f"data={name!r} is not known; choose one of {', '.join(known)}, or a name of tensorflow-datasets"
            + (f" (similar: {', '.join(near)})" if near else "")
        )
    if importlib.util.find_spec("tensorflow") is None:
        raise PateError(
            f"data={name!r} is prepared by tensorflow-datasets' own builder, which needs TensorFlow; "
            f"pip install 'pate-jax[tensorflow]', or choose one of {', '.join(known)}"
        )
    config = tfds.download.DownloadConfig(manual_dir=manual_dir, try_download_gcs=False)
    with locked(root, slug(name)), quiet(tfds):
        builder = tfds.builder(name, data_dir=root, file_format="array_record")
        if manual_dir is None:
            check_reachable(name, builder.url_infos or ())
        builder.download_and_prepare(download_config=config)
    return builder


def _label(name: str, info: Any) -> str:
    """The one feature that is a class label."""
    labels = [column for column, feature in info.features.items() if hasattr(feature, "num_classes")]
    preferred = [column for column in labels if column in ("label", (info.supervised_keys or ("", ""))[1])]
    if not labels or not info.features[(preferred or labels)[0]].num_classes:
        raise PateError(
            f"data={name!r} has no class labels in tensorflow-datasets; choose a classification set"
        )
    return (preferred or labels)[0]


def _usable(feature: Any) -> bool:
    """Whether a feature is an array of numbers of one fixed shape: an image, a vector or a number."""
    shape, dtype = getattr(feature, "shape", None), getattr(feature, "np_dtype", None)
    if shape is None or None in shape or len(shape) not in (0, 1, 3) or isinstance(feature, Mapping):
        return False
    return bool(np.issubdtype(dtype, np.number) or np.issubdtype(dtype, np.bool_))


def _read(builder: Any, split: str, prefix: str, columns: Sequence[str], label: str) -> Part:
    inputs, labels = zip(*_blocks(builder.as_data_source(split=split), prefix, columns, label), strict=True)
    total = sum(map(len, labels))
    return Part(np.concatenate(inputs), np.concatenate(labels), numbered_ids(prefix, np.arange(total)))


def _blocks(
    records: Any, title: str, columns: Sequence[str], label: str
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with bar(f"reading {title}", total=len(records)) as progress:
        for start in range(0, len(records), BLOCK):
            rows = records.__getitems__(list(range(start, min(start + BLOCK, len(records)))))
            arrays = [np.stack([np.asarray(row[column]) for row in rows]) for column in columns]
            if arrays[0].ndim != 4:
                arrays = [
                    np.concatenate([a.reshape(len(rows), -1).astype(np.float32) for a in arrays], axis=1)
                ]
            yield arrays[0], np.array([row[label] for row in rows], np.int32)
            progress.advance(len(rows))


SECONDS = 1.3  # for all hosts together, so that with the imports the check takes less than three seconds
_PORTS = {"http": 80, "https": 443}


def check_reachable(name: str, urls: Iterable[str]) -> None:
    """Refuse within three seconds if the hosts of these addresses cannot be reached."""
    hosts = sorted({_host(url) for url in urls})
    answers = dict.fromkeys(hosts, "it did not answer in time")
    threads = [threading.Thread(target=_try, args=(host, answers), daemon=True) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS / len(threads))
    for (host, port), answer in list(answers.items()):
        if answer:
            raise PateError(
                f"{name} must be downloaded, but {host}:{port} cannot be reached ({answer}); put its "
                "archives in a folder and pass that as --manual-dir, or use strokes, which needs no download"
            )


def _host(url: str) -> tuple[str, int]:
    """The host to connect to: the proxy, if one is set for this kind of address."""
    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if proxy and not _bypassed(parts.hostname or ""):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}", scheme="http")
    return parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 80)


def _bypassed(host: str) -> bool:
    listed = [
        entry.strip().lstrip(".") for entry in os.environ.get("no_proxy", "").split(",") if entry.strip()
    ]
    return any(entry == "*" or host == entry or host.endswith(f".{entry}") for entry in listed)


def _try(host: tuple[str, int], answers: dict[tuple[str, int], str]) -> None:
    try:
        socket.create_connection(host, timeout=SECONDS).close()
        answers[host] = ""
    except OSError as error:
        answers[host] = error.strerror or str(error)


def folder(data_dir: Path | str | None) -> Path:
    """The folder of prepared data: the given one, $PATE_JAX_DATA, or ~/.cache/pate_jax.

    >>> folder("data").as_posix()
    'data'
    """
    chosen = data_dir or os.environ.get("PATE_JAX_DATA") or Path.home() / ".cache" / "pate_jax"
    return Path(chosen).expanduser()


def locked(root: Path, name: str) -> AbstractContextManager[None]:
    """A lock on the folder while the data set `name` is prepared in it; other processes wait."""
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PateError(f"--data-dir {root} cannot be written ({error.strerror}); choose another") from error
    return locks.held(root / f".{name}.lock", root, wait=True)


@contextlib.contextmanager
def quiet(tfds: Any) -> Iterator[None]:
    """Send tensorflow-datasets' messages to standard error, or drop them if that is not a terminal."""
    terminal = sys.stderr.isatty()
    (tfds.enable_progress_bar if terminal else tfds.disable_progress_bar)()
    with contextlib.redirect_stdout(sys.stderr if terminal else io.StringIO()):
        yield
