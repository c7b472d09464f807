"""What a file or folder of the user's own holds, for its owner: `pate inspect`. All of it is private.

A table is judged as if it were the public part, which decides what its columns are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data import (
    columns,
    folders,
    forms,
    ids,
    labels,
    own_files,
    raw,
    relation,
    tables,
    texts,
    trial_mark,
)
from pate_jax.data.tables import Table, missing
from pate_jax.errors import PateError

Names = Mapping[str, str | None]  # of the columns of labels, ids and users
Categories = Mapping[str, Sequence]  # the declared values of columns
_NONE: Categories = {}
_LIMITS = "at a limit, such as <0.5"  # read as that number, and marked
_RARE = (_LIMITS,)  # a line only where there is something to say
_SHOWN = 6  # names on a line
_CLASSES = 20  # values that a guessed label may have
_PEOPLE = (
    "patient|person|people|user|customer|client|member|participant|respondent|subject|student|donor|driver"
)
_USER = re.compile(
    rf"(.*[ _-])?({_PEOPLE}|household)s?([ _-]?(id|uuid|key|code|number|no|nr))?|p?id|mrn", re.IGNORECASE
)
_USERS = 10  # different ones that a guessed column of them has at least
_LABEL = re.compile(r"(.*[ _-])?(label|labels|class|target|outcome|y)", re.IGNORECASE)


class Seen(NamedTuple):
    """What a file holds, what of it would be refused, and the columns that its run names."""

    what: str
    lines: dict[str, str]
    refused: list[str]
    names: dict[str, str]  # of labels, ids and users, given or guessed
    classes: tuple[str, ...] = ()  # names of classes, where labels are numbers that do not start at 0
    people: int = 0  # users, or records where these are not counted
    texts: tuple[str, ...] = ()  # columns of free text, given or guessed


def look(path: Path, names: Names, categories: Categories = _NONE, text_column: str | None = None) -> Seen:
    """Look at a file or folder; `names` are those of the columns of labels, ids and users, where given.

    `categories` are the values of columns that are declared to hold categories, and `text_column` names those
    of free text.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.csv"
    >>> _ = path.write_text("id,age,sick\\na,30,yes\\nb,,no\\nc,50,no\\n")
    >>> seen = look(path, {})
    >>> seen.what, seen.names, seen.lines["missing"]
    ('a table of 3 rows and 3 columns', {'labels': 'sick', 'ids': 'id'}, 'age 33%')
    """
    kind = own_files.kind_of([path])
    if kind == "table":
        table = tables.read(path)
        table.pop(trial_mark.NAME, None)
        return table_seen(table, names, categories, text_column)
    return _arrays(raw.of_arrays(path)) if kind == "arrays" else _folder(path)


def table_seen(
    table: Table, names: Names, categories: Categories = _NONE, text_column: str | None = None
) -> Seen:
    """A table as it is seen."""
    rows, found = len(next(iter(table.values()))), roles(table, names)
    guessed = {role: name for role, name in found.items() if not names.get(role)}
    every = table.only(name for name in table if name not in found.values())
    read, unfit = _texts(every, text_column, categories)
    features = every.only(name for name in every if name not in read)
    kinds, refused = _kinds(features, {name: known for name, known in categories.items() if name in features})
    refused += [*unfit]
    refused += [f"categories name {name!r}, which is no column" for name in categories if name not in table]
    refused += [why for role in ("ids", "users") if role in found for why in _no_names(table, found[role])]
    lines = {
        "ids": _about_ids(table.get(found.get("ids", "")), found, guessed, refused),
        "users": _about_users(table.get(found.get("users", "")), found, guessed),
        "labels": _about_labels(table.get(found.get("labels", "")), found, guessed, refused),
        **{kind: _listed(there) for kind, there in kinds.items() if there or kind not in _RARE},
        **({"text": _about_texts(read, text_column)} if read else {}),
        "left out": _listed(_left_out(features, kinds, categories)),
        "missing": _listed(_missing(every)),
        "constant": _listed(name for name, values in features.items() if len({*values}) == 1),
    }
    names_of = labels.names_of_numbers(table.get(found.get("labels", ""), []))
    people = len({*table[found["users"]]}) if "users" in found else rows
    return Seen(
        f"a table of {rows:,} rows and {len(table)} columns", lines, refused, found, names_of, people, read
    )


def roles(table: Table, names: Names) -> dict[str, str]:
    """The columns of labels, ids and users, as they are named or as their names and values suggest."""
    unknown = next((name for name in names.values() if name is not None and name not in table), None)
    if unknown is not None:
        raise PateError(f"there is no column {unknown!r}; {tables.columns_like(unknown, table)}")
    raw.each_by_itself(names)
    found = {role: name for role in ("labels", "ids", "users") if (name := names.get(role))}
    free = [name for name in table if name not in found.values()]
    differ = {name: len({*table[name]}) for name in free}
    rows = len(next(iter(table.values())))
    own = [name for name in free if ids.look_like_ids(name, table[name])]
    few = [name for name in free if 2 <= differ[name] <= _CLASSES]
    called = [name for name in few if _LABEL.fullmatch(name)] or [name for name in few if name == free[-1]]
    if called:
        found.setdefault("labels", called[0])
    if own and rows > 1:
        found.setdefault("ids", own[0])
    people = [
        name
        for name in free
        if _USERS <= differ[name] < rows
        and name not in found.values()
        and _USER.fullmatch(name)
        and not missing(table[name]).any()
    ]
    if people:
        found.setdefault("users", people[0])
    return found


def _no_names(table: Table, name: str) -> list[str]:
    """Why a column cannot be one of ids or users."""
    try:
        ids.of_table(table, name, "the file")
    except PateError as error:
        return [str(error)]
    return []


def _texts(
    features: Table, text_column: str | None, declared: Categories
) -> tuple[tuple[str, ...], list[str]]:
    """The columns of free text, named or guessed, and why some cannot be that."""
    if text_column is None:
        try:
            return texts.guessed(features, columns.left_out(features, declared)), []
        except PateError:  # of another column, which is told where its kind is looked for
            return (), []
    try:
        return tuple(texts.checked(features, text_column)), []
    except PateError as error:
        return (), [str(error).replace(" of the public part", "").replace(" in the public part", "")]


def _about_texts(read: Sequence[str], text_column: str | None) -> str:
    return _listed(read) + " (a guess: name it with --text-column)" * (text_column is None)


def _kinds(features: Table, categories: Categories) -> tuple[dict[str, list[str]], list[str]]:
    """The names of the columns of each kind, and why some would be refused."""
    kinds: dict[str, list[str]] = {"numbers": [], "limits": [], "codes": [], "words": [], "dates": []}
    refused = []
    for name, values in features.items():
        try:
            declared = {name: categories[name]} if name in categories else {}
            (column,) = columns.plan(features.only([name]), declared, {})
            if column.categories is None:  # of words nothing is refused, and titles would fill the memory
                columns.encode({name: values}, [column], "the file")
        except PateError as error:
            refused.append(
                str(error).replace(" of the public part", "").replace("the public part has", "it has")
            )
            continue
        if column.categories is not None:
            kinds["words"].append(f"{name} ({len(column.categories)})")
        elif column.codes:
            kinds["codes"].append(f"{name} ({', '.join(f'{code:g}' for code in column.codes)})")
        elif column.form == forms.NUMBER:
            kinds["numbers"].append(name)
        elif column.form == forms.LIMITS:
            kinds["limits"].append(f"{name} ({int(forms.at_limit(values).sum()):,} values)")
        else:
            kinds["dates"].append(f"{name} ({forms.told(column.form)})")
    titles = {"limits": _LIMITS, "dates": "dates, true or false"}
    return {titles.get(kind, kind): there for kind, there in kinds.items()}, refused


def _left_out(features: Table, kinds: Mapping[str, Sequence[str]], declared: Categories) -> list[str]:
    """The columns that a run leaves out, and why."""
    read = {*kinds["numbers"], *(name.rpartition(" (")[0] for name in kinds["words"])}
    found = columns.left_out(features.only(name for name in features if name in read), declared)
    return [f"{name} ({why.replace(' public', '')})" for name, why in found.items()]


def _missing(features: Table) -> list[str]:
    """The share of missing values in each column that has some, the largest first."""
    shares = {name: missing(values).mean() for name, values in features.items()}
    ordered = sorted((name for name in shares if shares[name]), key=lambda name: -shares[name])
    return [f"{name} {shares[name]:.0%}" for name in ordered]


def _about_ids(
    values: Sequence[str] | None, found: Mapping[str, str], guessed: Names, refused: list[str]
) -> str:
    if values is None:
        return "none: rows are then called by their numbers, and teachers cover changed contents only"
    name = found["ids"] + " (a guess: name it with --id-column)" * ("ids" in guessed)
    (most, count), *_ = Counter(values).most_common(1)
    if count > 1:
        refused.append(f"the id {most!r} is there {count} times: give each record its own")
    numbers = ", but they count up like row numbers (docs/guide/data.md)" * relation.count_up(list(values))
    return f"{name}: {len({*values}):,} different{numbers}"


def _about_users(values: Sequence[str] | None, found: Mapping[str, str], guessed: Names) -> str:
    if values is None:
        return "none: if one person has several records, name a column of persons with --user-column"
    name = found["users"] + " (a guess: name it with --user-column)" * ("users" in guessed)
    ((_, most),) = Counter(values).most_common(1)
    return f"{name}: {len({*values}):,} different, with up to {most:,} records; --by user covers all of them"


def _about_labels(
    values: Sequence[str] | None, found: Mapping[str, str], guessed: Names, refused: list[str]
) -> str:
    if values is None:
        return "none: the private and the test part need them (--label-column)"
    gone = int(missing(values).sum())
    if gone:
        refused.append(f"{gone:,} labels are missing: remove those rows, or fill them in")
    name = found["labels"] + " (a guess: name it with --label-column)" * ("labels" in guessed)
    return f"{name}: {_counted(values)}"


def _counted(values: Iterable[str]) -> str:
    counts = Counter(values)
    shown = _listed(f"{value} {count:,}" for value, count in counts.most_common())
    named = bool(labels.names_of_numbers([*counts]))
    hint = "; classes are numbered from 0, so give the names of all of them by --classes" * named
    return f"{len(counts)} classes: {shown}{hint}"


def _listed(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are.

    >>> _listed("abcdefgh"), _listed([])
    ('a, b, c, d, e, f and 2 more', 'none')
    """
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" * (len(listed) > _SHOWN)
    return (", ".join(listed[:_SHOWN]) or "none") + more


def _arrays(found: raw.Raw) -> Seen:
    """What an .npz holds."""
    inputs, refused = np.asarray(found.inputs), []
    bad = 0 if inputs.dtype.kind != "f" else int((~np.isfinite(inputs).reshape(len(inputs), -1).all(1)).sum())
    if bad:
        refused.append(f"{bad:,} records hold NaN or infinity: fill or remove them")
    own = None if found.ids is None else found.ids.tolist()
    given = {"ids": "ids", "labels": "labels"}
    flat = inputs.reshape(-1, inputs.shape[-1])
    lines = {
        "ids": _about_ids(own, given, {}, refused),
        "labels": "none" if found.labels is None else _counted(found.labels.astype(np.str_).tolist()),
        "users": "none" if found.users is None else f"{len({*found.users.tolist()}):,} different",
        "inputs": f"{inputs.dtype} from {np.nanmin(inputs):g} to {np.nanmax(inputs):g}"
        if inputs.size
        else "none",
        "features": "none" if found.features is None else f"{found.features.shape[1]} for each record",
        "missing": f"in {bad:,} records",
        "constant": f"{int((flat == flat[:1]).all(0).sum())} of {flat.shape[1]} channels or columns",
    }
    shape = " x ".join(map(str, inputs.shape[1:]))
    kind = "images" if inputs.ndim == 4 else "vectors"
    return Seen(f"{len(inputs):,} {kind} of {shape} numbers", lines, refused, {})


def _folder(path: Path) -> Seen:
    """What a folder of images holds."""
    names, sizes, modes, refused = [], Counter[str](), Counter[str](), list[str]()
    for file in folders.files(path):
        names.append(file.relative_to(path).as_posix())
        try:
            size, mode = folders.header(file)
        except PateError as error:
            refused.append(str(error))
            continue
        sizes[f"{size[0]} x {size[1]}"] += 1
        modes[mode] += 1
    if len(sizes) > 1:
        refused.append("the images have several sizes: give --image-size, such as 32")
    classes = [name.rpartition("/")[0] for name in names if "/" in name]
    lines = {
        "ids": "the names of the files" + ", numbered (docs/guide/data.md)" * folders.count_up(names),
        "labels": _counted(classes) if classes else "none: the images are in no folders of classes",
        "sizes": _listed(f"{size} pixels ({count:,})" for size, count in sizes.most_common()),
        "colours": _listed(f"{mode} ({count:,})" for mode, count in modes.most_common()),
    }
    return Seen(f"a folder of {len(names):,} images", lines, refused, {})
