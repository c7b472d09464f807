"""What release/ holds that the ledger does not show: then private/ was lost or is an older copy of itself.

Its noise was used already, and noise that is drawn anew would cost as much again, with nobody to count it.
So every kind of run asks here before it draws any: at first, for a further batch, for a sanitised limit. And
a run is a trial, nothing of which may be published, where some of its data are parts of one private file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pate_jax.data.trial_mark import SENTENCE
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import AnswerLine
from pate_jax.runs.record import TRIAL
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


def shown_by(lines: Sequence[AnswerLine]) -> Shows | None:
    """Whether a statement is of the first so many of these lines; None where there are none.

    >>> shown_by([]) is None
    True
    """
    if not lines:
        return None
    sizes, asked, answered = [], 0, 0
    for line in lines:
        given = ledger.given(line).answered
        asked, answered = asked + len(given), answered + int(given.sum())
        sizes.append((asked, answered))
    mechanism = to_dict(lines[0].event.mechanism)

    def shows(statement: Mapping[str, Any]) -> bool:
        size = statement.get("asked"), statement.get("answered")
        return size in sizes and statement.get("mechanism") == mechanism

    return shows


def record_trial(run: RunDirectory, is_trial: bool) -> None:
    """Record that a run is a trial; it stays one, whatever its files hold later."""
    if is_trial:
        run.record.agree(TRIAL, {"trial": True})


def trial(run: RunDirectory) -> dict[str, str]:
    """What results and statements of a trial say of it, by the name of the field; nothing of other runs."""
    return {"trial": SENTENCE} if TRIAL in run.record.read() else {}


def stated(run: RunDirectory, statement: Mapping[str, Any]) -> dict[str, Any]:
    """A statement as release/ holds it: that of a trial says so first."""
    return {**trial(run), **statement}
