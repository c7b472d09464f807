"""Membership inference on a finished run, by shadow runs of its own pipeline in memory.

Runs of crowds and of linear teachers can be repeated so. The run's public side, its noise and its private
records are read again. One person in ten never is a member: others are compared with these. What comes of it
is computed from private records, so it goes into private/.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pate_jax.audit.attacks import membership, replicas, shadows
from pate_jax.audit.attacks.attack import OF_RECORDS, Attack, Flags, of_counts
from pate_jax.audit.attacks.roc import Measured
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs.directory import RunDirectory, kind_of
from pate_jax.system.tasks import HERE, Engine


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


def attacked(run: RunDirectory, runs: int = Flags().shadows, engine: Engine = HERE) -> list[Measured]:
    """The figures of all attacks on a run, from so many shadows; nothing is written."""
    if (reason := unfit(run)) is not None:
        raise PateError(reason)
    made, promise = replicas.of_run(run)
    seed = int.from_bytes(run.secret.derive("shadow runs")[:8], "big")
    remade = shadows.Remade(replicas.of_run, run.root)
    seen = shadows.played(made, runs, seed, engine=engine, remade=remade)
    return membership.attacked(seen, promise, made.released)


def unfit(run: RunDirectory) -> str | None:
    """Why shadow runs of a run cannot be made in memory: those of crowds and of linear teachers can."""
    settings = run.record.read()
    if kind_of(run) == "crowd":
        return None
    if "data" not in settings:
        return (
            f"{run.root} was made from votes alone, so nobody's records are known: attack the runs of those "
            "who have the records"
        )
    if not settings.teacher.closed_form:
        return (
            f"the teachers of {run.root} learn step by step, so that each shadow run would take as long as "
            "the run itself: see `pate risk`, which gives the exact figures of single people. Runs of linear "
            "teachers and of crowds are repeated in memory"
        )
    if isinstance(settings.mechanism, StableAnswers):
        return (
            f"{run.root} gave a list of stable answers, whose law depends on the list as a whole: this "
            "command does not repeat such runs; the published figure holds against every attack"
        )
    return of_counts(run)


def of_run(run: RunDirectory, flags: Flags) -> Guesses:
    """The figures of all attacks on a run."""
    return Guesses(attacked(run, flags.shadows, flags.engine))


ATTACK = Attack("membership", unfit, of_run)
