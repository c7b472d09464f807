"""The comparison of students of a run's sums: when there is one, and what it has shown.

All answers of sums share one noise, so no answer can judge a student that learned from the others. Where the
inputs are images, a student may be right more often than the classifier of the sums, or less. So one voter in
ten votes in no table, and they say, with noise, how many of them agree with each student. What follows from
that reads the released numbers alone: another student is taken if it is ahead of the classifier by more than
the noise between the two, and else the classifier, which copies nothing.
"""

from __future__ import annotations

from typing import NamedTuple, cast

from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Comparison
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.student import Auto, StudentConfig, with_method
from pate_jax.student.settings import Settings
from pate_jax.system import devices, progress

FIRST, RIVALS = "linear", ("supervised", "fixmatch")


def rivals(config: StudentConfig, crowd: Crowd) -> list[Settings]:
    """How the students are trained that a crowd's classifier is compared with, if its voters are sums.

    There are none where the user names a method, for tables and vectors, for images that this package draws,
    for an encoder of the owner's, over several processes, and where the owner does not declare that
    ids stay with their records, since others may be held out by them. Nothing of private records is read.
    """
    dataset = crowd.dataset
    image = dataset.kind == "image" and not dataset.synthetic and crowd.kind != "encoder"
    if not isinstance(config, Auto) or not image or devices.processes() > 1:
        return []
    if not crowd.declared:
        progress.say(
            "students are not compared, since that holds out one voter in ten by its id: pass "
            "--ids-are-stable if each record (or user) keeps its id when others come or go"
        )
        return []
    return [with_method(config, method).resolved(image=True, whole=True) for method in RIVALS]


def methods(run: RunDirectory) -> list[str]:
    """Of the students that are compared, the classifier's first."""
    return [FIRST, *run.record.read().rivals]


def taken(run: RunDirectory) -> str:
    """The method with which the most held-out voters agree, as far as the released numbers tell."""
    found = steps.shown(run)
    if not found.comparisons:
        raise PateError(f"{run.ledger} shows no comparison of students yet: repeat the command of the run")
    return ahead(methods(run), found.leads(), _between_two(found))


def ahead(names: list[str], leads: list[float], noise: float) -> str:
    """The student with the most voters if it leads the first by more than `noise`, else the first.

    >>> ahead(["linear", "fixmatch"], [-3.0, 3.0], noise=7.0), ahead(["linear", "fixmatch"], [-4.0, 4.0], 7.0)
    ('linear', 'fixmatch')
    """
    best = max(leads)
    return names[leads.index(best)] if best - leads[0] > noise else names[0]


def _between_two(found: steps.Shown) -> float:
    """The scale of the noise in the difference of two students, in voters."""
    (line,) = found.comparisons
    return cast(Comparison, line.event).between_two


class Compared(NamedTuple):
    """What a run's results say of a comparison."""

    leads: dict[str, float]  # by method: the share of those held out who agree with it, less the first's
    noise: float  # standard deviation of each
    voters: int  # about how many were held out


def told(run: RunDirectory) -> Compared:
    """What a run has released of its comparison."""
    found, some = steps.shown(run), steps.held_out(run)
    leads = found.leads()
    beyond = {name: (lead - leads[0]) / some for name, lead in zip(methods(run), leads, strict=True)}
    return Compared(beyond, _between_two(found) / some, some)
