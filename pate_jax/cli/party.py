"""`pate party ...`: what each of several owners of private records does by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg


def salt(file: Positional[Path]) -> None:
    """Write a fresh salt for `pate party ids`, which one owner makes and all owners share.

    Whoever compares the digests must not have it: with the salt, ids that can be guessed could be tried.

    Args:
        file: the file to write.
    """
    from pate_jax.data import fingerprints

    fingerprints.new_salt(file)
    print(f"{file}: copy it to every other owner, and not to whoever runs `pate merge`")


def ids(
    source: Annotated[Positional[Path], arg(metavar="RUN|VOTES")],
    salt: Path,
    out: Path,
    private: Path | None = None,
    by: Literal["record", "user"] = "record",
    id_column: str | None = None,
    user_column: str | None = None,
) -> None:
    """Write salted digests of the ids whose teachers voted, so that nobody is with two owners (`pate merge`).

    Args:
        source: the run directory whose teachers voted, or a votes file made elsewhere.
        salt: the salt that all owners share (`pate party salt`).
        out: the file to write, for whoever runs `pate merge`.
        private: for a votes file: the private records, a table (.csv, .parquet) or an .npz.
        by: for a votes file: whether ids are of records or of users; a run knows.
        id_column: column of a table that holds the record's id.
        user_column: column of a table that holds the user's id.
    """
    from pate_jax.runs.parties import union

    files = union.Private(private, by, id_column, user_column)
    found = union.identify(source, files, salt=salt, out=out)
    print(f"{out}: digests of {len(found.digests):,} {found.by} ids")
