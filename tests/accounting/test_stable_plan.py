"""What `pate plan` says of stable answers, on votes whose share of doubtful queries is known."""

import numpy as np
import pytest

from pate_jax.accounting import stable, stable_plan
from pate_jax.accounting.vote_models import VotesOf

GOAL = {"shard": 240, "classes": 2, "budget": 1.0, "delta": 1e-5}


def votes(doubtful, teachers=250, queries=400):
    counts = np.tile([teachers, 0], (queries, 1))
    counts[:doubtful] = [teachers // 2, teachers - teachers // 2]
    return [VotesOf("made", counts, np.zeros(queries, np.int64), 240)]


@pytest.mark.parametrize(("doubtful", "answers"), [(0, 2000), (4, 99), (40, 9)])
def test_a_list_ends_after_as_many_queries_as_the_share_of_doubtful_ones_says(doubtful, answers):
    found = stable_plan.outlook(votes(doubtful), teachers=250, queries=2000, **GOAL)
    assert found.mechanism.cutoff == 1
    assert found.unstable == pytest.approx(doubtful / 400)
    assert found.answers == pytest.approx(answers, rel=1e-6)
    said = found.text(250, worth=80)
    assert ("fewer" if answers < 80 else "more") in said
    assert found.flags in said
    assert found.flags.startswith("stable-answers --cutoff 1 --threshold 39 --scale 3.0")


def test_few_teachers_never_answer_and_the_sentence_says_so():
    found = stable_plan.outlook(votes(0, teachers=60), teachers=60, queries=2000, **GOAL)
    assert found.mechanism is None
    assert found.to_dict()["flags"] == ""
    assert "hardly ever answer" in found.text(60, worth=10)


@pytest.mark.parametrize("budget", [1e-6, 1e-3, 30.0, 1e6])
def test_no_budget_of_a_plan_is_refused_and_none_is_exceeded(budget):
    goal = {**GOAL, "budget": budget}
    found = stable_plan.outlook(votes(4), teachers=250, queries=2000, **goal)
    assert (found.mechanism is None) == (budget < 0.01)
    if found.mechanism is not None:
        assert stable.epsilon(found.mechanism, 1e-5, 2000) <= budget
        assert found.answers > 90
        assert stable.epsilon(found.mechanism, 1e-5) <= budget  # as a run checks it
