"""The pages: single files, readable without a network, and the public one without a sensitive figure."""

import dataclasses
import html
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import trade_off
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.runs.report import run_pages
from pate_jax.runs.report.run_pages import summary

RESULTS = {
    "run_dir": "runs/x",
    "dataset": "strokes",
    "data": "made <b>up</b> & small",
    "synthetic": True,
    "private": True,
    "teachers": 50,
    "queries": 30,
    "answered": 20,
    "label_accuracy": 0.95,
    "student_accuracy": None,
    "inside": {},
}


class Reader(HTMLParser):
    """Collects tags that are left open, addresses, and text."""

    def __init__(self):
        super().__init__()
        self.open, self.addresses, self.words = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.words.append(text)


def read(page):
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    return reader


@pytest.fixture(scope="module")
def statement():
    votes = np.array([[40, 5, 5], [20, 20, 10]] * 15)
    return accounting.statement(
        ConfidentDiscreteGaussian(30, 20.0, 10.0), votes, np.arange(30) < 20, 1e-5, private=True
    )


def test_the_public_page_has_no_sensitive_figure(statement):
    page = run_pages.public_page(RESULTS, statement)
    text = " ".join(read(page).words)
    assert "sensitive" not in text.lower()
    for name in ("exact", "pld", "published"):
        assert f"{statement.figures[name].epsilon:.3f}" not in text
    assert f"{statement.headline.epsilon:.2f}"[:-1] in text


def test_pages_need_no_network_and_escape_what_they_show(statement):
    figures = [("a < b", run_pages.accuracies(RESULTS, {"accuracy": {"mean": 0.9, "plurality": 0.95}}))]
    page = run_pages.private_page(
        RESULTS, statement, figures, {"settings": {"deep": {"name": "<x>", "none": None, "third": 1 / 3}}}
    )
    reader = read(page)
    assert "not set" in reader.words and "0.333333" in reader.words
    assert all(address.startswith("data:") for address in reader.addresses)
    assert not re.search(r"https?://(?!www\.w3\.org)", page)
    assert "<b>up</b>" not in page and "&lt;x&gt;" in page


def test_a_page_of_a_seeded_run_begins_with_the_warning(statement):
    page = run_pages.public_page({**RESULTS, "private": False}, statement)
    text = " ".join(read(page).words)
    assert text.index("NOT PRIVATE") < text.index("In short")


def test_the_summary_leaves_out_what_is_not_known(statement):
    text = summary(RESULTS, statement)
    assert "20 of them" in text and "95.0% of the answers" in text
    assert "student is right" not in text and "None" not in text


def odds(epsilon, delta):
    """How often a guess from even odds can be right, from (epsilon, delta) alone."""
    return trade_off.percent((1 + trade_off.variation(epsilon, delta)) / 2)


def test_the_odds_are_never_below_what_epsilon_allows():
    for epsilon in (0.0, 0.3, 1.0, 3.32, 6.42, 11.0, 30.0, 2000.0):
        told = float(odds(epsilon, 1e-5).rstrip("%")) / 100
        exact = min(1.0, (1 + 1e-5 * math.exp(-epsilon)) / (1 + math.exp(-epsilon)))
        assert exact - 1e-12 <= told <= exact + 1e-3


def test_the_promise_is_in_words_and_the_figures_are_folded(statement):
    public = run_pages.public_page(RESULTS, statement)
    right = trade_off.percent(statement.trade_off.guess)
    assert right < odds(statement.headline.epsilon, 1e-5)
    assert f"at most <strong>{right}</strong>" in public and statement.trade_off.words in public
    assert statement.model_card_line() in html.unescape(public)
    assert public.index("at most") < public.index("<details") < public.index("<table")
    private = run_pages.private_page(RESULTS, statement, [], {})
    own = statement.figures[statement.smallest].epsilon
    assert f"a smaller epsilon holds: {own:.2f}" in private and "for your eyes only" in private


def test_a_seeded_run_promises_nothing(statement):
    seeded = dataclasses.replace(statement, private=False)
    assert "Nothing is promised" in run_pages.public_page({**RESULTS, "private": False}, seeded)
