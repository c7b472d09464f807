"""What `--help` shows: the flags that most people use; `--help-all` shows all of them, in groups."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import fields
from typing import Any

ALL = "--help-all"
_HELP = ("-h", "--help", ALL)
_FLAG = re.compile(r"^  (--?\w[\w.-]*)", re.MULTILINE)
_UNSET = re.compile(r"\s*\(default:\s+None\)")
_OPTIONAL = re.compile(r"\{None\}\|(\S+)(?=  )")  # with text beside it, which keeps its column
_EXAMPLE = re.compile(r"\n+ *>>> .*\n.*(?=\n)")  # of a docstring, with what it prints
_BEFORE_TITLE = re.compile(r"\n\n(?= \S)")
COMMON = {  # commands that have more flags than two screens hold, and the flags that people use first
    "run": "--out --epsilon --delta --voters --teachers --queries --config --private --public --test "
    "--label-column --id-column --user-column --by --seed --json",
    "tune": "--settings --out --epsilon --delta --candidates --each-once --private --public --test "
    "--label-column --id-column --user-column --by --seed --json",
    "train": "--out --teachers --private --public --test --label-column --id-column --user-column --by "
    "--seed --net --epochs --json",
    "student": "--method --net --steps --public --test --json",
    "baseline dpsgd": "--out --epsilon --delta --register --activation --net --steps --batch --private "
    "--public --test --label-column --id-column --user-column --seed --json",
    "party init": "--cards --voters --opened --epsilon --delta --unit --colluding --absent --threshold "
    "--queries --private --public --label-column --id-column --json",
    "party join": "--key --out --register --transcript --prepare --private --public --test --label-column "
    "--id-column --seed --json",
    "compare": "--epsilon --delta --methods --metric --positive --by-group --draws --minutes --judged-on "
    "--out --private --public --test --label-column --id-column --user-column --json",
    "sweep": "--out --mechanisms --epsilons --noises --thresholds --test-noises --queries --selections "
    "--teachers --nets --students --metric --most-students --seeds --delta --judged-on --exact "
    "--private --public --test --label-column --json",
}


def overview(summaries: Mapping[str, str]) -> str:
    """What `pate --help` prints.

    >>> print(overview({"run": "Do the whole job."}))
    usage: pate COMMAND ...
    <BLANKLINE>
    Private learning with teacher ensembles: from private records to a student that may be published.
    <BLANKLINE>
      run        Do the whole job.
    <BLANKLINE>
    `pate COMMAND --help` explains a command; `pate --version` prints the version.
    """
    what = "Private learning with teacher ensembles: from private records to a student that may be published."
    lines = ["usage: pate COMMAND ...", "", what, ""]
    width = max(11, *(len(name) + 2 for name in summaries))
    for name, summary in summaries.items():
        margin = " " * (width + 2)
        lines += textwrap.wrap(summary, 79, initial_indent=f"  {name:<{width}}", subsequent_indent=margin)
    end = "`pate COMMAND --help` explains a command; `pate --version` prints the version."
    return "\n".join([*lines, "", end])


def call(name: str, command: Callable[..., Any], flags: Sequence[str]) -> None:
    """Parse the flags of a command and run it, or print its help where they ask for that."""
    if not any(flag in _HELP for flag in flags):
        _parse(name, command, flags)
        return
    page = io.StringIO()
    try:
        with contextlib.redirect_stdout(page):
            _parse(name, command, ["--help" if flag == ALL else flag for flag in flags])
    finally:  # a help ends by SystemExit
        common = None if ALL in flags or name not in COMMON else _common(name)
        sys.stdout.write(shown(page.getvalue(), common, f"pate {name} {ALL}"))


def _parse(name: str, command: Callable[..., Any], flags: Sequence[str]) -> None:
    import tyro
    from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes

    from pate_jax.cli.student import REGISTRY

    config = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)
    tyro.cli(command, prog=f"pate {name}", args=flags, config=config, registry=REGISTRY)


def _common(name: str) -> set[str]:
    """The flags that a short help keeps: those of the table and of all mechanisms."""
    from pate_jax.mechanisms import BY_NAME

    if name == "baseline dpsgd":  # whose --scale is no mechanism's
        return {"-h", *COMMON[name].split()}
    of_mechanisms = {field.name.replace("_", "-") for kind in BY_NAME.values() for field in fields(kind)}
    return {"-h", "--cutoff", *COMMON[name].split(), *(f"--{flag}" for flag in of_mechanisms)}


def shown(page: str, common: Set[str] | None, command: str) -> str:
    """A help page; where `common` is given without the flags that are not among them.

    >>> page = "usage: x\\n\\n options\\n  --a  first\\n  --b  rare\\n       one\\n\\n rest\\n  --c  third\\n"
    >>> print(shown(page, {"--a"}, "pate x --help-all"))
    usage: x
    <BLANKLINE>
     options
      --a  first
    <BLANKLINE>
    2 more flags: `pate x --help-all`.
    <BLANKLINE>
    """
    page = _OPTIONAL.sub(r"\1       ", _UNSET.sub("", _EXAMPLE.sub("", page))).replace("{None}|", "")
    page = "\n".join(line for row in page.splitlines() for line in _wrapped(row.rstrip()))
    if common is None:
        return page + "\n"
    sections = [_common_lines(section, common) for section in _BEFORE_TITLE.split(page)]
    rest = sum(flag not in common for flag in _FLAG.findall(page))
    return "\n\n".join([*filter(None, sections), f"{rest} more flags: `{command}`.\n"])


def _wrapped(line: str) -> list[str]:
    """A line of the description in lines of the terminal's width; flags are set in that width already."""
    if not line or line[0] == " " or line.startswith("usage"):
        return [line]
    return textwrap.wrap(line, shutil.get_terminal_size().columns - 1)


def _common_lines(section: str, common: Set[str]) -> str:
    """A section with the lines about these flags, and nothing of it where it has none of them."""
    flags = _FLAG.findall(section)
    if flags and not common & {*flags}:
        return ""
    kept, lines = True, []
    for line in section.splitlines():
        if flag := _FLAG.match(line):
            kept = flag[1] in common
        elif not line.startswith("    "):  # neither a flag nor the text beside one
            kept = True
        if kept:
            lines.append(line)
    return "\n".join(lines)
