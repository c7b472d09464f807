"""When a student's training ends early: its rule by hand, and that nothing else of the training changes."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_student_methods import SMALL, answers_of, leaves, pictures, public

from pate_jax.student import FixMatch, fit, settling, training
from pate_jax.student.settling import Settling


def end_by_hand(steps, share, changes):
    """The step after which training ends, from the share of labels that change until each look."""
    for number, changed in enumerate(changes, start=2):  # nothing is known at the first look
        step = 400 * number
        if 4 * step >= steps and changed < share and step + -(-step // 3) < steps:
            return step + -(-step // 3)
    return steps


@given(
    steps=st.integers(1, 8000),
    share=st.sampled_from([0.0, 0.05, 0.1]),
    changes=st.lists(st.integers(0, 20), min_size=20, max_size=20),
)
def test_training_ends_where_few_enough_labels_change(steps, share, changes):
    """Labels are 0 and 1, of which the first few change; of two students one never changes."""
    labels = [np.zeros((2, 100), int)]
    for count in changes:
        labels.append(labels[-1].copy())
        labels[-1][1, :count] ^= 1
    rule = Settling(steps, share, lambda step: labels[step // 400 - 1])
    step, ended = 0, []
    while step < rule.end:
        step = min(step + training.TICK, rule.end)
        ended += [step] if rule.look(step, step) else []
    assert step == rule.end == end_by_hand(steps, share, np.array(changes) / 100)
    assert ended == ([] if rule.end == steps else [rule.fall[0]])
    assert rule.fall[1] == (steps + 1 if rule.end == steps else rule.end)


@pytest.fixture
def looked_at(monkeypatch):
    """The weights of every look, which come each hundred steps."""
    seen = []

    class Recorded(Settling):
        def look(self, step, weights):
            seen.append([np.asarray(leaf).copy() for leaf in jax.tree.leaves(weights)])
            return super().look(step, weights)

    monkeypatch.setattr(settling, "_EVERY", 100)
    monkeypatch.setattr(training, "Settling", Recorded)
    return seen


def learned(settled):
    images, labels = pictures(300)
    config = FixMatch(steps=600, strength=0.5, confidence=0.8, devices=1, settled=settled, **SMALL)
    return fit(jax.random.key(1), public(images), answers_of(labels[:60]), config)


def test_until_a_student_has_settled_nothing_differs_from_training_to_the_end(looked_at, capsys):
    """It settles at once here (all labels may change), at 200 steps, and ends after 267."""
    short = learned(0.99)
    assert "labels of public inputs have settled, so 267 steps are enough" in capsys.readouterr().err
    early = looked_at[:]
    looked_at.clear()
    whole = learned(0.0)
    assert len(early) == 3 and len(looked_at) == 6 and not capsys.readouterr().err
    for place in range(2):
        for left, right in zip(early[place], looked_at[place], strict=True):
            np.testing.assert_array_equal(left, right)
    assert any((left != right).any() for left, right in zip(leaves(short), leaves(whole), strict=True))


def test_the_rate_falls_to_nothing():
    steps = np.arange(0, 300)
    rate = np.array([training.falling(step, np.array([200, 267])) for step in steps])
    assert (rate[:201] == 1).all() and (rate[267:] == 0).all()
    assert (np.diff(rate[200:268]) < 0).all() and rate[233] == pytest.approx(0.512, abs=1e-3)
