"""What statements of every kind have in common: their JSON, their words, and what they refuse."""

import functools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting.sampled_noise import Training
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax
from pate_jax.mechanisms.crowds import HeadCount, NeighbourCounts
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.mechanisms.stable import StableAnswers

VOTES = [[60, 30, 10], [90, 5, 5], [40, 35, 25]]
TABLES = [HeadCount(sigma=30.0), NeighbourCounts(queries=80, classes=10, votes=2, sigma=40.0)]
LIST = {"asked": 90, "answered": 89, "teachers": 250, "classes": 10}
VOTE = SharedVote("teachers", "counts", 3, 40.0, 10, queries=64, colluding=1)
MAKERS = {
    "answers": functools.partial(
        accounting.statement, ConfidentGNMax(60, 40.0, 10.0), VOTES, [True, True, False], 1e-5
    ),
    "list": functools.partial(accounting.stable_statement, StableAnswers(40, 3.0, 1), 1e-5, **LIST),
    "tables": functools.partial(accounting.crowd_statement, TABLES, 1e-5, voters=60_000, relation="user"),
    "parties": functools.partial(accounting.party_statement, VOTE, 1e-5, answered=60),
    "training": functools.partial(accounting.training_statement, Training(0.01, 90, 1.0), 0.9, 0.5, 1e-5),
}
FIELDS = {  # that each kind cannot lack
    "answers": ("mechanism", "asked", "answered", "charged", "slack", "figures"),
    "list": ("mechanism", "asked", "answered", "charged", "slack", "figures"),
    "tables": ("releases", "voters", "figures"),
    "parties": ("shared", "answered", "audiences"),
    "training": ("training", "figures"),
}
NEEDED = [(kind, name) for kind, own in FIELDS.items() for name in (*own, "delta", "relation", "private")]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@functools.cache
def made(kind, private=True):
    return MAKERS[kind](private=private)


@functools.cache
def described(kind):
    return json.dumps(made(kind).to_dict(), allow_nan=False)


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("kind", MAKERS)
def test_it_survives_its_description_and_its_words_fit(kind, private):
    one = made(kind, private)
    whole, public = (json.loads(json.dumps(body)) for body in (one.to_dict(), one.publishable()))
    assert accounting.Statement.from_dict(whole) == type(one).from_dict(whole) == one
    assert accounting.Statement.from_dict(public).publishable() == public
    for words in (one.text(), one.text(publishable_only=True)):
        assert one.model_card_line() in words and one.covers in words and one.charged in words
        assert ("NOT PRIVATE" in words) != private
    for words in (one.model_card_line(), next(iter(public.values())), next(iter(whole.values())), one.html()):
        assert ("NOT PRIVATE" in str(words)[:30]) != private
    assert one.headline.status == "publishable" and "sensitive" not in one.html(publishable_only=True)
    assert ("All releases together" in one.text()) == private


def shown(statement):
    """The fields of a statement, as its description has them."""
    figures = {name: figure.to_dict() for name, figure in statement.figures.items()}
    common = ("delta", "relation", "private", "charged")
    return {**statement.own(), "figures": figures, **{name: getattr(statement, name) for name in common}}


@pytest.mark.parametrize("kind", MAKERS)
def test_no_figure_takes_the_status_of_another(kind):
    for name, figure in made(kind).figures.items():
        body = json.loads(described(kind))
        body["figures"][name]["status"] = "publishable" if figure.status == "sensitive" else "sensitive"
        if kind in ("parties", "training"):  # whose figures follow from other fields
            assert accounting.Statement.from_dict(body) == made(kind)
            continue
        with pytest.raises(PateError, match="no statement"):
            accounting.Statement.from_dict(body)


@given(st.sampled_from(NEEDED), ANYTHING)
def test_a_field_of_another_kind_is_one_sentence(needed, value):
    kind, field = needed
    try:
        found = accounting.Statement.from_dict({**json.loads(described(kind)), field: value})
    except PateError as error:
        assert "\n" not in str(error)
    else:
        assert shown(found)[field] == value or (kind in ("answers", "list") and field == "figures")


@pytest.mark.parametrize(("kind", "field"), NEEDED)
def test_a_statement_that_lacks_a_field_or_has_another_is_refused(kind, field):
    body = json.loads(described(kind))
    del body[field]
    with pytest.raises(PateError, match="no statement"):
        accounting.Statement.from_dict(body)
    with pytest.raises(PateError, match="the field 'more'"):
        accounting.Statement.from_dict({**json.loads(described(kind)), "more": 1})
