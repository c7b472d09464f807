"""README and every page of the documentation: links lead somewhere, code runs, commands parse."""

import functools
import hashlib
import importlib.util
import itertools
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
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("experiments/*.md"),
        ROOT / "benchmarks/NOTES.md",
    ]
)
ROOMS = ("pate_jax", "tests", "experiments", "benchmarks")
# Python on these pages is checked elsewhere, or wants data and time that a test has not.
NOT_RUN = {
    "own_jax_code.md": "tests/test_kernels_page.py runs it",
    "kernels.md": "tests/test_kernels_page.py runs it",
    "data.md": "needs archives and trains an ensemble",
    "teachers.md": "trains an ensemble",
    "sweeps.md": "trains an ensemble",
    "CONTRIBUTING.md": "shows a pattern",
}
SHOWN = (  # pages of docs/start whose printed lines are compared with what comes out
    "first_run.md",
    "own_table.md",
    "own_images_and_text.md",
    "scikit_learn.md",
    "votes_from_elsewhere.md",
    "own_jax_code.md",
    "several_owners.md",
)
WITHOUT_RUNS = ("scikit_learn.md", "own_jax_code.md", "several_owners.md")
EXACT = ("Publishable:", "data-independent", "They cost")
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


def shapes(text):
    """The lines of an output, with figures masked, which follow from a draw of noise; epsilon is left."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return [line if line.startswith(EXACT) else re.sub(r"-?\d[\d,.]*", "#", line) for line in lines]


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN)
def test_a_page_works_from_top_to_bottom_and_shows_what_is_printed(name, tmp_path, monkeypatch, capsys):
    """Python and `pate` alike, in the order in which a reader meets them."""
    if name == "own_images_and_text.md":
        pytest.importorskip("wordllama", reason="the extra [text] is not installed here")
    monkeypatch.chdir(tmp_path)
    number = itertools.count()  # each run has a secret of its own, and the same one in each test

    def fixed(size):
        return hashlib.sha256(f"{name} {next(number)}".encode()).hexdigest()

    monkeypatch.setattr("pate_jax.runs.secret.secrets.token_hex", fixed)
    page, space, printed, beside = ROOT / "docs/start" / name, {}, [], []
    for language, text in re.findall(r"^```(\w+)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        if language == "python":
            exec(compile(text, name, "exec"), space)
        for line in text.splitlines() if language == "sh" else []:
            command, *words = shlex.split(line)
            if command == "wait":
                printed += shapes("".join(process.communicate()[0] for process in beside))
                continue
            assert command == "pate", line
            if words[-1] == "&":
                start = [sys.executable, "-c", "from pate_jax.cli import main; main()", *words[:-1]]
                beside.append(
                    subprocess.Popen(
                        start, stdout=-1, stderr=-2, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
                    )
                )
                continue
            taught = words[0] == "run" and "--teachers" in words
            quick = ["--epochs", "3"] if taught else []
            steps = ["--student.steps", "20"] if taught or words == ["run"] else []
            ends = pytest.raises(SystemExit, match=r"^0$") if words[0] == "verify" else nullcontext()
            with ends:
                cli.main([*words, *quick, *steps, *(["--steps", "20"] if words[0] == "student" else [])])
        printed += shapes("".join(capsys.readouterr()))
        for line in shapes(text) if language == "text" else []:
            start = line.removesuffix("...").rstrip()
            assert any(each.startswith(start) for each in printed), f"not printed: {line!r}"
    assert name in WITHOUT_RUNS or any("Hand over" in line for line in printed)


def commands(page):
    lines = "".join(blocks(page, "sh", "bash", "console")).replace("\\\n", " ").splitlines()
    parts = [part.strip().removesuffix(" &") for line in lines for part in line.split("&&")]
    return [part for part in parts if part and part[0] != "#" and part != "wait"]


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
        for cited, section, title in re.findall(r'docs/([\w/]+\.md)(?:, section (\d+)|, "([^"]+)")?', text):
            titles = re.findall(r"^#+ (.*)$", (ROOT / "docs" / cited).read_text(), re.MULTILINE)
            known = not section or any(one.startswith(f"{section}. ") for one in titles)
            assert known and (not title or title in titles), f"{names(source)}: {cited} {section}{title}"


def test_every_page_is_in_the_index():
    index = (ROOT / "docs" / "index.md").read_text()
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")]
    missing = [page for page in pages if f"]({page})" not in index]
    assert set(missing) <= {"index.md"}, f"docs/index.md does not name {missing}"
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    missing = [page for page in pages if f": {page}\n" not in navigation]
    assert not missing, f"the navigation of mkdocs.yml does not name {missing}"


def machine_made():
    spec = importlib.util.spec_from_file_location("machine_made", ROOT / "docs" / "machine_made.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["commands.md", "settings.md", "names.md"])
def test_what_a_program_writes_is_what_it_would_write_now(name):
    made = machine_made()
    assert set(made.PAGES) == {"commands.md", "settings.md", "names.md"}
    assert (made.REFERENCE / name).read_text() == made.PAGES[name](), "run `python docs/machine_made.py`"


def words(page):
    return len(page.read_text().split())


def test_the_book_is_short_enough_to_be_read():
    """Pages for users have 2,000 words at most, all of them 30,000; proofs and machine-made pages apart."""
    machine = {"commands.md", "settings.md", "names.md", "comparison.md"}
    pages = [page for page in ROOT.glob("docs/**/*.md") if page.parent.name != "proofs"]
    pages = [page for page in pages if page.name not in machine] + [ROOT / "README.md"]
    long = {names(page): words(page) for page in pages if words(page) > 2_000}
    assert not long and sum(words(page) for page in pages) <= 30_000
    for name, most in {"README.md": 90, "CONTRIBUTING.md": 150, "CHANGELOG.md": 150}.items():
        assert len((ROOT / name).read_text().splitlines()) <= most, name
    assert words(ROOT / "CONTRIBUTING.md") <= 2_000


def test_every_page_names_its_reader():
    """Its first line of text says for whom it is."""
    for page in ROOT.glob("docs/*/*.md"):
        first = next(line for line in page.read_text().splitlines()[1:] if line.strip())
        assert first.startswith("For "), f"{names(page)}: {first}"


def test_the_page_on_own_methods_shows_the_method_that_is_tested():
    (shown,) = blocks(ROOT / "docs/guide/own_method.md", "python")
    assert shown == (ROOT / "tests/runs/majority.py").read_text()


def test_files_that_pages_of_the_house_name_are_there():
    for page in (ROOT / "docs/decisions/architecture.md", ROOT / "CONTRIBUTING.md"):
        for file in re.findall(r"`([a-z_]+/[a-z_/]+\.py)`", page.read_text()):
            assert (ROOT / "pate_jax" / file).is_file() or (ROOT / file).is_file(), f"{names(page)}: {file}"
