"""A whole choice: every candidate made and scored in silence, and the best one published.

What is published of the best candidate is what it has released already. It is never made again.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.errors import PateError
from pate_jax.runs import registration
from pate_jax.runs.crowds import stages, steps
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.tune import candidates
from pate_jax.runs.tune.candidates import Choice, Place
from pate_jax.runs.tune.settings import TuneConfig
from pate_jax.system import devices, progress
from pate_jax.system.tasks import HERE, Engine


def run(config: TuneConfig, engine: Engine = HERE) -> dict[str, Any]:
    """Charge, make and score all candidates, and publish the best; what is finished is not repeated."""
    if devices.processes() > 1:
        raise PateError(f"a choice of settings runs in one process, not in {devices.processes()}")
    run = RunDirectory(config.directory)
    with run.writing():
        choice = candidates.begin(run, config)
        for line in said(config):
            progress.say(line)
        with progress.quiet():
            there = choice if engine is HERE else run.root
            dict(engine.each(one_candidate, [Candidate(there, number) for number in choice.numbers]))
            places = [Place(run.root, number) for number in choice.numbers]
            return publish(choice, candidates.best([score(place) for place in places]))


class Candidate(NamedTuple):
    """A candidate to be made: of a choice that is open here, or of one that a worker opens."""

    choice: Choice | Path
    number: int


def one_candidate(one: Candidate) -> None:
    """Make a candidate, in its own folder."""
    choice = one.choice if isinstance(one.choice, Choice) else _opened(one.choice)
    with progress.quiet():
        candidates.make(choice, one.number)


@lru_cache(maxsize=1)
def _opened(root: Path) -> Choice:
    run = RunDirectory(root)
    return Choice(run, open_data(run.record.read().data))


def score(place: Place) -> int:
    """The noisy score of a candidate: how many held-out voters agree with its student."""
    return steps.shown(place).outcomes()[0]


def publish(choice: Choice, number: int) -> dict[str, Any]:
    """Write the statement, the release and the pages of the best candidate, from what it has released."""
    place = Place(choice.run.root, number)
    choice.run.record.agree("chosen", {"number": number})
    stages.account(place, choice.delta)
    stages.teach(place, choice.setting(number).student, choice.crowd(number))
    return stages.tell(place) | registration.shown(choice.run)


def said(config: TuneConfig) -> list[str]:
    """What the user should know before the first candidate; it shows nothing that is drawn.

    >>> from pate_jax.runs.settings import DataChoice
    >>> from pate_jax.runs.tune.settings import Setting
    >>> both = (Setting("sums"), Setting("neighbours"))
    >>> said(TuneConfig(DataChoice(), both, each_once=True))[0]
    'Each candidate may cost epsilon 0.6841 by itself, so that the whole choice costs 1.'
    """
    one = candidates.epsilon_of_one(config.tuned, config.delta)
    lines = [
        f"Each candidate may cost epsilon {one:.4f} by itself, so that the whole choice costs "
        f"{config.epsilon:g}."
    ]
    lines.append(
        "Free choices come first: the student of noisy answers is chosen without a cost (--student.method "
        "auto), and `pate plan` rehearses voters on public inputs."
    )
    if not config.each_once:
        lines.append(
            f"About {config.candidates:g} candidates are tried. Their number is secret, and how long this "
            "takes would tell it: start it where nobody who reads the result sees when it ends."
        )
    return lines
