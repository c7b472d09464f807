"""When training ends early: its rules by hand, that nothing else of the training changes, and one program."""

import dataclasses
from functools import partial

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_student_methods import SMALL, answers_of, leaves, pictures, public

from pate_jax.student import FixMatch, fit, training
from pate_jax.student.lesson import lesson
from pate_jax.student.methods import NETS, nets
from pate_jax.student.training import Clear, Ending, Loop, Settling


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
    rule = Settling(steps, lambda step: labels[step // 400 - 1], share) if share else Ending(steps)
    step, ended = 0, []
    while step < rule.end:
        step = min(step + training.TICK, rule.end)
        ended += [step] if rule.look(step, step) else []
    assert step == rule.end == end_by_hand(steps, share, np.array(changes) / 100)
    assert ended == ([] if rule.end == steps else [rule.fall[0]])
    assert rule.fall[1] == (steps + 1 if rule.end == steps else rule.end)


@pytest.fixture
def looked_at(monkeypatch):
    """The weights of every look, which come each twenty steps."""
    seen = []

    def recording(kind):
        class Recorded(kind):
            def look(self, step, weights):
                seen.append([np.asarray(leaf).copy() for leaf in jax.tree.leaves(weights)])
                return super().look(step, weights)

        return Recorded

    monkeypatch.setattr(training, "_EVERY", 20)
    monkeypatch.setattr(training, "TICK", 20)
    for kind in (Ending, Settling, Clear):
        monkeypatch.setattr(nets, kind.__name__, recording(kind))
    return seen


SHORT = FixMatch(steps=120, strength=0.5, confidence=0.8, devices=1, **SMALL)


def learned(settled):
    images, labels = pictures(300)
    config = dataclasses.replace(SHORT, settled=settled)
    return fit(jax.random.key(1), public(images), answers_of(labels[:60]), config)


@pytest.mark.long
def test_until_a_student_has_settled_nothing_differs_from_training_to_the_end(looked_at, capsys):
    """It settles at once here (all labels may change), at 40 steps, and ends after 54."""
    short = learned(0.99)
    assert "labels of public inputs have settled, so 54 steps are enough" in capsys.readouterr().err
    early = looked_at[:]
    looked_at.clear()
    whole = learned(0.0)
    assert len(early) == 3 and len(looked_at) == 6 and not capsys.readouterr().err
    for place in range(2):
        for left, right in zip(early[place], looked_at[place], strict=True):
            np.testing.assert_array_equal(left, right)
    assert any((left != right).any() for left, right in zip(leaves(short), leaves(whole), strict=True))


def test_a_trial_ends_where_it_is_clear_and_nothing_differs_until_then(looked_at, capsys):
    """Labels are those of the inputs asked about, in their order; the second look is clear."""
    images, labels = pictures(300)
    config = dataclasses.replace(SHORT, settled=0.5).resolved(image=True)
    given, asked = lesson(public(images), answers_of(labels[:60])), []

    def is_clear(found):
        asked.append(found)
        return len(asked) == 2

    rows = np.arange(60, 100)[::-1]
    (short,) = NETS["fixmatch"](config, jax.random.key(1)[None], given, nets.Exam(rows, is_clear))
    said = capsys.readouterr().err
    assert "this trial leaves no doubt, so 40 steps are enough" in said
    assert np.array_equal(asked[1], short.student(given.public)(images[rows]).argmax(1))
    early = looked_at[:]
    looked_at.clear()
    NETS["fixmatch"](dataclasses.replace(config, settled=0.0), jax.random.key(1)[None], given)
    assert len(early) == 2 and len(looked_at) == 6
    for place in range(2):
        for left, right in zip(early[place], looked_at[place], strict=True):
            np.testing.assert_array_equal(left, right)
    for left, right in zip(early[1], jax.tree.leaves(short.parameters), strict=True):
        np.testing.assert_array_equal(left[0], right)


rates = jax.jit(jax.vmap(training.rate, (0, None)))


@given(steps=st.integers(1, 300))
def test_the_rate_is_the_schedule_that_optax_has(steps):
    wanted = optax.warmup_cosine_decay_schedule(0.0, 1.0, max(steps // 10, 1), max(steps, 2))
    pace = training.pace_of(Loop(steps, 1, 1.0), Ending(steps))
    places = np.array([0, steps // 20, steps // 10, steps // 2, steps - 1])
    np.testing.assert_allclose(rates(places, pace), [float(wanted(step)) for step in places], atol=1e-6)


def test_the_rate_falls_to_nothing_where_training_ends_early():
    steps = np.arange(0, 300)
    whole, early = (np.asarray(rates(steps, np.array([600, *fall]))) for fall in ((600, 601), (200, 267)))
    assert (early[:201] == whole[:201]).all() and (early[267:] == 0).all()
    assert (np.diff(early[200:268]) < 0).all()
    assert early[233] / whole[233] == pytest.approx(0.512, abs=1e-3)


def test_one_program_trains_students_of_any_steps_and_number_of_answers(monkeypatch):
    images, labels = pictures(300)
    made, program = [], training.program
    nets._program.cache_clear()
    monkeypatch.setattr(training, "program", lambda *given: made.append(program(*given)) or made[-1])
    for steps, answers in ((3, 20), (7, 31), (112, 90)):
        config = dataclasses.replace(SHORT, steps=steps)
        fit(jax.random.key(1), public(images), answers_of(labels[:answers]), config)
    assert len(made) == 1 and made[0].advance._cache_size() == 1


@pytest.mark.parametrize("soft", [False, True])
def test_places_without_an_answer_are_never_drawn(soft):
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(50, 3)), random.integers(0, 4, 8)
    shares = (random.random((8, 4)), random.random(8)) if soft else None
    exact = training.Pool(inputs, 8, np.arange(8), labels, 1.0, shares)
    bad = np.full(42, -1)
    wide = exact._replace(rows=np.r_[exact.rows, bad], labels=np.r_[labels, bad])
    if shares is not None:
        wide = wide._replace(soft=(np.r_[shares[0], np.full((42, 4), np.nan)], np.r_[shares[1], bad]))
    found = [
        jax.jit(partial(training._draw, smoothing=0.1, classes=4))(
            jax.random.key(0), jax.tree.map(np.asarray, pool), np.arange(200), np.arange(9)
        )
        for pool in (exact, wide)
    ]
    assert len(np.unique(found[0].inputs, axis=0)) == 8
    for left, right in zip(*map(jax.tree.leaves, found), strict=True):
        assert bool((left == right).all())
