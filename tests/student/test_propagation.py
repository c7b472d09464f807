"""Answers that are carried over the pool before ridge learns it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax import data
from pate_jax.aggregate import Answers
from pate_jax.models import patches
from pate_jax.student import PublicInputs, Ridge, fit
from pate_jax.student.lesson import lesson
from pate_jax.student.methods import ridge

ASKED, POOL = 50, 300


@pytest.fixture(scope="module")
def drawn():
    return data.load("glyphs", classes=10, size=20, public_size=POOL, test_size=200)


def learned(drawn, labels):
    public = PublicInputs(drawn.public.inputs, drawn.preprocessing, 10, drawn.class_names)
    return public, Answers(jnp.asarray(labels, jnp.int32), jnp.ones(len(labels), bool))


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:no answer names class")
def test_the_pool_is_learned_where_it_predicts_left_out_answers_better(drawn, monkeypatch):
    public, answers = learned(drawn, drawn.public.labels[:ASKED])
    wide = fit(jax.random.key(0), public, answers, Ridge())
    monkeypatch.setattr(ridge, "carried", lambda *_: None)
    narrow = fit(jax.random.key(0), public, answers, Ridge())
    right = [(each(drawn.test.inputs).argmax(1) == drawn.test.labels).mean() for each in (wide, narrow)]
    assert len(wide.parameters["examples"]) == POOL and len(narrow.parameters["examples"]) == ASKED
    assert right[0] > right[1] + 0.03


@pytest.mark.filterwarnings("ignore:no answer names class")
def test_what_is_carried_to_an_answer_does_not_see_it(drawn):
    """Another answer changes what is carried to others of other parts, and not to its own image."""
    labels = drawn.public.labels[:ASKED]
    given = lesson(*learned(drawn, labels))
    images = ridge.scaled(given)
    known, found = patches.learn(images, kinds=10), []
    for changed in (labels, np.r_[(labels[0] + 1) % 10, labels[1:]]):
        carried = ridge.carried(known, images, given, np.eye(10)[changed])
        found.append((carried.unseen - carried.unseen.mean(0)).argmax(1))
    assert found[0][0] == found[1][0]
    assert ridge.carried(known, images[: 2 * ASKED - 1], given, np.eye(10)[labels]) is None
