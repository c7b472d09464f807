"""The settings of a run's stages: written when a stage first runs, and enforced from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax import student
from pate_jax.accounting import after_count
from pate_jax.accounting.after_count import Limit
from pate_jax.accounting.filter import Filter, budget_from_dict, budget_to_dict
from pate_jax.accounting.tuning import Tuned
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.stable import AnyMechanism, from_dict
from pate_jax.runs.settings import CrowdChoice, DataChoice, PartitionChoice, from_settings
from pate_jax.student import StudentConfig
from pate_jax.system import storage

Stages = dict[str, dict[str, Any]]
CROWD = "crowd"  # the stage that only the run of a crowd has
COMPARED = "compared"  # how students are trained that a crowd's sums may be compared with
CANDIDATE = "candidate"  # of a choice of settings: whom it holds out, and what the choice costs
PARTY = "party"  # the stage that only one party's part of a vote among several has
BASELINE = "baseline"  # the stage that only a net trained on the records themselves has
METHOD = "method"  # the stage that only a run of a method in one file has (`methods`)
LABELS = "labels"  # the stage that only a run of several labels has
LABEL = "label"  # and the stage of one label's run among them
TUNE = "tune"  # the stage that only a choice of settings has
TRIAL = "trial"  # the stage that only a run on parts of one private file has
PUBLIC = "public"  # a digest of the public part that a run was begun with
_OF_TUNE = ("data", PUBLIC, "relation", "register", "chosen", TRIAL)  # the others that it has
RECORDS = "records"  # a digest of the private records that a crowd's run was begun with
HEADCOUNT = "headcount"  # of teachers chosen by a noisy number of voters: what both may cost together
STEPS = "steps"  # how many tables a run of sums takes, and how strongly it whitens
PLANNED = "planned"  # what was chosen for the user, and what is expected of it
NET = "net"  # what is called a user's own net, and the digest of its source
LABELLED = "labelled"  # the stage that only a run has whose student learns from public labels too
_OF_A_CHOICE = (
    "{} is of a choice of settings, which `pate tune` makes and publishes as a whole: `pate verify` checks "
    "it, and no other command changes it or reads it"
)


def refuse_crowd(settings: Settings, root: Path) -> None:
    """Refuse commands for teachers, or for votes made elsewhere, in the run of a crowd."""
    if CROWD in settings:
        raise PateError(
            f"{root} is the run of a crowd, whose records or users vote by themselves, once: it has no "
            "teachers to train or to ask; choose another --out"
        )
    if BASELINE in settings:
        raise PateError(
            f"{root} holds a net that was trained on the private records themselves: it has no voters to "
            "ask; choose another --out"
        )


class Vote(NamedTuple):
    """The queries of one batch to the run's own teachers."""

    queries: int
    selection: str | None
    public: Path | None  # a file of more public inputs
    min_distance: float | None = None  # between two of them, in units of the typical distance


@dataclass(frozen=True)
class Settings:
    """The content of a file of settings; reading a stage that has not run yet is an error.

    >>> settings = Settings({"account": {"delta": 1e-05}}, Path("settings.json"))
    >>> settings.delta, "data" in settings, settings.budget
    (1e-05, False, None)
    """

    stages: Mapping[str, Mapping[str, Any]]
    file: Path

    def __contains__(self, stage: str) -> bool:
        return stage in self.stages

    def of(self, stage: str) -> dict[str, Any]:
        """The settings of a stage that has run."""
        if stage not in self.stages and TUNE in self.stages:
            raise PateError(_OF_A_CHOICE.format(self.file))
        if stage not in self.stages:
            raise PateError(f"{self.file} holds no settings of {stage!r}: restore it from a backup")
        return dict(self.stages[stage])

    @property
    def data(self) -> DataChoice:
        """Which records are private, and which inputs are public."""
        return from_settings(DataChoice, self.of("data"))

    @property
    def partition(self) -> PartitionChoice:
        """How the records were divided into shards."""
        return from_settings(PartitionChoice, self.of("partition"))

    @property
    def teacher(self) -> TeacherConfig:
        """How a teacher was trained."""
        return from_settings(TeacherConfig, self.of("teacher"))

    @property
    def crowd(self) -> CrowdChoice:
        """How records or users voted by themselves."""
        return from_settings(CrowdChoice, self.of(CROWD))

    @property
    def rivals(self) -> dict[str, StudentConfig]:
        """How the students are trained that the classifier of a crowd's sums is compared with, by method."""
        return {method: student.from_dict(one) for method, one in self.of(COMPARED).items()}

    @property
    def held_out(self) -> bytes | None:
        """The key of those whom a candidate holds out, which all candidates of a choice share."""
        return bytes.fromhex(self.of(CANDIDATE)["held_out"]) if CANDIDATE in self else None

    @property
    def tuned(self) -> Tuned | None:
        """The choice of settings that a crowd is a candidate of, if it is one."""
        return codec.from_dict(Tuned, self.of(CANDIDATE)["tuned"], "tuned") if CANDIDATE in self else None

    @property
    def student(self) -> StudentConfig:
        """How the student was trained."""
        return student.from_dict(self.of("student"))

    @property
    def mechanism(self) -> AnyMechanism:
        """The mechanism that answers all batches."""
        return from_dict(self.of("mechanism"))

    @property
    def budget(self) -> Filter | None:
        """The budget of the whole run; None if no budget was fixed."""
        return budget_from_dict(dict(self.stages.get("budget", budget_to_dict(None))))

    @property
    def limit(self) -> Limit | None:
        """What answers may cost that a noisy number of voters chose; None of a run whose plan read none."""
        return after_count.limit(**self.stages[HEADCOUNT]) if HEADCOUNT in self.stages else None

    @property
    def delta(self) -> float | None:
        """The delta of the statement, once there is one."""
        return self.stages.get("account", {}).get("delta")

    @property
    def relation(self) -> str | None:
        """Whom the guarantee covers, by the records' ids or by the declaration of the votes' makers."""
        return self.stages.get("relation", {}).get("relation")

    @property
    def register(self) -> Path:
        """The register in which the run is entered."""
        return Path(self.of("register")["file"])

    def vote(self, batch: int) -> Vote:
        """The queries of a batch to the run's own teachers."""
        asked = self.of(stage_of("vote", batch))
        public = asked.get("public")
        file = None if public is None else Path(public)
        return Vote(asked["queries"], asked.get("selection"), file, asked.get("min_distance"))


@dataclass(frozen=True)
class Record:
    """The file of a run's settings.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Record(folder / "settings.json", folder).agree("account", {"delta": 1e-05})
    >>> Record(folder / "settings.json", folder).read().delta
    1e-05
    """

    file: Path
    root: Path

    def read(self) -> Settings:
        """The settings of all stages so far."""
        return Settings(self.stages(), self.file)

    def stages(self) -> Stages:
        """The settings of all stages so far, as JSON."""
        stages = storage.read_json(self.file, "settings") if self.file.exists() else {}
        for stage, settings in stages.items():
            if not isinstance(settings, dict):
                raise PateError(f"{self.file}: {stage}={settings!r} are no settings; restore the file")
        return stages

    def agree(self, stage: str, settings: Mapping[str, Any], but_not: Sequence[str] = ()) -> None:
        """Record a stage's settings, or refuse those that differ from the recorded ones."""
        stages = self.stages()
        self._check_own(stages, stage)
        if stage not in stages:
            storage.write_json(self.file, "settings", {**stages, stage: dict(settings)})
            return
        for name in sorted({*settings, *stages[stage]} - {*but_not}):
            old, new = stages[stage].get(name), settings.get(name)
            unknown_then = name not in stages[stage] and new is False  # a switch newer than the run, off
            if old != new and not unknown_then:
                raise PateError(
                    f"{self.root} was made with {stage} setting {name}={old!r}, not {new!r}; "
                    "repeat the first command to continue it, or choose another --out"
                )

    def revise(self, changed: Mapping[str, Mapping[str, Any]], forgotten: Sequence[str] = ()) -> None:
        """Record these stages in one write, whatever was recorded of them before, and remove others."""
        stages = {stage: one for stage, one in self.stages().items() if stage not in forgotten}
        for stage in changed:
            self._check_own(stages, stage)
        stages |= {stage: dict(settings) for stage, settings in changed.items()}
        storage.write_json(self.file, "settings", stages)

    def _check_own(self, stages: Stages, stage: str) -> None:
        """Refuse to make a choice of settings another kind of run."""
        if TUNE in stages and stage not in (TUNE, *_OF_TUNE):
            raise PateError(_OF_A_CHOICE.format(self.file))


def stage_of(stage: str, batch: int) -> str:
    """The name of a batch's settings; those of the first batch have the plain name of the stage.

    >>> stage_of("vote", 1), stage_of("vote", 2)
    ('vote', 'vote 2')
    """
    return stage if batch == 1 else f"{stage} {batch}"
