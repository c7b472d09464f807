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
from typing import Any, Self

from pate_jax.accounting import trade_off
from pate_jax.accounting.curves import Epsilon, with_slack
from pate_jax.accounting.figures import Figure, figure, rounded_up
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.statement import HEADLINE, Statement
from pate_jax.accounting.trade_off import TradeOff

BASIS = "composed privacy losses of Gaussian noise on Poisson samples"
NOTE = "holds for all private records; their number counts as public"
NARROWER = "for one record added or removed, and none changed: the relation of papers on DP-SGD"
RELATION = "record"  # the only one: each record's gradient is clipped by itself
ADDED = "added_or_removed"


@dataclass(frozen=True, kw_only=True)
class TrainingStatement(Statement):
    """What a training costs, under both relations; all of it may be published."""

    training: Training

    mark, relations = "training", (RELATION,)

    @property
    def changed(self) -> float:
        """Epsilon of one record added, removed or changed."""
        return _epsilon(self.figures[HEADLINE].epsilon)

    @property
    def added(self) -> float:
        """Epsilon of one record added or removed, and none changed."""
        return _epsilon(self.figures[ADDED].epsilon)

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

    def own(self) -> dict[str, Any]:
        """The fields of this kind, as JSON."""
        return {"training": self.training._asdict()}

    def _narrower(self) -> str:
        return f"({rounded_up(self.added)}, {self.delta:g}) for one record added or removed alone; "

    def _caveat(self) -> str:
        return "; the number of records counts as public"

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """The statement of this kind that these fields give; its sentences follow from its numbers."""
        changed, added = (description["figures"][name]["epsilon"] for name in (HEADLINE, ADDED))
        training = Training(**description["training"])
        return cls(
            figures=_figures(changed, added),
            training=training,
            **{name: description[name] for name in ("delta", "relation", "private")},
        )

    def check(self) -> None:
        """Refuse what is no training."""
        super().check()
        numbers = (*self.training, self.changed, self.added)
        if not all(type(one) in (int, float) and 0 < one < math.inf for one in numbers):
            raise TypeError(f"the numbers {numbers}")
        if type(self.training.steps) is not int or self.training.rate > 1:
            raise TypeError(f"training={self.training}")


def training_statement(
    training: Training, changed: float, added: float, delta: float, *, private: bool
) -> TrainingStatement:
    """The statement of a training from its epsilons: of a record changed, too, and of one added or removed.

    >>> made = training_statement(Training(0.01, 90, 1.0), 0.9, 0.5, 1e-5, private=True)
    >>> made.headline.epsilon, TrainingStatement.from_dict(made.publishable()) == made
    (0.9, True)
    """
    figures = _figures(changed, added)
    return TrainingStatement(
        figures=figures, delta=delta, relation=RELATION, private=private, training=training
    )


@lru_cache(maxsize=256)
def _trade_off(training: Training, delta: float, epsilon: float) -> TradeOff:
    """The curve of all steps together. Gaussian noise on samples is not Gaussian-DP, so no mu is stated."""
    from pate_jax.accounting import training_losses  # which loads dp_accounting, and few need it

    strays = training_losses.strays(epsilon, delta)

    def ideal(inner: float) -> Epsilon:
        return Epsilon(training_losses.either(training, inner), None)

    def spent(at: float) -> float:
        return epsilon if at == delta else float(with_slack(ideal, at, strays).epsilon)

    return trade_off.of(spent, delta)


def _figures(changed: float, added: float) -> dict[str, Figure]:
    """Both figures, the headline first."""
    both = {HEADLINE: (changed, NOTE), ADDED: (added, NARROWER)}
    return {
        name: figure(Epsilon(epsilon, None), "publishable", BASIS, note)
        for name, (epsilon, note) in both.items()
    }


def _epsilon(stated: float | None) -> float:
    return math.inf if stated is None else stated
