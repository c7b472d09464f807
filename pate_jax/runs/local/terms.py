"""The plan of a vote with local noise: one public file on which all parties agree.

It fixes the mechanism, the epsilon of one answer and how many questions a voter answers at the most. Which
questions a voter answers follows from the plan, the party's name and the voter's number, so nobody chooses
them, and parties can join late or leave without changing anything for the others.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting import local as figures
from pate_jax.accounting.local import LocalPlan
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict, to_dict
from pate_jax.mechanisms.local import Local
from pate_jax.system import storage

KIND = "local-plan"
_MOST_QUESTIONS = 1 << 24


class Terms(NamedTuple):
    """What the file says."""

    mechanism: Local
    questions: int
    answers_each: int  # the most questions that one voter answers
    budget: float  # of one voter, unless its party has another
    delta: float
    vote: str  # a random name, so that two plans are never the same
    voters: int  # about how many all parties have together; delta is at most one over it

    @property
    def digest(self) -> str:
        """The name of the plan in every file that belongs to it."""
        return hashlib.sha256(json.dumps(to_dict(self), sort_keys=True).encode()).hexdigest()


def write(path: Path, plan: LocalPlan, *, questions: int, voters: int, budget: float, delta: float) -> Terms:
    """Write the file of a new plan; an existing file is never overwritten."""
    check_delta(delta, voters, "the plan")
    if path.exists():
        raise PateError(f"{path} exists, and parties may rely on it: choose another name")
    name = secrets.token_hex(16)
    terms = Terms(plan.mechanism, questions, plan.answers_each, budget, delta, name, voters)
    storage.write_json(path, KIND, to_dict(terms))
    return terms


def read(path: Path) -> Terms:
    """The plan of a file, checked."""
    terms = cast(Terms, from_dict(Terms, storage.read_json(path, KIND), str(path)))
    _check(path, terms)
    return terms


def asked(terms: Terms, party: str, voters: int, answers: int) -> NDArray[np.int64]:
    """The questions of each voter of a party, [voter, answer]; no voter is asked one twice.

    The questions stand in a random order that the plan fixes, and a party begins at a place that its name
    fixes. Each voter takes the next few, so the questions of a party are spread as evenly as they can be.

    >>> from pate_jax.mechanisms import local
    >>> terms = Terms(local.RandomisedResponse(3, 1.0), 5, 2, 2.0, 0.0, "demo", 5)
    >>> asked(terms, "a", voters=5, answers=2).shape
    (5, 2)
    """
    random = np.random.default_rng(int.from_bytes(hashlib.sha256(f"order {terms.digest}".encode()).digest()))
    order = random.permutation(terms.questions)
    name = hashlib.sha256(f"{terms.digest} {party}".encode()).digest()
    start = int.from_bytes(name) % terms.questions
    places = start + np.arange(voters * answers).reshape(voters, answers)
    chosen: NDArray[np.int64] = order[places % terms.questions]
    return chosen


def check_delta(delta: float, voters: int, what: str) -> None:
    """Refuse a delta that lets one of the voters be revealed, as one above one over their number does.

    >>> check_delta(1e-5, 250, "the plan")
    """
    if not (0 <= delta < 1 and delta * voters <= 1):
        small = 10.0 ** math.floor(-math.log10(10 * voters))
        raise PateError(
            f"delta={delta:g} of {what} is not from 0 to one over its {voters:,} voters, so one of them may "
            f"be revealed completely: make a plan with --delta {small:g} or less"
        )


def _check(path: Path, terms: Terms) -> None:
    if not 1 <= terms.questions <= _MOST_QUESTIONS:
        raise PateError(f"{path}: questions={terms.questions} must be from 1 to {_MOST_QUESTIONS:,}")
    if not 1 <= terms.answers_each <= terms.questions:
        raise PateError(
            f"{path}: answers_each={terms.answers_each} must be from 1 to the {terms.questions} questions"
        )
    if terms.voters < 1:
        raise PateError(f"{path}: voters={terms.voters} must be at least 1")
    if not terms.budget > 0:
        raise PateError(f"{path}: budget={terms.budget} must be above 0")
    check_delta(terms.delta, terms.voters, str(path))
    whole = figures.spent(terms.mechanism, terms.answers_each, terms.delta)
    if whole > terms.budget:
        raise PateError(
            f"{path}: {terms.answers_each} answers of epsilon {terms.mechanism.epsilon:g} cost {whole:g} at "
            f"delta={terms.delta:g}, more than its budget of {terms.budget:g}: whoever wrote it must make "
            "another plan"
        )
