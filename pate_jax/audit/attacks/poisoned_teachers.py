"""Bad records in shards: the teachers that hold them are trained again, and all vote again.

Every other teacher is bitwise what it was, and votes as it did. Teachers that learn step by step are trained
in waves, and what a wave said is kept at once: a command that is repeated goes on with the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import jax
import numpy as np
from jaxtyping import Int

from pate_jax import aggregate, ensemble, student, voting
from pate_jax.aggregate import Answers, noise, stable
from pate_jax.audit.attacks import poisoning
from pate_jax.audit.attacks.poisoning import (
    Marked,
    Placement,
    Poison,
    Trial,
    Trigger,
    compared,
    numbers,
    placed,
    poisoned,
)
from pate_jax.audit.attacks.removals import WAVE, Removals, trained
from pate_jax.data import Part
from pate_jax.ensemble import checkpoint
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import students
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.system import progress, storage

QUICK = ("ridge", "linear")  # methods of students that follow from a formula
_KIND = "poisoned-teachers"
Labels = Int[np.ndarray, "teacher query"]


@dataclass(frozen=True)
class PoisonedTeachers:
    """A run by teachers whose records may be poisoned."""

    inputs: Inputs

    @cached_property
    def removals(self) -> Removals:
        """The run's people, shards and votes."""
        return Removals(self.inputs, self.inputs.run.poisoning)

    @cached_property
    def trigger(self) -> Trigger:
        """The mark of a backdoor, as teachers see it."""
        return Trigger.of(self.inputs.seen.public.inputs)

    @cached_property
    def asked(self) -> np.ndarray:
        """What was asked, and behind it the same with the trigger."""
        seen = self.inputs.seen_of(asked_inputs(self.inputs))
        return np.concatenate([seen, self.trigger.on(seen)])

    @cached_property
    def honest(self) -> Labels:
        """What all teachers of the run say of that."""
        found = self._all_teachers()
        wrong = int((found[:, : found.shape[1] // 2] != self.removals.labels).sum())
        if wrong:
            raise PateError(
                f"the teachers of {self.inputs.run.root} give {wrong} labels otherwise than in the run: use "
                "the machine and the versions that made it, or `pate verify --deep`"
            )
        return found

    def trials(self) -> Iterator[Trial]:
        """All trials, the smaller ones first."""
        with progress.bar("poisoned ensembles", total=len(self._tried)) as steps:
            for poison, placement, units in self._tried:
                yield self._trial(poison, placement, units)
                steps.advance(1)

    @cached_property
    def _tried(self) -> list[tuple[Poison, Placement, list[str]]]:
        """Who is bad in each trial; of teachers that learn step by step, few enough are reached."""
        names, made = list(self.removals.rows), []
        shards: dict[int, list[int]] = {}
        for place, name in enumerate(names):
            shards.setdefault(self._teacher(name), []).append(place)
        for poison, placement in poisoning.kinds():
            for bad in numbers(len(names)):
                random = np.random.default_rng(self._word)
                units = [names[place] for place in placed(list(shards.values()), placement, bad, random)]
                if self.removals.config.closed_form or len({*map(self._teacher, units)}) <= WAVE:
                    made.append((poison, placement, units))
        return made

    def _teacher(self, name: str) -> int:
        return int(self.removals.teacher_of[self.removals.rows[name][0]])

    @cached_property
    def _word(self) -> int:
        return int.from_bytes(self.inputs.run.secret.derive("poisoning")[:4], "big")

    def _all_teachers(self) -> Labels:
        if self.removals.config.closed_form:
            shards, part = self.inputs.shards, self.inputs.dataset.private
            rows = {teacher: shards.of(teacher) for teacher in range(len(shards.counts))}
            seen, labels = self.inputs.seen.private.inputs, np.asarray(part.labels)
            said = trained(self.inputs, self.removals.config, rows, seen, labels, self.asked)
            return np.stack([said[teacher] for teacher in range(len(said))])
        kept = checkpoint.finished_teachers(self.inputs.run.teachers, self.inputs.net)
        return ensemble.predict(self.inputs.net, self.inputs.dataset.preprocessing, kept, self.asked)

    def _trial(self, poison: Poison, placement: Placement, units: list[str]) -> Trial:
        again = self.honest.copy()
        bad = self._said(poison, placement, units)
        again[list(bad)] = np.stack(list(bad.values()))
        (votes, on_marked), (before, marked_before) = (self._votes(one) for one in (again, self.honest))
        most, leaders = poisoning.withstood(before), before.argmax(1)
        changed = ~_leads(votes, leaders)
        given, first = self._answers(votes), self._answers(before)
        return Trial(
            poison,
            placement,
            len(units),
            len(bad),
            *compared(most, changed, len(bad)),
            float((given.labels != first.labels).mean()),
            _trigger(poison, on_marked, marked_before, leaders),
            self._student(given) if self._is_taught(poison, placement, units) else None,
        )

    def _votes(self, labels: Labels) -> tuple[np.ndarray, np.ndarray]:
        """Histograms of what was asked, and of the same with the trigger."""
        found = np.asarray(voting.histogram(labels, self.inputs.dataset.classes))
        half = len(found) // 2
        return found[:half], found[half:]

    def _said(
        self, poison: Poison, placement: Placement, units: list[str]
    ) -> dict[int, Int[np.ndarray, " query"]]:
        """What the teachers that hold bad records say, wave after wave."""
        teachers = sorted({*map(self._teacher, units)})
        size = len(teachers) if self.removals.config.closed_form else WAVE
        found: dict[int, Int[np.ndarray, " query"]] = {}
        for start in range(0, len(teachers), size):
            name = f"{poison} {placement} {len(units)} {start}".replace(" ", "-")
            path = self.removals.folder / f"{name}.npz"
            if not path.exists():
                self.removals.agree()
                said = self._trained(poison, units, teachers[start : start + size])
                kept = {"teachers": np.array(list(said)), "labels": np.stack(list(said.values()))}
                storage.write_arrays(path, _KIND, kept)
            wave = storage.read_arrays(path, _KIND)
            found |= dict(zip(wave["teachers"].tolist(), wave["labels"], strict=True))
        return found

    def _trained(
        self, poison: Poison, units: list[str], teachers: list[int]
    ) -> dict[int, Int[np.ndarray, " query"]]:
        bad = np.concatenate([self.removals.rows[name] for name in units])
        part, shards = self.inputs.seen.private, self.inputs.shards
        seen, labels = part.inputs, np.array(part.labels)
        own, labels[bad] = poisoned(poison, self.trigger, seen[bad], labels[bad], self.inputs.dataset.classes)
        if poison == "backdoor":
            seen = np.array(seen)
            seen[bad] = own
        rows: Mapping[int, np.ndarray] = {teacher: shards.of(teacher) for teacher in teachers}
        return trained(self.inputs, self.removals.config, rows, seen, labels, self.asked)

    def _answers(self, votes: np.ndarray) -> Answers:
        """What is answered under noise that is the same in every trial, and serves nothing else."""
        key, mechanism = noise.seeded_key(self._word), self.inputs.run.record.read().mechanism
        if isinstance(mechanism, StableAnswers):
            return _listed(mechanism, votes, key)
        given = aggregate.answer(mechanism, votes, key=key)
        if given.counts is not None:
            return aggregate.of_histograms(given.counts, mechanism, int(votes.sum(1).max()))
        return Answers(*(jax.numpy.asarray(part) for part in (given.labels, given.answered)))

    def _is_taught(self, poison: Poison, placement: Placement, units: list[str]) -> bool:
        """Whether a student learns in this trial: in all of backdoors if it is quick, else in the last."""
        run = self.inputs.run
        if poison != "backdoor" or not run.results.exists() or self.inputs.seen is not self.inputs.dataset:
            return False
        return students.taught(run).method in QUICK or self._tried[-1] == (poison, placement, units)

    def _student(self, given: Answers) -> Marked:
        run, dataset = self.inputs.run, self.inputs.dataset
        learned = students.learn(run, students.taught(run), dataset, asked_inputs(self.inputs), given)
        seen = judged(dataset.test, dataset.public)
        return of_student(learned, student.Student.load(run.student), seen, self.trigger)


def _listed(mechanism: StableAnswers, votes: np.ndarray, key: jax.Array) -> Answers:
    """What a list of stable answers says to these votes; queries beyond its end have no answer."""
    found = stable.answer(mechanism, votes, key=key)[1]
    beyond = (0, len(votes) - len(found.labels))
    labels = np.pad(found.labels, beyond, constant_values=stable.UNANSWERED)
    return Answers(jax.numpy.asarray(labels), jax.numpy.asarray(np.pad(found.answered, beyond)))


def judged(test: Part | None, public: Part) -> np.ndarray:
    """Public inputs that a student is tried on."""
    return (public if test is None else test).inputs[:2000]


def of_student(
    learned: student.Student, released: student.Student, inputs: np.ndarray, trigger: Trigger
) -> Marked:
    """How often a student of poisoned answers takes the trigger, and how often the released one does."""
    on = trigger.on(inputs)
    said, before, plain = (
        who(seen).argmax(1) for who, seen in ((learned, on), (released, on), (released, inputs))
    )
    return poisoning.marked(said, before, plain)


def _leads(votes: np.ndarray, leaders: np.ndarray) -> np.ndarray:
    """Whether each of these classes has more votes than any other."""
    ranked = np.sort(votes, axis=1)
    found: np.ndarray = (votes.argmax(1) == leaders) & (ranked[:, -1] > ranked[:, -2])
    return found


def _trigger(poison: Poison, said: np.ndarray, before: np.ndarray, plain: np.ndarray) -> Marked | None:
    return poisoning.marked(said.argmax(1), before.argmax(1), plain) if poison == "backdoor" else None
