"""The list of stable answers that a run gives: charged once, continued with the same noise, and halted.

All batches of a run are one list. The first line of its ledger is charged for the whole list, up to the
cutoff and `MOST_QUERIES` queries, and later lines for nothing. How far the list has come follows from the
answers in the ledger, so a list that has ended stays so.

Each batch names its own noise, as with every mechanism, so that no noise serves two lists of votes. Only the
threshold with which a batch begins was drawn under the name of the batch in which its epoch began, and is
drawn again from there. The noise must be named before it is known how many queries are asked, so a line's
digests are those of all queries of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import jax
import numpy as np

from pate_jax.accounting import stable
from pate_jax.aggregate.stable import Answered, Progress, answer
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import AnswerLine


def progress(lines: Sequence[AnswerLine]) -> Progress:
    """How far the list has come after these lines.

    >>> progress([])
    Progress(asked=0, unstable=0)
    """
    return Progress(sum(line.event.asked for line in lines), sum(map(_unanswered, lines)))


def check_open(run: RunDirectory, mechanism: StableAnswers, lines: Sequence[AnswerLine]) -> None:
    """Refuse to ask further queries of a list that has ended."""
    done = progress(lines)
    if done.is_over(mechanism):
        raise PateError(
            f"the list of stable answers of {run.root} ended with query {done.asked:,}, where "
            f"{done.unstable:,} were unanswered (cutoff={mechanism.cutoff}): nothing more may be asked of "
            "these teachers in this run. Only a new run, whose cost adds to this one, can ask more"
        )


def check_room(run: RunDirectory, mechanism: StableAnswers, wanted: int, lines: Sequence[AnswerLine]) -> None:
    """Refuse queries of a list that has ended, or more than its figure covers."""
    check_open(run, mechanism, lines)
    room = stable.MOST_QUERIES - progress(lines).asked
    if wanted > room:
        raise PateError(
            f"{wanted:,} queries are more than the {room:,} that the list of {run.root} has left: "
            f"its figure covers {stable.MOST_QUERIES:,} in all; ask fewer"
        )


def answered(
    run: RunDirectory, line: AnswerLine, votes: np.ndarray, lines: Sequence[AnswerLine]
) -> AnswerLine:
    """The line of a batch with its answers, and how many of its queries the list reaches."""
    found = drawn(run, line, votes, lines)
    reached = replace(line.event, asked=len(found.labels))
    return line._replace(event=reached, values=ledger.pack(found.labels, found.answered))


def drawn(run: RunDirectory, line: AnswerLine, votes: np.ndarray, lines: Sequence[AnswerLine]) -> Answered:
    """The answers to the votes of a line after these lines, with the run's noise: the same at every call."""
    mechanism, key = cast(StableAnswers, line.event.mechanism), run.secret.key(line.stream)
    return answer(mechanism, votes, key=key, before=progress(lines), opened=_opened(run, lines))[1]


def _opened(run: RunDirectory, lines: Sequence[AnswerLine]) -> jax.Array | None:
    """The key under which the present threshold was drawn; None before the first batch."""
    if not lines:
        return None
    line = next((one for one in reversed(lines) if _unanswered(one)), lines[0])
    begun: jax.Array = run.secret.key(line.stream)
    return begun


def _unanswered(line: AnswerLine) -> int:
    return line.values.split().count(ledger.REFUSED)
