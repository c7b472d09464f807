"""The statement of crowds: its figure covers either change of a voter, and a forged one is one sentence."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    few = accounting.crowd_statement([HeadCount(sigma=20.0), TABLE], 1e-5, voters=60_000, private=True)
    joined = composition.gaussian_epsilon((2 / 40**2 + 1 / 20**2) ** 0.5, 1e-5)
    assert joined > changed and few.headline.epsilon == pytest.approx(joined, rel=1e-5)


def test_a_discrete_gaussian_is_stated_by_its_losses_or_its_curve():
    table = ClassSums(classes=3, directions=4, length=100, sigma=4000.0, family="discrete_gaussian")
    made = accounting.crowd_statement([table], 1e-5, voters=900, private=True)
    assert made.headline.basis == "Renyi differential privacy of the whole table"
    assert made.headline.epsilon >= composition.gaussian_epsilon(200 / 4000, 1e-5)
    assert made.headline.epsilon == counts.worst([table], 1e-5)


@pytest.mark.parametrize("relation", ["record", "user"])
@pytest.mark.parametrize("private", [True, False])
def test_a_statement_survives_its_description_and_its_words_fit(relation, private):
    made = accounting.crowd_statement(
        [NUMBER, TABLE], 1e-5, voters=60_000, relation=relation, private=private
    )
    again = accounting.Statement.from_dict(json.loads(json.dumps(made.to_dict())))
    assert again == made and again.publishable() == made.to_dict()
    text = made.text()
    assert f"one {relation} adds at most 2 votes in all" in text and "about 60,000" in text
    assert made.model_card_line() in text and (accounting.RELATIONS[relation] in text)
    assert text.startswith("NOT PRIVATE") != private
    assert "sensitive" not in made.html() and "Smallest guarantee" not in text


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(["releases", "voters", "delta", "relation", "private", "figures"]), ANYTHING)
def test_a_field_of_another_kind_is_one_sentence(field, value):
    try:
        found = accounting.Statement.from_dict({**MADE.to_dict(), field: value})
    except PateError as error:
        assert "\n" not in str(error)
    else:
        assert found.to_dict()[field] == value


@pytest.mark.parametrize("field", ["voters", "delta", "relation", "private", "figures"])
def test_a_statement_that_lacks_a_field_is_refused(field):
    lacking = {name: value for name, value in MADE.to_dict().items() if name != field}
    with pytest.raises(PateError, match="no statement"):
        accounting.Statement.from_dict(lacking)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"releases": []}, "0 releases"),
        ({"relation": "party"}, "relation='party'"),
        ({"voters": 0}, "voters=0"),
        ({"more": 1}, "more"),
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
