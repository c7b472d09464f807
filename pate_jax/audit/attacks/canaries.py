"""The audit of a run's pipeline with canaries: how much epsilon is at least, beside what is claimed.

Canaries are records of an attacker's choosing whose presence coins decide. What the pipeline would publish
about them is looked at, without their coins, and then counted how often guesses were right. No private record
is read and no canary enters the run: they play in a copy of its pipeline in memory, with its public side, its
noise and keys of their own. Derived in docs/proofs/attacks.md, section 8.

Canaries of sums each have their whole length on one direction of one class.
A coin decides on which side of zero. The two contents are as far apart as any two that a voter may have, and
no two canaries share an entry of the table, so nothing but the noise hides a coin: no voter is more
vulnerable. Their coordinates are far too large, and the pipeline has to bound them. They are the only voters,
which a guarantee for all data sets must allow. Several runs with other coins each are one data set with all
their canaries, since no canary is in two of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from pate_jax import crowd as voting
from pate_jax import ensemble
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import canary_bounds, mechanism, membership, steps_canaries, teacher_canaries
from pate_jax.audit.attacks.attack import Attack, Flags, Way, answering, of_counts, of_list
from pate_jax.audit.attacks.canary_bounds import Lower
from pate_jax.audit.attacks.shadows import Pipeline
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.audit.attacks.teacher_canaries import Labeller
from pate_jax.crowd import classifier
from pate_jax.crowd.classifier import Pool
from pate_jax.crowd.vectors import Scaling, vectors
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount
from pate_jax.runs import budget, ledger
from pate_jax.runs import inputs as run_inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.system.tasks import HERE, Engine

RUNS = 16  # at least, in which the canaries play
_FAR = 1 << 30  # coordinate of a canary, far beyond what a vector may hold


class Played(NamedTuple):
    """What each run shows of each canary, and its coin."""

    coins: Bool[np.ndarray, "run canary"]
    table: Float[np.ndarray, "run canary"]
    student: Float[np.ndarray, "run canary"]


def voters(scaling: Scaling, pool: Pool, release: ClassSums, number: HeadCount, most: int) -> Sums:
    """The pipeline with both contents of at most so many canaries, and a last record that never votes."""
    directions, height = len(scaling.weights), release.shape[0]
    some = np.arange(min(most, height * directions))
    coordinates = np.zeros((2 * len(some) + 1, directions), np.int32)
    coordinates[some, some // height] = _FAR
    coordinates[len(some) + some, some // height] = -_FAR
    rows = some % height if height > 1 else np.ones_like(some)
    labels = np.concatenate([rows, rows, [0]])
    return Sums(voting.vectors(scaling, coordinates), labels, pool, release, number, reference=1)


def played(
    pipeline: Pipeline,
    runs: int,
    *,
    coins: np.random.Generator,
    key: Callable[[], jax.Array] = noise.fresh_key,
    engine: Engine = HERE,
) -> Played:
    """So many runs, each with coins and noise of its own."""
    half = pipeline.records // 2
    tossed = coins.random((runs, half)) < 0.5
    seen = steps_canaries.games(pipeline, tossed, key, engine)
    table = np.stack([one.table for one in seen if one.table is not None])
    logits = membership.logit(np.stack([one.confidence for one in seen]))
    return Played(tossed, table[:, :half], logits[:, :half] - logits[:, half:])


def bounds(seen: Played, honest: Sums, delta: float) -> list[Lower]:
    """What epsilon is at least, by three scores that are functions of what was published.

    `table`: the product of the canary's own vector with the noisy table. `student`: how much more the student
    believes its label at the one input than at the other, above other runs. `difference`: the first of two
    runs, which cancels noise that both have in common.
    """
    other = np.arange(len(seen.table)) ^ 1
    scores = {
        "table": seen.table,
        "student": seen.student - seen.student.mean(0),
        "difference": seen.table - seen.table[other],
    }
    flat = {name: values.ravel() for name, values in scores.items()}
    gaussian = honest.release.family == "rounded_gaussian"
    return canary_bounds.one_run(flat, seen.coins.ravel(), claim(honest), delta, gaussian)


def claim(honest: Sums) -> canary_bounds.Claim:
    """What the releases claim for a voter whose contents change, at every delta."""
    return lambda delta: counts.epsilon((honest.release, honest.number), delta, change="changed")


def game(canaries: int, records: int) -> int:
    """How many runs make so many canaries if a run has these: an even number.

    >>> game(20_000, 1250), game(1000, 7), game(10, 5000)
    (16, 144, 16)
    """
    return max(RUNS, -(-canaries // records // 2) * 2)


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
    """Why canaries cannot play in the pipeline of a run of teachers: linear ones can."""
    settings = run.record.read()
    fits = "data" in settings and settings.teacher.closed_form
    return of_list(run) or of_counts(run) or _missing(run, fits)


def no_sums(run: RunDirectory) -> str | None:
    """Why canaries cannot play in a crowd's pipeline: class sums can."""
    return _missing(run, run.record.read().crowd.voters == "sums")


def _missing(run: RunDirectory, fits: bool) -> str | None:
    """What is missing: a pipeline that fits, or a part of the installation."""
    if fits:
        return canary_bounds.missing()
    return (
        f"{run.root} is a run neither of class sums nor of linear teachers (--net linear), the "
        "only pipelines that canaries are planted in: --only mechanism audits the noise of every run"
    )


def _enough(flags: Flags) -> int:
    """As many canaries as asked for."""
    if flags.canaries < _LEAST:
        raise PateError(f"canaries={flags.canaries} must be at least {_LEAST}; thousands show something")
    return flags.canaries


def of_sums(run: RunDirectory, flags: Flags) -> Bounds:
    """All canaries in one data set, over several runs."""
    canaries = _enough(flags)
    opened = crowd_inputs.opened(run, tolerant=True)
    if steps.planned(run) > 1:
        return of_steps(opened, releases(run)[1], canaries, flags.engine)
    made = planted(opened, *releases(run), canaries)
    runs = game(canaries, made.records // 2)
    seen = played(made, runs, coins=_coins(), engine=flags.engine)
    return Bounds(seen.coins.size, runs, bounds(seen, made, opened.choice.delta))


def of_steps(opened: Crowd, number: HeadCount, canaries: int, engine: Engine = HERE) -> Bounds:
    """The same where sums take several steps."""
    made = steps_canaries.planted(
        opened.plan,
        opened.pool,
        opened.at(2).pool,
        number,
        voters=opened.counted,
        most=max(1, canaries // RUNS),
        by_user=opened.choice.by == "user",
    )
    runs = game(canaries, made.records // 2)
    seen = steps_canaries.played(made, runs, coins=_coins(), engine=engine)
    return Bounds(seen.coins.size, runs, steps_canaries.bounds(seen, made, opened.choice.delta))


def releases(run: RunDirectory) -> tuple[ClassSums, HeadCount]:
    """What a run of sums has released: the table and the number of voters."""
    lines = [line.event for line in ledger.releases(run.ledger)]
    table = next((one for one in lines if isinstance(one, ClassSums)), None)
    number = next((one for one in lines if isinstance(one, HeadCount)), None)
    if table is None or number is None:
        raise PateError(f"{run.ledger} shows no sums yet: repeat the command that made the run")
    return table, number


def planted(opened: Crowd, table: ClassSums, number: HeadCount, canaries: int) -> Sums:
    """The pipeline of a run with canaries for voters, as many as several runs of it need."""
    scaling = opened.plan.scaling
    pool = classifier.measured(vectors(scaling, opened.pool), table.length)
    return voters(scaling, pool, table, number, max(1, canaries // RUNS))


def of_teachers(run: RunDirectory, flags: Flags) -> Bounds:
    """One canary in a run, over many runs."""
    canaries = _enough(flags)
    inputs, (asked, event) = run_inputs.open(run, tolerant=True), answering(run)
    pool = inputs.seen_of(inputs.dataset.public)
    race = mechanism.race(asked, event.teachers, event.classes)[0][0]
    key = secrets.token_bytes(32)
    pair = teacher_canaries.votes(labeller(inputs), pool, race, event.asked, key=key)
    seen = teacher_canaries.rates(asked, pair, canaries, coins=_coins(), engine=flags.engine)
    worst = WorstCase(asked, [event.teachers], event.classes)

    def claim(delta: float) -> float:
        return float(worst.figure(np.array([event.asked]), delta).epsilon.epsilon)

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


ATTACK = Attack("canaries", {"teachers": Way(of_teachers, unfit), "crowd": Way(of_sums, no_sums)})
