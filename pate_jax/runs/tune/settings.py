"""What a choice of settings is made of: the list, and what the whole choice may cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pate_jax import student
from pate_jax.accounting import tuning
from pate_jax.accounting.tuning import Fixed, NegativeBinomial, Tuned, negative_binomial
from pate_jax.data import encoders
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Voting
from pate_jax.models.names import Space
from pate_jax.runs.settings import CUSTOMARY_EPSILON, CrowdChoice, DataChoice, RunConfig, to_settings
from pate_jax.student.settings import Auto, StudentConfig

SHAPE = 1.0  # of the law of the number of candidates: geometric, whose number scatters least for its cost


@dataclass(frozen=True)
class Setting:
    """One line of the list: what `pate run` takes for sums and neighbours, but for data and costs.

    >>> Setting.from_dict(Setting("sums").to_dict()) == Setting("sums")
    True
    """

    voters: Voting
    space: Space | None = None
    encoder: str = ""
    queries: int | None = None
    student: StudentConfig = field(default_factory=Auto)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        own = {name: getattr(self, name) for name in ("voters", "space", "encoder", "queries")}
        return {**own, "student": to_settings(self.student)}

    @classmethod
    def from_dict(cls, described: dict[str, Any]) -> Setting:
        """The setting that `to_dict` described."""
        return cls(**{**described, "student": student.from_dict(described["student"])})

    @classmethod
    def of(cls, config: RunConfig) -> Setting:
        """What a run of a crowd is set to, without its data and costs."""
        if config.voters not in ("neighbours", "sums"):
            raise PateError(
                f"voters={config.voters!r} is no candidate: each setting of a list needs "
                'voters = "sums" or "neighbours"'
            )
        return cls(config.voters, config.space, config.data.function, config.queries, config.student)

    def crowd(
        self, by: Literal["record", "user"], seed: int | None, epsilon: float, delta: float
    ) -> CrowdChoice:
        """How its voters vote, at the cost of one candidate."""
        return CrowdChoice(self.voters, by, seed, epsilon, delta, self.queries, self.encoder, self.space)


@dataclass(frozen=True)
class TuneConfig:
    """A whole choice: the best of several candidates, published at the cost of the choice."""

    data: DataChoice
    settings: tuple[Setting, ...]
    by: Literal["record", "user"] = "record"
    seed: int | None = None
    epsilon: float = CUSTOMARY_EPSILON
    delta: float = 1e-5
    candidates: float = 10.0  # on average
    each_once: bool = False
    out: Path | None = None
    register: Path | None = None

    def __post_init__(self) -> None:
        if len(self.settings) < 2:
            raise PateError(
                f"settings={len(self.settings)} of a list are no choice: give two or more, or use `pate run`"
            )
        CrowdChoice("sums", self.by, None, self.epsilon, self.delta)  # checks them
        encoders.frozen(self.data.encoder)

    @property
    def law(self) -> NegativeBinomial | Fixed:
        """The law of the number of candidates."""
        return Fixed(len(self.settings)) if self.each_once else negative_binomial(self.candidates, SHAPE)

    @property
    def tuned(self) -> Tuned:
        """The choice, with the noise that its cost leaves to each candidate."""
        return tuning.tuned_for(self.law, len(self.settings), self.epsilon, self.delta)

    @property
    def directory(self) -> Path:
        """The folder of the choice."""
        return RunConfig(data=self.data, out=self.out).directory
