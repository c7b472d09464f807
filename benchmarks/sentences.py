"""Where sentences with a number of an earlier revision went: `python benchmarks/sentences.py REVISION`.

Sentences, and rows of tables, of every .md file at that revision that hold a number are looked for in the
files of today. One counts as *kept* if today's text has its words, as *told anew* if a paragraph of today has
all of its numbers and a third of its words, and as *dropped on purpose* if `DROPPED` names its page. What is
left is listed with `--list`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
OLD = ("docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "experiments/README.md")
NEW = ("docs/**/*.md", "*.md", "experiments/*.md", "benchmarks/NOTES.md")
DROPPED = {
    "CHANGELOG.md": "changes between versions that were never released; they stay in git",
    "index.md": "the list of pages, written anew",
    "api.md": "the list of modules",
    "README.md": "where figures stand, told anew",
    "attacks.md": "two rows of the table of figures, told shorter in guide/risk.md",
    "data.md": "how many strokes a planned run draws; the run says it",
    "faq.md": "now a row of the table in guide/epsilon.md",
    "measures.md": "an example of accuracy, and where measures are shown",
    "teachers.md": "what made-up labels look like in a rehearsal; widths, in start/gpus_and_clusters.md",
    "tutorial.md": "one more example of a plan",
}
_NUMBER = re.compile(r"\d[\d,.]*\d|\d")
_GREEK = {0x3B1: "a", 0x3C4: "s"}  # alpha and tau, which older pages wrote as letters
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_WORD = re.compile(r"[a-z]{4,}")


class Sentence(NamedTuple):
    """A sentence or a row of a table, and its page."""

    page: str
    text: str

    @property
    def bare(self) -> str:
        """Its letters and digits alone, whatever the marks, links and spaces."""
        return bare(self.text)


def bare(text: str) -> str:
    """Letters and digits; the order of Renyi divergences is the same letter in both versions.

    >>> bare("at **0.5** of [this](page.md#there) `a/s^2`")
    'at05ofthisas2'
    """
    return re.sub(r"[^a-z0-9]", "", _LINK.sub(r"\1", text).translate(_GREEK).lower())


def sentences(text: str) -> list[str]:
    """Sentences and rows of tables.

    >>> sentences("# Title\\n\\nOne is 1. Two\\nis 2.\\n\\n| a | 3 |\\n|---|---|\\n")
    ['# Title', 'One is 1.', 'Two is 2.', '| a | 3 |']
    """
    found: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        rows = [line for line in lines if line.startswith(("|", "#")) and set(line) - set("|-: ")]
        rest = " ".join(line.strip() for line in lines if not line.startswith(("|", "#")))
        found += rows + [one for one in re.split(r"(?<=[.!?:;])\s+(?=[A-Z`*(\[-])", rest) if one]
    return found


def at(revision: str) -> list[Sentence]:
    """The sentences with a number of that revision."""
    listed = ["git", "ls-tree", "-r", "--name-only", revision, "--", *OLD]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    found = []
    for name in (one for one in names if one.endswith(".md")):
        shown = subprocess.run(
            ["git", "show", f"{revision}:{name}"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        found += [Sentence(name, one) for one in sentences(shown.stdout) if _NUMBER.search(one)]
    return found


class Book:
    """The text of today, page by page."""

    def __init__(self) -> None:
        paths = sorted({path for pattern in NEW for path in ROOT.glob(pattern)})
        self.pages = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
        self.bare = {name: bare(text) for name, text in self.pages.items()}
        self.parts = [
            (name, set(_NUMBER.findall(part)), set(_WORD.findall(part.lower())))
            for name, text in self.pages.items()
            for part in re.split(r"\n\s*\n", text)
        ]

    def place(self, one: Sentence) -> tuple[str, str]:
        """What became of a sentence, and where."""
        for name, text in self.bare.items():
            if one.bare in text:
                return "kept", name
        numbers, words = set(_NUMBER.findall(one.text)), set(_WORD.findall(one.text.lower()))
        for name, there, said in self.parts:
            if numbers <= there and len(words & said) * 3 >= len(words):
                return "told anew", name
        page = one.page.removeprefix("docs/")
        if page in DROPPED:
            return "dropped on purpose", DROPPED[page]
        return "left", one.page


def main() -> None:
    """Print where they went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("revision")
    parser.add_argument("--list", action="store_true", help="print the sentences that are left")
    flags = parser.parse_args()
    book, old = Book(), at(flags.revision)
    places = [(one, *book.place(one)) for one in old]
    counts = Counter((what, where) for _, what, where in places)
    print(f"{len(old):,} sentences and rows with a number at {flags.revision}")
    for (what, where), number in sorted(counts.items(), key=lambda item: (item[0][0], -item[1])):
        print(f"{number:6,}  {what:<19} {where}")
    if flags.list:
        for one, what, _ in places:
            if what == "left":
                print(f"{one.page}: {one.text}")


if __name__ == "__main__":
    main()
