"""From teachers' labels to vote histograms, and the file that holds them.

`votes.npz` is the border between training and privacy: everything behind it needs only this file, and votes
of teachers trained elsewhere enter here. Files and checks need only NumPy, so accounting for a file of votes
does not load JAX. The counting kernel (`pate_jax.voting.counting`) is loaded at the first call of
`histogram`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32
from numpy.typing import ArrayLike

from pate_jax.errors import PateError
from pate_jax.system import storage

KIND = "votes"
_LARGEST_TOTAL = 1 << 24  # float32 holds every whole number up to here
_LARGEST_CLASSES = 1 << 15  # labels are stored in 16 bits


class Votes(NamedTuple):
    """The votes of all teachers on all queries, and what the file says about the queries.

    >>> Votes(np.array([[9, 1], [4, 6]])).votes.sum(1).tolist()
    [10, 10]
    """

    votes: np.ndarray  # int32[queries, classes]
    teacher_labels: np.ndarray | None = None  # int16[teachers, queries]
    ids: np.ndarray | None = None  # str[queries]
    labels: np.ndarray | None = None  # int32[queries]: true labels of public data, for evaluation only
    digests: np.ndarray | None = None  # str[queries], one of each input (`data.duplicates.digests`)
    trial: bool = False  # whether the run that made them was a trial, whose public inputs were private


def histogram(
    teacher_labels: ArrayLike,
    classes: int,
    *,
    axis_name: Any = None,
    chunk: int = 10,
) -> Int32[Any, "queries classes"]:
    """How many teachers chose each class, for each query, from their labels[teacher, query].

    Inside shard_map or pmap, with teachers spread over devices, `axis_name` sums over all devices. `chunk`
    teachers are compared in one step. Concrete labels outside the classes are refused; under tracing they do
    not count (so a teacher that is only padding labels everything -1).

    >>> histogram(np.array([[0, 2], [0, 1], [1, 1]]), classes=3)
    Array([[2, 1, 0],
           [0, 2, 1]], dtype=int32)
    """
    from pate_jax.voting import counting

    _check_classes(classes)
    if not (isinstance(chunk, int) and 1 <= chunk <= 1000):
        raise PateError(f"chunk={chunk!r} must be a whole number from 1 to 1000")
    return counting.count(check_teacher_labels(teacher_labels, classes), classes, axis_name, chunk)


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
        raise PateError(f"teacher_labels holds {least}; labels are class numbers from 0 on")
    limit = _LARGEST_CLASSES if classes is None else classes
    if largest >= limit:
        raise PateError(f"teacher_labels holds {largest}, out of range for {limit} classes")
    return labels


def check_votes(votes: Any, *, equal_totals: bool = True) -> Any:
    """Votes[query, class] as whole numbers >= 0, every row of one total; tracers by shape and type only.

    The total is the number of teachers. It must be the same in every row: in the privacy analysis a record
    can move a vote, but not add one.

    >>> check_votes([[3, 1], [4, 1]])
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: votes row 1 sums to 5, row 0 to 4: each teacher must vote once on each query
    """
    votes = _array(votes)
    if votes.ndim != 2:
        raise PateError(
            f"votes has shape {votes.shape}; a histogram for each query, [query, class], is wanted"
        )
    _check_classes(votes.shape[1])
    votes = _whole("votes", votes)
    if not _is_concrete(votes) or votes.size == 0:
        return votes
    _check_range(np.asarray(votes))
    _check_totals(_totals(np.asarray(votes)), equal_totals)
    return votes


def save_votes(path: Path | str, votes: Votes) -> None:
    """Check votes and write them to a file, whole or not at all.

    >>> import tempfile
    >>> save_votes(Path(tempfile.mkdtemp()) / "votes.npz", Votes(np.array([[9, 1], [4, 6]])))
    """
    arrays = {name: value for name, value in _checked(votes)._asdict().items() if value is not None}
    if arrays.pop("trial"):
        arrays["trial"] = np.array(True)
    storage.write_arrays(path, KIND, arrays)


def load_votes(
    path: Path | str, *, labels_are_teacher_labels: bool = False, classes: int | None = None
) -> Votes:
    """Read and check votes from a file of this package, or from any other `.npz` or `.npy`.

    A foreign `.npz` holds `votes[query, class]` or `teacher_labels[teacher, query]`, and may hold `ids` and
    true `labels` of the queries. A `.npy` holds the votes. With `labels_are_teacher_labels`, the array that
    would be read as votes is labels[teacher, query]. `classes` is needed if the last class never occurs among
    the labels.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "foreign.npy"
    >>> np.save(file, [[0, 1, 1], [0, 1, 0]])
    >>> load_votes(file, labels_are_teacher_labels=True).votes.tolist()
    [[2, 0], [0, 2], [1, 1]]
    """
    arrays, ours = _read(Path(path))
    if labels_are_teacher_labels:
        if "votes" in arrays:
            arrays["teacher_labels"] = arrays.pop("votes")
        if "teacher_labels" not in arrays:
            raise PateError(
                f"{path} holds {sorted(arrays)}; the teachers' labels were expected as `teacher_labels`"
            )
    teacher_labels, counts = arrays.get("teacher_labels"), arrays.get("votes")
    if counts is None and teacher_labels is None:
        raise PateError(f"{path} holds {sorted(arrays)}; an array `votes` or `teacher_labels` is wanted")
    if teacher_labels is not None:
        _check_orientation(path, teacher_labels, arrays)
    if counts is None:
        counts = _count(check_teacher_labels(teacher_labels, classes), classes)
    elif not ours:
        _explain_orientation(path, counts)
    rest = {name: arrays.get(name) for name in ("ids", "labels", "digests")}
    return _checked(Votes(counts, teacher_labels, trial="trial" in arrays, **rest))


def _read(path: Path) -> tuple[dict[str, np.ndarray], bool]:
    """The arrays of a file, and whether this package wrote it."""
    if path.suffix == ".npy":
        content = storage.read_bytes(path)
        try:
            return {"votes": storage.read_npy(content)}, False
        except storage.UNREADABLE as error:
            raise PateError(f"{path} is not a readable .npy array: {error or 'it is damaged'}") from error
    if path.suffix.lower() in (".csv", ".parquet", ".txt"):
        raise PateError(f"{path}: votes are .npz or .npy files; write one by pate_jax.voting.save_votes")
    arrays = storage.read_foreign_arrays(path)
    ours = "artefact" in arrays
    return (storage.read_arrays(path, KIND) if ours else arrays), ours


def _explain_orientation(path: Path | str, counts: np.ndarray) -> None:
    """Refuse foreign votes whose axes could be read in another order, and say which."""
    if counts.ndim != 2 or counts.size == 0:
        return  # `check_votes` says what is wrong
    _check_classes(counts.shape[1])
    counts = _whole("votes", counts)
    _check_range(counts)
    rows_agree, columns_agree = (np.ptp(counts.sum(axis)) == 0 for axis in (1, 0))
    shape = counts.shape
    if rows_agree and columns_agree and shape[0] > 1:
        raise PateError(
            f"{path}: rows and columns of votes{shape} both have equal totals, so [query, class] and "
            "[class, query] are both plausible: write it by pate_jax.voting.save_votes, in [query, class]"
        )
    if columns_agree and not rows_agree:
        raise PateError(f"{path}: the columns of votes{shape} have equal totals, not the rows: transpose it")
    if not rows_agree and shape[0] > 1:
        totals = counts.sum(1)
        usual = int(np.median(totals))
        row = int((totals != usual).argmax())
        raise PateError(
            f"{path}: the rows of votes{shape} have unequal totals ({int(totals[row])} in row {row}, and "
            f"mostly about {usual}), so they are not histograms [query, class] of teachers who all voted; if "
            "they are labels[teacher, query], pass labels_are_teacher_labels=True "
            "(--labels-are-teacher-labels)"
        )


def _check_orientation(path: Path | str, teacher_labels: np.ndarray, arrays: dict[str, np.ndarray]) -> None:
    """Refuse labels whose second axis does not match the number of queries in the file's other arrays."""
    for name in ("votes", "ids", "labels"):
        if name not in arrays or teacher_labels.ndim != 2 or arrays[name].ndim == 0:
            continue
        queries = len(arrays[name])
        if teacher_labels.shape[1] != queries:
            remedy = ": transpose it" if teacher_labels.shape[0] == queries else ""
            raise PateError(
                f"{path}: teacher_labels{teacher_labels.shape} should be [teacher, query], and "
                f"`{name}` has {queries} queries{remedy}"
            )


def _checked(votes: Votes) -> Votes:
    """The votes in their stored types, after a check that all parts agree."""
    counts = np.asarray(check_votes(np.asarray(votes.votes))).astype(np.int32)
    queries, classes = counts.shape
    teacher_labels, ids, labels, digests, trial = votes[1:]
    if teacher_labels is not None:
        checked = np.asarray(check_teacher_labels(np.asarray(teacher_labels), classes))
        if checked.shape[1] != queries or not np.array_equal(_count(checked, classes), counts):
            raise PateError(f"teacher_labels{checked.shape} do not add up to votes{counts.shape}")
        teacher_labels = checked.astype(np.int16)
    ids, digests = (_names(name, names, queries) for name, names in (("ids", ids), ("digests", digests)))
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != (queries,) or labels.dtype.kind not in "iu":
            raise PateError(
                f"labels is {labels.dtype}{labels.shape} where {queries} whole numbers are wanted"
            )
        if queries and not 0 <= labels.min() <= labels.max() < classes:
            raise PateError(
                f"labels holds {labels.min()} to {labels.max()}, out of range for {classes} classes"
            )
        labels = labels.astype(np.int32)
    return Votes(counts, teacher_labels, ids, labels, digests, trial)


def _names(what: str, given: Any, queries: int) -> np.ndarray | None:
    if given is None:
        return None
    names = np.asarray(given).astype(str)
    if names.shape != (queries,):
        raise PateError(f"{what} has shape {names.shape} where there are {queries} queries")
    return names


def _count(labels: np.ndarray, classes: int | None) -> np.ndarray:
    """Histograms by NumPy, one teacher at a time."""
    queries = labels.shape[1]
    counts = np.zeros((queries, classes or max(2, int(labels.max(initial=0)) + 1)), np.int32)
    for row in labels:
        counts[np.arange(queries), row] += 1
    return counts


def _check_classes(classes: Any) -> None:
    if not (isinstance(classes, int | np.integer) and 2 <= classes <= _LARGEST_CLASSES):
        raise PateError(f"classes={classes!r} must be a whole number from 2 to {_LARGEST_CLASSES}")


def _totals(counts: np.ndarray) -> np.ndarray:  # of counts below 2^24; einsum is three times as fast
    fits = counts.dtype == np.int32 and counts.shape[1] < 1 << 7
    totals: np.ndarray = np.einsum("ij->i", counts) if fits else counts.sum(1, dtype=np.int64)
    return totals


def _check_range(counts: np.ndarray) -> None:
    if counts.min() < 0 or counts.max() >= _LARGEST_TOTAL:
        wanted, place = (">= 0", counts.argmin()) if counts.min() < 0 else ("below 2^24", counts.argmax())
        row, column = divmod(int(place), counts.shape[1])
        raise PateError(f"votes[{row}, {column}]={counts[row, column]} must be {wanted}")


def _check_totals(totals: np.ndarray, equal: bool) -> None:
    if totals.min() == 0:
        raise PateError(f"votes row {int(totals.argmin())} sums to 0: zero teachers; at least one must vote")
    if totals.max() >= _LARGEST_TOTAL:
        raise PateError(f"votes row {int(totals.argmax())} sums to {totals.max()}; it must be below 2^24")
    different = np.flatnonzero(totals != totals[0])
    if equal and different.size:
        row = int(different[0])
        raise PateError(
            f"votes row {row} sums to {totals[row]}, row 0 to {totals[0]}: "
            "each teacher must vote once on each query"
        )


def _array(values: Any) -> Any:
    """JAX arrays and tracers unchanged, everything else as a NumPy array."""
    return values if hasattr(values, "dtype") and hasattr(values, "ndim") else np.asarray(values)


def _is_concrete(values: Any) -> bool:
    """Whether this process can read the values: they are not traced and not spread over processes."""
    if "jax" not in sys.modules or not isinstance(values, sys.modules["jax"].Array):
        return True
    return not isinstance(values, sys.modules["jax"].core.Tracer) and values.is_fully_addressable


def _whole(name: str, values: Any) -> Any:
    """The values, if they are integers or concrete floating-point numbers without a fraction."""
    if values.dtype.kind in "iu":
        return values
    if values.dtype.kind != "f" or not _is_concrete(values):
        raise PateError(f"{name} has type {values.dtype}; whole numbers are wanted")
    host = np.asarray(values)
    huge = np.abs(host) >= 2.0**53
    bad = ~np.isfinite(host) | (host != np.floor(host)) | huge
    if bad.any():
        row, column = np.argwhere(bad)[0]
        what = "too large for a count or a class" if huge[row, column] else "not a whole number"
        raise PateError(f"{name}[{row}, {column}]={host[row, column]} is {what}")
    return host.astype(np.int64)


def votes_of(path: Path, labels_are_teacher_labels: bool = False) -> Votes:
    """The votes of a file, on one query at least."""
    found = load_votes(path, labels_are_teacher_labels=labels_are_teacher_labels)
    if not len(found.votes):
        raise PateError(f"{path} holds votes on no query: write one row for each query into it")
    return found
