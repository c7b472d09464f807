"""What every kind of run answers for itself: a command asks this table, and never which kind a run is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.runs import budget, labels, methods, results, stages
from pate_jax.runs.baselines import training
from pate_jax.runs.crowds import stages as crowds
from pate_jax.runs.directory import Kind, RunDirectory, kind_of
from pate_jax.student.settings import StudentConfig

Answer = Callable[[RunDirectory], dict[str, Any]]


class Answers(NamedTuple):
    """What one kind of run answers."""

    tell: Answer  # writes both pages; the results, with the statement among them
    tell_owner: Answer  # writes the owner's page alone
    summary: Answer  # what `pate budget` shows
    account: Callable[[RunDirectory, float | None], CrowdStatement] | None = None  # None: query by query
    teach: Callable[[RunDirectory, StudentConfig], dict[str, Any]] | None = None  # None: by queries
    words: Callable[[dict[str, Any]], str] | None = None  # for a terminal; None: those of most runs


_TEACHERS = Answers(stages.tell, stages.tell_owner, budget.summary)
_OF_KIND: dict[Kind, Answers] = {
    "crowd": Answers(results.tell_plain, results.tell_owner, crowds.summary, crowds.account, crowds.teach),
    "training": Answers(training.tell, training.tell_owner, training.summary, words=training.told),
    "method": Answers(results.tell_plain, results.tell_owner, methods.summary, methods.account),
    "labels": Answers(labels.tell, labels.tell, labels.summary),
}


def of(run: RunDirectory) -> Answers:
    """The answers of a run's kind: those of teachers, unless it has its own."""
    return _OF_KIND.get(kind_of(run), _TEACHERS)
