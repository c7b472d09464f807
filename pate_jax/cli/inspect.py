"""`pate inspect`, `report` and `verify`: what data hold, what a run says of itself, and whether it is so.

`pate split` makes parts of one file for a trial, before there are public data.
"""

from __future__ import annotations

import json as json_format
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, Positional

from pate_jax.cli.output import RunPath, finish
from pate_jax.errors import PateError
from pate_jax.system import progress, tasks
from pate_jax.system.tasks import HERE_ALONE, Where

_OWN = "All of this describes your records: it is private."


def inspect_command(
    file: Positional[Path],
    public: Path | None = None,
    test: Path | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    user_column: str | None = None,
    categories: Path | None = None,
    classes: int | str | None = None,
    image_size: int | None = None,
    text_column: str | None = None,
    encoder: str | None = None,
) -> None:
    """Show what a file or folder of your own holds, what would be refused, and the command to give next.

    Args:
        file: a table (.csv, .parquet, .xlsx), an .npz or a folder of images.
        public: the public part: check both together, as a run would.
        test: the test part.
        label_column: column of a table that holds the label; unset: a guess.
        id_column: column of a table that holds the record's id; unset: a guess.
        user_column: column of a table that holds the user's id; unset: a guess.
        categories: JSON file with the values of columns of categories, as `pate run` takes it.
        classes: number or names of classes, if the public labels do not show them.
        image_size: height and width to which images are resized.
        text_column: column of free text, or several with commas between them; unset: a guess.
        encoder: what makes numbers of text, by name or its file or folder; unset: words.
    """
    from pate_jax.data import inspection, own_files

    names = {"labels": label_column, "ids": id_column, "users": user_column}
    seen = inspection.look(file.expanduser(), names, own_files.declared(categories), text_column)
    text_column = ",".join(seen.texts) or None
    names |= seen.names
    files = {"private": file, "public": public, "test": test}
    given = {part: path for part, path in files.items() if path is not None}
    named = classes or ",".join(seen.classes) or None
    options = {"--classes": named, "--categories": categories, "--image-size": image_size}
    options |= {"--text-column": text_column, "--encoder": encoder}
    more = [str(word) for flag, value in options.items() if value is not None for word in (flag, value)]
    refused, telling = list(seen.refused), list[str]()
    if public is not None:
        how = {"classes": classes, "categories": categories, "image_size": image_size}
        why, telling = _together(given, names, **how, text_column=text_column, encoder=encoder or "")
        refused += why
    lines = {
        **seen.lines,
        **({"look at": "; ".join(telling)} if telling else {}),
        "refused": "; ".join(refused) or "nothing" + (", of this part alone" * (public is None)),
    }
    print(f"{file}: {seen.what}. {_OWN}")
    for name, text in lines.items():
        print(f"{name + ':':<24}{text}")
    then = "next, once mended:" if refused else "next:"
    line = _trial_line(file, names) if public is None else run_line(given, names, more, seen.people)
    print(f"{then:<24}{line}")


def _trial_line(file: Path, names: dict[str, str | None]) -> str:
    """The command that makes parts for a trial of a file for which no public part is named."""
    if file.is_dir():
        return f"pate inspect {shlex.quote(str(file))} --public FOLDER, of images that hold no private one"
    words = ["pate", "split", str(file)]
    words += [word for role, name in names.items() if name for word in (FLAGS[role], name)]
    release = f"{'or, for a release:':<24}inspect it again with --public, a file of another origin"
    return f"{shlex.join(words)}\n{release}"


def _together(
    files: dict[str, Path], names: dict[str, str | None], **settings: int | str | Path | None
) -> tuple[list[str], list[str]]:
    """Why a run would refuse these files, if it would; and columns that tell the public labels."""
    from pate_jax import data
    from pate_jax.runs import public_labels

    columns = dict(zip(("label_column", "id_column", "user_column"), names.values(), strict=True))
    try:
        found = data.from_files(**files, **columns, **settings)  # type: ignore[arg-type]
    except PateError as error:
        return [str(error)], []
    return [], public_labels.telltale(found)


def report_command(run: RunPath, json: bool = False) -> None:
    """Write the report pages of a run and print its summary.

    Args:
        run: the run directory.
        json: print one JSON object in place of the summary.
    """
    from pate_jax.runs import kinds
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    own = kinds.of(directory)
    with directory.writing():
        results = own.tell(directory)
    if own.words is None:
        finish(results, json)
    else:
        print(json_format.dumps(results) if json else own.words(results))


def verify_command(
    run: RunPath,
    deep: bool = False,
    strict: bool = False,
    json: bool = False,
    where: Annotated[Where, OmitArgPrefixes] = HERE_ALONE,
) -> None:
    """Recompute a run, or check a release/ by itself; exit code 1 where something does not fit.

    Args:
        run: the run directory, or the release/ that somebody was given.
        deep: let the teachers vote again, train some of them and the student again, and compare.
        strict: count what could not be checked as a failure too.
        json: print one JSON object.
        where: who computes parts of the run again, of --deep.
    """
    from pate_jax.audit import verify

    with tasks.engine(where if deep else HERE_ALONE) as engine:
        findings = verify.at(run, deep=deep, engine=engine)
    print(json_format.dumps(findings.to_dict()) if json else findings.text())
    sys.exit(1 if findings.of("failed") or (strict and findings.of("unchecked")) else 0)


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
