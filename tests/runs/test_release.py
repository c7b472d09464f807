"""What is handed over: the files, what the card says, and that it names its own limits."""

from functools import lru_cache

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pate_jax import accounting, models
from pate_jax.data import Part, Preprocessing, columns
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import measured
from pate_jax.runs import queries as pools
from pate_jax.runs.release import check, write
from pate_jax.student import Student
from pate_jax.system import storage

FACTS = {
    "private": True,
    "data": "digits, drawn by a program",
    "teachers": 40,
    "method": "fixmatch",
    "selection": "kmeans",
    "label_accuracy": 0.9375,
    "student_accuracy": 0.9712,
}


def student():
    model = models.build("mlp", input_shape=(4, 4, 1), classes=3, hidden=(5,))
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    parameters = jax.tree.map(lambda leaf: np.ones(leaf.shape, np.float32), shapes)
    names = ("ant", "bee", "cat")
    return Student(parameters, model.description, Preprocessing((0.0,), (255.0,)), names, 1.0, "uint8")


def statement(private=True):
    votes = np.eye(3, dtype=np.int64)[np.arange(32) % 3] * 40
    return accounting.statement(DiscreteGaussianMax(20.0), votes, None, 1e-5, private=private).publishable()


def written(folder, private=True, **changes):
    write.write(folder, student(), statement(private), {**FACTS, "private": private, **changes})
    return (folder / "student" / "MODEL_CARD.md").read_text()


def test_the_student_folder_is_whole_and_passes_the_audit(tmp_path):
    written(tmp_path)
    assert sorted(path.name for path in (tmp_path / "student").iterdir()) == [
        "MODEL_CARD.md",
        "parameters.npz",
        "predict.py",
        "statement.json",
        "student.json",
    ]
    assert check.audit(tmp_path) == []
    told = storage.read_json(tmp_path / "student" / "statement.json", "statement")
    assert told == storage.read_json(tmp_path / "statement.json", "statement")
    assert (tmp_path / "student" / "predict.py").read_text() == write.programs()["student/predict.py"]


def test_the_card_says_what_was_bought_at_what_cost_and_how_good_it_is(tmp_path):
    card = written(tmp_path)
    epsilon = statement()["model_card_line"]
    for said in (
        epsilon,
        "data-independent",
        "32 of 32 asked, chosen by kmeans; right: 93.75%",
        "40 teachers by the method fixmatch",
        "digits, drawn by a program",
        "97.12%",
        statement()["relation_in_words"],
        "It does not cover",
        "ant, bee, cat",
        "pixels from 0 to 255",
        "103 parameters",
    ):
        assert said in card, said
    assert card.startswith("---\n") and card.partition("\n---\n\n")[2].startswith("# Model card")


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({}, [("accuracy", 0.9712)]),
        ({"student_accuracy": None}, None),
        ({"measures": {"auroc": [0.81, 0.8, 0.82]}}, [("accuracy", 0.9712), ("roc_auc", 0.81)]),
        ({"test_is_private": True}, None),
        ({"data": 'a "ward": 3 #'}, [("accuracy", 0.9712)]),
    ],
)
def test_model_hubs_read_what_it_is_for_and_public_figures_alone(changes, figures):
    yaml = pytest.importorskip("yaml")
    facts = {**FACTS, **changes}
    front = yaml.safe_load(write._front_matter(student(), measured.published(facts)).split("---\n")[1])
    assert front["pipeline_tag"] == "image-classification" and "license" not in front
    assert "differential-privacy" in front["tags"] and "not-private" not in front["tags"]
    found = front.get("model-index")
    assert (found is None) == (figures is None)
    if found is not None:
        (result,) = found[0]["results"]
        assert [(one["type"], one["value"]) for one in result["metrics"]] == figures
        assert result["dataset"]["name"] == facts["data"]


def first_line(card):
    """The first line of a card, below what model hubs read."""
    return card.partition("\n---\n\n")[2].splitlines()[0]


def test_what_is_not_known_is_said_to_be_not_known(tmp_path):
    card = written(tmp_path, student_accuracy=None, label_accuracy=None, method=None, selection=None)
    assert "not measured, no public test part" in card and "no public labels" in card
    assert "None" not in card


def test_a_seeded_run_says_so_in_the_first_line_of_its_card(tmp_path):
    card = written(tmp_path, private=False)
    assert "NOT PRIVATE" in first_line(card) and "- not-private\n" in card
    assert "NOT PRIVATE" not in written(tmp_path)


def test_the_card_names_the_columns_of_a_table(tmp_path):
    kept = (columns.Column("age"), columns.Column("job", ("baker", "nurse")))
    model = models.build("table", input_shape=(3,), classes=2, hidden=(4,))
    parameters = jax.tree.map(
        lambda leaf: np.zeros(leaf.shape, np.float32), jax.eval_shape(model.init, jax.random.key(0))
    )
    scaling = Preprocessing((40.0, 0.0, 0.0), (9.0, 1.0, 1.0))
    made = Student(parameters, model.description, scaling, ("no", "yes"), columns=kept)
    assert "a table with the columns age, job" in write.model_card(made, statement(), FACTS)


def structure(card):
    """The kinds of the parts of a Markdown text, with tables and without names."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(card)
    return [
        (token.type, token.level, [part.type for part in token.children or ()])
        for token in tokens
        if token.type != "text"
    ]


NASTY = [
    "a|b",
    "# x",
    "\n# x\n",
    "<script>alert(1)</script>",
    "`",
    "``a",
    "**b**",
    "[a](http://b)",
    "&lt;",
    "~~s~~",
]
NASTY += [
    "\\",
    "- x",
    "\n\n| a |\n|---|\n| b |\n",
    "\u202e",
    "\ud800",
    "![a](b)",
    "<!--",
    "</li></ul>",
    "_a_",
    "\r",
]
NAME = st.one_of(st.sampled_from(NASTY), st.text(st.characters(codec=None), min_size=1, max_size=20))


@given(st.lists(NAME, min_size=2, max_size=4, unique=True), st.lists(NAME, min_size=1, max_size=4))
def test_no_name_of_a_class_or_column_changes_the_structure_of_a_card(classes, named):
    kept = [tuple(columns.Column(name) for name in names) for names in (named, ["age"] * len(named))]
    scaling = Preprocessing((0.0,), (1.0,))
    net = {"name": "table", "input_shape": [len(named)], "classes": len(classes)}
    odd, usual = (
        write.model_card(Student({}, net, scaling, tuple(names), columns=each), statement_of_cards(), FACTS)
        for names, each in ((classes, kept[0]), (["ant"] * len(classes), kept[1]))
    )
    assert odd.count("\n") == usual.count("\n")
    assert structure(odd) == structure(usual)
    odd.encode()  # to a file


@lru_cache(maxsize=1)
def statement_of_cards():
    return statement()


@given(NAME)
def test_a_name_is_shown_as_it_is(name):
    (paragraph,) = [
        token
        for token in MarkdownIt("commonmark").parse(f"is {write.plain(name)}.")
        if token.type == "inline"
    ]
    assert {part.type for part in paragraph.children} <= {"text", "text_special"}
    shown = "".join(part.content for part in paragraph.children)
    if name.isprintable():
        assert shown == f"is {name}."


@pytest.mark.parametrize("net", ["patches", "tandem"])
def test_the_card_says_that_a_student_holds_public_inputs(net):
    size = {"kinds": 4, "size": 3, "cells": 2, "examples": 9}
    model = models.build(net, input_shape=(8, 8, 1), classes=2, **size)
    parameters = model.init(jax.random.key(0))
    made = Student(parameters, model.description, Preprocessing((0.0,), (255.0,)), ("no", "yes"))
    assert "Holds 9 of the public inputs" in write.model_card(made, statement(), FACTS)
    assert "Holds" not in write.model_card(student(), statement(), FACTS)


@pytest.mark.parametrize("how", ["first", "random", "kmeans"])
def test_a_run_asks_each_chosen_input_once(how):
    inputs = np.repeat(np.arange(20, dtype=np.uint8)[:, None, None, None] * 10, 3, axis=0) + np.zeros(
        (1, 2, 2, 1), np.uint8
    )
    pool = Part(inputs, None, np.array([f"row-{row}" for row in range(60)]))
    different = pool.take(pools.different(pool, 7, []))
    chosen = pools.select(different, Preprocessing((0.0,), (255.0,)), 7, how, b"key")
    again = pools.select(different, Preprocessing((0.0,), (255.0,)), 7, how, b"key")
    assert chosen.ids.tolist() == again.ids.tolist()
    assert len({image.tobytes() for image in chosen.inputs}) == 7
