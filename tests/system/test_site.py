"""The documentation as a site: no warning, no dead link, and pages that a browser shows."""

import functools
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import pate_jax

pytest.importorskip("material", reason="no mkdocs-material here: pip install '.[docs]'")
ROOT = Path(__file__).parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


class Anchors(HTMLParser):
    """What a page links to, shows and can be linked at."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.names = [], set()
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        known = dict(attributes)
        self.targets += [known[name] for name in ("href", "src") if known.get(name)]
        self.names |= {known[name] for name in ("id", "name") if known.get(name)}


@pytest.mark.long
def test_every_link_leads_somewhere(site):
    pages = {page.resolve(): Anchors(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) > 15
    for page, anchors in pages.items():
        for target in anchors.targets:
            path, anchor = urldefrag(unquote(target))
            if re.match(r"[a-z]+:", path):
                continue
            file = (page.parent / path).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            assert file.is_file(), f"{page.name} leads to {target}"
            assert not anchor or file.suffix != ".html" or anchor in pages[file].names, (
                f"{page.name}: {target}"
            )


@pytest.mark.long
def test_nothing_is_fetched_from_elsewhere(site):
    for page in site.rglob("*.html"):
        assert not re.findall(r'<(?:script|img)[^>]+src="(?:https?:)?//', page.read_text()), page.name
        assert not re.findall(r'<link[^>]+stylesheet[^>]+href="(?:https?:)?//', page.read_text()), page.name


@pytest.mark.long
def test_the_api_page_has_what_the_rooms_export(site):
    page = (site / "reference/api.html").read_text()
    for room in ("mechanisms", "voting", "aggregate", "accounting", "student", "ensemble"):
        module = __import__(f"pate_jax.{room}", fromlist=["*"])
        missing = [name for name in module.__all__ if name[0].isalpha() and f">{name}<" not in page]
        documented = [name for name in missing if callable(getattr(module, name)) and name[0].islower()]
        assert not documented, f"{room}: {documented}"
    assert "Largest count after Gaussian noise" in page and "&gt;&gt;&gt;" in page
    assert pate_jax.GNMax.__doc__.splitlines()[0].partition("`")[0].strip() in page


SEARCH_IS_READY = re.compile(
    r'"(All search scripts loaded|Lunr (pre-built )?index|Lunr index ready)'
)  # or not yet


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing."""


@pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome here: apt-get install chromium")
@pytest.mark.parametrize("name", ["index", "reference/api", "examples/first_run"])
@pytest.mark.long
def test_a_page_opens_in_a_browser(site, tmp_path, name):
    flags = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    logged = "--disable-component-update --enable-logging=stderr --v=0"
    usual = getattr(os, "sched_getscheduler", lambda _: 0)(0) == 0
    start = [] if usual or not shutil.which("chrt") else ["chrt", "--other", "0"]
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=site)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/{name}.html"
        command = [*start, BROWSER, *flags.split(), *logged.split(), f"--user-data-dir={tmp_path}/profile"]
        done = subprocess.run(
            [*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True
        )
        server.shutdown()
    said = [line for line in re.findall(r"CONSOLE.*", done.stderr) if not SEARCH_IS_READY.search(line)]
    assert said == []
    assert "<h1" in done.stdout and "Risk and attacks" in done.stdout
