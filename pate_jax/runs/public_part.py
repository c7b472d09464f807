"""What a run takes for public: a digest, recorded as it begins, and compared whenever it goes on.

Spaces, scales, queries and students follow from the public part. If another one took its place meanwhile,
half of a run would be of one and half of the other, and what is private could pass for public.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pate_jax.data import Dataset, Part, overlap, texts
from pate_jax.data.encoders import NOT_COVERED
from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import PUBLIC, Settings
from pate_jax.system import progress, storage


def digest(dataset: Dataset) -> str:
    """A digest of a public part: inputs, labels, users, ids, scales, class names, and what columns are.

    It is of the arrays as they are read, so that the same table in another format has the same.

    >>> from pate_jax.data import load
    >>> one, other = (load("strokes", size=size, public_size=5, test_size=5) for size in (20, 30))
    >>> digest(one) == digest(other)
    True
    """
    public, scaling = dataset.public, dataset.preprocessing
    texts = {name: None if found is None else found.tolist() for name, found in _texts(public).items()}
    columns = [column._replace(kind="").to_dict() for column in dataset.columns]
    said = json.dumps([list(scaling.offset), list(scaling.scale), list(dataset.class_names), columns, texts])
    labels = None if public.labels is None else np.asarray(public.labels, np.int64)
    return storage.digest(public.inputs, public.features, labels, np.array(said))


def _texts(public: Part) -> dict[str, np.ndarray | None]:
    return {"ids": public.ids, "users": public.users}


def agree(run: RunDirectory, dataset: Dataset) -> None:
    """Record the digest of a run's public part and its encoders, or refuse others; warn of near copies."""
    refuse_others(run, dataset)
    if PUBLIC not in run.record.read() and dataset.name == "own":
        warn_of_copies(dataset, overlap.parts(dataset))
    run.record.agree(PUBLIC, {"digest": digest(dataset)} | encoders(dataset))


def encoders(dataset: Dataset) -> dict[str, list[str]]:
    """What settings and certificates hold of a run's frozen encoders: nothing where there is none."""
    read = [f"{texts.described(known)}; {NOT_COVERED}" for known in texts.seen(dataset.columns)]
    return {"encoders": read} if read else {}


def other_encoders(certificate: Mapping[str, Any], dataset: Dataset) -> Iterator[str]:
    """Whether a certificate names other encoders than a run has."""
    certified, there = certificate.get("encoders", []), encoders(dataset).get("encoders", [])
    if certified != there:
        yield f"the encoders {certified} are certified, and the run has {there}"


def warn_of_copies(dataset: Dataset, others: Mapping[str, Part]) -> None:
    """Warn of other parts that hold near copies of private inputs."""
    for one in overlap.near_copies(dataset, others):
        progress.warn(one)


def refuse_others(run: RunDirectory, dataset: Dataset) -> None:
    """Refuse to go on with another public part than the one that a run was begun with."""
    if is_other(run.record.read(), dataset):
        _refuse_other_encoders(run.record.read(), dataset)
        raise PateError(
            f"the public inputs, or their labels, users or ids, were changed since {run.root} was begun: "
            "restore them, or choose another --out, and add up what both runs cost"
        )


def _refuse_other_encoders(settings: Settings, dataset: Dataset) -> None:
    """Say so where it is the encoder that was changed."""
    then = settings.of(PUBLIC).get("encoders", [])
    for known in texts.seen(dataset.columns):
        if then and not any(known.digest in one for one in then):
            raise PateError(
                f"the encoder {known.name!r} is another than the one that this run was begun with "
                f"({then[0].partition(':')[0]}): install that version, or choose another --out"
            )


def is_other(settings: Settings, dataset: Dataset) -> bool:
    """Whether a run has recorded another public part."""
    return PUBLIC in settings and settings.of(PUBLIC).get("digest") != digest(dataset)
