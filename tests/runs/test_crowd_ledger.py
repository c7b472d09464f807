"""The line of a crowd's release: beside those of teachers in one chain, and refused where it is nonsense."""

import math
from dataclasses import replace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses
from hypothesis import given
from hypothesis import strategies as st
from test_ledger import CROWD, LINE, WRITTEN, entry

from pate_jax.accounting import composition, curves, filter
from pate_jax.accounting.exact import counts
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.runs import budget, chain, ledger
from pate_jax.runs.directory import RunDirectory

RELEASE = CROWD.event


def test_both_kinds_of_lines_stand_in_one_chain(tmp_path):
    path = tmp_path / "ledger.jsonl"
    with chain.Writer(path) as book:
        teachers, crowd = ledger.append(book, LINE), ledger.append(book, CROWD)
    assert path.read_bytes().startswith(WRITTEN)  # what teachers are charged is written as before
    assert crowd == CROWD
    assert list(ledger.entries(path)) == [teachers, crowd]
    assert ledger.read(path) == [teachers] and list(ledger.releases(path)) == [crowd]


@pytest.mark.parametrize("kind", [None, "release of a later version", ["release"]])
def test_a_line_of_another_kind_is_refused(tmp_path, kind):
    path = tmp_path / "ledger.jsonl"
    with chain.Writer(path) as book:
        ledger.append(book, LINE)
        book.append({"kind": kind, **to_dict(CROWD)})
    with pytest.raises(PateError, match=r"line 2 of .* has kind="):
        ledger.read(path)


def test_costs_of_both_kinds_add_up_under_one_budget(tmp_path):
    run = RunDirectory(tmp_path)
    mechanism, size = GNMax(sigma=40.0), {"teachers": 250, "classes": 3}
    fixed = filter.plan(mechanism, epsilon=2.0, delta=1e-5, **size)
    asked = filter.cost(mechanism, order=fixed.order, **size).times(60)
    order, released = budget.cost_of(fixed, RELEASE)
    assert order == fixed.order
    with chain.Writer(run.ledger) as book:
        ledger.append(book, LINE._replace(budget=fixed, order=order, cost=asked))
        ledger.append(book, CROWD._replace(budget=fixed, cost=released))
    run.record.agree("budget", to_dict(fixed))
    total = budget.spent(run)
    assert total.rdp == pytest.approx(asked.rdp + released.rdp) and total.rdp >= asked.rdp + released.rdp
    # by another way: both curves together, at all orders
    orders = curves.default_orders()
    curve = 60 * curves.data_independent(mechanism, 250, 3, orders)[0]
    together = curves.epsilon(orders, curve + counts.rdp(RELEASE, orders), fixed.delta).epsilon
    at_one_order = (
        total.rdp + math.log1p(-1 / order) - (math.log(fixed.delta) + math.log(order)) / (order - 1)
    )
    assert together <= at_one_order * (1 + 1e-9)
    assert at_one_order <= fixed.epsilon if fixed.allows(total) else True


def test_a_line_under_another_budget_is_refused(tmp_path):
    run = RunDirectory(tmp_path)
    with chain.Writer(run.ledger) as book:
        ledger.append(book, CROWD)
    with pytest.raises(PateError, match="batch 2 in the ledger was answered under the budget"):
        budget.spent(run)


@pytest.mark.parametrize("values", ["", "3 -1 0 12 7", "3 -1 0 12 7 x", "3 -1 0 12 7 5.0", "3 -1 0 12 7 5 "])
def test_a_table_of_another_size_or_kind_is_refused(tmp_path, values):
    with pytest.raises(PateError, match="2 x 3"):
        ledger.parse(entry(CROWD, values=values), tmp_path / "ledger.jsonl")


@given(st.lists(st.integers(-(10**17), 10**17), min_size=6, max_size=6))
def test_a_table_survives_its_text(values):
    table = np.array(values, np.int64).reshape(2, 3)
    np.testing.assert_array_equal(ledger.unpack_table(ledger.pack_table(table), (2, 3)), table)


def test_the_cost_of_sums_is_that_of_their_length():
    release = ClassSums(classes=3, directions=4, length=100, sigma=4000.0)
    order, cost = budget.cost_of(None, release)
    assert cost.rdp == pytest.approx(order * (200 / 4000) ** 2 / 2) and cost.rdp >= order * 0.05**2 / 2


@pytest.mark.parametrize("noise", ["gaussian", "discrete_gaussian"])
def test_votes_counts_and_sums_in_one_ledger_cost_what_composed_losses_say(tmp_path, noise):
    """Against dp_accounting, which composes a loss for each moved count and for the length of each table."""
    run, mechanism = RunDirectory(tmp_path), GNMax(40.0) if noise == "gaussian" else DiscreteGaussianMax(40.0)
    size, tables = {"teachers": 250, "classes": 3, "rule": "counts"}, [RELEASE, ClassSums(3, 4, 50, 900.0)]
    fixed = filter.plan(mechanism, epsilon=4.0, delta=1e-5, **size)
    asked = filter.cost(mechanism, order=fixed.order, **size).times(60)
    with chain.Writer(run.ledger) as book:
        ledger.append(
            book,
            LINE._replace(
                event=replace(LINE.event, mechanism=mechanism), budget=fixed, order=fixed.order, cost=asked
            ),
        )
        for release in tables:
            values = ledger.pack_table(np.zeros(release.shape, np.int64))
            cost = budget.cost_of(fixed, release)[1]
            line = CROWD._replace(event=release, budget=fixed, order=fixed.order, cost=cost, values=values)
            ledger.append(book, line)
    run.record.agree("budget", to_dict(fixed))
    total, order = budget.spent(run).rdp, fixed.order
    spent = total + math.log1p(-1 / order) - (math.log(fixed.delta) + math.log(order)) / (order - 1)
    settings = {"value_discretization_interval": 1e-3, "use_connect_dots": True}
    votes = losses.from_gaussian_mechanism(40.0, **settings)
    if noise == "discrete_gaussian":
        votes = losses.from_discrete_gaussian_mechanism(40, 1, **settings)
    composed = votes.self_compose(2 * 60)  # a vote leaves one count and enters another
    # a changed record leaves two queries and enters two others; its vector is taken away, and another added
    for sigma in (20.0 / 2, 900.0 / (2 * 50)):
        composed = composed.compose(losses.from_gaussian_mechanism(sigma, **settings))
    wanted = composed.get_epsilon_for_delta(fixed.delta)
    teachers = 60 * curves.data_independent(mechanism, 250, 3, curves.default_orders(), rule="counts")[0]
    whole = teachers + sum(counts.rdp(one, curves.default_orders()) for one in tables)
    renyi = curves.epsilon(curves.default_orders(), whole, fixed.delta).epsilon
    assert wanted * (1 - 1e-3) <= renyi <= min(spent, 1.2 * wanted) * (1 + 1e-9)
    mus = math.sqrt(2 * 60) / 40.0, *(counts.gaussian_mu(one) for one in tables)  # of Gaussian noise
    exactly = composition.gaussian_epsilon(math.hypot(*mus), fixed.delta)
    assert exactly == pytest.approx(wanted, rel=2e-3)
