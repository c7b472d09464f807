"""Who votes: every record by itself, or every user by all of its records together.

Also how many voters have the label that a rule gives their records: what a score is the noisy form of.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Bool, Int

from pate_jax.data.dataset import Part
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.models.spaces.space import BLOCK, Space
from pate_jax.system import devices

Rows = range | Int[np.ndarray, " row"]
Made = TypeVar("Made")
_DIGEST = 16  # bytes


class Voters(NamedTuple):
    """Private records, and whose each is where users vote."""

    inputs: np.ndarray  # as stored; may be a memory map, of which only a block is read at a time
    labels: Int[np.ndarray, " record"]
    users: Int[np.ndarray, " record"] | None  # numbered; None where every record votes
    apart: np.ndarray | None = None  # names of the voters, where no other process was given any of them

    def take(self, rows: np.ndarray) -> Voters:
        """The voters whose records these are; users keep their numbers.

        >>> people = Voters(np.eye(3), np.arange(3), None, np.array(["a", "b", "c"]))
        >>> people.take(np.array([2, 0])).apart.tolist()
        ['c', 'a']
        """
        users = None if self.users is None else self.users[rows]
        apart = self.apart if self.apart is None or users is not None else self.apart[rows]
        return Voters(self.inputs[rows], self.labels[rows], users, apart)


def voters(part: Part, classes: int, *, by: str = "record", apart: bool = False) -> Voters:
    """The voters of a private part, whose labels are checked.

    With `apart` each of several processes was given records of its own, in place of the same ones. Their
    counts and sums are those of all; a voter whose records two processes hold is refused then.

    >>> names, people = np.array(["a", "b", "c"]), np.array(["x", "y", "x"])
    >>> part = Part(np.zeros((3, 2)), np.array([0, 1, 1]), names, people)
    >>> voters(part, 2, by="user").users.tolist(), voters(part, 2).users
    ([0, 1, 0], None)
    """
    if part.labels is None:
        raise PateError("private has no labels; voters vote by their labels")
    labels = np.asarray(part.labels)
    if labels.dtype.kind not in "iu" or labels.shape != (len(part.inputs),):
        raise PateError(f"labels {list(labels.shape)} of {labels.dtype} must be one whole number a record")
    check_labels(labels, classes)
    named = units_of(part, by)
    users = np.unique(named, return_inverse=True)[1].astype(np.int64) if by == "user" else None
    names = (np.unique(named) if by == "user" else named) if apart else None
    return Voters(part.inputs, labels.astype(np.int32), users, names)


def check_labels(labels: Int[np.ndarray, " record"], classes: int) -> None:
    """Refuse labels beyond the classes: their votes would be lost, or count for something else."""
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        raise PateError(
            f"label {labels[outside[0]]} at row {outside[0]} is outside 0..{classes - 1}: correct it"
        )


def own_rows(people: Voters) -> Rows:
    """The rows that this process reads: its part of the records, or all records of its users, user by user.

    Every process is given the same voters, or each its own. Together they read each record once, and no
    user's records lie with two of them.

    >>> own_rows(Voters(np.zeros((3, 2)), np.zeros(3, np.int32), np.array([1, 0, 1]))).tolist()
    [1, 0, 2]
    """
    index, processes = devices.index(), devices.processes()
    if processes > 1:
        _check_given(people)
    if people.apart is not None:
        index, processes = 0, 1  # all of its own
    if people.users is None:
        start, end = (len(people.labels) * place // processes for place in (index, index + 1))
        return range(start, end)
    rows = np.flatnonzero(people.users % processes == index)
    return rows[np.argsort(people.users[rows], kind="stable")]


def each_block(
    space: Space,
    inputs: np.ndarray,
    rows: Rows,
    work: Callable[[Any, np.ndarray, Int[np.ndarray, " row"]], Made],
    constants: Any,
    *,
    count: int | None = None,
) -> Iterator[Made]:
    """`work(constants, features, rows)` of each block of records, in order, dealt to `count` devices.

    The constants lie on the device where the work is done. Features of every block have the same shape, and
    so the same program, wherever it runs; features beyond the rows are of no record. Few blocks are held at a
    time, however many there are.
    """
    places = devices.local(count)[: max(1, -(-len(rows) // BLOCK))]  # no more devices than blocks
    held = [jax.device_put(constants, place) for place in places]

    def one(start: int) -> Made:
        there, turn = rows[start : start + BLOCK], start // BLOCK % len(places)
        with jax.default_device(places[turn]):
            return work(held[turn], space.block(_read(inputs, there), there[0]), np.asarray(there))

    with ThreadPoolExecutor(len(places)) as pool:
        waiting: deque[Future[Made]] = deque()
        for start in range(0, len(rows), BLOCK):
            waiting.append(pool.submit(one, start))
            if len(waiting) > 2 * len(places):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def padded(values: np.ndarray, filling: int) -> np.ndarray:
    """The values of a block's records, and `filling` for the rows beyond them.

    >>> padded(np.array([4, 5]), -1)[:3].tolist()
    [4, 5, -1]
    """
    full = np.full(BLOCK, filling, np.int32)
    full[: len(values)] = values
    return full


def _read(inputs: np.ndarray, rows: Rows) -> np.ndarray:
    if isinstance(rows, range):
        return np.asarray(inputs[rows.start : rows.stop])
    return np.asarray(inputs[rows])


def _check_given(people: Voters) -> None:
    """Refuse processes whose voters do not go together."""
    apart = devices.rows_of_all(np.array([people.apart is not None]))
    with devices.failing_together():
        if apart.any() != apart.all():
            raise PateError(
                f"process {np.argmin(apart)} was given the same voters as all, and process "
                f"{np.argmax(apart)} its own: give every process its own, or none"
            )
    if people.apart is None:
        _check_same(people)
    else:
        _check_apart(people.apart)


def _check_apart(names: np.ndarray) -> None:
    """Refuse a voter that two processes hold, who would vote twice; only keyed digests of names are sent."""
    key = devices.from_first(secrets.token_bytes(32))
    texts = (str(name).encode(errors="surrogatepass") for name in names)
    own = b"".join(hashlib.blake2b(text, key=key, digest_size=_DIGEST).digest() for text in texts)
    digests = devices.rows_of_all(np.frombuffer(own, np.uint8).reshape(-1, _DIGEST))
    holder = devices.rows_of_all(np.full(len(names), devices.index()))
    every, which, times = np.unique(digests, axis=0, return_inverse=True, return_counts=True)
    twice = np.flatnonzero((times > 1)[which.ravel()])
    with devices.failing_together():
        if len(twice):
            holders = holder[which.ravel() == which.ravel()[twice[0]]]
            raise PateError(
                f"{(times > 1).sum()} of {len(every)} voters were given twice, the first of them to "
                f"processes {' and '.join(map(str, holders))}, and would vote as often: give all records of "
                "a voter to one process, each under its own id"
            )


def _check_same(people: Voters) -> None:
    """Refuse voters that differ from process to process: records would be counted twice, or never.

    Which record a row holds, too: in copies of another order two processes may read one record. So every
    process reads all contents once more. Only keyed digests are sent.
    """
    key = devices.from_first(secrets.token_bytes(32))
    with devices.failing_together():
        digest = _digest(people, key)
    found = devices.rows_of_all(np.frombuffer(digest, np.uint8)[None])
    other = np.flatnonzero((found != found[0]).any(1))
    with devices.failing_together():
        if len(other):
            raise PateError(
                f"process {other[0]} was given other records, labels or users than process 0, or the same in "
                "another order: give every process the same ones, of which each counts its own part, or say "
                "that each has its own (crowd.voters(..., apart=True))"
            )


def _digest(people: Voters, key: bytes) -> bytes:
    """A keyed digest of all records in their order, of which a block is read at a time."""
    shape = f"{people.inputs.shape}{people.inputs.dtype}".encode()
    digest = hashlib.blake2b(shape, key=key, digest_size=_DIGEST)
    for start in range(0, len(people.inputs), BLOCK):
        digest.update(np.ascontiguousarray(people.inputs[start : start + BLOCK]).tobytes())
    for column in (people.labels, people.users):
        digest.update(b"" if column is None else np.ascontiguousarray(column).tobytes())
    return digest.digest()


Rule = Callable[[np.ndarray], Int[np.ndarray, " record"]]  # of inputs, to their labels


def agreeing(people: Voters, rule: Rule) -> int:
    """The number of voters who agree with a rule; a user does with whom half of its records do.

    The rule must say the same of a record whatever other records it is shown with, so that one voter moves
    the number by 1 at most. The number is private until noise is added to it. Several processes read a part
    of the voters each, and all return the number of all voters.

    >>> people = Voters(np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 1]), None)
    >>> agreeing(people, lambda inputs: np.ones(len(inputs), int))
    2
    >>> agreeing(people._replace(users=np.array([4, 4, 9])), lambda inputs: np.ones(len(inputs), int))
    2
    """
    return int(devices.sum_over_processes(np.array([agreed(people, rule).sum()]))[0])


def agreed(people: Voters, rule: Rule) -> Bool[np.ndarray, " voter"]:
    """Which voters of this process agree with a rule: by record, or by the number of the user.

    >>> people = Voters(np.array([[1.0], [2.0], [3.0]]), np.array([1, 0, 1]), None)
    >>> agreed(people, lambda inputs: np.ones(len(inputs), int)).tolist()
    [True, False, True]
    """
    rows = np.asarray(own_rows(people), np.int64)
    starts = range(0, len(rows), BLOCK)
    right = [_right(people, rows[start : start + BLOCK], rule) for start in starts]
    each = np.concatenate([np.zeros(0, bool), *right])
    if people.users is None:
        return each
    users = people.users[rows]
    most = int(users.max(initial=0)) + 1
    both = np.bincount(users, each, most), np.bincount(users, minlength=most)
    found: np.ndarray = (2 * both[0] >= both[1]) & (both[1] > 0)
    return found


def _right(people: Voters, rows: np.ndarray, rule: Rule) -> np.ndarray:
    found: np.ndarray = rule(np.asarray(people.inputs[rows])) == people.labels[rows]
    return found
