"""Sanitised limits that were released of one list of votes: one line each, durable before any is shown.

Each is a release of its own, drawn with fresh noise, so their costs add up, and they share the confidence
that is stated, so that drawing until one is small enough gains nothing. The file is a chain like the ledger
(`chain`): no line can be changed, dropped or moved unseen. A run has it in `private/`; for a file of votes it
lies beside that file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from pate_jax import accounting
from pate_jax.accounting import smooth
from pate_jax.accounting.smooth import Plan, Release
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import chain, publication
from pate_jax.runs.answers import load_asked, shown
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import HEADCOUNT


class _Drawn(NamedTuple):
    """A line of the file: a limit that was drawn, and with which parameters."""

    value: int
    order: float
    beta: float
    noise: float
    confidence: float


def _read(path: Path) -> list[_Drawn]:
    lines = list(chain.records(path, {"limit": _Drawn}))
    for line in lines:
        smooth.check_confidence(line.confidence)
    return lines


def release(run: RunDirectory, mechanism: AnyMechanism, delta: float, confidence: float) -> None:
    """Draw a limit of a run and record it."""
    smooth.check_confidence(confidence)
    if isinstance(mechanism, StableAnswers):
        raise PateError(
            f"the figure of stable answers depends on no vote and may be published as it is: account for "
            f"{run.root} without --sanitise"
        )
    _check_fixed(run)
    publication.refuse_unshown(run, _shows(run, mechanism, delta))
    draw(run.limits, mechanism, load_asked(run).votes, delta, confidence)


def figure(run: RunDirectory, mechanism: Mechanism, delta: float) -> accounting.Figure | None:
    """The limit that a run released last, with the costs of all; None where there was none."""
    lines = _read(run.limits)
    if not lines:
        return None
    if run.batches > 1:
        return accounting.Figure(None, None, "publishable", smooth.BASIS, "not defined for adaptive lists")
    return _limit(mechanism, load_asked(run).votes.shape, delta, lines)


def beside(votes: Path) -> Path:
    """Where the limits of a votes file are recorded.

    >>> beside(Path("votes.npz")).name
    'votes.npz.limits.jsonl'
    """
    return votes.with_name(f"{votes.name}.limits.jsonl")


def draw(
    path: Path, mechanism: Mechanism, votes: NDArray[Any], delta: float, confidence: float
) -> accounting.Figure:
    """Draw a limit and record it in `path`; its parameters come from public numbers only."""
    with chain.Writer(path) as book:
        own = smooth.spread(confidence, 1 + len(_read(path)))
        plan = accounting.plan(mechanism, len(votes), int(votes[0].sum()), votes.shape[1], delta, own)
        drawn = smooth.release(mechanism, votes, plan)
        book.add("limit", _Drawn(drawn.value, plan.order, plan.beta, plan.noise, confidence))
    return _limit(mechanism, votes.shape, delta, _read(path))


def _limit(
    mechanism: Mechanism, shape: tuple[int, ...], delta: float, lines: Sequence[_Drawn]
) -> accounting.Figure:
    """The limit that the last of these lines of a file released, at the least confidence of all."""
    releases = [Release(Plan(line.order, line.beta, line.noise), line.value) for line in lines]
    own = smooth.spread(lines[-1].confidence, len(lines))
    return smooth.limit(mechanism, shape, releases, delta, min(line.confidence for line in lines), own)


def _shows(run: RunDirectory, mechanism: Mechanism, delta: float) -> publication.Shows:
    """Whether the run shows the answers and the limit of a statement, which may be an earlier one."""
    answers, lines = publication.shown_by(shown(run)), _read(run.limits)
    shape = load_asked(run).votes.shape
    made = [_limit(mechanism, shape, delta, lines[:count]).epsilon for count in range(1, len(lines) + 1)]

    def shows(statement: Mapping[str, Any]) -> bool:
        limit = statement["figures"].get("sanitised", {}).get("epsilon")
        return answers is not None and answers(statement) and limit in (None, *made)

    return shows


def _check_fixed(run: RunDirectory) -> None:
    if HEADCOUNT in run.record.read():
        raise PateError(
            f"{run.root} has teachers that a noisy number of voters chose, so its exact cost is that of one "
            "history and no guarantee: publish the data-independent figure, without --sanitise"
        )
    if run.batches > 1:
        raise PateError(
            f"{run.root} has asked {run.batches} batches, the later ones perhaps after seeing answers, so "
            "its exact cost is no guarantee: publish the data-independent figure, without --sanitise"
        )
