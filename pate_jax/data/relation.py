"""Whom a guarantee covers, which follows from the kind of the private records' ids.

The id of a record determines its shard. If ids are row numbers, removing one record renumbers all records
after it and moves them to other teachers, so the guarantee holds for changed contents only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pate_jax.data.dataset import Dataset
from pate_jax.errors import PateError
from pate_jax.system.progress import warn

Relation = Literal["record", "user", "contents"]
ROW_NUMBERS = (
    "WARNING: the ids of the private records are row numbers. Removing a record renumbers all records after "
    "it, so the guarantee covers changed contents but no removal; give ids that belong to the records, or "
    "pass --ids-are-stable if each record keeps its number when others come or go"
)
DECLARED = "its owner declares that each record keeps its id"


def of(dataset: Dataset, by: str) -> Relation:
    """Whom the guarantee covers if a data set is divided by record or by user.

    >>> from pate_jax.data import load
    >>> of(load("strokes", size=12, public_size=2, test_size=2), "record")
    'record'
    """
    if by == "user":
        _check_users(dataset)
        return "user"
    return "contents" if are_rows(dataset) else "record"


def check_users_count(dataset: Dataset, by: str) -> None:
    """Warn where private records name users, and the guarantee counts by record nevertheless.

    >>> from pate_jax.data import load
    >>> check_users_count(load("strokes", size=12, public_size=2, test_size=2), "record")
    """
    if by == "record" and dataset.private.users is not None:
        warn(
            "the private records name their users, but the guarantee counts by record: a user's records are "
            "covered one by one, and the more of them there are, the less is promised for all together. Pass "
            "--by user (by='user' in Python) to cover all records of one user"
        )


def claimed(settings: Mapping[str, Mapping[str, Any]]) -> Any:
    """The relation that a run's settings name or, where they name none, by which its data was divided.

    >>> claimed({"partition": {"by": "user"}}), claimed({"relation": {"relation": "contents"}})
    ('user', 'contents')
    """
    return settings.get("relation", {}).get("relation") or settings.get("partition", {}).get("by", "record")


def are_rows(dataset: Dataset) -> bool:
    """Whether the ids of the private records are only their row numbers."""
    if dataset.ids_are == "given" and dataset.scan is not None:
        return "ids" in dataset.scan.count_up
    if dataset.ids_are == "given":
        return count_up(dataset.private.ids.tolist())
    return dataset.ids_are == "rows"


def renumbers(dataset: Dataset, by: str) -> bool:
    """Whether removing one voter, a record or a user, gives others new names: theirs are row numbers.

    Then nobody may be held out by name, since the removal would hold out others.

    >>> from pate_jax.data import load
    >>> drawn = load("strokes", size=12, public_size=2, test_size=2)
    >>> renumbers(drawn, "record"), renumbers(replace(drawn, ids_are="rows"), "record")
    (False, True)
    """
    if by == "record":
        return are_rows(dataset)
    return dataset.ids_are != "stable" and _users_count_up(dataset)


def _users_count_up(dataset: Dataset) -> bool:
    """Whether the users of the private records are row numbers, in the order in which each first occurs."""
    if dataset.scan is not None:
        return "users" in dataset.scan.count_up
    users = dataset.private.users
    return users is not None and count_up(list(dict.fromkeys(users.tolist())))


def count_up(names: Sequence[str]) -> bool:
    """Whether names are 0, 1, 2 ... or 1, 2, 3 ... in this order, after a prefix that they share.

    >>> count_up(["row-0", "row-1", "row-2"]), count_up(["7", "8", "9"]), count_up(["a2", "a1", "a3"])
    (True, False, False)
    """
    start = shared(min(names), max(names)) if names else 0
    return bool(names) and any(
        all(number(name[start:]) == str(own) for own, name in enumerate(names, first)) for first in (0, 1)
    )


def shared(one: str, other: str) -> int:
    """The length of the longest common prefix of two names.

    >>> shared("row-1", "row-20")
    4
    """
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def number(text: str) -> str | None:
    """The whole number at the start of a text such as `007`, `7.0` or `7th`, or None.

    >>> number("007"), number("7th"), number("x7")
    ('7', '7', None)
    """
    match = re.fullmatch(r"0*([0-9]+)(\.0+)?[^0-9]*", text)
    return match[1] if match else None


def declared(dataset: Dataset, ids_are_stable: bool) -> Dataset:
    """The data set with its owner's declaration, which its description repeats whatever the ids look like.

    One record more or less may decide whether ids count up, so nothing that is published of declared ids may
    depend on it. Of others the description says if they are row numbers, as the statement does.

    >>> from pate_jax.data import load
    >>> drawn = replace(load("strokes", size=12, public_size=2, test_size=2), ids_are="rows")
    >>> of(declared(drawn, True), "record"), of(declared(drawn, False), "record")
    ('record', 'contents')
    """
    note = DECLARED if ids_are_stable else ROW_NUMBERS if are_rows(dataset) else ""
    return replace(
        dataset,
        ids_are="stable" if ids_are_stable else dataset.ids_are,
        description="; ".join(filter(None, (dataset.description, note))),
    )


def without_warning(description: str) -> str:
    """What a crowd's run says of its data: a voter's vote does not depend on its id, whatever that is.

    Where some are held out by their ids, these are no row numbers (`renumbers`).

    >>> without_warning(f"patients; {ROW_NUMBERS}"), without_warning("patients")
    ('patients', 'patients')
    """
    return description.removesuffix(ROW_NUMBERS).removesuffix("; ")


def _check_users(dataset: Dataset) -> None:
    """Refuse to divide by user if the ids of records, or the users themselves, are row numbers."""
    numbered = {
        "ids": are_rows(dataset),
        "users": dataset.ids_are == "given" and _users_count_up(dataset),
    }
    for what in (name for name, are in numbered.items() if are):
        raise PateError(
            f"--by user needs {what} that belong to the private records, but theirs are row numbers: "
            "removing one user would renumber all others; give real ones, or pass --ids-are-stable if each "
            "keeps its number"
        )
