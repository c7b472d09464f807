"""How much of a histogram of votes do repeated answers give away, and is each of them paid for?

An input that is asked about again gets the stored answer: noise is drawn once for it. So whoever wants to
average the noise away has to ask in other words: an image moved by a pixel, a record changed in the last
digit. Such near-duplicates are asked, answered by the run's mechanism under keys of their own, and the
histogram of most likelihood is compared with the true one. Each of these answers is charged. Then the same
inputs are asked again and again: a second draw that nobody pays for would be a leak. Derived in
docs/proofs/attacks.md.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax import accounting, aggregate, voting
from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import mechanism as audits
from pate_jax.audit.attacks.attack import OF_VOTES, Attack, Flags, Way, answering, of_counts, of_list
from pate_jax.audit.attacks.mechanism import Key
from pate_jax.data import Part
from pate_jax.data.dataset import numbered_ids
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.events import Answers
from pate_jax.runs import answers, batches, inputs, ledger, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.system import storage

ANSWERS = (1, 10, 100, 1000)  # from which a histogram is rebuilt
_COPIES = 100  # in other words, of each query that is asked
_INPUTS, _REPEATS = 100, 20  # that are asked again word by word, and how often
_MOVED, _DIGIT = 2, 1e-4  # pixels that an image moves by at most, and share that a number changes by
_ALARM = 1e-4  # of the limit by which a second draw is said to be free: as in `roc`
Votes = Int[np.ndarray, "query class"]


class Rebuilt(NamedTuple):
    """What so many answers to one question in other words give away."""

    answers: int
    wrong: float  # votes that the rebuilt histogram has in the wrong class, on average over queries
    epsilon: float  # that so many answers are charged, whatever the votes


class Repeats(NamedTuple):
    """What came of asking about the same inputs again."""

    inputs: int
    times: int  # that each was asked about
    differing: int  # inputs of which not all answers are equal
    charged: int  # answers
    right: float  # guesses on which side of one moved vote each input is
    least: float  # they are right at least so often
    allowed: float  # by one answer for each input

    @property
    def holds(self) -> bool:
        """Whether no draw is free: answers are equal or paid for, and tell no more than one draw may."""
        paid = self.charged >= self.inputs * self.times
        return paid or (not self.differing and self.least <= self.allowed)


class Recovered(NamedTuple):
    """What came of both. It is sensitive, as the votes are."""

    teachers: int
    moved: float | None  # votes in which a near-duplicate differs, on average; None: teachers are elsewhere
    rebuilt: tuple[Rebuilt, ...]
    delta: float
    repeats: Repeats

    @property
    def holds(self) -> bool:
        """Whether each draw is paid for."""
        return self.repeats.holds

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        rebuilt = [one._asdict() for one in self.rebuilt]
        repeats = {**self.repeats._asdict(), "holds": self.repeats.holds}
        return {"warning": OF_VOTES, **self._asdict(), "rebuilt": rebuilt, "repeats": repeats}

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([f"recovery ({OF_VOTES}):", *(f"  {one}" for one in self.sentences())])

    def sentences(self) -> list[str]:
        """What it says, for people."""
        said = [
            f"{one.answers:,} answers to one question in other words leave {one.wrong:.1f} of "
            f"{self.teachers} votes in the wrong class, and are charged epsilon {one.epsilon:.3g} at delta "
            f"{self.delta:g}."
            for one in self.rebuilt
        ]
        if self.moved is not None:
            said.append(f"Asked in other words, {self.moved:.1f} teachers vote otherwise on average.")
        found = self.repeats
        told = (
            f"{found.inputs} inputs that were asked about {found.times} times each, word by word, were "
            f"charged {found.charged} answers, and {found.differing} of them got differing ones"
        )
        if found.holds:
            return [*said, f"{told}: no draw is free."]
        return [*said, f"{told}. SOME DRAWS ARE FREE: publish nothing, and report this."]


class Asked(NamedTuple):
    """Answers to inputs that were asked about several times."""

    outcomes: Int[np.ndarray, "input time"]  # the label, or -1 for a refusal
    charged: int


Door = Callable[[Mechanism, Votes, int], Asked]


def through_a_run(mechanism: Mechanism, votes: Votes, times: int) -> Asked:
    """Ask about inputs with these votes so many times each, in a run of their own that is thrown away."""
    rows = np.repeat(np.arange(len(votes)), times)
    names = np.array([f"input-{row}" for row in rows.tolist()])
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory(Path(folder) / "run")
        with run.writing():
            batches.adopt(run, voting.Votes(votes[rows], ids=names), None, relation="record")
            batches.answer(run, mechanism)
            found = storage.read_arrays(run.answers, "answers")
            charged = sum(line.event.asked for line in ledger.lines(run.ledger))
    given = np.where(found["row_answered"], found["row_labels"], -1)
    return Asked(given.reshape(len(votes), times), charged)


def repeated(
    mechanism: Mechanism, teachers: int, classes: int, *, door: Door = through_a_run, seed: int | None = None
) -> Repeats:
    """Ask about inputs again and again, and guess on which side of one moved vote each of them is."""
    sides, variation = audits.race(mechanism, teachers, classes)
    side = np.random.default_rng(seed).integers(0, 2, _INPUTS)
    found = door(mechanism, sides[side], _REPEATS)
    differing = (found.outcomes != found.outcomes[:, :1]).any(1).sum()
    laws = np.nan_to_num(audits.laws(mechanism, sides), neginf=-1e9)
    told = (laws[1] - laws[0])[found.outcomes + 1].sum(1)
    right = int(((told > 0) == (side == 1)).sum())
    least = float(audits.at_least(np.array([right]), _INPUTS, _ALARM)[0])
    return Repeats(
        _INPUTS, _REPEATS, int(differing), found.charged, right / _INPUTS, least, (1 + variation) / 2
    )


def histogram(
    mechanism: Mechanism, teachers: int, outcomes: Int[np.ndarray, " outcome"]
) -> Int[np.ndarray, " class"]:
    """The histogram of most likelihood, where outcomes (refusals first) came so often.

    Votes move between two classes, many at first and one at last, for as long as that is likelier.

    >>> from pate_jax.mechanisms import GumbelMax
    >>> histogram(GumbelMax(scale=2.0), 10, np.array([0, 119, 881])).tolist()
    [3, 7]
    """
    classes = len(outcomes) - 1
    counts = np.full(classes, teachers // classes) + (np.arange(classes) < teachers % classes)
    step = max(1, teachers // 4)
    best = _likelihood(mechanism, counts[None], outcomes)[0]
    moves = np.array([(a, b) for a in range(classes) for b in range(classes) if a != b])
    while step:
        able = moves[counts[moves[:, 0]] >= step]
        tried = counts + step * (
            np.eye(classes, dtype=int)[able[:, 1]] - np.eye(classes, dtype=int)[able[:, 0]]
        )
        found = _likelihood(mechanism, tried, outcomes) if len(tried) else np.zeros(0)
        if len(found) and found.max() > best + 1e-9:
            counts, best = tried[found.argmax()], found.max()
        else:
            step //= 2
    return np.asarray(counts)


def _likelihood(
    mechanism: Mechanism, counts: Votes, outcomes: Int[np.ndarray, " outcome"]
) -> Float[np.ndarray, " query"]:
    """The log-likelihood of outcomes under each histogram."""
    came = outcomes > 0
    found: np.ndarray = (outcomes[came] * audits.laws(mechanism, counts)[:, came]).sum(1)
    return found


def rebuilt(
    mechanism: Mechanism, votes: Votes, copies: Int[np.ndarray, "query copy class"], *, key: Key
) -> list[float]:
    """How many votes a rebuilt histogram has in the wrong class, for each of `ANSWERS`.

    `copies` are the votes on near-duplicates of each query; they serve in turn where they are fewer.
    """
    teachers, most = int(votes.sum(1).max()), max(ANSWERS)
    wrong = np.zeros((len(votes), len(ANSWERS)))
    for query, (truth, others) in enumerate(zip(votes, copies, strict=True)):
        asked = others[np.arange(most) % len(others)].astype(np.int32)
        found = aggregate.answer(mechanism, asked, key=key())
        given = np.where(np.asarray(found.answered), np.asarray(found.labels), -1)
        for place, number in enumerate(ANSWERS):
            outcomes = np.bincount(given[:number] + 1, minlength=votes.shape[1] + 1)
            guess = histogram(mechanism, teachers, outcomes)
            wrong[query, place] = np.abs(guess - truth).sum() / 2
    return [float(one) for one in wrong.mean(0)]


def near_duplicates(inputs: np.ndarray, copies: int, random: np.random.Generator) -> np.ndarray:
    """Copies of each input in other words, all of one input behind each other.

    Images move by a pixel or two and change in the last digit; so do the numbers of a table. Marks of
    categories stay.

    >>> one = np.array([[1.0, 0.0, 5.0]])
    >>> abs(near_duplicates(one, 4, np.random.default_rng(0)) - one).max() < 0.01
    np.True_
    """
    several = np.repeat(inputs, copies, axis=0)
    if inputs.ndim == 4:
        moves = random.integers(-_MOVED, _MOVED + 1, (len(several), 2))
        several = np.stack([np.roll(one, by, axis=(0, 1)) for one, by in zip(several, moves, strict=True)])
    if several.dtype.kind in "iu":
        limits = np.iinfo(several.dtype)
        changed = several.astype(np.int64) + random.integers(-1, 2, several.shape)
        return np.asarray(np.clip(changed, limits.min, limits.max), several.dtype)
    whole = np.isin(several, (0, 1))
    found: np.ndarray = np.where(whole, several, several * (1 + _DIGIT * random.normal(size=several.shape)))
    return found.astype(inputs.dtype)


def unfit(run: RunDirectory) -> str | None:
    """Why nothing of a run can be asked again: it releases exact pluralities, or whole rows of counts."""
    return of_list(run) or of_counts(run)


def of_run(run: RunDirectory, flags: Flags, *, key: Key = noise.fresh_key) -> Recovered:
    """Ask about some queries of a run in other words, with new noise; the run itself is asked nothing."""
    (mechanism, event), settings = answering(run), run.record.read()
    asked = answers.load_asked(run)
    if not len(asked.votes):
        raise PateError(f"{run.root} has asked about nothing: there are no votes to rebuild")
    rows = contested(asked.votes)
    votes = asked.votes[rows]
    copies = np.repeat(votes[:, None], _COPIES, axis=1)
    if "data" in settings:
        copies = _votes_on(inputs.open(run, tolerant=True), rows)
    wrong = rebuilt(mechanism, votes, copies, key=key)
    delta = settings.delta or CUSTOMARY_DELTA
    moved = np.abs(copies - votes[:, None]).sum(2).mean() / 2
    costs = [_charged(mechanism, event, number, delta) for number in ANSWERS]
    return Recovered(
        event.teachers,
        float(moved) if "data" in settings else None,
        tuple(Rebuilt(*one) for one in zip(ANSWERS, wrong, costs, strict=True)),
        delta,
        repeated(mechanism, event.teachers, event.classes),
    )


def contested(votes: Votes) -> Int[np.ndarray, " row"]:
    """The query whose teachers agree least, and one where they agree as usual.

    >>> contested(np.array([[9, 0], [5, 4], [7, 2]])).tolist()
    [1, 2]
    """
    order = np.argsort(votes.max(1), kind="stable")
    return np.unique(order[[0, len(order) // 2]])


def _charged(mechanism: Mechanism, event: Answers, number: int, delta: float) -> float:
    """The epsilon of so many answers, whatever the votes."""
    cost, _ = accounting.worst_case(mechanism, [event.teachers] * number, delta, classes=event.classes)
    return float(cost.epsilon)


def _votes_on(opened: Inputs, rows: Int[np.ndarray, " query"]) -> Int[np.ndarray, "query copy class"]:
    """What the run's teachers say of near-duplicates of some of its queries."""
    chosen = asked_inputs(opened).take(rows)
    several = near_duplicates(chosen.inputs, _COPIES, np.random.default_rng(0))
    ids = numbered_ids("copy", range(len(several)))
    features = None if chosen.features is None else np.repeat(chosen.features, _COPIES, axis=0)
    found = stages.votes_on(opened, Part(several, None, ids, None, features)).votes
    return np.asarray(found).reshape(len(rows), _COPIES, -1)


ATTACK = Attack("recovery", {"teachers": Way(of_run, unfit)})  # a crowd answers no question twice
