"""People and inputs that the private part shares with another part: refused, unless declared coincidences.

Ids and users that both parts name are the same people, whether their rows are equal or were changed. Public
must not be made of private records: answers are about them, a student may contain them, and no noise hides
them. So a row of the public, the test or another part is also refused if its input is a private one, in the
form in which the run stores both. Different people may have equal rows in a table of few columns; the owner,
who knows where the rows come from, can declare this. No row is ever dropped silently, because the rest of a
public part would then depend on private records.

Public inputs that are near each other would ask one question twice in other words (`ruler`). An image is
compared by the amplitudes of its Fourier transform, which stay as they are when it moves over an edge and
comes back in at the other: a copy moved by a few pixels hardly differs. Other inputs are compared by their
scaled numbers. Distances are told in units of the typical one: in a small sample of the public part, the
median distance to the nearest other. The sample is a quarter at most, so most of it lacks its copies, and
these do not shorten the unit. All of it is a function of public inputs, so it costs nothing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax.data import duplicates, folders, relation
from pate_jax.data.dataset import Dataset, Part, Preprocessing
from pate_jax.errors import SharedInputs

NEAR = 0.5  # of the typical distance: below it, two inputs are near-duplicates
_SAMPLE, _SHARE = (
    200,
    4,
)  # public inputs that the typical distance is measured on: at most, and one in so many
_ROUNDING = 1e-6  # of the longest input: distances below it are those of rounding
_COPY = 0.1  # of the usual distance between private inputs: nearer ones may be altered copies
_WORK, _SIDE = 2 * 10**9, 32  # products of numbers for a comparison; pixels on a side of compared images
_BLOCK = 256  # inputs that are compared with all others at a time
Places = Float[np.ndarray, "input coordinates"]


class Ruler(NamedTuple):
    """What distances are measured by; both parts are public."""

    preprocessing: Preprocessing
    typical: float  # distance between a public input and the nearest other of a sample; 0: only rounding

    def apart(
        self, inputs: np.ndarray, distance: float, before: np.ndarray | None = None
    ) -> Int[np.ndarray, " kept"]:
        """Rows that are at least so far from all inputs `before` and from each earlier row that is kept.

        `distance` is in units of the typical one.

        >>> ruler = Ruler(Preprocessing((0.0,), (1.0,)), typical=2.0)
        >>> ruler.apart(np.array([[0.0], [0.9], [2.0], [5.0]]), 0.5, before=np.array([[5.5]])).tolist()
        [0, 2]
        """
        places, reach = coordinates(inputs, self.preprocessing), distance * self.typical
        held = places[:0] if before is None else coordinates(before, self.preprocessing)
        return _apart(places, held, reach)

    def near(self, inputs: np.ndarray) -> int:
        """How many inputs are near-duplicates of an earlier one, each of which is none."""
        return len(inputs) - len(self.apart(inputs, NEAR))


def ruler(public: np.ndarray, preprocessing: Preprocessing) -> Ruler:
    """The ruler of a public part; equal inputs count once.

    >>> ruler(np.arange(40.0)[:, None] % 2, Preprocessing((0.0,), (1.0,))).typical
    1.0
    """
    size = min(_SAMPLE, max(2, len(public) // _SHARE))
    some = public[np.random.default_rng(0).permutation(len(public))[:size]]
    places = coordinates(some[duplicates.unique_queries(some).first_rows], preprocessing)
    gaps = _gaps(places, places)
    np.fill_diagonal(gaps, np.inf)
    typical = float(np.median(gaps.min(1))) if len(places) > 1 else 0.0
    longest = math.sqrt((places**2).sum(1).max(initial=0.0))
    return Ruler(preprocessing, typical if typical > _ROUNDING * longest else 0.0)


def coordinates(inputs: np.ndarray, preprocessing: Preprocessing) -> Places:
    """Where inputs are, as stored: one row for each.

    >>> image = np.zeros((1, 8, 8, 1), np.uint8)
    >>> image[0, 2:5, 3] = 200
    >>> moved, as_stored = np.roll(image, (1, 1), axis=(1, 2)), Preprocessing((0.0,), (1.0,))
    >>> np.allclose(coordinates(image, as_stored), coordinates(moved, as_stored))
    True
    """
    scaled = np.asarray(preprocessing.apply(inputs), np.float64)
    if scaled.ndim == 4:
        scaled = np.abs(np.fft.rfft2(scaled, axes=(1, 2)))
    return scaled.reshape(len(scaled), math.prod(scaled.shape[1:]))


def copies(private: np.ndarray, public: np.ndarray, preprocessing: Preprocessing) -> tuple[int, int]:
    """How many of so many public inputs hardly differ from a private one, if chance does not explain it.

    They are nearer to one than a tenth of what private inputs are apart, and are not equal to it. Of private
    inputs themselves hardly any are so near to each other. Of many inputs a sample is compared.

    >>> private = np.random.default_rng(0).normal(size=(300, 3))
    >>> as_stored = Preprocessing((0.0,), (1.0,))
    >>> copies(private, private[:50] + 1e-4, as_stored), copies(private, private[::2] + 1, as_stored)[0]
    ((50, 50), 0)
    """
    whole = coordinates(_shrunk(private), preprocessing)
    most = max(_SAMPLE, _WORK // max(1, whole.size))
    random = np.random.default_rng(0)
    asked = random.permutation(len(public))[:most]
    own = random.permutation(len(private))[: min(most, 2 * _SAMPLE)]
    near = _nearest(coordinates(_shrunk(public[asked]), preprocessing), whole)
    usual = _nearest(whole[own], whole)
    reach = _COPY * float(np.median(usual[np.isfinite(usual)])) if np.isfinite(usual).any() else 0.0
    found, chance = int((near < reach).sum()), float((usual < reach).mean()) * len(near)
    return (found if found > 2 * chance + 2 else 0), len(near)


def _shrunk(inputs: np.ndarray) -> np.ndarray:
    """Images as the means of blocks, 32 on a side at most, so that large ones are compared in time."""
    by = -(-max(inputs.shape[1:3]) // _SIDE) if inputs.ndim == 4 else 1
    if by == 1:
        return inputs
    height, width = (side // by for side in inputs.shape[1:3])
    cut = inputs[:, : height * by, : width * by]
    blocks = cut.reshape(len(inputs), height, by, width, by, inputs.shape[3])
    return np.asarray(blocks.mean((2, 4), dtype=np.float32))


def _nearest(
    left: Float[np.ndarray, "left coordinates"], right: Float[np.ndarray, "right coordinates"]
) -> Float[np.ndarray, " left"]:
    """How far each of some inputs is from the nearest of others that it does not equal."""
    found = np.full(len(left), np.inf)
    equal = _ROUNDING * np.sqrt((left**2).sum(1))[:, None]
    for start in range(0, len(right), _BLOCK):
        gaps = _gaps(left, right[start : start + _BLOCK])
        found = np.minimum(found, np.where(gaps > equal, gaps, np.inf).min(1))
    return found


def _apart(
    places: Places, held: Float[np.ndarray, "held coordinates"], reach: float
) -> Int[np.ndarray, " kept"]:
    """The rows that are kept, in order: block by block, so that most distances come from one product."""
    kept: list[int] = []
    for start in range(0, len(places), _BLOCK):
        block = places[start : start + _BLOCK]
        free = np.flatnonzero(_gaps(block, held).min(1, initial=np.inf) >= reach)
        block, among = block[free], _gaps(block[free], block[free]) < reach
        new: list[int] = []
        for row in range(len(block)):
            if not among[row, new].any():
                new.append(row)
        kept.extend((start + free[new]).tolist())
        held = np.concatenate([held, block[new]])
    return np.array(kept, np.int64)


def _gaps(
    left: Float[np.ndarray, "left coordinates"], right: Float[np.ndarray, "right coordinates"]
) -> Float[np.ndarray, "left right"]:
    """All distances between two lists."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    gaps: np.ndarray = np.sqrt(np.maximum(squares, 0))
    return gaps


Names = Sequence[str] | np.ndarray
_NAMED = 10  # the most rows that the message names


def rows(private: Collection[str], other: np.ndarray) -> np.ndarray:
    """The rows of another part whose input is also a private one, given the digests of private inputs.

    >>> private = duplicates.digests(np.array([[1.0], [2.0]]))
    >>> rows(private, np.array([[3.0], [2.0], [2.0]])).tolist()
    [1, 2]
    """
    return np.flatnonzero(duplicates.repeats(other, private))


def parts(dataset: Dataset) -> dict[str, Part]:
    """The parts of a data set that must not hold private inputs."""
    named = {"public": dataset.public, "test": dataset.test}
    return {name: part for name, part in named.items() if part is not None}


def people(dataset: Dataset, other: Part) -> dict[str, np.ndarray]:
    """The rows of another part whose ids, or users, are those of private records too, by which of the two."""
    private = dataset.private if dataset.scan is None else dataset.scan.shared
    found = {}
    if dataset.ids_are != "rows":
        found["ids"] = common(private.ids, other.ids, dataset.ids_are == "stable")
    if private.users is not None and other.users is not None:
        found["users"] = common(private.users, other.users, dataset.ids_are == "stable")
    return {what: rows for what, rows in found.items() if len(rows)}


def common(private: Names, other: Names, stable: bool) -> np.ndarray:
    """The rows of other names that are private ones too, however numbers are written.

    Other names that only count up are row numbers, and say nothing of people, unless those of private records
    were declared to be `stable`.

    >>> common(["7", "ann", "9"], ["bob", "Ann ", "007", "9.0"], False).tolist()
    [1, 2, 3]
    >>> [common(["0", "1", "2"], ["0", "1"], stable).tolist() for stable in (False, True)]
    [[], [0, 1]]
    """
    names = [str(name) for name in np.asarray(other).tolist()]
    if not stable and _count_up(list(dict.fromkeys(names))):
        return np.array([], np.int64)
    known = {name for forms in _forms([str(name) for name in np.asarray(private).tolist()]) for name in forms}
    return np.flatnonzero(named(names, known))


def named(names: Names, known: Set[str]) -> Bool[np.ndarray, " name"]:
    """Which names have one of the known forms."""
    each = _forms([str(name) for name in names])
    return np.array([not known.isdisjoint(forms) for forms in each], bool)


def forms_of_people(names: Names, stable: bool) -> set[str]:
    """All forms of the names of another part; none where they only count up, as in `common`."""
    listed = [str(name) for name in names]
    if not stable and _count_up(list(dict.fromkeys(listed))):
        return set()
    return {name for forms in _forms(listed) for name in forms}


def _count_up(names: list[str]) -> bool:
    """Whether names only count up: those of images in each of their folders, all others in this order."""
    return folders.count_up(names) if all(map(_is_image, names)) else relation.count_up(names)


def _is_image(name: str) -> bool:
    return name.lower().endswith(folders.SUFFIXES)


def _forms(names: list[str]) -> Iterator[tuple[str, ...]]:
    """What each name is compared by: itself, and an image's own name without its folder and suffix.

    >>> [*_forms(["cat/Ann.png", "cat/007.png", "dog/007.png"])]
    [('cat/ann.png', 'ann'), ('cat/7.png',), ('dog/7.png',)]
    """
    stems = [_plain(PurePosixPath(name).stem) if _is_image(name) else "" for name in names]
    times = Counter(stems)
    for name, stem in zip(names, stems, strict=True):
        yield (_plain(name), stem) if stem and times[stem] == 1 else (_plain(name),)


def _plain(name: str) -> str:
    """A name however it is written: without case, and without zeros before a whole number in it.

    >>> _plain(" P-0012"), _plain("007.0"), _plain("1.05")
    ('p-12', '7', '1.05')
    """
    text = re.sub(r"(?<![0-9.])0+(?=[0-9])", "", unicodedata.normalize("NFKC", name).strip().casefold())
    number = re.fullmatch(r"([0-9]+)(\.0+)?", text)
    return number[1] if number else text


def refuse_people(dataset: Dataset, others: Mapping[str, Part]) -> None:
    """Refuse other parts, given by file or name, that name people of the private part by their ids."""
    for place, part in others.items():
        for what, shared in people(dataset, part).items():
            names = part.ids if what == "ids" or part.users is None else part.users
            raise SharedInputs(same_people(place, what, shared, names))


def same_people(place: str, what: str, shared: np.ndarray, names: np.ndarray) -> str:
    """What is said where so many of the records of another part are of people of the private part."""
    return (
        f"{place}: {len(shared)} of {len(names)} records have the {what} of private records too (rows "
        f"{_named(shared)}, counted from 0), such as {str(names[shared[0]])!r}, so they are of the same "
        "people, also where their rows were changed, and public inputs must not be made of private records: "
        f"leave these people out of one of the two parts. If equal {what} name different people, declare "
        "that with --equal-ids-are-coincidences"
    )


def refuse(dataset: Dataset, others: Mapping[str, Part]) -> None:
    """Refuse other parts, given by file or name, that contain private inputs of a data set."""
    for place, part in others.items():
        shared = rows(dataset.private_digests, part.inputs)
        if len(shared):
            raise SharedInputs(
                f"{place}: {len(shared)} of {len(part.inputs)} inputs are private ones too (rows "
                f"{_named(shared)}, counted from 0), and public inputs must not be made of private records: "
                "compare both parts by person, and leave out everybody who is in both, since changed rows of "
                "the same people are not among these (docs/guide/data.md). If different records are equal by "
                "chance, as in a table of few columns, declare that with --equal-rows-are-coincidences"
            )


def _named(shared: np.ndarray) -> str:
    return ", ".join(map(str, shared[:_NAMED])) + ", ..." * (len(shared) > _NAMED)


def near_copies(dataset: Dataset, others: Mapping[str, Part]) -> list[str]:
    """A sentence for each of other parts that holds inputs which hardly differ from private ones."""
    found = []
    private = dataset.private.inputs if dataset.scan is None else dataset.scan.sample
    for place, part in others.items():
        near, of = copies(private, part.inputs, dataset.preprocessing)
        if near:
            found.append(
                f"{near} of {of:,} inputs of the {place} part that were compared hardly differ from a "
                "private one, as altered copies would: compare both parts by person, and leave out everybody "
                "who is in both"
            )
    return found


def declared(
    dataset: Dataset,
    coincidences: bool,
    places: Mapping[str, str] | None = None,
    *,
    ids_coincide: bool = False,
) -> Dataset:
    """The data set, if its parts share no people and no inputs, or shared ones are declared coincidences.

    `places` are the files of its parts, for the message.
    """
    named = {(places or {}).get(name, name): part for name, part in parts(dataset).items()}
    if ids_coincide:
        dataset = replace(dataset, equal_ids="declared")
    else:
        refuse_people(dataset, named)
    if coincidences:
        return replace(dataset, equal_rows="declared")
    if dataset.equal_rows == "refused":
        refuse(dataset, named)
    return dataset
