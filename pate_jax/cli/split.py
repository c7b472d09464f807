"""`pate split`: parts of one file for a trial, before there are public data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from tyro.conf import Positional

from pate_jax.system import progress

FLAGS = {"labels": "--label-column", "ids": "--id-column", "users": "--user-column"}
_NO_PRIVACY = (
    "this split is for a trial: its public and test rows are records of your own, and they have no privacy. "
    "Do not publish what a run on it releases. For a release, take public inputs that hold no private record"
)


def split(
    file: Positional[Path],
    out: Path = Path("trial"),
    label_column: str | None = None,
    id_column: str | None = None,
    user_column: str | None = None,
    public: float = 0.2,
    test: float = 0.1,
    seed: int = 0,
) -> None:
    """Divide a table or .npz into public and private parts for a trial; its public rows have no privacy.

    Each part is marked as that of a trial, which every run on it repeats.

    Args:
        file: a table (.csv, .parquet, .xlsx) or an .npz.
        out: the folder for the parts.
        label_column: column of a table that holds the label; unset: a guess.
        id_column: column of a table that holds the record's id; unset: a guess.
        user_column: column of a table that holds the user's id; all records of a user fall into one part;
            unset: a guess.
        public: share of the users, or records, whose records become public.
        test: share of the users, or records, that test the student.
        seed: which users, or records, fall into which part.
    """
    from pate_jax.data import trial

    names = {"labels": label_column, "ids": id_column, "users": user_column}
    made = trial.divide(file.expanduser(), out.expanduser(), names, public=public, test=test, seed=seed)
    for part, path in made.files.items():
        print(f"{path}: {made.rows[part]:,} records")
    for role, name in made.names.items():
        if not names[role]:
            print(f"the column {name!r} is taken for that of {role}: name another with {FLAGS[role]}")
    progress.warn(_NO_PRIVACY)
    more = _more(made.classes, made.equal)
    if made.texts:
        more += ["--text-column", ",".join(made.texts)]
        print(f"the column {made.texts[0]!r} is taken for free text (`pip install pate-jax[text]`)")
    print(f"next: {run_line(made.files, made.names, more, made.people)}")


def run_line(
    files: Mapping[str, Path], names: Mapping[str, str | None], more: list[str], people: int = 0
) -> str:
    """The command that makes a run of these files; of very many `people` with a delta that suits them.

    >>> run_line({"private": Path("my own.csv"), "public": Path("pool.csv")}, {"labels": "sick"}, [])
    "pate run --private 'my own.csv' --public pool.csv --label-column sick --epsilon 1"
    """
    from pate_jax.accounting.inputs import CUSTOMARY_DELTA, delta_for

    words = ["pate", "run", *(word for part, path in files.items() for word in (f"--{part}", str(path)))]
    words += [word for role, name in names.items() if name for word in (FLAGS[role], name)]
    words += ["--by", "user"] if names.get("users") else []
    words += ["--delta", f"{delta_for(people):g}"] if CUSTOMARY_DELTA * people > 1 else []
    return shlex.join([*words, *more, "--epsilon", "1"])


def _more(classes: tuple[str, ...], equal: int) -> list[str]:
    """What a run of a trial must be told: classes that its public parts lack, and rows that are equal."""
    named = ["--classes", ",".join(classes)] if classes else []
    return [*named, *(["--equal-rows-are-coincidences"] if equal else [])]
