"""From teachers' labels to vote histograms, and the file that holds them: the border between training and privacy.

Files and checks need NumPy alone; JAX is loaded by `histogram` when it is first called.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Int32

from pate_jax import artefact
from pate_jax.errors import PateError

KIND = "votes"
_LARGEST_TOTAL = 1 << 24  # float32 holds every whole number up to here


class Votes(NamedTuple):
    """The votes of all teachers on all queries, and what came with them."""

    votes: np.ndarray  # int32[queries, classes]
    teacher_labels: np.ndarray | None = None  # int16[teachers, queries]
    ids: np.ndarray | None = None  # str[queries]
    labels: np.ndarray | None = None  # int32[queries]: true labels of public data, for evaluation only


def histogram(
    teacher_labels: Int[Any, "teachers queries"],
    classes: int,
    *,
    axis_name: Any = None,
    chunk: int = 64,
) -> Int32[Any, "queries classes"]:
    """How many teachers chose each class, for each query.

    Inside shard_map or pmap with teachers spread over devices, `axis_name` sums over all of them. `chunk`
    teachers are counted at a time. Under tracing a label outside the classes counts for none (a padded teacher
    labels everything -1); concrete labels outside are refused.

    >>> histogram(np.array([[0, 2], [0, 1], [1, 1]]), classes=3)
    Array([[2, 1, 0],
           [0, 2, 1]], dtype=int32)
    """
    from pate_jax import tally

    if not (isinstance(classes, int) and classes >= 2):
        raise PateError(f"classes={classes!r} must be a whole number of at least 2")
    if not (isinstance(chunk, int) and chunk >= 1):
        raise PateError(f"chunk={chunk!r} must be a whole number of at least 1")
    return tally.count(check_teacher_labels(teacher_labels, classes), classes, axis_name, chunk)


def check_teacher_labels(teacher_labels: Any, classes: int | None = None) -> Any:
    """Labels[teacher, query] as whole numbers within the classes; tracers by shape and type only."""
    labels = _array(teacher_labels)
    if labels.ndim != 2:
        raise PateError(f"teacher_labels has shape {labels.shape}; labels[teacher, query] are wanted")
    if labels.shape[0] == 0:
        raise PateError(f"teacher_labels has shape {labels.shape}: zero teachers; at least one must vote")
    labels = _whole("teacher_labels", labels)
    if not _is_concrete(labels) or labels.size == 0:
        return labels
    least, largest = int(labels.min()), int(labels.max())
    if least < 0:
        raise PateError(f"teacher_labels holds {least}; labels are classes from 0 on")
    if classes is not None and largest >= classes:
        raise PateError(f"teacher_labels holds {largest}, out of range for {classes} classes")
    return labels


def check_votes(votes: Any, *, equal_totals: bool = True) -> Any:
    """Votes[query, class] as whole numbers >= 0, every row of one total; tracers by shape and type only.

    The total is the number of teachers. It must be the same in every row, because the privacy analysis lets one
    record move one vote, never make one appear.

    >>> check_votes([[3, 1], [4, 1]])
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: votes row 1 sums to 5 where row 0 sums to 4: every teacher must vote once on every query
    """
    votes = _array(votes)
    if votes.ndim != 2:
        raise PateError(f"votes has shape {votes.shape}; a histogram per query, [query, class], is wanted")
    if votes.shape[1] < 2:
        raise PateError(f"votes has shape {votes.shape}; at least 2 classes are needed")
    votes = _whole("votes", votes)
    if not _is_concrete(votes) or votes.size == 0:
        return votes
    host = np.asarray(votes)
    if host.min() < 0:
        row = int(host.min(1).argmin())
        raise PateError(f"votes row {row} holds {host[row].min()}; counts must be >= 0")
    totals = host.sum(1, dtype=np.int64)
    _check_totals(totals, equal_totals)
    return votes


def _check_totals(totals: np.ndarray, equal: bool) -> None:
    if totals.min() == 0:
        raise PateError(f"votes row {int(totals.argmin())} sums to 0: zero teachers voted; at least one must")
    if totals.max() >= _LARGEST_TOTAL:
        raise PateError(
            f"votes row {int(totals.argmax())} sums to {totals.max()}; fewer than 2^24 teachers are wanted"
        )
    different = np.flatnonzero(totals != totals[0])
    if equal and different.size:
        row = int(different[0])
        raise PateError(
            f"votes row {row} sums to {totals[row]} where row 0 sums to {totals[0]}: "
            "every teacher must vote once on every query"
        )


def check_probabilities(probabilities: Any, shape: tuple[int, ...]) -> Any:
    """The student's probabilities[query, class] for votes of this shape: finite, >= 0, rows summing to 1."""
    values = _array(probabilities)
    if values.shape != shape:
        raise PateError(f"student_probabilities has shape {values.shape} where the votes have {shape}")
    if values.dtype.kind != "f" and values.dtype.name != "bfloat16":
        raise PateError(f"student_probabilities has type {values.dtype}; floating-point numbers are wanted")
    if not _is_concrete(values) or values.size == 0:
        return values
    host = np.asarray(values, np.float32)
    if not np.isfinite(host).all():
        row = int(np.flatnonzero(~np.isfinite(host).all(1))[0])
        raise PateError(f"student_probabilities row {row} holds NaN or infinity: {host[row].tolist()}")
    off = np.abs(host.sum(1) - 1)
    if host.min() < 0 or off.max() > 1e-2:
        row = int(host.min(1).argmin() if host.min() < 0 else off.argmax())
        raise PateError(
            f"student_probabilities row {row} is no distribution: {host[row].tolist()}; apply a softmax to logits"
        )
    return values


def _array(values: Any) -> Any:
    """JAX arrays and tracers as they are, everything else as a NumPy array."""
    return values if hasattr(values, "dtype") and hasattr(values, "ndim") else np.asarray(values)


def _is_concrete(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return True
    from jax.core import Tracer

    return not isinstance(values, Tracer) and getattr(values, "is_fully_addressable", True)


def _whole(name: str, values: Any) -> Any:
    """The values as integers: those that are already, or concrete floating-point ones without a fraction."""
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind != "f" or not _is_concrete(values):
        raise PateError(f"{name} has type {values.dtype}; whole numbers are wanted")
    host = np.asarray(values)
    bad = ~np.isfinite(host) | (host != np.floor(host))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise PateError(f"{name}[{row}, {column}]={host[row, column]} is not a whole number")
    return host.astype(np.int64)


def save_votes(path: Path | str, votes: Votes) -> None:
    """Write the votes whole or not at all."""
    checked = _checked(votes)
    arrays = {name: value for name, value in checked._asdict().items() if value is not None}
    artefact.write_arrays(path, KIND, arrays)


def load_votes(path: Path | str, *, labels_are_teacher_labels: bool = False) -> Votes:
    """Read votes: our own file, or an .npz or .npy of anyone's."""
    path = Path(path)
    if path.suffix == ".npy":
        with io.BytesIO(artefact.read_bytes(path)) as stream:
            arrays = {"votes": np.load(stream, allow_pickle=False)}
    else:
        arrays = artefact.read_foreign_arrays(path)
        if "artefact" in arrays:
            arrays = artefact.read_arrays(path, KIND)
    teacher_labels = arrays.get("teacher_labels")
    if labels_are_teacher_labels:
        teacher_labels = arrays.get("votes", teacher_labels)
        arrays.pop("votes", None)
    if "votes" in arrays:
        counts = arrays["votes"]
    elif teacher_labels is not None:
        checked = check_teacher_labels(teacher_labels)
        counts = np.stack([(checked == c).sum(0) for c in range(int(checked.max()) + 1)], 1)
    else:
        raise PateError(f"{path} holds {sorted(arrays)}; `votes` or `teacher_labels` is wanted")
    return _checked(Votes(counts, teacher_labels, arrays.get("ids"), arrays.get("labels")))


def _checked(votes: Votes) -> Votes:
    counts = np.asarray(check_votes(np.asarray(votes.votes))).astype(np.int32)
    labels = votes.teacher_labels
    if labels is not None:
        labels = np.asarray(check_teacher_labels(np.asarray(labels), counts.shape[1])).astype(np.int16)
    return Votes(counts, labels, votes.ids, votes.labels)
