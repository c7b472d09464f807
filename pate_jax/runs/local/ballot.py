"""A party's part in a vote with local noise: its noisy answers, charged before they leave.

    FOLDER/keys.json         the secret that all noise of the party follows from; private, like the rest
    FOLDER/ledger.jsonl      what each voter of the party has spent
    FOLDER/sent-DIGEST.npz   the noisy answers to one plan, so that they are never drawn twice

Answers are drawn and stored first, then charged, and only then given out. Whatever happens in between, the
stored answers are the only ones: a repeated command gives them out, and charges them if the ledger does not
show them yet. It does not after a crash, or where an older copy of it was restored. Where an older copy of
the whole folder was restored, the same answers are drawn again: the noise of each follows from the secret,
the plan, the voter, the question and the answer itself. So nobody sees two draws of the same answer, and an
answer that has changed since changes no other's noise. While some stored answers have no charge, no other
plan is voted on, because the ledger may not know all that was spent. Each voter of a party spends the same:
the ledger speaks of one voter. Anybody can count a vote from the plan and the parties' files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax import voting
from pate_jax.accounting import local as figures
from pate_jax.aggregate import local as drawing
from pate_jax.data import trial_mark
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.local import Local
from pate_jax.runs import chain
from pate_jax.runs.local import terms as plans
from pate_jax.runs.local.terms import Terms
from pate_jax.runs.secret import Secret
from pate_jax.system import progress, storage

SENT, COUNTED = "local-answers", "local-count"
_LONGEST_NAME = 100


class Ballot(NamedTuple):
    """What a party gives out, and what each of its voters has spent by then."""

    voters: int
    answers: int  # of each voter
    spent: float  # by one voter, in this vote and all before it
    plain: float  # the same as a plain sum of epsilons, with no delta
    whole_party: float  # what all of the party's voters have spent together, if all of them may change
    budget: float
    delta: float  # of `spent`, `whole_party` and `budget`
    repeated: bool  # whether these answers were drawn and charged before


class _Charge(NamedTuple):
    """A line of the ledger."""

    plan: str
    mechanism: Local
    voters: int
    answers: int  # of each voter
    budget: float
    delta: float
    sent: str  # digest of the file of noisy answers


def vote(
    plan: Path, votes: Path, *, party: str, folder: Path, out: Path, budget: float | None = None
) -> Ballot:
    """Noise the answers of a party's voters, charge them, and write what may leave the party to `out`.

    A budget smaller than the plan's makes voters answer fewer questions, and never more softly. The budget is
    fixed by the first vote in `folder`, and a vote that exceeds it is refused before anything is drawn.
    """
    terms, found = plans.read(plan), _votes(votes, party)
    labels = found.labels
    progress.warn(trial_mark.SENTENCE if found.trial else None)
    if labels.shape[1] != terms.questions:
        raise PateError(f"{votes} answers {labels.shape[1]} questions where {plan} asks {terms.questions}")
    with chain.Writer(folder / "ledger.jsonl") as book:
        charges = list(chain.records(book.path, {"local": _Charge}))
        fixed, delta = _budget(charges, terms, budget)
        plans.check_delta(delta, len(labels), str(plan if not charges else book.path))
        stored = _stored(folder, terms.digest)
        mine = next((one for one in charges if one.plan == terms.digest), None)
        if mine is None:
            _check_charged(folder, charges, stored)
            affordable = _affordable(charges, terms, fixed, delta)
            if not stored.exists():
                content = _drawn(_secret(folder), terms, found, party, affordable)
                storage.write_bytes(stored, content, mode=0o600)
            answers, sent = _kept(stored, party, len(labels), affordable)
            line = _Charge(terms.digest, terms.mechanism, len(labels), answers, fixed, delta, sent)
            book.add("local", line)
        content = memoryview(storage.read_bytes(stored))
        charges = list(chain.records(book.path, {"local": _Charge}))
        now = next(one for one in charges if one.plan == terms.digest)
        if now.sent != _digest(content):
            raise PateError(f"{stored} was changed after it was charged: restore it from a backup")
        _check_same(content, stored, party, len(labels))
        storage.write_bytes(out, content)
    each = [(one.mechanism, one.answers) for one in charges]
    everybody = [(one.mechanism, one.answers * one.voters) for one in charges]
    spent, whole = (figures.accumulated(one, fixed, delta) for one in (each, everybody))
    sums = spent, figures.together(each), whole
    return Ballot(len(labels), now.answers, *sums, fixed, delta, mine is not None)


class _Votes(NamedTuple):
    """What a party's voters answer, and what the file says of the questions."""

    labels: np.ndarray  # [voter, question]
    questions: list[str]  # a name of each question
    queries: str  # digest of all of them
    trial: bool  # whether the run that made the votes was a trial


def _votes(votes: Path, party: str) -> _Votes:
    if not 1 <= len(party) <= _LONGEST_NAME or not party.isprintable():
        raise PateError(f"party={party!r} must be a name of 1 to {_LONGEST_NAME} printable characters")
    found = voting.load_votes(votes)
    if found.teacher_labels is None:
        raise PateError(
            f"{votes} holds counts of votes only, and every voter noises its own answer: give a file with "
            "teacher_labels[teacher, query]"
        )
    labels = np.asarray(found.teacher_labels)
    known = [values for values in (found.ids, found.digests) if values is not None]
    questions = [f"{at} {[str(values[at]) for values in known]}" for at in range(labels.shape[1])]
    return _Votes(labels, questions, storage.digest(found.ids, found.digests), found.trial)


def _secret(folder: Path) -> Secret:
    """The party's secret, which is drawn once."""
    secret = Secret(folder / "keys.json", folder / "ledger.jsonl", folder)
    if not secret.file.exists():
        secret.make(None)
    return secret


def _drawn(secret: Secret, terms: Terms, votes: _Votes, party: str, answers: int) -> memoryview:
    """The content of the file that leaves the party.

    The noise of an answer is named by its voter, its question and itself, and by nothing else of the file.
    """
    asked = plans.asked(terms, party, len(votes.labels), answers)
    chosen = np.take_along_axis(votes.labels.astype(np.int64), asked, axis=1)
    own = secret.derive(f"local noise of the voters of {party!r} in plan {terms.digest}")
    names = [
        f"{voter} {label} {votes.questions[question]}"
        for voter, row in enumerate(zip(asked, chosen, strict=True))
        for question, label in zip(*row, strict=True)
    ]
    sent = drawing.send_named(terms.mechanism, chosen, names, secret=own)
    about = {"plan": terms.digest, "party": party, "queries": votes.queries}
    marks = {"trial": True} if votes.trial else {}
    arrays = {name: np.array(value) for name, value in {**about, **marks}.items()}
    return storage.pack_arrays(SENT, {**arrays, "sent": sent.astype(np.int16)})


def _affordable(charges: Iterable[_Charge], terms: Terms, budget: float, delta: float) -> int:
    before = [(one.mechanism, one.answers) for one in charges]
    answers = figures.affords(terms.mechanism, budget, delta, before, terms.answers_each)
    if answers < 1:
        used = figures.accumulated(before, budget, delta)
        raise PateError(
            f"budget={budget:g} at delta={delta:g} of a voter, of which {used:.4g} is spent, does not afford "
            f"one answer of epsilon {terms.mechanism.epsilon:g}: this party cannot take part in this vote"
        )
    return answers


def _budget(charges: list[_Charge], terms: Terms, budget: float | None) -> tuple[float, float]:
    """The budget and the delta of a voter, which the first line of the ledger fixes."""
    if not charges:
        first = terms.budget if budget is None else float(budget)
        if not 0 < first < float("inf"):
            raise PateError(f"budget={budget!r} must be a finite epsilon above 0")
        return first, terms.delta
    if budget is not None and budget != charges[0].budget:
        raise PateError(
            f"budget={budget:g} is not the one that this ledger fixed, {charges[0].budget:g}: leave it out"
        )
    return charges[0].budget, charges[0].delta


def _kept(stored: Path, party: str, voters: int, affordable: int) -> tuple[int, str]:
    """How many answers of each voter are stored, and the digest of their file; refused if not affordable."""
    content = memoryview(storage.read_bytes(stored))
    answers = _check_same(content, stored, party, voters)
    if answers > affordable:
        raise PateError(
            f"{stored} holds {answers} answers of each voter, and the ledger beside it affords {affordable}: "
            "restore the newest ledger from a backup"
        )
    return answers, _digest(content)


def _stored(folder: Path, plan: str) -> Path:
    """Where the answers to a plan are kept."""
    return folder / f"sent-{plan[:32]}.npz"


def _check_charged(folder: Path, charges: list[_Charge], own: Path) -> None:
    """Refuse to go on where answers to another plan are stored that the ledger does not show."""
    known = {own, *(_stored(folder, one.plan) for one in charges)}
    if left := sorted(set(folder.glob("sent-*.npz")) - known):
        raise PateError(
            f"{left[0]} holds answers, and the ledger beside it shows no charge for them: restore the newest "
            "ledger from a backup, or repeat the vote on that plan, which gives the same answers and charges "
            "them"
        )


def _check_same(content: memoryview, stored: Path, party: str, voters: int) -> int:
    """How many answers of each voter are stored; refused where they are of others."""
    arrays = storage.parse_arrays(bytes(content), stored, SENT)
    if str(arrays["party"]) != party or len(arrays["sent"]) != voters:
        raise PateError(
            f"{stored} holds the answers of {len(arrays['sent'])} voters of {str(arrays['party'])!r} to this "
            f"plan, and they are given once: {voters} voters of {party!r} cannot answer it again"
        )
    return int(arrays["sent"].shape[1])


def _digest(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


class Counted(NamedTuple):
    """What all noisy answers say together."""

    answers: np.ndarray  # int32[question], -1 where nobody named a class
    estimates: np.ndarray  # float64[question, class]: unbiased counts of the voters' own classes
    voters: np.ndarray  # int64[question]: how many answered
    parties: dict[str, int]  # the voters of each party
    trial: bool = False  # whether a party's votes are of a trial


def count(plan: Path, files: Sequence[Path]) -> Counted:
    """Add up the noisy answers of parties, and take the class that was named most often at each question.

    >>> count(Path("plan.json"), [])
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: no party's file was given: name at least one
    """
    if not files:
        raise PateError("no party's file was given: name at least one")
    terms = plans.read(plan)
    read = [_read(file, terms) for file in files]
    values = terms.mechanism.classes if local.is_bits(terms.mechanism) else _values(terms)
    counted = np.zeros((terms.questions, values), np.int64)
    voters, parties = np.zeros(terms.questions, np.int64), dict[str, int]()
    queries: str | None = None
    for file, (party, pool, sent, _) in zip(files, read, strict=True):
        if queries not in (None, pool):
            raise PateError(f"{file} answers other questions than {files[0]}: all parties take the same ones")
        queries = pool
        if party in parties:
            raise PateError(f"{file} is a second file of {party!r}: each party's voters are counted once")
        parties[party] = len(sent)
        asked = plans.asked(terms, party, *sent.shape[:2])
        np.add.at(voters, asked.ravel(), 1)
        if local.is_bits(terms.mechanism):
            np.add.at(counted, asked.ravel(), sent.reshape(asked.size, -1))
        else:
            np.add.at(counted, (asked, sent), 1)
    estimates = drawing.estimates(terms.mechanism, counted, voters)
    trial = any(one.trial for one in read)
    progress.warn(trial_mark.SENTENCE if trial else None)
    return Counted(drawing.answers(terms.mechanism, counted), estimates, voters, parties, trial)


def write(path: Path, counted: Counted) -> None:
    """Write the answers, the estimates and the numbers of voters."""
    arrays = {
        "answers": counted.answers,
        "estimates": counted.estimates,
        "voters": counted.voters,
        "parties": np.array(list(counted.parties)),
    }
    arrays |= {"trial": np.array(True)} if counted.trial else {}
    storage.write_arrays(path, COUNTED, arrays)


def _values(terms: Terms) -> int:
    return len(local.channel(terms.mechanism)[0])


class _Sent(NamedTuple):
    """What a party's file says."""

    party: str
    queries: str  # digest of its questions
    sent: np.ndarray  # [voter, answer, class for bits]
    trial: bool


def _read(file: Path, terms: Terms) -> _Sent:
    """A party's file, checked."""
    arrays = storage.read_arrays(file, SENT)
    if set(arrays) - {"trial"} != {"plan", "party", "queries", "sent"}:
        raise PateError(f"{file} holds {sorted(arrays)}; plan, party, queries and sent are wanted")
    if str(arrays["plan"]) != terms.digest:
        raise PateError(f"{file} belongs to another plan: ask the party to vote in this one")
    sent, bits = arrays["sent"], local.is_bits(terms.mechanism)
    good = sent.dtype.kind in "iu" and sent.ndim == 2 + bits and len(sent) > 0
    if not good or not 1 <= sent.shape[1] <= terms.answers_each:
        raise PateError(
            f"{file}: sent has shape {sent.shape}, where each voter answers from 1 to {terms.answers_each} "
            "questions of this plan"
        )
    if bits and sent.shape[2] != terms.mechanism.classes:
        raise PateError(f"{file}: sent has {sent.shape[2]} bits for {terms.mechanism.classes} classes")
    most = 1 if bits else _values(terms) - 1
    if not 0 <= sent.min() <= sent.max() <= most:
        raise PateError(f"{file}: sent holds {sent.min()} to {sent.max()} where 0 to {most} can be sent")
    return _Sent(str(arrays["party"]), str(arrays["queries"]), sent, "trial" in arrays)
