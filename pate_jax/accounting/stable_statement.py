"""The privacy statement of a list of stable answers, whose one figure depends on no vote."""

from __future__ import annotations

from pate_jax.accounting import stable
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.figures import Figure, figure
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.statement import NAMES, Relation, Statement
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers, to_dict

BASIS = "composition of the epochs of a list of stable answers"
NOTE = "holds for all data and every history; the list is charged once, whatever its length and answers"
_NOT_DEFINED = "not defined for stable answers"


def stable_statement(
    mechanism: StableAnswers,
    delta: float,
    *,
    asked: int,
    answered: int,
    teachers: int,
    classes: int,
    private: bool,
    relation: Relation = "party",
    declared: bool = True,
) -> Statement:
    """The statement of a list, or of as much of it as was asked so far.

    How many queries were asked and answered may be published, because the answers show it. `private` is true
    only if every key that draws the noise comes from `fresh_key()`.

    >>> size = {"asked": 90, "answered": 89, "teachers": 250, "classes": 10}
    >>> made = stable_statement(StableAnswers(threshold=40, scale=3.0, cutoff=1), 1e-5, private=True, **size)
    >>> round(made.headline.epsilon, 4), made.charged
    (1.0, 'a whole list of stable answers, which ends with its first unanswered query; 90 queries asked')
    """
    if not 0 <= answered <= asked <= stable.MOST_QUERIES:
        raise PateError(
            f"answered={answered} and asked={asked} must be in this order from 0 to {stable.MOST_QUERIES:,}"
        )
    return Statement(
        figures=_figures(mechanism, check_delta(delta)),
        asked=asked,
        answered=answered,
        delta=delta,
        relation=relation,
        charged=_charged(mechanism, asked),
        mechanism=to_dict(mechanism),
        private=private,
        slack=stable.slack(mechanism, stable.MOST_QUERIES),
        teachers=teachers,
        classes=classes,
        declared=declared,
    )


def headline(mechanism: StableAnswers, delta: float) -> Figure:
    """The only figure of a list, which follows from the mechanism and delta.

    >>> headline(StableAnswers(threshold=30, scale=3.0, cutoff=1), 1e-5).epsilon is None
    True
    """
    return figure(Epsilon(stable.epsilon(mechanism, delta), None), "publishable", BASIS, NOTE)


def _figures(mechanism: StableAnswers, delta: float) -> dict[str, Figure]:
    found = {name: Figure(None, None, "sensitive", "", _NOT_DEFINED) for name in NAMES}
    found["data_independent"] = headline(mechanism, delta)
    found["sanitised"] = Figure(None, None, "publishable", "", _NOT_DEFINED)
    return found


def _charged(mechanism: StableAnswers, asked: int) -> str:
    last = "first unanswered query" if mechanism.cutoff == 1 else f"unanswered query {mechanism.cutoff:,}"
    return f"a whole list of stable answers, which ends with its {last}; {asked:,} queries asked"
