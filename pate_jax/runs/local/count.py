"""The count of a vote with local noise: anybody can make it from the plan and the parties' files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.aggregate import local as drawing
from pate_jax.data import trial_mark
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.runs.local import ballot
from pate_jax.runs.local import terms as plans
from pate_jax.runs.local.terms import Terms
from pate_jax.system import progress, storage

KIND = "local-count"


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
    storage.write_arrays(path, KIND, arrays)


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
    arrays = storage.read_arrays(file, ballot.KIND)
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
