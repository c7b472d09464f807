"""What statements have in common in which nothing is sensitive: all of each may be published."""

from __future__ import annotations

from typing import Any

from pate_jax.accounting.figures import Figure
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.accounting.trade_off import TradeOff


class OpenStatement:
    """A statement that follows from public numbers alone; its kinds say what their own fields are."""

    delta: float
    private: bool

    @property
    def warning(self) -> str:
        """The warning that comes first for a seeded run; empty for any other."""
        return "" if self.private else NOT_PRIVATE

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words."""
        raise NotImplementedError

    @property
    def charged(self) -> str:
        """What the figure covers, in words."""
        raise NotImplementedError

    @property
    def figures(self) -> dict[str, Figure]:
        """The only figure, by its name."""
        raise NotImplementedError

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach."""
        raise NotImplementedError

    def model_card_line(self) -> str:
        """One line for a model card."""
        raise NotImplementedError

    def described(self, own: dict[str, Any], relation: str) -> dict[str, Any]:
        """The statement as JSON: its own fields between a warning and what all kinds have."""
        return {
            **({"warning": self.warning} if self.warning else {}),
            **own,
            "delta": self.delta,
            "relation": relation,
            "private": self.private,
            "charged": self.charged,
            "relation_in_words": self.covers,
            "model_card_line": self.model_card_line(),
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
            "trade_off": self.trade_off.to_dict(),
            "status": "publishable",
        }

    def publishable(self) -> dict[str, Any]:
        """The statement as JSON."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The statement as JSON: nothing in it is sensitive."""
        return self.publishable()
