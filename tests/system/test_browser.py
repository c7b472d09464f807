"""The pages in a real browser: no error, all figures, readable on a phone, from a file, without a network."""

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import plots
from pate_jax.aggregate import Answers
from pate_jax.data import Part
from pate_jax.mechanisms import ConfidentDiscreteGaussian
from pate_jax.runs.report import run_pages, sheet
from pate_jax.sweep import Grid, SweepConfig, sweep

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium or chrome here: apt-get install chromium"
)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars "
    "--disable-component-update --host-resolver-rules=MAP*~NOTFOUND --enable-logging=stderr --v=0"
)
MEASURE = """<script>
window.errors = [];
addEventListener('error', e => errors.push(String(e.message)), true);
addEventListener('load', () => {
  const all = names => [...document.querySelectorAll(names)], images = [...document.images];
  const right = e => e.getBoundingClientRect().right;
  parent.postMessage(JSON.stringify({
    width: innerWidth, needed: document.documentElement.scrollWidth, errors,
    images: images.map(i => i.complete && i.naturalWidth > 0),
    print: images.filter(i => i.checkVisibility() && !i.closest('.sheet')).map(
      i => 13.3 * i.getBoundingClientRect().width / i.naturalWidth),
    hidden: images.filter(i => i.checkVisibility() && i.parentElement.scrollWidth > innerWidth).length,
    folded: all('details:not([open])').length, open: all('[open]').length,
    small: all('p,td,th,li,summary,figcaption').filter(
      e => parseFloat(getComputedStyle(e).fontSize) < 13).length,
    beyond: all('p,h1,h2,summary,figcaption').filter(e => e.checkVisibility() && !e.closest('.scroll')
      && right(e) > innerWidth + 1).length,
    text: document.body.innerText.length }), '*');
});</script>"""
# A window cannot be as narrow as a phone, a frame can.
FRAME = """<!doctype html><body><iframe width=WIDTH height=900 style="border:0" src="page.html"></iframe>
<script>addEventListener('message', e => document.body.dataset.seen = e.data);</script>"""
RESULTS = {
    "run_dir": "runs/x",
    "dataset": "strokes",
    "data": "strokes: synthetic images",
    "synthetic": True,
    "private": True,
    "teachers": 50,
    "queries": 30,
    "answered": 20,
    "label_accuracy": 0.95,
    "student_accuracy": 0.9,
    "inside": {},
    "planned": [{"epsilon": 0.5, "accuracy": 0.91, "low": 0.9, "high": 0.93}],
    "comparison": [{"method": "ridge", "score": 0.87, "error": 0.012, "answers": 300}],
}
NAMES = ("an_exceptionally_long_name_of_a_class_without_any_blank", "ankle boot", "T-shirt")


def shown(images):
    """What pages show of a student that guesses, on images or on a table of numbers."""
    random = np.random.default_rng(3)
    inputs = (
        random.integers(0, 256, (99, 8, 8, 1), dtype=np.uint8) if images else random.normal(size=(99, 40))
    )
    part = Part(inputs, random.integers(0, 3, 99), np.arange(99).astype(str))
    known = {"public": part, "class_names": NAMES, "columns": (), "name": "own", "show_public": True}
    kind = type("Set", (), known)
    found = sheet.Seen("test", part, random.dirichlet([1.0] * 3, 99).astype(np.float32))
    given = Answers(random.integers(0, 3, 99), np.ones(99, bool))
    return {**RESULTS, "seen": sheet.facts(found, NAMES)}, sheet.made(kind, part, given, found)


def swept(folder):
    """The page of a small sweep."""
    votes = np.array([[40, 5, 5], [20, 20, 10], [0, 6, 44]] * 10)
    np.savez(folder / "votes.npz", votes=votes, labels=np.tile([0, 1, 2], 10))
    grid = Grid(("confident-gnmax",), ("5", "10"), ("25", "40"), ("15",), ("30",))
    found = sweep(SweepConfig((str(folder / "votes.npz"),), out=folder / "sweep", values=grid))
    return Path(found["page"]).read_text()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    votes = np.array([[40, 5, 5], [20, 20, 10]] * 15)
    mechanism, answered = ConfidentDiscreteGaussian(30, 20.0, 10.0), np.arange(30) < 20
    statement = accounting.statement(mechanism, votes, answered, 1e-5, private=True)
    figures = [
        (run_pages.CONSENSUS, run_pages.consensus(votes, answered)),
        (run_pages.CUMULATIVE, plots.every(mechanism, votes, 1e-5)[0]),
        (run_pages.ACCURACY, run_pages.accuracies(RESULTS, {"accuracy": {"mean": 0.8, "plurality": 0.9}})),
    ]
    settings = {"settings": {"data": {"private": "/a/very/long/path/" * 9, "digest": "0123456789abcdef" * 8}}}
    return {
        "private": run_pages.private_page(RESULTS, statement, figures, settings),
        "public": run_pages.public_page(RESULTS, statement),
        "images": run_pages.public_page(shown(True)[0], statement, shown(True)[1]),
        "table": run_pages.public_page(shown(False)[0], statement, shown(False)[1]),
        "sweep": swept(tmp_path_factory.mktemp("sweep")),
    }


def ordinary():
    """A browser that inherits a real-time priority waits for itself for ever: start it without."""
    policy = getattr(os, "sched_getscheduler", lambda _: 0)(0)
    return ["chrt", "--other", "0"] if policy != 0 and shutil.which("chrt") else []


def run(command):
    """What a browser writes; should it hang, all of its processes are ended."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            return process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def opened(page, folder, width, unfold=False):
    """What a browser of this width makes of a page, and what its console said."""
    page = page.replace("<head>", f"<head>{MEASURE}")
    page = page.replace("<details>", "<details open>") if unfold else page
    (folder / "page.html").write_text(page)
    file = folder / "frame.html"
    file.write_text(FRAME.replace("WIDTH", str(width)))
    command = [*ordinary(), BROWSER, *FLAGS.split(), f"--user-data-dir={folder}/profile"]
    dom, said = run([*command, "--window-size=1300,900", "--dump-dom", file.as_uri()])
    seen = re.search(r'data-seen="([^"]*)"', dom)
    assert seen, said
    return json.loads(seen.group(1).replace("&quot;", '"')), re.findall(r"CONSOLE.*", said)


@pytest.mark.parametrize(
    "width", [360, *(pytest.param(width, marks=pytest.mark.long) for width in (380, 1200))]
)
@pytest.mark.parametrize(
    ("name", "figures"), [("private", 3), ("public", 0), ("sweep", 3), ("images", 60), ("table", 0)]
)
@pytest.mark.long
def test_a_page_opens_without_a_network(pages, tmp_path, name, figures, width):
    seen, console = opened(pages[name], tmp_path, width)
    assert console == [] and seen["errors"] == []
    assert len(seen["images"]) == figures and all(seen["images"])
    assert seen["width"] == width and seen["needed"] <= width, "the page is wider than the screen"
    assert seen["small"] == 0 and seen["beyond"] == 0
    assert seen["folded"] > 0 and seen["open"] == 0, "details are to be folded"
    assert seen["text"] > 300
    assert all(9 < size < 22 for size in seen["print"]), "the letters in a figure are too small, or too big"
    assert seen["hidden"] == 0, "a figure is shown in part only"


@pytest.mark.parametrize("name", ["private", "sweep", "images", "table"])
@pytest.mark.long
def test_a_page_that_is_unfolded_fits_a_phone_too(pages, tmp_path, name):
    seen, console = opened(pages[name], tmp_path, 360, unfold=True)
    assert console == [] and seen["needed"] <= 360 and seen["beyond"] == 0


@pytest.mark.long
def test_the_test_sees_what_is_wrong(pages, tmp_path):
    broken = pages["public"].replace(
        "</body>",
        '<p style="width:50rem">wide</p><img src="http://x.invalid/a.png"><script>nothing()</script></body>',
    )
    seen, console = opened(broken, tmp_path, 360)
    assert seen["needed"] > 360 and seen["images"] == [False] and seen["errors"] and console
