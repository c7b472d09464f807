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

import math
from collections.abc import Sequence
from typing import cast

import jax
import numpy as np

from pate_jax import voting
from pate_jax.accounting import curves, stable
from pate_jax.accounting.filter import NOTHING, Cost
from pate_jax.aggregate.stable import Answered, Progress, answer
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import ledger, streams
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import Line

_ORDER_DELTA = 1e-5  # at which the order of a line's cost is the best one


def progress(lines: Sequence[Line]) -> Progress:
    """How far the list has come after these lines.

    >>> progress([])
    Progress(asked=0, unstable=0)
    """
    return Progress(sum(line.asked for line in lines), sum(map(_unanswered, lines)))


def check_open(run: RunDirectory, mechanism: StableAnswers, lines: Sequence[Line]) -> None:
    """Refuse to ask further queries of a list that has ended."""
    done = progress(lines)
    if done.is_over(mechanism):
        raise PateError(
            f"the list of stable answers of {run.root} ended with query {done.asked:,}, where "
            f"{done.unstable:,} were unanswered (cutoff={mechanism.cutoff}): nothing more may be asked of "
            "these teachers in this run. Only a new run, whose cost adds to this one, can ask more"
        )


def check_cost(mechanism: StableAnswers, epsilon: float | None, delta: float) -> None:
    """Refuse a list that costs more than the budget at this delta, or that no finite figure covers."""
    cost = stable.epsilon(mechanism, delta)
    if not math.isfinite(cost):
        raise PateError(
            f"{mechanism!r} has no finite epsilon at delta={delta:g}, which must exceed the cutoff times the "
            f"chance of a false answer, {mechanism.cutoff * stable.false_answer(mechanism):.3g}: raise the "
            "threshold, or leave out --threshold and --scale to have both chosen"
        )
    if epsilon is not None and cost > epsilon:
        raise PateError(
            f"{mechanism!r} costs epsilon {cost:.4f} at delta={delta:g}, more than the budget of "
            f"{epsilon:g}: raise the scale and the threshold, or leave both out to have them chosen"
        )


def cost(mechanism: StableAnswers, *, first: bool) -> tuple[float, Cost]:
    """The order and the cost of a line: the first pays for the whole list.

    >>> cost(StableAnswers(threshold=40, scale=3.0, cutoff=1), first=False)[1]
    Cost(rdp=0.0, slack=0.0)
    """
    orders = curves.default_orders()
    best = curves.epsilon(orders, stable.curve(mechanism, orders), _ORDER_DELTA).order
    order = float(np.asarray(best, np.float64))
    return order, at_order(mechanism, order) if first else NOTHING


def at_order(mechanism: StableAnswers, order: float) -> Cost:
    """What a whole list costs at an order."""
    return Cost(float(stable.curve(mechanism, np.array([order]))[0]), stable.strays(mechanism))


def charge(
    run: RunDirectory,
    mechanism: StableAnswers,
    batch: int,
    lines: Sequence[Line],
    size: tuple[int, int],
) -> Line:
    """The ledger's line of a batch: how many of its queries the list reaches, and their answers.

    `size` is the numbers of teachers and classes.
    """
    check_open(run, mechanism, lines)
    whole = voting.load_votes(run.votes_of(batch))
    room = stable.MOST_QUERIES - progress(lines).asked
    if len(whole.votes) > room:
        raise PateError(
            f"{len(whole.votes):,} queries are more than the {room:,} that the list of {run.root} has left: "
            f"its figure covers {stable.MOST_QUERIES:,} in all; ask fewer"
        )
    line = ledger.begun(batch, mechanism, size, whole, None, cost(mechanism, first=not lines))
    found = drawn(run, line, whole.votes, lines)
    return line._replace(
        asked=len(found.labels),
        noise=streams.commitment(run, line.stream),
        answers=ledger.pack(found.labels, found.answered),
    )


def drawn(run: RunDirectory, line: Line, votes: np.ndarray, lines: Sequence[Line]) -> Answered:
    """The answers to the votes of a line after these lines, with the run's noise: the same at every call."""
    mechanism, key = cast(StableAnswers, line.mechanism), streams.key(run, line.stream)
    return answer(mechanism, votes, key=key, before=progress(lines), opened=_opened(run, lines))[1]


def _opened(run: RunDirectory, lines: Sequence[Line]) -> jax.Array | None:
    """The key under which the present threshold was drawn; None before the first batch."""
    if not lines:
        return None
    line = next((one for one in reversed(lines) if _unanswered(one)), lines[0])
    begun: jax.Array = streams.key(run, line.stream)
    return begun


def _unanswered(line: Line) -> int:
    return line.answers.split().count(ledger.REFUSED)
