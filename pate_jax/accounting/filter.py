"""A privacy filter: a budget fixed in advance that adaptively chosen questions cannot exceed.

**Setting.** Someone asks one question after another. Each may depend on all answers so far: which input,
whether to go on at all, even which mechanism. The sum of the costs is then no guarantee, because it depends
on the answers itself (docs/proofs/accounting.md, "Why the exact figure is a bound"). A filter reverses this:
the budget `(epsilon, delta)` is public and fixed, a question whose cost no longer fits is refused before it
is asked, and the budget is what is published, even if less was spent.

**The theorem** (Feldman and Zrnic 2021, *Individual privacy accounting via a Renyi filter*, Theorem 4.1; for
the approximate kind Rogers, Roth, Ullman, Vadhan 2016). Fix one order `a > 1` and a number `R`. Let question
t be, for every history before it, of Renyi cost at most `c_t` at order `a` on any two neighbouring data sets,
`c_t` a function of that history. If the sum of `c_t` over the questions asked is at most `R` on every
history, all answers together are `(a, R)`-Renyi private. *Proof*, for `P` and `Q` the laws of the answers on
the two data sets and `L_t = (dP/dQ)(answer t | history)`: `E_Q[L_t^a | history] <= e^{(a-1) c_t}`, so
`M_t = prod_{s<=t} L_s^a e^{-(a-1) c_s}` has `E_Q[M_t | history] <= M_{t-1}`, hence `E_Q[M_end] <= 1`, and
`prod L_t^a <= e^{(a-1) R} M_end`. Stopping early only ends the product earlier. A refusal is a function of
the costs, which are functions of the history, so it reveals nothing more.

**Costs** here are the data-independent curves of `curves.data_independent`: test and argmax together, at the
worst histogram of the given number of teachers. They bound one question for every history before it
(docs/proofs/worst_case.md, claim 1), as the theorem requires. They never read a vote, so a refusal does not
either. `rule` says which of the two curves is charged; both are bounds.

**One order.** The theorem allows one order, fixed in advance. `plan` takes the order at which the budget
affords the most questions to the run's mechanism; it reads public numbers only. Where the cost is linear in
the order (Gaussian answers without a test: zero-concentrated privacy), spending `rho` at all orders at once
is allowed, because each order satisfies the theorem with `R = a rho`. The budget of the best order is the
largest such `rho`, so in this case a single order loses nothing.

**Delta.** `R = epsilon - log1p(-1/a) + (log(delta') + log(a)) / (a - 1)` inverts the tight conversion. The
drawn noise differs from its ideal law by a total-variation distance `s_t` for each question
(`mechanisms.laws`), which is also a function of the history. The filter keeps the sum of all `s_t` below `S`,
and `delta' = delta - (1 + e^epsilon) S` pays for it: if ideal answers are `(epsilon, delta')`-private, drawn
ones are `(epsilon, delta)`-private.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from pate_jax.accounting import curves
from pate_jax.accounting.curves import Rule, sampler_slack
from pate_jax.accounting.inputs import Curve, check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.codec import from_dict, to_dict

_ROUNDING = 1e-9  # relative: costs are rounded up, the budget is rounded down
_MOST = 1e12  # the largest number of questions that is counted


class Cost(NamedTuple):
    """The cost of questions, whatever the votes."""

    rdp: float  # at the filter's order
    slack: float  # total-variation distance of their noise from its ideal law

    def times(self, questions: int) -> Cost:
        """The cost of this many questions of this cost each.

        >>> Cost(0.5, 0.0).times(4).rdp >= 2.0
        True
        """
        return Cost(self.rdp * questions * (1 + 1e-15), self.slack * questions * (1 + 1e-15))

    def plus(self, other: Cost) -> Cost:
        """Both costs together, rounded up."""
        return Cost(
            math.nextafter(self.rdp + other.rdp, math.inf), math.nextafter(self.slack + other.slack, math.inf)
        )


NOTHING = Cost(0.0, 0.0)


@dataclass(frozen=True)
class Filter:
    """A budget, and what it allows at the order that was fixed for it; `plan` makes it.

    >>> from pate_jax.mechanisms import GNMax
    >>> of = {"teachers": 250, "classes": 10, "rule": "counts"}
    >>> found = plan(GNMax(sigma=40.0), epsilon=1.0, delta=1e-5, **of)
    >>> each = cost(GNMax(sigma=40.0), order=found.order, **of)
    >>> found.affords(NOTHING, each), found.affords(each.times(30), each)
    (48, 18)
    """

    epsilon: float
    delta: float
    order: float
    rdp: float  # the most that all questions together may cost at this order
    slack: float  # the most that the distances of their noise may add up to

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if not 0 <= value < math.inf:
                raise PateError(f"{name}={value!r} of a budget must be a finite number of at least 0")

    def affords(self, spent: Cost, each: Cost) -> int:
        """How many more questions of the cost `each` fit after `spent`."""
        parts = [(self.rdp, spent.rdp, each.rdp), (self.slack, spent.slack, each.slack)]
        if any(cost < 0 or math.isnan(cost) for cost in (*spent, *each)):
            raise PateError(f"spent={spent} and each={each} must be at least 0")
        questions = min(_count(whole, used, one) for whole, used, one in parts)
        while questions > 0 and not self.allows(spent.plus(each.times(questions))):
            questions -= 1
        return questions

    def allows(self, total: Cost) -> bool:
        """Whether a total is within the budget."""
        return total.rdp <= self.rdp and total.slack <= self.slack


def budget_to_dict(budget: Filter | None) -> dict[str, Any]:
    """A budget, or that there is none, as settings and ledger record it.

    >>> budget_to_dict(None)
    {'epsilon': None}
    """
    return {"epsilon": None} if budget is None else to_dict(budget)


def budget_from_dict(recorded: dict[str, Any]) -> Filter | None:
    """The budget that `budget_to_dict` described."""
    if recorded == budget_to_dict(None):
        return None
    return cast(Filter, from_dict(Filter, recorded, f"budget={recorded}"))


def cost(mechanism: Mechanism, *, teachers: int, classes: int, order: float, rule: Rule = "index") -> Cost:
    """The cost of one question at an order, whatever the votes: test and argmax as one joint mechanism.

    >>> from pate_jax.mechanisms import GNMax
    >>> one = cost(GNMax(sigma=10.0), teachers=250, classes=10, order=2.0)
    >>> round(one.rdp, 3)
    0.013
    """
    rdp = float(curves.data_independent(mechanism, teachers, classes, [order], rule=rule)[0, 0])
    return Cost(rdp * (1 + _ROUNDING), sampler_slack(mechanism, 1, classes) * (1 + _ROUNDING))


def plan(
    mechanism: Mechanism,
    *,
    teachers: int,
    classes: int,
    epsilon: float,
    delta: float,
    rule: Rule = "index",
) -> Filter:
    """The filter whose order affords this mechanism the most questions; it reads public numbers only."""
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PateError(f"budget_epsilon={epsilon!r} must be a finite number above 0")
    delta = check_delta(delta)

    def each(orders: Curve) -> Curve:
        result: Curve = curves.data_independent(mechanism, teachers, classes, orders, rule=rule)[0]
        return result

    slack = _slack(mechanism, classes, each, epsilon, delta)
    inner = delta - (1 + math.exp(min(epsilon, 700.0))) * slack * (1 + _ROUNDING)
    if inner <= 0:
        raise PateError(
            f"budget_epsilon={epsilon:g} cannot be kept at delta={delta:g}: the error of the sampler of "
            f"{mechanism!r} alone takes more than this delta; take a discrete mechanism, a larger delta or a "
            "smaller budget"
        )
    orders = _fine_orders(each, epsilon, inner)
    best = _best(each, epsilon, inner, orders)
    order = float(orders[best])
    rdp = float(_rooms(epsilon, inner, orders)[best])
    planned = Filter(epsilon, delta, order, max(rdp, 0.0) * (1 - _ROUNDING), slack)
    one = cost(mechanism, teachers=teachers, classes=classes, order=order, rule=rule)
    if planned.affords(NOTHING, one) < 1:
        raise PateError(
            f"budget_epsilon={epsilon:g} at delta={delta:g} does not afford one answer of {mechanism!r}: "
            "raise the budget or the noise"
        )
    return planned


def affordable(mechanism: Mechanism, *, teachers: int, classes: int, epsilon: float, delta: float) -> int:
    """How many questions of a mechanism the filter made for it affords.

    >>> from pate_jax.mechanisms import GNMax
    >>> affordable(GNMax(40.0), teachers=250, classes=10, epsilon=1.0, delta=1e-5)
    75
    """
    planned = plan(mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)
    each = cost(mechanism, teachers=teachers, classes=classes, order=planned.order)
    return planned.affords(NOTHING, each)


def _slack(
    mechanism: Mechanism, classes: int, each: Callable[[Curve], Curve], epsilon: float, delta: float
) -> float:
    """The most total slack: enough for as many questions as the whole delta would afford."""
    orders = curves.default_orders()
    rooms = _rooms(epsilon, delta, orders)
    most = math.ceil(min(float(np.max(rooms / np.maximum(each(orders), 1e-300))) * 1.5, _MOST))
    return sampler_slack(mechanism, max(most, 1), classes) * (1 + 4 * _ROUNDING)


def _rooms(epsilon: float, delta: float, orders: Curve) -> Curve:
    """The budget at each order: the tight conversion solved for the curve. Below 0, nothing may be spent."""
    result: Curve = epsilon - np.log1p(-1 / orders) + (np.log(delta) + np.log(orders)) / (orders - 1)
    return result


def _best(each: Callable[[Curve], Curve], epsilon: float, delta: float, orders: Curve) -> int:
    """The place of the order that affords the most questions of the cost `each`."""
    return int(np.argmax(_rooms(epsilon, delta, orders) / np.maximum(each(orders), 1e-300)))


def _fine_orders(each: Callable[[Curve], Curve], epsilon: float, delta: float) -> Curve:
    """A fine grid of orders between the two neighbours of the best default order."""
    orders = curves.default_orders()
    best = _best(each, epsilon, delta, orders)
    low, high = orders[max(best - 1, 0)], orders[min(best + 1, len(orders) - 1)]
    return 1 + np.geomspace(low - 1, high - 1, 41)


def _count(whole: float, spent: float, one: float) -> int:
    if spent > whole:
        return 0
    return int(_MOST) if one == 0 else int(min((whole - spent) / one, _MOST))
