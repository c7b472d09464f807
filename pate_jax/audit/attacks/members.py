"""Membership inference on a finished run of class sums, by shadow runs of its own pipeline in memory.

The run's public side, its noise and its private records are read again. One record in ten never is a member:
others are compared with these. What comes of it is computed from private records, so it goes into private/.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np

from pate_jax import crowd as voting
from pate_jax.audit.attacks import membership, shadows
from pate_jax.audit.attacks.attack import OF_RECORDS, Attack, Flags
from pate_jax.audit.attacks.roc import Measured
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.crowd import classifier
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount
from pate_jax.runs import ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory

_REFERENCE = 10  # of so many records one never is a member


class Guesses(NamedTuple):
    """What all attacks guessed."""

    attacks: list[Measured]

    @property
    def holds(self) -> bool:
        """Whether none shows more than the guarantee allows."""
        return all(one.holds for one in self.attacks)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        each = [{**one.to_dict(), "sentence": one.sentence()} for one in self.attacks]
        return {"warning": OF_RECORDS, "attacks": each}

    def text(self) -> str:
        """For a terminal."""
        runs = self.attacks[0].targets
        head = f"membership, by {runs} shadow runs on half of the records ({OF_RECORDS}):"
        return "\n".join([head, *(f"  {one.sentence()}" for one in self.attacks)])


def attacked(run: RunDirectory, runs: int = Flags().shadows) -> list[Measured]:
    """The figures of all attacks on a run, from so many shadows; nothing is written."""
    if (reason := unfit(run)) is not None:
        raise PateError(reason)
    opened = crowd_inputs.opened(run, tolerant=True)
    made, seed = of_crowd(opened), int.from_bytes(run.secret.derive("shadow runs")[:8], "big")
    return membership.attacked(shadows.played(made, runs, seed), made.promise(opened.choice.delta))


def unfit(run: RunDirectory) -> str | None:
    """Why shadow runs of a run cannot be made in memory: only one round of class sums by record can."""
    if crowd_inputs.is_crowd(run):
        choice = run.record.read().crowd
        if choice.voters == "sums" and choice.rounds == 1 and choice.by == "record":
            return None
    return (
        f"{run.root} is not a run of class sums with one round, by record: shadow runs of others are not "
        "made by this command; play them with audit.attacks.shadows, or see `pate risk`, which is exact"
    )


def of_crowd(opened: Crowd) -> Sums:
    """The pipeline of a crowd's run; which records never are members follows from their ids."""
    lines = [line.release for line in ledger.releases(opened.run.ledger)]
    table = next((one for one in lines if isinstance(one, ClassSums)), None)
    number = next((one for one in lines if isinstance(one, HeadCount)), None)
    if table is None or number is None:
        raise PateError(f"{opened.run.ledger} shows no sums yet: repeat the command that made the run")
    plan, private = opened.plan, opened.seen.private
    order = np.argsort([hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in private.ids])
    vectors = voting.vectors(plan.scaling, plan.space.coordinates(private.inputs))
    pool = classifier.measured(voting.vectors(plan.scaling, opened.pool), table.length)
    labels, reference = np.asarray(private.labels, np.int64), max(1, len(order) // _REFERENCE)
    return Sums(vectors[order], labels[order], pool, table, number, reference)


def of_run(run: RunDirectory, flags: Flags) -> Guesses:
    """The figures of all attacks on a run."""
    return Guesses(attacked(run, flags.shadows))


ATTACK = Attack("membership", unfit, of_run)
