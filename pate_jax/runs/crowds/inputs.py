"""What a crowd's run is made from: its data, its voters and its public side, each made once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import jax
import numpy as np
from jaxtyping import Bool, Int

from pate_jax import crowd
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.exact import counts
from pate_jax.crowd import shares
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.plan import Plan, doubts, many_classes, plan, space_kind, weight_of_users
from pate_jax.crowd.step_choice import WIDEST, stepped
from pate_jax.crowd.tables import Seen, look
from pate_jax.data import Dataset, partition, relation
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, Comparison, HeadCount, Voting
from pate_jax.models.spaces import Kind, Learned, effort
from pate_jax.runs import budget, ledger, measured, plans
from pate_jax.runs.crowds import public_side
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.record import BASELINE, CANDIDATE, COMPARED, CROWD, HEADCOUNT, PARTY
from pate_jax.runs.settings import STROKES, CrowdChoice, DataChoice, PartitionChoice
from pate_jax.student import PublicInputs, Student
from pate_jax.student import spaces as trained
from pate_jax.system import headcount, progress
from pate_jax.system.tasks import HERE, Engine

KEY = 0  # of a net that learns from public inputs alone, so no secret
LEAST = 3e-4  # mu, whose noise is still drawn
HELD_OUT = 10  # of so many voters one is held out, where some judge
WORTH = 20  # so many voters for each unit of noise have to compare students


def is_candidate(run: RunDirectory) -> bool:
    """Whether a crowd is one candidate of a choice of settings, which ends with its score."""
    return CANDIDATE in run.record.read()


@dataclass(frozen=True)
class Crowd:
    """A crowd's run; each part is made when it is first asked for, and then kept."""

    inputs: Inputs
    choice: CrowdChoice
    step: int = 1  # of those in which its voters vote
    steps: dict[int, Crowd] = field(default_factory=dict, repr=False, compare=False)  # that were opened
    learned: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # from the public part
    kept: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # that its steps share

    def of(self, voters: Voting) -> Crowd:
        """The same with other voters, in a space that is learned once."""
        return replace(self, choice=replace(self.choice, voters=voters), steps={}, kept={})

    def at(self, step: int) -> Crowd:
        """The same crowd in another step."""
        self.steps.setdefault(self.step, self)
        if step not in self.steps:
            self.steps[step] = replace(self, step=step)
        return self.steps[step]

    @property
    def run(self) -> RunDirectory:
        """Where it lies."""
        return self.inputs.run

    @property
    def dataset(self) -> Dataset:
        """The private, public and test parts."""
        return self.inputs.dataset

    @cached_property
    def kind(self) -> Kind:
        """The space: as chosen, of the owner's encoder, or by the inputs."""
        if self.choice.space is not None:
            return self.choice.space
        encoded = self.choice.encoder or self.dataset.public.features is not None
        return "encoder" if encoded else space_kind(self.dataset)

    @cached_property
    def seen(self) -> Dataset:
        """The data set as the space sees it: features beside inputs take their place."""
        return self.dataset.seen_in(self.kind, self.choice.encoder)

    @cached_property
    def everybody(self) -> crowd.Voters:
        """All voters, their labels checked; refused where they are not all in memory."""
        return crowd.voters(self.seen.private, self.dataset.classes, by=self.choice.by)

    @property
    def people(self) -> crowd.Voters:
        """Who votes: all, or all but those that are held out."""
        return self.everybody.take(~self.held_out) if self.judged else self.everybody

    @property
    def judges(self) -> crowd.Voters:
        """Who is held out."""
        everybody = crowd.voters(self.dataset.private, self.dataset.classes, by=self.choice.by)
        return everybody.take(self.held_out)

    @cached_property
    def held_out(self) -> Bool[np.ndarray, " record"]:
        """Which records are of voters that vote in no table: by a keyed hash of the voter's own id."""
        units = partition.units_of(self.dataset.private, self.choice.by)
        if not self.judged:
            return np.zeros(len(units), bool)
        key = self.run.record.read().held_out or self.run.secret.derive("held out")
        return np.asarray(partition.assign(units, HELD_OUT, key=key) == 0)

    @cached_property
    def judged(self) -> bool:
        """Whether some voters are held out: to judge candidates, or students."""
        return is_candidate(self.run) or compares(self.run, self.choice)

    @property
    def judging(self) -> int:
        """How many voters are held out. It is private."""
        if not self.judged:
            return 0
        return len(np.unique(partition.units_of(self.dataset.private, self.choice.by)[self.held_out]))

    @cached_property
    def number(self) -> int:
        """How many voters there are. It is private."""
        if self.dataset.scan is not None:
            self.dataset.scan.check()
            return budget.people(self.dataset, self.choice.by)  # the ids of its records all differ
        return len(np.unique(partition.units_of(self.dataset.private, self.choice.by)))

    @cached_property
    def public_users(self) -> Int[np.ndarray, " pool"] | None:
        """The users of public inputs by number, where users vote and these inputs have any."""
        users = self.dataset.public.users
        if self.choice.by == "record" or users is None:
            return None
        return np.unique(users, return_inverse=True)[1].astype(np.int64)

    @property
    def mu(self) -> float:
        """What the run may cost in all, in Gaussian-DP; refused where no table of noise is wide enough."""
        epsilon, delta = self.choice.epsilon, self.choice.delta
        found = counts.mu_for(epsilon, delta)
        if found / math.sqrt(self.choice.steps or 1) < LEAST:
            fewer = ", or ask for fewer steps" if self.choice.steps else ""
            raise PateError(
                f"epsilon={epsilon:g} at delta={delta:g} needs more noise than tables of it hold, and would "
                f"drown any votes: raise epsilon, or delta{fewer}"
            )
        return found

    @property
    def voting(self) -> int:
        """About how many voters vote in a table, for its plan: what the run has told, rounded; public."""
        return self._but_judges(told(self.run))

    @property
    def counted(self) -> int:
        """How many voters a table is the sum of, as far as the run has told it, to read it by; public.

        Not rounded: of two classes a table tells by how many voters one is larger, and all of them would be
        up to a tenth too few.
        """
        return self._but_judges(noisy_number(self.run))

    def weight(self, noisy: Int[np.ndarray, "row entry"], counted: int | None = None) -> int:
        """How many voters' vectors noisy sums are read as: those of users may stand for more; public.

        `counted` is the public number of voters, as the run has told it unless another is given.
        """
        counted = self.counted if counted is None else counted
        if self.choice.by == "record":
            return counted
        if len(noisy) == 1:  # of two classes, whose sums do not tell
            return int(counted * self._weight(self.plan, self.pool))
        return shares.weight(noisy, self.plan.scaling.constant, counted)

    def _weight(self, made: Plan, pool: Int[np.ndarray, "pool directions"]) -> float:
        """For how many records the vote of a user stands, as far as public users show it."""
        if self.public_users is None or not isinstance(made.release, ClassSums):
            return 1.0
        return weight_of_users(made, pool, self.public_users)

    def _but_judges(self, some: int) -> int:
        return max(1, some - some // HELD_OUT) if self.judged else some

    def check_public(self) -> None:
        """Refuse public inputs that teach no space, or are too few, before anything is recorded."""
        queries, public = self.choice.queries, len(self.dataset.public.inputs)
        if queries is not None and queries > public:
            raise PateError(
                f"queries={queries} must be at most the {public} public inputs: give more of these, or ask "
                "fewer"
            )
        if not self.run.public_side.exists():
            self.wide  # noqa: B018  # learned now

    def check_judges(self, what: str) -> None:
        """Refuse what holds out voters, where they are too few or their names are row numbers."""
        if self.number < HELD_OUT:
            raise PateError(f"{what} holds out one voter in {HELD_OUT}, and there are fewer: leave it out")
        if self.renumbers:
            raise PateError(
                f"{what} holds out one voter in {HELD_OUT}, by a hash of its id or user, and these are row "
                "numbers: removing one voter would renumber all others and hold out others; give real ones, "
                "pass --ids-are-stable if each keeps its number, or leave it out"
            )

    @property
    def declared(self) -> bool:
        """Whether voters may be held out unasked: their names stay with them, as their owner declares.

        What names look like may change with one voter, so it decides nothing that the release shows.
        """
        return self.dataset.ids_are == "stable"

    @property
    def renumbers(self) -> bool:
        """Whether voters have mere row numbers for names, so that none may be held out by its name."""
        return relation.renumbers(self.dataset, self.choice.by)

    @cached_property
    def _made(self) -> tuple[Plan, Int[np.ndarray, "pool directions"]]:
        """The plan, and the coordinates of the pool in its space: kept from before, or made."""
        if self.step > 1:
            return self._made_of_step
        path, public = self.run.public_side, self.seen.public.inputs
        if path.exists():
            kept = public_side.plan_of(public_side.read(path), path)
            return kept, kept.space.coordinates(public)
        made, (wide, seen) = self.planned(), self.wide
        standing = int(self.voting * self._weight(made, seen))
        doubt = doubts(made, wide, seen, voters=standing) or many_classes(made.release, self.voting)
        progress.warn(doubt)
        return made, seen[:, : len(made.space.variances)]

    @property
    def _made_of_step(self) -> tuple[Plan, Int[np.ndarray, "pool directions"]]:
        """The plan of a later step, whose weights the run keeps, and the coordinates of the pool."""
        first, path = self.at(1).plan, self.run.existing(self.run.public_side_of(self.step), "run")
        steps, kept = first.steps, public_side.read(path)
        if steps is None or "slope" not in kept:
            raise PateError(f"{path} belongs to no step that {self.run.public_side} plans: restore both")
        if "places" not in self.kept:
            self.kept["places"] = steps.space.coordinates(self.seen.public.inputs)
        return Plan(steps.space, steps.scaling, None, steps.release, None, kept["slope"]), self.kept["places"]

    def planned(self) -> Plan:
        """The plan of the first step anew, from public inputs, settings and the noisy number of voters."""
        voters, classes, users = self.voting, self.dataset.classes, self.public_users
        if self.choice.voters == "sums":
            number = self.choice.steps
            return stepped(
                *self.wide,
                voters=voters,
                classes=classes,
                mu=self.mu,
                users=users,
                number=number,
            )
        queries = self.choice.queries
        return plan(
            "neighbours", *self.wide, voters=voters, classes=classes, mu=self.mu, queries=queries, users=users
        )

    @property
    def wide(self) -> Learned:
        """The space that a plan is chosen from, with the pool's coordinates in it."""
        closely = effort(self.kind, self.seen.public.inputs, self._looked_at)
        place = f"wide, looked at by {closely}"
        if place not in self.learned:
            public, key = PublicInputs.of(self.seen), jax.random.key(KEY)
            self.learned[place] = trained.learned(
                self.kind,
                public,
                key=key,
                directions=WIDEST,
                encoder=self.choice.encoder,
                number=self._looked_at,
            )
        return cast(Learned, self.learned[place])

    @property
    def _looked_at(self) -> int | None:
        """About how many records there are, once the run has told it; users have an unknown number."""
        return self.voting if self.choice.by == "record" and has_told(self.run) else None

    @property
    def voted(self) -> Seen:
        """The vectors of all who vote, which every step but the first looks at again; private."""
        if "voted" not in self.kept:
            self.kept["voted"] = look(self.plan.space, self.plan.scaling, self.people)
        return cast(Seen, self.kept["voted"])

    @property
    def scored(self) -> Student:
        """The student that a candidate's held-out voters judge, as the run keeps it."""
        return Student.load(self.run.scored)

    @property
    def plan(self) -> Plan:
        """Space, weights, queries and release."""
        return self._made[0]

    @property
    def pool(self) -> Int[np.ndarray, "pool directions"]:
        """Coordinates of all public inputs."""
        return self._made[1]

    def arrays(self, plan: Plan) -> dict[str, np.ndarray]:
        """A plan of this run, as its file holds that of the first step."""
        return public_side.arrays(plan, self.dataset.preprocessing)


def metric_of(crowd: Crowd) -> Metric:
    """What its choices by rehearsal go by."""
    return measured.metric(crowd.inputs.choice, crowd.dataset)


def compares(run: RunDirectory, choice: CrowdChoice) -> bool:
    """Whether held-out voters compare students of a run's sums: it began so, and they are enough.

    Where the noise is more than a twentieth of their number, they would hardly see what a student gains. The
    number of voters that is read here has been released with noise.
    """
    if choice.voters != "sums" or COMPARED not in run.record.read():
        return False
    return told(run) >= WORTH * HELD_OUT * comparison_of(run, choice).between_two


def comparison_of(run: RunDirectory, choice: CrowdChoice) -> Comparison:
    """The comparison of students that a run's settings plan for."""
    students = 1 + len(run.record.read().rivals)
    return counts.comparison_for(counts.mu_for(choice.epsilon, choice.delta), students)


def told(run: RunDirectory) -> int:
    """The number of voters as the run has released it, with noise, then rounded down to two digits."""
    return max(1, headcount.coarse(noisy_number(run)))


def has_told(run: RunDirectory) -> bool:
    """Whether a run has released the number of its voters; a party, whose ledger is another, does not."""
    return PARTY not in run.record.read() and any(
        isinstance(line.event, HeadCount) for line in ledger.releases(run.ledger)
    )


def noisy_number(run: RunDirectory) -> int:
    """The number of voters as the run has released it, with noise."""
    for line in ledger.releases(run.ledger):
        if isinstance(line.event, HeadCount):
            return max(1, int(ledger.unpack_table(line.values, (1, 1))[0, 0]))
    raise PateError(f"{run.ledger} shows no number of voters yet: run `pate run` first")


def plan_of(run: RunDirectory) -> plans.Plan:
    """All that the settings of a crowd's run let it spend."""
    choice = run.record.read().crowd
    return plans.Plan((Tables(counts.mu_for(choice.epsilon, choice.delta), choice.voters),), choice.by)


def opened(run: RunDirectory, *, tolerant: bool = False) -> Crowd:
    """The crowd whose choices a run has recorded."""
    settings = run.record.read()
    return made(run, settings.data, settings.crowd, tolerant=tolerant)


def made(
    run: RunDirectory, data: DataChoice, choice: CrowdChoice, *, tolerant: bool = False, engine: Engine = HERE
) -> Crowd:
    """A crowd of chosen data; strokes are drawn as many as for teachers."""
    if data.target is not None:
        raise PateError(f"--target {data.target} is a number, which `pate run --voters sums` learns")
    cut = PartitionChoice(by=choice.by, seed=choice.seed)
    drawn = data.drawn(STROKES)
    return Crowd(Inputs(run, drawn, cut, TeacherConfig(), tolerant, engine=engine), choice)


def refuse_others(run: RunDirectory) -> None:
    """Refuse to begin a crowd's run where another kind of run lies."""
    settings = run.record.read()
    others = "partition", "votes", "mechanism", BASELINE, HEADCOUNT
    if CROWD not in settings and any(one in settings for one in others):
        raise PateError(
            f"{run.root} was begun with teachers, with votes made elsewhere, or by DP-SGD: choose another "
            "--out for neighbours or sums, and add up what both spend (`pate budget`)"
        )
