"""The audit of a run's pipeline with canaries: how much epsilon is at least, beside what is claimed.

Canaries are records of an attacker's choosing whose presence coins decide. What the pipeline would publish
about them is looked at, without their coins, and then counted how often guesses were right. No private record
is read and no canary enters the run: they play in a copy of its pipeline in memory, with its public side, its
noise and keys of their own. Derived in docs/attacks.md, section 8.
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pate_jax import ensemble
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.audit.attacks import canary_bounds, mechanism, steps_canaries, sums_canaries, teacher_canaries
from pate_jax.audit.attacks.attack import Attack, Flags
from pate_jax.audit.attacks.canary_bounds import Lower
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.audit.attacks.teacher_canaries import Labeller
from pate_jax.crowd import classifier
from pate_jax.crowd.vectors import vectors
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import budget, ledger
from pate_jax.runs import inputs as run_inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs

_LEAST = 100  # canaries
_WIDE = (0.01, 0.05)  # deltas at which many runs are compared beside the run's own


class Bounds(NamedTuple):
    """What all scores and methods show."""

    canaries: int
    runs: int
    bounds: list[Lower]

    @property
    def holds(self) -> bool:
        """Whether the claim may be true."""
        return all(one.holds for one in self.bounds)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; no private record was read."""
        each = [one.to_dict() for one in self.bounds]
        return {"canaries": self.canaries, "runs": self.runs, "holds": self.holds, "bounds": each}

    def text(self) -> str:
        """For a terminal: the largest bound at each delta, and what breaks the claim."""
        lines = []
        shown = [one.delta for one in self.bounds if one.delta >= self.bounds[0].delta]
        for delta in dict.fromkeys(shown):
            best = max((one for one in self.bounds if one.delta == delta), key=lambda one: one.epsilon)
            lines.append(f"canaries: {self._sentence(best)}")
        broken = [one for one in self.bounds if not one.holds]
        if broken:
            lines.append(f"canaries: {self._alarm(max(broken, key=lambda one: one.certain))}")
        return "\n".join(lines)

    def _alarm(self, worst: Lower) -> str:
        return (
            f"epsilon is {worst.certain:.3g} at least at delta {worst.delta:g} (99.99% confidence; "
            f"`{worst.score}`). THIS IS MORE THAN THE {worst.claimed:.3g} THAT IS CLAIMED: publish "
            "nothing, and report this."
        )

    def _sentence(self, best: Lower) -> str:
        return (
            f"{self.canaries:,} canaries in {self.runs:,} runs of the pipeline show epsilon "
            f"{best.epsilon:.3g} at least at delta {best.delta:g} (95% confidence; {best.method}, "
            f"`{best.score}`); {best.claimed:.3g} is claimed."
        )


def unfit(run: RunDirectory) -> str | None:
    """Why canaries cannot play in a run's pipeline: class sums, or linear teachers, can."""
    if crowd_inputs.is_crowd(run):
        fits = run.record.read().crowd.voters == "sums"
    else:
        settings = run.record.read()
        if (reason := mechanism.unfit(run)) is not None:
            return reason
        fits = "data" in settings and settings.teacher.closed_form
    if fits:
        return canary_bounds.missing()
    return (
        f"{run.root} is a run neither of class sums nor of linear teachers (--net linear), the "
        "only pipelines that canaries are planted in: --only mechanism audits the noise of every run"
    )


def of_run(run: RunDirectory, flags: Flags) -> Bounds:
    """The bounds for a run, from as many canaries as asked for."""
    if flags.canaries < _LEAST:
        raise PateError(f"canaries={flags.canaries} must be at least {_LEAST}; thousands show something")
    if crowd_inputs.is_crowd(run):
        return of_sums(run, flags.canaries)
    return of_teachers(run, flags.canaries)


def of_sums(run: RunDirectory, canaries: int) -> Bounds:
    """All canaries in one data set, over several runs."""
    opened = crowd_inputs.opened(run, tolerant=True)
    if steps.planned(run) > 1:
        return of_steps(opened, releases(run)[1], canaries)
    made = planted(opened, *releases(run), canaries)
    runs = sums_canaries.game(canaries, made.records // 2)
    seen = sums_canaries.played(made, runs, coins=_coins())
    return Bounds(seen.coins.size, runs, sums_canaries.bounds(seen, made, opened.choice.delta))


def of_steps(opened: Crowd, number: HeadCount, canaries: int) -> Bounds:
    """The same where sums take several steps."""
    made = steps_canaries.planted(
        opened.plan,
        opened.pool,
        opened.at(2).pool,
        number,
        voters=opened.counted,
        most=max(1, canaries // sums_canaries.RUNS),
        by_user=opened.choice.by == "user",
    )
    runs = sums_canaries.game(canaries, made.records // 2)
    seen = steps_canaries.played(made, runs, coins=_coins())
    return Bounds(seen.coins.size, runs, steps_canaries.bounds(seen, made, opened.choice.delta))


def releases(run: RunDirectory) -> tuple[ClassSums, HeadCount]:
    """What a run of sums has released: the table and the number of voters."""
    lines = [line.release for line in ledger.releases(run.ledger)]
    table = next((one for one in lines if isinstance(one, ClassSums)), None)
    number = next((one for one in lines if isinstance(one, HeadCount)), None)
    if table is None or number is None:
        raise PateError(f"{run.ledger} shows no sums yet: repeat the command that made the run")
    return table, number


def planted(opened: Crowd, table: ClassSums, number: HeadCount, canaries: int) -> Sums:
    """The pipeline of a run with canaries for voters, as many as several runs of it need."""
    scaling = opened.plan.scaling
    pool = classifier.measured(vectors(scaling, opened.pool), table.length)
    return sums_canaries.voters(scaling, pool, table, number, max(1, canaries // sums_canaries.RUNS))


def of_teachers(run: RunDirectory, canaries: int) -> Bounds:
    """One canary in a run, over many runs."""
    inputs, line = run_inputs.open(run, tolerant=True), next(ledger.lines(run.ledger))
    if isinstance(line.mechanism, StableAnswers):
        raise PateError(unfit(run) or "no canary suits a list of stable answers")
    pool = inputs.seen_of(inputs.dataset.public)
    race = mechanism.race(line.mechanism, line.teachers, line.classes)[0][0]
    key = secrets.token_bytes(32)
    pair = teacher_canaries.votes(labeller(inputs), pool, race, line.asked, key=key)
    seen = teacher_canaries.rates(line.mechanism, pair, canaries, coins=_coins())
    worst = WorstCase(line.mechanism, [line.teachers], line.classes)

    def claim(delta: float) -> float:
        return float(worst.figure(np.array([line.asked]), delta).epsilon.epsilon)

    delta = budget.agreed_delta(run, None)
    return Bounds(canaries, canaries, canary_bounds.many_runs(seen, claim, (delta, *_WIDE)))


def labeller(inputs: Inputs) -> Labeller:
    """The run's own teachers on other records."""

    def labelled(part: Part, shards: Shards, asked: np.ndarray) -> np.ndarray:
        if part.labels is None:
            raise PateError("the planted records have no labels: give each its class")
        net, preprocessing = inputs.net, inputs.dataset.preprocessing
        fit = partial(ensemble.fit, net, preprocessing, part.inputs, part.labels, shards)
        trained = fit(key=inputs.teacher_key, config=inputs.teacher)
        return ensemble.predict(net, preprocessing, trained, asked)

    return labelled


def _coins() -> np.random.Generator:
    return np.random.default_rng(secrets.randbits(128))


ATTACK = Attack("canaries", unfit, of_run)
