"""The statement of crowds: its figure covers either change of a voter, and a forged one is one sentence."""

import math
from dataclasses import replace

import pytest

from pate_jax import accounting
from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, HeadCount, NeighbourCounts

TABLE = NeighbourCounts(queries=80, classes=10, votes=2, sigma=40.0)
NUMBER = HeadCount(sigma=30.0)
MADE = accounting.crowd_statement([NUMBER, TABLE], 1e-5, voters=60_000, private=True)


def test_the_figure_is_the_larger_of_a_changed_voter_and_of_one_added_or_removed():
    changed = composition.gaussian_epsilon(2 / 40, 1e-5)
    assert MADE.headline.epsilon == pytest.approx(changed, rel=1e-5)
    assert "about 60,000" in MADE.charged and "one record adds at most 2 votes in all" in MADE.charged
    few = accounting.crowd_statement([HeadCount(sigma=20.0), TABLE], 1e-5, voters=60_000, private=True)
    joined = composition.gaussian_epsilon((2 / 40**2 + 1 / 20**2) ** 0.5, 1e-5)
    assert joined > changed and few.headline.epsilon == pytest.approx(joined, rel=1e-5)


def test_a_discrete_gaussian_is_stated_by_its_losses_or_its_curve():
    table = ClassSums(classes=3, directions=4, length=100, sigma=4000.0, family="discrete_gaussian")
    made = accounting.crowd_statement([table], 1e-5, voters=900, private=True)
    assert made.headline.basis == "Renyi differential privacy of the whole table"
    assert made.headline.epsilon >= composition.gaussian_epsilon(200 / 4000, 1e-5)
    assert made.headline.epsilon == counts.worst([table], 1e-5)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"releases": []}, "0 releases"),
        ({"relation": "party"}, "relation='party'"),
        ({"voters": 0}, "voters=0"),
        ({"delta": 2.0}, "delta"),
        ({"figures": {"exact": MADE.headline.to_dict()}}, "'exact'"),
        ({"figures": {"data_independent": {**MADE.headline.to_dict(), "status": "sensitive"}}}, "figure"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes, sentence):
    with pytest.raises(PateError, match=sentence):
        accounting.Statement.from_dict({**MADE.to_dict(), **changes})


@pytest.mark.parametrize("given", [{"voters": 0}, {"relation": "party"}, {"delta": 0.0}])
def test_a_statement_of_nonsense_is_not_made(given):
    with pytest.raises(PateError):
        accounting.crowd_statement([TABLE], **{"delta": 1e-5, "voters": 9, "private": True, **given})


@pytest.mark.parametrize(("epsilon", "delta"), [(60.0, 1e-5), (1e9, 1e-5), (1.0, 1e-30), (30.0, 1e-9)])
def test_what_the_drawn_noise_cannot_keep_is_refused(epsilon, delta):
    """The runs had been released, and stated more than was asked for, or no finite figure."""
    with pytest.raises(PateError, match=r"cannot be kept at delta=.*(raise delta|at most)"):
        counts.mu_for(epsilon, delta)


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9, 1e-15])
@pytest.mark.parametrize("voters", ["sums", "neighbours"])
def test_the_largest_epsilon_that_is_not_refused_is_kept(voters, delta):
    wished = counts.largest_epsilon(delta) * (1 - 1e-9)
    mu = counts.mu_for(wished, delta)
    shape = {"classes": 1000, "sigma": 1.0}
    size = {"directions": 400, "length": 4000} if voters == "sums" else {"queries": 2000, "votes": 8}
    release = {"sums": ClassSums, "neighbours": NeighbourCounts}[voters](**shape, **size)
    shift = math.sqrt(release.squared_shift("changed"))
    release = replace(release, sigma=max(1.0, shift / mu * (1 + 1e-6)))
    assert counts.epsilon([counts.headcount_for(mu, voters), release], delta) <= wished * (1 + 1e-6)


def test_equal_releases_that_follow_one_another_are_named_once():
    steps = [ClassSums(classes=2, directions=7, length=400, sigma=9000.0)] * 3
    made = accounting.crowd_statement([NUMBER, *steps], 1e-5, voters=5000, private=True)
    assert made.charged.count("a table of") == 1 and "; 3 times a table of 1 x 7 sums" in made.charged
