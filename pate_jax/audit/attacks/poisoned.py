"""Poisoning of a finished run: what is certified, and what bad records did in trials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from pate_jax.audit.attacks import poisoning
from pate_jax.audit.attacks.attack import Attack, Flags, Way
from pate_jax.audit.attacks.poisoned_crowds import PoisonedCrowd, Table
from pate_jax.audit.attacks.poisoned_teachers import PoisonedTeachers
from pate_jax.audit.attacks.poisoning import Poison, Poisoned
from pate_jax.crowd import shares, steps, vectors
from pate_jax.crowd.steps import Weights
from pate_jax.crowd.tables import Seen, look
from pate_jax.crowd.voters import Voters
from pate_jax.ensemble import checkpoint
from pate_jax.errors import PateError
from pate_jax.runs import inputs
from pate_jax.runs.answers import load_asked
from pate_jax.runs.crowds import answers, release
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps as lines
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.crowds.students import of_weights
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Student

_USUAL = Flags()


def of_teachers(run: RunDirectory, flags: Flags = _USUAL) -> Poisoned:
    """Of a run by teachers; votes that were made elsewhere are certified only."""
    del flags
    votes = load_asked(run)
    trained = "data" in run.record.read() and votes.teacher_labels is not None
    made = PoisonedTeachers(inputs.open(run, tolerant=True)) if trained else None
    if made is not None and not (made.removals.config.closed_form or checkpoint.folders(run.teachers)):
        made = None  # its teachers were removed
    tried = [] if made is None else list(made.trials())
    return Poisoned([poisoning.certified(votes.votes)], tried, [])


def of_crowd(run: RunDirectory, flags: Flags = _USUAL) -> Poisoned:
    """Of a crowd's run."""
    del flags
    kind = PoisonedCrowd if lines.planned(run) == 1 else PoisonedSteps
    made = kind(crowd_inputs.opened(run, tolerant=True))
    found = poisoning.of_withstood(made.withstood, "labels", poisoning.OF_A_CROWD)
    alone = made.targeted()
    return Poisoned([found], list(made.trials()), [] if alone is None else [alone])


ATTACK = Attack("poisoning", {"teachers": Way(of_teachers), "crowd": Way(of_crowd)})


@dataclass(frozen=True)
class PoisonedSteps(PoisonedCrowd):
    """A crowd's run of several steps, whose first table is that of a run of one."""

    @cached_property
    def made(self) -> steps.Steps:
        """The steps behind the first table."""
        found = self.crowd.plan.steps
        if found is None:
            raise PateError(f"{self.crowd.run.public_side} plans no steps: restore it from a backup")
        return found

    @cached_property
    def last(self) -> Crowd:
        """The crowd in the run's last step."""
        return self.crowd.at(self.made.number)

    @cached_property
    def told(self) -> Weights:
        """The weights after all steps of the run."""
        return answers.after(self.last)

    @cached_property
    def withstood(self) -> Int[np.ndarray, " query"]:
        """No label withstands a bad voter by certificate."""
        return np.zeros(len(self.last.pool), np.int64)

    @cached_property
    def noise(self) -> dict[int, Table]:
        """What the run added to each later step's exact table."""
        run = self.crowd.run
        return {
            step: lines.load_noisy(run, step)[1] - release.load_table(run, step)
            for step in range(2, self.made.number + 1)
        }

    def poisoned(self, poison: Poison, rows: Int[np.ndarray, " row"]) -> Weights:
        """The weights if these records were bad from the first table on."""
        honest, bad = (self._seen(who) for who in self._both(poison, rows))
        everybody = self.last.voted

        def ask(step: int, weights: Weights) -> Table:
            exact = everybody.gradients(weights, self.made.release)
            moved = bad.gradients(weights, self.made.release) - honest.gradients(weights, self.made.release)
            return np.asarray(exact + moved + self.noise[step])

        noisy = self.noisy + self._moved(poison, rows)
        model = shares.classifier_of(noisy, self.plan, self.crowd.pool, self.crowd.weight(noisy))
        first = vectors(self.plan.scaling, self.crowd.pool)
        return steps.taken(self.made, model, first, vectors(self.made.scaling, self.last.pool), ask)

    def _seen(self, people: Voters) -> Seen:
        return look(self.made.space, self.made.scaling, people)

    def held(self, told: Weights) -> Int[np.ndarray, " query"]:
        """The labels of the pool; no rule is held."""
        return np.asarray(self.answered(told).probabilities.argmax(1))

    def answered(self, told: Weights, inputs: np.ndarray | None = None) -> shares.Shares:
        """What is answered at some weights, of what was asked or of other inputs."""
        made = self.made
        places = self.last.pool if inputs is None else made.space.coordinates(inputs)
        return shares.of_steps(told, vectors(made.scaling, places), made, made.number, 0.0)

    def linear(self, told: Weights) -> Student:
        """The classifier at some weights, as a student."""
        return of_weights(self.last, told)

    def targeted(self) -> None:
        """No answer is attacked by itself: what it depends on is not linear in the labels."""
        return
