"""Batches of queries, which are voted on, charged to the ledger and answered; several if the budget allows.

    votes.npz     votes-0002.npz     the queries that may be asked, each once in a run
    rows.npz      rows-0002.npz      only if given rows repeat a query: which query answers each row
    ledger.jsonl                     one line for each batch, on disk before an answer is written
    answers.npz   answers-0002.npz   the answers in the line; written again whenever the file is missing

Of each batch the first `asked` queries are asked, as many as the budget affords. The noise of a batch is
derived from the run's secret, the number of the batch, the mechanism, the votes and the names of the inputs.
So no noise serves two lists, and a batch that a crash interrupts ends with the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import jax.numpy as jnp
import numpy as np

from pate_jax import aggregate, voting
from pate_jax.accounting import RELATIONS, Relation
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, check_totals
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import budget, driver, ledger, plans, publication, stable_list
from pate_jax.runs.answers import load_answers, load_batch, load_charged, shown, subset
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import Method, Question
from pate_jax.runs.ledger import AnswerLine
from pate_jax.runs.parties import merged_votes
from pate_jax.runs.record import refuse_crowd, stage_of
from pate_jax.runs.thresholds import check_threshold
from pate_jax.system import progress, storage

_NOTHING = {"labels": -1, "answered": False, "counts": 0}  # of a row whose query was not asked
_NAMELESS = (
    "these votes do not name their inputs, so equal inputs are not noticed, and --more cannot distinguish "
    "them from new ones: next time add `ids`, one for each row. What this run answers counts in any case, "
    "also where another --out answers the same votes again; the register adds up such runs"
)


def adopt(
    run: RunDirectory,
    votes: voting.Votes,
    seed: int | None,
    more: bool = False,
    relation: Relation | None = None,
    certificate: merged_votes.Certificate | None = None,
) -> None:
    """Begin a run from votes that were made elsewhere or, with `more`, continue it with another list.

    The makers of the votes declare the relation once, because the votes do not show it. Rows whose input (by
    digest, else by id) occurred before get the earlier answer, free of charge. Giving the same file again
    continues the same batch. `certificate` is that of votes which were joined from several owners'.
    """
    _check_declared(run, relation)
    check_totals(votes.votes)
    if certificate is not None:
        merged_votes.check(certificate, relation or run.record.read().relation, votes)
    batch = _batch_of(run, votes, more)
    run.secret.draw(seed)
    declare(run, relation)
    joined = {} if certificate is None else {"owners": dict(certificate)}
    run.record.agree(stage_of("votes", batch), {**_identity(votes), **joined})
    publication.record_trial(run, votes.trial)
    if not run.votes_of(batch).exists():
        if _identity(votes)["inputs"] is None:
            progress.say(_NAMELESS)
        _keep(run, batch, votes)


def declare(run: RunDirectory, relation: Relation | None) -> None:
    """Record whom adopted votes cover, as their makers declare; a different declaration later is refused."""
    _check_declared(run, relation)
    if relation is not None:
        run.record.agree("relation", {"relation": relation})


def _check_declared(run: RunDirectory, relation: Relation | None) -> None:
    settings = run.record.read()
    refuse_crowd(settings, run.root)
    if relation is None and "relation" not in settings and "data" not in settings:
        raise PateError(
            "relation is not declared: these votes were made elsewhere, and only their makers know which "
            "change moves at most one vote; give --relation record, user, contents or party (see "
            "docs/start/votes_from_elsewhere.md)"
        )
    if relation is not None and relation not in RELATIONS:
        raise PateError(f"relation={relation!r} must be one of {', '.join(RELATIONS)}")
    if relation is not None and "data" in settings:
        raise PateError(
            f"{run.root} has its own teachers, whose partition shows whom the guarantee covers: leave out "
            f"--relation {relation}"
        )


def next_batch(run: RunDirectory) -> int:
    """The number of the next batch; refused before the last one is answered, and without a budget."""
    lines = shown(run)
    _needed_for_more(run, lines)
    answered = [line.batch for line in lines]
    for batch in range(1, run.batches + 1):
        if batch not in answered or not run.answers_of(batch).exists():
            raise PateError(
                f"{run.votes_of(batch)} has not been answered yet: run `pate aggregate {run.root}` first"
            )
    return run.batches + 1


def answer(
    run: RunDirectory, mechanism: AnyMechanism, epsilon: float | None = None, delta: float | None = None
) -> aggregate.Answers:
    """Answer every batch once, within the budget; answers are in the ledger before they are written."""
    refuse_crowd(run.record.read(), run.root)
    votes = voting.load_votes(run.existing(run.votes, "vote")).votes
    teachers, classes = _size(votes)
    check_threshold(mechanism, teachers)
    _settle(run, mechanism, teachers, classes, epsilon, delta)
    driver.release(Batches(run, mechanism, teachers, classes, len(votes)))
    return load_answers(run)


@dataclass(frozen=True)
class Batches(Method[Answers]):
    """What teachers are asked: one list of queries after another, as far as the budget affords."""

    run: RunDirectory
    mechanism: AnyMechanism
    teachers: int
    classes: int
    queries: int  # of the first list

    def plan(self) -> plans.Plan:
        """Everything that the run may ask."""
        settings = self.run.record.read()
        fixed = settings.budget
        most = None if fixed is None else (fixed.epsilon, fixed.delta)
        wished = Answers(self.mechanism, self.teachers, self.classes, self.queries)
        return plans.of_answers(wished, most, settings.limit, "")

    def released(self) -> list[AnswerLine]:
        """The lines that the ledger shows."""
        return shown(self.run)

    def ask(self, released: Sequence[AnswerLine]) -> Question[Answers] | None:
        """The next list that waits: as many of its queries as the budget affords."""
        run = self.run
        waiting = sorted({*range(1, run.batches + 1)} - {line.batch for line in released})
        if not waiting:
            return None
        whole, size = voting.load_votes(run.votes_of(waiting[0])), (self.teachers, self.classes)
        if isinstance(self.mechanism, StableAnswers):
            stable_list.check_room(run, self.mechanism, len(whole.votes), released)
            asked = len(whole.votes)  # as far as the list reaches, which its noise says
        else:
            teachers, classes = size
            spent = budget.spent(run)
            asked = budget.fit(run, spent, wanted=len(whole.votes), teachers=teachers, classes=classes)
        event = Answers(self.mechanism, *size, asked)
        return Question(waiting[0], event, ledger.asked(subset(whole, slice(asked))))

    def measure(self, question: Question[Answers]) -> np.ndarray:
        """The votes."""
        votes = voting.load_votes(self.run.votes_of(question.number)).votes
        return votes[: question.event.asked]

    def draw(self, line: AnswerLine, exact: np.ndarray, released: Sequence[AnswerLine]) -> AnswerLine:
        """The line with the answers; a list of stable answers may end before its last query."""
        if isinstance(self.mechanism, StableAnswers):
            return stable_list.answered(self.run, line, exact, released)
        drawn = draw(self.run, line, exact)
        return line._replace(values=ledger.pack(drawn.labels, drawn.answered, drawn.counts))

    def shows(self, released: Sequence[AnswerLine]) -> publication.Shows | None:
        """Whether a statement is of the first so many of these lines."""
        return publication.shown_by(released)

    def issue(self, line: AnswerLine) -> None:
        """Write the answers of a line."""
        _issue(self.run, line)


def draw(run: RunDirectory, line: AnswerLine, votes: np.ndarray) -> aggregate.Answers:
    """The answers to these votes with the run's noise for the batch of this line, the same at every call."""
    mechanism = cast(Mechanism, line.event.mechanism)
    if not len(votes):
        counts = jnp.zeros(votes.shape, jnp.int32) if mechanism.releases_counts else None
        return aggregate.Answers(jnp.zeros(0, jnp.int32), jnp.zeros(0, bool), counts=counts)
    key = run.secret.key(line._replace(exact=storage.digest(votes)).stream)
    return aggregate.answer(mechanism, jnp.asarray(votes), key=key)


def _batch_of(run: RunDirectory, votes: voting.Votes, more: bool) -> int:
    """The number of the batch that a file of votes is, by the public names of its inputs."""
    settings = run.record.read()
    refuse_crowd(settings, run.root)
    if "data" in settings:
        raise PateError(
            f"{run.root} has its own teachers: ask them with `pate vote {run.root} --more`, or choose "
            "another --out for votes made elsewhere"
        )
    mine = _identity(votes)["inputs"]
    batches = [batch for batch in range(1, run.batches + 2) if stage_of("votes", batch) in settings]
    for batch in batches:
        if mine is not None and settings.of(stage_of("votes", batch)).get("inputs") == mine:
            return batch
    if batches and not more and settings.of("votes")["digest"] != _identity(votes)["digest"]:
        raise PateError(
            f"{run.root} was begun with other votes: add --more to ask these as another list under the run's "
            "budget, or choose another --out"
        )
    if not batches or not more:
        return 1
    if mine is None:
        raise PateError(
            "a second votes file must name its inputs, so that none is asked twice: add `ids`, one for each "
            "row"
        )
    batch = next_batch(run)
    first = voting.load_votes(run.votes).votes
    if _size(first) != _size(votes.votes):
        raise PateError(
            f"the votes are of {_size(votes.votes)[0]} teachers on {votes.votes.shape[1]} classes, those of "
            f"{run.root} of {_size(first)[0]} on {first.shape[1]}: choose another --out for another ensemble"
        )
    return batch


def _identity(votes: voting.Votes) -> dict[str, Any]:
    named = votes.ids is not None or votes.digests is not None
    inputs = storage.digest(votes.ids, votes.digests) if named else None
    return {"digest": storage.digest(votes.votes), "inputs": inputs}


def _keep(run: RunDirectory, batch: int, votes: voting.Votes) -> None:
    """Write the queries of a batch that are new in the run, and which query answers each of its rows."""
    known = _known(run, votes.digests is not None)
    total = sum(line.event.asked for line in shown(run))
    by: list[int] = []
    new: list[int] = []
    for row, name in enumerate(_names(votes)):
        if name not in known:
            known[name] = total + len(new)
            new.append(row)
        by.append(known[name])
    repeated = len(by) - len(new)
    if repeated:
        _warn_of_other_votes(votes, np.array(by), np.array(new, np.int64), total)
        progress.say(f"{repeated} of {len(by)} rows repeat an input: they get its answer free of charge")
        storage.write_arrays(run.rows_of(batch), "rows", {"answered_by": np.array(by, np.int64)})
    voting.save_votes(run.votes_of(batch), subset(votes, np.array(new, np.int64)))


def _warn_of_other_votes(votes: voting.Votes, by: np.ndarray, new: np.ndarray, total: int) -> None:
    """Say so where two rows of a list name one input and differ: the same teachers vote alike on it."""
    here = np.flatnonzero(by >= total)
    first = new[by[here] - total]
    other = (votes.votes[here] != votes.votes[first]).any(1)
    if other.any():
        one, two, all_such = int(first[other.argmax()]), int(here[other.argmax()]), int(other.sum())
        progress.warn(
            f"rows {one} and {two} name the same input but hold different votes ({all_such} such rows "
            "in all): look at `ids`, since only the first row of each input is answered"
        )


def _names(votes: voting.Votes) -> Iterator[Any]:
    """The name that identifies each input: its digest, else its id, else its place."""
    if votes.digests is not None:
        return iter(votes.digests.tolist())
    return iter(range(len(votes.votes)) if votes.ids is None else votes.ids.tolist())


def _known(run: RunDirectory, by_digest: bool) -> dict[Any, int]:
    """The inputs asked about so far, and the number of the query that answers each."""
    known: dict[Any, int] = {}
    total = 0
    for line in shown(run):
        part = load_batch(run, line)
        names = part.digests if by_digest else part.ids
        for place, name in enumerate([] if names is None else names.tolist()):
            known.setdefault(name, total + place)
        total += len(part.votes)
    return known


def known_digests(run: RunDirectory) -> list[str]:
    """The digests of all inputs that were asked about so far."""
    return list(_known(run, by_digest=True))


def _needed_for_more(run: RunDirectory, lines: Sequence[AnswerLine]) -> None:
    """Refuse further queries in a run without a budget, or whose list of stable answers has ended."""
    settings = run.record.read()
    if "mechanism" in settings and isinstance(settings.mechanism, StableAnswers):
        stable_list.check_open(run, settings.mechanism, lines)
    elif settings.budget is None:
        raise PateError(
            f"{run.root} was made without a budget, so its figure holds only for its first list of queries: "
            "begin a run with --budget-epsilon to ask more later, or choose another --out and add up what "
            "both have spent"
        )


def _settle(
    run: RunDirectory,
    mechanism: AnyMechanism,
    teachers: int,
    classes: int,
    epsilon: float | None,
    delta: float | None,
) -> None:
    fixed = budget.fixed(run)
    if isinstance(mechanism, StableAnswers):
        delta = delta or run.record.read().delta
    elif epsilon is None and fixed is not None:
        epsilon, delta = fixed.epsilon, delta or fixed.delta
    elif epsilon is None and delta is not None:
        raise PateError(
            f"delta={delta:g} is the delta of a budget, and {run.root} has none: give --budget-epsilon with "
            "it before the first answer, or give it to `pate account`"
        )
    delta = CUSTOMARY_DELTA if delta is None else delta
    budget.settle(run, mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)


def _issue(run: RunDirectory, line: AnswerLine) -> None:
    """Write the answers that are in the ledger, again if necessary; they are never drawn again."""
    batch = line.batch
    votes = load_charged(run, line)
    if storage.digest(votes.votes) != line.exact:
        raise PateError(
            f"{run.ledger} shows that this run has answered other votes than those in {run.votes_of(batch)}: "
            "restore them from a backup, or choose another --out and add up what both have spent"
        )
    arrays = ledger.given(line).arrays
    if run.rows_of(batch).exists():
        by = storage.read_arrays(run.rows_of(batch), "rows")["answered_by"]
        before = [storage.read_arrays(run.answers_of(one), "answers") for one in range(1, batch)]
        arrays |= {
            f"row_{name}": _at(np.concatenate([*(one[name] for one in before), part]), by, _NOTHING[name])
            for name, part in arrays.items()
        }
    storage.write_arrays(run.answers_of(batch), "answers", arrays)


def _at(values: np.ndarray, places: np.ndarray, otherwise: int | bool) -> np.ndarray:
    """The values at these places, and something else where there is none yet."""
    found = np.full((len(places), *values.shape[1:]), otherwise, values.dtype)
    there = places < len(values)
    found[there] = values[places[there]]
    return found


def size_of(run: RunDirectory) -> tuple[int, int]:
    """The numbers of teachers and classes of a run's votes."""
    return _size(voting.load_votes(run.votes).votes)


def _size(votes: np.ndarray) -> tuple[int, int]:
    return int(votes.sum(1).max(initial=0)), votes.shape[1]
