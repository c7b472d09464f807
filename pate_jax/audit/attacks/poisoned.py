"""Poisoning of a finished run: what is certified, and what bad records did in trials."""

from __future__ import annotations

from pate_jax.audit.attacks import poisoning
from pate_jax.audit.attacks.attack import Attack, Flags
from pate_jax.audit.attacks.poisoned_crowds import PoisonedCrowd
from pate_jax.audit.attacks.poisoned_steps import PoisonedSteps
from pate_jax.audit.attacks.poisoned_teachers import PoisonedTeachers
from pate_jax.audit.attacks.trials import Poisoned
from pate_jax.ensemble import checkpoint
from pate_jax.runs import answers, inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.directory import RunDirectory, kind_of


def unfit(run: RunDirectory) -> None:
    """Bad records can be followed in every run: there is no reason against it."""
    del run


def of_run(run: RunDirectory, flags: Flags) -> Poisoned:
    """Certificates of a run and, where its records are at hand, trials."""
    del flags
    return of_crowd(run) if kind_of(run) == "crowd" else of_teachers(run)


def of_teachers(run: RunDirectory) -> Poisoned:
    """Of a run by teachers; votes that were made elsewhere are certified only."""
    votes = answers.load_asked(run)
    trained = "data" in run.record.read() and kind_of(run) != "party" and votes.teacher_labels is not None
    made = PoisonedTeachers(inputs.open(run, tolerant=True)) if trained else None
    if made is not None and not (made.removals.config.closed_form or checkpoint.folders(run.teachers)):
        made = None  # its teachers were removed
    tried = [] if made is None else list(made.trials())
    return Poisoned([poisoning.certified(votes.votes)], tried, [])


def of_crowd(run: RunDirectory) -> Poisoned:
    """Of a crowd's run."""
    kind = PoisonedCrowd if steps.planned(run) == 1 else PoisonedSteps
    made = kind(crowd_inputs.opened(run, tolerant=True))
    found = poisoning.of_withstood(made.withstood, "labels", poisoning.OF_A_CROWD)
    alone = made.targeted()
    return Poisoned([found], list(made.trials()), [] if alone is None else [alone])


ATTACK = Attack("poisoning", unfit, of_run)
