"""Write an agreement and its questions from the cards of all parties; no private record is read for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pate_jax.accounting.parties import Audience
from pate_jax.errors import PateError
from pate_jax.models.names import Space
from pate_jax.parties import agreement as agreements
from pate_jax.parties.agreement import Agreement
from pate_jax.runs import public_part
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import questions as asking
from pate_jax.runs.parties import terms
from pate_jax.runs.parties.join import check_own, questions_beside
from pate_jax.runs.parties.questions import Questions
from pate_jax.runs.parties.terms import Terms
from pate_jax.runs.settings import CrowdChoice, DataChoice, check_queries
from pate_jax.student.settings import Selection


@dataclass(frozen=True)
class Asked:
    """What is asked."""

    queries: int | None = None
    """Number of public inputs; unset: 100 of teachers, of neighbours as many as the noise allows."""
    selection: Selection = "first"
    """Of teachers, which: the first, random ones, or one for each of as many clusters."""
    space: Space | None = None
    """Of neighbours and sums: the space that sees the records; unset: by the kind of the inputs."""
    net: str | None = None
    """Of teachers: the net that every party trains; unset: by the kind of the inputs."""
    epochs: int | None = None
    """Of teachers: passes over a teacher's own records; unset: by the net."""

    def __post_init__(self) -> None:
        if self.queries is not None:
            check_queries(self.queries)
        if ":" in (self.net or ""):
            raise PateError(
                f"net={self.net!r} is code of your own, which the other parties would have to run: name a "
                "net of this library"
            )


QUERIES = 100


def write(
    file: Path, name: str, members: Sequence[Path], data: DataChoice, chosen: Terms, asked: Asked
) -> tuple[Agreement, tuple[Audience, ...]]:
    """Write an agreement with the least noise for its epsilon, and the questions beside it."""
    check_own(data)
    for path in (file, questions_beside(file)):
        if path.exists():
            raise PateError(f"{path} exists, and others may have it already: choose another name")
    shown = [terms.read(path) for path in members]
    crowd = crowd_inputs.made(RunDirectory(file.parent), data, _choice(chosen, asked))
    dataset = crowd.dataset
    if chosen.voters == "teachers":
        found = asking.of_teachers(dataset, asked.queries or QUERIES, asked.selection)
    else:
        found = asking.of_crowd(crowd, sum(one.voters for one in shown), terms.mu(chosen))
    training = {"net": asked.net, "epochs": asked.epochs, "space": asked.space}
    made = terms.agreed(
        name,
        chosen,
        shown,
        found,
        classes=dataset.classes,
        pool=public_part.digest(dataset),
        training={key: value for key, value in training.items() if value is not None},
    )
    found = _noisy(found, made)
    made = replace(made, query_list=asking.save(questions_beside(file), found, dataset))
    audiences = terms.audiences(made, found)
    agreements.write(file, made)
    return made, audiences


def _choice(chosen: Terms, asked: Asked) -> CrowdChoice:
    if chosen.voters == "teachers":
        return CrowdChoice("sums")  # of which only the data are read
    queries = asked.queries if chosen.voters == "neighbours" else None
    by: Literal["record", "user"] = "user" if chosen.unit == "user" else "record"
    return CrowdChoice(
        chosen.voters,
        by,
        epsilon=chosen.epsilon,
        delta=chosen.delta,
        queries=queries,
        space=asked.space,
    )


def _noisy(found: Questions, made: Agreement) -> Questions:
    """The questions whose plan holds the noise of all parties that may be absent or not."""
    noise = terms.vote_of(made, found).noise
    return asking.with_noise(found, noise.together(noise.parties - noise.absent).scale)
