"""Where `experiments.students` has its votes from: saved ones, the user's, or teachers trained for them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from pate_jax import data, ensemble, voting
from pate_jax.data import Preprocessing, partition
from pate_jax.errors import PateError
from pate_jax.runs.inputs import teachers_net

TEACHERS = 250


class Source(NamedTuple):
    """Public inputs whose labels are known, and how the teachers vote on each."""

    inputs: np.ndarray
    labels: np.ndarray
    votes: np.ndarray
    preprocessing: Preprocessing


def by_name(folder: Path, name: str, keep: Path, net: str | None = None) -> Source:
    """Images of a data set and their saved votes; for a `net`, or if none are saved, teachers are trained."""
    images = folder / name / "t10k-images-idx3-ubyte.gz"
    saved = folder / "votes" / f"cnn_{name}_250.npz"
    if net is not None or not (images.is_file() and saved.is_file()):
        usual = {"mnist": "cnn", "fashion_mnist": "cnn"}.get(name, "table")
        return taught(folder, name, keep, net or usual)
    pixels = np.frombuffer(gzip.decompress(images.read_bytes()), np.uint8, offset=16)
    scale = Preprocessing((0.0,), (255.0,))
    return _source(pixels.reshape(-1, 28, 28, 1), voting.load_votes(saved), None, scale)


def own(inputs: Path, votes: Path) -> Source:
    """The user's inputs and votes."""
    with np.load(inputs, allow_pickle=False) as saved:
        if "inputs" not in saved or "labels" not in saved:
            raise PateError(f"{inputs} holds {sorted(saved)}; arrays `inputs` and `labels` are wanted")
        found, labels = saved["inputs"], saved["labels"]
    scale = Preprocessing((0.0,), (255.0 if found.dtype == np.uint8 else 1.0,))
    return _source(found, voting.load_votes(votes), labels, scale)


def taught(folder: Path, name: str, keep: Path, net: str) -> Source:
    """Votes of 250 teachers on the public and the test part together; kept as `keep/NAME_NET_votes.npz`."""
    if not (folder / name).is_dir():
        raise PateError(
            f"{folder / name} is not there: name the folder with --folder, or --inputs and --votes"
        )
    dataset = data.load(name, data_dir=keep / "data", manual_dir=folder / name)
    parts = [part for part in (dataset.public, dataset.test) if part is not None]
    inputs = np.concatenate([part.inputs for part in parts])
    labels = np.concatenate([part.labels for part in parts if part.labels is not None])
    path = keep / f"{name}_{net}_votes.npz"
    if not path.is_file():
        config = ensemble.TeacherConfig(net=net)
        model = teachers_net(config, dataset)
        private, key = dataset.private, b"students of public inputs".ljust(32)
        assignment = partition.assign(private.ids, TEACHERS, key=key)
        shards = partition.cut(assignment, private.ids, TEACHERS, key=key)
        teachers = ensemble.fit(
            model, dataset.preprocessing, private.inputs, private.labels, shards,
            key=jax.random.key(0), config=config, directory=keep / f"{name}_{net}",
        )  # fmt: skip
        told = np.asarray(ensemble.predict(model, dataset.preprocessing, teachers, inputs))
        counts = np.asarray(voting.histogram(told, dataset.classes))
        voting.save_votes(path, voting.Votes(counts, told, None, labels, None))
    return _source(inputs, voting.load_votes(path), labels, dataset.preprocessing)


def _source(
    inputs: np.ndarray, votes: voting.Votes, labels: np.ndarray | None, scale: Preprocessing
) -> Source:
    labels = votes.labels if labels is None else labels
    if labels is None or not len(inputs) == len(votes.votes) == len(labels):
        raise PateError(
            f"{len(inputs)} inputs and {len(votes.votes)} votes: true labels and one row of votes are wanted "
            "for each input"
        )
    return Source(inputs, np.asarray(labels, np.int32), np.asarray(votes.votes), scale)
