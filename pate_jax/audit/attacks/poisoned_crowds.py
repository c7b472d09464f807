"""Bad voters in a crowd: their tables are taken out of the sum, and those of poisoned records put in.

The noise is added, so the noisy table moves by the same. A table is certified under the rule by which it was
read; what follows from the poisoned table, its rule among it, is measured beside.

How many bad voters cannot change a label follows from its lead.
A label is the class of the highest score, and with its rule held a score is linear in the table. A voter's
own table is bounded, whatever its records hold, so one voter whose contents change moves the difference of
two scores by a known `reach` at most. A lead of more than `k reach` is therefore left by k of them. Derived
in docs/proofs/attacks.md, section 4.

Everything here follows from the released table and public inputs. The rule is what the run computed from
that table as well: how much it believes each direction, or each query. It is held, and so is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from pate_jax.audit.attacks import poisoning
from pate_jax.audit.attacks.poisoned_teachers import QUICK, judged, of_student
from pate_jax.audit.attacks.poisoning import (
    POISONS,
    Marked,
    Placement,
    Poison,
    Targeted,
    Trial,
    Trigger,
    compared,
    numbers,
    poisoned,
)
from pate_jax.crowd import Voters, classifier, shares, tables, vectors
from pate_jax.crowd.classifier import Pool
from pate_jax.crowd.evidence import label_noise
from pate_jax.crowd.plan import Plan
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.runs import students as training
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.answers import soft
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.students import taught
from pate_jax.student import Linear, PublicInputs, Student, StudentConfig, sums

Table = Num[np.ndarray, "line entry"]
Scores = Float[np.ndarray, "query class"]
ANY = 1 << 40  # of a label that no voter can change
_ROUNDING = 1e-9  # of a quotient that is rounded down


class Rule(NamedTuple):
    """How scores follow from a table, and how far one changed voter moves the difference of two of them."""

    scores: Callable[[Table], Scores]
    reach: Float[np.ndarray, " query"]
    functional: Float[np.ndarray, "query entry"] | None = None  # of sums: times a class's sum, over length

    def withstood(self, noisy: Table) -> Int[np.ndarray, " query"]:
        """How many bad voters cannot change each label of this table."""
        return withstood(self.scores(noisy), self.reach)


def withstood(scores: Scores, reach: Float[np.ndarray, " query"]) -> Int[np.ndarray, " query"]:
    """How many bad voters cannot change each highest score; -1 where there is none, but a tie.

    >>> withstood(np.array([[9.0, 1, 0], [5, 4, 1], [5, 5, 0], [8, 4, 1]]), np.full(4, 2.0)).tolist()
    [3, 0, -1, 1]
    """
    ranked = np.sort(scores, axis=1)
    lead = ranked[:, -1] - ranked[:, -2]
    times = np.divide(lead * (1 - _ROUNDING), reach, out=np.full(len(lead), float(ANY)), where=reach > 0)
    found = np.ceil(np.minimum(times, ANY)).astype(np.int64) - 1
    return np.where(lead > 0, found, -1)


def of_plan(
    plan: Plan, noisy: Table, pool: Int[np.ndarray, "pool directions"], voters: int, *, by_user: bool
) -> Rule:
    """The rule of a round: of the pool where voters gave sums, of the queries where they are neighbours.

    `plan` holds the release, `pool` the pool's coordinates and `voters` the public number of voters.
    """
    if isinstance(plan.release, NeighbourCounts):
        return of_counts(noisy, plan.release)
    seen = vectors(plan.scaling, pool[:, : len(plan.space.variances)])
    known = classifier.measured(seen, plan.release.length)
    return of_sums(noisy, plan.release, known, voters, seen, by_user=by_user)


def of_counts(noisy: Table, release: NeighbourCounts) -> Rule:
    """The rule of neighbours' counts: what a query has is mixed with what all have.

    A voter has one vote at a query at most. If it changes, the leader's count may fall by 1 and a rival's
    rise by 1.
    """
    held = shares.held(noisy, release)
    return Rule(held.scores, np.full(release.queries, 2 * held.kept / held.usual))


def of_sums(
    noisy: Table,
    release: ClassSums,
    pool: Pool,
    voters: int,
    seen: Int[np.ndarray, "query entries"],
    *,
    by_user: bool,
) -> Rule:
    """The rule of class sums, whose scores are `h(x)` times the sum of each class.

    A record adds a vector no longer than `length` to one class. If it changes, the difference of two classes
    moves by twice that at most, along `h(x)`. A user's table of that length may have opposite parts in two
    classes, whose difference is `sqrt(2)` times as long.
    """
    model = classifier.of_pool(noisy, release, pool, voters)
    functional = _functional(model, release, pool, voters, seen)

    def scores(table: Table) -> Scores:
        return np.asarray(functional @ classifier.contrasts(table / release.length).T)

    longest = math.sqrt(2) if by_user and release.classes > 2 else 1.0
    return Rule(scores, 2 * longest * np.linalg.norm(functional, axis=1), functional)


def _functional(
    model: classifier.Linear,
    release: ClassSums,
    pool: Pool,
    voters: int,
    seen: Int[np.ndarray, "query entries"],
) -> Float[np.ndarray, "query entries"]:
    """The vector h(x) of each input, whose product with a class's sum over `length` is its score.

    How much each direction and the constant are believed is read from what the known noise does to weights.
    """
    inner, constant = len(pool.middle), pool.constant
    scale = label_noise(release.classes, release.sigma / release.length)
    if scale == 0 or model.noise.shape[1] < inner:
        raise PateError("the classifier does not say how it reads its sums: fit it with crowd.classifier")
    each = (pool.axes * model.noise[:inner, :inner]).sum(0) / scale
    along = (seen[:, :inner] / release.length - pool.middle) @ pool.axes
    found = (along * each) @ pool.axes.T
    if not constant:
        return np.asarray(found)
    trust = model.noise[-1, -1] * voters * constant**2 / scale
    last = trust / constant * (1 / voters - found @ pool.middle)
    return np.concatenate([found, last[:, None]], axis=1)


def gains(
    told: Float[np.ndarray, " voter"], labels: Int[np.ndarray, " voter"], top: int, rival: int
) -> Float[np.ndarray, " voter"]:
    """How far each voter brings the rival nearer to the top class, if it takes the label that does so best.

    `told` is how far a voter's vector moves the score of its own class.

    >>> gains(np.array([0.5, 0.5, 0.5, -0.5]), np.array([0, 1, 2, 1]), top=0, rival=1).tolist()
    [1.0, 0.0, 0.5, 1.0]
    """
    side = (labels == top).astype(np.int64) - (labels == rival)
    return np.asarray(told * side + np.abs(told))


def fewest(lead: float, each: Float[np.ndarray, " voter"]) -> float:
    """How few of these gains reach a lead; infinity where all together do not.

    >>> fewest(3.0, np.array([1.0, 0.5, 2.0])), fewest(9.0, np.ones(3))
    (2.0, inf)
    """
    total = np.cumsum(np.sort(each)[::-1])
    return float(np.searchsorted(total, lead) + 1) if len(total) and total[-1] >= lead else float("inf")


TARGETED = 50  # answers that are attacked one by one
_ANYWHERE: Placement = "spread"  # a crowd has no shards


@dataclass(frozen=True)
class PoisonedCrowd:
    """A crowd's run of one table whose voters may be bad."""

    crowd: Crowd

    @cached_property
    def released(self) -> Student | None:
        """The run's student, if it has one."""
        run = self.crowd.run
        return Student.load(run.student) if run.results.exists() else None

    @cached_property
    def noisy(self) -> Table:
        """The table that was released."""
        return steps.load_noisy(self.crowd.run)[1]

    @cached_property
    def plan(self) -> Plan:
        """The plan, with the release that the ledger shows."""
        release, _ = steps.load_noisy(self.crowd.run)
        return self.crowd.plan._replace(release=release)

    @cached_property
    def rule(self) -> Rule:
        """How labels follow from the table."""
        weight, by_user = self.crowd.weight(self.noisy), self.people.users is not None
        return of_plan(self.plan, self.noisy, self.crowd.pool, weight, by_user=by_user)

    @cached_property
    def withstood(self) -> Int[np.ndarray, " query"]:
        """How many bad voters each label withstands."""
        return self.rule.withstood(self.noisy)

    @cached_property
    def trigger(self) -> Trigger:
        """The mark of a backdoor, as voters see it."""
        return Trigger.of(self.crowd.seen.public.inputs)

    @cached_property
    def people(self) -> Voters:
        """Who votes in the table."""
        return self.crowd.people

    @cached_property
    def of(self) -> Int[np.ndarray, " record"]:
        """The voter of each record."""
        people = self.people
        return np.arange(len(people.labels)) if people.users is None else people.users

    def trials(self) -> Iterator[Trial]:
        """All trials, the smaller ones first."""
        names = np.unique(self.of)
        word = int.from_bytes(self.crowd.run.secret.derive("poisoning")[:4], "big")
        order = np.random.default_rng(word).permutation(names)
        for poison in POISONS:
            for bad in numbers(len(names)):
                last = bad == numbers(len(names))[-1]
                yield self._trial(poison, order[:bad], last)

    @cached_property
    def told(self) -> Table:
        """What all that the run answers follows from."""
        return self.noisy

    def poisoned(self, poison: Poison, rows: Int[np.ndarray, " row"]) -> Table:
        """The same if the records in these rows were bad."""
        moved: Table = self.noisy + self._moved(poison, rows)
        return moved

    def held(self, told: Table) -> Int[np.ndarray, " query"]:
        """The labels that follow by the rule by which the run's own table was read."""
        return np.asarray(self.rule.scores(told).argmax(1))

    def _trial(self, poison: Poison, bad: Int[np.ndarray, " voter"], last: bool) -> Trial:
        told = self.poisoned(poison, np.flatnonzero(np.isin(self.of, bad)))
        labels, first = (self.held(one) for one in (told, self.told))
        given, before = (self.answered(one).probabilities.argmax(1) for one in (told, self.told))
        return Trial(
            poison,
            _ANYWHERE,
            len(bad),
            len(bad),
            *compared(self.withstood, labels != first, len(bad)),
            float((given != before).mean()),
            self._trigger(told, before) if poison == "backdoor" else None,
            self._student(told, last) if poison == "backdoor" else None,
        )

    def _moved(self, poison: Poison, rows: Int[np.ndarray, " row"]) -> Table:
        """How far bad records in these rows move the table; they are all the records of their voters."""
        people, bad = self._both(poison, rows)
        return np.asarray(tables.table(self.plan, bad) - tables.table(self.plan, people))

    def _both(self, poison: Poison, rows: Int[np.ndarray, " row"]) -> tuple[Voters, Voters]:
        """Those who vote in these rows, and as they are if bad."""
        people = self.people.take(rows)
        classes = self.crowd.dataset.classes
        inputs, labels = poisoned(poison, self.trigger, people.inputs, people.labels, classes)
        return people, people._replace(inputs=inputs, labels=labels)

    def answered(self, told: Table, inputs: np.ndarray | None = None) -> shares.Shares:
        """What is answered from a table, of what was asked or of other inputs."""
        if isinstance(self.plan.release, NeighbourCounts):
            return shares.of_counts(told, self.plan.release)
        others = None if inputs is None else self.plan.space.coordinates(inputs)
        return shares.of_sums(told, self.plan, self.crowd.pool, self.crowd.weight(told), others)

    def linear(self, told: Table) -> Student:
        """The classifier that follows, as a student."""
        crowd, plan = self.crowd, self.plan
        model = shares.classifier_of(told, plan, crowd.pool, crowd.weight(told))
        return sums.of_sums(PublicInputs.of(crowd.dataset), plan.space, plan.scaling, model)

    def _trigger(self, told: Table, plain: Int[np.ndarray, " query"]) -> Marked | None:
        """Of sums, which answer any input."""
        if not isinstance(self.plan.release, ClassSums):
            return None
        on = self.trigger.on(self.crowd.seen.public.inputs)
        said, before = (self.answered(one, on).probabilities.argmax(1) for one in (told, self.told))
        return poisoning.marked(said, before, plain)

    def _student(self, told: Table, last: bool) -> Marked | None:
        """Of a student that is quick to make, or else in the last trial."""
        dataset = self.crowd.dataset
        if self.released is None or self.crowd.seen is not dataset:
            return None
        config = taught(self.crowd.run)
        if config.method not in QUICK and not last:
            return None
        learned = self.linear(told) if isinstance(config, Linear) else self._trained(config, told)
        learned = learned._replace(dtype=self.released.dtype, columns=self.released.columns)
        return of_student(learned, self.released, judged(dataset.test, dataset.public), self.trigger)

    def _trained(self, config: StudentConfig, told: Table) -> Student:
        """A student of the answers that follow from a table."""
        crowd, queries = self.crowd, self.plan.queries
        public = crowd.dataset.public
        asked = public if queries is None else public.take(queries.rows)
        found = self.answered(told)
        return training.learn(crowd.run, config, crowd.dataset, asked, soft(found))

    def targeted(self) -> Targeted | None:
        """How few flipped labels change one answer of sums; of records that vote by themselves."""
        if not isinstance(self.plan.release, ClassSums) or self.people.users is not None:
            return None
        rows = np.linspace(0, len(self.withstood) - 1, min(TARGETED, len(self.withstood))).astype(int)
        scores = self.rule.scores(self.noisy)[rows]
        needed = np.array([self._needed(row, one) for row, one in zip(rows, scores, strict=True)])
        most = self.withstood[rows]
        return Targeted(
            len(rows), float(np.median(most)), float(np.median(needed)), int((needed <= most).sum())
        )

    def _needed(self, row: int, scores: Float[np.ndarray, " class"]) -> float:
        """The fewest flipped labels that change one label, by voters who move it furthest."""
        functional, labels = self.rule.functional, self.people.labels
        if functional is None:
            raise PateError("only labels of sums are attacked one by one")
        told = self._vectors @ functional[row]
        top, found = int(scores.argmax()), math.inf
        for rival in np.flatnonzero(np.arange(len(scores)) != top):
            lead = scores[top] - scores[rival]
            found = min(found, fewest(lead, gains(told, labels, top, int(rival))))
        return found

    @cached_property
    def _vectors(self) -> Float[np.ndarray, "voter entry"]:
        people = self.people
        coordinates = self.plan.space.coordinates(people.inputs)
        return vectors(self.plan.scaling, coordinates) / self.plan.scaling.length
