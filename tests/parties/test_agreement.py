import dataclasses

import pytest
import small_votes

from pate_jax.errors import PateError
from pate_jax.parties import agreement as agreements
from pate_jax.parties.agreement import Noise


@pytest.fixture(scope="module")
def one():
    return small_votes.agree(training={"net": "linear", "steps": 5, "rate": 0.5, "whiten": True})


def test_a_file_holds_the_whole_agreement(one, tmp_path):
    agreements.write(tmp_path / "one.toml", one)
    found = agreements.read(tmp_path / "one.toml")
    assert found == one
    assert found.digest == one.digest


def test_what_may_be_empty_may_be_empty(one):
    bare = dataclasses.replace(one, budget={}, training={})
    assert agreements.parse(agreements.text(bare)) == bare


def test_the_digest_is_of_the_content_and_not_of_the_bytes(one):
    lines = agreements.text(one).splitlines()
    head = [line for line in lines[: lines.index("")] if line]
    shuffled = "# agreed in spring\n" + "\n".join([*reversed(head), *lines[lines.index("") :]])
    assert agreements.parse(shuffled).digest == one.digest


def changes():
    found = {"name": "b", "pool": "2" * 64, "query_list": "3" * 64, "queries": 8, "classes": 5, "vote": 2}
    found |= {"voters": "neighbours", "opened": "answers", "delta": 1e-6, "unit": "user", "seconds": 21.0}
    found |= {
        "budget": {"outsiders": 2.0},
        "training": {"net": "cnn"},
        "people": "unchecked",
        "noise": Noise(4.5),
    }
    return found


@pytest.mark.parametrize("field", [*changes(), "parties"])
def test_every_field_changes_the_digest(one, field):
    fourth = small_votes.agree(votes=(5, 6, 8, 3)).parties
    changed = dataclasses.replace(one, **{field: fourth if field == "parties" else changes()[field]})
    assert changed.digest != one.digest


WRONG = [
    ({"pool": "12"}, "pool"),
    ({"queries": 0}, "queries=0"),
    ({"queries": True}, "queries=True"),
    ({"classes": 1}, "classes=1"),
    ({"voters": "students"}, "voters='students'"),
    ({"voters": "sums", "opened": "answers"}, "no answers to open"),
    ({"opened": "all"}, "opened='all'"),
    ({"delta": 0.0}, "delta=0"),
    ({"delta": float("nan")}, "delta=nan"),
    ({"seconds": 0}, "seconds=0"),
    ({"unit": "hospital"}, "unit='hospital'"),
    ({"budget": {"outsiders": -1.0}}, "outsiders of"),
    ({"colluders": 0}, "colluders=0"),
    ({"colluders": 2}, "fewer than half"),
    ({"dropouts": 1}, "fewer than three"),
    ({"noise": Noise(4.0, 9.0, 5.0)}, "a threshold is of opened='answers'"),
    ({"vote": 0}, "vote=0"),
]


@pytest.mark.parametrize(("changed", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_what_is_wrong_is_refused_by_name(one, changed, sentence):
    with pytest.raises(PateError, match=sentence):
        dataclasses.replace(one, **changed)


def test_two_parties_cannot_hide_from_each_other(one):
    with pytest.raises(PateError, match="fewer than three"):
        dataclasses.replace(one, parties=one.parties[:2])


@pytest.mark.parametrize("field", ["name", "certificate"])
def test_two_parties_are_told_apart(one, field):
    first, second, third = one.parties
    twin = dataclasses.replace(second, **{field: getattr(first, field)})
    with pytest.raises(PateError, match="two parties have"):
        dataclasses.replace(one, parties=(first, twin, third))


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('"delta" = 1e-05', "", "lacks 'delta'"),
        ('"delta" = 1e-05', '"delta" = 1e-05\n"epsilon" = 1.0', "has no 'epsilon'"),
        ('"delta" = 1e-05', '"delta" = ', "no TOML"),
        ('"scale" = 4.0', '"scale" = -4.0', "scale of"),
        ("BEGIN CERTIFICATE", "BEGIN SOMETHING", "certificate of north"),
        ('"north"', '"no rth"', "name='no rth'"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(one, old, new, sentence):
    text = agreements.text(one)
    assert old in text
    with pytest.raises(PateError, match=sentence):
        agreements.parse(text.replace(old, new, 1))
