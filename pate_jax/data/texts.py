"""Columns of free text in a table: which may be one, and how an encoder turns it into numbers.

Which columns hold text is declared. Whether they may, and the scale of the numbers, follow from the public
part alone. No message shows a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from pate_jax.data import encoders, forms, ids
from pate_jax.data.encoders import Known
from pate_jax.data.tables import columns_like, missing
from pate_jax.errors import PateError
from pate_jax.system.progress import bar

_BLOCK = 100  # texts between two updates of the progress bar
_LIKE = 16.0  # numbers of one deviation each that vary as much as a text: docs/guide/data.md
_WORDS = 3  # that half of the texts have, in a column that is guessed to be text
_DIFFER = 0.5  # of the texts, in such a column


def named(columns: str | Sequence[str] | None, flag: str = "text_column") -> tuple[str, ...]:
    """The names of several columns, from a list or with commas between them.

    >>> named("note, history"), named(["note"]), named(None)
    (('note', 'history'), ('note',), ())
    """
    names = columns.split(",") if isinstance(columns, str) else (columns or ())
    found = tuple(str(name).strip() for name in names)
    twice = next((name for name in found if found.count(name) > 1 or not name), None)
    if twice is not None:
        raise PateError(f"{flag}={','.join(found)} must name each column once: {twice!r}")
    return found


def known(
    public: Mapping[str, Sequence[str]], columns: str | Sequence[str] | None, encoder: str
) -> dict[str, Known]:
    """The encoder of each column of text; refused where public values show that it is none."""
    names = checked(public, columns)
    if encoders.reads_photos(encoder):
        raise PateError(f"--encoder {encoder} reads folders of photos, and these are tables: name another")
    if encoder and not names:
        raise PateError(f"--encoder {encoder} reads text: name its column with --text-column")
    return {name: encoders.named(encoder or encoders.TEXT).known for name in names}


def checked(public: Mapping[str, Sequence[str]], columns: str | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the columns of text; refused where public values show that one is none."""
    names = named(columns)
    for name in names:
        if name not in public:
            raise PateError(
                f"--text-column {name} is no column of the public part; {columns_like(name, public)}"
            )
        _check(name, public[name])
    return names


def _check(name: str, values: Sequence[str]) -> None:
    """Refuse a column of ids or numbers, by its public values."""
    blank = missing(values)
    present = [value for value, gone in zip(values, blank, strict=True) if not gone]
    if not present:
        raise PateError(
            f"the column of text {name!r} is empty in the public part: leave it out of --text-column"
        )
    if ids.look_like_ids(name, values) or not any(" " in value for value in present):
        raise PateError(
            f"the column {name!r} holds ids or single words and no text: leave it out of --text-column (each "
            "text has words with blanks between them)"
        )
    if forms.form_of(name, present) is not None:
        raise PateError(
            f"the column {name!r} holds numbers or dates and no text: leave it out of --text-column"
        )


def looks_like_text(name: str, values: Sequence[str]) -> bool:
    """Whether a column is probably free text: most values differ, and most have several words.

    >>> looks_like_text("note", ["it hurts a lot", "no pain at all"])
    True
    """
    present = [value for value, gone in zip(values, missing(values), strict=True) if not gone]
    several = sum(len(value.split()) >= _WORDS for value in present)
    differ = len({*present}) > _DIFFER * len(present)
    if not present or not differ or 2 * several <= len(present) or ids.look_like_ids(name, values):
        return False
    try:
        return forms.form_of(name, present) is None
    except PateError:
        return False


def guessed(table: Mapping[str, Sequence[str]], left_out: Iterable[str]) -> tuple[str, ...]:
    """The columns, of those that would be left out, which are probably free text."""
    return tuple(name for name in left_out if looks_like_text(name, table[name]))


def encode(
    name: str, values: Sequence[str], encoder: Known, keep: Path | None = None
) -> Float[np.ndarray, "row width"]:
    """A vector for each text; a missing one is all zeros. What a slow encoder makes is kept in a folder."""
    read, blank = encoders.same(encoder), missing(values)
    found = np.zeros((len(values), encoder.width), np.float32)
    with bar(f"reading {name}", total=len(values)) as steps:
        for start in range(0, len(values), _BLOCK):
            block = [
                "" if gone else value
                for value, gone in zip(
                    values[start : start + _BLOCK], blank[start : start + _BLOCK], strict=True
                )
            ]
            found[start : start + len(block)] = encoders.kept(read, block, keep)
            steps.advance(len(block))
    return found


def scale(vectors: Float[np.ndarray, "row width"]) -> tuple[list[float], float]:
    """The middle of public vectors, and the one number that scales all of theirs.

    Scaled, a text varies in all as much as a few columns of numbers do, each of deviation 1.

    >>> middle, one = scale(np.array([[0.0, 3.0], [2.0, 3.0]], np.float32))
    >>> middle, one * 4
    ([1.0, 3.0], 1.0)
    """
    wide = vectors.astype(np.float64)
    spread = float(np.sqrt(wide.var(0).sum()))
    return wide.mean(0).tolist(), spread / _LIKE**0.5 if spread > 0 else 1.0


def described(known: Known) -> str:
    """What reads a text, and how, in a sentence for a model card."""
    return f"{known.name} ({known.width} numbers; digest {known.digest}): {encoders.told(known)}"


def seen(columns: Sequence[object]) -> Iterator[Known]:
    """The encoders of some columns, each once."""
    yield from dict.fromkeys(found for one in columns if (found := getattr(one, "encoder", None)) is not None)
