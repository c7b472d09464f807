"""A choice of settings that is killed: repeated, it charges once, and chooses and publishes the same."""

import os
import signal

import honest_runs
import pytest
from test_crash import Children, Mortal

from pate_jax.audit import verify
from pate_jax.cli import main
from pate_jax.runs import chain
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.tune.candidates import Choice
from pate_jax.system import storage

pytestmark = pytest.mark.usefixtures("without_pictures")
MOMENTS = 6
LIST = """
[[candidate]]
voters = "sums"
"student.method" = "linear"

[[candidate]]
voters = "neighbours"
queries = 12
"student.method" = "ridge"
"""


def command(folder):
    """`pate tune` of the same choice as `honest_runs.choice`."""
    (folder / "list.toml").write_text(LIST)
    data = honest_runs.choice().data
    files = [f"--{name}={getattr(data, name)}" for name in ("private", "public", "test")]
    more = ["--by=user", f"--seed={honest_runs.choice().seed}", "--epsilon=3", "--candidates=3"]
    return ["tune", *files, *more, f"--settings={folder / 'list.toml'}", f"--out={folder / 'run'}"]


def released(run):
    """All files that may be handed over, byte for byte."""
    return {path.relative_to(run.release): path.read_bytes() for path in run.release.rglob("*.*")}


def charged(run):
    """The lines of the ledgers of the choice and of its candidates, without the time of each."""
    books = sorted(run.private.rglob("ledger.jsonl"))
    hidden = ("time", "digest", "previous")
    return {
        book.relative_to(run.root): [
            {name: value for name, value in line.items() if name not in hidden} for line in chain.read(book)
        ]
        for book in books
    }


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The system calls that an unharmed choice makes, and its run."""
    folder, mortal = tmp_path_factory.mktemp("tune"), Mortal()
    words = command(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        main(words)
    return RunDirectory(folder / "run"), mortal.calls


@pytest.fixture(scope="module")
def children():
    made = Children(os.environ["JAX_COMPILATION_CACHE_DIR"])
    with made.parent:
        yield made
        made.parent.stdin.close()
    assert made.parent.returncode == 0


@pytest.mark.long
@pytest.mark.parametrize("moment", range(MOMENTS))
def test_a_choice_that_is_killed_ends_as_if_nothing_had_been(children, calls, tmp_path, capsys, moment):
    unharmed, made = calls
    at = (2 * moment + 1) * len(made) // (2 * MOMENTS)
    children.start([command(tmp_path)], at, half=moment % 2 == 1)
    assert children.end() == -signal.SIGKILL
    run = RunDirectory(tmp_path / "run")
    before = charged(run) if run.private.exists() else {}
    capsys.readouterr()
    main(command(tmp_path))
    said, after = capsys.readouterr(), charged(run)
    assert all(after[book][: len(lines)] == lines for book, lines in before.items()), "nothing is drawn twice"
    assert after == charged(unharmed), "nothing is charged twice"
    assert run.record.read().of("chosen") == unharmed.record.read().of("chosen")
    assert released(run) == released(unharmed)
    assert verify.of_run(run).of("failed") == []
    tried = len(Choice(run, None).numbers)
    assert "candidates/" not in said.out + said.err
    assert f"{tried} candidates" not in said.out + said.err.replace("About 3 candidates", "")
