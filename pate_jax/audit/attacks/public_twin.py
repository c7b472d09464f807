"""Attacks on a public twin of a run, of which its release may speak.

The twin has the run's pipeline, settings and noise. Public inputs take the place of private records, each
with the label that the run has released for it, and all noise is drawn from numbers that everybody knows. So
whatever is found is a function of public inputs, released answers and settings: it costs nothing, anybody
may repeat it, and it says nothing about private records beyond the release. A run of class sums is played
whole; of all other runs the sampler alone is attacked, at the pair that tells most.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import numpy as np

from pate_jax.aggregate import noise
from pate_jax.audit.attacks import mechanism, membership, shadows
from pate_jax.audit.attacks.attack import Attack, Flags
from pate_jax.audit.attacks.mechanism import Audits, Key
from pate_jax.audit.attacks.roc import Measured
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.crowd import classifier, vectors
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount
from pate_jax.runs.crowds import answers, rounds
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties.join import is_party
from pate_jax.runs.report import attacks

LARGEST = 2000  # public inputs in the place of private records, at most: a twin takes seconds
_REFERENCE = 10  # of so many one never is a member
_PUBLIC_SEED = 0  # nothing is hidden by the noise of a twin


class Twin(NamedTuple):
    """What attacks on the public twin found; all of it may be published."""

    records: int
    guesses: list[Measured]
    audits: Audits

    @property
    def holds(self) -> bool:
        """Whether nothing shows more than is promised."""
        return self.audits.holds and all(one.holds for one in self.guesses)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        each = [one.to_dict() for one in self.guesses]
        return {"records": self.records, "attacks": each, "mechanism": self.audits.to_dict()}

    def text(self) -> str:
        """For a terminal: the paragraph that the release says."""
        return f"public twin: {attacks.paragraph(self.to_dict())}"


def unfit(run: RunDirectory) -> str | None:
    """Why a run has no twin: its noise is drawn by several parties together, or its sampler is not known."""
    if is_party(run):
        return f"{run.root} is a party's part of a vote, whose noise no party draws alone: leave out --only"
    return mechanism.unfit(run)


def of_run(run: RunDirectory, flags: Flags) -> Twin:
    """The attacks on the twin of a run."""
    audits = mechanism.of_run(run, flags._replace(draws=flags.draws or mechanism.LEAST), key=_keys())
    if not crowd_inputs.is_crowd(run) or run.record.read().crowd.voters != "sums":
        return Twin(0, [], audits)
    opened = crowd_inputs.opened(run, tolerant=True)
    made = of_crowd(opened)
    seen = shadows.played(made, flags.shadows, _PUBLIC_SEED)
    guesses = membership.attacked(seen, made.promise(opened.choice.delta))
    return Twin(made.records, guesses, audits)


def of_crowd(opened: Crowd) -> Sums:
    """The pipeline of a crowd's first round on public inputs with their released labels."""
    release, _ = rounds.load_noisy(opened.run)
    number = rounds.shown(opened.run).numbers[0].release
    if not isinstance(release, ClassSums) or not isinstance(number, HeadCount):
        raise PateError(f"{opened.run.ledger} shows no sums: restore it from a backup")
    found, _ = answers.shares(opened.at(1))
    everything = vectors(opened.plan.scaling, opened.pool)
    some = np.random.default_rng(_PUBLIC_SEED).permutation(len(everything))[:LARGEST]
    labels = found.probabilities.argmax(1).astype(np.int64)
    pool = classifier.measured(everything, release.length)
    return Sums(everything[some], labels[some], pool, release, number, max(1, len(some) // _REFERENCE))


def _keys() -> Key:
    """Keys that everybody knows, one after the other."""
    numbers = itertools.count(_PUBLIC_SEED)

    def following() -> jax.Array:
        return noise.seeded_key(next(numbers))

    return following


ATTACK = Attack("twin", unfit, of_run)
