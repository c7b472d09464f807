"""People and inputs that the private part shares with another part: refused, unless declared coincidences.

Ids and users that both parts name are the same people, whether their rows are equal or were changed. Public
must not be made of private records: answers are about them, a student may contain them, and no noise hides
them. So a row of the public, the test or another part is also refused if its input is a private one, in the
form in which the run stores both. Different people may have equal rows in a table of few columns;
the owner, who knows where the rows come from, can declare this. No row is ever dropped silently, because the
rest of a public part would then depend on private records.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from jaxtyping import Bool

from pate_jax.data import duplicates, folders, nearness, relation
from pate_jax.data.dataset import Dataset, Part
from pate_jax.errors import SharedInputs

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
        near, of = nearness.copies(private, part.inputs, dataset.preprocessing)
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
