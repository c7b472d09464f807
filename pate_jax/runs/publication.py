"""What release/ holds that the ledger does not show: then private/ was lost or is an older copy of itself.

Its noise was used already, and noise that is drawn anew would cost as much again, with nobody to count it.
So every kind of run asks here before it draws any: at first, for a further batch, for a sanitised limit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import to_dict
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import Line
from pate_jax.system import storage

Shows = Callable[[Mapping[str, Any]], bool]  # whether a ledger shows the answers that a statement is of


def refuse_unshown(run: RunDirectory, shows: Shows | None = None) -> None:
    """Refuse to draw noise beside a release that the run's ledger does not show.

    Without `shows` the ledger shows nothing that could be published yet. With it a release may be there, if
    it has its statement, and the ledger shows what that is of.
    """
    left = storage.files(run.release)
    if shows is None and run.results.exists():
        left = [*left, run.results]
    if not left or (shows is not None and _is_shown(run, shows)):
        return
    raise PateError(
        f"{left[0]} is of a run whose answers {run.ledger} does not show: private/ was lost, or is an older "
        "copy, and other noise would cost as much again. Restore private/ from its newest backup, or choose "
        "another --out and add up what both have spent"
    )


def _is_shown(run: RunDirectory, shows: Shows) -> bool:
    """Whether the release has its statement, and the ledger shows what each of its statements is of."""
    statements = [path for path in (run.public_statement, run.student / "statement.json") if path.exists()]
    return run.public_statement in statements and all(
        shows(storage.read_json(path, "statement")) for path in statements
    )


def shown_by(lines: Sequence[Line]) -> Shows | None:
    """Whether a statement is of the first so many of these lines; None where there are none.

    >>> shown_by([]) is None
    True
    """
    if not lines:
        return None
    sizes, asked, answered = [], 0, 0
    for line in lines:
        given = line.given.answered
        asked, answered = asked + len(given), answered + int(given.sum())
        sizes.append((asked, answered))
    mechanism = to_dict(lines[0].mechanism)

    def shows(statement: Mapping[str, Any]) -> bool:
        size = statement.get("asked"), statement.get("answered")
        return size in sizes and statement.get("mechanism") == mechanism

    return shows
