"""Where a candidate of a choice lies: a folder of its own in private/, and the choice's release/.

    private/keys.json           the secret of the choice, from which all else follows
    private/ledger.jsonl        what the choice costs, durable before the first candidate
    private/candidates/0001/    settings, keys, ledger, tables and score of a candidate, as of a crowd's run
    private/statement.json, ..  of the best candidate, like release/

How many candidates there are, and what the others scored, is secret: private/ is never handed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pate_jax.runs.directory import RunDirectory, close


@dataclass(frozen=True, init=False)
class Place(RunDirectory):
    """The directory of a choice as one of its candidates sees it: the first is number 1.

    >>> Place("run", 2).ledger.as_posix(), Place("run", 2).public_statement.as_posix()
    ('run/private/candidates/0002/ledger.jsonl', 'run/release/statement.json')
    """

    number: int

    def __init__(self, root: Path | str, number: int) -> None:
        super().__init__(root)
        object.__setattr__(self, "number", number)

    @property
    def home(self) -> Path:
        """What is the candidate's own."""
        return folder(self.root) / f"{self.number:04d}"

    @property
    def ledger(self) -> Path:  # type: ignore[override]
        """The candidate's own ledger, without the cost of the choice."""
        return self.home / "ledger.jsonl"

    @property
    def answers(self) -> Path:  # type: ignore[override]
        """Its noisy table."""
        return self.home / "answers.npz"

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Make its folder; the choice holds the lock."""
        close(self.home)
        yield


def folder(root: Path) -> Path:
    """The folder of all candidates."""
    return root / "private" / "candidates"


def found(root: Path) -> list[str]:
    """The names of the folders that are there."""
    here = folder(root)
    return sorted(path.name for path in here.iterdir()) if here.is_dir() else []
