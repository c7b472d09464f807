"""What a run has answered: the lines of its ledger, and nothing that they do not show.

Whoever reads answers here is refused where the settings or the files of answers say something else than the
ledger does.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np

from pate_jax import aggregate, voting
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import budget, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import AnswerLine, Given
from pate_jax.system import storage


def shown(run: RunDirectory) -> list[AnswerLine]:
    """The lines of the ledger, where settings and files of answers agree with them."""
    settings, lines = run.record.read(), []
    mechanism = settings.mechanism if "mechanism" in settings else None
    for line in ledger.lines(run.ledger):
        budget.recorded_cost(settings.budget, line)
        if line.event.mechanism != mechanism:
            raise PateError(
                f"batch {line.batch} in {run.ledger} was answered by {to_dict(line.event.mechanism)}, and "
                f"{run.settings} now says {mechanism and to_dict(mechanism)}: restore it from a backup"
            )
        lines.append(line)
    shown_files = {run.answers_of(line.batch) for line in lines}
    for path in sorted({*run.private.glob(f"{run.answers.stem}*{run.answers.suffix}")} - shown_files):
        raise PateError(
            f"{path} holds answers that {run.ledger} does not show: the ledger is from an older copy. "
            "Restore it; a run whose ledger is lost must not answer again"
        )
    return lines


def asked(run: RunDirectory) -> list[AnswerLine]:
    """The lines of the ledger, at least one, where all their answers have been written."""
    lines = shown(run)
    for batch in [line.batch for line in lines] or [1]:
        run.existing(run.answers_of(batch), "aggregate")
    return lines


def load_answers(run: RunDirectory) -> aggregate.Answers:
    """The answers to all queries asked so far, batch after batch."""
    lines = asked(run)
    parts = [_issued(run, line) for line in lines]
    mechanism, counts = lines[0].event.mechanism, [part.counts for part in parts if part.counts is not None]
    if counts and not isinstance(mechanism, StableAnswers):
        return aggregate.of_histograms(np.concatenate(counts), mechanism, lines[0].event.teachers)
    labels, answered = (np.concatenate(part) for part in zip(*(part[:2] for part in parts), strict=True))
    return aggregate.Answers(jnp.asarray(labels), jnp.asarray(answered))


def load_asked(run: RunDirectory) -> voting.Votes:
    """The votes on all queries asked so far, row by row those of `load_answers`."""
    parts = [load_batch(run, line) for line in asked(run)]
    return voting.Votes(
        np.concatenate([part.votes for part in parts]),
        _joined([part.teacher_labels for part in parts], axis=1),
        _joined([part.ids for part in parts]),
        _joined([part.labels for part in parts]),
        _joined([part.digests for part in parts]),
        any(part.trial for part in parts),
    )


def asked_rows(run: RunDirectory) -> np.ndarray:
    """For each query asked, its row among all rows that were handed in, batch after batch."""
    rows, before, asked_before = [], 0, 0
    for line in asked(run):
        batch, count = line.batch, line.event.asked
        if run.rows_of(batch).exists():
            by = storage.read_arrays(run.rows_of(batch), "rows")["answered_by"]
            queries, first = np.unique(by, return_index=True)
            of_batch = (queries >= asked_before) & (queries < asked_before + count)
            rows.append(before + first[of_batch])
            before += len(by)
        else:
            rows.append(before + np.arange(count))
            before += len(voting.load_votes(run.votes_of(batch)).votes)
        asked_before += count
    return np.concatenate(rows)


def load_batch(run: RunDirectory, line: AnswerLine) -> voting.Votes:
    """The votes on the queries of a line that were asked."""
    votes = voting.load_votes(run.existing(run.votes_of(line.batch), "vote"))
    return subset(votes, slice(line.event.asked))


def load_charged(run: RunDirectory, line: AnswerLine) -> voting.Votes:
    """The votes that a line's digests name: on the queries that were asked, or that a list could reach."""
    if isinstance(line.event.mechanism, StableAnswers):
        return voting.load_votes(run.existing(run.votes_of(line.batch), "vote"))
    return load_batch(run, line)


def subset(votes: voting.Votes, rows: np.ndarray | slice) -> voting.Votes:
    """Some of the queries, with everything that came with their votes."""
    labels = None if votes.teacher_labels is None else votes.teacher_labels[:, rows]
    ids, true, digests = (
        None if part is None else part[rows] for part in (votes.ids, votes.labels, votes.digests)
    )
    return voting.Votes(votes.votes[rows], labels, ids, true, digests, votes.trial)


def same(recorded: Given, file: Mapping[str, np.ndarray]) -> bool:
    """Whether a file of answers holds what the ledger recorded."""
    pairs = recorded.arrays.items()
    return all(name in file and np.array_equal(part, file[name]) for name, part in pairs)


def _issued(run: RunDirectory, line: AnswerLine) -> Given:
    """The answers of a line, where its file holds the same."""
    recorded, file = ledger.given(line), run.answers_of(line.batch)
    if not same(recorded, storage.read_arrays(file, "answers")):
        raise PateError(
            f"{file} differs from the ledger: other answers were recorded. Remove it, and `pate aggregate "
            f"{run.root}` writes it again"
        )
    return recorded


def _joined(parts: list[np.ndarray | None], axis: int = 0) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known, axis) if len(known) == len(parts) else None
