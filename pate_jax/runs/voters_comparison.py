"""All kinds of voters on a public pool: crowds in one round and in two, and linear teachers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from pate_jax.accounting.planning import Option
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.step_choice import WIDEST
from pate_jax.data import Dataset
from pate_jax.errors import PateError
from pate_jax.runs import teacher_rehearsal
from pate_jax.runs.crowds import forecast
from pate_jax.runs.crowds.forecast import Voters
from pate_jax.system.tasks import HERE, Engine

TEACHERS = "linear teachers"


class Rehearsed(NamedTuple):
    """What each kind of voters is expected to bring, and which is best."""

    crowds: dict[Voters, Expected]
    teachers: teacher_rehearsal.Teachers | None
    refused: str | None  # why no teachers were rehearsed

    @property
    def crowd(self) -> Voters:
        """The best crowd."""
        return forecast.best(self.crowds)

    @property
    def of_teachers(self) -> Option | None:
        """How teachers are asked, if a run that may choose takes them."""
        if self.teachers is None:
            return None
        every = {**self.crowds, "teachers": self.teachers.expected}
        return self.teachers.option if forecast.best(every) == "teachers" else None

    @property
    def best(self) -> str:
        """The best voters of all, by name."""
        return TEACHERS if self.of_teachers else self.crowd

    @property
    def expected(self) -> dict[str, Expected]:
        """What is expected of each, by name."""
        crowds = {str(one): expected for one, expected in self.crowds.items()}
        return crowds | ({} if self.teachers is None else {TEACHERS: self.teachers.expected})

    def flags(self, epsilon: float) -> str:
        """What makes a run of the best voters.

        >>> Rehearsed({"sums": Expected(0.8, 0.7, 0.9, 0.5, 900)}, None, None).flags(0.5)
        '--voters sums --epsilon 0.5'
        """
        if self.of_teachers is not None:
            return f"--voters teachers --epsilon {epsilon:g}"
        return f"--voters {self.crowd} --epsilon {epsilon:g}"


def rehearsed(
    dataset: Dataset,
    *,
    records: int,
    epsilon: float,
    delta: float,
    own: bool = True,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
    engine: Engine = HERE,
) -> Rehearsed:
    """All kinds of voters on the public part of a data set, judged by the same labels: its `own`, if any."""
    wide = forecast.learned(dataset, WIDEST)
    labels = forecast.judges(dataset, wide, own=own)
    wish: dict[str, Any] = {"records": records, "epsilon": epsilon, "delta": delta, "metric": metric}
    crowds = Rehearsal(partial(forecast.expected, dataset, wide, labels, **wish))
    teachers = Rehearsal(partial(teacher_rehearsal.rehearse, dataset, labels, **wish), refusable=True)
    found = dict(engine.each(one_rehearsal, [crowds, teachers]))
    refused = found[1] if isinstance(found[1], str) else None
    return Rehearsed(found[0], None if refused else found[1], refused)


class Rehearsal(NamedTuple):
    """Some voters to be rehearsed on public inputs."""

    made: Callable[[], Any]
    refusable: bool = False  # whether they are no candidates, where they are refused


def one_rehearsal(one: Rehearsal) -> Any:
    """What these voters bring, or the sentence why they are no candidates."""
    try:
        return one.made()
    except PateError as error:
        if not one.refusable:
            raise
        return str(error)  # the user reads why
