"""What all methods share, and what several of them need, which is made once."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Float, Int

from pate_jax import aggregate, ensemble, student, voting
from pate_jax.accounting.inputs import check_delta
from pate_jax.aggregate import Answers
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.step_choice import WIDEST
from pate_jax.data import Dataset, Part, partition, relation
from pate_jax.data.dataset import AS_STORED
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.models.spaces import Learned
from pate_jax.runs import queries
from pate_jax.runs.crowds import forecast
from pate_jax.runs.inputs import seen_by, teachers_net
from pate_jax.student import Auto, PublicInputs, Ridge, StudentConfig
from pate_jax.system import headcount, storage

_ACCURACY = Metric()
_LINEAR = ensemble.TeacherConfig(net="linear")
MOST_QUERIES = 2000  # that teachers are asked, as in a run
_Made = TypeVar("_Made")


@dataclass
class Clock:
    """CPU seconds that went into what several methods share."""

    seconds: float = 0.0


def _timed(make: Callable[[Ground], _Made]) -> Callable[[Ground], _Made]:
    """The same, with its time on the ground's clock; what it needs of the others counts once."""

    def made(ground: Ground) -> _Made:
        began = time.process_time() - ground.clock.seconds
        found = make(ground)
        ground.clock.seconds = time.process_time() - began
        return found

    return made


class Entries(NamedTuple):
    """All parts as a linear net sees them, and that net behind its space."""

    model: Model
    private: Float[np.ndarray, "record entries"]
    asked: Float[np.ndarray, "query entries"]
    tested: Float[np.ndarray, "test entries"]


class Draw(NamedTuple):
    """At which epsilon a method learns, and which draw of shards, noise and nets it is."""

    epsilon: float
    seed: int = 0

    def number(self, purpose: str) -> int:
        """A seed of its own for each purpose.

        >>> Draw(1.0).number("noise") == Draw(1.0, 1).number("noise")
        False
        """
        text = f"{purpose}\n{self.epsilon!r}\n{self.seed}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")

    def noise_key(self, purpose: str) -> jax.Array:
        """The key of noise; it can be guessed, so what it hides may not be released."""
        key: jax.Array = aggregate.seeded_key(self.number(purpose))
        return key


@dataclass(frozen=True)
class Ground:
    """The same private records, public pool, test rows and delta for every method."""

    dataset: Dataset
    delta: float = 1e-5
    metric: Metric = _ACCURACY  # by which methods are compared
    by_group: str | None = None  # column by whose values they are judged too
    _votes: dict[tuple[int, int], Int[np.ndarray, "query class"]] = field(
        default_factory=dict, repr=False, compare=False
    )
    clock: Clock = field(default_factory=Clock, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if self.dataset.test is None or self.dataset.test.labels is None:
            raise PateError(
                f"{self.dataset.name} has no labelled test part to judge methods on: give --test, or divide "
                "one file by `pate split`"
            )

    @cached_property
    def digest(self) -> str:
        """A digest of all parts."""
        parts = (self.dataset.private, self.dataset.public, self.test)
        each = [storage.digest(part.inputs, part.labels, part.features) for part in parts]
        return hashlib.sha256("".join(each).encode()).hexdigest()[:32]

    @property
    def test(self) -> Part:
        """The rows that every method is judged on."""
        if self.dataset.test is None:
            raise PateError(f"{self.dataset.name} has no test part: give --test")
        return self.dataset.test

    @property
    def truth(self) -> Int[np.ndarray, " test"]:
        """Their labels."""
        return np.asarray(self.test.labels)

    @property
    def covers(self) -> str:
        """Whom every epsilon here covers, in words: one record, never all records of a user.

        Shards follow from ids, so where ids are row numbers teachers cover no record that is left out.
        """
        if relation.of(self.dataset, "record") == "contents":
            return "one record whose contents change"
        return "one record that is changed or left out"

    @property
    def majority(self) -> float:
        """The share of test rows of their most frequent class, or what it reaches by another metric.

        Of numbers it is the R2 of a constant.
        """
        return 0.0 if self.dataset.target is not None else self.metric.of_constant(self.truth)

    @property
    def labels(self) -> Int[np.ndarray, " record"]:
        """Of the private records."""
        return np.asarray(self.dataset.private.labels)

    @property
    def records(self) -> int:
        """How many private records there are, rounded down to two digits as in a run."""
        return headcount.coarse(len(self.dataset.private.inputs))

    @cached_property
    @_timed
    def wide(self) -> Learned:
        """The space in which records vote by themselves, and the pool in it."""
        return forecast.learned(self.dataset, WIDEST)

    @cached_property
    def seen(self) -> Dataset:
        """The data set as that space sees it."""
        return self.dataset.seen_in("encoder") if self.dataset.public.features is not None else self.dataset

    @cached_property
    @_timed
    def places(self) -> Int[np.ndarray, "record directions"]:
        """Where the private records lie in that space."""
        return np.asarray(self.wide.space.coordinates(self.seen.private.inputs))

    @cached_property
    @_timed
    def tested(self) -> Int[np.ndarray, "test directions"]:
        """Where the test rows lie in it."""
        test = self.seen.test or self.test
        return np.asarray(self.wide.space.coordinates(test.inputs))

    @cached_property
    def different(self) -> Int[np.ndarray, " query"]:
        """Rows of the public pool that teachers may be asked about, each input once."""
        return queries.different(self.dataset.public, 1, [])[:MOST_QUERIES]

    @cached_property
    @_timed
    def entries(self) -> Entries:
        """What linear teachers learn from, are asked about and, as a head, are tested on."""
        net = teachers_net(_LINEAR, self.dataset, self.wide.space)
        seen = seen_by(_LINEAR, self.dataset)
        if net.front is None:
            raise PateError(f"net {net.description} of linear teachers has no space")
        test = seen.test or self.test
        parts = (seen.private.inputs, seen.public.inputs[self.different], test.inputs)
        return Entries(net._replace(front=None), *(np.asarray(net.front(inputs)) for inputs in parts))

    def votes(self, teachers: int, seed: int) -> Int[np.ndarray, "query class"]:
        """How so many linear teachers vote on the inputs that they may be asked about."""
        if (teachers, seed) not in self._votes:
            private, seen = self.dataset.private, self.entries
            shards = partition.divide(private, teachers, key=partition.seeded_key(seed))
            made = ensemble.fit(
                seen.model, AS_STORED, seen.private, self.labels, shards,
                key=jax.random.key(seed), config=_LINEAR,
            )  # fmt: skip
            labels = ensemble.predict(seen.model, AS_STORED, made, seen.asked)
            self._votes[teachers, seed] = np.asarray(voting.histogram(labels, self.dataset.classes))
        return self._votes[teachers, seed]

    def taught(
        self,
        answers: Answers,
        rows: Int[np.ndarray, " query"],
        key: int,
    ) -> tuple[Float[np.ndarray, "test classes"], str]:
        """What a student of these answers says of the test rows, and its method.

        Of tables it is chosen as in a run. Of images it is `ridge`: a run compares it with `fixmatch`, which
        takes some ten times as long as all else that a method does.
        """
        known, stream = PublicInputs.of(self.dataset, first=rows), jax.random.key(key)
        config: StudentConfig = Ridge() if self.dataset.kind == "image" else Auto()
        chosen = student.choose(stream, known, answers, config)
        learned = student.fit(stream, known, answers, chosen.config)
        return np.asarray(learned(self.test.inputs)), chosen.config.method
