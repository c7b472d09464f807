"""A number as the label: a line that noisy sums correct, of what it leaves of all numbers.

The sums are those of all records, in a few steps, or one of what teachers predict who have a shard each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.crowd import plan, vectors
from pate_jax.crowd.numbers import FINE, Line, learned, moved, numbers, started, taught
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.voters import voters
from pate_jax.data import Part, partition
from pate_jax.data.targets import GRID
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import CrowdRelease, HeadCount, TeacherSums
from pate_jax.models.spaces import Learned
from pate_jax.runs import methods
from pate_jax.runs.crowds import forecast
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.methods import OwnMethod
from pate_jax.runs.settings import RunConfig
from pate_jax.student import Linear, PublicInputs, Student, sums
from pate_jax.student.settings import Auto
from pate_jax.system import headcount

NAME, TEACHERS = "numbers", "teachers of numbers"
ASKED = 1000  # public inputs that teachers predict the numbers of, at most
TAUGHT, UNTAUGHT = 2, 3  # steps, where public numbers have taught the first line, and where none have


class Numbers(OwnMethod):
    """Every record adds its vector times what is left of its number, in a few steps, and a line follows."""

    name, covers = NAME, ("record", "user")
    words = (
        "Every input was turned into a bounded vector, by a rule that public inputs alone had taught. In a "
        "few steps every record (or user, by the mean of its records) added its vector times what the "
        "prediction so far left of its number, cut to a public width. Random noise was added to every entry "
        "of the sum, which then moved the prediction. The first one was learned from public numbers; where "
        "there were none, it was the middle "
        "of the range."
    )

    @cached_property
    def _wide(self) -> Learned:
        """The space of public inputs, and where they lie in it."""
        return forecast.learned(self.dataset)

    @property
    def _steps(self) -> int:
        return UNTAUGHT if self.dataset.public.labels is None else TAUGHT

    def _plan(self, released: Sequence[CrowdLine]) -> Plan:
        """Directions, scaling and the noise of a step, from public inputs and the noisy number of voters."""
        space, pool = self._wide
        mu = counts.mu_for(*self.promise[:2]) / math.sqrt(self._steps)
        return plan("sums", space, pool, voters=max(1, headcount.coarse(_told(released))), classes=2, mu=mu)

    def _line(self, made: Plan, released: Sequence[CrowdLine]) -> Line:
        """The prediction after these releases."""
        line = self._start(made)
        for one in released[1:]:
            line = moved(line, methods.values(one), made, self._wide.pool, _told(released))
        return line

    def _start(self, made: Plan) -> Line:
        return started(made.scaling, self._seen(made), self.dataset.public.labels)

    def _seen(self, made: Plan) -> np.ndarray:
        """The pool's vectors."""
        return vectors(made.scaling, self._wide.pool[:, : len(made.space.variances)])

    def question(self, public: PublicInputs, released: Sequence[CrowdLine]) -> CrowdRelease | None:
        """The number of voters, and then a sum for each step."""
        if not released:
            return counts.headcount_for(counts.mu_for(*self.promise[:2]), "sums")
        return self._plan(released).release if len(released) <= self._steps else None

    def count(self, private: Part, event: CrowdRelease, released: Sequence[CrowdLine]) -> np.ndarray:
        """How many voters there are, or the sum of their vectors times what is left of their numbers."""
        if isinstance(event, HeadCount):
            return np.array([[len(np.unique(partition.units_of(private, self.promise.by)))]])
        made = self._plan(released)
        people = voters(private, GRID + 1, by=self.promise.by)
        return numbers(made.space, made.scaling, self._line(made, released), people)

    def lesson(self, public: PublicInputs, released: Sequence[CrowdLine]) -> Student:
        """The prediction after all steps."""
        made = self._plan(released)
        weights = self._line(made, released).weights / FINE * made.scaling.length / GRID
        student = sums.of_line(public, made.space, made.scaling, weights)
        return student._replace(columns=self.dataset.columns, target=self.dataset.target)


class Taught(Numbers):
    """Teachers, one for each shard, predict public inputs' numbers; a line follows from their noisy mean."""

    name = TEACHERS
    words = (
        "Every teacher learned numbers from its own share of the records, by ridge regression on vectors "
        "that a rule made which public inputs alone had taught. It predicted the numbers of public inputs, "
        "and what it said was clipped to a public range. Random noise was added to the sum of what all "
        "teachers said, and the mean moved a prediction that was learned from public numbers, or, where "
        "there were none, was the middle of the target's range."
    )

    @property
    def _teachers(self) -> int:
        return self._inputs.cut.number

    @property
    def _mu(self) -> float:
        return counts.mu_for(*self.promise[:2])

    def _plan(self, released: Sequence[CrowdLine]) -> Plan:
        """As of records of which there are as many as teachers."""
        return plan("sums", *self._wide, voters=self._teachers, classes=2, mu=self._mu)

    def _asked(self, made: Plan) -> np.ndarray:
        """The vectors of the public inputs that teachers are asked about."""
        return self._seen(made)[:ASKED]

    def _line(self, made: Plan, released: Sequence[CrowdLine]) -> Line:
        line = self._start(made)
        for one in released:
            assert isinstance(one.event, TeacherSums)
            line = learned(line, methods.values(one), one.event, self._asked(made))
        return line

    def question(self, public: PublicInputs, released: Sequence[CrowdLine]) -> CrowdRelease | None:
        """One sum of what teachers say."""
        if released:
            return None
        made = self._plan(released)
        return counts.teacher_sums_for(
            self._mu, self._teachers, self._asked(made).shape[1], made.scaling.length
        )

    def count(self, private: Part, event: CrowdRelease, released: Sequence[CrowdLine]) -> np.ndarray:
        """The sum of what teachers say."""
        made, by = self._plan(released), self.promise.by
        shards = partition.divide(private, self._teachers, key=self._inputs.partition_key, by=by)
        rows = (shards.of(teacher) for teacher in range(self._teachers))
        people = voters(private, GRID + 1, by=by)
        return taught(made.space, made.scaling, self._start(made), people, rows, self._asked(made))


def _told(released: Sequence[CrowdLine]) -> int:
    """The number of voters, as it was released."""
    return max(1, int(methods.values(released[0])[0, 0]))


def run(config: RunConfig) -> dict[str, Any]:
    """Make the run of a number; what is finished is not repeated."""
    _check(config)
    return methods.by_command(NAME if config.partition.teachers is None else TEACHERS, config)


def _check(config: RunConfig) -> None:
    """Refuse what a number has no use for."""
    data, said = config.data, f"--target {config.data.target} is a number"
    if data.private is None or data.label_column is not None:
        raise PateError(f"{said} of tables of your own: give --private and --public, and no --label-column")
    given = [flag for flag in config._of_teachers() if flag != "--teachers"]
    if config.who == "neighbours" or given:
        flag = given[0] if given else "--voters neighbours"
        raise PateError(
            f"{said}, which is learned by sums, or by --teachers 100 of linear ones: leave out {flag}"
        )
    if config.steps is not None or config.queries is not None or config.space is not None or data.function:
        raise PateError(
            f"{said}, whose steps, queries and space follow by rule: leave out --steps, --queries and --space"
        )
    if not isinstance(config.student, Auto | Linear):
        raise PateError(f"{said}, and its student is linear: leave out --student.method")
    if data.classes is not None or data.positive is not None:
        raise PateError(f"{said}, and has no classes: leave out --classes and --positive")
