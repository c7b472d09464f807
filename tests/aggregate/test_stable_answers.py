"""The sampler of stable answers against the exact law of its epochs, and what stopping changes: nothing."""

import numpy as np
import pytest
from scipy import stats
from stable_laws import patterns

from pate_jax import aggregate
from pate_jax.aggregate import stable
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers, distance

VOTES = np.array([[30, 2, 0], [3, 29, 0], [0, 9, 23], [17, 15, 0], [32, 0, 0]] * 6)
TRIED = StableAnswers(6, 3.0, 3)


def test_patterns_follow_their_exact_law_with_a_fresh_threshold_in_each_epoch():
    """Blocks of four queries near the threshold; a hopeless fifth one ends each block's last epoch."""
    blocks, readings = 5000, (30, 31, 29, 30)
    votes = np.array([*([2 * one + 3, 1] for one in readings), [1, 1]])
    assert distance(votes).tolist() == [*readings, 0]
    mechanism = StableAnswers(30, 1.5, 5 * blocks)
    key = aggregate.seeded_key(3)
    _, found = stable.answer(mechanism, np.tile(votes, (blocks, 1)), key=key)
    block = found.answered.reshape(blocks, 5)
    assert not block[:, 4].any()
    counted = np.bincount(block[:, :4] @ [8, 4, 2, 1], minlength=16)
    assert stats.chisquare(counted, blocks * chances(1.5, readings)).pvalue > 1e-4
    for scale in (1.0, 2.25):  # and it would notice another scale
        assert stats.chisquare(counted, blocks * chances(scale, readings)).pvalue < 1e-9


def chances(scale, readings):
    law = patterns(30, scale, 99, readings)
    return np.array([law[tuple(bool(at & bit) for bit in (8, 4, 2, 1))] for at in range(16)])


def test_a_list_in_parts_gets_the_same_answers_and_halts_at_the_cutoff():
    last, whole = stable.answer(TRIED, VOTES, key=aggregate.seeded_key(8))
    progress, parts, at = stable.Progress(), [], 0
    for size in (1, 4, 7, 18):
        key = aggregate.seeded_key(8)
        progress, found = stable.answer(
            TRIED, VOTES[at : at + size], key=key, before=progress, opened=key if at else None
        )
        parts.append(found)
        at += size
    assert progress == last
    for name in whole._fields:
        np.testing.assert_array_equal(
            np.concatenate([getattr(one, name) for one in parts]), getattr(whole, name)
        )
    assert last.is_over(TRIED)
    assert last.unstable == TRIED.cutoff == (~whole.answered).sum()
    assert not whole.answered[-1]
    assert len(whole.labels) == last.asked < len(VOTES)


def test_after_the_cutoff_nothing_is_asked():
    over = stable.Progress(asked=9, unstable=TRIED.cutoff)
    key = aggregate.seeded_key(8)
    progress, found = stable.answer(TRIED, VOTES, key=key, before=over, opened=key)
    assert progress == over
    assert not len(found.labels)


def test_calls_with_keys_of_their_own_must_name_the_key_of_the_threshold():
    """Without it each call would begin an epoch, and all of them would be charged as one."""
    progress, found = stable.answer(TRIED, np.array([[900, 0]]), key=aggregate.seeded_key(0))
    assert found.answered.all()
    with pytest.raises(PateError, match=r"asked=1, unstable=0\) needs opened=, the key"):
        stable.answer(TRIED, VOTES, key=aggregate.seeded_key(1), before=progress)
    near = np.array([[2 * TRIED.threshold + 3, 1]])
    for opened, answered in (
        (10, True),
        (0, False),
    ):  # by the threshold alone, since the query's noise is one
        keys = {"key": aggregate.seeded_key(1), "opened": aggregate.seeded_key(opened)}
        _, found = stable.answer(TRIED, near, **keys, before=progress)
        assert found.answered.tolist() == [answered]


def test_answers_are_exact_pluralities_and_another_key_has_other_noise():
    found = [stable.answer(TRIED, VOTES, key=aggregate.seeded_key(seed))[1] for seed in range(6)]
    for one in found:
        mine = VOTES[: len(one.labels)].argmax(axis=1)
        np.testing.assert_array_equal(one.labels, np.where(one.answered, mine, stable.UNANSWERED))
    assert len({one.answered.tobytes() for one in found}) > 1


def test_fresh_keys_are_accepted_and_anything_else_is_refused():
    unanimous = np.tile([5000, 0], (3, 1))
    assert stable.answer(TRIED, unanimous, key=aggregate.fresh_key())[1].answered.all()
    with pytest.raises(PateError, match="typed JAX key"):
        stable.answer(TRIED, unanimous, key=7)
    with pytest.raises(PateError, match="before="):
        stable.answer(TRIED, unanimous, key=aggregate.seeded_key(1), before=stable.Progress(1, 2))
