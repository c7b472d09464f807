"""README and every page of the documentation: links lead somewhere, code runs, commands parse."""

import functools
import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from pate_jax import cli

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*.md")])
ROOMS = ("pate_jax", "tests", "experiments", "benchmarks")
# Python on these pages is checked elsewhere, or wants data and time that a test has not.
NOT_RUN = {
    "kernels.md": "tests/test_kernels_page.py runs it",
    "data.md": "needs archives and trains an ensemble",
    "teachers.md": "trains an ensemble",
    "sweeps.md": "trains an ensemble",
    "guarantee.md": "needs a run",
    "CONTRIBUTING.md": "shows a pattern",
}
OTHER_COMMANDS = (
    "python -m pip",
    "python -m pytest",
    "mkdocs ",
    "pre-commit ",
    "python benchmarks/",
    "bash ",
    "sbatch ",
)


def blocks(page, *languages):
    found = re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def prose(page):
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def names(page):
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        assert file.exists(), f"{names(page)} leads to {target}"
        assert not anchor or anchor in anchors(file), f"{names(page)} leads to {target}"


@pytest.mark.long
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=names)
def test_python_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    for number, text in enumerate(blocks(page, "python")):
        code = compile(text, f"{names(page)}:{number + 1}", "exec")
        if page.name not in NOT_RUN:
            exec(code, space)


@pytest.mark.long
@pytest.mark.parametrize("name", ["tutorial.md", "votes_from_elsewhere.md"])
def test_a_page_works_from_top_to_bottom(name, tmp_path, monkeypatch, capsys):
    """Python and `pate` alike, in the order in which a reader meets them."""
    monkeypatch.chdir(tmp_path)
    page, space = ROOT / "docs" / name, {}
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(text, name, "exec"), space)
        for line in text.splitlines() if language == "sh" else []:
            command, *words = shlex.split(line)
            assert command == "pate", line
            taught = words[0] == "run" and "--teachers" in words
            quick = ["--epochs", "3", "--student.steps", "20"] if taught else []
            ends = pytest.raises(SystemExit, match=r"^0$") if words[0] == "verify" else nullcontext()
            with ends:
                cli.main([*words, *quick, *(["--steps", "20"] if words[0] == "student" else [])])
    assert "Hand over" in capsys.readouterr().out
    assert (tmp_path / "runs/mine/release/report.html").is_file()


def commands(page):
    lines = "".join(blocks(page, "sh", "bash", "console")).replace("\\\n", " ").splitlines()
    return [
        part.strip() for line in lines for part in line.split("&&") if part.strip() and part.strip()[0] != "#"
    ]


@pytest.fixture(scope="module")
def parse():
    """`pate` with commands that take their flags and do nothing."""

    def idle(command):
        @functools.wraps(command)
        def nothing(*_, **__):
            return None

        return nothing

    with pytest.MonkeyPatch.context() as patch:
        load = cli.Command.load
        patch.setattr(cli.Command, "load", lambda command: idle(load(command)))
        yield cli.main


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=names)
@pytest.mark.long
def test_commands_parse(page, parse, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    for command in commands(page):
        words = shlex.split(command, comments=True)
        if words[0] == "pate":
            parse(words[1:])
        elif words[:2] == ["python", "-m"] and words[2].startswith("experiments."):
            assert (ROOT / f"{words[2].replace('.', '/')}.py").is_file(), command
        elif words[:2] == ["python", "tpu_configs/launch.py"]:
            assert "--dry-run" in words, "a page shows the launcher dry"
            subprocess.run([sys.executable, *words[1:]], cwd=ROOT, check=True, capture_output=True)
        else:
            assert command.startswith(OTHER_COMMANDS), f"{names(page)}: nobody checks {command!r}"


def test_a_wrong_flag_is_noticed(parse):
    with pytest.raises(SystemExit):
        parse(["run", "strokes", "--teahcers", "3"])


def test_what_the_code_cites_is_there():
    """Derivations are cited by a page of docs/, and by its numbered section or the title of one in quotes."""
    for source in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        text = re.sub(r"\s+", " ", source.read_text())
        assert "theory \u00a7" not in text, f"{names(source)} cites a document that this project has not"
        for cited, section, title in re.findall(r'docs/(\w+\.md)(?:, section (\d+)|, "([^"]+)")?', text):
            titles = re.findall(r"^#+ (.*)$", (ROOT / "docs" / cited).read_text(), re.MULTILINE)
            known = not section or any(one.startswith(f"{section}. ") for one in titles)
            assert known and (not title or title in titles), f"{names(source)}: {cited} {section}{title}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    missing = [page.name for page in ROOT.glob("docs/*.md") if f"]({page.name})" not in index]
    assert set(missing) <= {"index.md"}, f"docs/index.md does not name {missing}"
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    missing = [page.name for page in ROOT.glob("docs/*.md") if f": {page.name}\n" not in navigation]
    assert not missing, f"the navigation of mkdocs.yml does not name {missing}"
