"""The page about the guarantee: the tests and commands that it names exist, and statements keep its words."""

import ast
import functools
import re
from dataclasses import replace
from pathlib import Path

import honest_runs
import numpy as np
import pytest

from pate_jax import accounting, data
from pate_jax.accounting.statement import RELATIONS
from pate_jax.audit import verify
from pate_jax.data import relation
from pate_jax.errors import PateError
from pate_jax.mechanisms import BY_NAME, DiscreteGaussianMax, GNMax, Noise
from pate_jax.runs import stages
from pate_jax.runs.release import write
from pate_jax.runs.report import run_pages

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/proofs/guarantee.md").read_text()
VOTES = [[7, 2, 1], [4, 3, 3]]


@functools.cache
def functions(path):
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) >= 20
    for path, name in named:
        assert name in functions(ROOT / path), f"{path} has no {name}"
    assert (ROOT / "tests" / "system" / "mutations").is_dir()


def test_every_check_that_is_named_exists(tmp_path):
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and "pate verify" in line]
    named = {
        name.strip()
        for row in rows
        for found in re.findall(r"`pate verify`: ([\w, ]+)", row)
        for name in found.split(",")
    }
    named |= set(re.findall(r"`(?:pate verify )?--deep`: (\w+)", PAGE))
    known = set(verify.of_run(stages.RunDirectory(tmp_path)).checks)
    assert {name.split()[0] for name in named} <= known and len(named) >= 10


def test_the_relations_are_those_of_the_statements():
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == set(RELATIONS) == set(write._WHOM)


@pytest.mark.parametrize("whom", RELATIONS)
def test_each_relation_is_told_in_words(whom):
    made = accounting.statement(DiscreteGaussianMax(9.0), VOTES, None, 1e-5, relation=whom, private=True)
    assert RELATIONS[whom] in made.model_card_line() and run_pages.promised(made)
    again = accounting.Statement.from_dict(made.publishable())
    assert again.publishable() == made.publishable()


def test_records_without_ids_are_covered_for_their_contents_only():
    """Row numbers are no ids: taking one record out renumbers, and moves, all that follow."""
    drawn = data.load("strokes", size=4, public_size=2, test_size=2)
    rows = replace(drawn, ids_are="rows", private=drawn.private._replace(users=np.array(list("aabb"))))
    named = replace(rows, ids_are="given", private=rows.private._replace(ids=np.array(list("wxyz"))))
    assert relation.of(rows, "record") == "contents"
    assert (relation.of(named, "record"), relation.of(named, "user")) == ("record", "user")
    with pytest.raises(PateError, match="--by user needs ids"):
        relation.of(rows, "user")


def test_statement_card_and_page_say_whose_word_the_relation_is():
    run, words = honest_runs.elsewhere(), "as declared by the makers of the votes"
    for path in (run.public_statement, run.student / "MODEL_CARD.md", run.public_report, run.report):
        assert words in path.read_text(), path
    own = honest_runs.whole()
    assert words not in own.public_statement.read_text() + (own.student / "MODEL_CARD.md").read_text()


def test_continuous_noise_says_what_it_does_not_cover():
    lines = {}
    for name, kind in BY_NAME.items():
        fields = {"threshold": 6.0, "student_confidence": 0.9}
        mechanism = kind(*(fields.get(field, 3.0) for field in kind.__dataclass_fields__))
        made = accounting.statement(mechanism, VOTES, None, 1e-5, private=True)
        lines[name] = "rounding" in made.model_card_line()
    assert {name for name, said in lines.items() if not said} == {
        name for name, kind in BY_NAME.items() if Noise(kind.family, 3.0).is_discrete
    }


def test_a_caveat_is_no_part_of_other_statements():
    made = accounting.statement(GNMax(9.0), VOTES, None, 1e-5, private=True)
    assert made.model_card_line().count("float32") == 1


def test_a_sanitised_figure_is_not_passed_off_as_paid_for():
    """The headline covers the answers; the sanitised figure is one more release, with a cost of its own."""
    votes = np.tile([28, 1, 1], (40, 1))
    plan = accounting.plan(GNMax(8.0), 40, 30, 3, 1e-5)
    sanitised = accounting.sanitise(GNMax(8.0), votes, 1e-5, plan)
    with_it = accounting.statement(GNMax(8.0), votes, None, 1e-5, sanitised=sanitised, private=True)
    without = accounting.statement(GNMax(8.0), votes, None, 1e-5, private=True)
    assert "sanitised figure apart" in with_it.model_card_line()
    assert "sanitised" not in without.model_card_line()
