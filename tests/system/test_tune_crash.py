"""A choice of settings as a real process, really killed: repeated, it has the same candidates and winner."""

import os
import signal

import honest_runs
import pytest
from test_crash import Children, Mortal

from pate_jax.accounting.costs import BestOf
from pate_jax.audit import verify
from pate_jax.cli import main
from pate_jax.runs import chain, ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.tune import candidates
from pate_jax.system import storage

pytestmark = pytest.mark.long
PARTS = ("keys.json", "candidates/*/ledger.jsonl", "candidates/*/keys.json")
LIST = """
[[candidate]]
voters = "sums"
"student.method" = "linear"
[[candidate]]
voters = "neighbours"
queries = 12
"student.method" = "ridge"
"""


def command(folder, out):
    """`pate tune` of the same choice as `honest_runs.choice`."""
    config = honest_runs.choice()
    (folder / "list.toml").write_text(LIST)
    files = [f"--{name}={getattr(config.data, name)}" for name in ("private", "public", "test")]
    costs = [f"--epsilon={config.epsilon}", f"--candidates={config.candidates}", "--by=user"]
    where = [f"--settings={folder / 'list.toml'}", f"--out={out}"]
    return ["tune", *files, *costs, f"--seed={config.seed}", *where]


def published(run):
    """What a choice publishes, byte for byte."""
    return [path.read_bytes() for path in (run.public_statement, run.student / "parameters.npz")]


def drawn(run):
    """The noisy numbers of every candidate's ledger, and its secret; the time of a line may differ."""
    return {path: path.read_bytes() for name in PARTS for path in run.private.glob(name)}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The system calls that an unharmed choice makes."""
    folder, mortal = tmp_path_factory.mktemp("calls"), Mortal()
    words = command(folder, folder / "choice")  # makes the honest choice, whose calls do not count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "os", mortal)
        main(words)
    return mortal.calls


def test_killed_now_and_then_a_choice_ends_as_if_nothing_had_been(calls, tmp_path):
    """At five writes from the first to the last, one after the other."""
    out = tmp_path / "choice"
    run = RunDirectory(out)
    with (made := Children(os.environ["JAX_COMPILATION_CACHE_DIR"])).parent:
        for part in (0.1, 0.3, 0.3, 0.5, 0.3):
            made.start([command(tmp_path, out)], int(part * len(calls)), False)
            if made.end() != -signal.SIGKILL:
                break  # there was less left to do than that
            before = drawn(run)
        made.parent.stdin.close()
    main(command(tmp_path, out))
    after = drawn(run)
    assert all(after[path].startswith(content) for path, content in before.items()), "nothing is drawn twice"
    assert ledger.charge(run.ledger, BestOf) == candidates.Candidates(
        candidates.Choice(run, None)
    ).due() and not list(out.rglob("*.tmp"))
    assert verify.of_run(run).of("failed") == []
    assert published(run) == published(RunDirectory(honest_runs.choice().directory))
    assert len(candidates.candidate_folders(out)) == 3


@pytest.mark.parametrize("moment", range(6))
def test_killed_once_a_choice_hands_over_the_same_and_does_not_tell_how_many(calls, tmp_path, capsys, moment):
    """At six moments spread over it, every other in the middle of what it writes."""
    out, unharmed = tmp_path / "choice", RunDirectory(honest_runs.choice().directory)
    with (made := Children(os.environ["JAX_COMPILATION_CACHE_DIR"])).parent:
        made.start([command(tmp_path, out)], (2 * moment + 1) * len(calls) // 12, moment % 2 == 1)
        assert made.end() == -signal.SIGKILL
        made.parent.stdin.close()
    run = RunDirectory(out)
    capsys.readouterr()
    main(command(tmp_path, out))
    said = "".join(capsys.readouterr())
    assert handed_over(run) == handed_over(unharmed)
    assert run.record.read().of("chosen") == unharmed.record.read().of("chosen")
    for book in unharmed.private.rglob("ledger.jsonl"):
        lines = (chain.read(path) for path in (book, out / book.relative_to(unharmed.root)))
        assert len({len(each) for each in lines}) == 1, "nothing is charged twice"
    assert "candidates/" not in said and "3 candidates" not in said.replace("About 3 candidates", "")


def handed_over(run):
    """All files of a release but pages, which have pictures here and none there."""
    files = [path for path in run.release.rglob("*.*") if path.suffix != ".html"]
    return {path.relative_to(run.release): path.read_bytes() for path in files}
