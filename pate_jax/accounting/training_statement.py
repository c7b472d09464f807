"""The privacy statement of a net trained by DP-SGD on the private records, whatever these are.

Both figures follow from the chance of taking part in a step, the number of steps and the scale of the noise.
So both may be published. The headline covers what a record of this project's guarantee covers: one added,
removed or changed. Papers on DP-SGD print the other one, of one record added or removed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from pate_jax.accounting import figures, trade_off
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.figure_table import rounded_up
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.open_statement import OpenStatement
from pate_jax.accounting.slack import with_slack
from pate_jax.accounting.statement import RELATIONS
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.errors import PateError

BASIS = "composed privacy losses of Gaussian noise on Poisson samples"
NOTE = "holds for all private records; their number counts as public"
NARROWER = "for one record added or removed, and none changed: the relation of papers on DP-SGD"
RELATION = "record"  # the only one: each record's gradient is clipped by itself
ADDED = "added_or_removed"
_FIELDS = frozenset(
    {
        *("training", "delta", "relation", "private", "charged", "relation_in_words", "model_card_line"),
        *("figures", "trade_off", "status", "trial", "warning"),
    }
)


class Training(NamedTuple):
    """What was done to the records."""

    rate: float  # chance of each record to take part in each step
    steps: int
    noise_multiplier: float  # standard deviation of the noise, in units of the longest gradient


@dataclass(frozen=True)
class TrainingStatement(OpenStatement):
    """What a training costs, under both relations; all of it may be published."""

    training: Training
    changed: float  # epsilon of one record added, removed or changed
    added: float  # epsilon of one record added or removed
    delta: float
    private: bool

    declared, relation = False, RELATION
    smallest = "data_independent"

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words."""
        return RELATIONS[RELATION]

    @property
    def figures(self) -> dict[str, Figure]:
        """Both figures, the headline first."""
        return {self.smallest: _figure(self.changed, NOTE), ADDED: _figure(self.added, NARROWER)}

    @property
    def headline(self) -> Figure:
        """The figure to publish."""
        return self.figures[self.smallest]

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach, about a record that is added, removed or changed."""
        return _trade_off(self.training, self.delta, max(self.changed, self.added))

    @property
    def charged(self) -> str:
        """What the figures cover, in words."""
        made = self.training
        return (
            f"{made.steps:,} steps of DP-SGD, in each of which every record takes part with chance "
            f"{made.rate:.6g}, with Gaussian noise of {made.noise_multiplier:.6g} times the longest gradient"
        )

    def publishable(self) -> dict[str, Any]:
        """The statement as JSON."""
        own = {
            "training": self.training._asdict(),
        }
        return self.described(own, RELATION)

    def model_card_line(self) -> str:
        """One line for a model card."""
        warning = f"{self.warning} " if self.warning else ""
        if self.headline.epsilon is None:
            return f"{warning}No finite epsilon holds at delta = {self.delta:g}."
        return (
            f"{warning}({rounded_up(self.changed)}, {self.delta:g})-differentially private for "
            f"{self.covers}; "
            f"({rounded_up(self.added)}, {self.delta:g}) for one record added or removed alone; "
            f"{self.charged}; data-independent; the number of records counts as public."
        )

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> TrainingStatement:
        """The statement that `publishable` described; refused if a field has another type."""
        try:
            found = cls(
                Training(**description["training"]),
                description["figures"][cls.smallest]["epsilon"],
                description["figures"][ADDED]["epsilon"],
                description["delta"],
                description["private"],
            )
            _check(found, description)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PateError(f"this is no statement of a training ({error!r}); write it again") from error
        return found


@lru_cache(maxsize=256)
def _trade_off(training: Training, delta: float, epsilon: float) -> TradeOff:
    """The curve of all steps together. Gaussian noise on samples is not Gaussian-DP, so no mu is stated."""
    from pate_jax.accounting import training_losses  # imported here, as it imports this module

    strays = training_losses.strays(epsilon, delta)

    def ideal(inner: float) -> Epsilon:
        return Epsilon(training_losses.either(training, inner), None)

    def spent(at: float) -> float:
        return epsilon if at == delta else float(with_slack(ideal, at, strays).epsilon)

    return trade_off.of(spent, delta)


def _figure(epsilon: float, note: str) -> Figure:
    if math.isfinite(epsilon):
        return Figure(epsilon, None, "publishable", BASIS, note)
    return Figure(None, None, "publishable", BASIS, figures.NO_FINITE)


def _check(found: TrainingStatement, description: Mapping[str, Any]) -> None:
    if unknown := sorted({*description} - _FIELDS - {"artefact", "schema"}):
        raise TypeError(f"the field {unknown[0]!r}")
    numbers = (*found.training, found.changed, found.added, found.delta)
    if not all(type(one) in (int, float) and 0 < one < math.inf for one in numbers):
        raise TypeError(f"the numbers {numbers}")
    if type(found.training.steps) is not int or found.training.rate > 1 or type(found.private) is not bool:
        raise TypeError(f"training={found.training}, private={found.private!r}")
    if description["relation"] != RELATION:
        raise TypeError(f"relation={description['relation']!r}")
    check_delta(found.delta)
